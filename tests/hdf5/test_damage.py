"""Chunks that are damaged, truncated or hold something else: HDF5 reports an error, and nothing worse happens."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import cusz_core as cusz
import formats
import hostile
import support
from cusz_core.hdf5 import Cusz
from support import F32, F64

SHAPE = (24, 32, 40)
X = support.smooth(SHAPE, F32)
REFUSED = r"filter returned failure during read|\(cusz: "  # HDF5 2 lets a filter say no more; test_tools.py checks 1.10


def read(path: Path, chunk: bytes) -> np.ndarray:
    """Reads a dataset of one chunk that has these bytes."""
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", SHAPE, F32, chunks=SHAPE, **Cusz(1e-3))
        dataset.id.write_direct_chunk((0, 0, 0), chunk)
    with h5py.File(path) as file:
        return file["x"][...]


@pytest.fixture(params=["lorenzo", "spline", "lossless"])
def archive(request: pytest.FixtureRequest) -> bytes:
    if request.param == "lossless":
        return cusz.compress(support.random_bits(SHAPE, F32), 0.0)
    return cusz.compress(X, 1e-3, predictor=request.param)


def test_a_chunk_may_come_from_the_library(tmp_path: Path, archive: bytes) -> None:
    assert support.same_bits(read(tmp_path / "x.h5", archive), cusz.decompress(archive))


def test_one_bit_wrong_anywhere(tmp_path: Path, archive: bytes) -> None:
    """One bit in every byte of the header, and in bytes all over the rest."""
    places = [*range(min(200, len(archive))), *range(200, len(archive), len(archive) // 150), len(archive) - 1]
    for at in places:
        chunk = bytearray(archive)
        chunk[at] ^= 1 << at % 8
        with pytest.raises(OSError, match=REFUSED):
            read(tmp_path / "x.h5", bytes(chunk))


def test_too_short_or_too_long(tmp_path: Path, archive: bytes) -> None:
    for length in [*range(1, 120), *range(120, len(archive), len(archive) // 50), len(archive) - 1]:
        with pytest.raises(OSError, match=REFUSED):
            read(tmp_path / "x.h5", archive[:length])
    with pytest.raises(OSError, match=REFUSED):
        read(tmp_path / "x.h5", archive + b"\0")


@pytest.mark.parametrize("seed", range(5))
def test_bytes_of_something_else(tmp_path: Path, seed: int) -> None:
    for chunk in (support.hashes(5000, seed).tobytes(), bytes(4000), X.tobytes(), b"CUSZ" * 1000):
        with pytest.raises(OSError, match=REFUSED):
            read(tmp_path / "x.h5", chunk)


@pytest.mark.parametrize(
    "other",
    [
        X.astype(F64),
        X[:12],
        X.reshape(32, 24, 40),
        X.reshape(-1),
        X[:, :, :20].astype(F64),  # as many bytes
        np.zeros((512, 512, 1024), F32),  # a gigabyte, in a small archive
        np.zeros((0, 3, 4), F32),
    ],
    ids=lambda x: f"{x.dtype}{x.shape}",
)
def test_archives_of_another_field(tmp_path: Path, other: np.ndarray) -> None:
    archive = cusz.compress(np.ascontiguousarray(other), 1e-3)
    with pytest.raises(OSError, match=REFUSED):
        read(tmp_path / "x.h5", archive)


def test_axes_of_one_value_do_not_matter(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", (3, 40, 50), F32, chunks=(1, 40, 50), **Cusz(1e-3))
        x = support.smooth((1, 40, 50), F32)
        dataset.id.write_direct_chunk((1, 0, 0), cusz.compress(x, 1e-3))
        assert support.violations(x, dataset[1:2], 1e-3) == []


def test_the_file_stays_usable(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", (64, 40), F32, chunks=(32, 40), **Cusz(1e-3))
        x = support.smooth((64, 40), F32)
        dataset[...] = x
        file.flush()
        damaged = bytearray(dataset.id.read_direct_chunk((0, 0))[1])
        damaged[-1] ^= 1
        dataset.id.write_direct_chunk((0, 0), bytes(damaged))
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        with pytest.raises(OSError, match=REFUSED):
            file["x"][...]
        assert support.violations(x[32:], file["x"][32:], 1e-3) == []
        file["x"].id.write_direct_chunk((0, 0), cusz.compress(x[:32], 1e-3))
        assert support.violations(x, file["x"][...], 1e-3) == []


def test_damage_with_checksums_that_fit(tmp_path: Path, archive: bytes) -> None:
    """As an attacker would do it: the filter reads what the library decodes, and refuses what the library refuses."""
    outcomes = set()
    mutants = list(hostile.mutants(archive, 1, 1500))
    for _, mutant in mutants[:: len(mutants) // 150]:
        formats.seal(mutant, archive)
        chunk = bytes(mutant)
        try:
            expected = cusz.decompress(chunk, max_bytes=X.nbytes)
        except (cusz.CuszError, ValueError):
            expected = None
        if expected is None or expected.shape != SHAPE or expected.dtype != F32:
            with pytest.raises(OSError, match=REFUSED):
                read(tmp_path / "x.h5", chunk)
            outcomes.add("refused")
        else:
            assert support.same_bits(read(tmp_path / "x.h5", chunk), expected)
            outcomes.add("read")
    assert "refused" in outcomes
