"""Training a batch of runs."""
