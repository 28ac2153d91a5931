"""Small numerical building blocks: projections, operators on pairs, exact top-k search."""
