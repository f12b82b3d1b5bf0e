"""Archives made by hand to deceive: whatever they hold, they are refused or decoded, and nothing else happens.

Their checksums are valid, so only the reader's own checks stand between them and its memory.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cusz_core as cusz
import support
from cusz_core import backends

PROGRAM = Path(__file__).with_name("hostile.py")
_spec = importlib.util.spec_from_file_location("hostile", PROGRAM)
assert _spec is not None
assert _spec.loader is not None
hostile = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hostile)


@pytest.mark.parametrize("name", hostile.CASES)
def test_checksums_are_those_of_the_specification(name):
    archive = hostile.archive_of(name)
    info = cusz.inspect(archive)
    assert info.kind == ("raw" if name.startswith("raw") else "tiled")
    sealed = bytearray(archive)
    hostile.seal(sealed, info.sections.codebook, info.tiles)
    assert sealed == archive


def first_tile(name, wanted):
    """An archive, offset and head of its first tile of a kind."""
    archive = bytearray(hostile.archive_of(name))
    return archive, *next((at, head) for at, head in support.tile_heads(archive) if head & 3 == 0 and wanted(head))


def refused(name, archive):
    info = cusz.inspect(hostile.archive_of(name))
    hostile.seal(archive, info.sections.codebook, info.tiles)
    with pytest.raises(cusz.CorruptArchiveError):
        cusz.decompress(archive, threads=1)


def set_word(archive, at, word):
    assert archive[at : at + 4] != word.to_bytes(4, "little")
    archive[at : at + 4] = word.to_bytes(4, "little")


def has_missing(head):
    return head >> 7 & 1 != 0


@pytest.mark.parametrize("dtype", [dtype.name for dtype in support.DTYPES])
@pytest.mark.parametrize(
    ("name", "wanted", "change"),
    [
        *[("ripples", lambda head: True, lambda head, p=p: head & ~(15 << 2) | p << 2) for p in (6, 7, 15)],
        *[("noisy", has_missing, lambda head, p=p: head & ~(15 << 2) | p << 2) for p in (4, 5)],
        ("ripples", lambda head: head >> 2 & 15 in (4, 5), lambda head: head | 1 << 7),  # missing values
        ("ripples", lambda head: head >> 6 & 1 == 0, lambda head: head | 1 << 14),  # a fine mask without a mask
        ("flat", lambda head: head >> 9 & 1 == 1, lambda head: head | 1 << 14),
        ("sparse", lambda head: head >> 14 & 1 == 1, lambda head: head & ~(1 << 6)),
        *[(name, lambda head: True, lambda head: head | 1 << 15) for name in ("ripples", "noisy", "flat", "sparse")],
    ],
    ids=[
        *[
            *[f"predictor {p}" for p in (6, 7, 15)],
            *[f"predictor {p} with missing values" for p in (4, 5)],
            "missing values",
        ],
        *["fine mask without mask", "fine mask of a flat tile", "mask gone"],
        *[f"bit 15 of {name}" for name in ("ripples", "noisy", "flat", "sparse")],
    ],
)
def test_heads_that_are_not_allowed(name, wanted, change, dtype):
    name = f"{name}_{dtype}"
    archive, at, head = first_tile(name, wanted)
    set_word(archive, at, change(head))
    refused(name, archive)


@pytest.mark.parametrize("dtype", [dtype.name for dtype in support.DTYPES])
def test_an_empty_fine_mask_is_refused(dtype):
    name = f"sparse_{dtype}"
    archive, at, head = first_tile(name, lambda head: head >> 14 & 1 == 1)
    at += 4 + (4 if dtype == "float32" else 8) + (head >> 8 & 1) * 4  # head, anchor, outlier counts
    mask = int.from_bytes(archive[at : at + 8], "little")
    words = -(-8 * mask.bit_count() // 32)  # 64 groups, of which each has 8 subgroups
    assert any(archive[at + 8 : at + 8 + 4 * words])
    archive[at + 8 : at + 8 + 4 * words] = bytes(4 * words)
    refused(name, archive)


@pytest.mark.parametrize("name", ["ripples_float32", "noisy_float64", "far_float32", "flat_float64"])
def test_code_lengths_behind_the_last_symbol_are_refused(name):
    archive = hostile.archive_of(name)
    info = cusz.inspect(archive)
    r = archive[52]
    symbols = (2 << r) + 8 * ((20 if r == 5 else 19) - r + 1) + 2
    assert info.sections.codebook == (symbols + 7) // 8 * 4
    for nibble in range(symbols, 2 * info.sections.codebook):
        for value in (1, 12):
            damaged = bytearray(archive)
            damaged[info.sections.header + nibble // 2] |= value << 4 * (nibble % 2)
            refused(name, damaged)


def run(name, seed, count, tmp_path, instruction_set=""):
    """Numbers of archives decoded and refused, and a digest of what was decoded and why the rest was refused."""
    progress = tmp_path / "progress"
    command = [sys.executable, str(PROGRAM), name, str(seed), str(count), str(progress)]
    try:
        environment = os.environ | {"CUSZ_SIMD": instruction_set}
        result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    except subprocess.TimeoutExpired:
        pytest.fail(f"hangs at {progress.read_text().splitlines()[-1]}")
    last = progress.read_text().splitlines()[-1] if progress.exists() else "the start"
    assert result.returncode == 0, f"ended with {result.returncode} at {last}: {result.stderr[-2000:]}"
    decoded, refused, outcomes = result.stdout.split()
    return int(decoded), int(refused), outcomes


@pytest.mark.parametrize("name", hostile.CASES)
def test_no_archive_harms_its_reader(name, tmp_path):
    decoded, refused, _ = run(name, 1, 5000, tmp_path)
    assert refused > 300
    assert decoded > 0


@pytest.mark.parametrize("name", hostile.CASES)
def test_instruction_sets_agree_on_what_is_refused(name, tmp_path):
    outcomes = {run(name, 5, 1000, tmp_path, instruction_set) for instruction_set in ("baseline", "avx2", "avx512")}
    assert len(outcomes) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4])
@pytest.mark.parametrize("name", hostile.CASES)
def test_no_archive_harms_its_reader_at_length(name, seed, tmp_path):
    run(name, seed, 30000, tmp_path)


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_shapes_beyond_the_archive_are_not_believed(dtype):
    """A header that announces a huge field must be refused before memory for it is asked for."""
    x = support.smooth((40, 50, 60), dtype)
    archive = cusz.compress(x, 1e-2)
    info = cusz.inspect(archive)
    for shape in ((2**20, 2**20, 2**10), (40, 50, 2**40), (2**62, 1, 1), (2**32, 2**32, 0), (2**40, 1, 1)):
        mutant = bytearray(archive)
        for axis, extent in enumerate(shape):
            mutant[8 + 8 * axis : 16 + 8 * axis] = extent.to_bytes(8, "little")
        hostile.seal(mutant, info.sections.codebook, info.tiles)
        for read in (cusz.inspect, cusz.check, cusz.decompress):
            with pytest.raises((cusz.CorruptArchiveError, cusz.UnsupportedError)):
                read(mutant)


@pytest.mark.skipif("zstd" not in backends.lossless_stages(), reason="this build has no zstd stage")
def test_a_body_that_zstd_cannot_have_packed_is_refused():
    """Else a few bytes could have the reader ask for any amount of memory."""
    archive = bytearray(cusz.compress(np.zeros((2048, 2048), np.float32), 1e-3, lossless="zstd"))
    info = cusz.inspect(archive)
    assert info.lossless == "zstd"
    stored = int.from_bytes(archive[96:104], "little")

    def declare(tiles):  # a field, and a body to match
        archive[8:16] = (64 * tiles).to_bytes(8, "little")
        archive[16:24] = (64).to_bytes(8, "little")
        archive[88:96] = (6 * tiles).to_bytes(8, "little")
        hostile.seal(archive, info.sections.codebook, tiles)

    most = (32768 * (stored + 1) - 1) // 6 // 2 * 2
    declare(most)
    assert cusz.inspect(archive).tiles == most
    declare(most + 2)
    with pytest.raises(cusz.CorruptArchiveError, match=f"{stored} stored bytes for a body of {6 * (most + 2)}"):
        cusz.inspect(archive)
