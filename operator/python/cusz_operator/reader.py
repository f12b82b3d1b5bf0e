"""Reading, by the names that programs use."""

from .reading.reader import Reader, ReaderVariable
from .reading.steps import ReaderStep

__all__ = ["Reader", "ReaderStep", "ReaderVariable"]
