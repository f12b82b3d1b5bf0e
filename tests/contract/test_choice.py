"""predictor="auto" takes the spline codec where that saves more than a hundredth. With "auto" and "spline" alike, the
field decides how the spline codec interpolates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import cusz_core as cusz
import field_kinds
import format_v2
import support
from spline_kinds import kinks, layers, waves
from support import DTYPES, F32, F64


def compressed(x: NDArray, eb: float, mode: Any, predictor: Any, **options: Any) -> bytes:
    return cusz.compress(x, eb, mode, predictor=predictor, **{"threads": 1, **options})


def version(x: NDArray, eb: float, mode: str = "abs", **options: Any) -> int:
    """The version of the default predictor's archive, which check_contract compares with the other predictors' ones."""
    return cusz.inspect(support.check_contract(x, eb, mode, **options)).version


def noise(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    return (support.integers(math.prod(shape), 0, 2**16).reshape(shape) / 2**16).astype(dtype)


BIG = [(40000,), (300, 250), (60, 70, 80), (3, 40, 50, 60)]


@pytest.mark.parametrize("shape", BIG, ids=str)
def test_smooth_fields_are_interpolated(shape: tuple[int, ...], dtype: np.dtype) -> None:
    for eb, mode in ((1e-2, "rel"), (1e-3, "abs")):
        x = waves(shape, dtype)
        assert version(x, eb, mode) == 2
        assert len(compressed(x, eb, mode, "spline")) <= 0.99 * len(compressed(x, eb, mode, "lorenzo"))


@pytest.mark.parametrize("shape", BIG, ids=str)
@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 1])
def test_the_shorter_one_is_taken(share: float, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Or one that is at most a fiftieth longer. The fields are waves with some noise, and noise alone."""
    x = ((1 - share) * waves(shape, F64) + share * noise(shape, F64)).astype(dtype)
    for eb, mode in ((1e-2, "rel"), (1e-3, "abs"), (1e-4, "rel")):
        support.check_contract(x, eb, mode)
        lengths = {predictor: len(compressed(x, eb, mode, predictor)) for predictor in ("lorenzo", "spline", "auto")}
        assert lengths["auto"] <= 1.02 * min(lengths.values())


SAVED = [  # shape, share of noise, bound, whether the spline codec saves more than a hundredth; it saves 0.3 to 2.5%
    ((4000,), 1 / 2, 1e-4, False),
    ((60, 60), 1 / 1024, 1e-4, False),
    ((15, 16, 17), 1 / 8, 1e-4, False),
    ((300_000,), 1 / 8, 1e-5, False),
    ((60, 70, 80), 1 / 2, 1e-5, False),
    ((60, 70, 80), 2**-12, 1e-5, False),
    ((300_000,), 1 / 8, 1e-4, True),
    ((300, 400), 1 / 2, 1e-4, True),
    ((60, 70, 80), 1 / 4, 1e-5, True),
]


@pytest.mark.parametrize(("shape", "share", "eb", "saves"), SAVED, ids=str)
def test_less_than_a_hundredth_is_not_worth_it(shape: tuple[int, ...], share: float, eb: float, saves: bool) -> None:
    """Lorenzo is several times faster."""
    x = ((1 - share) * waves(shape, F64) + share * noise(shape, F64)).astype(F32)
    lorenzo, spline, auto = (compressed(x, eb, "rel", predictor) for predictor in ("lorenzo", "spline", "auto"))
    assert len(spline) < len(lorenzo)
    assert (len(spline) <= 0.99 * len(lorenzo)) == saves
    assert auto == (spline if saves else lorenzo)


@pytest.mark.parametrize("shape", [(300, 250), (45, 45, 45), (24, 24, 24), (3, 40, 50, 60)], ids=str)
def test_boxes_do_not_stand_for_the_field(shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Estimates from boxes mislead where a field is so smooth that their borders cost more than the rest, where only a
    part of it is rough, or where all boxes have one value."""
    place = np.indices(shape)
    smooth = np.prod([np.sin((i + 3) / (9 + a)) for a, i in enumerate(place)], axis=0)
    rough, corner = np.zeros(shape), np.zeros(shape)
    rough[-shape[0] // 3 :] = noise(shape, F64)[-shape[0] // 3 :]
    corner[tuple(slice(0, 3) for _ in shape)] = 1
    for x in (smooth.astype(dtype), rough.astype(dtype), corner.astype(dtype)):
        for eb in (1e-3, 1e-4, 1e-5, 1e-6):
            lengths = {p: len(compressed(x, eb, "rel", p)) for p in ("lorenzo", "spline", "auto")}
            assert lengths["auto"] <= 1.02 * min(lengths.values()) + x.nbytes / 500, eb


@pytest.mark.parametrize("shape", [(500,), (1331,), (32, 32), (11, 11, 11)], ids=str)
def test_large_codes_in_fields_that_are_tried_whole(shape: tuple[int, ...]) -> None:
    """No table of the spline codec has symbols for them, which estimates leave out of account."""
    place = np.indices(shape)
    for x in (noise(shape, F32), np.prod([np.sin(3 * i + 1 + a) for a, i in enumerate(place)], axis=0).astype(F32)):
        for eb in (1e-5, 3e-6, 1e-6):
            lengths = {p: len(compressed(x, eb, "rel", p)) for p in ("lorenzo", "spline", "auto")}
            assert lengths["auto"] <= 1.02 * min(lengths.values()), eb


@pytest.mark.parametrize(("shape", "eb"), [((25, 25, 25), 1e-6), ((26, 13, 39, 24), 1e-4)], ids=str)
def test_smooth_boxes_that_are_alike(shape: tuple[int, ...], eb: float, dtype: np.dtype) -> None:
    """They all lose as much at their borders."""
    bowl = sum((i - (n - 1) / 2) ** 2 for i, n in zip(np.indices(shape), shape, strict=True)).astype(dtype)
    lengths = {p: len(compressed(bowl, eb, "rel", p)) for p in ("lorenzo", "spline", "auto")}
    assert lengths["auto"] <= 1.02 * min(lengths.values())


def test_an_archive_that_is_longer_than_estimated() -> None:
    """Integers half-way between two quantised values are within the bound or not, by rounding: Lorenzo stores many of
    them verbatim, but none in the boxes."""
    x = np.indices((80, 44, 55)).sum(axis=0) * 8 // 176 * 1.0
    lorenzo, spline, auto = (compressed(x, 1e-2, "rel", predictor) for predictor in ("lorenzo", "spline", "auto"))
    assert len(lorenzo) > 2 * len(spline)
    assert auto == spline


@pytest.mark.parametrize("shape", [(80, 80), (170, 180), (16, 16, 16), (24, 24, 24), (3, 60, 70)], ids=str)
def test_small_fields_with_gaps(shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Presets suit values next to gaps so little that a map pays in small fields, which estimates have to know."""
    x = (0.99 * waves(shape, F64) + 0.01 * noise(shape, F64)).astype(dtype)
    x[sum(np.cos(i / 7 + a) for a, i in enumerate(np.indices(shape))) > 0.8] = np.nan
    for eb in (1e-3, 3e-4):
        support.check_contract(x, eb, "rel")
        lengths = {predictor: len(compressed(x, eb, "rel", predictor)) for predictor in ("lorenzo", "spline", "auto")}
        assert lengths["auto"] <= 1.02 * min(lengths.values())
        assert lengths["spline"] < 0.85 * lengths["lorenzo"]


def test_what_leaves_nothing_to_choose(dtype: np.dtype) -> None:
    nan, fill = np.full((40, 50, 60), np.nan, dtype), np.full((300, 200), 1e20, dtype)
    constant = np.full((40, 50, 60), 3, dtype)
    for x, eb, mode, options in (
        (nan, 0.1, "abs", {}),
        (nan, 0.1, "rel", {}),
        (fill, 0.1, "abs", {"fill": 1e20}),
        (constant, 0.1, "abs", {}),
        (constant, 0.1, "rel", {}),
        (waves((6, 7), dtype), 1e-3, "rel", {}),  # Lorenzo's header alone is longer
        (waves((9,), dtype), 1e-3, "abs", {}),
        (waves((4, 3, 2), dtype), 0.1, "abs", {}),
    ):
        assert version(x, eb, mode, **options) == 2
    for x, eb in ((waves((40, 50), dtype), 0.0), (waves((40, 50), dtype), 1e-310), (waves((0, 9), dtype), 0.1)):
        assert version(x, eb) == 1


@pytest.mark.parametrize("kind", field_kinds.KINDS, ids=str)
def test_every_kind_of_field(kind: str, dtype: np.dtype) -> None:
    how = field_kinds.KINDS[kind]
    for shape in ((9000,), (70, 130), (17, 33, 65), (3, 7, 9, 33)):
        support.check_contract(how.make(shape, dtype), how.eb, how.mode, **how.options)


@settings(max_examples=60, derandomize=True)
@given(
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**31 - 1),
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    digits=st.integers(1, 40),
    special=st.sampled_from([0, 0.01, 0.5]),
    mode=st.sampled_from(["abs", "rel"]),
    eb=st.floats(1e-9, 1e3),
)
def test_any_values(
    dtype: np.dtype, seed: int, shape: list[int], digits: int, special: float, mode: str, eb: float
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-(2**digits), 2**digits, shape).astype(dtype).cumsum(axis=-1, dtype=dtype)
    x[rng.random(shape) < special] = rng.choice([np.nan, np.inf, -np.inf, 1e20])
    support.check_contract(x, eb, mode, fill=rng.choice([None, 1e20]))


# ---------------------------------------------------------------------------------------------------------------------
# How the spline codec interpolates


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_axis_of_layers_is_left_out(axis: int, dtype: np.dtype) -> None:
    x = layers((60, 70, 80), dtype, [axis])
    archive = compressed(x, 1e-2, "abs", "spline")
    info = cusz.inspect(archive)
    assert [extent == 1 for extent in info.tile_shape] == [a == axis for a in range(3)]
    assert len(archive) < 0.6 * len(compressed(x, 1e-2, "abs", "lorenzo"))
    assert version(x, 1e-2) == 2


@pytest.mark.quick(12)
@pytest.mark.parametrize("edge", [16, 32, 64])
@pytest.mark.parametrize("eb", [1e-2, 1e-3])
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)], ids=str)
def test_axes_along_which_nothing_changes_cost_little(
    axes: tuple[int, ...], eb: float, edge: int, dtype: np.dtype
) -> None:
    """As in problems of one or two dimensions on grids of three: the archive is not much longer than a slice's."""
    i = np.indices((edge,) * (3 - len(axes))) * (64 / edge)
    u = np.prod(np.sin(i / 5) + np.exp(-(((i - 25) / 4) ** 2)), axis=0) + np.sin(i.prod(axis=0) ** 0.5 / 3)
    x = np.repeat(np.expand_dims(u, axes), edge, axes[0])
    for axis in axes[1:]:
        x = np.repeat(x, edge, axis)
    archive = support.check_contract(np.ascontiguousarray(x, dtype), eb, "rel")
    assert len(archive) < 2.5 * len(compressed(u.astype(dtype), eb, "rel", "auto")) + 100


def test_a_fourth_axis_takes_its_place() -> None:
    x = layers((20, 21, 22, 23), F32, [3])
    info = cusz.inspect(compressed(x, 1e-2, "abs", "spline"))
    assert (info.tile_shape[3], info.tile_shape[0] > 1) == (1, True)
    x = layers((20, 21, 22, 23), F32, [0])
    assert cusz.inspect(compressed(x, 1e-2, "abs", "spline")).tile_shape[0] == 1


def test_all_axes_are_halved_where_they_are_alike() -> None:
    x = sum(np.cos(i / 9) for i in np.indices((64, 64, 64))).astype(F32)
    assert cusz.inspect(compressed(x, 1e-3, "abs", "spline")).tile_shape == (8, 16, 32)


@pytest.mark.parametrize("shape", [(3000,), (70, 80), (30, 20, 40), (16, 16, 16), (12, 12, 13)], ids=str)
@pytest.mark.parametrize("components", [2, 3, 6])
@pytest.mark.parametrize("place", [0, 1, -1])
def test_components_of_vectors_are_not_interpolated(
    shape: tuple[int, ...], components: int, place: int, dtype: np.dtype
) -> None:
    """Whichever axis they lie along, the archive is not much longer than those of each component."""
    i = np.indices(shape)
    parts = [np.prod(np.sin(i / (7 + 2 * c) + c), axis=0).astype(dtype) for c in range(components)]
    archive = support.check_contract(np.ascontiguousarray(np.stack(parts, place)), 1e-3)
    assert len(archive) < 1.2 * sum(len(compressed(part, 1e-3, "abs", "auto")) for part in parts) + 100


LINEAR, CUBIC, SIX_POINTS_AND_CODES = 0, 1, 3


def curve_of(x: NDArray, eb: float, fill: float | None = None) -> int | None:
    return format_v2.parts(support.check_contract(x, eb, predictor="spline", fill=fill)).curve


#: Shapes of fewer than 32,768 values, and of more.
SMALL, LARGE = [(9000,), (90, 91), (16, 16, 16), (5, 9, 10, 11)], [(40000,), (300, 250), (40, 41, 42), (3, 30, 31, 32)]


@pytest.mark.parametrize("shape", [*SMALL, *LARGE], ids=str)
def test_the_curve_follows_from_what_is_left(shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Linear is best for kinks, and also for noise, which cubic amplifies more."""
    assert curve_of(kinks(shape, dtype), 1e-4) == LINEAR
    assert curve_of(noise(shape, dtype), 1e-3) == LINEAR
    smooth_ones = {SIX_POINTS_AND_CODES} if shape in SMALL else {CUBIC, SIX_POINTS_AND_CODES}
    assert curve_of(waves(shape, dtype), 1e-3) in smooth_ones


def test_the_curve_where_values_do_not_tell_it(dtype: np.dtype) -> None:
    """Next to missing values, and in fields too narrow for three neighbours on both sides, curves are tried out."""
    x = waves((92, 92), dtype)
    assert curve_of(x, 1e-2) == SIX_POINTS_AND_CODES
    x[np.kron(support.integers(23 * 23, 0, 2).reshape(23, 23), np.ones((4, 4))) == 0] = 1e20
    assert curve_of(x, 1e-2, fill=1e20) == LINEAR
    assert curve_of(noise((6, 6, 6), dtype), 1e-2) == LINEAR


def test_a_sample_of_one_value(dtype: np.dtype) -> None:
    """Nothing is tried, whatever the rest of the field looks like."""
    x = np.zeros((64, 64, 64), dtype)
    x[:8, :8, :8] = noise((8, 8, 8), dtype)
    assert curve_of(x, 1e-3) == CUBIC
    assert version(x, 1e-3) == 2


# ---------------------------------------------------------------------------------------------------------------------
# Nothing but the field and the parameters decides


def fields() -> Iterator[tuple[str, NDArray, float, Any, float | None]]:
    """Fields for either codec, and close to the border between them, all large enough to be sampled."""
    for dtype in DTYPES:
        for shape in ((200_000,), (400, 500), (60, 70, 80), (3, 40, 50, 60)):
            for name, x in (("waves", waves(shape, dtype)), ("noise", noise(shape, dtype))):
                yield f"{name} {shape} {dtype}", x, 1e-3, "rel", None
            for share in (1e-3, 1e-2):
                x = (waves(shape, F64) + share * noise(shape, F64)).astype(dtype)
                x.reshape(-1)[::977] = 1e20
                x.reshape(-1)[5::1511] = np.nan
                yield f"mixture {share} {shape} {dtype}", x, 1e-3, "rel", 1e20
        yield f"layers {dtype}", layers((60, 70, 80), dtype, [0]), 1e-2, "abs", None
        tiny = float(np.finfo(dtype).tiny)
        yield f"subnormal {dtype}", (waves((60, 70, 80), F64) * 64 * tiny).astype(dtype), tiny, "abs", None


def test_both_are_chosen() -> None:
    versions = [cusz.inspect(compressed(x, eb, mode, "auto", fill=fill)).version for _, x, eb, mode, fill in fields()]
    assert set(versions) == {1, 2}


def test_any_number_of_threads_and_any_earlier_call() -> None:
    before = b""
    for name, x, eb, mode, fill in fields():
        for predictor in ("auto", "spline"):
            cusz.release_scratch()
            archive = compressed(x, eb, mode, predictor, fill=fill)
            if before:
                cusz.decompress(before, threads=2)
            for threads in (2, 3):
                assert compressed(x, eb, mode, predictor, fill=fill, threads=threads) == archive, name
            before = archive


def test_scratch_memory_does_not_grow_with_calls() -> None:
    def kept() -> list[int]:
        kept_after = []
        for _, x, eb, mode, fill in fields():
            compressed(x, eb, mode, "auto", fill=fill)
            kept_after.append(cusz.scratch_bytes())
        return kept_after

    kept()
    second = kept()
    assert kept() == second
