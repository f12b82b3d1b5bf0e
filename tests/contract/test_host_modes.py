"""Archives depend neither on the floating-point mode of the host nor on its instruction set."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import itertools
import platform
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cusz_core as cusz
import support
from contract import test_spline
from support import printed

MXCSR_AT, ENVIRONMENT_BYTES = 28, 32  # in glibc's fenv_t on x86-64
FLUSH_TO_ZERO, DENORMALS_ARE_ZERO, ROUND_UP = 0x8000, 0x0040, 0x4000

on_x86_linux = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc", reason="sets the mode by glibc's x86-64 fenv_t"
)


def mxcsr() -> int:
    environment = ctypes.create_string_buffer(ENVIRONMENT_BYTES)
    ctypes.CDLL(ctypes.util.find_library("m")).fegetenv(environment)
    return int.from_bytes(environment.raw[MXCSR_AT:], "little")


@contextlib.contextmanager
def floating_point_mode(bits: int) -> Iterator[None]:
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    before = ctypes.create_string_buffer(ENVIRONMENT_BYTES)
    libm.fegetenv(before)
    changed = bytearray(before.raw)
    changed[MXCSR_AT:] = (int.from_bytes(before.raw[MXCSR_AT:], "little") | bits).to_bytes(4, "little")
    try:
        libm.fesetenv(bytes(changed))
        yield
    finally:
        libm.fesetenv(before)


def fields() -> Iterator[tuple[np.ndarray, float, str]]:
    """Subnormal values and remainders, the smallest legal bound, and rounding ties.

    Without the mode that the library sets, rounding up changes these archives. Flushing to zero does not: bounds below
    the smallest normal number are stored raw, and values within the bound become 0 anyway.
    """
    for dtype in support.DTYPES:
        tiny = float(np.finfo(dtype).tiny)
        smooth = support.smooth((40, 50, 60), dtype)
        yield smooth, 1e-3, "rel"
        scaled = (smooth.astype(np.float64) / np.abs(smooth).max() * 64 * tiny).astype(dtype)
        yield scaled, tiny, "abs"
        yield scaled, 1e-3, "rel"
        ties = (np.arange(9000) % 97 - 48).astype(dtype) * dtype.type(0.1)
        yield ties, 0.05, "abs"


@on_x86_linux
@pytest.mark.parametrize("bits", [FLUSH_TO_ZERO | DENORMALS_ARE_ZERO, ROUND_UP], ids=["flush to zero", "round up"])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_hosts_floating_point_mode_does_not_matter(bits: int, threads: int) -> None:
    for (x, eb, mode), predictor in itertools.product(fields(), ("lorenzo", "spline", "auto")):
        archive = cusz.compress(x, eb, mode, threads=threads, predictor=predictor)
        back = cusz.decompress(archive, threads=threads)
        with floating_point_mode(bits):
            set_to = mxcsr()
            again = cusz.compress(x, eb, mode, threads=threads, predictor=predictor)
            back_again = cusz.decompress(archive, threads=threads)
            after = mxcsr()
        assert set_to & bits == bits
        assert after & bits == bits  # the caller's mode is restored
        assert again == archive
        assert back_again.tobytes() == back.tobytes()


@on_x86_linux
def test_subnormal_parameters_arrive_where_the_host_flushes_them() -> None:
    subnormal = 1e-310
    x = support.smooth((40, 50, 60), support.F64)
    x[0, 0, :3] = subnormal, subnormal, 1e308
    archive = cusz.compress(x, subnormal, "rel", fill=subnormal)
    info = cusz.inspect(archive)
    assert (info.kind, info.eb, info.fill) == ("tiled", subnormal, subnormal)
    with floating_point_mode(FLUSH_TO_ZERO | DENORMALS_ARE_ZERO):
        again = cusz.compress(x, subnormal, "rel", fill=subnormal)
    assert again == archive


DIGESTS = """
import hashlib
import cusz_core as cusz
import golden_cases
from contract import test_choice, test_host_modes
def show(name, archive):
    print(name, hashlib.sha256(archive + cusz.decompress(archive, threads=1).tobytes()).hexdigest())
for name, case in golden_cases.CASES.items():
    show(name, case.compress(case.make(), backend="cpu", threads=1))
for name, x, bins in test_host_modes.codes():
    show(name, cusz.compress(x, 0.5, "abs", bins=bins, backend="cpu", threads=1, predictor="lorenzo"))
for name, x, eb, mode, fill in test_host_modes.fields_of_the_spline_codec():
    show(name, cusz.compress(x, eb, mode, fill=fill, backend="cpu", threads=1, predictor="spline"))
for name, x, eb, mode, fill in test_choice.fields():
    for predictor in ("auto", "spline"):
        show(name, cusz.compress(x, eb, mode, fill=fill, backend="cpu", threads=1, predictor=predictor))
"""


def codes() -> Iterator[tuple[str, np.ndarray, int]]:
    """Every number of substreams, full and not, codewords from one bit to the longest, missing values or none."""
    rng = np.random.default_rng(17)
    last_tiles = [1, 15, 16, 17, 63, 64, 65, 130, 500, 960, 1000, 1025, 1983, 1984, 1985, 2047, 2048, 3000, 4095, 4096]
    for n in [4096 + last for last in last_tiles]:  # a short field alone would be stored raw
        for width in (0.3, 3.0, 60.0, 500.0, 3e4, 5e5):  # standard deviation of the values, in steps
            noise = rng.laplace(0, width, n)
            for dtype in support.DTYPES:
                x = np.clip(noise, -4e6, 4e6).astype(dtype)
                yield f"{n} values, {width}, {dtype}", x, 64
                with_missing = x.copy()
                with_missing[rng.random(n) < 0.05] = np.nan
                yield f"{n} values with missing values, {width}, {dtype}", with_missing, 64
    for bins in (128, 512, 2048, 8192):
        for width in (2.0, 300.0, 2e4):
            yield f"{bins} bins, {width}", rng.laplace(0, width, (20, 33, 40)).astype(np.float32), bins
    # Groups and subgroups, clipped or not, in rows of all lengths.
    shapes = [(9000,), (100, 90), (3, 5000), (10, 3000), (900, 3), (17, 33, 70), (9, 9, 9), (40, 2, 2), (3, 7, 40, 33)]
    for shape in shapes:
        for significant in (0.02, 0.2, 0.6):
            where = rng.random([-(-extent // 4) for extent in shape]) < significant
            for axis in range(len(shape)):
                where = where.repeat(4, axis=axis)
            noise = rng.laplace(0, 2, shape) * where[tuple(slice(extent) for extent in shape)]
            for dtype in support.DTYPES:
                yield f"{shape}, {significant} of it not 0, {dtype}", noise.astype(dtype), 64
    # Tiles that get wilder: the sample lacks the symbols of the wildest, which need escapes or become outliers.
    wilder = rng.laplace(0, 1, (300, 4096)) * np.exp(np.arange(300) / 25)[:, None]
    yield "wilder and wilder", wilder.astype(np.float32).reshape(-1), 64


def fields_of_the_spline_codec() -> Iterator[tuple[str, np.ndarray, float, Any, float | None]]:
    for dtype in support.DTYPES:
        for shape in ((40_000,), (300, 170), (40, 50, 60), (3, 20, 33, 17), (2000, 3), (3, 4, 700), (1, 6, 7)):
            x = support.smooth(shape, dtype)
            yield f"smooth {shape} {dtype}", x, 1e-3, "rel", None
            yield f"coarse {shape} {dtype}", x, 0.5, "abs", None
            flat = x.copy().reshape(-1)
            flat[::113] = np.nan
            flat[1::227] = 1e20
            flat[2::451] *= dtype.type(1e9)
            flat[flat.size // 4 : flat.size // 3] = support.random_bits((flat.size // 3 - flat.size // 4,), dtype)
            flat[flat.size // 2 : flat.size // 2 + flat.size // 9] = 1e20
            yield f"varied {shape} {dtype}", flat.reshape(shape), 1e-2, "abs", 1e20
        shape = (2100, 2050) if dtype == support.F32 else (165, 170, 161)
        yield f"large {shape} {dtype}", test_spline.large(shape, dtype), 1e-3, "rel", 1e20
        tiny = float(np.finfo(dtype).tiny)
        waves = support.smooth((40, 50), support.F64)
        yield f"subnormal {dtype}", (waves / np.abs(waves).max() * 64 * tiny).astype(dtype), tiny, "abs", None


def expected_instruction_set(wanted: str) -> str:
    """What the library must choose here, by the CPU flags that the kernel reports."""
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        lines = cpuinfo.read().splitlines()
    flags = set(next(line for line in lines if line.startswith("flags")).split())
    amd = any(line.startswith("vendor_id") and "AuthenticAMD" in line for line in lines)
    has_avx2 = {"avx2", "abm", "bmi1", "bmi2"} <= flags
    has_avx512 = has_avx2 and {f"avx512{part}" for part in ("f", "bw", "cd", "dq", "vl")} <= flags
    if has_avx512 and (wanted == "avx512" or (("avx512_fp16" in flags or amd) and wanted == "")):
        return "avx512"
    return "avx2" if has_avx2 and wanted != "baseline" else "baseline"


@on_x86_linux
@pytest.mark.parametrize("wanted", ["", "baseline", "avx2", "avx512"])
def test_the_instruction_set_can_be_chosen(wanted: str) -> None:
    code = "from cusz_core import _native; print(_native.instruction_set())"
    assert printed(code, CUSZ_SIMD=wanted) == expected_instruction_set(wanted)


def test_the_instruction_set_does_not_matter() -> None:
    assert len(support.printed_by_every_instruction_set(DIGESTS)) > 500
