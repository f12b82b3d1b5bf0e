"""The kernels' PTX writes the CPU engine's archives, byte for byte, and reads the same values from them."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from ptx_library import PtxLibrary
from ptx_writing import HEAD
from simt_fields import COVERING, KINDS, REACHING, SPLINE_KINDS, SPLINE_SHAPES
from simt_library import ABS, CPU, CUDA, DEVICE, PW_REL, REL, Context, Failure

import support

pytestmark = [pytest.mark.simt, pytest.mark.full]  # their PTX takes nvcc minutes

CORE_SOURCES = Path(__file__).resolve().parents[2] / "cusz_core/src"
DTYPES: list[np.dtype] = [np.dtype(np.float32), np.dtype(np.float64)]


def check_identity(context: Context, x: NDArray, eb: float, mode: int = ABS, **options: object) -> None:
    library = context.library
    assert isinstance(library, PtxLibrary)
    wanted = context.compress(x, eb, mode, backend=CPU, **options)
    before = len(library.counts())
    archive = context.compress(x, eb, mode, field=DEVICE, archive=DEVICE, **options)
    assert len(archive) == len(wanted)
    differ = np.flatnonzero(np.frombuffer(archive, np.uint8) != np.frombuffer(wanted, np.uint8))
    assert differ.size == 0, f"{differ.size} of {len(wanted)} bytes differ, from byte {differ[0]} on"
    decoded = context.decompress(wanted, x.nbytes, backend=CPU)
    between = len(library.counts())
    assert context.decompress(wanted, x.nbytes, field=DEVICE, archive=DEVICE) == decoded
    assert before < between < len(library.counts()) or x.size == 0


def check_many(context: Context, dtype: np.dtype, bins: int = 64) -> None:
    """Fields in one call, with tiles of every shape."""
    for shapes in ([(5000,), (700,)], [(70, 90)] * 3, [(18, 33, 40), (3, 60, 70), (9, 17, 33)]):
        fields = [KINDS["mixture"].make(shape, dtype) for shape in shapes]
        wanted = context.compress_many(fields, 1e-3, REL, backend=CPU, bins=bins)
        assert context.compress_many(fields, 1e-3, REL, field=DEVICE, backend=CUDA, bins=bins) == wanted


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_many_fields(engine: PtxLibrary, reused: Context, dtype: np.dtype) -> None:
    for order, blocks in ((0, 1), (1, 7), (2, 4)):
        engine.set_schedule(order, 5, blocks)
        check_many(reused, dtype)


@pytest.mark.parametrize(("name", "shape", "dtype"), COVERING, ids=str)
def test_kinds_and_shapes(
    engine: PtxLibrary, reused: Context, name: str, shape: tuple[int, ...], dtype: np.dtype
) -> None:
    kind = KINDS[name]
    check_identity(reused, kind.make(shape, dtype), kind.eb, kind.mode, **kind.options)


@support.pairs("name, shape, dtype", SPLINE_KINDS, SPLINE_SHAPES, DTYPES)
def test_spline(engine: PtxLibrary, reused: Context, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    kind = SPLINE_KINDS[name]
    x = kind.make(shape, dtype)
    wanted = reused.compress(x, kind.eb, kind.mode, backend=CPU, predictor="spline", **kind.options)
    places = {"field": DEVICE, "archive": DEVICE}
    assert reused.compress(x, kind.eb, kind.mode, predictor="spline", **places, **kind.options) == wanted
    assert reused.decompress(wanted, x.nbytes, **places) == reused.decompress(wanted, x.nbytes, backend=CPU)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("eb", [1e-2, 1e-6])
def test_bounds_relative_to_every_value(engine: PtxLibrary, reused: Context, eb: float, dtype: np.dtype) -> None:
    for shape in ((3000,), (18, 33, 40)):
        x = support.many_magnitudes(shape, dtype)
        x.reshape(-1)[::50], x.reshape(-1)[3::50] = np.nan, np.finfo(dtype).smallest_subnormal
        check_identity(reused, x, eb, PW_REL)
        check_identity(reused, np.exp2(support.smooth(shape, dtype)), eb, PW_REL)
    check_identity(reused, support.random_bits((37, 41), dtype, 1), eb, PW_REL)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("blocks", [1, 7])
def test_orders_of_blocks_and_warps(engine: PtxLibrary, reused: Context, order: int, blocks: int) -> None:
    kind = KINDS["mixture"]
    for dtype in DTYPES:
        engine.set_schedule(order, 5, blocks)
        check_identity(reused, kind.make((40, 50, 70), dtype), kind.eb, kind.mode, **kind.options)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batches(engine: PtxLibrary, dtype: np.dtype) -> None:
    """The field comes from the host in several batches, because there is not enough memory for all of it."""
    x = support.smooth((40, 64, 100), dtype)
    with Context(engine) as context:
        wanted = context.compress(x, 1e-3, REL, backend=CPU)
        engine.set_memory_limit(engine.allocated + x.nbytes + 300_000)
        launches = len(engine.counts())
        assert context.compress(x, 1e-3, REL, backend=2) == wanted
        assert sum("compress_kernel" in count["kernel"] for count in engine.counts()[launches:]) >= 1


def test_every_kernel_runs(engine: PtxLibrary, reused: Context, kernels: Path) -> None:
    engine.clear()
    shapes = ((5000,), (70, 90), (18, 33, 40), (3, 60, 70))  # tiles of every shape (archive/tiling.hpp)
    for kind, shape, dtype in itertools.product((KINDS["smooth"], KINDS["lossless"]), shapes, DTYPES):
        check_identity(reused, kind.make(shape, dtype), 1e-3 if kind.eb else 0, REL)
    for shape, name, dtype in itertools.product(SPLINE_SHAPES, REACHING, DTYPES):
        test_spline(engine, reused, name, shape, dtype)
    for eb, dtype in itertools.product((1e-2, 1e-6), DTYPES):  # logarithms of either type
        check_identity(reused, np.exp2(support.smooth((70, 90), dtype)), eb, PW_REL)
    for bins, dtype in ((64, DTYPES[0]), (64, DTYPES[1]), (1024, DTYPES[0])):
        check_many(reused, dtype, bins)
    for bins in (64, 128, 8192):
        check_identity(reused, KINDS["smooth"].make((5000,), DTYPES[0]), 1e-3, REL, bins=bins)
    entries = set(re.findall(r"\.entry (\w+)\(", kernels.read_text()))
    assert {count["kernel"] for count in engine.counts()} == entries
    sources = "".join(path.read_text() for path in CORE_SOURCES.rglob("*.cu"))
    names = set(re.findall(r"\b(\w+_kernel)\(const", sources))
    assert all(any(name in entry for entry in entries) for name in names)


def test_no_kernel_spills_registers(kernels: Path, assembled: str) -> None:
    entries = set(re.findall(r"\.entry (\w+)\(", kernels.read_text()))
    assert set(re.findall(r"Compiling entry function '(\w+)'", assembled)) == entries
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", assembled)
    assert len(spills) >= len(entries)
    assert set(spills) == {("0", "0")}


def test_kernels_of_the_host_can_be_had_again(engine: PtxLibrary, reused: Context, kernels: Path) -> None:
    x = support.smooth((18, 33, 40), DTYPES[0])
    wanted = reused.compress(x, 1e-3, backend=CPU)
    engine.use_ptx(None)
    try:
        engine.clear()
        assert reused.compress(x, 1e-3, field=DEVICE, archive=DEVICE) == wanted
        assert engine.launches > 0
        assert engine.counts() == []
    finally:
        engine.use_ptx(kernels)


def test_a_kernel_that_the_file_lacks(engine: PtxLibrary, reused: Context, kernels: Path) -> None:
    x = support.smooth((18, 33, 40), DTYPES[0])
    engine.use_ptx(HEAD)
    try:
        with pytest.raises(Failure, match="cudaErrorLaunchFailure"):
            reused.compress(x, 1e-3, field=DEVICE, archive=DEVICE)
        assert re.search(r"the file has no kernel \w+_kernel", engine.report)
    finally:
        engine.use_ptx(kernels)
        engine.clear()
