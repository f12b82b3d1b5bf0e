"""`cusz report` for programs."""

from .inspecting.report.collect import make
from .inspecting.report.page import html

__all__ = ["html", "make"]
