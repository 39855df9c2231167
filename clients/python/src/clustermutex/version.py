"""The version of this package, which is that of the project."""

__version__ = "0.2.0"
CLIENT = f"python/{__version__}"
