"""Run directories and checkpoints."""
