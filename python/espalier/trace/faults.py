"""The error of this package."""


class NotUnderstood(Exception):
    """A part of the model that no op of Espalier computes; the text names the line of the Python source."""
