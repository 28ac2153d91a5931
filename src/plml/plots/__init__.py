"""Pictures. matplotlib is imported where one is drawn."""
