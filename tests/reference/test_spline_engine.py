"""The engine of the spline codec against the implementation of format_v2.md: every byte of archives and every bit of
decoded values, with every instruction set.
"""

from __future__ import annotations

import itertools
import math
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import format_v1_reference as v1
import format_v2_reference as reference
import numpy as np
import pytest
from format_v2_tools import INSTRUCTION_SETS, compiled, instruction_sets
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

import format_v2
import support
from field_kinds import strewn
from strategies import SPECIALS, any_fields
from support import DTYPES, F32, F64, smooth

FEW = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
SOURCES = [
    *[f"codec/spline/cpu/{name}.cpp" for name in ("field_coder", "record", "tile")],
    "codec/spline/unit_tables.cpp",
    *[f"archive/v2/{name}.cpp" for name in ("frame", "model", "tables")],
    *[f"archive/{name}.cpp" for name in ("layout", "lossless", "pyramid", "tiling")],
]
FLAGS = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-pthread", "-Wno-psabi"]


@dataclass
class Codec:
    """tests/core/spline_tool.cpp."""

    program: Path

    def run(self, given: bytes, *arguments: object) -> bytes:
        done = subprocess.run([self.program, *map(str, arguments)], input=given, capture_output=True, check=False)
        if done.returncode != 0:
            message = done.stderr.decode()
            assert "corrupt archive" in message, message
            raise reference.FormatError(message)
        return done.stdout

    def encode(
        self, x: NDArray, eb: float, mode: str = "abs", fill: float | None = None, *, curve: int = 1, bounds: int = 0,
        allowed: tuple[int, int, int] = (15, 15, 15), threads: int = 1,
    ) -> bytes:  # fmt: skip
        ty = v1.type_of(x.dtype)
        pattern = v1.special_pattern(fill, ty)
        e = float(v1.largest_bound(v1.absolute_bound(x, x.view(ty.bits) == pattern, eb, mode), ty))
        of_fill = "none" if fill is None else pattern
        plan = [int(mode == "rel"), of_fill, curve, bounds, *allowed, threads, *x.shape]
        return self.run(x.tobytes(), "compress", f"f{8 * x.itemsize}", repr(eb), repr(e), *plan)

    def decode(self, archive: bytes, dtype: np.dtype, threads: int = 1, box: Any = ()) -> NDArray:
        numbers = [n for begin, count in box for n in (begin, count)]
        data = self.run(archive, "decompress", f"f{8 * dtype.itemsize}", threads, *numbers)
        return np.frombuffer(data, dtype)


def made(folder: Path, isa: str, options: list[str]) -> Codec:
    flags = [f"-DCUSZ_ISA={isa}", *INSTRUCTION_SETS[isa], *FLAGS, *options]
    return Codec(compiled(folder / "spline_tool", flags, *SOURCES))


WIDEST = instruction_sets()[-1]
# Only the widest set is quick: tests/contract also checks that instruction sets give the same.
OTHERS = [pytest.param(isa, marks=pytest.mark.long) for isa in instruction_sets()[:-1]]


@pytest.fixture(scope="module", params=[WIDEST, *OTHERS])
def codec(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Codec:
    return made(tmp_path_factory.mktemp(request.param), request.param, [])


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Codec:
    """Built with checks for bad memory accesses and undefined behaviour."""
    options = ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]  # -O0: compiling takes longest
    return made(tmp_path_factory.mktemp("checked"), WIDEST, options)


def same_bits(a: NDArray, b: NDArray) -> bool:
    return a.tobytes() == b.tobytes()


def is_constant(x: NDArray) -> bool:
    bits = x.view(v1.type_of(x.dtype).bits)
    return bool((bits == bits.flat[0]).all())


def agree(codec: Codec, x: NDArray, eb: float, mode: str = "abs", fill: float | None = None, **options: Any) -> bytes:
    wanted = reference.encode(x, eb, mode, fill=fill, even_if_longer=True, **options)
    if wanted[:2] != reference.MAGIC or is_constant(x):
        return wanted  # raw or constant: not made by this engine
    archive = codec.encode(x, eb, mode, fill, **options)
    assert len(archive) == len(wanted)
    assert archive == wanted
    read = reference.decode(archive)
    assert same_bits(codec.decode(archive, x.dtype), read)
    assert support.violations(x, read, support.absolute_bound(x, eb, mode, fill), fill) == []
    return archive


@dataclass
class Case:
    shape: tuple[int, ...]
    eb: float = 1e-3
    options: dict[str, Any] = field(default_factory=dict)
    strewn: tuple[float, ...] = ()
    one_in: int = 200

    def field(self, dtype: np.dtype) -> NDArray:
        return strewn(self.shape, dtype, list(self.strewn), self.one_in) if self.strewn else smooth(self.shape, dtype)


CASES = {
    "box": Case((12, 13, 14)),
    "linear": Case((12, 13, 14), options={"curve": 0}),
    "several tiles": Case((9, 20, 70), options={"curve": 3, "bounds": 2}),
    "six points": Case((18, 19, 35), options={"curve": 2, "bounds": 1}),
    "plane": Case((70, 130), 1e-4, {"curve": 3, "bounds": 3}),
    "line": Case((9001,), 1e-4, {"curve": 2}),
    "four axes": Case((5, 6, 9, 10), options={"allowed": (7, 13, 15), "curve": 3}),
    "long fourth axis": Case((300, 2, 3, 2), options={"allowed": (7, 7, 7)}),
    "slowest first": Case((40, 17, 9), options={"allowed": (6, 4, 3)}),
    "missing": Case((11, 17, 35), strewn=(math.nan, 1e30, math.inf, -math.inf), one_in=60),
    "missing, six points": Case((11, 17, 35), options={"curve": 3}, strewn=(math.nan, 1e30, math.inf), one_in=30),
    "fill": Case((11, 17, 35), 1e-3, {"mode": "rel", "fill": 7.0}, (7.0, math.nan), 50),
    "large codes": Case((11, 17, 35), 1e-6),
    "two points": Case((2,)),
    "three points": Case((1, 3, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_same_archives(name: str, dtype: np.dtype, codec: Codec) -> None:
    case = CASES[name]
    agree(codec, case.field(dtype), case.eb, **case.options)


def test_regions_without_data(dtype: np.dtype, codec: Codec) -> None:
    x = smooth((20, 24, 33), dtype)
    x[:10] = math.nan
    agree(codec, x, 1e-3)
    x[0, 0, 0] = math.inf  # the top, for which predictions use 0
    agree(codec, x, 1e-3, curve=3)


@pytest.mark.parametrize("shape", [(20, 40, 70), pytest.param((131 * 4096,), marks=pytest.mark.full)], ids=str)
def test_tiles_of_zeros_do_not_count(shape: tuple[int, ...], codec: Codec) -> None:
    """Also where only a sample of the tiles is counted, from 128 tiles on."""
    x = np.zeros(shape, F32)
    x[: len(x) // 2] = smooth((len(x) // 2, *shape[1:]), F32)
    agree(codec, x, 0.1)


def test_the_same_with_any_number_of_threads(codec: Codec) -> None:
    x = strewn((40, 70, 90), F32, [math.nan, 1e30], 3000)
    archive = codec.encode(x, 1e-3)
    assert same_bits(codec.decode(archive, F32), reference.decode(archive))
    for threads in (2, 5):
        assert codec.encode(x, 1e-3, threads=threads) == archive
        assert same_bits(codec.decode(archive, F32, threads), codec.decode(archive, F32))


@pytest.mark.parametrize("options", [{"curve": 1}, {"curve": 3, "allowed": (6, 5, 15)}], ids=str)
def test_boxes(options: dict[str, Any], codec: Codec) -> None:
    x = strewn((50, 60, 90), F32, [math.nan, math.inf, 1e30], 2000)
    archive = codec.encode(x, 1e-3, **options)
    whole = codec.decode(archive, F32).reshape(x.shape)
    corners = [(0, 0, 0), (49, 59, 89), (17, 30, 31), (3, 8, 64), (0, 16, 32)]
    for first, count in itertools.product(corners, [(1, 1, 1), (1, 60, 90), (20, 3, 40)]):
        box = [(b, min(n, size - b)) for b, n, size in zip(first, count, x.shape, strict=True)]
        wanted = whole[tuple(slice(b, b + n) for b, n in box)]
        assert same_bits(codec.decode(archive, F32, 2, box), np.ascontiguousarray(wanted))


@pytest.mark.parametrize(("shape", "again"), [((40, 70, 90), 0.0), ((160, 160, 160), 0.15)], ids=str)
def test_values_are_predicted_once(shape: tuple[int, ...], again: float, codec: Codec) -> None:
    """Except for a sample of large fields, from which the model is chosen: about one in eight of 1,000 tiles."""
    plan = [0, "none", 1, 0, 15, 15, 15, 1, *shape]
    found = codec.run(smooth(shape, F32).tobytes(), "passes", "f32", "0.01", repr(float(F32.type(0.01))), *plan).split()
    assert int(found[0]) == math.prod(shape) - 1
    assert 0 <= int(found[1]) <= again * math.prod(shape)
    assert (int(found[1]) > 0) == (again > 0)


@pytest.mark.parametrize("shape", [(50_000,), (200, 250), (40, 41, 42)], ids=str)
@pytest.mark.parametrize(("share", "eb"), [(0.0, 1e-3), (0.1, 1e-3), (1.0, 1e-2), (1.0, 1e-4)], ids=str)
def test_how_long_an_archive_will_be(
    shape: tuple[int, ...], share: float, eb: float, dtype: np.dtype, codec: Codec
) -> None:
    """Within a hundredth, but for the front, the map and each unit's own bytes."""
    noise = support.integers(math.prod(shape), 0, 2**16).reshape(shape) / 2**16
    x = ((1 - share) * smooth(shape, F64) + share * noise).astype(dtype)
    e = float(v1.largest_bound(eb, v1.type_of(dtype)))
    plan = [0, "none", 1, 0, 15, 15, 15, 1, *x.shape]
    estimate = int(codec.run(x.tobytes(), "estimate", f"f{8 * x.itemsize}", repr(eb), repr(e), *plan))
    length = len(codec.encode(x, eb, curve=1))
    assert 0.99 * estimate < length < 1.01 * estimate + 300


CHOOSE = 9


def chosen(codec: Codec, x: NDArray, eb: float) -> dict[str, Any]:
    """The interpolation that the library chooses for a field."""
    e = float(v1.largest_bound(eb, v1.type_of(x.dtype)))
    plan = [0, "none", CHOOSE, 0, 15, 15, 15, 1, *x.shape]
    curve, bounds, *allowed = codec.run(x.tobytes(), "choose", f"f{8 * x.itemsize}", repr(eb), repr(e), *plan).split()
    return {"curve": int(curve), "bounds": int(bounds), "allowed": tuple(map(int, allowed))}


def test_smooth_fields_are_interpolated_by_curves_of_six_points(codec: Codec) -> None:
    z, y, x = np.meshgrid(*[np.linspace(0, 3, n) for n in (40, 40, 48)], indexing="ij")
    wave = np.sin(x * y) * np.cos(z + x)
    assert chosen(codec, wave, 1e-5)["curve"] == 3
    assert chosen(codec, wave.astype(F32), 3e-2)["bounds"] == 1


def test_spikes_are_interpolated_linearly(codec: Codec) -> None:
    spikes = np.where(support.integers(40**3, 0, 30) == 0, 100.0, 0).reshape(40, 40, 40).astype(F32)
    assert chosen(codec, spikes, 0.1)["curve"] == 0


def test_a_rough_axis_is_not_halved(codec: Codec) -> None:
    layers = support.integers(20, 0, 1000, 5)[:, None, None] + smooth((20, 60, 70), F64)
    allowed = chosen(codec, layers, 1e-2)["allowed"]
    assert allowed[0] & 7 == 3
    columns = np.ascontiguousarray(np.moveaxis(layers, 0, 2))
    assert chosen(codec, columns, 1e-2)["allowed"][0] & 7 == 6


@pytest.mark.parametrize(
    "shape", [(2,), (5000,), (3, 1, 2), (70, 90), (16, 16, 16), (9, 40, 50), (3, 4, 30, 30)], ids=str
)
def test_what_is_chosen_can_be_coded(shape: tuple[int, ...], codec: Codec) -> None:
    x = smooth(shape, F32)
    options = chosen(codec, x, 1e-3)
    wanted = reference.encode(x, 1e-3, even_if_longer=True, **options)
    assert codec.encode(x, 1e-3, curve=CHOOSE) == wanted


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


@pytest.mark.full
@FEW
@given(
    x=st.one_of(any_fields(arrays.array_shapes(min_dims=1, max_dims=4, max_side=14)), smooth_fields()),
    eb=st.one_of(st.floats(1e-12, 1e3), st.sampled_from([0.5, 0.01, 0.125, 1e-38, 2.3e-308, 1e38, 1.7e308])),
    mode=st.sampled_from(["abs", "rel"]),
    fill=st.sampled_from([None, *SPECIALS]),
    allowed=st.tuples(*[st.sampled_from([15, 15, 7, 5, 1, 8, 2])] * 3),
    curve=st.integers(0, 3),
    bounds=st.integers(0, 3),
)
def test_any_field(
    x: NDArray, eb: float, mode: str, fill: float | None, allowed: Any, curve: int, bounds: int, checked: Codec
) -> None:
    agree(checked, x, eb, mode, fill, allowed=allowed, curve=curve, bounds=bounds)


def test_tiles_of_many_forms(codec: Codec) -> None:
    """More forms than the engine caches: units decoded in parallel must not take each other's."""
    x = smooth((69, 75, 77), F32)
    archive = codec.encode(x, 0.1)
    difference = codec.decode(archive, F32).astype(np.float64) - x.ravel()
    assert np.abs(difference).max() <= 0.1


@pytest.mark.full
@pytest.mark.parametrize("name", ["several tiles", "missing, six points", "line", "large codes"])
def test_memory_is_used_as_it_may_be(name: str, checked: Codec) -> None:
    case = CASES[name]
    agree(checked, case.field(F32), case.eb, **case.options)
    agree(checked, case.field(F64), case.eb, **case.options)


@pytest.mark.full
def test_damaged_units_are_refused_alike(dtype: np.dtype, checked: Codec) -> None:
    x = strewn((7, 9, 16), dtype, [math.nan, 1e30, 900.0], 30)
    archive = reference.encode(x, 1e-3, even_if_longer=True)
    unchanged = bytearray(archive)
    format_v2.seal(unchanged)
    assert unchanged == archive
    n_refused = 0
    for bit in support.integers(60, 8 * 20, 8 * len(archive), 3).tolist():
        changed = bytearray(support.flipped(archive, bit))
        format_v2.seal(changed)
        damaged = bytes(changed)
        try:
            wanted: NDArray | None = reference.decode(damaged)
        except reference.FormatError:
            wanted = None
            n_refused += 1
        if wanted is None:
            with pytest.raises(reference.FormatError):
                checked.decode(damaged, dtype)
        else:
            assert same_bits(checked.decode(damaged, dtype), wanted)
    assert 5 < n_refused < 60
