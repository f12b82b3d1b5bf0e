"""`cusz check` for programs."""

from .configuring.check import Report, Variable, check

__all__ = ["Report", "Variable", "check"]
