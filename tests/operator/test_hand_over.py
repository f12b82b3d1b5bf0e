"""Finished archives reach the file unchanged, and only for the block they were made for."""

from __future__ import annotations

import concurrent.futures
import ctypes
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_core
import cusz_operator
import support
from cusz_operator import PluginError
from cusz_operator.plugin import MAX_NDIM, Plugin, PutRange

pytest.importorskip("adios2")
import adios2
from other_program import Program

LIBRARY = cusz_operator.plugin_path() / "libcusz_operator.so"
FIELD = support.smooth((30, 40), support.F32)
MAX_OFFERS = 256  # cusz_operator.h
UNKNOWN = 3


class Output(Program):
    """A file with the compressed variable T of shape (60, 40)."""

    def __init__(self, path: Path, engine: str, stats_level: int = 0) -> None:
        super().__init__(path, engine, StatsLevel=str(stats_level))
        self.variable = self.io.define_variable("T", FIELD, [60, 40], [0, 0], [60, 40])
        self.variable.add_operation(cusz_operator.define_operator(self.adios, eb=0.0))
        self.engine.begin_step()

    def put_at(self, start: tuple[int, ...], count: tuple[int, ...]) -> Callable[[int], object]:
        def put(address: int) -> None:
            self.variable.set_selection([list(start), list(count)])
            self.engine.impl.Put(self.variable.impl, address, adios2.Mode.Sync)

        return put

    def close(self) -> None:
        self.engine.end_step()
        self.engine.close()

    def range_of(self, put_count: tuple[int, ...]) -> PutRange:
        return PutRange(
            np.array([-1.5, 2.5], FIELD.dtype),
            put_count,
            lambda count: self.variable.set_selection([[0, 0], list(count)]),
        )


def offer(library: Any, archive: bytes, dtype: int = 1, count: tuple[int, ...] = (30, 40), name: bytes = b"T") -> int:
    return library.cusz_operator_offer(
        archive, len(archive), dtype, len(count), (ctypes.c_uint64 * max(len(count), 1))(*count), name
    )


@pytest.fixture
def library() -> Any:
    return Plugin()._library  # with its functions' types declared


def test_archives_are_stored_as_they_are(engine: str, tmp_path: Path) -> None:
    plugin = Plugin()
    out = Output(tmp_path / "out.bp", engine)
    bounds = (1e-3, 1e-1)
    archives = [cusz_core.compress(FIELD, eb) for eb in bounds]  # the same array twice
    plugin.hand_over("T", FIELD.dtype, (30, 40), archives[0], out.put_at((0, 0), (30, 40)))
    plugin.hand_over("T", FIELD.dtype, (0, 40), cusz_core.compress(FIELD[:0], 1.0), out.put_at((0, 0), (0, 40)))
    plugin.hand_over("T", FIELD.dtype, (30, 40), archives[1], out.put_at((30, 0), (30, 40)))
    out.close()
    blocks = [block for block in cusz_operator.inspect_bp(tmp_path / "out.bp") if block["count"] == (30, 40)]
    assert [block["archive_bytes"] for block in blocks] == [len(archive) for archive in archives]
    assert [block["eb_abs"] for block in blocks] == list(bounds)
    with adios2.FileReader(str(tmp_path / "out.bp")) as run:
        values = run.read("T")
    for i, archive in enumerate(archives):
        assert support.same_bits(np.ascontiguousarray(values[30 * i : 30 * i + 30]), cusz_core.decompress(archive))


@pytest.mark.parametrize("wrong", ["variable", "dtype", "extents"])
def test_a_key_is_for_one_block_alone(wrong: str, engine: str, tmp_path: Path) -> None:
    name = "other" if wrong == "variable" else "T"
    dtype = support.F64 if wrong == "dtype" else support.F32
    count = (40, 30) if wrong == "extents" else (30, 40)
    out = Output(tmp_path / "out.bp", engine)
    archive = cusz_core.compress(FIELD, 1e-3)
    put = out.put_at((0, 0), (30, 40))
    if wrong == "variable" and engine == "BP4":  # BP4 does not pass names
        Plugin().hand_over(name, dtype, count, archive, put)
        out.close()
        return
    with pytest.raises(PluginError, match="passed it on for another variable, type or extents"):
        Plugin().hand_over(name, dtype, count, archive, put)
    out.close()
    (block,) = cusz_operator.inspect_bp(tmp_path / "out.bp")
    assert block["kind"] == "lost"


def test_a_key_is_good_once(engine: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = Output(tmp_path / "out.bp", engine)
    first, second = out.put_at((0, 0), (30, 40)), out.put_at((30, 0), (30, 40))
    keys = []

    def put_twice(key: int) -> None:
        first(key)
        second(key)
        keys.append(key)

    Plugin().hand_over("T", FIELD.dtype, (30, 40), cusz_core.compress(FIELD, 1e-3), put_twice)
    out.engine.end_step()
    out.engine.begin_step()
    first(keys[0])  # withdrawn
    out.close()
    kinds = [block["kind"] for block in cusz_operator.inspect_bp(tmp_path / "out.bp")]
    assert kinds == ["tiled", "lost", "lost"]


# ------------------------------------------------------------------------------------------------ with statistics


def put_two(out: Output, **wrong: Any) -> None:
    """Hands over FIELD as T, while only two elements are selected for the put."""
    block = {"variable": "T", "dtype": FIELD.dtype, "put_count": (1, 2), **wrong}
    given = out.range_of(block["put_count"])
    put = out.put_at((0, 0), (1, 2))
    Plugin().hand_over(block["variable"], block["dtype"], (30, 40), cusz_core.compress(FIELD, 1e-3), put, given)


@pytest.mark.parametrize(
    "wrong", [{"variable": "other"}, {"dtype": support.F64}, {"put_count": (2, 1)}, {"put_count": (1, 1)}], ids=str
)
def test_a_key_is_for_one_block_alone_with_statistics(wrong: dict[str, Any], tmp_path: Path) -> None:
    out = Output(tmp_path / "out.bp", "BP5", stats_level=1)
    with pytest.raises(PluginError, match="passed it on for another variable, type or extents"):
        put_two(out, **wrong)
    out.close()
    (block,) = cusz_operator.inspect_bp(tmp_path / "out.bp")
    assert (block["kind"], block["count"]) == ("lost", (1, 2)), "what was selected, and not what was not stored"


def test_extents_that_cannot_be_set(tmp_path: Path) -> None:
    out = Output(tmp_path / "out.bp", "BP5", stats_level=1)
    given = out.range_of((1, 2))._replace(select=lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        Plugin().hand_over(
            "T", FIELD.dtype, (30, 40), cusz_core.compress(FIELD, 1e-3), out.put_at((0, 0), (1, 2)), given
        )
    out.close()
    (block,) = cusz_operator.inspect_bp(tmp_path / "out.bp")
    assert (block["kind"], block["count"]) == ("lost", (1, 2))


def test_an_engine_without_room_for_the_archive(tmp_path: Path) -> None:
    """BP4 does not ask how much room an operator needs, and reserves only the size of the selected elements."""
    out = Output(tmp_path / "out.bp", "BP4", stats_level=1)
    with pytest.raises(PluginError, match="or had no room for it"):
        put_two(out)
    out.close()
    (block,) = cusz_operator.inspect_bp(tmp_path / "out.bp")
    assert (block["kind"], block["count"]) == ("lost", (1, 2))


def test_a_key_with_statistics_is_good_once(tmp_path: Path) -> None:
    out = Output(tmp_path / "out.bp", "BP5", stats_level=1)
    keys = []

    def put_twice(key: int) -> None:
        out.put_at((0, 0), (1, 2))(key)
        out.put_at((30, 0), (1, 2))(key)
        keys.append(key)

    Plugin().hand_over("T", FIELD.dtype, (30, 40), cusz_core.compress(FIELD, 1e-3), put_twice, out.range_of((1, 2)))
    out.put_at((31, 0), (1, 2))(keys[0])  # withdrawn
    out.close()
    kinds = [(block["kind"], block["count"]) for block in cusz_operator.inspect_bp(tmp_path / "out.bp")]
    assert kinds == [("tiled", (30, 40)), ("lost", (1, 2)), ("lost", (1, 2))]


def test_ranges_that_cannot_be_offered(library: Any) -> None:
    """ADIOS2 would read more than the two values. (Nothing is left behind: MAX_OFFERS offers fit afterwards.)"""
    archive = cusz_core.compress(FIELD, 1e-3)
    limits = np.array([-1.5, 2.5], support.F32)
    c_type = library.cusz_operator_offer_with_range.argtypes[-1]

    def offer_range(put_count: tuple[int, ...] | None, setter: Any) -> int:
        extents = (ctypes.c_uint64 * 2)(*put_count) if put_count else None
        block = (archive, len(archive), 1, 2, (ctypes.c_uint64 * 2)(30, 40), b"T")
        key: int = library.cusz_operator_offer_with_range(*block, limits.ctypes.data, extents, setter)
        return key

    setter = c_type(lambda: 1)
    for _ in range(MAX_OFFERS + 1):
        assert [offer_range(count, setter) for count in ((1, 3), (0, 1), (2**63, 2), None)] == [0] * 4
        assert offer_range((1, 2), c_type()) == 0
    keys = [offer_range((1, 2), setter) for _ in range(MAX_OFFERS)]
    assert all(keys)
    assert offer_range((1, 2), setter) == 0
    assert (ctypes.c_float * 2).from_address(keys[-1])[:] == [-1.5, 2.5]
    assert {library.cusz_operator_withdraw(key) for key in keys} == {0}


# ---------------------------------------------------------------------------------------------------------- offers


def test_a_put_that_does_not_happen(library: Any) -> None:
    """Nothing is left behind, whatever goes wrong; otherwise the table of offers would fill up."""
    plugin = Plugin()
    archive = cusz_core.compress(FIELD, 1e-3)
    for _ in range(2 * MAX_OFFERS):
        with pytest.raises(PluginError, match="did not ask this copy of the plugin"):
            plugin.hand_over("T", FIELD.dtype, (30, 40), archive, lambda key: None)
        with pytest.raises(ZeroDivisionError):
            plugin.hand_over("T", FIELD.dtype, (30, 40), archive, lambda key: 1 // 0)


def test_what_cannot_be_offered(library: Any) -> None:
    archive = cusz_core.compress(FIELD, 1e-3)
    for dtype in (0, 3, 256, 256 + 3, 256 + 16):
        assert offer(library, archive, dtype=dtype) == 0
    assert offer(library, archive, count=()) == 0
    assert offer(library, archive, count=(1,) * (MAX_NDIM + 1)) == 0
    assert offer(library, archive, count=(2, 3)) == 0, "larger than ADIOS2 has room for"
    assert offer(library, archive, count=(2**63, 2**63)) == 0
    assert offer(library, archive, name=b"") == 0
    assert offer(library, archive, name=b"x" * 1024) == 0
    assert offer(library, b"") == 0
    assert library.cusz_operator_withdraw(1) == UNKNOWN
    assert library.cusz_operator_withdraw(0) == UNKNOWN


def test_the_table_has_an_end_and_keys_are_new(library: Any) -> None:
    archive = cusz_core.compress(FIELD, 1e-3)
    keys = [offer(library, archive) for _ in range(MAX_OFFERS)]
    assert all(keys)
    assert len(set(keys)) == MAX_OFFERS
    assert offer(library, archive) == 0
    assert {library.cusz_operator_withdraw(key) for key in keys} == {0}
    assert {library.cusz_operator_withdraw(key) for key in keys} == {UNKNOWN}
    again = offer(library, archive)
    assert again not in (0, *keys)
    assert library.cusz_operator_withdraw(again) == 0


def test_any_thread_may_offer(library: Any) -> None:
    archive = cusz_core.compress(FIELD, 1e-3)

    def offer_and_withdraw(n: int) -> int:
        seen = 0
        for _ in range(n):
            key = offer(library, archive)
            seen += key != 0 and library.cusz_operator_withdraw(key) == 0
        return seen

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(offer_and_withdraw, [500] * 8)) == [500] * 8


TWO_COPIES = """
import sys
import adios2
import numpy as np
import cusz_core, cusz_operator
from cusz_operator import plugin

folder, file, hidden = sys.argv[1:]
own = plugin.Plugin()  # loads the copy of the package
if hidden == "hidden":
    plugin._loaded_copies = lambda: []
import os
os.environ["ADIOS2_PLUGIN_PATH"] = folder
adios = adios2.Adios()
operator = adios.define_operator("cusz", "plugin", cusz_operator.operator_parameters(eb=0.0))
x = np.zeros((10, 10), np.float32)
io = adios.declare_io("output")
io.set_parameters({"StatsLevel": "0"})
variable = io.define_variable("T", x, x.shape, [0, 0], x.shape)
variable.add_operation(operator)
engine = io.open(file, adios2.Mode.Write)
engine.begin_step()
put = lambda key: engine.impl.Put(variable.impl, key, adios2.Mode.Sync)
try:
    own.hand_over("T", x.dtype, x.shape, cusz_core.compress(x, 1e-3), put)
except cusz_operator.PluginError as error:
    print("refused:", error)
engine.end_step()
engine.close()
"""


@pytest.mark.parametrize("hidden", ["seen", "hidden"])
def test_another_copy_of_the_plugin_is_noticed(hidden: str, python: Callable, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    shutil.copy(LIBRARY, tmp_path / "copy")
    core = Path(cusz_core.__file__).parent
    env = {"LD_LIBRARY_PATH": str(core)}
    done = python(TWO_COPIES, tmp_path / "copy", tmp_path / "out.bp", hidden, env=env)
    reason = "several copies of the ADIOS2 plugin" if hidden == "seen" else "it loaded another one"
    assert "refused:" in done.stdout
    assert reason in done.stdout
