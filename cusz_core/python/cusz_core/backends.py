"""What this machine and this build can compress with."""

from __future__ import annotations

import dataclasses
import platform
from typing import Any

from . import _native

__all__ = ["BackendInfo", "cpu_model", "default_threads", "devices", "lossless_stages"]


@dataclasses.dataclass(frozen=True)
class BackendInfo:
    """One backend.

    Attributes:
        name: as `compress(backend=...)` takes it.
        available: whether this build has it.
        device: what it runs on, or why it is not available.
        threads: CPU threads that a call uses by default; 0 for device backends.
    """

    name: str
    available: bool
    device: str
    threads: int

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain Python values."""
        return dataclasses.asdict(self)


def devices() -> list[BackendInfo]:
    """The backends, those that this build lacks included."""
    found = []
    for backend_id, name in enumerate(_native.BACKENDS):
        if name == "auto":
            continue
        available = _native.has_backend(backend_id)
        if name == "cpu":
            found.append(BackendInfo(name, available, cpu_model(), default_threads()))
        else:
            found.append(BackendInfo(name, available, name if available else "not in this build", 0))
    return found


def default_threads() -> int:
    """CPU threads that a call uses when it is not told."""
    return _native.default_threads()


def cpu_model() -> str:
    """The name of this machine's processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as cpuinfo:
            for line in cpuinfo:
                key, _, value = line.partition(":")
                if key.strip() in ("model name", "Model", "cpu model") and value.strip():
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown CPU"


def lossless_stages() -> list[str]:
    """The lossless stages of this build."""
    return [name for stage, name in enumerate(_native.LOSSLESS_STAGES) if _native.has_lossless(stage)]
