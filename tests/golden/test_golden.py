"""Archives kept in the repository: what is written today, and what was written before and must stay readable.

A difference means that the format changed. If that was meant, raise its version; tests/golden/regenerate.py then writes
its archives.
"""

import json

import numpy as np
import pytest
from golden_cases import CASES, HERE, digest, folder

import cusz_core as cusz
import support
from cusz_core import _native

CURRENT = _native.FORMAT_VERSION
VERSIONS = sorted({CURRENT, *(int(path.name[1:]) for path in HERE.glob("v*"))})


def golden(version, name):
    path = folder(version) / f"{name}.cusz"
    assert path.exists(), f"the golden archive {path} is missing: run tests/golden/regenerate.py"
    return path.read_bytes()


def manifest(version):
    path = folder(version) / "manifest.json"
    assert path.exists(), f"{path} is missing: run tests/golden/regenerate.py"
    return json.loads(path.read_text())


def names(version):
    return list(manifest(version)) if (folder(version) / "manifest.json").exists() else list(CASES)


def test_the_folder_is_complete():
    assert list(manifest(CURRENT)) == list(CASES)
    assert {path.stem for path in folder(CURRENT).glob("*.cusz")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_fields_are_what_they_were(name):
    """The fields come from integers: if this fails, the test is broken, not the compressor."""
    assert digest(CASES[name].make().tobytes()) == manifest(CURRENT)[name]["field"]


@pytest.mark.parametrize("backend", support.BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_the_same_bytes_are_written(name, backend):
    case = CASES[name]
    wanted = golden(CURRENT, name)
    for threads in (1, 3):
        archive = case.compress(case.make(), backend=backend, threads=threads)
        if archive != wanted:
            a, b = np.frombuffer(archive, np.uint8), np.frombuffer(wanted, np.uint8)
            n = min(a.size, b.size)
            first = next(iter(np.flatnonzero(a[:n] != b[:n])), n)
            pytest.fail(f"{name} differs from byte {first} on; {a.size} bytes, golden {b.size}")


@pytest.mark.parametrize(("version", "name"), [(v, n) for v in VERSIONS for n in names(v)])
def test_the_same_values_are_read(version, name):
    archive = golden(version, name)
    entry = manifest(version)[name]
    assert len(archive) == entry["bytes"]
    info = cusz.inspect(archive)
    assert info.version == version
    for threads in (1, 3):
        assert digest(cusz.decompress(archive, threads=threads).tobytes()) == entry["decoded"]


@pytest.mark.parametrize("name", CASES)
def test_the_bound_holds(name):
    case = CASES[name]
    cusz.verify(case.make(), golden(CURRENT, name))


def test_the_archives_have_every_part_of_the_format():
    infos = [cusz.inspect(golden(CURRENT, name)) for name in CASES]
    assert {info.kind for info in infos} == {"raw", "tiled"}
    assert {info.mode for info in infos} == {"abs", "rel"}
    assert {len(info.shape) for info in infos} == {1, 2, 3, 4}
    assert {info.bins for info in infos} == {0, 64, 1024, 8192}
    for dtype in support.DTYPES:
        coded = [info for info in infos if info.dtype == dtype and info.kind == "tiled"]
        assert any(info.special for info in coded)
        assert any(info.out_of_range for info in coded)
        assert any(info.unpredictable for info in coded)
        assert any(info.size > 2**20 for info in coded)


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_the_tiles_have_every_part_of_the_format(dtype):
    heads, fine = [], set()
    for name in CASES:
        archive = golden(CURRENT, name)
        info = cusz.inspect(archive)
        if info.dtype == dtype and info.kind == "tiled":
            heads += [head for _, head in support.tile_heads(archive)]
            if any(head >> 14 & 1 for _, head in support.tile_heads(archive)):
                fine.add(sum(extent > 1 for extent in info.shape))
    assert {head & 3 for head in heads} == {0, 1, 2}
    assert {head >> 2 & 15 for head in heads} == set(range(6))
    assert {(head >> 6 & 1, head >> 14 & 1) for head in heads} == {(0, 0), (1, 0), (1, 1)}
    assert any(head >> 7 & 1 for head in heads)
    assert any(head >> 9 & 1 for head in heads)
    assert fine == {1, 2, 3, 4}
