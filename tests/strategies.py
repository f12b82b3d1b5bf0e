"""Fields that Hypothesis draws."""

from __future__ import annotations

import math

from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from support import DTYPES

SPECIALS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e20, 1.0]


@st.composite
def any_fields(draw: st.DrawFn, shapes: st.SearchStrategy[tuple[int, ...]]) -> NDArray:
    """Any values, special ones included."""
    dtype = draw(st.sampled_from(DTYPES))
    width = 8 * dtype.itemsize
    values = st.floats(width=width) | st.floats(width=width, min_value=-1, max_value=1)
    elements = values | st.sampled_from(SPECIALS).map(lambda value: float(dtype.type(value)))
    return draw(arrays.arrays(dtype, draw(shapes), elements=elements))
