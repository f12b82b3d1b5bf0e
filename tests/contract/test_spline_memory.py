"""Large fields with predictor="spline" on the CPU, with units in several lattices, and the scratch memory they take."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import cusz_core as cusz
import spline_kinds
import support
from support import DTYPES, boxes, part, same_bits

#: 1-D, rows and columns of a tile's width and less, 2-D, 3-D and 4-D in layers.
SHAPES = [(300_000,), (3, 110_000), (110_000, 3), (620, 530), (40, 9000), (130, 64, 41), (3, 5, 150, 151)]

KINDS = [
    *["waves_rel", "noise", "steps", "second_axis_in_layers", "last_axis_in_layers"],
    *["nan_blocks", "fill_blocks", "inf_blocks", "mixture", "spikes", "disorder", "tiles_of_all_kinds"],
]


def compressed(x: NDArray, kind: str, threads: int) -> bytes:
    how = spline_kinds.KINDS[kind]
    return cusz.compress(x, how.eb, how.mode, predictor="spline", threads=threads, **how.options)  # type: ignore[arg-type]


@support.pairs("kind, shape, dtype", KINDS, SHAPES, DTYPES)
def test_fields_of_several_units(kind: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    how = spline_kinds.KINDS[kind]
    x = how.make(shape, dtype)
    archive = support.check_contract(x, how.eb, how.mode, predictor="spline", **how.options)
    wanted = cusz.decompress(archive, threads=1)
    for threads in (1, 2, 3, 7):
        assert compressed(x, kind, threads) == archive
        assert same_bits(cusz.decompress(archive, threads=threads), wanted)
    for number, (start, count) in enumerate(boxes(shape, 3, 9)):
        box = cusz.decompress_box(archive, start, count, threads=1 + number % 3)
        assert same_bits(box, part(wanted, start, count)), (start, count)


@pytest.mark.parametrize(
    ("shape", "layered", "share"),
    [
        *[((6_000_000,), (), 1.4), ((2000, 3000), (), 0.4), ((7, 900, 1000), (), 0.4)],
        *[((200, 180, 170), axes, share) for axes, share in (((), 0.4), ((1,), 0.4), ((0, 2), 1.2))],
        *[((4, 1_500_000), (), 1.2), ((2, 2, 2, 900_000), (), 1.3)],
    ],
    ids=str,
)
def test_scratch_memory(shape: tuple[int, ...], layered: tuple[int, ...], share: float, dtype: np.dtype) -> None:
    """Coarser lattices are kept whole, with their codes: the fewer axes are halved, the more memory that takes. Every
    thread takes a fixed amount besides."""
    x = spline_kinds.layers(shape, dtype, layered)
    out = bytearray(cusz.max_archive_bytes(x.shape, x.dtype))
    y = np.empty_like(x)
    cusz.release_scratch()
    archive = cusz.compress(x, 1e-3, "rel", predictor="spline", threads=1, out=out)
    assert cusz.scratch_bytes() < share * x.nbytes + 7e6
    for threads in (1, 2):
        cusz.release_scratch()
        cusz.decompress(archive, threads=threads, out=y)
        assert cusz.scratch_bytes() < share * x.nbytes + threads * 4e6


@pytest.mark.parametrize(
    ("shape", "share"), [((6_000_000,), 1.5), ((2000, 3000), 0.6), ((200, 180, 170), 0.3)], ids=str
)
def test_scratch_memory_of_noise(shape: tuple[int, ...], share: float, dtype: np.dtype) -> None:
    """Nearly every value has extra bits besides its symbol, which are kept until the tables are chosen."""
    x = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    out = bytearray(cusz.max_archive_bytes(x.shape, x.dtype))
    for threads in (1, 2):
        cusz.release_scratch()
        archive = cusz.compress(x, 1e-5, "rel", predictor="spline", threads=threads, out=out)
        assert cusz.inspect(archive).predictor == "spline"
        assert cusz.scratch_bytes() < share * x.nbytes + threads * 7e6
