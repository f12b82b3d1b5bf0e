"""Scientific fields: no violation at any bound, in their own type and cast to the other one.

CUSZ_TEST_DATA names a folder with .npy fields; without it, generated fields of similar character are used.
"""

import os
from pathlib import Path

import numpy as np
import pytest

import cusz_core as cusz
import support
from support import F32, F64, check_contract

FOLDER = os.environ.get("CUSZ_TEST_DATA")
#: Fields that mark missing values with an ordinary number.
FILLS = {"ipsl_tos": 1e20, "generated_ocean": 1e20}
RELATIVE_BOUNDS = [10.0**-k for k in range(1, 7)]


def generated():
    ocean = support.smooth((12, 90, 100), F32, 1) + F32.type(290)
    ocean[:, 20:50, 30:70] = F32.type(1e20)
    rain = np.maximum(support.smooth((400, 400), F32, 2).round(1), 0)
    rain[:100, :150] = np.nan
    return {
        "generated_ocean": ocean,
        "generated_rain": rain,
        "generated_strain": support.smooth((60000,), F64, 3) * 1e-20,
        "generated_positions": (support.integers(60000, -30000, 30000, 4) / 1000).astype(F32),
        "generated_wind": support.smooth((3, 20, 60, 60), F64, 5),
        "generated_orbitals": (support.smooth((6, 25, 25, 25), F64, 6) ** 3 * 1e-3).astype(F32),
    }


if FOLDER:
    PATHS = {path.stem: path for path in sorted(Path(FOLDER).glob("*.npy"))}
    NAMES = list(PATHS)
else:
    GENERATED = generated()
    NAMES = list(GENERATED)


def test_the_folder_has_fields():
    assert NAMES, f"CUSZ_TEST_DATA={FOLDER} has no .npy files"


def field(name, dtype):
    x = np.load(PATHS[name]) if FOLDER else GENERATED[name]
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(dtype)


def fill_of(name):
    return next((fill for prefix, fill in FILLS.items() if name.startswith(prefix)), None)


@pytest.mark.parametrize("name", NAMES)
def test_relative_bounds(name, dtype, backend):
    x, fill = field(name, dtype), fill_of(name)
    sizes = [len(check_contract(x, eb, "rel", fill=fill, backend=backend)) for eb in RELATIVE_BOUNDS]
    assert sizes == sorted(sizes), "a tighter bound gave a smaller archive"


@pytest.mark.parametrize("name", NAMES)
def test_absolute_bounds(name, dtype, backend):
    x, fill = field(name, dtype), fill_of(name)
    low, high = support.value_range(x, fill)
    for eb in ((high - low) * 1.7e-3, (high - low) * 3.3e-5, 1e-3):
        check_contract(x, eb, fill=fill, backend=backend)


@pytest.mark.parametrize("name", NAMES)
def test_lossless(name, backend):
    x = field(name, F32)
    assert support.same_bits(x, cusz.decompress(cusz.compress(x, 0.0, backend=backend)))


@pytest.mark.parametrize("name", [name for name in NAMES if fill_of(name) is not None])
def test_fill_comes_back_and_saves_the_ratio(name, backend):
    x, fill = field(name, F32), fill_of(name)
    archive = check_contract(x, 1e-3, "rel", fill=fill, backend=backend)
    y = cusz.decompress(archive)
    filled = x == F32.type(fill)
    assert filled.any()
    assert support.same_bits(x[filled], y[filled])
    assert cusz.inspect(archive).ratio > 5
    assert np.abs(y[~filled] - x[~filled]).max() < 1
