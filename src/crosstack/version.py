"""The version of crosstack, which every saved result names."""

__all__ = ["__version__"]

__version__ = "0.1.0"
