"""The kernels' PTX writes the CPU engine's archives, byte for byte, and reads the same values from them."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from golden_cases import SPLINE_CASES
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from ptx_library import PtxLibrary
from ptx_writing import HEAD
from simt_checks import check_choices_that_no_writer_makes
from simt_fields import COVERING, KINDS, SHAPES, SPLINE_KINDS
from simt_library import ABS, CPU, CUDA, DEVICE, PW_REL, REL, Context, Failure
from simt_model import chosen, like_a_field
from spline_strategies import any_fields, bounds, fills, modes, patched_fields

import spline_kinds
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


@support.cases("name, shape, dtype", KINDS, SHAPES, DTYPES, few=COVERING)
def test_kinds_and_shapes(
    engine: PtxLibrary, reused: Context, name: str, shape: tuple[int, ...], dtype: np.dtype
) -> None:
    kind = KINDS[name]
    check_identity(reused, kind.make(shape, dtype), kind.eb, kind.mode, **kind.options)


@support.cases("name, shape, dtype", SPLINE_KINDS, spline_kinds.SHAPES, DTYPES, few=spline_kinds.COVERING)
def test_kinds_and_shapes_of_pyramids(
    engine: PtxLibrary, reused: Context, name: str, shape: tuple[int, ...], dtype: np.dtype
) -> None:
    kind = SPLINE_KINDS[name]
    check_identity(reused, kind.make(shape, dtype), kind.eb, kind.mode, **kind.options, predictor="spline")


@support.cases("name, eb, mode, ndim, dtype, predictor",
               ["smooth", "waves", "mixture", "spikes", "whole", "tiles_of_all_kinds", "first_axis_in_layers"],
               [1.0, 0.1, 1e-2, 1e-3, 1e-5, 1e-7], [ABS, REL], [1, 2, 3, 4], DTYPES, ["spline", "auto"])  # fmt: skip
def test_bounds_of_pyramids(
    engine: PtxLibrary, reused: Context, name: str, eb: float, mode: int, ndim: int, dtype: np.dtype, predictor: str
) -> None:
    """With "auto", what the CPU chooses."""
    shape = ((2000,), (33, 65), (9, 17, 33), (3, 7, 9, 33))[ndim - 1]
    check_identity(reused, SPLINE_KINDS[name].make(shape, dtype), eb, mode, fill=1e20, predictor=predictor)


@pytest.mark.parametrize("name", SPLINE_CASES)
def test_golden_cases_of_pyramids(engine: PtxLibrary, reused: Context, name: str) -> None:
    case = SPLINE_CASES[name]
    check_identity(reused, case.make(), case.eb, REL if case.mode == "rel" else ABS, **case.options)


@given(x=st.one_of(any_fields(), patched_fields(), patched_fields()), eb=bounds, mode=modes, fill=fills)
@settings(settings.get_profile("spline"))
def test_any_field_with_a_pyramid(
    with_kernels: PtxLibrary, reused: Context, x: NDArray, eb: float, mode: int, fill: float | None
) -> None:
    check_identity(reused, x, eb, mode, predictor="spline", fill=fill)
    assert with_kernels.report == ""


@pytest.mark.parametrize("axes", range(1, 15))
def test_choices_that_no_writer_makes(engine: PtxLibrary, reused: Context, axes: int) -> None:
    check_choices_that_no_writer_makes(reused, axes)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("eb", [1e-2, 1e-6])
def test_bounds_relative_to_every_value(engine: PtxLibrary, reused: Context, eb: float, dtype: np.dtype) -> None:
    for shape in ((3000,), (18, 33, 40)):
        x = support.many_magnitudes(shape, dtype)
        x.reshape(-1)[::50], x.reshape(-1)[3::50] = np.nan, np.finfo(dtype).smallest_subnormal
        for predictor in ("lorenzo", "spline"):
            check_identity(reused, x, eb, PW_REL, predictor=predictor)
        check_identity(reused, np.exp2(support.smooth(shape, dtype)), eb, PW_REL)
    check_identity(reused, support.random_bits((37, 41), dtype, 1), eb, PW_REL)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("blocks", [1, 7])
def test_orders_of_blocks_and_warps(engine: PtxLibrary, reused: Context, order: int, blocks: int) -> None:
    kind = KINDS["mixture"]
    for dtype in DTYPES:
        engine.set_schedule(order, 5, blocks)
        check_identity(reused, kind.make((40, 50, 70), dtype), kind.eb, kind.mode, **kind.options)
        x = kind.make((18, 33, 40), dtype)
        check_identity(reused, x, kind.eb, kind.mode, **kind.options, predictor="spline")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batches(engine: PtxLibrary, dtype: np.dtype) -> None:
    """The field comes from the host in several batches, as there is not enough memory for all of it."""
    x = support.smooth((40, 64, 100), dtype)
    with Context(engine) as context:
        wanted = context.compress(x, 1e-3, REL, backend=CPU)
        engine.set_memory_limit(engine.allocated + x.nbytes + 300_000)
        launches = len(engine.counts())
        assert context.compress(x, 1e-3, REL, backend=2) == wanted
        assert sum("compress_kernel" in count["kernel"] for count in engine.counts()[launches:]) >= 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batches_to_decompress(engine: PtxLibrary, dtype: np.dtype) -> None:
    """A pyramid's, with archive and field on the host."""
    x = support.smooth((24, 33, 40), dtype)
    x[::2, ::4, ::6] = np.inf
    with Context(engine) as context:
        archive = context.compress(x, 1e-3, backend=CPU, predictor="spline")
        decoded = context.decompress(archive, x.nbytes, backend=CPU)
        engine.c.simt_reset_peak()
        assert context.decompress(archive, x.nbytes, backend=CUDA) == decoded
        context.release_scratch()
        engine.set_memory_limit(engine.c.simt_peak_bytes() - x.nbytes // 2)
        launches = len(engine.counts())
        assert context.decompress(archive, x.nbytes, backend=CUDA) == decoded
        kernels = [count["kernel"] for count in engine.counts()[launches:]]
        for name in ("read_spline_kernel", "patch_spline_kernel"):
            assert sum(name in kernel for kernel in kernels) > 1


@pytest.mark.parametrize(("order", "blocks"), [(0, 4), (1, 1), (2, 7)])
def test_the_model_of_the_rans_coder(engine: PtxLibrary, order: int, blocks: int) -> None:
    engine.set_schedule(order, 5, blocks)
    rng = np.random.default_rng(blocks)
    for n_contexts, most, scale in ((3, 100, 3), (200, 3000, 30), (648, 30000, 400)):
        chosen(engine, like_a_field(rng, n_contexts, most, scale), (16, 2, 1))


def test_every_kernel_runs(engine: PtxLibrary, reused: Context, kernels: Path) -> None:
    engine.clear()
    shapes = ((5000,), (70, 90), (18, 33, 40), (3, 60, 70))  # tiles of every shape (format/tiling.hpp)
    for kind, shape, dtype in itertools.product((KINDS["smooth"], KINDS["lossless"]), shapes, DTYPES):
        check_identity(reused, kind.make(shape, dtype), 1e-3 if kind.eb else 0, REL)
    of_pyramids = [("waves", shape) for shape in shapes[:3]] + [("inf_blocks", (18, 33, 40))]  # in coarser lattices
    for (name, shape), dtype in itertools.product(of_pyramids, DTYPES):
        kind = SPLINE_KINDS[name]
        check_identity(reused, kind.make(shape, dtype), kind.eb, kind.mode, **kind.options, predictor="spline")
    for eb, dtype in itertools.product((1e-2, 1e-6), DTYPES):  # logarithms of either type
        check_identity(reused, np.exp2(support.smooth((70, 90), dtype)), eb, PW_REL)
    for bins in (64, 128, 8192):
        check_identity(reused, KINDS["smooth"].make((5000,), DTYPES[0]), 1e-3, REL, bins=bins)
    chosen(engine, like_a_field(np.random.default_rng(2), 200, 3000, 30), (16, 2, 1))
    entries = set(re.findall(r"\.entry (\w+)\(", kernels.read_text()))
    assert {count["kernel"] for count in engine.counts()} == entries
    sources = "".join(path.read_text() for path in CORE_SOURCES.rglob("*.cu"))
    names = set(re.findall(r"\b(\w+_kernel)\(const", sources))
    assert all(any(name in entry for entry in entries) for name in names)


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
