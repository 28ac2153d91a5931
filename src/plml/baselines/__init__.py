"""What the baselines of the paper learn by."""
