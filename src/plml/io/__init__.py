"""Files, model files and checkpoints."""
