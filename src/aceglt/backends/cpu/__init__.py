"""Compiled kernels for the CPU."""
