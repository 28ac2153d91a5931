"""Fitted metrics as objects."""
