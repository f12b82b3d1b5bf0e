"""Archives made by hand to deceive: whatever they hold, they are refused or decoded, and nothing else happens.

Their checksums are valid, so only the reader's own checks stand between them and its memory.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import cusz_core as cusz
import support

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


def run(name, seed, count, tmp_path):
    progress = tmp_path / "progress"
    command = [sys.executable, str(PROGRAM), name, str(seed), str(count), str(progress)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        pytest.fail(f"hangs at {progress.read_text().splitlines()[-1]}")
    last = progress.read_text().splitlines()[-1] if progress.exists() else "the start"
    assert result.returncode == 0, f"ended with {result.returncode} at {last}: {result.stderr[-2000:]}"
    return [int(n) for n in result.stdout.split()]


@pytest.mark.parametrize("name", hostile.CASES)
def test_no_archive_harms_its_reader(name, tmp_path):
    decoded, refused = run(name, 1, 5000, tmp_path)
    assert refused > 300
    assert decoded > 0


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
