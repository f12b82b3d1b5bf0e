"""The one error that is not in `cusz_core.errors`."""

from __future__ import annotations

from cusz_core.errors import CuszError

__all__ = ["PluginError"]


class PluginError(CuszError, RuntimeError):
    """The ADIOS2 plugin is missing or has the wrong version."""
