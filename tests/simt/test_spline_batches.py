"""Fields on the host that are too large for the device: the spline pipeline compresses them in batches, to the same."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from simt_checks import cpu_archive, every_call_may_fail
from simt_fields import SPLINE_KINDS as KINDS
from simt_library import ABS, CUDA, DEVICE, HOST, PLACES, RAW_OVERHEAD, Context, Library

import spline_kinds
import support
from support import DTYPES, F32, F64

pytestmark = [pytest.mark.simt, pytest.mark.usefixtures("hidden")]


def launches_with_less_memory(
    simt: Library,
    context: Context,
    x: NDArray,
    eb: float,
    mode: int = ABS,
    *,
    archive: str = HOST,
    shares: tuple[float, ...] = (1, 1.5, 1.75),
    **options: object,
) -> list[int]:
    """Of compression, with as much memory as it takes, and with less by these shares of the field's size."""
    wanted = cpu_archive(context, x, eb, mode, **options)
    launches = []
    context.release_scratch()
    with simt.memory(HOST, x) as field, simt.memory(archive, x.nbytes + RAW_OVERHEAD) as made:
        most = 0
        for share in (0, *shares):
            simt.set_memory_limit(most - int(share * x.nbytes) if most > 0 else None)
            made.put(np.full(x.nbytes + RAW_OVERHEAD, 0xA5, np.uint8))
            simt.c.simt_reset_peak()
            before = simt.launches
            n = context.compress_into(made, field, x.dtype, x.shape, eb, mode, backend=CUDA, **options)
            assert made.get(n) == wanted
            launches.append(simt.launches - before)
            most = most or simt.c.simt_peak_bytes()
            context.release_scratch()
        simt.set_memory_limit()
    return launches


SHAPES = [(70000,), (300, 200), (70, 40, 33), (3, 40, 33, 40), (40, 9, 8, 7)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batches(simt: Library, context: Context, shape: tuple[int, ...], dtype: np.dtype) -> None:
    launches = launches_with_less_memory(simt, context, support.smooth(shape, dtype), 1e-3, predictor="spline")
    assert launches[1] > launches[0] > 0


@support.cases(
    "name, shape, dtype",
    ["nan_blocks", "inf_blocks", "missing_first", "mixture", "tiles_of_all_kinds", "fill_of_infinity", "disorder",
     "spikes", "first_axis_in_layers", "second_axis_in_layers", "last_axis_in_layers"],
    SHAPES, DTYPES,
)  # fmt: skip
def test_kinds(simt: Library, context: Context, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Values that are missing, infinite, or stored as they are, and axes that are not halved."""
    kind = KINDS[name]
    options = {**kind.options, "predictor": "spline"}
    launches = launches_with_less_memory(simt, context, kind.make(shape, dtype), kind.eb, kind.mode, **options)
    assert max(launches[1:]) > launches[0]


@pytest.mark.parametrize("archive", PLACES)
@pytest.mark.parametrize("predictor", ["spline", "auto"])
def test_places(simt: Library, context: Context, archive: str, predictor: str) -> None:
    x = KINDS["waves"].make((70, 40, 33), F32)
    shares = (1, 1.5, 1.75) if archive == HOST else (0.1, 0.5, 0.75)  # the archive's memory is there already
    launches = launches_with_less_memory(simt, context, x, 1e-3, archive=archive, shares=shares, predictor=predictor)
    assert launches[1] > launches[0]


def test_batches_of_one_layer(simt: Library, context: Context) -> None:
    """And with less memory than that, the CPU makes the archive."""
    shares = (0.99, 1.5, 1.75, 1.9, 2.5)
    launches = launches_with_less_memory(
        simt, context, support.smooth((200, 33, 40), F32), 1e-2, shares=shares, predictor="spline"
    )
    assert launches[0] < launches[1] < launches[3] < launches[4]
    assert launches[5] == 0


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((129, 9, 20, 38), F32), ((2049, 17, 33), F32), pytest.param((1030 * 4096 + 5,), F64, marks=pytest.mark.slow)],
    ids=str,
)  # fmt: skip
def test_many_tiles(simt: Library, context: Context, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Of which a sample is counted, with what is around each in the field (docs/format_v2.md, section 10)."""
    x = spline_kinds.layers(shape, dtype, (0,) if len(shape) == 4 else ())
    x[x.shape[0] // 2 :][:2] *= 50
    x.reshape(-1)[7::5003] = np.nan
    launches = launches_with_less_memory(simt, context, x, 1e-2, shares=(1, 1.5), predictor="spline")
    assert launches[1] > launches[0]


def test_archives_that_grow_too_long(simt: Library, context: Context) -> None:
    """Found out after some of the batches: the field is stored as it is."""
    x = support.random_bits((40, 33, 40), F32)
    x[:4] = support.smooth((4, 33, 40), F32)
    assert cpu_archive(context, x, 1e-4, predictor="spline")[4] == 1
    launches = launches_with_less_memory(simt, context, x, 1e-4, shares=(1,), predictor="spline")
    assert launches[1] > launches[0]


@pytest.mark.slow
def test_every_call_may_fail(simt: Library) -> None:
    x = support.smooth((4, 9, 9, 33), F64)
    with (
        Context(simt) as other,
        simt.memory(HOST, x) as field,
        simt.memory(HOST, x.nbytes + RAW_OVERHEAD) as archive,
    ):
        before = simt.allocated
        simt.c.simt_reset_peak()
        other.compress_into(archive, field, x.dtype, x.shape, 1e-3, backend=CUDA, predictor="spline")
        most = simt.c.simt_peak_bytes() - before
        launches = launches_with_less_memory(simt, other, x, 1e-3, shares=(1,), predictor="spline")
        assert launches[1] > launches[0]
    places = {"field": HOST, "archive": DEVICE}
    every_call_may_fail(simt, "compress", places, x, 1e-3, ABS, free=most - x.nbytes, predictor="spline")
