"""Archives of the spline codec (format version 2) through a device: byte for byte the CPU's, and the same values."""

from __future__ import annotations

import itertools
import math
import os
from pathlib import Path

import numpy as np
import pytest
from golden_cases import SPLINE_CASES
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from simt_checks import PAIRS_OF_PLACES, check_choices_that_no_writer_makes, check_identity, status_of_check
from simt_fields import SPLINE_KINDS as KINDS
from simt_library import ABS, CPU, CUDA, DEVICE, PLACES, REL, Context, Library, Status
from spline_strategies import any_fields, bounds, dtypes, fills, modes, patched_fields, small_shapes

import format_v2 as v2
import spline_kinds
import support
from field_kinds import sprinkle
from support import DTYPES, F32, F64

pytestmark = pytest.mark.simt

REAL = sorted(Path(os.environ["CUSZ_TEST_DATA"]).glob("*.npy")) if os.environ.get("CUSZ_TEST_DATA") else []


def check(context: Context, x: NDArray, eb: float, mode: int = ABS, **options: object) -> bytes:
    archive = check_identity(context, x, eb, mode, **{"predictor": "spline", **options})
    assert status_of_check(context, archive, DEVICE) == Status.OK
    return archive


def of_kind(context: Context, name: str, shape: tuple[int, ...], dtype: np.dtype, **options: object) -> bytes:
    kind = KINDS[name]
    return check(context, kind.make(shape, dtype), kind.eb, kind.mode, **kind.options, **options)


# ---- Kinds of fields


@pytest.mark.quick("all")
@support.cases("name, shape, dtype", KINDS, spline_kinds.SHAPES, DTYPES, few=spline_kinds.COVERING)
def test_kinds_and_shapes(simt: Library, reused: Context, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    of_kind(reused, name, shape, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(64, 64), (64, 130), (8, 16, 32), (17, 16, 65)], ids=str)
def test_few_missing_values_in_full_tiles(
    simt: Library, reused: Context, shape: tuple[int, ...], dtype: np.dtype
) -> None:
    """Next to codes that are not 0: sums of magnitudes with the greatest among them need more than a byte."""
    for every in (30, 150):
        x = sprinkle(support.smooth(shape, dtype), np.nan, every, 3)
        for eb in (1e-3, 1e-4):
            check(reused, x, eb)


@support.cases("name, eb, mode, ndim", ["smooth", "waves", "mixture", "spikes", "whole", "tiles_of_all_kinds"],
               [1.0, 0.1, 1e-2, 1e-3, 1e-5, 1e-7], [ABS, REL], [1, 2, 3, 4])  # fmt: skip
def test_bounds(simt: Library, reused: Context, name: str, eb: float, mode: int, ndim: int) -> None:
    shape = ((2000,), (33, 65), (9, 17, 33), (3, 7, 9, 33))[ndim - 1]
    for dtype in DTYPES:
        check(reused, KINDS[name].make(shape, dtype), eb, mode, fill=1e20)


@support.cases(
    "name, dtype, places, predictor", ["waves", "mixture", "tiles_of_all_kinds", "noise"], DTYPES, PAIRS_OF_PLACES,
    ["spline", "auto"], indirect=["places"],
)  # fmt: skip
def test_places(
    simt: Library, reused: Context, name: str, dtype: np.dtype, places: dict[str, str], predictor: str
) -> None:
    """backend cuda."""
    simt.hide_device_memory()
    kind = KINDS[name]
    for shape in ((2500,), (9, 17, 33)):
        options = {**places, **kind.options, "backend": CUDA, "predictor": predictor}
        check_identity(reused, kind.make(shape, dtype), kind.eb, kind.mode, **options)


@pytest.mark.parametrize("field", PLACES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_auto(simt: Library, reused: Context, dtype: np.dtype, field: str) -> None:
    """What the CPU chooses from the sample; of these, either codec."""
    versions = set()
    for name, shape in itertools.product(("waves", "smooth", "noise", "kinks", "all_nan"), ((5000,), (60, 70))):
        x, kind = KINDS[name].make(shape, dtype), KINDS[name]
        options = {**kind.options, "predictor": "auto"}
        versions.add(reused.compress(x, kind.eb, kind.mode, backend=CPU, **options)[4])
        check_identity(reused, x, kind.eb, kind.mode, field=field, backend=CUDA, **options)
    assert versions == {1, 2}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name == "f64_many_tiles")) for name in SPLINE_CASES]
)
def test_golden_cases(simt: Library, reused: Context, name: str) -> None:
    case = SPLINE_CASES[name]
    check(reused, case.make(), case.eb, REL if case.mode == "rel" else ABS, **case.options)


# ---- What the fields reach


def interpolation_of(archive: bytes) -> tuple[int, bool, bool]:
    """The halved axes, whether with curves, and whether with smaller bounds for coarser lattices."""
    halved, interpolation = archive[v2.HALVED_AT], archive[v2.INTERPOLATION_AT]
    return halved, bool(interpolation & 1), interpolation > 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(40, 50), (10, 11, 24), (9, 10, 11, 12)], ids=str)
def test_every_choice_of_axes(simt: Library, reused: Context, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """Axes that could be halved, and are not, lie before, between and behind those that are."""
    ndim, reached = len(shape), set()
    for rough in itertools.chain(*(itertools.combinations(range(ndim), n) for n in range(ndim))):
        halved, _, _ = interpolation_of(check(reused, spline_kinds.layers(shape, dtype, rough), 1e-2))
        reached.add(halved)
        if ndim < 4:
            assert halved == sum(1 << ndim - 1 - a for a in range(ndim) if a not in rough)
    assert reached == set(range(1, 15 if ndim == 4 else 1 << ndim))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(5, 8200), (5, 130, 150)], ids=str)
def test_fewer_axes_in_coarser_lattices(
    simt: Library, reused: Context, dtype: np.dtype, shape: tuple[int, ...]
) -> None:
    """With tiles there that are full for so many axes, and not for those of the field."""
    halved, _, _ = interpolation_of(of_kind(reused, "waves", shape, dtype))
    assert halved == (1 << len(shape)) - 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_interpolation(simt: Library, reused: Context, dtype: np.dtype) -> None:
    """Lines and curves, the same bound for all lattices and smaller ones, with one to three axes."""
    reached = set()
    for shape, fields in (
        ((3000,), (("noise", 0.1), ("near_largest", 0.1), ("waves", 0.1), ("waves", 1e-3))),
        ((64, 90), (("noise", 0.1), ("kinks", 1e-3), ("waves", 1e-3), ("waves", 1e-2))),
        ((20, 33, 40), (("noise", 0.1), ("smooth", 0.1), ("nan", 1e-3), ("waves", 1e-2))),
    ):
        for name, eb in fields:
            halved, cubic, smaller = interpolation_of(check(reused, KINDS[name].make(shape, dtype), eb, REL))
            reached.add((halved.bit_count(), cubic, smaller))
    assert reached == set(itertools.product((1, 2, 3), (False, True), (False, True)))


@pytest.mark.parametrize("axes", range(1, 15))
def test_choices_that_no_writer_makes(simt: Library, reused: Context, axes: int) -> None:
    check_choices_that_no_writer_makes(reused, axes)


# ---- Fields of many tiles


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((129, 9, 20, 38), F32),
        pytest.param((129, 9, 20, 38), F64, marks=pytest.mark.long),
        *[pytest.param(shape, F32, marks=pytest.mark.long)
          for shape in ((1030 * 4096 + 5,), (2100, 2050), (165, 170, 161), (30, 6, 65, 385))],
    ],
    ids=str,
)  # fmt: skip
def test_more_than_1024_tiles(simt: Library, reused: Context, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Of lattices 0 and 1 a sample is counted (section 10), which has not every symbol."""
    x = spline_kinds.layers(shape, dtype, (0,) if len(shape) == 4 else ())  # so that no other axis is left out
    x[x.shape[0] // 2 :][:2] *= 50
    x.reshape(-1)[7::5003] = np.nan
    archive = check(reused, x, 1e-2)
    info = reused.info_of(archive)
    assert archive[4] == 2
    assert math.prod(-(-n // edge) for n, edge in zip(shape, info.tile_shape, strict=False)) > 1024


def test_fields_of_one_value(simt: Library, reused: Context) -> None:
    """More tiles than blocks run at once, of which most take no bits."""
    for value in (0.0, np.nan):
        x = np.full((6, 9, 17, 33), value, F32)
        x.reshape(-1)[::9999] = 3
        check(reused, x, 1e-2)


# ---- Memory of earlier calls


def test_earlier_calls_leave_no_trace(simt: Library, reused: Context) -> None:
    """Larger and smaller fields, of either type, codec and number of axes, by turns."""
    shapes: list[tuple[int, ...]] = [(9, 17, 33), (5000,), (6, 31), (40, 65), (3, 5, 5, 5), (12, 17, 33)]
    for shape, name, dtype in itertools.product(shapes, ("tiles_of_all_kinds", "smooth"), DTYPES):
        of_kind(reused, name, shape, dtype)
        of_kind(reused, name, shape, dtype, predictor="lorenzo")


# ---- Fields found by hypothesis


@given(x=st.one_of(any_fields(), patched_fields(), patched_fields()), eb=bounds, mode=modes, fill=fills)
@settings(settings.get_profile("spline"))
def test_any_field(loaded: Library, reused: Context, x: NDArray, eb: float, mode: int, fill: float | None) -> None:
    check(reused, x, eb, mode, fill=fill)
    assert loaded.report == ""


@given(
    shape=small_shapes, dtype=dtypes, eb=st.sampled_from([0.5, 0.25, 0.3, 3.0]),
    largest=st.sampled_from([2, 30, 3000]), fill=st.sampled_from([None, 0.0, 1.0]), seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(settings.get_profile("spline"))
def test_any_integers(
    loaded: Library, reused: Context, shape: tuple[int, ...], dtype: np.dtype, eb: float, largest: int,
    fill: float | None, seed: int,
) -> None:  # fmt: skip
    """Predictions and values are often exactly at the bound from each other."""
    n = math.prod(shape)
    check(reused, support.integers(n, -largest, largest + 1, seed).astype(dtype).reshape(shape), eb, ABS, fill=fill)
    assert loaded.report == ""


# ---- Fields of science


@pytest.mark.skipif(not REAL, reason="CUSZ_TEST_DATA is not set")
@pytest.mark.parametrize(
    ("path", "whole"),
    [pytest.param(path, whole, marks=[pytest.mark.long] * whole, id=f"{path.stem}{'-whole' * whole}")
     for path in REAL for whole in (False, True)],
)  # fmt: skip
def test_real_fields(simt: Library, reused: Context, path: Path, whole: bool) -> None:
    """By default a box of each of some 8000 values."""
    x = np.load(path)
    if not whole:
        edge = math.ceil(8_000 ** (1 / x.ndim))
        x = x[tuple(slice(max(0, n // 2 - edge // 2), n // 2 + edge // 2) for n in x.shape)]
    fill = 1e20 if path.stem.startswith("ipsl_tos") else None
    for eb in (1e-2, 1e-4):
        check(reused, np.ascontiguousarray(x), eb, REL, fill=fill)
