"""The backends of this build, and the hardware they run on here."""

from __future__ import annotations

import dataclasses
import platform
from typing import Any

from . import _native


@dataclasses.dataclass(frozen=True)
class BackendInfo:
    """One backend.

    Attributes:
        name: as in `compress(backend=...)`.
        available: whether it can be used: it is in this build, and this process has hardware for it.
        device: what it runs on (the first device; the CPU with the instruction set used), or why it is not available.
        threads: CPU threads that a call uses by default; 0 for device backends.
        devices: names of everything it can run on; for "cuda" in order of device number. Empty if not available.
    """

    name: str
    available: bool
    device: str
    threads: int
    devices: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """All attributes as plain Python values."""
        return dataclasses.asdict(self) | {"devices": list(self.devices)}


def devices() -> list[BackendInfo]:
    """All backends and what they run on, including those that cannot be used, with the reason. Loads the CUDA driver
    if there is one.

    Raises:
        DeviceError: the name of a device cannot be queried.
    """
    found = []
    for backend_id, name in enumerate(_native.BACKENDS):
        if name == "cpu":
            model = f"{cpu_model()}, {_native.instruction_set()}"
            found.append(BackendInfo(name, True, model, default_threads(), (model,)))
        elif name == "cuda":
            count, reason = _native.device_count()
            names = tuple(_native.device_name(number) for number in range(count))
            if not _native.has_backend(backend_id):
                reason = "not in this build"
            found.append(BackendInfo(name, count > 0, names[0] if names else reason, 0, names))
    return found


def default_threads() -> int:
    """CPU threads that a call uses by default."""
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
