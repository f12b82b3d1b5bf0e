#!/usr/bin/env python3
"""Particles under their own gravity, a stand-in for the data set HACC (1-D: positions and velocities of particles).

    mpirun -n 4 python apps/particles.py --grid 64 --eb 1e-4 --output particles.bp

A particle-mesh simulation from Zel'dovich's initial state to the formation of halos (particle_mesh.py). The fields x,
y, z (in cells of the mesh) and vx, vy, vz (km/s, with cells of 0.5 Mpc/h) are 1-D, one value per particle, and as in
HACC particles are sorted in memory: by their mesh cell, and by their number within a cell. So x is a
staircase, y a saw-tooth of n periods, z of n^2, and the velocities are smooth where the flow is and mixed in halos.
HACC's snapshot in the cuSZ paper has 280,953,867 particles; --grid 655 has about as many.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from particle_mesh import ParticleMesh, drift_factor, kick_factor
from proxy import Array, Block, ProxyError, Simulation, main, run_alone

CELL = 0.5  # Mpc/h
HUBBLE = 100.0  # km/s per Mpc/h


class Particles(Simulation):
    """Leapfrog steps (kick, drift, kick), even in log a."""

    GRID = (48, 48, 48)
    STEPS = 20
    PERIODIC = "particles"

    def __init__(self, comm: Any, grid: tuple[int, ...], steps: int, seed: int) -> None:
        if len(set(grid)) != 1:
            raise ProxyError(f"--grid {'x'.join(map(str, grid))}: the box is a cube, give one number.")
        self.mesh = ParticleMesh(comm, grid[0], steps, seed)
        self.acceleration = self.mesh.acceleration(self.mesh.density())
        self.done = 0

    def step(self) -> None:
        a, b = self.mesh.factors[self.done : self.done + 2]
        middle = np.sqrt(a * b)
        self.mesh.kick(self.acceleration, kick_factor(a, middle))
        self.mesh.drift(drift_factor(a, b))
        self.acceleration = self.mesh.acceleration(self.mesh.density())
        self.mesh.kick(self.acceleration, kick_factor(middle, b))
        self.done += 1
        self.mesh.a = b

    def fields(self) -> dict[str, Block]:
        mesh = self.mesh
        i, j, k = mesh.positions.astype(np.int64)
        order = np.lexsort((mesh.ids, (i * mesh.n + j) * mesh.n + k))
        counts = mesh.slabs.comm.allgather(len(order))
        start = (sum(counts[: mesh.slabs.comm.rank]),)
        velocities = mesh.momenta * (CELL * HUBBLE / mesh.a)  # a dx/dt
        values = np.concatenate([mesh.positions, velocities])[:, order].astype(np.float32)
        names = ("x", "y", "z", "vx", "vy", "vz")
        return {name: Block(value, (sum(counts),), start) for name, value in zip(names, values, strict=True)}

    def conserved(self) -> dict[str, float]:
        """The mass on the mesh, and the particles' momentum relative to the sum of its magnitudes."""
        names = ("momentum_x", "momentum_y", "momentum_z")
        mass = self.mesh.slabs.total(self.mesh.density())
        return {"mass": mass, **dict(zip(names, self.mesh.momentum(), strict=True))}


def fields(scale: float = 1.0) -> dict[str, Array]:
    """The fields of a small run in this process alone; `scale` multiplies the mesh's extents."""
    return run_alone(Particles, scale)


if __name__ == "__main__":
    sys.exit(main(Particles))
