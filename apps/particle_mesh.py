"""Gravity of particles on a mesh, shared by apps/particles.py and apps/cosmology.py.

Einstein-de Sitter universe, expansion factor a, time in units of the Hubble time at a = 1, comoving lengths in cells
of a periodic cubic mesh. With momenta p = a^2 dx/dt the equations of motion are

    dx/dt = p / a^2        dp/dt = -grad(phi) / a        lap(phi) = 3/2 delta        da/dt = a^(-1/2)

(Hockney and Eastwood, Computer Simulation Using Particles, 1988, for the method; Zel'dovich 1970 for the initial
state). Particles are deposited with cloud-in-cell weights in fixed point, so sums of masses are integers, whatever the
order of summation: the mesh has the same bits for any number of ranks, and the mass on it is exact. Forces are
interpolated with the same weights from differences of the potential, which makes them equal and opposite: momentum is
conserved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from proxy import Array, ProxyError, Slabs, cuts, noise

FRACTION_BITS = 12  # of a position in its cell: a weight has 36 bits, and 2^17 particles in a cell sum up exactly
START = 0.1  # expansion factor at the beginning; it ends at 1
LINEAR_RMS = 3.0  # of the density contrast at a = 1 under linear growth: well into the formation of structure
TURNOVER = 4.0  # the power spectrum's maximum, in waves per box; it falls with k^-3 beyond


def wrapped(positions: Array, n: int) -> Array:
    """Positions in the periodic box: at least 0, and less than n."""
    result = positions % n
    result[result == n] = 0.0  # a number just below 0 can have the remainder n
    return result


def corners(positions: Array, n: int, first: int) -> Iterator[tuple[Array, Array]]:
    """For each of the eight mesh points around particles: its number, and the particles' weights there.

    positions  (3, particles), in cells, as from `wrapped`
    first      first plane of a slab, where numbering starts; numbers extend into the plane after its last

    Weights are integers; the eight of a particle add up to 2^36.
    """
    cell = np.floor(positions)
    part = np.rint((positions - cell) * 2**FRACTION_BITS)
    sides = (2**FRACTION_BITS - part, part)
    i, j, k = cell.astype(np.int64)
    for di, dj, dk in np.ndindex(2, 2, 2):
        index = ((i + (di - first)) * n + (j + dj) % n) * n + (k + dk) % n
        yield index, sides[di][0] * sides[dj][1] * sides[dk][2]


class ParticleMesh:
    """The particles in one rank's slab of the mesh, and their gravity.

    n          cells of the mesh along each axis, and particles of the whole simulation per axis
    a          expansion factor
    positions  (3, particles here), in cells, from 0 to n (f64)
    momenta    (3, particles here), as above
    ids        (particles here), the number of each in the initial lattice (int64)
    """

    def __init__(self, comm: Any, n: int, steps: int, seed: int) -> None:
        if n < 8:
            raise ProxyError(f"--grid {n}: the mesh needs at least 8 cells along each axis.")
        self.n, self.slabs = n, Slabs(comm, n, halo=2)
        self.factors = np.geomspace(START, 1.0, steps + 1)
        self.a = START
        waves = 2 * np.pi * np.fft.fftfreq(n)
        mine = cuts(n, comm.size)[comm.rank : comm.rank + 2]
        self.waves = (waves[:, None, None], waves[mine[0] : mine[1], None], 2 * np.pi * np.fft.rfftfreq(n))
        with np.errstate(divide="ignore"):
            self.green = -1.0 / sum(4 * np.sin(wave / 2) ** 2 for wave in self.waves)
        self.green[~np.isfinite(self.green)] = 0.0  # type: ignore[index]
        self._zeldovich(seed)

    def linear_contrast(self, seed: int) -> Array:
        """A Gaussian random density contrast grown linearly to a = 1, transformed as by `Slabs.forward`."""
        n, slabs = self.n, self.slabs
        square = sum(wave**2 for wave in self.waves)
        ratio = square * (n / (2 * np.pi * TURNOVER)) ** 2
        power = np.sqrt(ratio) / (1 + ratio) ** 2
        twice = np.full(n // 2 + 1, 2.0)  # how many waves each kz stands for
        twice[0] = 1.0
        if n % 2 == 0:
            twice[-1] = 1.0
        power *= LINEAR_RMS**2 * n**3 / slabs.total(power * twice, axis=1)
        return slabs.forward(noise(seed, range(slabs.start, slabs.stop), (n, n))) * np.sqrt(power)

    def _zeldovich(self, seed: int) -> None:
        """Places particles on a lattice, displaced and moving as in linear growth of the density contrast."""
        n, slabs = self.n, self.slabs
        # At the mesh's own frequency a derivative of a real field has no sign, and the lattice no wave.
        sharp = [np.where(np.abs(wave) < np.pi, wave, 0.0) for wave in self.waves]
        square = sum(wave**2 for wave in self.waves)
        square[square == 0] = 1.0  # type: ignore[index]
        potential = self.linear_contrast(seed) / square
        shift = np.stack([slabs.backward(1j * wave * potential, n, n).ravel() for wave in sharp])
        lattice = np.indices((slabs.count, n, n)).reshape(3, -1) + 0.5
        lattice[0] += slabs.start
        self.ids = np.arange(shift.shape[1], dtype=np.int64) + slabs.start * n**2
        self.positions, self.momenta = lattice + self.a * shift, self.a**1.5 * shift
        self._migrate()

    def _migrate(self) -> None:
        """Wrap positions into the box, and move every particle to the rank whose slab it is in."""
        self.positions = wrapped(self.positions, self.n)
        comm = self.slabs.comm
        if comm.size == 1:
            return
        owner = np.searchsorted(self.slabs.cuts, self.positions[0], side="right") - 1
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=comm.size)
        rows = np.concatenate([self.positions, self.momenta, self.ids.view(np.float64)[None]]).T[order]
        arriving = np.empty_like(counts)
        comm.Alltoall(counts, arriving)
        received = np.empty((int(arriving.sum()), 7))
        comm.Alltoallv([np.ascontiguousarray(rows), 7 * counts], [received, 7 * arriving])
        columns = np.ascontiguousarray(received.T)
        self.positions, self.momenta, self.ids = columns[:3], columns[3:6], columns[6].view(np.int64)

    def density(self) -> Array:
        """Particles per cell on this rank's planes: f64 of shape (planes, n, n), multiples of 2^-36."""
        shape = (self.slabs.count + 1, self.n, self.n)
        mass = np.zeros(shape)
        for index, weight in corners(self.positions, self.n, self.slabs.start):
            mass += np.bincount(index, weight, minlength=mass.size).reshape(shape)
        above = self.slabs.with_halo(mass, 1)[0]  # from the rank below, whose plane after the last is our first
        mass[0] += above
        return mass[:-1] * 2.0 ** (-3 * FRACTION_BITS)

    def acceleration(self, density: Array) -> Array:
        """-grad(phi) at the mesh points, including the next plane: (3, planes + 1, n, n). The mean density is 1."""
        n, slabs = self.n, self.slabs
        potential = slabs.backward(1.5 * self.green * slabs.forward(density), n, n)
        around = slabs.with_halo(potential, 2)
        centre = around[2:-1]
        along_x = around[1:-2] - around[3:]
        others = [np.roll(centre, 1, axis) - np.roll(centre, -1, axis) for axis in (1, 2)]
        return 0.5 * np.stack([along_x, *others])

    def kick(self, acceleration: Array, factor: float) -> None:
        """p += factor * acceleration, at the particles."""
        flat = acceleration.reshape(3, -1)
        pull = np.zeros_like(self.momenta)
        for index, weight in corners(self.positions, self.n, self.slabs.start):
            pull += weight * flat[:, index]
        self.momenta += (factor * 2.0 ** (-3 * FRACTION_BITS)) * pull

    def drift(self, factor: float) -> None:
        """x += factor * p (collective: particles change ranks)."""
        self.positions += factor * self.momenta
        self._migrate()

    def momentum(self) -> list[float]:
        """The sum of all particles' momenta along each axis, over the sum of their magnitudes."""

        def total(values: Array) -> float:
            return sum(self.slabs.comm.allgather(float(values.sum())))

        return [total(p) / total(np.abs(p)) for p in self.momenta]


def kick_factor(a: float, b: float) -> float:
    """The integral of dt / a from expansion factor a to b."""
    return float(2 * (np.sqrt(b) - np.sqrt(a)))


def drift_factor(a: float, b: float) -> float:
    """The integral of dt / a^2 from expansion factor a to b."""
    return float(2 * (1 / np.sqrt(a) - 1 / np.sqrt(b)))
