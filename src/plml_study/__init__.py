"""The paper's study: data sets, protocols, statistics, tables and figures."""
