#!/usr/bin/env python3
"""A shallow atmosphere with vapour and clouds, a stand-in for the data set CESM-ATM (2-D: latitude by longitude).

    mpirun -n 4 python apps/climate.py --grid 180x360 --eb 1e-4 --output climate.bp

The shallow-water equations on a rotating sphere between the latitudes -75 and 75 degrees, over mountains, with a
fluid of thickness h, vector-invariant on a C-grid (Sadourny 1975):

    dh/dt + div(h v) = 0        dv/dt + (zeta + f) k x v + grad(g (h + b) + v^2 / 2) = nu lap(v)

and vapour, of mass h q per area, carried by the flow: it evaporates where air is dry and rains where it is saturated
(after Bouchut et al. 2009). The cloud fraction follows from the relative humidity (Sundqvist 1978): 0 over much of
the map, 1 in places. Rows run from south to north; longitude is periodic, with walls at both latitudes. Fields, all
of shape (latitudes, longitudes): height (m, of the surface), zonal_wind, meridional_wind (m/s), vorticity (1/s),
humidity (kg/kg), cloud_fraction, rain (kg/kg/s). CESM-ATM's fields in the cuSZ paper have 1800 x 3600 values.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from proxy import Array, Block, ProxyError, Simulation, Slabs, limited_slope, main, noise, run_alone, whole_slab

RADIUS = 6.371e6  # m
GRAVITY = 9.81  # m/s^2
ROTATION = 7.292e-5  # 1/s
EDGE = math.radians(75.0)
DEPTH = 3000.0  # m, mean thickness
JET = 45.0  # m/s, westerlies of the initial state
FASTEST = 100.0  # m/s, more than any wind
COURANT = 0.7
EVAPORATION, RAIN = 1 / 86400.0, 1 / 3600.0  # 1/s
CLOUDS_FROM = 0.75  # relative humidity
WAVES = 24  # in the initial disturbance


class Climate(Simulation):
    """Third-order Runge-Kutta steps of constant length.

    state  (4, rows, longitudes): h at cell centres, u at the eastern faces, v at the northern faces, h q at centres
    """

    GRID = (96, 192)
    STEPS = 240
    PERIODIC = "1"

    def __init__(self, comm: Any, grid: tuple[int, ...], steps: int, seed: int) -> None:
        if len(grid) != 2 or min(grid) < 8:
            raise ProxyError(f"--grid {'x'.join(map(str, grid))}: at least 8 latitudes and 8 longitudes are needed.")
        rows, columns = grid
        self.slabs = slabs = Slabs(comm, rows, halo=2)
        self.dy, dlon = 2 * EDGE / rows, 2 * np.pi / columns
        # Latitudes of all rows and two ghosts at either end, at the centre and at the northern face.
        centre = -EDGE + self.dy * (np.arange(-2, rows + 2) + 0.5)
        north = centre + 0.5 * self.dy
        here = slice(slabs.start, slabs.stop + 4)
        self.cos, self.cos_north = np.cos(centre)[here, None], np.cos(north)[here, None]
        self.dx, self.dx_north = RADIUS * dlon * self.cos, RADIUS * dlon * self.cos_north
        self.coriolis = 2 * ROTATION * np.sin(north)[here, None]
        self.dy *= RADIUS
        narrowest = min(RADIUS * dlon * math.cos(EDGE), self.dy)
        self.dt = COURANT * narrowest / (math.sqrt(GRAVITY * DEPTH) + FASTEST)
        self.viscosity = 0.02 * FASTEST * self.dy
        self.saturation = 0.02 * np.exp(-((centre / math.radians(35.0)) ** 2))[here, None]
        longitude = dlon * (np.arange(columns) + 0.5)
        self._set_state(centre, here, longitude, seed)

    def _set_state(self, latitude: Array, here: slice, longitude: Array, seed: int) -> None:
        """Balanced westerlies in both hemispheres, disturbed by waves; mountains; humid air."""
        bump = np.exp(-(((np.abs(latitude) - math.radians(42.0)) / math.radians(10.0)) ** 2))
        wind = JET * bump
        slope = -(2 * ROTATION * np.sin(latitude) + wind * np.tan(latitude) / RADIUS) * wind / GRAVITY
        balanced = np.cumsum(slope) * self.dy - 0.5 * slope * self.dy
        balanced += DEPTH - balanced[2:-2].mean()
        amplitude, phase, place = noise(seed, range(3), (WAVES,))
        disturbance, self.mountains = np.zeros((2, len(latitude[here]), len(longitude)))
        for i in range(WAVES):
            band = np.exp(-(((latitude - math.radians(25.0) * place[i]) / math.radians(12.0)) ** 2))
            disturbance += amplitude[i] * np.outer(band[here], np.cos((1 + i % 12) * (longitude - np.pi * phase[i])))
        for at, width, peak in ((38.0, 12.0, 1200.0), (-25.0, 9.0, 900.0), (62.0, 8.0, 600.0)):
            across = np.exp(-(((latitude - math.radians(at)) / math.radians(width)) ** 2))
            along = np.exp(-4 * (1 - np.cos(longitude - math.radians(6 * at))) / math.radians(2 * width))
            self.mountains += peak * np.outer(across[here], along)
        h = balanced[here, None] + 20.0 * disturbance - self.mountains
        u = np.repeat(wind[here, None], len(longitude), axis=1)
        humidity = 0.7 * self.saturation * (1 + 0.4 * np.tanh(disturbance))
        self.state = np.stack([h, u, np.zeros_like(h), h * humidity])[:, 2:-2].copy()

    def step(self) -> None:
        start = self.state
        first = start + self.dt * self._tendency(start)
        second = 0.75 * start + 0.25 * (first + self.dt * self._tendency(first))
        self.state = start / 3 + (2 / 3) * (second + self.dt * self._tendency(second))

    def fields(self) -> dict[str, Block]:
        block = whole_slab(self.slabs)
        h, u, v, water = self._with_ghosts(self.state)
        humidity = water / h
        relative = humidity / self._saturation(h)
        cloud = np.clip((relative - CLOUDS_FROM) / (1 - CLOUDS_FROM), 0.0, 1.0) ** 2
        values = {
            "height": h + self.mountains,
            "zonal_wind": 0.5 * (u + west(u)),
            "meridional_wind": 0.5 * (v + np.roll(v, 1, axis=0)),
            "vorticity": np.pad(self._vorticity(u, v), ((0, 1), (0, 0))),
            "humidity": humidity,
            "cloud_fraction": cloud,
            "rain": self._rain(humidity, h),
        }
        return {name: block(value[2:-2]) for name, value in values.items()}

    def conserved(self) -> dict[str, float]:
        """The mass of the fluid: its mean thickness (m)."""
        area = self.slabs.total(np.repeat(self.cos[2:-2], self.state.shape[2], axis=1))
        return {"mass": self.slabs.total(self.state[0] * self.cos[2:-2]) / area}

    def _with_ghosts(self, state: Array) -> Array:
        """The state with two more rows at either end: the neighbours' rows, or mirrored at a wall, where v is 0."""
        padded = self.slabs.with_halo(state, 2, axis=1)
        if self.slabs.start == 0:
            padded[:, :2] = padded[:, 3:1:-1]
            padded[2, 0], padded[2, 1] = -padded[2, 2], 0.0
        if self.slabs.stop == self.slabs.n:
            padded[:, -2:] = padded[:, -3:-5:-1]
            padded[2, -3:] = 0.0
            padded[2, -2] = -padded[2, -4]
            padded[2, -1] = -padded[2, -5]
        return padded

    def _vorticity(self, u: Array, v: Array) -> Array:
        """The relative vorticity at the north-eastern corners of all rows but the last."""
        shear = (u[1:] * self.cos[1:] - u[:-1] * self.cos[:-1]) / (self.dy * self.cos_north[:-1])
        return ((east(v) - v) / self.dx_north)[:-1] - shear

    def _saturation(self, h: Array) -> Array:
        """Humidity at saturation: lower where the surface is high, because air has risen there."""
        return self.saturation * np.clip(1 - (h + self.mountains - DEPTH) / 2000.0, 0.2, 2.0)

    def _rain(self, humidity: Array, h: Array) -> Array:
        return RAIN * np.maximum(humidity - self._saturation(h), 0.0)

    def _tendency(self, state: Array) -> Array:
        """d(state)/dt (collective). Rows of arrays with ghosts are counted from -2; slices say which are meant."""
        h, u, v, water = padded = self._with_ghosts(state)
        humidity = water / h
        h_east, h_north = 0.5 * (h + east(h)), 0.5 * (h[:-1] + h[1:])
        flux_x, flux_y = u * h_east, v[:-1] * h_north  # mass fluxes; flux_y lacks the last row

        def divergence(fx: Array, fy: Array) -> Array:
            """The divergence of fluxes through the eastern faces of all rows and the northern faces from row -1 on."""
            fy = fy * self.cos_north[1:-2]
            return (fx - west(fx))[2:-2] / self.dx[2:-2] + (fy[1:] - fy[:-1]) / (self.dy * self.cos[2:-2])

        rate = np.empty_like(state)
        rate[0] = -divergence(flux_x, flux_y[1:-1])

        # Momentum: potential vorticity at corners times mass fluxes, gradients of the Bernoulli function.
        corner = (self.coriolis[:-1] + self._vorticity(u, v)) / (0.5 * (h_east[:-1] + h_east[1:]))
        kinetic = 0.25 * (u**2 + west(u) ** 2)[1:] + 0.25 * (v[1:] ** 2 + v[:-1] ** 2)
        bernoulli = GRAVITY * (h + self.mountains)[1:] + kinetic  # from row -1 on
        across = 0.25 * (flux_y[1:] + flux_y[:-1])
        across = (across + east(across))[1:-1]
        rate[1] = 0.5 * (corner[2:-1] + corner[1:-2]) * across - (east(bernoulli) - bernoulli)[1:-2] / self.dx[2:-2]
        along = 0.25 * (flux_x[1:] + flux_x[:-1])
        along = (along + west(along))[2:-1]
        rate[2] = -0.5 * (corner + west(corner))[2:-1] * along - (bernoulli[2:-1] - bernoulli[1:-2]) / self.dy
        for i in (1, 2):
            w = padded[i, 1:-1]
            curvature = (east(w) - 2 * w + west(w))[1:-1] / self.dx[2:-2] ** 2 + (
                w[2:] - 2 * w[1:-1] + w[:-2]
            ) / self.dy**2
            rate[i] += self.viscosity * curvature
        if self.slabs.stop == self.slabs.n:
            rate[2, -1] = 0.0

        # Vapour: the mass flux carries the humidity of its upwind side.
        change = east(humidity) - humidity
        half = 0.5 * limited_slope(west(change), change)
        fx = flux_x * np.where(u > 0, humidity + half, east(humidity - half))
        change = humidity[1:] - humidity[:-1]
        half = 0.5 * limited_slope(change[:-1], change[1:])  # from row -1 on
        low, high = (humidity[1:-1] + half)[:-1], (humidity[1:-1] - half)[1:]
        fy = flux_y[1:-1] * np.where(v[1:-2] > 0, low, high)
        source = EVAPORATION * np.maximum(0.9 * self._saturation(h) - humidity, 0.0) - self._rain(humidity, h)
        rate[3] = (h * source)[2:-2] - divergence(fx, fy)
        return rate


def east(field: Array) -> Array:
    """The values one cell further east."""
    return np.roll(field, -1, axis=-1)


def west(field: Array) -> Array:
    """The values one cell further west."""
    return np.roll(field, 1, axis=-1)


def fields(scale: float = 1.0) -> dict[str, Array]:
    """The fields of a small run in this process alone; `scale` multiplies the grid's extents."""
    return run_alone(Climate, scale)


if __name__ == "__main__":
    sys.exit(main(Climate))
