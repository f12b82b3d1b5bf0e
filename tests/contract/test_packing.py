"""Packed blocks, in which integers are stored exactly (docs/reference/format.md, section 11)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import cusz_core as cusz
import support
from cusz_core.embedding import packed, unpacked

STAGES = ["none", pytest.param("zstd", marks=support.needs_zstd)]
KINDS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
HEAD_BYTES = 8
STORED = """
7a7374342e7a1faa28b52ffd6000002d040012081f22a0c50d8fd96bf69abd66afd96bf67a7c66ab5a97bb024130c010
002003c0848007291f300ca3280a822086610882a0f7bef7d65ae79c31c6d6da5aeb9c534a196384103ae75a6b8cb1b5
d6ff0328a59cf3e33892245996a5699ae779a2289aa6a9aaaaf7debd571004044114456118c6711c08822449a228eaff
030100019e0229
"""


@pytest.mark.parametrize("lossless", STAGES)
@given(values=st.sampled_from(KINDS).flatmap(lambda kind: st_numpy.arrays(kind, st.integers(0, 40))))
def test_values_come_back(lossless, values):
    block = packed(values, lossless)
    assert len(block) <= values.nbytes + HEAD_BYTES
    assert unpacked(block) == values.tobytes()


@pytest.mark.parametrize("lossless", STAGES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 4095, 4096, 4097, 100_000])  # bytes are regrouped in runs of 4096 values
def test_runs_of_values(n, kind, lossless):
    for values in (support.integers(n, 0, 100).astype(kind), np.arange(n).astype(kind)):
        assert unpacked(packed(values, lossless)) == values.tobytes()


@support.needs_zstd
def test_integers_of_a_field_become_smaller():
    ids = np.arange(100_000)
    assert len(packed(ids, "zstd")) < ids.nbytes / 100
    mask = (support.integers(100_000, 0, 50) == 0).astype(np.uint8)
    assert len(packed(mask, "zstd")) < mask.nbytes / 10
    noise = support.integers(100_000, 0, 256).astype(np.uint8)
    assert packed(noise, "zstd") == packed(noise, "none")


def test_the_bytes_as_they_are():
    """Tag, checksum of the payload as in archives, payload."""
    field = support.smooth((500,), np.float32)
    archive = cusz.compress(field, 0.0)
    block = packed(field.view(np.int32), "none")
    assert block == b"raw8" + cusz.inspect(archive).checksum.to_bytes(4, "little") + field.tobytes()


@support.needs_zstd
def test_a_stored_block_stays_readable():
    """It was made by zstd 1.5.4; other versions may give other bytes."""
    block = bytes.fromhex(STORED)
    assert unpacked(block) == (np.arange(64, dtype=np.int32) // 3 * 1000).tobytes()


@support.needs_zstd
def test_damage_is_found():
    block = packed(np.arange(300, dtype=np.int16), "zstd")
    assert block[:4] == b"zst2"
    for length in range(len(block)):
        with pytest.raises(cusz.CorruptArchiveError):
            unpacked(block[:length])
    for bit in range(8 * len(block)):
        with pytest.raises(cusz.CorruptArchiveError):
            unpacked(support.flipped(block, bit))


@pytest.mark.parametrize("n", [3, 4, 5, 6, 7, 8, 40])
def test_a_block_cut_short_is_found(n):
    """Even if only zeros are missing."""
    block = packed(np.array([3] + [0] * (n - 1), np.uint8), "none")
    for length in range(8, len(block)):
        with pytest.raises(cusz.CorruptArchiveError):
            unpacked(block[:length])


def test_a_missing_stage_is_refused(monkeypatch):
    monkeypatch.setattr("cusz_core.embedding._native.has_lossless", lambda stage: stage == 0)
    with pytest.raises(cusz.UnsupportedError, match="zstd"):
        packed(np.arange(3), "zstd")
