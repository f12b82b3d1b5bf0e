"""Compression ratios do not fall: floors a little under what the format gives on fields of known character."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from comparison import fields

import cusz_core as cusz

FOLDER = os.environ.get("CUSZ_TEST_DATA")

#: At 1e-3 of the value range: (file, fill, floor).
REAL = [
    ("ipsl_tos_3d_f32", 1e20, 11.5),
    ("radolan_sf_rain24h_2d_f32", None, 8.65),
    ("viscousfingers_r1_t060_3d_f32", None, 16.6),
    ("isabel_velmag_t02-05_4d_f64", None, 23.7),
    ("qmcpack_diamondC_orbitals_4d_f32", None, 15.2),
    ("md_adk_dims_x_1d_f32", None, 5.78),
    ("ligo_h1_gw150914_1d_f64", None, 12.2),
]


@pytest.mark.skipif(not FOLDER, reason="CUSZ_TEST_DATA names no folder of fields")
@pytest.mark.parametrize(("name", "fill", "floor"), REAL, ids=[row[0] for row in REAL])
def test_real_fields(name: str, fill: float | None, floor: float) -> None:
    x = np.load(Path(FOLDER or "") / f"{name}.npy")
    assert x.nbytes / len(cusz.compress(x, 1e-3, "rel", fill=fill)) >= floor


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "floors"), [("turbulence", (11.65, 5.32, 3.4)), ("density", (149.0, 23.9, 8.03))], ids=lambda v: str(v)
)
def test_generated_fields(name: str, floors: tuple[float, ...]) -> None:
    x = fields.GENERATED[name]()
    for eb, floor in zip((1e-2, 1e-3, 1e-4), floors, strict=True):
        assert x.nbytes / len(cusz.compress(x, eb, "rel")) >= floor
