"""What hypothesis draws for tests of the spline codec, on the emulator and with PTX."""

from __future__ import annotations

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from simt_fields import SPLINE_KINDS as KINDS
from simt_library import ABS, REL

import spline_kinds
from support import DTYPES

settings.register_profile("spline", deadline=None, max_examples=60, derandomize=True)

bounds = st.one_of(st.floats(1e-9, 1e3), st.sampled_from([5e-324, 1.2e-38, 2.3e-308, 1 / 3, 0.5, 1e38, 1.7e308]))
fills = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1e20, -9999.0, math.nan, math.inf]))
modes, dtypes = st.sampled_from([ABS, REL]), st.sampled_from(DTYPES)
small_shapes = arrays.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=18)


@st.composite
def any_fields(draw: st.DrawFn) -> NDArray:
    """Any values in any small shape."""
    dtype = draw(dtypes)
    width = 8 * dtype.itemsize
    elements = st.one_of(
        st.floats(width=width),
        st.floats(width=width, min_value=-1, max_value=1),
        st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e20, 1.0]).map(lambda v: float(dtype.type(v))),
    )
    return draw(arrays.arrays(dtype, draw(small_shapes), elements=elements))


@st.composite
def patched_fields(draw: st.DrawFn) -> NDArray:
    """A field of one kind with boxes of others, in shapes around the edges of tiles."""
    dtype = draw(dtypes)
    shape = draw(st.one_of(st.sampled_from(spline_kinds.SHAPES), small_shapes))
    x = KINDS[draw(st.sampled_from(sorted(KINDS)))].make(shape, dtype)
    for _ in range(draw(st.integers(0, 3))):
        begin = [draw(st.integers(0, extent - 1)) for extent in shape]
        box = tuple(slice(b, draw(st.integers(b + 1, n))) for b, n in zip(begin, shape, strict=True))
        x[box] = KINDS[draw(st.sampled_from(sorted(KINDS)))].make(x[box].shape, dtype)
    return x
