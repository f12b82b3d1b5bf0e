"""Integers are packed exactly by the plugin in any program, and by a Writer unless it is told not to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_core
import cusz_operator as cz
import support
from cusz_core import embedding

pytest.importorskip("adios2")
import adios2
from other_program import Program

pytestmark = support.needs_zstd

KINDS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]


def field(kind: str, step: int = 0) -> np.ndarray:
    """Compressible values that include both limits of the type."""
    values = (np.indices((20, 30, 10)).sum(axis=0) // 4 + step).astype(kind)
    values[0, 0, :2] = np.iinfo(kind).min, np.iinfo(kind).max
    return values


def noise(kind: str) -> np.ndarray:
    return support.integers(6000 * np.dtype(kind).itemsize, 0, 256).astype(np.uint8).view(kind).reshape(20, 30, 10)


def write_by_plugin(path: Path, engine: str, mode: Any, **fields: np.ndarray) -> None:
    """Writes two blocks and two steps of each field with the operator, as any program would."""
    with Program(path, engine) as out:
        out.how = mode
        for _ in range(2):
            with out.step():
                for name, values in fields.items():
                    for start, stop in ((0, 7), (7, 20)):
                        out.put(name, values[start:stop], values.shape, (start, 0, 0), 1e-3)


@pytest.mark.parametrize("mode", [adios2.Mode.Sync, adios2.Mode.Deferred], ids=lambda mode: mode.name)
def test_the_plugin_stores_integers_exactly(mode: Any, engine: str, tmp_path: Path, capfd: Any) -> None:
    fields = {kind: field(kind) for kind in KINDS}
    fields |= {f"noise {kind}": noise(kind) for kind in KINDS}
    write_by_plugin(tmp_path / "run.bp", engine, mode, **fields)
    assert "cusz" not in capfd.readouterr().err
    with adios2.FileReader(str(tmp_path / "run.bp")) as file:
        for name, values in fields.items():
            got = file.read(name, start=[0, 0, 0], count=values.shape, step_selection=[0, 2])
            assert got.dtype == values.dtype
            assert np.array_equal(got.reshape(2, *values.shape), [values] * 2), name
    with cz.Reader(tmp_path / "run.bp") as run:
        for name, values in fields.items():
            assert np.array_equal(run[1].read(name, (5, 2, 1), (9, 20, 3)), values[5:14, 2:22, 1:4])
        assert "int64: int64_t, (20, 30, 10), 2 blocks, exact" in repr(run)
    for info in cz.inspect_variables(tmp_path / "run.bp", check=True):
        assert not info.errors
        if "8" not in info.name.removesuffix("_t"):  # ADIOS2 does not list blocks of 8-bit integers in Python
            assert (info.packed, info.raw) == ((0, 4) if info.name.startswith("noise") else (4, 0)), info
            assert (info.others, info.asked, info.eb_abs_min) == (0, (), None)


def test_a_writer_packs_unless_it_is_told_not_to(engine: Any, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "run.bp"
    with cz.Writer(path, engine=engine, eb=1e-3) as out:
        for n in range(2):
            with out.step():
                for kind in KINDS:
                    out.put(kind, field(kind, n)[:7], (20, 30, 10))
                    out.put(kind, field(kind, n)[7:], (20, 30, 10), (7, 0, 0))
                out.put("noise", noise("uint8"))
                out.put("mask", field("int8") > 5)
                out.put("plain", field("int32"), lossless="none")
                out.put("empty", np.zeros((0, 4), np.int16))
                out.put("one", np.array([-7], np.int64))
    with cz.Reader(path) as run:
        for step in run:
            for kind in KINDS:
                expected = field(kind, step.index)
                got = step.read(kind)
                assert got.dtype == kind
                assert np.array_equal(got, expected)
                assert np.array_equal(step.read(kind, (5, 2, 1), (9, 20, 3)), expected[5:14, 2:22, 1:4])
                table = step.blocks(kind)
                assert (2 * table["archive_bytes"] < table["raw_bytes"]).all()
                assert step.verify(kind) == 2
                if np.dtype(kind).itemsize < 8:  # a double cannot represent every 64-bit integer
                    assert step.value_range(kind) == (expected.min(), expected.max())
            assert np.array_equal(step.read("noise"), noise("uint8"))
            assert step.blocks("noise")["archive_bytes"].tolist() == [6008]
            assert np.array_equal(step.read("mask"), field("int8") > 5)
            assert step.read("empty").shape == (0, 4)
            assert step.read("one").tolist() == [-7]
        text = repr(run)
        assert "int32: int32_t, (20, 30, 10), 2 blocks, exact, ratio" in text
        assert "mask: bool, (20, 30, 10), 1 block, exact, ratio" in text
        assert "plain: int32_t, (20, 30, 10), 1 block, not compressed by cusz" in text
    with adios2.FileReader(str(path)) as file:
        for kind in KINDS:
            assert np.array_equal(file.read(kind, step_selection=[1, 1]).reshape(20, 30, 10), field(kind, 1))
    for check in (False, True):
        infos = {info.name: info for info in cz.inspect_variables(path, check=check)}
        assert not any(info.errors for info in infos.values())
        for name, expected_counts in {
            "uint64": (4, 0, 0),
            "uint8": (4, 0, 0),
            "noise": (0, 2, 0),
            "plain": (0, 0, 2),
        }.items():
            assert (infos[name].packed, infos[name].raw, infos[name].others) == expected_counts, (name, check)
        packed = infos["int32"]
        assert packed.archive_bytes
        assert packed.ratio == 2 * field("int32").nbytes / packed.archive_bytes


def test_adios2_knows_their_range(tmp_path: Path) -> None:
    """Exactly: with more digits than a double has."""
    large = np.array([[2**62 + 1, 2**62 + 7], [2**62 + 3, 2**62 + 5]])
    support.write_run(tmp_path / "run.bp", {"ids": large}, lossless="zstd")
    with adios2.FileReader(str(tmp_path / "run.bp")) as file:
        (block,) = file.engine.blocks_info("ids", 0)
        assert (block["Min"], block["Max"]) == (str(2**62 + 1), str(2**62 + 7))


def test_what_cannot_be_asked_for(tmp_path: Path) -> None:
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out:
        with out.step():
            with pytest.raises(cusz_core.UnsupportedError, match="stored exactly: predictor cannot be set"):
                out.put("ids", field("int32"), lossless="zstd", predictor="spline")
            out.put("ids", field("int32"), lossless="zstd")
        with (
            pytest.raises(
                cusz_core.ParameterError, match="'ids' is int32, 3 dimensions, and was int32, 3 dimensions, packed"
            ),
            out.step(),
        ):
            out.put("ids", field("int32"), lossless="none")


def test_where_a_writer_is_told_not_to_pack(tmp_path: Path) -> None:
    for name, of_all, of_variables in (
        ("writer", {"lossless": "none"}, {"ids": {"lossless": "zstd"}}),
        ("variables", {}, {"m*": {"lossless": "none"}}),
    ):
        fields = {"ids": field("int32"), "mask": field("int8") > 5, "x": support.smooth((20, 30), support.F32)}
        support.write_run(tmp_path / name, fields, eb=1e-3, variables=of_variables, **of_all)
        infos = {info.name: info for info in cz.inspect_variables(tmp_path / name)}
        assert (infos["ids"].packed, infos["mask"].packed, infos["mask"].others) == (1, 0, 1)


@pytest.mark.parametrize("first", ["none", "zstd"])
def test_a_writer_that_appends_packs_as_the_file_does(first: Any, engine: Any, tmp_path: Path) -> None:
    """Releases up to 0.2.0 packed integers only if they were told to."""
    path, ids = tmp_path / "run.bp", field("int32")
    for append in (False, True):
        with cz.Writer(path, engine=engine, append=append) as out, out.step():
            out.put("ids", ids + append, lossless=None if append else first)
            out.put(f"new{append}", ids)
    with cz.Reader(path) as run:
        assert [np.array_equal(step.read("ids"), ids + step.index) for step in run] == [True, True]
    infos = {info.name: info for info in cz.inspect_variables(path)}
    assert infos["ids"].packed == (2 if first == "zstd" else 0)
    assert infos["newTrue"].packed == 1


def test_a_writer_continues_what_the_plugin_has_packed(engine: Any, tmp_path: Path) -> None:
    """Including data that it could not make smaller, where BP4 has no room for an archive."""
    path, ids = tmp_path / "run.bp", field("int32")
    bits = (noise("uint64") >> np.uint64(12) | np.uint64(0x4FF << 52)).view(np.float64)  # too large for the bound
    write_by_plugin(path, engine, adios2.Mode.Sync, ids=ids, bits=bits)
    support.write_run(path, {"ids": ids, "bits": bits}, engine=engine, append=True, eb=1e-3)
    with adios2.FileReader(str(path)) as file:
        assert np.array_equal(file.read("ids", step_selection=[0, 3]).reshape(3, *ids.shape), [ids] * 3)
        assert np.array_equal(file.read("bits", step_selection=[0, 3]).reshape(3, *bits.shape), [bits] * 3)


def test_a_packed_block_may_be_as_large_as_its_values(engine: Any, tmp_path: Path) -> None:
    """Then sizes do not show whether a file that is appended to has an operator for the variable."""
    zeros = (np.zeros(n, np.uint8) for n in range(1, 100))
    same = next(values for values in zeros if len(embedding.packed(values, "zstd")) == values.nbytes)
    for append in (False, True):
        support.write_run(tmp_path / "run.bp", {"ids": same}, engine=engine, append=append)
    with adios2.FileReader(str(tmp_path / "run.bp")) as file:
        assert np.array_equal(file.read("ids", step_selection=[0, 2]).reshape(2, -1), [same] * 2)


def test_damage_is_found(engine: Any, tmp_path: Path) -> None:
    support.write_run(tmp_path / "run.bp", {"ids": field("int32")}, engine=engine, lossless="zstd")
    data = tmp_path / "run.bp" / "data.0"
    whole = data.read_bytes()
    tag = whole.index(b"zst4")
    for at in (tag, tag + 3, tag + 4, tag + 8, tag + 40):
        data.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with (
            adios2.FileReader(str(tmp_path / "run.bp")) as file,
            pytest.raises(RuntimeError, match=r"corrupt|not a cuSZ"),
        ):
            file.read("ids")
        with cz.Reader(tmp_path / "run.bp") as run:
            for call in (run[0].read, run[0].verify):
                with pytest.raises(cusz_core.CuszError, match=r"corrupt|not a cuSZ"):
                    call("ids")
