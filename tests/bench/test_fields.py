"""The generated fields: their values never change."""

import hashlib

import numpy as np
import pytest
from comparison import fields

import cusz_core as cusz

# Fourier transforms and exponentials may differ in their last bits between versions of numpy and processors, so the
# values are pinned in steps. No value is closer than 1e-4 steps to the border between two.
PINNED = {
    "turbulence": ((16,), 0.25, "ec13e6e02fb48bd4"),
    "density": ((16,), 4.0, "a28d823508788f3f"),
    "flux": ((24, 48), 8.0, "1619f04b073e1709"),
    "clouds": ((24, 48), 0.0625, "ce3e943901884767"),
    "particles_x": ((16,), 0.5, "bb34b429c448452f"),
    "particles_vx": ((16,), 64.0, "ba5f2517b8de30ef"),
    "orbitals": ((8,), 0.0625, "52b3c550192f27f5"),
}


def test_every_generated_field_is_pinned():
    assert PINNED.keys() == fields.GENERATED.keys()


@pytest.mark.parametrize("name", PINNED)
def test_values(name):
    size, step, digest = PINNED[name]
    x = fields.GENERATED[name](*size)
    assert x.dtype == np.float32
    assert x.flags.c_contiguous
    steps = np.rint(x.astype(np.float64) / step).astype("<i4")
    assert hashlib.sha256(steps.tobytes()).hexdigest()[:16] == digest


def test_what_makes_them_hard():
    density = fields.density(32)
    assert density.max() / density.min() == pytest.approx(1e6, rel=1e-4)
    clouds = fields.clouds(90, 180)
    assert (clouds.min(), clouds.max()) == (0, 1)
    assert 0.3 < np.mean(clouds == 0) < 0.6
    assert abs(np.diff(fields.particles_vx(16))).mean() > 100  # neighbours have little in common


def test_chosen(tmp_path, monkeypatch):
    monkeypatch.delenv("CUSZ_TEST_DATA", raising=False)
    assert fields.chosen([]) == fields.DEFAULTS
    assert sorted(fields.DEFAULTS) == sorted([*fields.GENERATED, "turbulence_f64"])
    np.save(tmp_path / "b.npy", np.zeros(3, np.float32))
    np.save(tmp_path / "a.npy", np.zeros(3))
    monkeypatch.setenv("CUSZ_TEST_DATA", str(tmp_path))
    assert fields.chosen([]) == [*fields.DEFAULTS, str(tmp_path / "a.npy"), str(tmp_path / "b.npy")]
    assert fields.chosen(["turbulence_f64", "x.npy"]) == ["turbulence_f64", "x.npy"]
    with pytest.raises(cusz.ParameterError, match="turbulenz is neither"):
        fields.chosen(["turbulenz"])


def test_loaded(tmp_path, monkeypatch):
    monkeypatch.setitem(fields.GENERATED, "turbulence", lambda: np.ones((2, 2), np.float32))
    known, other = tmp_path / "ipsl_tos_3d_f32.npy", tmp_path / "other.npy"
    for path in (known, other):
        np.save(path, np.arange(6, dtype=np.float32).reshape(2, 3).T)
    loaded = list(fields.load(["turbulence", "turbulence_f64", str(known), str(other)], fill=-9.0))
    assert [(f.name, f.x.dtype.name, f.fill) for f in loaded] == [
        ("turbulence", "float32", None),
        ("turbulence_f64", "float64", None),
        ("ipsl_tos_3d_f32", "float32", 1e20),
        ("other", "float32", -9.0),
    ]
    assert all(f.x.flags.c_contiguous for f in loaded)
    (cast,) = fields.load([str(other)], np.dtype(np.float64))
    assert cast.x.dtype == np.float64


@pytest.mark.parametrize("content", [b"", b"no array", None])
def test_files_that_are_no_fields(tmp_path, content):
    path = tmp_path / "x.npy"
    path.write_bytes(content) if content is not None else np.save(path, np.arange(4))
    with pytest.raises(cusz.ParameterError, match=r"x\.npy"):
        list(fields.load([str(path)]))
