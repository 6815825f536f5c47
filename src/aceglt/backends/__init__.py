"""The same computations, faster."""
