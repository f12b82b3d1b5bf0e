"""The library's version 2 against the implementation of its text: constants, models, frames, golden archives, and
decoding.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import format_v1_reference as v1
import format_v2_reference as reference
import golden_cases
import numcodecs.zstd
import numpy as np
import pytest
from format_v2_tools import INSTRUCTION_SETS, compiled, instruction_sets
from numpy.typing import NDArray

import cusz_core as cusz
import format_v2
import support
from field_kinds import strewn
from support import F32, F64, smooth

Tool = Callable[[str, bytes], bytes]


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """tests/core/format_v2_tool.cpp."""
    own = [f"archive/v2/{name}.cpp" for name in ("frame", "model", "tables")]
    archive = [f"archive/{name}.cpp" for name in ("layout", "lossless", "pyramid", "tiling")]
    program = compiled(tmp_path_factory.mktemp("tool") / "format_v2_tool", [], *own, *archive)

    def run(what: str, given: bytes) -> bytes:
        done = subprocess.run([program, what], input=given, capture_output=True, check=False)
        if done.returncode != 0:
            raise reference.FormatError(done.stderr.decode())
        return done.stdout

    return run


def numbers(line: str) -> list[int]:
    return [int(word) for word in line.split()]


def test_constants(tool: Tool) -> None:
    rows = [numbers(line) for line in tool("tables", b"").decode().splitlines()]
    constants = reference.CONSTANTS
    n = reference.TABLES
    assert rows[:n] == constants.frequencies.tolist()
    assert rows[n : n + 64] == constants.crossed.tolist()
    presets = [(axes, preset) for axes in (1, 2, 3) for preset in range(reference.PRESETS)]
    assert rows[n + 64 : -2] == [reference.base_tables(constants, *each).tolist() for each in presets]
    assert rows[-2] == reference.SIZES.tolist()
    assert rows[-1] == [reference.group_frequency(j) for j in range(64)]


def counted(x: NDArray, eb: float) -> tuple[reference.Plan, reference.Counts]:
    ty = v1.type_of(x.dtype)
    e_0 = float(v1.largest_bound(eb, ty))
    plan = reference.Plan(ty, ty.canonical_nan, reference.extents_of(x.shape), (15, 15, 15), e_0, reference.CUBIC, 0)
    bits = x.view(ty.bits).reshape(plan.extents)
    with np.errstate(all="ignore"):
        return plan, reference.count(reference.code_field(plan, bits, int(bits.flat[0])), plan.lattices)


@pytest.mark.parametrize(
    ("shape", "eb", "has_map"),
    [
        *[((9, 10, 11), 1e-2, False), ((40, 40, 40), 1e-3, True), ((60, 50), 1e-4, True), ((50000,), 1e-3, True)],
        *[((300, 200), 1e-3, True), ((2,), 0.1, False), ((40, 40, 40), 1e-6, True)],
    ],
    ids=str,
)
def test_the_same_model_is_chosen(shape: tuple[int, ...], eb: float, has_map: bool, tool: Tool) -> None:
    x = strewn(shape, F32, [np.nan, 1e30], 500) * np.linspace(1e-3, 1, shape[-1]).astype(F32)
    plan, counts = counted(x, eb)
    axes, rows = plan.lattices[0].active, sum(1 << row for row in reference.rows_of(plan.lattices))
    model = reference.choose_model(counts, axes, plan.lattices)
    of_values = np.column_stack([counts.n, counts.sizes, counts.missing])
    given = [axes, rows, *of_values.ravel().tolist(), *counts.groups.ravel().tolist()]
    preset, table, group, *rest = tool("model", " ".join(map(str, given)).encode()).decode().splitlines()
    assert int(preset) == model.preset
    assert numbers(table) == model.table_of.tolist()
    assert numbers(group) == model.group_index.tolist()
    assert model.has_map == has_map == bool(rest)
    if has_map:
        deltas: list[int] = []

        def change(context: int, expected: int, table: int) -> int:
            wanted = (
                model.table_of[context]
                if context < reference.CONTEXTS
                else model.group_index[context - reference.CONTEXTS]
            )
            deltas.extend((reference.DELTA_TABLES[table], reference.DIRECT + int(wanted) - expected))
            return int(wanted) - expected

        reference.MapCoder(axes, model.preset, plan.lattices).run(model.preset, change)
        assert [numbers(line) for line in rest] == [deltas]


def heads() -> list[bytes]:
    """Archives of all kinds, up to the end of unit 0."""
    x = smooth((12, 13, 14), F32)
    missing = strewn((12, 13, 14), F64, [np.nan, 7.0, 1e300], 40)
    large = smooth((5, 60, 70), F32)
    return [
        reference.encode(x, 1e-3),
        reference.encode(x, 0.1234567, "rel", curve=3, bounds=2),
        reference.encode(missing, 1e-2, fill=7.0, allowed=(6, 3, 15)),
        reference.encode(missing[0, 0], 250.0, "rel"),
        reference.encode(np.full((300, 4), 2.5, F64), 1e-4, "rel"),
        reference.encode(np.full((3, 1, 4, 5), -1, F32), 2.5e-7, fill=3.0),
        reference.encode(large, 1e-3, curve=0, bounds=1),
        reference.encode(smooth((70000,), F64), 1e-2),
    ]


def refused(tool: Tool, archive: bytes) -> bool:
    try:
        tool("head", archive)
    except reference.FormatError as error:
        return "corrupt archive" in str(error) or "format version" in str(error)
    return False


def test_heads_are_read_and_written_alike(tool: Tool) -> None:
    for archive in heads():
        head = tool("head", archive)
        assert archive.startswith(head)
        assert len(head) > 15
        assert [n for n in {*range(0, len(head), 7), len(head) - 1} if not refused(tool, archive[:n])] == []


@pytest.mark.quick(2)
@pytest.mark.parametrize("number", range(8))
def test_damaged_heads_are_refused(number: int, tool: Tool) -> None:
    archive = heads()[number]
    n = min(len(tool("head", archive)), 64)
    for bit in support.integers(40, 0, 8 * n, number).tolist():
        assert refused(tool, support.flipped(archive, bit))


# ---------------------------------------------------------------------------------------------------------------------
# rANS of units


@pytest.fixture(scope="module", params=instruction_sets())
def unit_coder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/core/rans_tool.cpp."""
    isa = request.param
    options = [f"-DCUSZ_ISA={isa}", *INSTRUCTION_SETS[isa]]
    sources = ["archive/v2/tables.cpp", "codec/spline/unit_tables.cpp"]
    return compiled(tmp_path_factory.mktemp(isa) / "rans_tool", options, *sources)


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize(
    "sizes", [[0], [1], [31, 32, 33], [5, 0, 200, 64, 1000, 17, 512], [4096, 15, 16, 4000]], ids=str
)
def test_units_are_coded_as_the_document_says(unit_coder: Path, lanes: int, sizes: list[int]) -> None:
    writer = reference.RansWriter(reference.model_of_preset(3, 0))
    given = [str(lanes)]
    rng = np.random.default_rng(lanes)
    for number, n in enumerate(sizes):
        is_flags = number % 3 == 0
        if is_flags:
            table = rng.integers(0, 64, n)
            g = np.array([reference.group_frequency(j) for j in table.tolist()], np.int64)
            symbol = (rng.integers(0, 4096, n) < g).astype(np.int64)
            start, f = np.where(symbol, 4096 - g, 0), np.where(symbol, g, 4096 - g)
            writer.steps.append(list(zip(start.tolist(), f.tolist(), strict=True)))
        else:
            table = np.clip(rng.normal(24, 14, n).round(), 0, 71).astype(np.int64)
            symbol = reference.symbols_of_slots()[table, rng.integers(0, 4096, n)]
            writer.put(table, symbol)
        given += map(str, [int(is_flags), n, *np.stack([table, symbol], 1).ravel().tolist()])
    writer.n_values = 1024 * lanes
    log2_lanes, expected = writer.finish()
    assert 1 << log2_lanes == lanes
    done = subprocess.run([unit_coder], input=" ".join(given).encode(), capture_output=True, check=True)
    assert [int(word) for word in done.stdout.split()] == np.frombuffer(expected, "<u2").tolist()


# ---------------------------------------------------------------------------------------------------------------------
# The golden archives


def interpolation_of(archive: bytes) -> dict[str, Any]:
    """The interpolation of an archive, as arguments for the reference."""
    if archive[:2] != reference.MAGIC or archive[2] >> 4 & 7 == reference.KIND_CONSTANT:
        return {}
    at = format_v2.parts(archive).checksum_at + 4
    masks = int.from_bytes(archive[at + 1 : at + 3], "little") if archive[3] >> 5 & 1 else 0xFFF
    return {"curve": archive[at] & 7, "bounds": archive[at] >> 3, "allowed": (masks & 15, masks >> 4 & 15, masks >> 8)}


@pytest.mark.parametrize("name", golden_cases.SPLINE_CASES)
def test_golden_archives_are_those_of_the_document(name: str) -> None:
    case = golden_cases.SPLINE_CASES[name]
    x, archive = case.make(), (golden_cases.folder(2) / f"{name}.cusz").read_bytes()
    assert reference.decode(archive).tobytes() == cusz.decompress(archive).tobytes()
    fill = case.options.get("fill")
    if not case.written:
        return
    if archive[:2] == reference.MAGIC:
        assert reference.encode(x, case.eb, case.mode, fill=fill, **interpolation_of(archive)) == archive  # type: ignore[arg-type]
    else:  # version 2 would not be shorter than raw
        assert cusz.compress(x, case.eb, case.mode, predictor="lorenzo") == archive


def test_the_golden_archives_have_every_part(dtype: np.dtype) -> None:
    parts: dict[str, set[int]] = {
        name: set() for name in ("curve", "bounds", "axes", "map", "lanes", "exact", "missing")
    }
    units, constants = set(), 0
    for name in golden_cases.SPLINE_CASES:
        archive = (golden_cases.folder(2) / f"{name}.cusz").read_bytes()
        if archive[:2] != reference.MAGIC or (archive[2] >> 7 == 1) != (dtype == F64):
            continue
        if archive[2] >> 4 & 7 == reference.KIND_CONSTANT:
            constants += 1
            continue
        places, flags = format_v2.parts(archive), archive[3] >> 2
        how = interpolation_of(archive)
        model = archive[places.checksum_at + 5 + 2 * (flags >> 3 & 1)]
        found = (
            how["curve"],
            how["bounds"],
            flags >> 3 & 1,
            model >> 4 & 1,
            model >> 5,
            flags >> 1 & 1,
            flags >> 4 & 1,
        )
        for of, value in zip(parts.values(), found, strict=True):
            of.add(value)
        units.add(len(places.lattices))
    assert constants >= 3
    assert parts["curve"] == {0, 1, 3}  # this writer does not use 2
    assert parts["bounds"] == {0, 1, 2, 3}
    assert parts["axes"] == parts["map"] == parts["exact"] == parts["missing"] == {0, 1}
    assert parts["lanes"] >= {0, 1, 2}
    assert units >= {0, 1, 2}


# ---------------------------------------------------------------------------------------------------------------------
# Archives that are read


def test_a_pyramid_of_a_single_value_is_refused() -> None:
    archive = bytearray(reference.encode(np.array([1, 1.05], F32), 0.1))
    assert archive[4] == 2  # number of values
    archive[4] = 1
    format_v2.seal(archive)
    for read in (cusz.inspect, cusz.check, cusz.decompress):
        with pytest.raises(cusz.CorruptArchiveError, match="a single value"):
            read(bytes(archive))
    with pytest.raises(reference.FormatError):
        reference.decode(bytes(archive))


def archives() -> dict[str, bytes]:
    x = strewn((20, 40, 70), F32, [np.nan, 1e30, np.inf], 400)
    return {
        "several units": reference.encode(x, 1e-3, curve=3, bounds=1),
        "small": reference.encode(strewn((9, 10, 34), F64, [np.nan, 7.0], 30), 1e-2, "rel", fill=7.0),
        "constant": reference.encode(np.full((30, 4), np.nan, F64), 1e-4, "rel"),
        "line": reference.encode(smooth((9001,), F32), 1e-2),
    }


@pytest.fixture(scope="module", params=["several units", "small", "constant", "line"])
def archive(request: pytest.FixtureRequest) -> bytes:
    return archives()[request.param]


def packed(archive: bytes) -> bytes:
    """The same archive with the lossless stage."""
    at = format_v2.parts(archive).checksum_at
    begin = at + 5 + 2 * (archive[3] >> 5 & 1)  # behind interpolation and axes
    length, n = b"", len(archive) - begin
    while n > 127:
        length += bytes([n & 127 | 128])
        n >>= 7
    length += bytes([n])
    changed = bytearray(archive[:begin] + length + numcodecs.zstd.compress(archive[begin:], 3))
    changed[3] |= 128
    format_v2.seal(changed)
    return bytes(changed)


def test_values_that_are_read(archive: bytes) -> None:
    wanted = reference.decode(archive)
    for threads in (1, 3):
        assert cusz.decompress(archive, threads=threads).tobytes() == wanted.tobytes()
    cusz.check(archive)
    box = tuple((n // 3, n // 3 + (n + 1) // 2) for n in wanted.shape)
    part = wanted[tuple(slice(begin, end) for begin, end in box)]
    start, count = [b for b, _ in box], [e - b for b, e in box]
    assert cusz.decompress_box(archive, start, count).tobytes() == part.tobytes()


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize(("step", "share"), [(1e-5, 0.3), (1e-2, 0.3), (1e-2, 0.03)])  # of those that are escaped
def test_any_code_may_be_escaped(step: float, share: float, dtype: np.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers escape codes without a symbol of their own; readers take any escape, of a code of 0, too."""
    own = reference.RansWriter.escaped
    random = np.random.default_rng(1)

    def escaped(writer: reference.RansWriter, tables: NDArray, symbols: NDArray) -> NDArray:
        more = (symbols < reference.ESCAPE) & (random.random(symbols.shape) < share)
        return own(writer, tables, symbols) | (more & (writer.frequencies[tables, reference.ESCAPE] > 0))

    monkeypatch.setattr(reference.RansWriter, "escaped", escaped)
    x = strewn((9, 18, 34), dtype, [np.nan, 1e30, np.inf], 60)
    archive = reference.encode(x, step)
    wanted = reference.decode(archive)
    assert wanted.tobytes() != x.tobytes()
    assert cusz.decompress(archive).tobytes() == wanted.tobytes()


def test_what_inspect_says(archive: bytes) -> None:
    info = cusz.inspect(archive)
    wanted = reference.decode(archive)
    assert (info.version, info.predictor, info.coder) == (2, "spline", "rans")
    assert info.shape == wanted.shape
    assert info.dtype == wanted.dtype
    sections = info.sections
    assert sections.header + sections.codebook + sections.index + sections.payload == len(archive) == info.archive_bytes


@support.needs_zstd
@pytest.mark.parametrize("name", ["several units", "small", "line"])
def test_the_lossless_stage_is_undone(name: str) -> None:
    archive = packed(archives()[name])
    wanted = reference.decode(archives()[name])
    info, plain = cusz.inspect(archive), cusz.inspect(archives()[name])
    assert info.lossless == "zstd"
    assert (info.sections, info.tiles, info.tile_shape) == (plain.sections, plain.tiles, plain.tile_shape)
    assert cusz.decompress(archive).tobytes() == wanted.tobytes()
    cusz.check(archive)
    first = cusz.decompress_box(archive, [0] * wanted.ndim, [1] * wanted.ndim)
    assert first.tobytes() == wanted.ravel()[:1].tobytes()
    for at in (len(archive) // 2, len(archive) - 1):
        damaged = archive[:at] + bytes([archive[at] ^ 4]) + archive[at + 1 :]
        with pytest.raises(cusz.CorruptArchiveError):
            cusz.check(damaged)


def read_anyhow(archive: bytes) -> bool:
    """Whether any call accepts the archive."""
    for read in (cusz.decompress, cusz.check):
        try:
            read(archive, threads=1)
        except (cusz.CorruptArchiveError, cusz.ArchiveTooNewError, cusz.UnsupportedError):
            continue
        return True
    return False


def test_archives_that_are_cut_or_too_long(archive: bytes) -> None:
    lengths = {*range(min(len(archive), 80)), *range(0, len(archive), 97), len(archive) - 1}
    assert [n for n in lengths if read_anyhow(archive[:n])] == []
    assert not read_anyhow(archive + bytes(1))
    assert not read_anyhow(archive + bytes(2))


def test_flipped_bits_are_found(archive: bytes) -> None:
    for bit in {*range(8 * min(len(archive), 60)), *support.integers(100, 0, 8 * len(archive), 9).tolist()}:
        assert not read_anyhow(support.flipped(archive, bit)), bit
