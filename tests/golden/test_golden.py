"""Archives kept in the repository: writers must give the same bytes, and readers the same values.

A difference means that the format changed. If that was intended, raise its version; tests/golden/regenerate.py then
writes its archives. Only where version 2 leaves a choice to the writer (format_v2.md, sections 10 to 12) may a release
choose differently: cases that change then get `written=False`, because they must stay readable, and new cases take
their fields.
"""

import json
from itertools import product

import numpy as np
import pytest
from golden_cases import CASES_OF, HERE, digest, folder

import cusz_core as cusz
import format_v1 as v1
import format_v2 as v2
import formats
import support
from support import F32, F64

VERSIONS = sorted(int(path.name[1:]) for path in HERE.glob("v*"))


def golden(version, name):
    return (folder(version) / f"{name}.cusz").read_bytes()


def manifest(version):
    return json.loads((folder(version) / "manifest.json").read_text())


ALL = [(version, name) for version in VERSIONS for name in manifest(version)]
WRITTEN = [(version, name) for version, cases in CASES_OF.items() for name, case in cases.items() if case.written]


def test_every_version_has_its_archives():
    """If one is missing: run tests/golden/regenerate.py."""
    assert list(CASES_OF) == VERSIONS
    assert [(version, name) for version, cases in CASES_OF.items() for name in cases] == ALL
    for version in VERSIONS:
        assert {path.stem for path in folder(version).glob("*.cusz")} == set(manifest(version))


@pytest.mark.parametrize(("version", "name"), ALL)
def test_fields_are_what_they_were(version, name):
    """The fields are made from integers: if this fails, the test is broken, not the compressor."""
    assert digest(CASES_OF[version][name].make().tobytes()) == manifest(version)[name]["field"]


@pytest.mark.parametrize("backend", support.BACKENDS)
@pytest.mark.parametrize(("version", "name"), WRITTEN)
def test_the_same_bytes_are_written(version, name, backend):
    case = CASES_OF[version][name]
    wanted = golden(version, name)
    for threads in (1, 3):
        archive = case.compress(case.make(), backend=backend, threads=threads)
        if archive != wanted:
            a, b = np.frombuffer(archive, np.uint8), np.frombuffer(wanted, np.uint8)
            n = min(a.size, b.size)
            first = next(iter(np.flatnonzero(a[:n] != b[:n])), n)
            pytest.fail(f"{name} differs from byte {first} on; {a.size} bytes, golden {b.size}")


@pytest.mark.parametrize(("version", "name"), ALL)
def test_the_same_values_are_read(version, name):
    archive = golden(version, name)
    entry = manifest(version)[name]
    assert len(archive) == entry["bytes"]
    info = cusz.inspect(archive)
    assert info.version == version or version == 2  # cases of version 2 may have archives of version 1
    if CASES_OF[version][name].needs_zstd and not support.HAS_ZSTD:
        with pytest.raises(cusz.UnsupportedError, match="zstd"):
            cusz.decompress(archive)
        return
    for threads in (1, 3):
        assert digest(cusz.decompress(archive, threads=threads).tobytes()) == entry["decoded"]


def test_the_archives_have_every_part_of_version_1():
    infos = [cusz.inspect(golden(1, name)) for name in manifest(1)]
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


def test_the_archives_have_every_part_of_logarithms(dtype):
    """tests/reference does the same for the spline codec."""
    archives = [golden(2, name) for name in manifest(2)]
    of_kind = v2.LOGS << 4 | 2 | (dtype == F64) << 7
    logs = [archive for archive in archives if archive[:3] == v2.MAGIC + bytes([of_kind])]
    found = []
    for archive in logs:
        parts = v2.parts(archive)
        inner = archive[-(-(parts.signs_at + parts.signs_bytes) // 4) * 4 :]
        wide, special = archive[parts.checksum_at + 4], archive[3] >> 4 & 1
        found.append((wide, special, parts.signs_bytes > 0, cusz.inspect(inner).version))
    assert {(wide, special) for wide, special, _, _ in found} >= {(0, 0), (0, 1)}
    assert any(wide for wide, _, _, _ in found) == (dtype == F32)
    assert {(has_signs, version) for _, _, has_signs, version in found} == set(product((False, True), (1, 2)))


def test_the_tiles_have_every_part_of_version_1(dtype):
    headers, fine = [], set()
    for name in manifest(1):
        archive = golden(1, name)
        info = cusz.inspect(archive)
        if info.dtype == dtype and info.kind == "tiled":
            of_archive = [header for _, header in formats.tile_headers(archive)]
            headers += of_archive
            if any(map(v1.FINE_MASK.of, of_archive)):
                fine.add(sum(extent > 1 for extent in info.shape))
    assert set(map(v1.KIND.of, headers)) == set(v1.KINDS)
    assert set(map(v1.PREDICTOR.of, headers)) == set(v1.PREDICTORS)
    assert {(v1.MASK.of(header), v1.FINE_MASK.of(header)) for header in headers} == {(0, 0), (1, 0), (1, 1)}
    assert any(map(v1.MISSING.of, headers))
    assert any(map(v1.ALL_ZERO.of, headers))
    assert fine == {1, 2, 3, 4}
