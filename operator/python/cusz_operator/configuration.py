"""Configuration files, for programs."""

from .configuring.files import OperatedVariable, check_engine, xml, yaml

__all__ = ["OperatedVariable", "check_engine", "xml", "yaml"]
