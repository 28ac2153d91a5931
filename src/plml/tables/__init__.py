"""From a table on disk to features and back."""
