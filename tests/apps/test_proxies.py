"""The proxies of apps/: physics, conserved quantities, independence of the number of ranks, files, the analysis."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import analyse
import climate
import cosmology
import hurricane
import numpy as np
import orbitals
import particle_mesh
import particles
import proxy
import pytest

import support
from support import fields_of_bp

APPS = Path(__file__).resolve().parents[2] / "apps"

ALONE = proxy.OneRank()
ROUND_OFF = 1e-12  # relative: for about a hundred steps, each with f64 sums of about ten thousand terms
GRIDS = {
    "particles": ("16", (4096,)),
    "climate": ("24x40", (24, 40)),
    "hurricane": ("7x18x20", (7, 18, 20)),
    "cosmology": ("17", (17, 17, 17)),
    "orbitals": ("5x11x10x9", (5, 11, 10, 9)),
}
KINDS: dict[str, Any] = {
    "particles": particles.Particles,
    "climate": climate.Climate,
    "hurricane": hurricane.Hurricane,
    "cosmology": cosmology.Cosmology,
    "orbitals": orbitals.Orbitals,
}
STEPS, EVERY, EB = 9, 3, 1e-3


def advanced(kind: Any, grid: tuple[int, ...], steps: int) -> Any:
    simulation = kind(ALONE, grid, steps, 1)
    for _ in range(steps):
        simulation.step()
    return simulation


# ------------------------------------------------------------------------------------------------ under mpirun


@pytest.mark.quick(1)
@pytest.mark.mpi
@pytest.mark.parametrize("name", GRIDS)
def test_under_mpirun(ranks: Any, tmp_path: Path, name: str) -> None:
    """One rank and four give the same bits, files keep the bound, conserved quantities stay; then the analysis."""
    grid, shape = GRIDS[name]
    common = ("--grid", grid, "--steps", STEPS, "--every", EVERY, "--eb", EB)
    files = {}
    for n in (1, 4):
        files[n] = tmp_path / f"{n}.bp", tmp_path / f"exact{n}.bp"
        out = ranks(n, APPS / f"{name}.py", *common, "--output", files[n][0], "--reference", files[n][1])
        assert f"{STEPS} steps of" in out.stdout
    one, four, decoded = (fields_of_bp(files[1][1]), fields_of_bp(files[4][1]), fields_of_bp(files[4][0]))
    fields = [key for key in four if not key.startswith("cusz/") and key != "diagnostics"]
    assert sorted(fields) == sorted(proxy_fields(name))
    for field in fields:
        assert len(four[field]) == STEPS // EVERY
        for alone, together, back in zip(one[field], four[field], decoded[field], strict=True):
            assert together.shape == shape
            assert together.dtype == np.float32
            assert np.isfinite(together).all()
            assert support.same_bits(alone, together)
            assert support.violations(together, back, support.absolute_bound(together, EB, "rel")) == []
    varying = [field for field in fields if np.ptp(four[field][-1]) > 0]
    assert len(varying) >= len(fields) - 2  # there may be no rain yet
    assert all(not support.same_bits(four[field][-1], decoded[field][-1]) for field in varying)
    diagnostics = np.stack(decoded["diagnostics"])
    assert diagnostics[:, 0].tolist() == [3, 6, 9]
    for values in diagnostics[:, 1:].T:
        size = np.abs(values).max()
        assert np.ptp(values) <= ROUND_OFF * (size if size > 1e-6 else 1)  # or a relative number that ought to be 0

    # The analysis reports what the files contain.
    picture, told = tmp_path / "spectra.png", tmp_path / "analysis.json"
    out = ranks(3, APPS / "analyse.py", *files[4], "--picture", picture, "--json", told)
    assert picture.read_bytes().startswith(b"\x89PNG")
    findings = json.loads(told.read_text())
    assert sorted(findings["fields"]) == sorted(fields)
    for field, found in findings["fields"].items():
        original, back = four[field][-1].astype(np.float64), decoded[field][-1].astype(np.float64)
        error = np.abs(original - back)
        assert found["max_error"] == error.max()
        assert Fraction(found["max_error"]) <= Fraction(found["bound"])
        assert (found["low"], found["high_back"]) == (original.min(), back.max())
        if error.any():
            psnr = 20 * np.log10(np.ptp(original) / np.sqrt((error**2).mean()))
            assert found["psnr"] == pytest.approx(psnr, abs=1e-6)
        assert field in out.stdout
    for field, power in findings["spectra"].items():
        assert len(power) > 3
        if field in varying and name != "climate":  # climate's height has waves far below the error
            assert power[1][1] == pytest.approx(power[1][0], rel=0.1)


def test_the_axis_of_changes_ends_at_those_of_waves_that_are_kept(tmp_path: Path) -> None:
    spectra = {"a": [(1.0, 1.0004, 1e-7), (0.5, 0.4999, 1e-3)], "b": [(1e-6, 3e-6, 2e-6), (0.0, 1e-9, 1e-9)]}
    assert analyse.change_of_kept(spectra) == pytest.approx(4e-4)
    assert analyse.change_of_kept({"lossless": [(1.0, 1.0, 0.0), (0.0, 0.0, 0.0)]}) == 0
    assert analyse.change_of_kept({"lost": [(1e-9, 1e-3, 1e-3)]}) == 0
    for number, each in enumerate((spectra, {"lossless": [(1.0, 1.0, 0.0), (0.5, 0.5, 0.0)]})):
        analyse.draw(each, tmp_path / f"{number}.png", "a title")
        assert (tmp_path / f"{number}.png").read_bytes().startswith(b"\x89PNG")


def proxy_fields(name: str) -> list[str]:
    return list(
        KINDS[name](
            ALONE, tuple(map(int, GRIDS[name][0].split("x"))) * (3 if name in ("particles", "cosmology") else 1), 1, 1
        ).fields()
    )


@pytest.mark.full
@pytest.mark.mpi
def test_mistakes(ranks: Any, tmp_path: Path) -> None:
    """Each is one message, and exit status 1."""
    (tmp_path / "begun.bp").mkdir()
    (tmp_path / "begun.bp" / "md.idx").touch()  # as left by a run that ends before its first step
    for words, message in (
        (("particles.py", "--grid", "8x8x9"), "the box is a cube"),
        (("climate.py", "--grid", "8x8x8"), "neither N nor NxN"),
        (("hurricane.py", "--grid", "8x4x8"), "3 ranks cannot share 4 planes: each needs at least 2"),
        (("climate.py", "--eb", "-1"), "eb is -1.0"),
        (("analyse.py", "no.bp", "none.bp"), "no.bp does not exist"),
        (("analyse.py", tmp_path / "begun.bp", "none.bp"), "begun.bp holds no complete step"),
    ):
        output = () if words[0] == "analyse.py" else ("--output", tmp_path / "never.bp")
        n = 3 if "3 ranks" in message else 2
        out = ranks(n, APPS / words[0], *words[1:], *output, status=1)
        assert out.stderr.count(message) == 1
        assert "Traceback" not in out.stderr
    assert not (tmp_path / "never.bp").exists()


@pytest.mark.parametrize("name", KINDS)
def test_fields_of_a_small_run(name: str) -> None:
    """The fields for the tables that scripts make."""
    found = sys.modules[name].fields(0.3)
    assert list(found) == proxy_fields(name)
    for field in found.values():
        assert field.dtype == np.float32
        assert np.isfinite(field).all()


# ------------------------------------------------------------------------------------------------ the physics


def test_transform_is_numpys(tmp_path: Path) -> None:
    field = proxy.noise(3, range(6), (7, 10))
    slabs = proxy.Slabs(ALONE, 6)
    assert np.allclose(slabs.forward(field), np.fft.rfftn(field), atol=1e-12)
    assert np.allclose(slabs.backward(slabs.forward(field), 7, 10), field, atol=1e-12)


def test_deposit_is_exact_and_in_any_order() -> None:
    positions = 8 * np.random.default_rng(1).random((3, 1000))
    order = np.random.default_rng(2).permutation(1000)
    meshes = []
    for places in (positions, positions[:, order]):
        mesh = np.zeros(9 * 64)
        for index, weight in particle_mesh.corners(places, 8, 0):
            mesh += np.bincount(index, weight, minlength=mesh.size)
        meshes.append(mesh)
    assert meshes[0].tobytes() == meshes[1].tobytes()
    assert meshes[0].sum() == 1000 * 2.0 ** (3 * particle_mesh.FRACTION_BITS)


def test_long_waves_grow_as_the_expansion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small waves of matter and gas grow like a (linear theory), so their power grows by 100 from a = 0.1 to 1."""
    monkeypatch.setattr(particle_mesh, "LINEAR_RMS", 0.05)
    monkeypatch.setattr(cosmology, "COLDEST", 1e-6)
    n = 32
    waves = np.fft.fftfreq(n) * n
    long = sum(wave**2 for wave in np.ix_(waves, waves, waves[: n // 2 + 1])) == 1  # the mesh affects shorter waves

    def power(density: Any) -> float:
        return float((np.abs(np.fft.rfftn(density / density.mean())[long]) ** 2).sum())

    start, end = (cosmology.Cosmology(ALONE, (n, n, n), 16, 1) for _ in range(2))
    for _ in range(16):
        end.step()
    assert power(end.matter.density()) / power(start.matter.density()) == pytest.approx(100, rel=0.05)
    assert power(end.gas[0]) / power(start.gas[0]) == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_shock_tube(axis: int) -> None:
    """Between the waves of Sod's problem, pressure and speed are those of the exact solution (Toro 2009, 4.2)."""
    g, n = cosmology.GAMMA, 200

    def pressure_function(p: float, density: float, before: float) -> float:
        if p > before:
            return (p - before) * np.sqrt(2 / ((g + 1) * density) / (p + (g - 1) / (g + 1) * before))
        return 2 * np.sqrt(g * before / density) / (g - 1) * ((p / before) ** ((g - 1) / (2 * g)) - 1)

    low, high = 0.1, 1.0
    for _ in range(60):
        p = (low + high) / 2
        low, high = (low, p) if pressure_function(p, 1, 1) + pressure_function(p, 0.125, 0.1) > 0 else (p, high)
    speed = pressure_function(p, 0.125, 0.1)

    tube: Any = cosmology.Cosmology.__new__(cosmology.Cosmology)
    shape = [3, 3, 3]
    shape[axis] = n
    tube.slabs, tube.matter, tube.kms = proxy.Slabs(ALONE, shape[0], 2), SimpleNamespace(a=1e-9), 1.0
    dense = np.zeros(n, bool)
    dense[n // 4 : 3 * n // 4] = True
    place = [1, 1, 1]
    place[axis] = n
    tube.gas = np.zeros((5, *shape))
    tube.gas[0] = np.where(dense, 1.0, 0.125).reshape(place)
    tube.gas[4] = np.where(dense, 1.0, 0.1).reshape(place) / (g - 1)
    mass, energy = tube.gas[0].sum(), tube.gas[4].sum()
    for _ in range(100):
        tube._sweep(axis, 0.2)
    _, velocity, pressure = tube._primitive(tube.gas)
    between = 3 * n // 4 + int(20 * speed * 0.5)  # behind the contact, ahead of the rarefaction
    at = [1, 1, 1]
    at[axis] = between
    assert pressure[tuple(at)] == pytest.approx(p, rel=0.01)
    assert velocity[axis][tuple(at)] == pytest.approx(speed, rel=0.01)
    assert tube.gas[0].sum() == pytest.approx(mass, rel=ROUND_OFF)
    assert tube.gas[4].sum() == pytest.approx(energy, rel=ROUND_OFF)


def test_structure_forms() -> None:
    """Matter gathers in halos, which pull in the gas and heat it; masses and momentum stay."""
    simulation = cosmology.Cosmology(ALONE, (20, 20, 20), 12, 1)
    before = simulation.conserved()
    for _ in range(12):
        simulation.step()
    after = simulation.conserved()
    fields = {name: block.array for name, block in simulation.fields().items()}
    assert after["dark_matter_mass"] == before["dark_matter_mass"]
    assert after["gas_mass"] == pytest.approx(before["gas_mass"], rel=ROUND_OFF)
    assert all(abs(after[f"momentum_{axis}"] - before[f"momentum_{axis}"]) < ROUND_OFF for axis in "xyz")
    assert fields["dark_matter_density"].max() > 10
    assert fields["baryon_density"].min() > 0
    assert fields["baryon_density"].max() / fields["baryon_density"].min() > 100
    assert fields["temperature"].max() > 20 * cosmology.COLDEST
    dark, gas = (np.log(fields[name] + 0.1).ravel() for name in ("dark_matter_density", "baryon_density"))
    assert np.corrcoef(dark, gas)[0, 1] > 0.7


def test_particles_are_ordered_by_place() -> None:
    simulation = advanced(particles.Particles, (12, 12, 12), 8)
    found = {name: block.array.astype(np.float64) for name, block in simulation.fields().items()}
    cells = (np.floor(found["x"]) * 12 + np.floor(found["y"])) * 12 + np.floor(found["z"])
    assert (np.diff(cells) >= 0).all()
    assert sorted(simulation.mesh.ids) == list(range(12**3))
    assert simulation.conserved()["mass"] == 12**3
    assert max(map(abs, simulation.mesh.momentum())) < ROUND_OFF


def test_air_at_rest_stays_at_rest() -> None:
    """Over mountains, too."""
    simulation = climate.Climate(ALONE, (32, 48), 1, 1)
    simulation.state[0] = climate.DEPTH - simulation.mountains[2:-2]
    simulation.state[1:3] = 0
    assert simulation.mountains.max() > 500
    for _ in range(20):
        simulation.step()
    assert np.abs(simulation.state[1:3]).max() < 1e-9


def test_balanced_jet_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(climate, "WAVES", 0)
    simulation = climate.Climate(ALONE, (120, 16), 1, 1)
    simulation.state[0] += simulation.mountains[2:-2]
    simulation.mountains[:] = 0
    jet = simulation.state[1].copy()
    for _ in range(60):
        simulation.step()
    assert jet.max() > 40
    assert np.abs(simulation.state[2]).max() < 0.2
    assert np.abs(simulation.state[1] - jet).max() < 1.0


def test_mass_and_clouds() -> None:
    simulation = climate.Climate(ALONE, (48, 96), 1, 1)
    mass = simulation.conserved()["mass"]
    for _ in range(60):
        simulation.step()
    assert simulation.conserved()["mass"] == pytest.approx(mass, rel=ROUND_OFF)
    cloud = simulation.fields()["cloud_fraction"].array
    assert cloud.min() == 0
    assert 0.5 < cloud.max() <= 1
    assert 0.2 < (cloud == 0).mean() < 0.95
    assert simulation.fields()["rain"].array.max() > 0


def test_flow_is_free_of_divergence() -> None:
    simulation = advanced(hurricane.Hurricane, (8, 20, 24), 10)
    u, v, w = simulation.state[:3]
    dz, dy, dx = simulation.spacing
    top = np.concatenate([w[1:], np.zeros_like(w[:1])])
    divergence = (np.roll(u, -1, 2) - u) / dx + (np.roll(v, -1, 1) - v) / dy + (top - w) / dz
    assert np.abs(w[1:]).max() > 1e-3
    assert (w[0] == 0).all()
    assert np.abs(divergence).max() < ROUND_OFF * np.abs(u).max() / dx


def test_balanced_vortex_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradient wind, and a warm core in hydrostatic balance: in half an hour the vortex neither decays nor rises."""
    monkeypatch.setattr(hurricane, "BUBBLES", 0)
    monkeypatch.setattr(hurricane, "DRAG", 0.0)
    simulation = hurricane.Hurricane(ALONE, (12, 48, 48), 1, 1)
    simulation.state[4] = 0  # dry
    wind = simulation.state[:2].copy()
    for _ in range(15):
        simulation.step()
    assert np.abs(wind).max() > 30
    assert np.abs(simulation.state[:2] - wind).max() < 0.1 * np.abs(wind).max()
    assert np.abs(simulation.state[2]).max() < 0.1


def test_water_turns_to_cloud_and_rain() -> None:
    simulation = hurricane.Hurricane(ALONE, (10, 24, 24), 1, 1)
    before = simulation.conserved()
    for _ in range(60):
        simulation.step()
    after = simulation.conserved()
    for name in before:
        assert after[name] == pytest.approx(before[name], rel=ROUND_OFF)
    fields = {name: block.array for name, block in simulation.fields().items()}
    for name in ("QCLOUD", "QRAIN"):
        assert fields[name].max() > 1e-5
        assert (fields[name] < 1e-9).mean() > 0.8
    assert fields["QVAPOR"].min() >= 0
    assert np.abs(fields["W"]).max() > 0.1


def test_harmonic_oscillator() -> None:
    """Energies: 3/2, 5/2 (three states) and 7/2 (six) times the frequency, to the accuracy of the differences."""
    n, frequency = 20, 0.7
    x = orbitals.SPACING * (np.arange(n) - n / 2)
    potential = 0.5 * frequency**2 * sum(each**2 for each in np.ix_(x, x, x))
    simulation = orbitals.Orbitals(ALONE, (10, n, n, n), 1, 1, potential)
    for _ in range(15):
        simulation.step()
    expected = frequency * (1.5 + np.array([0, 1, 1, 1, 2, 2, 2, 2, 2, 2]))
    assert simulation.energies[:10] == pytest.approx(expected, rel=5e-3)
    assert simulation.residual() < 1e-3
    assert simulation.conserved()["not_orthonormal"] < ROUND_OFF
    assert simulation.conserved()["norm"] == pytest.approx(10, rel=ROUND_OFF)
