#!/usr/bin/env python3
"""A moist vortex in a stratified, rotating atmosphere, a stand-in for the data set Hurricane ISABEL (3-D, flat cells).

    mpirun -n 4 python apps/hurricane.py --grid 25x125x125 --eb 1e-4 --output hurricane.bp

The incompressible (Boussinesq) equations in a box of 2000 km x 2000 km x 20 km, periodic along x and y, with a
warm-core vortex in gradient-wind and hydrostatic balance and humid air near the sea, on a C-grid:

    dv/dt + v.grad(v) + f k x v = -grad(p) + b k        div(v) = 0

Buoyancy b and water follow from two quantities conserved by parcels (Pauluis and Schumacher 2010): total water, which
is cloud where it exceeds saturation, and the buoyancy left if the cloud evaporated. Cloud turns to rain, which
falls, evaporates in dry air and leaves the box at the bottom (Kessler 1969). Advection is upwind with limited slopes;
the pressure that keeps the flow free of divergence comes from Fourier transforms along x and y and tridiagonal
systems along z. Fields, all of shape (nz, ny, nx): U, V, W (m/s), P (m^2/s^2, without the pressure of the
mean stratification), THETA (K, from the mean), QVAPOR, and QCLOUD and QRAIN (kg/kg), which are 0 almost everywhere.
ISABEL's fields in the cuSZ paper have 100 x 500 x 500 values.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from proxy import (
    Array,
    Block,
    ProxyError,
    Simulation,
    Slabs,
    cuts,
    limited_slope,
    main,
    noise,
    run_alone,
    take,
    whole_slab,
)

WIDTH, HEIGHT = 2.0e6, 2.0e4  # m
CORIOLIS = 5e-5  # 1/s
STRATIFICATION = 8e-5  # 1/s^2
DRAG, DRAG_HEIGHT = 1e-4, 1000.0  # 1/s at the sea; m over which it falls by a factor e
KELVIN = 300.0 / 9.81  # per buoyancy of 1 m/s^2
HEATING = 81.0  # buoyancy (m/s^2) per condensed vapour (kg/kg)
WATER, WATER_HEIGHT = 0.018, 3000.0  # kg/kg at saturation near the sea; m over which it falls by a factor e
WARMER = 2.0  # relative growth of saturation with buoyancy, per m/s^2
WIND, RADIUS = 40.0, 1.5e5  # m/s, m: strongest wind of the vortex, and its distance from the centre
AUTOCONVERSION, CLOUD_STAYS = 1e-3, 3e-4  # 1/s; kg/kg
FALL, EVAPORATION = 7.0, 1e-3  # m/s; 1/s, of rain in dry air
COURANT, LONGEST_STEP = 0.5, 120.0
BUBBLES, BUBBLE_RADIUS = 60, 5e4  # of warm, humid air at random places; m, but at least two cells


class Hurricane(Simulation):
    """Third-order Runge-Kutta steps, as long as the wind allows.

    state   (6, nz, rows, nx): u, v, w at the western, southern and lower faces of cells; dry buoyancy, total water
            without rain, and rain at cell centres. The rows along y are divided over ranks.
    fallen  (1, rows, nx): rain that has left the box, in units of the lowest cells
    """

    GRID = (16, 48, 48)
    STEPS = 60
    PERIODIC = "1,2"

    def __init__(self, comm: Any, grid: tuple[int, ...], steps: int, seed: int) -> None:
        if len(grid) != 3 or min(grid) < 4:
            raise ProxyError(f"--grid {'x'.join(map(str, grid))}: at least 4 cells along z, y and x are needed.")
        nz, ny, nx = self.grid = grid
        self.slabs = slabs = Slabs(comm, ny, halo=2)
        self.spacing = HEIGHT / nz, WIDTH / ny, WIDTH / nx
        self.z = self.spacing[0] * (np.arange(nz) + 0.5)[:, None, None]
        self.saturated = WATER * np.exp(-self.z / WATER_HEIGHT)
        self.pressure = np.zeros((nz, slabs.count, nx))
        self.fallen = np.zeros((1, slabs.count, nx))
        self._prepare_pressure()
        self._set_state(seed)

    def _set_state(self, seed: int) -> None:
        _, ny, nx = self.grid
        _, dy, dx = self.spacing
        rows = self.slabs.own
        # Every field is built from products of one-dimensional factors, which have the same bits on every rank.
        centre_x, centre_y = dx * (np.arange(nx) + 0.5) - WIDTH / 2, dy * (np.arange(ny) + 0.5) - WIDTH / 2
        face_x, face_y = centre_x - dx / 2, centre_y - dy / 2
        gauss = {name: np.exp(-0.5 * (x / RADIUS) ** 2) for name, x in
                 (("x", centre_x), ("y", centre_y), ("west", face_x), ("south", face_y))}  # fmt: skip
        aloft = np.exp(-((self.z / (0.4 * HEIGHT)) ** 2))
        falls = -2 * self.z / (0.4 * HEIGHT) ** 2 * aloft  # d(aloft)/dz
        rotation = WIND * math.sqrt(math.e) / RADIUS
        u = -rotation * aloft * np.outer(centre_y * gauss["y"], gauss["west"])[rows]
        v = rotation * aloft * np.outer(gauss["south"], centre_x * gauss["x"])[rows]
        core = np.outer(gauss["y"], gauss["x"])[rows]
        warm = -core * falls * (CORIOLIS * rotation * RADIUS**2 + aloft * (rotation * RADIUS) ** 2 * core)
        bubbles = np.zeros_like(core)
        for at_x, at_y in 0.15 * WIDTH * noise(seed, range(2), (BUBBLES,)).T:
            radius = max(BUBBLE_RADIUS, 2 * dx, 2 * dy)
            bump_y, bump_x = (np.exp(-(((x - at) / radius) ** 2)) for x, at in ((centre_y, at_y), (centre_x, at_x)))
            bubbles += np.outer(bump_y, bump_x)[rows]
        low = np.exp(-((self.z / 3000.0) ** 2))
        b = STRATIFICATION * self.z + warm + 0.03 * low * bubbles
        water = self.saturated * (0.4 + low * np.minimum(0.45 + 0.1 * core + 0.4 * bubbles, 0.9))
        zero = np.zeros_like(b)
        self.state = np.stack([u, v, zero, b, water, zero])
        self.state[:3] = self._project(self.state[:3])

    def step(self) -> None:
        u, v, w = (self.slabs.largest(np.abs(wind).max()) for wind in self.state[:3])
        dz, dy, dx = self.spacing
        dt = COURANT / max(u / dx + v / dy + w / dz, COURANT / LONGEST_STEP)
        start = self.state
        first = self._stage(start, dt)
        second = self._stage(first, dt, 0.75, start)
        self.state = self._stage(second, dt, 1 / 3, start)
        self._rain(dt)

    def fields(self) -> dict[str, Block]:
        block = whole_slab(self.slabs, axis=1)
        u, v, w, b, water, rain = self.state
        cloud = self._cloud(b, water)
        north = self.slabs.with_halo(v, 1, 1)[:, 2:]
        top = np.concatenate([w[1:], np.zeros_like(w[:1])])
        values = {
            "U": 0.5 * (u + np.roll(u, -1, 2)),
            "V": 0.5 * (v + north),
            "W": 0.5 * (w + top),
            "P": self.pressure,
            "THETA": (b + HEATING * cloud - STRATIFICATION * self.z) * KELVIN,
            "QVAPOR": water - cloud,
            "QCLOUD": cloud,
            "QRAIN": rain,
        }
        return {name: block(value) for name, value in values.items()}

    def conserved(self) -> dict[str, float]:
        """The water in the box and below it (kg/kg, mean over the box), and the dry buoyancy (m/s^2, likewise).

        Cloud that falls out as rain, and rain that evaporates, change the buoyancy by their heat: HEATING times the
        water that has turned to rain is subtracted.
        """
        cells = math.prod(self.grid)
        rain = self.slabs.total(self.state[5], axis=1) + self.slabs.total(self.fallen, axis=1)
        return {
            "water": (self.slabs.total(self.state[4], axis=1) + rain) / cells,
            "buoyancy": (self.slabs.total(self.state[3], axis=1) - HEATING * rain) / cells,
        }

    def _cloud(self, b: Array, water: Array) -> Array:
        """Cloud water: the excess over saturation, which grows with the heat released by condensation."""
        growth = WARMER * self.saturated
        excess = water - self.saturated * np.maximum(1 + WARMER * (b - STRATIFICATION * self.z), 0.1)
        return np.maximum(excess, 0.0) / (1 + HEATING * growth)

    def _padded(self, state: Array) -> Array:
        """The state with two more cells at either end of each axis: periodic, but mirrored at bottom and top."""
        result = self.slabs.with_halo(state, 2, axis=2)
        result = np.concatenate([result[..., -2:], result, result[..., :2]], axis=3)
        mirrored = [result[:, 1::-1], result, result[:, :-3:-1]]
        # w lies on the faces: it is 0 on the bottom and top faces, and changes sign beyond.
        below, above = (edge.copy() for edge in (mirrored[0], mirrored[2]))
        below[2] = -result[2, 2:0:-1]
        above[2, 0], above[2, 1] = 0.0, -result[2, -1]
        return np.concatenate([below, result, above], axis=1)

    def _stage(self, state: Array, dt: float, keep: float = 0.0, start: Array | None = None) -> Array:
        """keep * start + (1 - keep) * (state + dt d(state)/dt), with a divergence-free flow (collective)."""
        rate = self._tendency(state)
        result = state + dt * rate
        if start is not None:
            result = keep * start + (1 - keep) * result
        result[:3] = self._project(result[:3], dt)
        return result

    def _tendency(self, state: Array) -> Array:
        padded = self._padded(state)
        u, v, w, b, water, _ = padded
        rate = np.empty_like(state)
        # The wind through the lower, southern and western faces of each variable's cells: one face more than cells.
        centred = (_faces(w, 0), _faces(v, 1), _faces(u, 2))
        rate[3:] = self._advect(padded[3:], centred)
        for i, axis in ((0, 2), (1, 1), (2, 0)):
            winds = tuple(_faces(_mean(wind, axis), other) for other, wind in ((0, w), (1, v), (2, u)))
            rate[i] = self._advect(padded[i : i + 1], winds)[0]
        inner = (slice(2, -2), slice(2, -2), slice(2, -2))
        v_at_u = _mean(0.5 * (v + np.roll(v, -1, 1)), 2)
        u_at_v = _mean(0.5 * (u + np.roll(u, -1, 2)), 1)
        drag = DRAG * np.exp(-self.z / DRAG_HEIGHT)
        rate[0] += CORIOLIS * v_at_u[inner] - drag * u[inner]
        rate[1] -= CORIOLIS * u_at_v[inner] + drag * v[inner]
        total = b[2:-2] + HEATING * self._cloud(b[2:-2], water[2:-2]) - STRATIFICATION * self.z
        rate[2, 1:] += (0.5 * (total[1:] + total[:-1]))[:, 2:-2, 2:-2]
        rate[2, 0] = 0.0
        return rate

    def _advect(self, q: Array, winds: tuple[Array, ...]) -> Array:
        """-div(wind q) for variables of shape (any, nz + 4, rows + 4, nx + 4), from limited values at the faces."""
        rate = np.zeros((len(q), *(n - 4 for n in q.shape[1:])))
        for axis, wind in enumerate(winds, start=1):
            line = q[(slice(None), *(slice(None) if other == axis else slice(2, -2) for other in (1, 2, 3)))]
            change = take(line, 1, None, axis) - take(line, 0, -1, axis)
            half = 0.5 * limited_slope(take(change, 0, -1, axis), take(change, 1, None, axis))
            cells = take(line, 1, -1, axis)
            value = np.where(wind > 0, take(cells + half, 0, -1, axis), take(cells - half, 1, None, axis))
            flux = wind * value
            rate -= (take(flux, 1, None, axis) - take(flux, 0, -1, axis)) / self.spacing[axis - 1]
        return rate

    def _rain(self, dt: float) -> None:
        """Turns cloud to rain; evaporates and drops rain. Conserves water, and accounts for its heat."""
        b, water, rain = self.state[3:]
        cloud = self._cloud(b, water)
        made = dt * AUTOCONVERSION * np.maximum(cloud - CLOUD_STAYS, 0.0)
        deficit = np.clip(1 - water / (self.saturated * (1 + WARMER * (b - STRATIFICATION * self.z))), 0.0, 1.0)
        made -= np.minimum(dt * EVAPORATION * deficit, 1.0) * np.maximum(rain, 0.0)
        water -= made
        b += HEATING * made
        rain += made
        times = math.ceil(FALL * dt / self.spacing[0])
        for _ in range(times):
            falling = (FALL * dt / self.spacing[0] / times) * np.maximum(rain, 0.0)
            rain -= falling
            rain[:-1] += falling[1:]
            self.fallen += falling[:1]

    def _prepare_pressure(self) -> None:
        """Eliminates the tridiagonal systems along z, one for each pair of waves along y and x."""
        nz, ny, nx = self.grid
        dz, dy, dx = self.spacing
        comm = self.slabs.comm
        columns = cuts(nx // 2 + 1, comm.size)[comm.rank : comm.rank + 2]
        along_x = (2 - 2 * np.cos(2 * np.pi * np.arange(*columns) / nx)) / dx**2
        along_y = (2 - 2 * np.cos(2 * np.pi * np.arange(ny) / ny)) / dy**2
        waves = dz**2 * (along_y[:, None] + along_x)
        self.factors = np.empty((nz, *waves.shape))
        upper = np.zeros_like(waves)
        for k in range(nz):
            diagonal = waves + (k > 0) + (k < nz - 1) - upper
            # The mean pressure is arbitrary: the lowest cell fixes it.
            diagonal[waves == 0] += k == 0
            self.factors[k] = upper = 1 / diagonal

    def _project(self, wind: Array, dt: float = 1.0) -> Array:
        """The wind without its divergence; stores the pressure that removes it in a time dt (collective)."""
        nz, ny, nx = self.grid
        dz, dy, dx = self.spacing
        u, v, w = wind
        north = self.slabs.with_halo(v, 1, 1)[:, 2:]
        divergence = (np.roll(u, -1, 2) - u) / dx + (north - v) / dy
        divergence[:-1] += (w[1:] - w[:-1]) / dz
        divergence[-1] -= w[-1] / dz
        transformed = np.fft.rfft(divergence, axis=2)
        transformed = np.fft.fft(self.slabs.transpose(transformed, ny, 2, 1), axis=1)
        right = -(dz**2) * transformed
        right[0] *= self.factors[0]
        for k in range(1, nz):
            right[k] = (right[k] + right[k - 1]) * self.factors[k]
        for k in range(nz - 2, -1, -1):
            right[k] += self.factors[k] * right[k + 1]
        back = self.slabs.transpose(np.fft.ifft(right, axis=1), nx // 2 + 1, 1, 2)
        p = np.fft.irfft(back, nx, axis=2)
        south = self.slabs.with_halo(p, 1, 1)[:, :-2]
        result = np.stack([u - (p - np.roll(p, 1, 2)) / dx, v - (p - south) / dy, w])
        result[2, 1:] -= (p[1:] - p[:-1]) / dz
        self.pressure = p / dt
        return result


def _mean(field: Array, axis: int) -> Array:
    """The mean of each cell and the one before it along an axis. (Values that wrap around end in halo cells.)"""
    return 0.5 * (field + np.roll(field, 1, axis))


def _faces(wind: Array, axis: int) -> Array:
    """The part of a wind with halo that lies on all faces of the inner cells along `axis`."""
    return wind[tuple(slice(2, -1) if other == axis else slice(2, -2) for other in range(3))]


def fields(scale: float = 1.0) -> dict[str, Array]:
    """The fields of a small run in this process alone; `scale` multiplies the grid's extents."""
    return run_alone(Hurricane, scale)


if __name__ == "__main__":
    sys.exit(main(Hurricane))
