"""The level loop, results and statistics."""
