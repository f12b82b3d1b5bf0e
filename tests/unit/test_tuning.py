"""Bounds found from a goal: the result reaches the goal, whatever the field."""

import dataclasses
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import cusz_core as cusz
import support
from cusz_core import tuning
from support import DTYPES, F32, F64

FOLDER = os.environ.get("CUSZ_TEST_DATA")
REAL = sorted(Path(FOLDER).glob("*.npy")) if FOLDER else []


def check(x, *, psnr=None, ratio=None, **options):
    """Finds a bound, and checks the result by compressing the field with it."""
    found = tuning.find_bound(x, psnr=psnr, ratio=ratio, **options)
    archive = cusz.compress(x, found.eb, **options)
    assert found.archive == archive
    result = cusz.verify(x, archive)
    said = (found.ratio, found.bit_rate, found.psnr, found.max_error)
    assert said == (result.ratio, result.bit_rate, result.psnr, result.max_error)
    assert psnr is None or result.psnr >= psnr
    assert ratio is None or result.ratio >= ratio
    made = tuning.compress_for(x, psnr=psnr, ratio=ratio, **options)
    assert made.archive == cusz.compress(x, psnr or ratio, "psnr" if psnr else "ratio", **options)
    assert made.psnr == cusz.verify(x, made.archive).psnr
    assert psnr is None or made.psnr >= psnr
    assert ratio is None or made.ratio >= ratio
    assert found.share == 1
    return found


@pytest.fixture
def small_samples(monkeypatch):
    """Fields of more than 2^18 values are sampled."""
    monkeypatch.setattr(tuning, "_SAMPLE", 1 << 17)


# ------------------------------------------------------------------------------------------------------------ goals

SHAPES = [(30000,), (150, 200), (1, 150, 200), (20, 30, 40), (3, 20, 20, 30)]


def with_special_values(shape, dtype):
    x = support.smooth(shape, dtype)
    x.reshape(-1)[:3] = [np.nan, np.inf, 1e20]  # the last as fill
    return x


@pytest.mark.parametrize("predictor", ["lorenzo", "spline", "auto"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_psnr(shape, dtype, predictor):
    x = with_special_values(shape, dtype)
    for psnr in (50, 60, 90):
        found = check(x, psnr=psnr, predictor=predictor, fill=1e20)
        assert psnr <= found.psnr
        if found.psnr < psnr + 1:
            assert float(f"{found.eb:.2e}") == found.eb
        else:  # all values are exact, with fewer bytes than by a larger bound
            assert found.eb == float(f"{2.0 ** round(math.log2(found.eb)):.5e}")
            larger = cusz.compress(x, 1.1 * found.eb, predictor=predictor, fill=1e20)
            assert len(found.archive) < len(larger)


@pytest.mark.parametrize("predictor", ["lorenzo", "spline", "auto"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_ratio(shape, dtype, predictor):
    x = with_special_values(shape, dtype)
    # Ratios jump where bounds are about as fine as the grid of the values.
    for ratio in (2.5 if dtype == F32 else 2, 5, 9):
        found = check(x, ratio=ratio, predictor=predictor, fill=1e20)
        # Where "auto" takes the other codec, the ratio jumps.
        assert ratio <= found.ratio < (1.1 if predictor == "auto" else 1.05) * ratio
        assert float(f"{found.eb:.2e}") == found.eb


LARGE = [(700000,), (700, 1000), (700, 1, 1000), (70, 100, 100), (7, 40, 50, 60)]
VERY_LARGE = [(2300000,), (1500, 1600), (1500, 1, 1600), (132, 130, 130), (18, 50, 50, 50)]  # sampled by the library


@pytest.mark.parametrize("predictor", ["lorenzo", "spline"])
@pytest.mark.parametrize("shape", VERY_LARGE, ids=str)
def test_searched_on_a_sample(shape, predictor):
    x = support.smooth(shape, F32)
    assert not tuning.sample(x, predictor=predictor).is_field
    # Below 55 dB, the interpolation of the line changes with the bound, and its PSNR jumps by 1 to 2 dB.
    loose = 60 if (predictor, len(shape)) == ("spline", 1) else 50
    for psnr in (loose, 80):
        assert check(x, psnr=psnr, predictor=predictor).psnr < psnr + 1
    for ratio in (3, 7):
        assert check(x, ratio=ratio, predictor=predictor).ratio < 1.05 * ratio


@pytest.mark.parametrize("corner", ["noise", "spike", "nan"])
def test_a_sample_that_says_nothing_of_the_field(corner):
    """Everything happens where the sample has no box; the result must still be true."""
    x = np.arange(130**3, dtype=F32).reshape(130, 130, 130)
    sampled = np.isin(x, tuning.sample(x).x)
    x[:] = 0
    where = next(
        place for place in np.ndindex(123, 123, 123) if not sampled[tuple(slice(at, at + 8) for at in place)].any()
    )
    part = x[tuple(slice(at, at + 8) for at in where)]
    part[:] = {"noise": support.integers(part.size, -1000, 1000).reshape(part.shape), "spike": 7, "nan": np.nan}[corner]
    sample = tuning.sample(x)
    assert not sample.is_field
    assert not sample.x.any()
    for psnr in (30, 90):
        check(x, psnr=psnr)
    check(x, ratio=20)


def test_real_fields():
    if not REAL:
        pytest.skip("CUSZ_TEST_DATA is not set")
    for path in REAL:
        x = np.load(path)
        fill = 1e20 if "ipsl_tos" in path.name else None
        is_evenly_spaced = "radolan" in path.name
        assert (check(x, psnr=70, fill=fill, predictor="lorenzo").psnr < 71) == (not is_evenly_spaced)
        assert check(x, ratio=12, fill=fill, predictor="lorenzo").ratio < 12.6
        check(x, psnr=70, fill=fill)
        check(x, ratio=12, fill=fill)


@settings(max_examples=100, derandomize=True)
@given(st.data())
def test_any_field(data):
    """Whatever the values, a PSNR is reached, and a ratio is either reached or refused."""
    dtype = data.draw(st.sampled_from(DTYPES))
    numbers = st.floats(width=8 * dtype.itemsize)
    integers = st.integers(-4, 4).map(float)
    shape = data.draw(arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=12))
    x = data.draw(arrays.arrays(dtype, shape, elements=data.draw(st.sampled_from([numbers, integers]))))
    options = {"predictor": data.draw(st.sampled_from(["lorenzo", "spline", "auto"])), "threads": 1}
    options["fill"] = data.draw(st.sampled_from([None, 1.0]))
    check(x, psnr=data.draw(st.one_of(st.floats(0.01, 400), st.floats(400, 15000))), **options)
    try:
        check(x, ratio=data.draw(st.floats(1.01, 20)), **options)
    except tuning.OutOfReachError:
        assert x.size < 20000


# ------------------------------------------------------------------------------------------------------- edge cases


@pytest.mark.parametrize("value", [0.0, -0.0, 5.0, 0.1, -3.7, 1e30, 1e-30, 1e-45])
def test_all_values_equal(value, dtype):
    x = np.full((30, 40), value, dtype)
    found = check(x, psnr=80)
    assert (found.psnr, math.isnan(found.relative)) == (math.inf, True)
    if value != 1e-45:
        assert found.ratio > 15
        assert check(x, ratio=10).ratio >= 10


@pytest.mark.parametrize("shape", [(0,), (4, 0, 3)], ids=str)
def test_empty(shape):
    x = np.zeros(shape, F32)
    found = check(x, psnr=60)
    assert (found.psnr, found.ratio, found.bit_rate) == (math.inf, 0, 0)
    with pytest.raises(tuning.OutOfReachError, match="the field is empty"):
        tuning.find_bound(x, ratio=2)
    assert [row.psnr for row in tuning.survey(x)] == [math.inf] * len(tuning.BOUNDS)


def test_nothing_but_special_values(dtype):
    for x, fill in ((np.full((30, 30), np.nan, dtype), None), (np.full((30, 30), 1e20, dtype), 1e20)):
        assert check(x, psnr=60, fill=fill).psnr == math.inf
        assert check(x, ratio=10, fill=fill).ratio > 10


def test_few_values():
    for x in (np.array([3.25]), np.array([1.0, 2.0], F32), np.array([np.inf, 1, 2, -np.inf])):
        assert check(x, psnr=60).psnr >= 60
        with pytest.raises(tuning.OutOfReachError, match=r"ratio is 3; the best found for this field is 0\.\d+, with"):
            tuning.find_bound(x, ratio=3)


@pytest.mark.parametrize("spacing", [1, 0.25, 1000])
def test_integers_keep_their_values(spacing, dtype):
    """A bound of half their spacing is exact, and larger than the bound that other values would need."""
    x = (support.integers(20000, 0, 200).reshape(100, 200) * spacing).astype(dtype)
    found = check(x, psnr=70)
    assert (found.eb, found.psnr) == (spacing / 2, math.inf)
    assert check(x, psnr=25).eb > spacing / 2


def test_extreme_magnitudes(dtype):
    """The type cannot represent the range, or its square."""
    wave = np.sin(np.linspace(0, 20, 20000)).astype(dtype)
    usual = check(wave, psnr=70, predictor="lorenzo")
    largest = np.finfo(dtype).max
    for scaled in (
        wave * largest,
        (wave * largest)[::-1],
        wave * np.finfo(dtype).smallest_normal * dtype.type(2.0**30),
    ):
        found = check(scaled, psnr=70, predictor="lorenzo")
        assert found.psnr < 71
        assert found.relative == pytest.approx(usual.relative, rel=0.05)
        assert check(scaled, ratio=5, predictor="lorenzo").ratio < 5.25
        check(scaled, psnr=70)
        check(scaled, ratio=5)
    subnormal = wave * np.finfo(dtype).smallest_subnormal * dtype.type(1000)
    assert check(subnormal, psnr=70).psnr == math.inf
    with pytest.raises(tuning.OutOfReachError):
        tuning.find_bound(subnormal, ratio=5)


def test_special_values_do_not_count():
    x = support.smooth((40, 50, 60), F32)
    plain = tuning.find_bound(x, psnr=60)
    x[5:10] = np.nan
    x[20:24] = 1e20
    found = check(x, psnr=60, fill=1e20)
    assert found.psnr < 61
    assert found.relative == pytest.approx(plain.relative, rel=0.1)


def test_goals_beyond_all_bounds():
    x = support.smooth((40, 50), F32)
    loosest = check(x, psnr=1e-9)
    assert loosest.eb <= np.ptp(x.astype(F64))
    assert loosest.relative > 0.99
    assert check(x, psnr=1000).psnr == math.inf
    with pytest.raises(
        tuning.OutOfReachError, match=r"ratio is 1000000; the best found for this field is (\d+\.?\d*), with"
    ) as error:
        tuning.find_bound(x, ratio=1e6)
    best = float(str(error.value).split(" is ")[2].split(",")[0])
    assert check(x, ratio=0.9 * best).ratio >= 0.9 * best


def test_other_parameters_are_passed_on():
    x = support.smooth((40, 50, 60), F64)
    found = check(x, ratio=6, bins=1024, threads=2, backend="cpu", predictor="spline")
    assert cusz.inspect(found.archive).predictor == "spline"


def test_layouts():
    x = support.smooth((40, 50, 60), F32)
    expected = tuning.find_bound(x, psnr=60)
    assert tuning.find_bound(np.asfortranarray(x), psnr=60) == expected
    assert tuning.find_bound(np.repeat(x, 2, axis=0)[::2], psnr=60) == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "exactly one of them"),
        ({"psnr": 60, "ratio": 3}, "psnr is 60 and ratio is 3; exactly one"),
        ({"psnr": math.nan}, "psnr is nan; it must be finite"),
        ({"psnr": math.inf}, r"psnr is inf; it must be finite and above 0 \(eb=0 is lossless\)"),
        ({"psnr": 0}, "psnr is 0.0; it must be finite and above 0"),
        ({"psnr": "80"}, "psnr is '80'; it must be a number of decibels"),
        ({"ratio": 1}, "ratio is 1.0; it must be finite and above 1"),
        ({"ratio": math.inf}, "ratio is inf"),
        ({"ratio": True}, "ratio is True; it must be a number"),
        ({"ratio": 3, "bins": 100}, "power of two"),
        ({"ratio": 3, "threads": 0}, "threads is 0"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises(cusz.ParameterError, match=words):
        tuning.find_bound(support.smooth((10, 10), F32), **arguments)


def test_what_is_not_a_field():
    for x in ([1.0, 2.0], None, np.arange(5), np.ma.masked_array([1.0], [True]), np.zeros((1,) * 5)):
        for call in (tuning.sample, tuning.survey, lambda x: tuning.find_bound(x, psnr=60)):
            with pytest.raises(cusz.UnsupportedError):
                call(x)


# ----------------------------------------------------------------------------------------------------------- survey


def test_survey_of_a_small_field_is_exact(dtype):
    x = support.smooth((20, 30, 40), dtype)
    x[0, 0, :3] = [np.nan, 1e20, np.inf]
    for mode in ("rel", "abs"):
        rows = tuning.survey(x, [1e-2, 1e-4, 0], mode, fill=1e20, predictor="spline")
        for row, eb in zip(rows, [1e-2, 1e-4, 0], strict=True):
            assert row.eb == support.absolute_bound(x, eb, mode, 1e20)
            result = cusz.verify(x, cusz.compress(x, row.eb, fill=1e20, predictor="spline"))
            assert (row.ratio, row.bit_rate, row.psnr) == (result.ratio, result.bit_rate, result.psnr)
            assert (row.max_error, row.share) == (result.max_error, 1)


def test_survey_of_equal_values(dtype):
    """A fraction of their range is 0, so they are stored exactly, but in fewer bytes than with bound 0."""
    x = np.full((20, 30, 40), 3, dtype)
    (row,) = tuning.survey(x, [1e-3])
    archive = cusz.compress(x, 1e-3, "rel")
    assert (row.eb, row.ratio, row.max_error) == (0, x.nbytes / len(archive), 0)
    assert math.isnan(row.relative)


def test_survey_of_subnormal_values():
    (row,) = tuning.survey(np.tile([0.0, 5e-324], 50), [5e-324], "abs")
    assert row.relative == 1.0


@pytest.mark.usefixtures("small_samples")
@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_survey_by_a_sample_is_near(shape):
    x = support.smooth(shape, F32)
    rows = tuning.survey(x, [1e-2, 1e-3, 1e-4], predictor="lorenzo")
    for row, eb in zip(rows, [1e-2, 1e-3, 1e-4], strict=True):
        result = cusz.verify(x, cusz.compress(x, eb, "rel", predictor="lorenzo"))
        assert row.share < 0.5
        assert row.ratio == pytest.approx(result.ratio, rel=0.1)
        assert row.psnr == pytest.approx(result.psnr, abs=0.3)


def test_survey_refuses_bounds():
    x = support.smooth((10, 10), F32)
    assert tuning.survey(x, []) == []
    with pytest.raises(cusz.ParameterError, match="eb is -1"):
        tuning.survey(x, [1e-3, -1])
    with pytest.raises(cusz.ParameterError, match="mode"):
        tuning.survey(x, [1e-3], "most")


def test_outcomes_as_json():
    found = tuning.find_bound(np.zeros(1000, F32), psnr=60)
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["psnr"] == "inf"
    assert plain["relative"] == "nan"
    expected = {field.name for field in dataclasses.fields(found)} - {"archive", "effects"}
    assert set(plain) == expected | set(tuning.Effects._fields)
    assert len(repr(found)) < 400


# ---------------------------------------------------------------------------------------------------------- effects


def test_effects_on_small_values():
    x = np.array([0, 1, -1, 100, np.nan, np.inf, 9, 2, 4, 1e20], F32)
    y = np.array([1, 0, -0.5, 102, np.nan, np.inf, 9.5, 2.25, -4, 1e20], F32)
    counted = 6  # values that are finite, not 0 and not fill
    expected = tuning.Effects(1 / counted, 1 / counted, 6 / counted, 4 / counted)
    assert tuning.effects(x, y, 1e20) == pytest.approx(expected)
    assert tuning.effects(x[:1], y[:1], None) == tuning.Effects(0, 0, 0, 0)
    assert tuning.effects(x[:0], y[:0], None) == tuning.Effects(0, 0, 0, 0)
    huge = np.array([1e308, -1e308])
    assert tuning.effects(huge, -huge, None) == tuning.Effects(0, 1, 1, 1)
    smallest = np.array([5e-324, -5e-324])
    assert tuning.effects(smallest, smallest, None) == tuning.Effects(0, 0, 0, 0)
    assert tuning.effects(smallest, 0 * smallest, None) == tuning.Effects(1, 0, 1, 1)
    few = np.ldexp([60.0, 60.0, 200.0, 200.0], -1074)
    off = np.ldexp([0.0, 1.0, 1.0, 19.0], -1074)
    assert tuning.effects(few, few + off, None) == tuning.Effects(0, 0, 1 / 2, 0)
    many = np.tile(x, 30000)
    assert tuning.effects(many, np.tile(y, 30000), 1e20) == pytest.approx(expected)


@pytest.mark.parametrize("mode", ["abs", "pw_rel"])
def test_effects_of_a_bound(dtype, mode):
    x = support.many_magnitudes((40, 50), dtype)
    x[3, :5] = [0, np.nan, np.inf, 1e20, -1]
    (row,) = tuning.survey(x, [1e-2], mode, fill=1e20)
    y = cusz.decompress(cusz.compress(x, 1e-2, mode, fill=1e20))
    own = np.isfinite(x) & (x != 0) & (x != dtype.type(1e20))
    with np.errstate(over="ignore"):
        off = abs(x[own].astype(F64) / 2 - y[own].astype(F64) / 2) / (abs(x[own].astype(F64)) / 2)
    shares = [(y[own] == 0).mean(), (x[own] * np.sign(y[own]) < 0).mean(), (off > 0.01).mean(), (off > 0.1).mean()]
    assert row.effects == pytest.approx(shares)
    assert (row.effects.off_10_percent == 0) == (mode == "pw_rel")


def test_shares_in_words():
    shown = [tuning.percent(share) for share in (0, 1e-9, 0.0012, 0.2345, 0.999, 1)]
    assert shown == ["0", "<0.1%", "0.1%", "23%", ">99%", "100%"]
    assert str(tuning.Effects(0.5, 0, 0.62, 0.55)) == "50% become 0, 0 change sign, 62% off by > 1%, 55% off by > 10%"


# ---------------------------------------------------------------------------------------------------------- samples


@pytest.mark.usefixtures("small_samples")
@pytest.mark.parametrize("predictor", ["lorenzo", "spline"])
def test_a_sample_is_of_boxes_of_the_field(predictor):
    x = np.arange(100 * 150 * 160, dtype=F64).reshape(100, 150, 160)
    x[3, 4, 5] = np.nan
    one = tuning.sample(x, predictor=predictor)
    assert support.same_bits(one.x, tuning.sample(x.copy(), predictor=predictor, threads=2).x)
    assert (one.size, one.limits.min, one.limits.max) == (x.size, 0, x.size - 1)
    assert one.limits.values == np.isfinite(one.x).sum()
    assert one.share == one.x.size / x.size
    assert 1 << 17 <= one.x.size < 0.4 * x.size
    box = tuning.box_shape(x.shape, predictor)
    for part in one.x.reshape(-1, *box):
        place = np.unravel_index(int(np.nanmin(part)), x.shape)
        assert np.array_equal(part, support.part(x, place, box), equal_nan=True)


def test_a_small_field_is_its_own_sample():
    x = support.smooth((20, 30), F32)
    found = tuning.sample(x)
    assert found.is_field
    assert found.x is x


def test_estimates_from_a_sample_alone():
    """A bound for a sample is only an estimate: there is no field to verify it on."""
    x = support.smooth((40, 50, 60), F32)
    whole = tuning.sample(x)
    part = dataclasses.replace(whole, x=x[:20], share=0.5, limits=whole.limits._replace(values=x[:20].size))
    found = tuning.find_bound(part, psnr=60)
    assert (found.archive, found.share) == (None, 0.5)
    assert 60 <= found.psnr < 61
    assert cusz.verify(x, cusz.compress(x, found.eb)).psnr == pytest.approx(60, abs=1)
    with pytest.raises(tuning.OutOfReachError):
        tuning.find_bound(part, ratio=1e6)


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
def test_boxes_lie_within_and_everywhere(ndim):
    shape, box = (97, 64, 33, 20)[:ndim], (10, 8, 33, 5)[:ndim]
    starts = np.array([tuning.box_start(shape, box, number) for number in range(64)])
    assert (starts >= 0).all()
    assert (starts + box <= shape).all()
    for axis, (extent, edge) in enumerate(zip(shape, box, strict=True)):
        quarters = np.histogram(starts[:, axis], 4, (0, extent - edge + 1))[0]
        assert extent == edge or (quarters >= 8).all()


# ------------------------------------------------------------------------------------------------------- the search


def search(curve, goal, is_psnr=False, shift=1.0, most_trials=8):
    """Runs a search in which `curve` maps a bound to its result; for the sample, bounds are multiplied by `shift`.
    Returns what the search finds, and the bounds tried with their results."""
    tried = {}

    def on_whole(eb):
        tried[eb] = curve(eb)
        return (tried[eb], math.nan) if is_psnr else (math.nan, tried[eb])

    def on_sample(eb):
        return (curve(eb * shift), math.nan) if is_psnr else (math.nan, curve(eb * shift))

    found = tuning.Search(goal, is_psnr, 100.0, on_sample)
    return found.find(on_whole, found.estimate(), True, most_trials), tried


@settings(max_examples=300, derandomize=True)
@given(st.data())
def test_the_best_bound_that_was_tried_is_kept(data):
    """Also with curves that jump up and down."""
    steps = sorted(data.draw(st.lists(st.floats(1e-6, 100), min_size=1, max_size=8)))
    is_psnr = data.draw(st.booleans())
    levels = data.draw(st.lists(st.floats(20, 90) if is_psnr else st.floats(2, 60), min_size=9, max_size=9))
    levels.sort(reverse=is_psnr)
    for i in data.draw(st.lists(st.integers(0, 7), max_size=2)):
        levels[i], levels[i + 1] = levels[i + 1], levels[i]

    def curve(eb):
        if eb == 0:
            return math.inf if is_psnr else 1.0
        return levels[sum(eb > step for step in steps)]

    goal = data.draw(st.floats(30, 80) if is_psnr else st.floats(3, 40))
    best, tried = search(curve, goal, is_psnr, data.draw(st.sampled_from([0.2, 0.9, 1.0, 3.0])))
    reached = [eb for eb, level in tried.items() if level >= goal]
    assert best == ((max if is_psnr else min)(reached) if reached else None)


def test_a_jump_is_narrowed_down():
    def jumps(eb):
        return 3 + 0.1 * math.log(eb / 1e-9) if eb < 1e-2 else 29 + 0.5 * math.log(eb / 1e-2)

    best, tried = search(jumps, 10, shift=4, most_trials=24)
    assert 1e-2 <= best < 1.03e-2
    assert len(tried) < 15


# ----------------------------------------------------------------------------------------------------- small helpers


@given(st.floats(min_value=5e-324, allow_infinity=False), st.integers(1, 6))
def test_rounded(eb, digits):
    down, up = tuning.rounded(eb, digits), tuning.rounded(eb, digits, up=True)
    assert down <= eb <= up
    if 1e-300 < eb < 1e300:
        assert float(f"{down:.{digits - 1}e}") == down
        assert up - down <= 1.001 * 10.0 ** (math.floor(math.log10(down)) - digits + 1)


def test_rounded_values():
    assert [tuning.rounded(eb, 2) for eb in (0.0199, 0.02, 123.4, 1e-4, 0.0)] == [0.019, 0.02, 120, 1e-4, 0]
    assert tuning.rounded(0.0191, 2, up=True) == 0.02


def test_fields_with_one_sign():
    density = np.exp(support.smooth((60, 70), np.dtype("f4")) * 5)
    for x, has_one in ((density, True), (-density, True), (density - 1, False), (density * 0, True)):
        assert tuning.has_one_sign(tuning.sample(x)) == has_one
    density[3, :20] *= -1  # undershoots
    density[5, :5] = np.nan
    assert tuning.has_one_sign(tuning.sample(density))


def test_likely_fill(dtype):
    x = support.smooth((40, 50), dtype)

    def mark_in(x):
        return tuning.likely_fill(tuning.sample(x))

    assert mark_in(x) is None
    for value in (1e20, -9999.0, -1e30, float(np.finfo(dtype).max)):
        marked = x.copy()
        marked[:10] = value
        marked[20, :3] = np.nan
        assert mark_in(marked) == (float(dtype.type(value)), 0.25)
        marked[:10] = x[:10]
        marked[0, 0] = value
        assert mark_in(marked) is None, "once is an outlier"
    peaks = np.exp(x * 2)
    peaks[0, 0] = peaks[7, 7] = 13 * peaks.max()  # the densest cell of two steps
    assert mark_in(peaks) is None
    peaks[0, 0] = peaks[7, 7] = 1e30
    assert mark_in(peaks) == (float(dtype.type(1e30)), 1e-3)
    for values in ([0, 1], [0], [np.nan, np.inf], []):
        assert mark_in(np.array(values * 100, dtype)) is None
