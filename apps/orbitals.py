#!/usr/bin/env python3
"""Electron orbitals of a crystal, a stand-in for the data set QMCPACK (4-D: orbital by x by y by z).

    mpirun -n 4 python apps/orbitals.py --grid 32x40x36x36 --eb 1e-4 --output orbitals.bp

The lowest eigenstates of -lap / 2 + V on a periodic grid, in atomic units, where V is a lattice of Gaussian wells of
two kinds, like oxygen and nickel in QMCPACK's nickel oxide, with atoms slightly displaced. Chebyshev-filtered subspace
iteration (Zhou, Saad, Tiago, Chelikowsky 2006): polynomials of the Hamiltonian, with fourth-order differences for lap,
damp the states above the wanted ones; then the orbitals are made orthonormal and turned into the eigenstates within
their span. Each rank holds its slab along x of all orbitals. The field `orbitals` has the shape
(orbitals, nx, ny, nz). The einspline orbitals in the cuSZ paper have 288 x 115 x 69 x 69 values.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from proxy import Array, Block, ProxyError, Simulation, Slabs, main, noise, run_alone, whole_slab

SPACING = 0.5  # bohr
ATOM_DISTANCE = 4.0  # bohr, about
WELLS = ((-3.0, 0.9), (-1.8, 1.1))  # hartree and bohr: depth and width of the two kinds
SHIFT = 0.15  # displacement of atoms from the lattice, bohr
DEGREE = 10  # of the polynomials
SPARE = 4  # states beyond those wanted, which converge slowest
STENCIL = (-5 / 2, 4 / 3, -1 / 12)  # d^2/dx^2 at distances of 0, 1 and 2 cells


class Orbitals(Simulation):
    """A step is one filter and one rotation to eigenstates; `residual` is how far the orbitals still are from them.

    states    (orbitals + SPARE, planes, ny, nz), orthonormal: the sum of squares times the cell's volume is 1
    energies  (orbitals + SPARE), of the states before the last filter
    """

    GRID = (16, 24, 24, 24)
    STEPS = 12
    PERIODIC = "1,2,3"

    def __init__(self, comm: Any, grid: tuple[int, ...], steps: int, seed: int, potential: Array | None = None) -> None:
        """`potential`: this rank's planes of a potential to use instead of the crystal's."""
        self.wanted, *cells = grid
        if len(grid) != 4 or min(cells) < 5 or 2 * (self.wanted + SPARE) > math.prod(cells):
            raise ProxyError(
                f"--grid {'x'.join(map(str, grid))}: at least 5 cells along x, y and z are needed, and more than twice "
                "as many cells as orbitals."
            )
        self.slabs = slabs = Slabs(comm, cells[0], halo=2)
        self.cells, self.volume = tuple(cells), SPACING**3
        self.potential = self._crystal(seed) if potential is None else potential
        n = self.wanted + SPARE
        start = noise(seed, range(slabs.start, slabs.stop), (n, *cells[1:]))
        self.states = np.ascontiguousarray(start.transpose(1, 0, 2, 3))
        # Upper limit of the eigenvalues: the max of the difference operator plus the max of the potential.
        self.top = 8 / SPACING**2 + slabs.largest(self.potential.max())
        self._rotate()

    def _crystal(self, seed: int) -> Array:
        """Wells at the sites of a lattice, alternating in kind; each a product of factors along x, y and z."""
        lengths = [n * SPACING for n in self.cells]
        sites = [max(2 * round(length / ATOM_DISTANCE / 2), 1) for length in lengths]
        shifts = SHIFT * noise(seed, [0], (*sites, 3))[0].clip(-2, 2)
        result = np.zeros((self.slabs.count, *self.cells[1:]))
        for site in np.ndindex(*sites):
            depth, width = WELLS[sum(site) % 2]
            factors = []
            for axis in range(3):
                at = (site[axis] + 0.5) * lengths[axis] / sites[axis] + shifts[site][axis]
                distance = SPACING * np.arange(self.cells[axis]) - at
                distance -= lengths[axis] * np.rint(distance / lengths[axis])
                factors.append(np.exp(-0.5 * (distance / width) ** 2))
            x, y, z = factors
            result += depth * x[self.slabs.own, None, None] * y[:, None] * z
        return result

    def hamiltonian(self, states: Array) -> Array:
        """(-lap / 2 + V) of states of shape (any, planes, ny, nz) (collective)."""
        padded = self.slabs.with_halo(states, 2, axis=1)
        n = states.shape[1]
        result = (3 * STENCIL[0]) * states
        for distance in (1, 2):
            along_x = padded[:, 2 - distance : 2 - distance + n] + padded[:, 2 + distance : 2 + distance + n]
            around = [np.roll(states, distance, axis) + np.roll(states, -distance, axis) for axis in (2, 3)]
            result += STENCIL[distance] * (along_x + around[0] + around[1])
        result *= -0.5 / SPACING**2
        result += self.potential * states
        return result

    def products(self, left: Array, right: Array) -> Array:
        """The matrix of scalar products of states."""
        n = len(left)
        planes = (left[:, i].reshape(n, -1) @ right[:, i].reshape(n, -1).T for i in range(left.shape[1]))
        return self.slabs.ordered_sum(planes, np.zeros((n, n))) * self.volume

    def _combine(self, matrix: Array, states: Array) -> Array:
        """matrix @ states, plane by plane, so that all ranks multiply matrices of the same extents."""
        result = np.empty_like(states)
        for i in range(states.shape[1]):
            result[:, i] = (matrix @ states[:, i].reshape(len(states), -1)).reshape(states[:, i].shape)
        return result

    def _rotate(self) -> None:
        """Make the states orthonormal, and turn them into the eigenstates within their span."""
        for _ in range(2):  # the second pass removes the rounding errors of the first
            lower = np.linalg.cholesky(self.products(self.states, self.states))
            self.states = self._combine(np.linalg.inv(lower), self.states)
        within = self.products(self.states, self.hamiltonian(self.states))
        self.energies, vectors = np.linalg.eigh(0.5 * (within + within.T))
        self.states = self._combine(np.ascontiguousarray(vectors.T), self.states)

    def step(self) -> None:
        low, high = self.energies[-1], self.top
        half, centre = (high - low) / 2, (high + low) / 2
        # The polynomial is scaled so that it is 1 at the lowest energy (Zhou and others).
        sigma = first = half / (self.energies[0] - centre)
        before, now = self.states, (first / half) * (self.hamiltonian(self.states) - centre * self.states)
        for _ in range(DEGREE - 1):
            scale = 1 / (2 / first - sigma)
            after = (2 * scale / half) * (self.hamiltonian(now) - centre * now) - (sigma * scale) * before
            before, now, sigma = now, after, scale
        self.states = now
        self._rotate()

    def fields(self) -> dict[str, Block]:
        return {"orbitals": whole_slab(self.slabs, axis=1)(self.states[: self.wanted])}

    def conserved(self) -> dict[str, float]:
        """The largest deviation from orthonormality, and the number of electrons, the integral of the density."""
        deviation = self.products(self.states, self.states) - np.eye(len(self.states))
        density = (self.states[: self.wanted] ** 2).sum(0)
        return {"not_orthonormal": float(np.abs(deviation).max()), "norm": self.slabs.total(density) * self.volume}

    def residual(self) -> float:
        """The largest |H psi - E psi| of the wanted states (collective)."""
        n = self.wanted
        rest = self.hamiltonian(self.states[:n]) - self.energies[:n, None, None, None] * self.states[:n]
        return max(math.sqrt(self.slabs.total(each**2) * self.volume) for each in rest)


def fields(scale: float = 1.0) -> dict[str, Array]:
    """The orbitals of a small run in this process alone; `scale` multiplies the numbers of orbitals and of cells."""
    return run_alone(Orbitals, scale)


if __name__ == "__main__":
    sys.exit(main(Orbitals))
