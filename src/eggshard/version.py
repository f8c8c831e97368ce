"""The version of this package, for what is written to files."""

__version__ = "0.2.0"
