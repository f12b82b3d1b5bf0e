"""Reading, by the names that programs use."""

from .reading.reader import Reader, ReaderStep, ReaderVariable

__all__ = ["Reader", "ReaderStep", "ReaderVariable"]
