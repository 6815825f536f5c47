"""The version, which files record."""

__version__ = "0.1.0"
