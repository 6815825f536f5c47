"""Sweeps: the searches of a grid, on this machine or on a cluster."""
