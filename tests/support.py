"""Shared by the tests: fields made by integer arithmetic, and a check of the bound independent of the package."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import math
import os
import re
import subprocess
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cusz_core as cusz
import tiers
from cusz_core import backends

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
DTYPES: tuple[np.dtype, ...] = (F32, F64)
RAW_OVERHEAD = 48

#: mpirun as root, on one machine, with more ranks than cores (Open MPI 4 and 5).
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OPENBLAS_NUM_THREADS": "1",
}

#: Backends of this build and machine; every contract holds for each of them, and all write the same bytes.
BACKENDS = [backend.name for backend in cusz.devices() if backend.available]

HAS_ZSTD = "zstd" in backends.lossless_stages()
needs_zstd = pytest.mark.skipif(not HAS_ZSTD, reason="this build has no zstd stage")

#: Extents around the edges of tiles (4096; 64x64; 8x16x32; 1x8x16x32), and empty, thin, prime and single ones.
SHAPES: dict[int, list[tuple[int, ...]]] = {
    1: [(n,) for n in (0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 4095, 4096, 4097, 8192, 8193, 10007, 3 * 4096 + 17)],
    2: [
        *[(0, 5), (5, 0), (1, 1), (2, 2), (1, 777), (777, 1), (1, 4097), (4097, 1), (63, 63), (64, 64), (65, 65)],
        *[(64, 128), (63, 129), (130, 70), (7, 1009), (2000, 3), (3, 2000), (101, 103)],
    ],
    3: [
        *[(0, 4, 4), (4, 0, 4), (4, 4, 0), (1, 1, 1), (7, 15, 31), (8, 16, 32), (9, 17, 33), (16, 32, 64)],
        *[(15, 33, 65), (1, 90, 180), (300, 1, 3), (5, 7, 11), (17, 1, 40), (100, 2, 2), (2, 3, 900)],
        *[(1, 1, 4097), (31, 37, 41)],
    ],
    4: [
        *[(0, 1, 2, 3), (3, 2, 1, 0), (1, 1, 1, 1), (1, 8, 16, 32), (2, 8, 16, 32), (2, 7, 15, 31), (3, 9, 17, 33)],
        *[(1, 1, 100, 100), (5, 4, 3, 2), (2, 1, 33, 65), (60, 2, 3, 5), (300, 1, 1, 3), (7, 11, 13, 17)],
    ],
}
ALL_SHAPES = [shape for shapes in SHAPES.values() for shape in shapes]


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Locks a folder while it is being made: other workers of pytest-xdist, and other checkouts, wait."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ------------------------------------------------------------------------------------------------------ cases


def pairwise(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """A few elements of a product, always the same ones, in which any two values of two axes meet."""
    values = [list(axis) for axis in axes]
    product = list(itertools.product(*(range(len(axis)) for axis in values)))
    pairs = [frozenset[Hashable](itertools.combinations(enumerate(case), 2)) for case in product]
    chosen = sorted(product[i] for i in tiers.cover(pairs))
    return [tuple(axis[i] for axis, i in zip(values, case, strict=True)) for case in chosen]


def pairs(names: str, *axes: Iterable[Any], indirect: Sequence[str] = ()) -> pytest.MarkDecorator:
    """Parametrizes a test with the `pairwise` cases of a product."""
    return pytest.mark.parametrize(names, pairwise(*axes), ids=str, indirect=indirect)


# ------------------------------------------------------------------------------------------------------ fields


def hashes(n: int, seed: int = 0) -> NDArray[np.uint64]:
    """n well-mixed 64-bit integers, the same on every machine."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, n + 1, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def integers(n: int, low: int, high: int, seed: int = 0) -> NDArray[np.int64]:
    """n integers from low to high - 1."""
    return (hashes(n, seed) % np.uint64(high - low)).astype(np.int64) + low


def smooth(shape: tuple[int, ...], dtype: np.dtype, seed: int = 0) -> NDArray[np.floating]:
    """A field with large and small scales, made from integers only: parabolic waves along every axis, and noise."""
    n = math.prod(shape)
    total = integers(n, -40, 41, seed).reshape(shape)
    for axis, extent in enumerate(shape):
        period = 12 + 7 * axis + seed % 5
        phase = (np.arange(extent, dtype=np.int64) * 1000 // period + 311 * axis) % 2000 - 1000
        wave = np.where(phase < 0, -phase * (1000 + phase), -phase * (1000 - phase)) // 50  # +-5000
        total = total + wave.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return (total.astype(np.float64) / 4096).astype(dtype)


def random_bits(shape: tuple[int, ...], dtype: np.dtype, seed: int = 0) -> NDArray[np.floating]:
    """Every bit pattern: all magnitudes, subnormals, infinities, NaN of many payloads."""
    bits = hashes(math.prod(shape), seed)
    return (
        (bits >> np.uint64(32)).astype(np.uint32).view(F32).reshape(shape)
        if dtype == F32
        else bits.view(F64).reshape(shape)
    )


def bits(x: NDArray) -> NDArray:
    return np.ascontiguousarray(x).view(np.uint32 if x.dtype.itemsize == 4 else np.uint64)


def many_magnitudes(shape: tuple[int, ...], dtype: np.dtype, seed: int = 0) -> np.ndarray:
    """Smooth logarithms over most exponents, both signs, and zeros of both signs."""
    octaves = 0.45 * np.finfo(dtype).maxexp
    logs = smooth(shape, np.dtype(np.float64), seed)
    x = (np.exp2(octaves * logs / max(np.abs(logs).max(initial=0), 1e-9))).astype(dtype)
    x *= np.where(np.roll(logs, 3) < 0, -1, 1).astype(dtype)
    x.reshape(-1)[::97] = 0.0
    x.reshape(-1)[5::97] = -0.0
    return x


def same_bits(x: NDArray, y: NDArray) -> bool:
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def boxes(shape: tuple[int, ...], seed: int, how_many: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(start, count) of boxes: the whole, single values, thin, empty and random ones."""
    random = np.random.default_rng(seed)
    found = [((0,) * len(shape), shape)]
    if 0 in shape:
        return found
    for i in range(how_many):
        start = [int(random.integers(n)) for n in shape]
        count = [1 + int(random.integers(n - s)) for s, n in zip(start, shape, strict=True)]
        if i % 4 == 0:  # one plane, or one value
            count = [1 if random.random() < 0.5 else c for c in count]
        if i % 4 == 1:  # the whole of one axis
            axis = int(random.integers(len(shape)))
            start[axis], count[axis] = 0, shape[axis]
        found.append((tuple(start), tuple(count)))
    found.append((tuple(n - 1 for n in shape), (1,) * len(shape)))
    found.append((tuple(n // 2 for n in shape), (0,) * len(shape)))
    return found


def part(x: NDArray, start: tuple[int, ...], count: tuple[int, ...]) -> NDArray:
    return np.ascontiguousarray(x[tuple(slice(s, s + c) for s, c in zip(start, count, strict=True))])


# ------------------------------------------------------------------------------------------------------ oracle


def value_range(x: NDArray, fill: float | None = None) -> tuple[float, float]:
    """Min and max of the values that are finite and not the fill value; (0, 0) if there are none."""
    counted = np.isfinite(x)
    if fill is not None:
        with np.errstate(over="ignore"):
            counted &= bits(x) != bits(np.array([fill]).astype(x.dtype))[0]
    values = x[counted]
    return (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)


def absolute_bound(x: NDArray, eb: float, mode: str, fill: float | None = None) -> float:
    """The absolute bound that is promised for a field."""
    if mode == "abs":
        return eb
    low, high = value_range(x, fill)
    if math.isfinite(high - low):
        return min(eb * (high - low), float(np.finfo(F64).max))
    return min(eb * (high / 2 - low / 2) * 2, float(np.finfo(F64).max))


def bound_in_force(info: cusz.ArchiveInfo, promised: float) -> float:
    """The bound that a tiled archive must hold. Version 2 rounds a relative bound down to a value of the field's type;
    it is 0 for a constant field, and the smallest normal number if the promised bound is 0."""
    if info.version == 1 or info.mode == "abs":
        return promised
    if info.tiles == 0:
        return 0.0
    if promised == 0:
        return float(np.finfo(info.dtype).tiny)
    with np.errstate(over="ignore"):
        rounded = info.dtype.type(promised)
    if float(rounded) > promised:
        rounded = np.nextafter(rounded, info.dtype.type(0))
    return min(float(rounded), 2.0 ** (124 if info.dtype == F32 else 1020))


def violations(x: NDArray, y: NDArray, bound: float, fill: float | None = None, *, of_each: bool = False) -> list[str]:
    """Values of `y` that break the promise made for `x`, found in exact arithmetic; empty if there are none.
    With of_each, the bound is relative to every value, and zeros and signs are kept."""
    if x.dtype != y.dtype or x.shape != y.shape:
        return [f"{x.dtype} {x.shape} came back as {y.dtype} {y.shape}"]
    x, y = x.reshape(-1), y.reshape(-1)
    changed = np.flatnonzero(bits(x) != bits(y))
    if changed.size and bound == 0:
        return [f"[{i}] {x[i]!r} -> {y[i]!r}: lossless was promised" for i in changed[:10]]
    fill_bits = None
    if fill is not None:
        with np.errstate(over="ignore"):
            fill_bits = int(bits(np.array([fill]).astype(x.dtype))[0])
    x, y = x[changed], y[changed]
    may_differ = np.isfinite(x) & ((x != 0) | (not of_each))
    if fill_bits is not None:
        may_differ &= bits(x) != fill_bits
    broken = [f"{v!r} -> {w!r}: not bit for bit" for v, w in zip(x[~may_differ], y[~may_differ], strict=True)]
    # Well below the bound, rounding cannot matter. All others are compared as rational numbers, each pair once.
    wide = x.astype(F64)
    with np.errstate(over="ignore", invalid="ignore"):
        distance = np.abs(wide - y.astype(F64))
        clear = distance < 0.999999 * bound * (np.abs(wide) if of_each else 1)
    if of_each:
        clear &= (np.abs(wide) > 1e-280) & (np.signbit(x) == np.signbit(y))
    candidates = may_differ & ~clear
    for v, w in np.unique(np.stack([x[candidates], y[candidates]], axis=1).astype(F64), axis=0).tolist():
        limit = Fraction(bound) * (abs(Fraction(v)) if of_each else 1)
        keeps_sign = math.copysign(1, v) == math.copysign(1, w)
        if not math.isfinite(w) or abs(Fraction(v) - Fraction(w)) > limit or (of_each and not keeps_sign):
            broken.append(f"{v!r} -> {w!r}: differs by {v - w!r}, the bound is {bound!r}")
    return broken


def check_contract(x: NDArray, eb: float, mode: str = "abs", *, fill: float | None = None, **options: Any) -> bytes:
    """Compresses, decompresses and checks everything that is promised. Returns the archive. Without a predictor, checks
    the archives of both codecs, and that the default archive is one of them. Uses one thread by default: small fields
    gain nothing from more, and test_determinism checks that the number does not matter."""
    if "predictor" in options:
        return _check_contract(x, eb, mode, fill, options)
    of_lorenzo, of_spline = (
        _check_contract(x, eb, mode, fill, {**options, "predictor": name}) for name in ("lorenzo", "spline")
    )
    archive: bytes = cusz.compress(x, eb, mode, fill=fill, **{"threads": 1, **options})  # type: ignore[call-overload]
    assert archive == (of_spline if cusz.inspect(archive).version == 2 else of_lorenzo)
    return archive


def _check_contract(x: NDArray, eb: float, mode: str, fill: float | None, options: dict[str, Any]) -> bytes:
    archive = cusz.compress(x, eb, mode, fill=fill, **{"threads": 1, **options})  # type: ignore[call-overload]
    assert isinstance(archive, bytes)
    assert len(archive) <= x.nbytes + RAW_OVERHEAD
    assert len(archive) <= cusz.max_archive_bytes(x.shape, x.dtype)

    info = cusz.inspect(archive)
    assert (info.shape, info.dtype) == (x.shape, x.dtype)
    assert (info.raw_bytes, info.archive_bytes) == (x.nbytes, len(archive))
    of_each = mode == "pw_rel"
    bound = eb if of_each else absolute_bound(x, eb, mode, fill)
    if info.kind == "tiled":
        assert (info.mode, info.eb) == (mode, eb)
        if of_each:
            assert info.version == 2
            assert math.isnan(info.eb_abs)
        else:
            bound = bound_in_force(info, bound)
            assert info.eb_abs == bound
        assert (info.fill is None) == (fill is None)
        assert sum((info.sections.header, info.sections.codebook)) <= len(archive)
    else:
        assert (info.eb_abs, len(archive)) == (0, x.nbytes + RAW_OVERHEAD)

    y = cusz.decompress(archive, threads=1)
    assert y.flags.c_contiguous
    assert violations(x, y, bound if info.kind == "tiled" else 0.0, fill, of_each=of_each) == []
    if info.kind == "raw":
        assert same_bits(x, y)
    cusz.check(archive, threads=1)
    cusz.verify(x, archive, threads=1)
    return archive


def round_trip(seed: int) -> tuple[bytes, bytes]:
    """An archive and what it decodes to, made with three threads. (It is here so that spawned processes find it.)"""
    archive = cusz.compress(smooth((40, 50, 60), F32, seed), 1e-3, threads=3)
    return archive, cusz.decompress(archive, threads=3).tobytes()


def run(
    command: Sequence[object], *, status: int | None = 0, timeout: float = 300, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs a command; fails the test with its output unless it exits with `status` (None: any)."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, timeout=timeout, capture_output=True, text=True, errors="replace", check=False, **options
    )
    if status not in (None, done.returncode):
        pytest.fail(f"{' '.join(words)}\nexit status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done


def output(*command: object, ok: bool = True, **options: Any) -> str:
    """Everything that a command prints. It must succeed, or fail if not `ok`; it may take long."""
    done = run(command, status=None, timeout=3600, **options)
    text = done.stdout + done.stderr
    assert (done.returncode == 0) == ok, text
    return text


def printed(code: str, **environment: str) -> str:
    """What Python code prints when it runs in its own process."""
    return run([sys.executable, "-c", code], env={**os.environ, **environment}).stdout.strip()


def printed_by_every_instruction_set(code: str) -> list[str]:
    """The lines that Python code prints, after a check that every instruction set gives the same ones. The code can
    import test modules. (On a processor without AVX2 or AVX-512, some of the runs are identical.)"""
    tests = Path(__file__).parent
    path = os.pathsep.join([str(tests), str(tests / "golden"), os.environ.get("PYTHONPATH", "")])
    first, *others = (
        printed(code, CUSZ_SIMD=simd, PYTHONPATH=path).splitlines() for simd in ("baseline", "avx2", "avx512")
    )
    assert others == [first, first]
    return first


def library_of(source: Path, folder: Path) -> Path:
    """Compiles a C source to a library in this folder, for LD_PRELOAD."""
    library = folder / f"lib{source.stem}.so"
    run(["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", library, source, "-ldl"])
    return library


def fails(result: tuple[int, str, str], code: int, words: str) -> bool:
    """Checks that a command failed as it should: one line on standard error, nothing on standard output."""
    assert result[0] == code
    assert result[1] == ""
    assert re.fullmatch(r"cusz: error: [^\n]+\n", result[2]), result[2]
    assert re.search(words, result[2]), result[2]
    return True


def damage(file: Path, at: int, bits: int = 1, *, within: bytes | None = None) -> None:
    """Flips bits of byte `at` of a file, or of the first occurrence of `within` in it; -1 is the last byte."""
    content = bytearray(file.read_bytes())
    begin, size = (0, len(content)) if within is None else (content.index(within), len(within))
    content[begin + (at if at >= 0 else size + at)] ^= bits
    file.write_bytes(content)


def calls_of(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> list[tuple[Any, ...]]:
    """The positional arguments of every call of a function from now on."""
    calls: list[tuple[Any, ...]] = []
    function = getattr(where, name)

    def recorded(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return function(*arguments, **options)

    monkeypatch.setattr(where, name, recorded)
    return calls


def flipped(archive: bytes, bit: int) -> bytes:
    changed = bytearray(archive)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def resident_bytes() -> int:
    """The memory of this process that is resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def read_by_zarr_alone(store: Path) -> NDArray:
    """An array as read by a process that imports only zarr."""
    code = (
        "import sys, numpy, zarr\n"
        "assert 'cusz_core' not in sys.modules\n"
        "numpy.save(sys.argv[2], zarr.open_array(sys.argv[1], mode='r')[...])\n"
    )
    result = store.with_name("read_by_zarr_alone.npy")
    run([sys.executable, "-c", code, store, result])
    return np.load(result)


def write_run(path: Path, *steps: Mapping[str, Any], **options: Any) -> Path:
    """Writes a file with a Writer of these options. Each of `steps` maps the names to the values that are put."""
    import cusz_operator

    with cusz_operator.Writer(path, **options) as out:
        for fields in steps:
            with out.step():
                for name, value in fields.items():
                    out.put(name, value)
    return path


def fields_of_bp(file: Path) -> dict[str, list[np.ndarray]]:
    """Every step of every variable, as ADIOS2 reads it; single values as arrays of one element."""
    import adios2

    import cusz_operator  # noqa: F401  (tells ADIOS2 where the plugin is)

    fields: dict[str, list[np.ndarray]] = {}
    opened: Any
    with adios2.FileReader(str(file)) as opened:
        for name in opened.available_variables():
            shape = opened.inquire_variable(name).shape(0)
            steps = (opened.read(name, step_selection=[step, 1]) for step in range(opened.num_steps()))
            fields[name] = [np.asarray(step).reshape(shape or (1,)) for step in steps]
    return fields


def not_installed(requirement: str, stderr: str) -> None:
    """Skips a test whose package pip could not install, for example without a network; fails it where CI is set."""
    last = stderr.strip().splitlines()[-1:] or ["no message"]
    (pytest.fail if os.environ.get("CI") else pytest.skip)(f"pip cannot install {requirement}: {last[0]}")
