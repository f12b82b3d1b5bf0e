#!/usr/bin/env python3
"""Gas and dark matter in an expanding universe, a stand-in for the data set Nyx (3-D: densities, temperature, winds).

    mpirun -n 4 python apps/cosmology.py --grid 64 --eb 1e-4 --output cosmology.bp

Dark matter consists of particles (particle_mesh.py); the gas is a finite-volume solution of Euler's equations on the
same mesh, and gravity acts between all of it. In the time coordinate dt / a^2, with v = a^2 dx/dt, the equations of a
gas whose ratio of specific heats is 5/3 contain no expansion term (Martel and Shapiro 1998):

    d(rho)/dt + div(rho v) = 0        d(rho v)/dt + div(rho v v + p) = -a rho grad(phi)
    dE/dt + div((E + p) v) = -a rho v.grad(phi)        p = 2/3 (E - rho v^2 / 2)

Each axis in turn is advanced by MUSCL-Hancock steps with the fluxes of Harten, Lax and van Leer (Toro, Riemann
Solvers and Numerical Methods for Fluid Dynamics, 2009). Fields, all of shape (n, n, n): baryon_density and
dark_matter_density over the mean of both, which span orders of magnitude, temperature (K), and velocity_x,
velocity_y, velocity_z of the gas (km/s), with cells of 0.5 Mpc/h. Nyx's snapshot in the cuSZ paper has 512 x 512 x
512 cells.
"""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any

import numpy as np
from particle_mesh import ParticleMesh, drift_factor, kick_factor
from proxy import Array, Block, ProxyError, Simulation, limited_slope, main, run_alone, take, whole_slab

GAMMA = 5 / 3
BARYONS = 0.16  # fraction of the mass
CELL = 0.5  # Mpc/h
HUBBLE = 100.0  # km/s per Mpc/h
KELVIN = 71.5  # for p / rho = 1 (km/s)^2, at a mean molecular weight of 0.59
COLDEST = 1000.0  # K, maintained by the light of the first stars; also the initial temperature
LEAST = 0.1  # initial density of the emptiest cells
COURANT = 0.4


class Cosmology(Simulation):
    """Leapfrog steps of gravity, even in log a; within each, the gas takes as many steps as its signal speeds require.

    gas  (5, planes, n, n): mass, momentum along x, y, z, and energy per cell
    """

    GRID = (40, 40, 40)
    STEPS = 16
    PERIODIC = "0,1,2"

    def __init__(self, comm: Any, grid: tuple[int, ...], steps: int, seed: int) -> None:
        if len(set(grid)) != 1:
            raise ProxyError(f"--grid {'x'.join(map(str, grid))}: the box is a cube, give one number.")
        n = grid[0]
        self.matter = ParticleMesh(comm, n, steps, seed)
        self.slabs = self.matter.slabs
        self.kms = CELL * HUBBLE  # km/s of a cell per Hubble time
        # The gas starts with the linear density, and the velocity of growing modes, which is proportional to gravity.
        contrast = self.slabs.backward(self.matter.linear_contrast(seed), n, n)
        density = np.maximum(1 + self.matter.a * contrast, LEAST)
        pull = self.matter.acceleration(density)[:, :-1]
        self.gas = np.empty((5, *density.shape))
        self.gas[0] = BARYONS * density
        self.gas[1:4] = self.gas[0] * pull / 1.5 * math.sqrt(self.matter.a)
        pressure = self.gas[0] * self._coldest()
        self.gas[4] = pressure / (GAMMA - 1) + 0.5 * (self.gas[1:4] ** 2).sum(0) / self.gas[0]
        self.pull = self._gravity()
        self.order = itertools.cycle(((0, 1, 2), (2, 1, 0)))
        self.done = 0

    def step(self) -> None:
        a, b = self.matter.factors[self.done : self.done + 2]
        middle = math.sqrt(a * b)
        self._kick(kick_factor(a, middle))
        self.matter.drift(drift_factor(a, b))
        left = drift_factor(a, b)
        while left > 0:
            _, velocity, pressure = self._primitive(self.gas)
            signal = np.abs(velocity) + np.sqrt(GAMMA * pressure / self.gas[0])
            dt = min(left, COURANT / self.slabs.largest(signal.max()))
            for axis in next(self.order):
                self._sweep(axis, dt)
            left -= dt
        self.pull = self._gravity()
        self._kick(kick_factor(middle, b))
        self.done += 1
        self.matter.a = b

    def fields(self) -> dict[str, Block]:
        block = whole_slab(self.slabs)
        density, velocity, pressure = self._primitive(self.gas)
        a = self.matter.a
        return {
            "baryon_density": block(density),
            "dark_matter_density": block((1 - BARYONS) * self.matter.density()),
            "temperature": block(pressure / density * (KELVIN * (self.kms / a) ** 2)),
            **{f"velocity_{axis}": block(v * (self.kms / a)) for axis, v in zip("xyz", velocity, strict=True)},
        }

    def conserved(self) -> dict[str, float]:
        """The masses, in cells of mean density, and the momentum relative to the sum of its magnitudes."""
        result = {"gas_mass": self.slabs.total(self.gas[0])}
        result["dark_matter_mass"] = self.slabs.total(self.matter.density()) * (1 - BARYONS)
        for name, gas, matter in zip("xyz", self.gas[1:4], self.matter.momenta, strict=True):
            size = np.abs(gas).sum() + (1 - BARYONS) * np.abs(matter).sum()
            parts = self.slabs.comm.allgather((float(gas.sum() + (1 - BARYONS) * matter.sum()), float(size)))
            result[f"momentum_{name}"] = sum(part for part, _ in parts) / sum(each for _, each in parts)
        return result

    def _coldest(self) -> float:
        """Pressure over density of gas at the temperature COLDEST."""
        return COLDEST / KELVIN * (self.matter.a / self.kms) ** 2

    def _gravity(self) -> Array:
        return self.matter.acceleration((1 - BARYONS) * self.matter.density() + self.gas[0])

    def _kick(self, factor: float) -> None:
        self.matter.kick(self.pull, factor)
        push = factor * self.pull[:, :-1]
        # The work equals the change of kinetic energy, so the temperature does not change.
        self.gas[4] += (push * (self.gas[1:4] + 0.5 * self.gas[0] * push)).sum(0)
        self.gas[1:4] += self.gas[0] * push

    def _primitive(self, gas: Array) -> tuple[Array, Array, Array]:
        """Density, velocity and pressure; the gas is at least as warm as COLDEST."""
        velocity = gas[1:4] / gas[0]
        thermal = gas[4] - 0.5 * (gas[1:4] * velocity).sum(0)
        return gas[0], velocity, np.maximum((GAMMA - 1) * thermal, gas[0] * self._coldest())

    def _sweep(self, axis: int, dt: float) -> None:
        """Advance along one axis; w holds primitive variables (density, velocity, pressure)."""
        along = 1 + axis
        if axis == 0:
            gas = self.slabs.with_halo(self.gas, 2, along)
        else:
            gas = np.concatenate([take(self.gas, -2, None, along), self.gas, take(self.gas, 0, 2, along)], along)
        density, velocity, pressure = self._primitive(gas)
        w = np.concatenate([density[None], velocity, pressure[None]])
        change = take(w, 1, None, along) - take(w, 0, -1, along)
        half = 0.5 * limited_slope(take(change, 0, -1, along), take(change, 1, None, along))
        w = take(w, 1, -1, along)
        # Half a time step of the primitive equations, for the states on both sides of the cells.
        u = w[along]
        drift = u * half
        drift[0] += w[0] * half[along]
        drift[along] += half[4] / w[0]
        drift[4] += GAMMA * w[4] * half[along]
        low, high = w - half - dt * drift, w + half - dt * drift
        lost = np.minimum(np.minimum(low, high) - 0.1 * w, 0.0)[[0, 4]].any(0)  # no slopes towards a vacuum
        low, high = np.where(lost, w, low), np.where(lost, w, high)
        flux = _hll(take(high, 0, -1, along), take(low, 1, None, along), along)
        self.gas -= dt * (take(flux, 1, None, along) - take(flux, 0, -1, along))


def _hll(left: Array, right: Array, along: int) -> Array:
    """Fluxes of (mass, momentum, energy) between two states of (density, velocity, pressure)."""
    (conserved_l, flux_l, sound_l), (conserved_r, flux_r, sound_r) = (_state(w, along) for w in (left, right))
    slow = np.minimum(np.minimum(left[along] - sound_l, right[along] - sound_r), 0.0)
    fast = np.maximum(np.maximum(left[along] + sound_l, right[along] + sound_r), 0.0)
    return (fast * flux_l - slow * flux_r + slow * fast * (conserved_r - conserved_l)) / (fast - slow)


def _state(w: Array, along: int) -> tuple[Array, Array, Array]:
    """Conserved variables, their fluxes and the speed of sound of primitive variables."""
    conserved = np.concatenate([w[:1], w[0] * w[1:4], w[4:]])
    conserved[4] = w[4] / (GAMMA - 1) + 0.5 * w[0] * (w[1:4] ** 2).sum(0)
    flux = conserved * w[along]
    flux[along] += w[4]
    flux[4] += w[4] * w[along]
    return conserved, flux, np.sqrt(GAMMA * w[4] / w[0])


def fields(scale: float = 1.0) -> dict[str, Array]:
    """The fields of a small run in this process alone; `scale` multiplies the mesh's extents."""
    return run_alone(Cosmology, scale)


if __name__ == "__main__":
    sys.exit(main(Cosmology))
