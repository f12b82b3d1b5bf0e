"""Reading, for programs."""

from .reading.levels import VariableLevel
from .reading.reader import Reader, ReaderVariable
from .reading.steps import ReaderStep

__all__ = ["Reader", "ReaderStep", "ReaderVariable", "VariableLevel"]
