"""Fixtures for tests on a GPU: CuPy and a device, or the reason why they are missing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cusz_core as cusz
import support

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))  # for `import golden_cases`


@pytest.fixture(scope="session")
def cupy() -> Any:
    """CuPy, on a device that the library can use."""
    cuda = {backend.name: backend for backend in cusz.devices()}["cuda"]
    if not cuda.available:
        pytest.skip(f"no CUDA device: {cuda.device}")
    return pytest.importorskip("cupy", reason="CuPy is not installed")


@pytest.fixture(autouse=True)
def nothing_kept(cupy: Any) -> Iterator[None]:
    """No test leaves scratch memory or work behind for the next."""
    yield
    cupy.cuda.Device().synchronize()
    cusz.release_scratch()
    cupy.get_default_memory_pool().free_all_blocks()


@pytest.fixture
def free_bytes(cupy: Any) -> Callable[[], int]:
    """Free memory of the device."""
    return lambda: int(cupy.cuda.runtime.memGetInfo()[0])


@pytest.fixture
def identical(cupy: Any) -> Callable[..., bytes]:
    """Compresses and decompresses on the device and on the CPU, with Lorenzo unless told otherwise, and requires the
    same bits. Returns the archive."""

    def check(x: Any, eb: float, mode: str = "abs", **options: Any) -> bytes:
        options = {"predictor": "lorenzo", **options}
        wanted = cusz.compress(x, eb, mode, backend="cpu", **options)  # type: ignore[call-overload]
        decoded = cusz.decompress(wanted, backend="cpu")
        on_device = cupy.asarray(x)
        archive = cusz.compress(on_device, eb, mode, device="cuda", **options)  # type: ignore[call-overload]
        require_same(archive.get().tobytes(), wanted)
        require_same(cusz.compress(on_device, eb, mode, **options), wanted)  # type: ignore[call-overload]
        assert support.same_bits(cusz.decompress(archive, like=cupy).get(), decoded)
        assert support.same_bits(cusz.decompress(wanted, like=cupy).get(), decoded)
        assert support.same_bits(cusz.decompress(archive), decoded)
        assert support.same_bits(on_device.get(), x), "the field has been written to"
        return bytes(wanted)

    return check


def require_same(archive: bytes, wanted: bytes) -> None:
    """Fails with the place where the archives differ."""
    if archive == wanted:
        return
    pairs = zip(archive, wanted, strict=False)
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(archive), len(wanted)))
    pytest.fail(f"{len(archive)} bytes, the CPU's archive has {len(wanted)}; they differ from byte {first} on")
