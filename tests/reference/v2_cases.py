"""Fields for the tests of format_v2_reference.py, and of the library against it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from field_kinds import strewn
from support import DTYPES

SPECIALS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e20, 1.0]


@st.composite
def any_fields(draw: Any) -> NDArray:
    dtype = draw(st.sampled_from(DTYPES))
    width = 8 * dtype.itemsize
    shape = draw(arrays.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=14))
    elements = st.one_of(
        st.floats(width=width), st.floats(width=width, min_value=-1, max_value=1), st.sampled_from(SPECIALS)
    ).map(lambda value: float(np.float64(value).astype(dtype)))
    return draw(arrays.arrays(dtype, shape, elements=elements))


@st.composite
def smooth_fields(draw: Any) -> NDArray:
    """Up to a few thousand values, most of them near their predictions."""
    dtype = draw(st.sampled_from(DTYPES))
    largest = {1: 9000, 2: 90, 3: 20, 4: 9}
    ndim = draw(st.integers(1, 4))
    shape = tuple(draw(st.lists(st.integers(1, largest[ndim]), min_size=ndim, max_size=ndim)))
    scale = draw(st.sampled_from([1.0, 1e-30, 1e30, 0.01, 100.0]))
    seed = draw(st.integers(0, 2**20))
    x = strewn(shape, dtype, draw(st.lists(st.sampled_from(SPECIALS), min_size=1)), 200, seed)
    with np.errstate(over="ignore"):
        return x * dtype.type(scale)


def flipped(archive: bytes, bit: int) -> bytes:
    changed = bytearray(archive)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
