"""`cusz inspect` of a directory: what it says about variables and blocks, and what it reads for that."""

from __future__ import annotations

import functools
import itertools
import json
import re
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cusz_core
import cusz_operator as cz
import support
from cusz_core import cli, embedding
from cusz_operator import plugin
from cusz_operator.inspecting.blocks import Block
from cusz_operator.inspecting.variables import Asked, BlockError, _Tally
from cusz_operator.plugin import Plugin
from cusz_operator.tables import checks

pytest.importorskip("adios2")
import adios2
from other_program import Program

X = support.smooth((20, 30, 40), support.F32)
REL, ABS = Asked("rel", 1e-3), Asked("abs", 0.01)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def inspect(cusz_cli: Run) -> Run:
    """Runs `cusz inspect`."""
    return functools.partial(cusz_cli, "inspect")


def variables_of(path: Path, **options: Any) -> dict[str, cz.VariableInfo]:
    return {own.name: own for own in cz.inspect_variables(path, **options)}


def write_steps(path: Path, engine: Any = "BP5") -> None:
    """A Writer, with Lorenzo: three steps of U (rel, two blocks), V (abs, two) and n (lossless, not at step 1)."""
    with cz.Writer(path, eb=1e-3, mode="rel", engine=engine, predictor="lorenzo") as out:
        for step in range(3):
            with out.step():
                for half in (0, 10):
                    where = {"shape": X.shape, "start": (half, 0, 0)}
                    out.put("U", X[half : half + 10] * np.float32(1 + step), **where)
                    out.put("V", X[half : half + 10].astype(np.float64), eb=0.01, mode="abs", **where)
                if step != 1:
                    out.put("n", np.array([step], np.float64), eb=0)


def write_plainly(path: Path, engine: str = "BP5") -> list[float]:
    """The plugin, with Lorenzo: two steps of T (rel, two blocks), P (plain) and the number s. Returns T's bounds."""
    bounds = []
    with Program(path, engine) as out:
        for step in range(2):
            with out.step():
                for block in range(2):
                    field = X * np.float32(1 + step + 2 * block)
                    out.put("T", field, (40, 30, 40), (20 * block, 0, 0), 1e-3, mode="rel", predictor="lorenzo")
                    bounds.append(support.absolute_bound(field, 1e-3, "rel"))
                out.put("P", np.zeros(7, np.int32))
                out.put("s", 0.0)
    return bounds


def rewrite_lines(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes every line of the checksum file."""
    lines = []
    for whole in (path / checks.CHECKS_FILE).read_bytes().splitlines():
        line = json.loads(whole.rpartition(b" ")[0])
        change(line)
        text = json.dumps(line).encode()
        lines.append(b"%s %d\n" % (text, zlib.crc32(text)))
    (path / checks.CHECKS_FILE).write_bytes(b"".join(lines))


# ---------------------------------------------------------------------------------------------------- of a Writer


def test_variables_of_a_writer(engine: Any, tmp_path: Path) -> None:
    write_steps(tmp_path / "run.bp", engine)
    u, v, n = cz.inspect_variables(tmp_path / "run.bp")
    assert [own.name for own in (u, v, n)] == ["U", "V", "n"]
    assert [own.type for own in (u, v, n)] == ["float", "double", "double"]
    assert (u.steps, v.steps, n.steps) == ((0, 1, 2), (0, 1, 2), (0, 2))
    assert (u.blocks, v.blocks, n.blocks) == (6, 6, 2)
    assert (u.asked, v.asked, n.asked) == ((REL,), (ABS,), (Asked("rel", 0.0),))
    bounds = [support.absolute_bound(X * np.float32(1 + step), 1e-3, "rel") for step in range(3)]
    assert (u.eb_abs_min, u.eb_abs_max) == (min(bounds), max(bounds))
    assert (v.eb_abs_min, v.eb_abs_max) == (0.01, 0.01)
    assert (n.eb_abs_min, n.eb_abs_max) == (None, None)
    assert (u.predictors, v.predictors, n.predictors) == ({"lorenzo": 6}, {"lorenzo": 6}, {})
    assert (u.raw, v.raw, n.raw) == (0, 0, 2)
    archives = [
        cusz_core.compress(X[half : half + 10] * np.float32(1 + step), bounds[step], predictor="lorenzo")
        for step, half in itertools.product(range(3), (0, 10))
    ]
    assert u.raw_bytes == u.archive_raw_bytes == 3 * X.nbytes
    assert u.archive_bytes == sum(map(len, archives))
    assert u.ratio == 3 * X.nbytes / sum(map(len, archives))
    assert u.outliers == sum(cusz_core.inspect(archive).outliers for archive in archives)
    assert not any(own.errors or own.others or own.plain or own.lost or own.empty for own in (u, v, n))


def test_of_a_writers_file_only_tables_are_read(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inspect: Run
) -> None:
    write_steps(tmp_path / "run.bp", engine)
    whole = cz.inspect_variables(tmp_path / "run.bp", check=True)

    def capture(*_: Any) -> None:
        raise AssertionError("an archive is fetched")

    monkeypatch.setattr(Plugin, "capture", capture)
    assert cz.inspect_variables(tmp_path / "run.bp") == whole
    assert [own.blocks for own in cz.inspect_variables(tmp_path / "run.bp", steps=[-1])] == [2, 2, 1]
    assert inspect(tmp_path / "run.bp")[0] == 0
    with_errors = cz.inspect_variables(tmp_path / "run.bp", check=True)
    assert [len(own.errors) for own in with_errors] == [6, 6, 2]


ROWS = support.smooth((2, 40), support.F32)


def write_blocks(path: Path, n: int, kind: str) -> None:
    """Writes n blocks of u, of two rows each, with the plugin unless `kind` is "uncompressed".

    If "overlapping", the first row of each is also the last row of the one before; if "local", they have no place.
    """
    with Program(path) as out, out.step():
        for i in range(n):
            place = ((), None) if kind == "local" else ((2 * n, 40), (i if kind == "overlapping" else 2 * i, 0))
            out.put("u", ROWS + np.float32(i), *place, eb=None if kind == "uncompressed" else 1e-3)


@pytest.mark.parametrize("call", [cz.inspect_bp, cz.inspect_variables])
@pytest.mark.parametrize("kind", ["apart", "overlapping", "local", "uncompressed"])
def test_work_grows_as_the_number_of_blocks_does(
    kind: str, call: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts the blocks that ADIOS2 examines, requests to it, and searches for loaded copies of the plugin."""
    work: dict[int, Counter[str]] = {}
    n = 0

    def count(owner: Any, name: str, key: str, weight: Callable[[], int]) -> None:
        original = getattr(owner, name)

        def counted(*args: Any) -> Any:
            work[n][key] += weight()
            return original(*args)

        monkeypatch.setattr(owner, name, counted)

    for n in (200, 800):
        write_blocks(tmp_path / f"{n}.bp", n, kind)
    # ADIOS2 compares a box in a global array with all blocks; it finds a selected block, or a local one, at once.
    count(adios2.Variable, "set_selection", "looks", lambda: 1 if kind == "local" else n)
    count(adios2.Variable, "set_block_selection", "looks", lambda: 1)
    count(adios2.Engine, "get", "reads", lambda: 1)
    count(adios2.Engine, "blocks_info", "reads", lambda: n)
    count(plugin, "_loaded_copies", "searches", lambda: 1)
    for n in (200, 800):
        work[n] = Counter()
        found = list(call(tmp_path / f"{n}.bp"))
        assert found[0].blocks == n if call is cz.inspect_variables else len(found) == n
    for key in ("looks", "reads"):
        assert work[800][key] <= 4.1 * work[200][key], key
        assert work[800][key] <= 2 * 800 + 1, key  # one more resets the selection
    assert work[800]["searches"] <= work[200]["searches"] + 2


@pytest.mark.parametrize("kind", ["apart", "overlapping", "local"])
def test_each_of_many_small_blocks_is_told(kind: str, tmp_path: Path) -> None:
    write_blocks(tmp_path / "run.bp", 300, kind)
    for i, block in enumerate(cz.inspect_bp(tmp_path / "run.bp", check=True)):
        archive = cusz_core.inspect(cusz_core.compress(ROWS + np.float32(i), 1e-3))
        assert (block["block"], block["checksum"]) == (i, archive.checksum)
        assert "error" not in block


@pytest.mark.parametrize("counts", [(3, 2), (2, 0, 1)], ids=str)
@pytest.mark.parametrize("eb", [None, 1e-3])
def test_fewer_local_blocks_than_in_the_step_before(
    engine: Any, eb: float | None, counts: tuple[int, ...], tmp_path: Path
) -> None:
    """In BP4, ADIOS2 ends the process if a block stays selected that the next step does not have."""
    with Program(tmp_path / "run.bp", engine) as out:
        for count in counts:
            with out.step():
                out.put("other", ROWS)  # BP4 files with an empty step crash ADIOS2
                for i in range(count):
                    out.put("u", ROWS + np.float32(i), (), None, eb=eb)
    found = json.loads(support.run(["cusz", "inspect", "--blocks", "--json", tmp_path / "run.bp"]).stdout)
    steps = Counter(block["step"] for block in found if block["variable"] == "u")
    assert steps == {step: count for step, count in enumerate(counts) if count}


@pytest.mark.parametrize("eb", [None, 1e-3])
def test_an_array_that_follows_local_blocks(engine: Any, eb: float | None, tmp_path: Path) -> None:
    """In BP4, all are local blocks, although it records the array's shape for them."""
    x = np.concatenate([ROWS] * 10, axis=None)
    for mode, shape, start in (("Write", (), None), ("Append", (3 * x.size,), (2 * x.size,))):
        with Program(tmp_path / "run.bp", engine, mode=mode) as out, out.step():
            out.put("u", x, shape, start, eb=eb)
    found = json.loads(support.run(["cusz", "inspect", "--blocks", "--json", tmp_path / "run.bp"]).stdout)
    assert [(block["step"], block["count"], "start" in block) for block in found] == [
        (0, [x.size], False),
        (1, [x.size], engine == "BP5"),
    ]


def test_of_a_large_block_that_is_not_compressed_one_value_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_blocks(tmp_path / "run.bp", 3, "uncompressed")
    asked = support.calls_of(monkeypatch, Plugin, "capture")
    assert [block["operator"] for block in cz.inspect_bp(tmp_path / "run.bp")] == ["none or other"] * 3
    targets = [get.args[1] for _, _, _, get in asked]
    assert [target.size for target in targets] == [1, 1, 1]


@pytest.mark.parametrize("late", [1, 2, 3])
def test_a_copy_of_the_plugin_that_is_loaded_meanwhile(
    late: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADIOS2 loads it for block number `late`, which would otherwise be listed as not compressed by the plugin."""
    write_blocks(tmp_path / "run.bp", 3, "uncompressed")
    copies = [Path("/one/libcusz_operator.so")]
    capture = Plugin.capture
    n_read = itertools.count(1)

    def loads(*args: Any, **options: Any) -> Any:
        if next(n_read) == late:
            copies.append(Path("/another/libcusz_operator.so"))
        return capture(*args, **options)

    blocks = cz.inspect_bp(tmp_path / "run.bp")
    monkeypatch.setattr(plugin, "_loaded_copies", lambda: copies)
    monkeypatch.setattr(Plugin, "capture", loads)
    with pytest.raises(cz.PluginError, match="several copies"):
        list(blocks)


FIELDS: dict[str, Callable[[tuple[int, ...], Any], Any]] = {
    "smooth": lambda shape, dtype: support.smooth(shape, dtype),
    "noise": lambda shape, dtype: support.random_bits(shape, dtype),
    "NaN": lambda shape, dtype: np.full(shape, np.nan, dtype),
    "constant": lambda shape, dtype: np.full(shape, 7, dtype),
    "fill": lambda shape, dtype: np.where(
        support.smooth(shape, dtype) > 0.3, support.smooth(shape, dtype), dtype(1e20)
    ),
}
BLOCKS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["A", "cusz", "a/b", "ü "]),
        "kind": st.sampled_from(sorted(FIELDS)),
        "count": st.sampled_from([(1,), (1000,), (0, 7), (20, 30), (8, 9, 10), (3, 1, 4, 5, 6)]),
        "eb": st.sampled_from([0.0, 1e-30, 1e-3, 0.1]),
        "mode": st.sampled_from(["abs", "rel"]),
        "predictor": st.sampled_from(["lorenzo", "spline", "auto"]),
    }
)


@settings(max_examples=30)
@given(steps=st.lists(st.lists(BLOCKS, max_size=5), min_size=1, max_size=3))
def test_tables_say_what_archives_say(steps: list[list[dict[str, Any]]]) -> None:
    """For any mix of special values and blocks without values, in any number of steps."""
    first: dict[str, tuple[int, ...]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.bp"
        asked: dict[str, dict[Asked, None]] = {}
        with cz.Writer(path, fill=1e20) as out:
            for blocks in steps:
                with out.step():
                    for name, block in {block["name"]: block for block in blocks}.items():
                        count = block["count"]
                        if len(count) != len(first.setdefault(name, count)):
                            continue
                        field = np.ascontiguousarray(FIELDS[block["kind"]](count, np.float32), np.float32)
                        out.put(name, field, eb=block["eb"], mode=block["mode"], predictor=block["predictor"])
                        asked.setdefault(name, {})[Asked(block["mode"], block["eb"])] = None
        found = variables_of(path)
        assert found == variables_of(path, check=True)
        assert {name: list(own.asked) for name, own in found.items()} == {n: list(own) for n, own in asked.items()}


def test_bounds_that_change(engine: Any, tmp_path: Path, inspect: Run) -> None:
    """From step to step, with a change of mode, and when a file is appended to."""
    path = tmp_path / "run.bp"
    with cz.Writer(path, eb=0.1, engine=engine) as out:
        for step in range(3):
            with out.step():
                out.put("U", X, eb=10.0 ** -(1 + step))
                out.put("V", X, **({"mode": "rel", "eb": 1e-3} if step == 1 else {}))
    with cz.Writer(path, eb=0.5, engine=engine, append=True) as out, out.step():
        out.put("V", X)
        out.put("W", X, eb=0)
    found = variables_of(path)
    assert found["U"].asked == (Asked("abs", 0.1), Asked("abs", 0.01), Asked("abs", 0.001))
    assert found["V"].asked == (Asked("abs", 0.1), Asked("rel", 1e-3), Asked("abs", 0.5))
    assert found["W"].asked == (Asked("abs", 0.0),)
    assert variables_of(path, steps=[1])["U"].asked == (Asked("abs", 0.01),)
    assert variables_of(path, steps=[2])["V"].asked == (Asked("abs", 0.1),), "what has not changed is recorded once"
    asked = [(block["asked_mode"], block["asked_eb"]) for block in cz.inspect_bp(path, variables=["V"])]
    assert asked == [("abs", 0.1), ("rel", 1e-3), ("abs", 0.1), ("abs", 0.5)]
    lines = inspect(path)[1].splitlines()
    assert [line for line in lines if "abs 0.001 .. 0.1 " in line] == [lines[3]]
    assert "abs 0.1 .. 0.5, rel 0.001 " in lines[4]
    assert re.search("lossless +exact +0$", lines[5])


def test_both_predictors(tmp_path: Path, inspect: Run) -> None:
    noise = support.integers(X.size, 0, 1000).astype(np.float32).reshape(X.shape)
    with cz.Writer(tmp_path / "run.bp", eb=1e-2, mode="rel", predictor="auto") as out, out.step():
        out.put("U", X, (40, 30, 40))
        out.put("U", noise, (40, 30, 40), (20, 0, 0))
        out.put("S", X, predictor="spline")
    found = variables_of(tmp_path / "run.bp")
    assert found["S"].predictors == {"spline": 1}
    assert found["U"].predictors == {"lorenzo": 1, "spline": 1}
    assert [block["predictor"] for block in cz.inspect_bp(tmp_path / "run.bp", variables="U")] == ["spline", "lorenzo"]
    assert "mixed      1 block lorenzo, 1 block spline\n" in inspect(tmp_path / "run.bp")[1]


# ------------------------------------------------------------------------------------ files of others, older files


def test_variables_of_the_plugin(engine: str, tmp_path: Path, inspect: Run) -> None:
    """Their archives record what was asked. Each block has its own bound."""
    bounds = write_plainly(tmp_path / "run.bp", engine)
    p, t, s = cz.inspect_variables(tmp_path / "run.bp")
    assert (t.name, t.type, t.steps, t.blocks, t.asked) == ("T", "float", (0, 1), 4, (REL,))
    assert (t.eb_abs_min, t.eb_abs_max) == (min(bounds), max(bounds))
    blocks = list(cz.inspect_bp(tmp_path / "run.bp", variables=["T"]))
    assert t.archive_bytes == sum(block["archive_bytes"] for block in blocks)
    assert t.outliers == sum(block["out_of_range"] + block["unpredictable"] for block in blocks)
    assert (p.blocks, p.others, p.raw_bytes, p.archive_bytes, p.asked, p.ratio) == (2, 2, 56, None, (), None)
    assert (s.blocks, s.others, s.raw_bytes) == (2, 2, 16)
    code, out, err = inspect(tmp_path / "run.bp")
    assert (code, err) == (0, "")
    title, _, head, *lines = out.splitlines()
    assert title.startswith(f"{tmp_path / 'run.bp'}: {engine}, ")
    columns = ["variable", "type", "steps", "blocks", "raw", "stored", "ratio", "asked", "in force"]
    assert re.split("  +", head) == [*columns, "outliers", "predictor", "remarks"]
    assert [line.split()[:4] for line in lines] == [
        ["P", "int32_t", "0-1", "2"],
        ["T", "float", "0-1", "4"],
        ["s", "double", "0-1", "2"],
    ]
    assert [line.endswith("not compressed by cusz") for line in lines] == [True, False, True]
    assert f"rel 0.001  {min(bounds):.4g} .. {max(bounds):.4g} " in lines[1]


def test_a_file_without_compression(engine: str, tmp_path: Path, inspect: Run) -> None:
    with adios2.Stream(str(tmp_path / "run.bp"), "w") as stream:
        for _ in stream.steps(2):
            stream.write("U", X, X.shape, [0, 0, 0], X.shape)
            stream.write("about", "a text")
    u, about = cz.inspect_variables(tmp_path / "run.bp")
    assert (about.type, about.raw_bytes, about.others) == ("string", None, 2)
    assert (u.raw_bytes, u.archive_bytes, u.others, u.predictors) == (2 * X.nbytes, None, 2, {})
    out = inspect(tmp_path / "run.bp")[1]
    assert out.count("not compressed by cusz") == 2
    assert "total" not in out
    assert "asked" not in out, "columns that are empty are left out"


def test_a_file_of_bp5_that_was_continued_without_the_operation(tmp_path: Path, inspect: Run) -> None:
    """ADIOS2 cannot read its later steps, and says only std::bad_alloc."""
    for mode, eb in (("Write", 1e-3), ("Append", None)):
        with Program(tmp_path / "run.bp", mode=mode) as out:
            for _ in range(2):
                with out.step():
                    out.put("U", X, eb=eb)
    code, _, err = inspect(tmp_path / "run.bp")
    assert code != 0
    assert "a variable has an operation in some steps and none in later ones" in err


def test_files_without_a_record_of_what_was_asked(engine: Any, tmp_path: Path, inspect: Run) -> None:
    """Files of older versions, and files whose checksum file was removed: everything else stays the same."""
    path = tmp_path / "run.bp"
    write_steps(path, engine)
    known = variables_of(path)
    rewrite_lines(path, lambda line: line.pop("variables", None))
    for _ in ("no record", "no checksums"):
        found = variables_of(path)
        assert found["U"].asked == found["n"].asked == (None,)
        assert (found["U"].predictors, found["n"].predictors) == ({"unknown": 6}, {})
        for name, own in found.items():
            assert (own.eb_abs_min, own.eb_abs_max, own.ratio, own.outliers, own.raw, own.errors) == (
                *(known[name].eb_abs_min, known[name].eb_abs_max, known[name].ratio),
                *(known[name].outliers, known[name].raw, ()),
            )
        assert variables_of(path, check=True)["U"].asked == (None,), "archives have the absolute bound alone"
        assert variables_of(path, check=True)["U"].predictors == {"lorenzo": 6}
        assert all("asked_eb" not in block for block in cz.inspect_bp(path))
        assert "unknown" in inspect(path)[1]
        (path / checks.CHECKS_FILE).unlink(missing_ok=True)


def test_an_older_version_continues_a_file(tmp_path: Path) -> None:
    """What was asked before does not apply to its steps, and records that it does not know do not disturb it."""
    path = tmp_path / "run.bp"
    for step in range(3):
        support.write_run(path, {"U": X}, eb=1e-3 * (1 + step), append=step > 0, predictor="lorenzo")
    rewrite_lines(path, lambda line: line.pop("variables", None) if line.get("step") == 1 else None)
    (u,) = cz.inspect_variables(path)
    assert u.asked == (Asked("abs", 1e-3), None, Asked("abs", 3e-3))
    assert u.predictors == {"lorenzo": 2, "unknown": 1}


def test_what_others_add_to_a_writers_file(tmp_path: Path) -> None:
    """Without a block table, only what the archives contain is known about a step."""
    path = tmp_path / "run.bp"
    support.write_run(path, {"U": X}, eb=1e-3, mode="rel", parameters={"StatsLevel": 0}, predictor="lorenzo")
    with Program(path, mode="Append", StatsLevel="0") as other, other.step():
        other.put("U", X, eb=0.01, predictor="lorenzo")
    (u,) = cz.inspect_variables(path)
    assert (u.steps, u.blocks, u.asked, u.predictors) == ((0, 1), 2, (REL, ABS), {"lorenzo": 2})
    assert u.eb_abs_max == max(0.01, support.absolute_bound(X, 1e-3, "rel"))


def test_a_file_that_is_being_written(tmp_path: Path, inspect: Run) -> None:
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out:
        assert inspect(tmp_path / "run.bp")[1].endswith("\nthere are no variables in it\n")
        with pytest.raises(cusz_core.ParameterError, match="has no step 0: none is complete yet"):
            cz.inspect_bp(tmp_path / "run.bp", steps=[0])
        for step in range(2):
            with out.step():
                out.put("U", X)
            (u,) = cz.inspect_variables(tmp_path / "run.bp")
            assert u.steps == tuple(range(step + 1))


# ----------------------------------------------------------------------------------------------------- damaged files


def test_a_damaged_block(engine: Any, tmp_path: Path, inspect: Run) -> None:
    """The damage shows only when archives are checked, not in tables."""
    write_steps(tmp_path / "writer.bp", engine)
    write_plainly(tmp_path / "plugin.bp", engine)
    for name, variable, n_full in (("writer.bp", "U", 6), ("plugin.bp", "T", 4)):
        path = tmp_path / name
        assert inspect(path, "--check")[0] == 0
        first = next(iter(cz.inspect_bp(path, variables=[variable])))
        factor, eb = np.float32(1), first["eb_abs"]
        field = X[:10] * factor if name == "writer.bp" else X
        bound: Any = (eb, "abs") if name == "writer.bp" else (1e-3, "rel")
        archive = cusz_core.compress(field, *bound, predictor="lorenzo")
        support.damage(path / "data.0", -20, within=archive)
        assert inspect(path)[0] == 0
        assert variables_of(path)[variable].errors == ()
        assert not any("error" in block for block in cz.inspect_bp(path))
        code, out, err = inspect(path, "--check")
        assert (code, err) == (1, "")
        assert "1 block with errors" in out
        damage = "corrupt archive: the payload does not match its checksum"
        assert out.endswith(f"\n{variable}, step 0, block 0: {damage}\n")
        own = variables_of(path, check=True)[variable]
        assert own.errors == (BlockError(0, 0, damage),)
        assert own.blocks == n_full
        blocks = list(cz.inspect_bp(path, variables=[variable], check=True))
        assert [block["block"] for block in blocks if "error" in block and block["step"] == 0] == [0]
        code, out, _ = inspect(path, "--check", "--blocks", "--json")
        assert code == 1
        assert sum("error" in block for block in json.loads(out)) == 1

        # Damage to the header, which is always read in a file that the plugin wrote.
        support.damage(path / "data.0", 9, within=archive[:-20])
        assert len(variables_of(path)[variable].errors) == (name == "plugin.bp")


def test_another_archive_than_the_tables(tmp_path: Path) -> None:
    """A valid archive in place of the one that was written for the block."""
    path = tmp_path / "run.bp"
    x, y = (support.smooth((20, 30), support.F32, seed) for seed in (1, 2))
    support.write_run(path, {"U": x}, eb=0)
    data = (path / "data.0").read_bytes()
    (path / "data.0").write_bytes(data.replace(cusz_core.compress(x, 0), cusz_core.compress(y, 0)))
    assert variables_of(path)["U"].errors == ()
    (error,) = variables_of(path, check=True)["U"].errors
    assert error.error == "its archive is not the one that the block table describes"


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_damaged_table(is_sealed: bool, engine: Any, tmp_path: Path, inspect: Run) -> None:
    """It is not trusted: archives are read instead."""
    path = tmp_path / "run.bp"
    write_steps(path, engine)
    whole = variables_of(path)["V"]
    with cz.Reader(path) as run:
        rows = cz.tables.blocktable.rows_of(run[1].blocks("V"))
    count = cz.tables.blocktable.columns_of(3).index("count0")
    if not is_sealed:
        (path / checks.CHECKS_FILE).unlink()
    support.damage(path / "data.0", 8 * count + 6, 0x10, within=rows.tobytes())  # another whole number
    found = variables_of(path)["V"]
    (error,) = found.errors
    assert (error.step, error.block) == (1, None)
    assert ("is damaged" if is_sealed else "describes other blocks") in error.error
    assert (found.archive_bytes, found.outliers, found.blocks) == (whole.archive_bytes, whole.outliers, 6)
    assert found.asked == ((ABS,) if is_sealed else (None,))
    code, out, _ = inspect(path, "--check")
    assert code == 1
    assert "block table damaged at 1 step\n" in out
    assert f"V, step 1: {error.error}\n" in out
    blocks = list(cz.inspect_bp(path, variables=["V"]))
    assert ["device" in block for block in blocks] == [True, True, False, False, True, True]
    assert [block.get("error") for block in blocks] == [None, None, error.error, error.error, None, None]
    assert inspect(path, "--check", "--blocks")[0] == 1
    assert any(error.error in problem for problem in cz.check(path).problems)


@pytest.mark.parametrize("lossless", ["zstd", None])
@pytest.mark.parametrize(
    "values", [np.arange(5000, dtype=np.int32), support.integers(5000, -(2**31), 2**31).astype("i4")]
)
def test_damaged_integers(values: Any, lossless: Any, engine: Any, tmp_path: Path, inspect: Run) -> None:
    """Packed integers, or integers stored unchanged because that is shorter."""
    path = tmp_path / "run.bp"
    support.write_run(path, {"ids": values}, engine=engine, lossless=lossless)
    assert inspect(path, "--check")[0] == 0
    (block,) = cz.inspect_bp(path)
    packed = embedding.packed(values, "zstd")
    assert len(packed) == block["archive_bytes"]
    support.damage(path / "data.0", -20, within=packed)
    for words in ((), ("--blocks",)):
        code, out_text, _ = inspect(path, "--check", *words)
        assert code == 1
        assert "checksum" in out_text


def test_blocks_that_are_lost_uncompressed_or_in_error() -> None:
    tally = _Tally("T", "float", 1)
    kinds: list[Block] = [
        {"kind": "lost", "raw_bytes": 40, "archive_bytes": 56, "error": "lost"},
        {"kind": "plain", "raw_bytes": 40, "archive_bytes": 56},
        {"kind": "raw", "raw_bytes": 40, "archive_bytes": 88, "eb": 0.0, "eb_abs": 0.0, "mode": "abs"},
        {"error": "corrupt"},
        {"operator": "none or other"},
        {"operator": "none or other", "error": "overlaps another block"},
        {"count": (0, 5), "operator": ""},
    ]
    for number, kind in enumerate(kinds):
        block = Block(step=3, block=number, count=(2, 5), operator="cusz")
        block.update(kind)
        tally.add_block(block, is_of_writer=False)
    info = tally.info()
    assert (info.blocks, info.lost, info.plain, info.raw, info.others, info.empty) == (7, 1, 1, 1, 1, 1)
    assert (info.raw_bytes, info.archive_raw_bytes, info.archive_bytes) == (240, 120, 200)
    assert [(error.step, error.block) for error in info.errors] == [(3, 0), (3, 3), (3, 5)]
    assert (info.eb_abs_min, info.asked, info.predictors) == (None, (None,), {})


def test_many_errors_are_counted(tmp_path: Path, inspect: Run) -> None:
    support.write_run(tmp_path / "run.bp", *[{"U": X}] * 12, eb=1e-3)
    archive = cusz_core.compress(X, 1e-3)
    data = (tmp_path / "run.bp" / "data.0").read_bytes()
    (tmp_path / "run.bp" / "data.0").write_bytes(data.replace(archive, archive[:-1] + bytes([archive[-1] ^ 1])))
    code, said, _ = inspect(tmp_path / "run.bp", "--check")
    assert code == 1
    assert "all blocks with errors" in said
    assert said.count("\nU, step ") == 10
    assert said.endswith("\n... and 2 more: --json has them all\n")
    (own,) = json.loads(inspect(tmp_path / "run.bp", "--check", "--json")[1])
    assert [error["step"] for error in own["errors"]] == list(range(12))


# ------------------------------------------------------------------------------------------ options of the command


def test_selected_variables_and_steps(engine: Any, tmp_path: Path, inspect: Run) -> None:
    path = tmp_path / "run.bp"
    write_steps(path, engine)
    every = list(cz.inspect_bp(path))
    for names, steps in itertools.product([None, ["U"], ["n", "U"]], [None, [1], [-1], [0, -1, 2]]):
        wanted = [
            block
            for block in every
            if (names is None or block["variable"] in names)
            and (steps is None or block["step"] in [s % 3 for s in steps])
        ]
        assert list(cz.inspect_bp(path, variables=names, steps=steps)) == wanted
        words = [f"--variable={name}" for name in names or []] + [w for step in steps or [] for w in ("--step", step)]
        assert json.loads(inspect(path, "--blocks", "--json", *words)[1]) == json.loads(json.dumps(wanted))
        found = json.loads(inspect(path, "--json", *words)[1])
        assert {own["name"]: own["blocks"] for own in found} == {
            name: n for name in "UVn" if (n := sum(block["variable"] == name for block in wanted))
        }
    assert json.loads(inspect(path, "--json", "--variable", "n", "--step", 1)[1]) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--variable", "u"], r"no variable 'u' in '\S+run.bp' \(there is 'U'\): there are U, V, n"),
        (["--variable", "V", "--variable", "pressure"], r"no variable 'pressure' in '\S+run.bp': there are U, V, n"),
        (["--variable", "cusz/blocks/U"], "no variable 'cusz/blocks/U'"),
        (["--step", "3"], "has no step 3: it has 3, from 0 to 2"),
        (["--step", "0", "--step", "-4"], "has no step -4: it has 3, from 0 to 2"),
    ],
)
def test_what_is_not_there(words: list[str], message: str, tmp_path: Path, inspect: Run) -> None:
    write_steps(tmp_path / "run.bp")
    for form in ([], ["--blocks"], ["--json"]):
        code, out, err = inspect(tmp_path / "run.bp", *words, *form)
        assert (code, out) == (2, "")
        assert re.search(message, err), err


def test_many_names_are_not_all_listed(tmp_path: Path) -> None:
    support.write_run(tmp_path / "run.bp", {f"v{number:02}": np.ones(1) for number in range(60)}, eb=1)
    with pytest.raises(cusz_core.ParameterError, match=r"there is 'v59', .* there are v00, v01, .*, v49 and 10 more$"):
        cz.inspect_variables(tmp_path / "run.bp", variables=["v95"])


def test_variables_by_patterns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same in the API of inspect and diff, and in the command line."""
    fields = {f"level{level}/{name}": np.arange(9.0) for level in range(3) for name in ("rho", "u")}
    for run in ("a", "b"):
        support.write_run(tmp_path / run, fields, eb=1, variables={"level{1..9}/u": {"eb": 0.5}})
    found = cz.inspect_variables(tmp_path / "a", variables=["level*/u", "level{0..1}/rho"])
    assert [one.name for one in found] == ["level0/rho", "level0/u", "level1/rho", "level1/u", "level2/u"]
    assert [own.eb for one in found for own in one.asked if own] == [1, 1, 1, 0.5, 0.5]
    blocks = cz.inspect_bp(tmp_path / "a", variables=["level?/u"])
    assert [block["variable"] for block in blocks] == ["level0/u", "level1/u", "level2/u"]
    compared = cz.compare_runs(tmp_path / "a", tmp_path / "b", variables=["level[12]/*"])
    assert [one.variable for one in compared] == ["level1/rho", "level1/u", "level2/rho", "level2/u"]
    assert cli.main(["diff", str(tmp_path / "a"), str(tmp_path / "b"), "--variable", "level*/w"]) == 2
    assert "no variable 'level*/w' in either file" in capsys.readouterr().err


def test_a_file_without_variables(tmp_path: Path) -> None:
    with cz.Writer(tmp_path / "run.bp", eb=1):
        pass
    with pytest.raises(cusz_core.ParameterError, match=r"no variable 'U' in .*: there are none"):
        cz.inspect_bp(tmp_path / "run.bp", variables=["U"])
    assert list(cz.inspect_bp(tmp_path / "run.bp")) == []
    assert cz.inspect_variables(tmp_path / "run.bp") == []


def test_the_table_of_variables(tmp_path: Path, inspect: Run) -> None:
    """Readable columns: aligned, with units, within 160 characters."""
    path = tmp_path / "run.bp"
    with cz.Writer(path, eb=1e-3, mode="rel", predictor="lorenzo") as out:
        for step in range(30):
            with out.step():
                out.put("temperature", X * np.float32(1 + step))
                out.put("tiny", X[0, 0, :2])
                if step % 3 == 0:
                    out.put("velocity", X.astype(np.float64), eb=0.01, mode="abs")
                out.put("nothing", X[:0])
    head, *lines = inspect(path)[1].splitlines()[2:]
    assert max(map(len, lines)) <= 160
    assert head.split()[:5] == ["variable", "type", "steps", "blocks", "raw"]
    table = [re.split("  +", line) for line in lines]
    assert [row[0] for row in table] == ["nothing", "temperature", "tiny", "velocity", "total"]
    assert table[0] == ["nothing", "float", "0-29", "30", "0 bytes", "no values"]
    bounds = [support.absolute_bound(X * np.float32(1 + step), 1e-3, "rel") for step in (0, 29)]
    assert table[1][:5] == ["temperature", "float", "0-29", "30", "2.88 MB"]
    assert table[1][7:9] == ["rel 0.001", f"{bounds[0]:.4g} .. {bounds[1]:.4g}"]
    assert table[1][-1] == "lorenzo"
    assert table[2][7:] == ["rel 0.001", "exact", "0", "all blocks stored raw"]
    assert table[3][2:4] == ["10 of 0-27", "10"]
    assert table[3][7:9] == ["abs 0.01", "0.01"]
    archives = sum(own.archive_bytes or 0 for own in cz.inspect_variables(path))
    raw = 30 * (X.nbytes + 8) + 20 * X.nbytes
    assert table[4][1:] == ["70", f"{raw / 1e6:.3g} MB", f"{archives / 1e3:.3g} kB", f"{raw / archives:.2f}"]
    ends = [line.index(row[4]) + len(row[4]) for line, row in zip(lines[:4], table, strict=False)]
    assert len(set(ends)) == 1, "numbers are aligned to the right"


def test_the_table_of_blocks(tmp_path: Path, inspect: Run) -> None:
    path = tmp_path / "run.bp"
    write_steps(path)
    said, empty, head, *lines = inspect(path, "--blocks", "--variable", "V")[1].splitlines()
    assert said.startswith("the same for all blocks: type double, writer 0, count 10x30x40, operator cusz, ")
    for text in ("eb_abs 0.01", "asked_mode abs", "asked_eb 0.01", "device -1"):
        assert f", {text}" in said
    assert empty == ""
    assert head.split()[:6] == ["variable", "step", "block", "start", "archive_bytes", "ratio"]
    assert head.split()[-4:] == ["checksum", "seconds", "min", "max"]
    assert [line.split()[:4] for line in lines] == [
        ["V", str(step), str(block), f"{10 * block}x0x0"] for step in range(3) for block in range(2)
    ]

    single = inspect(path, "--blocks", "--variable", "n", "--step", 2)[1].splitlines()
    assert [line.split() for line in single[:3]] == [["variable", "n"], ["step", "2"], ["block", "0"]]
    assert ["kind", "raw"] in [line.split() for line in single]
    assert inspect(path, "--blocks", "--variable", "n", "--step", 1)[1] == f"{path}: no blocks\n"


def test_progress(engine: Any, tmp_path: Path) -> None:
    """Progress grows to 1, whatever is selected and whether or not archives are fetched."""
    write_steps(tmp_path / "run.bp", engine)
    for options in ({}, {"check": True}, {"variables": ["U", "n"]}, {"steps": [-1, 0]}):
        for look in (cz.inspect_variables, cz.inspect_bp):
            told: list[float] = []
            list(look(tmp_path / "run.bp", progress=told.append, **options))
            assert told == sorted(told)
            assert told[0] > 0
            assert told[-1] == pytest.approx(1)


def test_copies_keep_what_was_asked(tmp_path: Path) -> None:
    write_steps(tmp_path / "run.bp")
    shutil.copytree(tmp_path / "run.bp", tmp_path / "copy.bp")
    assert cz.inspect_variables(tmp_path / "copy.bp") == cz.inspect_variables(tmp_path / "run.bp")


@pytest.mark.parametrize("metadata", [("md.0", "md.idx"), ("md.0", "md.idx", "mmd.0"), ()])
def test_a_file_of_a_run_that_wrote_nothing(metadata: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    path.mkdir()
    for name in metadata:
        (path / name).touch()
    assert list(cz.inspect_bp(path)) == []
