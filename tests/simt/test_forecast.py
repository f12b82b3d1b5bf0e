"""What the writer concludes from a sample of a field in device memory (docs/format_v2.md, section 11): the same as for
one on the host. Only the sample is copied."""

from __future__ import annotations

import ctypes
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from simt_fields import SPLINE_KINDS as KINDS
from simt_library import DEVICE, HOST, PREDICTORS, Library, dtype_code

import spline_kinds
import support
from support import DTYPES, F32

pytestmark = pytest.mark.simt

FILL = 1e20


def forecast(library: Library, x: NDArray, eb: float, predictor: str, place: str) -> tuple[int, ...]:
    """Halved axes, curves, alpha, beta, bytes with "spline" and with "lorenzo"."""
    found = (ctypes.c_uint64 * 6)()
    with library.memory(place, x) as field:
        library.c.simt_forecast(
            *(dtype_code(x.dtype), x.ndim, (ctypes.c_uint64 * x.ndim)(*x.shape), field.pointer),
            *(0 if place == DEVICE else -1, PREDICTORS[predictor], eb, FILL, found),
        )
    return tuple(found)


def check(library: Library, x: NDArray, eb: float, predictor: str) -> tuple[int, ...]:
    library.hide_device_memory()
    wanted = forecast(library, x, eb, predictor, HOST)
    assert wanted[-1] > 0
    assert wanted[-2] > 0
    assert forecast(library, x, eb, predictor, DEVICE) == wanted
    return wanted


CAN_BE_HALVED = [shape for shape in spline_kinds.SHAPES if max(shape) >= 5]


@support.cases("name, shape, dtype, predictor", KINDS, CAN_BE_HALVED, DTYPES, ["spline", "auto"])
def test_kinds_and_shapes(simt: Library, name: str, shape: tuple[int, ...], dtype: np.dtype, predictor: str) -> None:
    check(simt, KINDS[name].make(shape, dtype), 1e-2, predictor)


#: Of more tiles than are looked at, in each number of dimensions, the last of which are clipped.
LARGE = [(300_001,), (257, 1000), (70, 50, 99), (40, 3, 1, 1300), (9, 17, 33, 40), (3, 4, 200, 150), (80, 5, 5, 60)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_samples_of_large_fields(simt: Library, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """With holes, smooth and in layers along any axes."""
    ndim, halved = len(shape), set()
    for rough in itertools.chain(*(itertools.combinations(range(ndim), n) for n in range(ndim))):
        x = spline_kinds.layers(shape, dtype, rough)
        x[..., shape[-1] // 3 : shape[-1] // 2] = FILL
        x.reshape(-1)[7::5003] = np.nan
        for predictor in ("spline", "auto"):
            halved.add(check(simt, x, 1e-2, predictor)[0])
    assert len(halved) >= sum(extent >= 5 for extent in shape)


@given(
    shape=arrays.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=70).filter(
        lambda shape: max(shape) >= 5 and math.prod(shape) < 300_000
    ),
    dtype=st.sampled_from(DTYPES), rough=st.sets(st.integers(0, 3)), eb=st.sampled_from([1.0, 1e-2, 1e-4]),
    every=st.sampled_from([3, 200, 50_000]), value=st.sampled_from([FILL, math.nan, math.inf, 1e30]),
    predictor=st.sampled_from(["spline", "auto"]),
)  # fmt: skip
@settings(deadline=None, max_examples=60, derandomize=True)
def test_any_shape(
    loaded: Library, shape: tuple[int, ...], dtype: np.dtype, rough: set[int], eb: float, every: int, value: float,
    predictor: str,
) -> None:  # fmt: skip
    x = spline_kinds.layers(shape, dtype, [axis for axis in rough if axis < len(shape)])
    x.reshape(-1)[every // 2 :: every] = value
    check(loaded, x, eb, predictor)
    assert loaded.report == ""


def test_little_more_than_the_sample_is_copied(simt: Library) -> None:
    """8 and then 16 of 1100 tiles; and for each set of axes that is tried, these and some of what is around them."""
    for shape, rough in (((4_500_000,), ()), ((2100, 2100), (0,)), ((160, 165, 170), (0,)), ((4, 100, 100, 110), (1,))):
        x = spline_kinds.layers(shape, F32, rough)
        before = simt.bytes_to_host
        check(simt, x, 1e-2, "auto")
        copied = simt.bytes_to_host - before
        assert 8 * 4096 * x.itemsize <= copied <= x.nbytes / 6
