#!/usr/bin/env python3
"""The effect of the error bound on the science: compares compressed fields with the same fields without loss.

    mpirun -n 4 python apps/cosmology.py --eb 1e-3 --output cosmology.bp --reference exact.bp
    mpirun -n 4 python apps/analyse.py cosmology.bp exact.bp --picture cosmology.png

Both files come from the same run of a proxy (apps/proxy.py), on any number of ranks; the second may also be a separate
run with --eb 0. It prints two tables for the last step: for every field the ratio, bound, largest error, PSNR, min, max
and the share of values that moved to another bin of the histogram; and for one field the power spectrum, original and
decoded. The picture shows the spectra of all fields and how much they change, with the spectrum of the error, which
shows the scales that are lost. The domain of a spectrum depends on the proxy: boxes (cosmology), horizontal planes
(hurricane), circles of latitude (climate), each orbital (orbitals), and for particles the density on a mesh of the
particles at x, y, z. For orbitals it also prints how far their scalar products are from orthonormal.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import adios2
import numpy as np
from mpi4py import MPI
from particle_mesh import FRACTION_BITS, corners, wrapped
from proxy import Array, ProxyError, Slabs

from cusz_core import CuszError
from cusz_operator import Reader

#: For each wave number from 1 on: the variance of the original, of the decoded, and of the error.
Spectrum = list[tuple[float, float, float]]

HISTOGRAM_BINS = 256
LINES = 12  # in the table of a spectrum
KEPT = 0.01  # fraction of a wave's variance: with a larger error, the picture counts the wave as lost


@dataclass
class Finding:
    """The results for one field at one step.

    ratio, bound, max_error, psnr   compression ratio, absolute bound, largest |d - d'|, decibels
    low, high, low_back, high_back  min and max, original and decoded
    moved                           share of values in another of 256 bins of the original range
    """

    ratio: float = 1.0
    bound: float = 0.0
    max_error: float = 0.0
    psnr: float = math.inf
    low: float = 0.0
    high: float = 0.0
    low_back: float = 0.0
    high_back: float = 0.0
    moved: float = 0.0


class Comparison:
    """Two files and this rank's share of the work (all methods are collective)."""

    def __init__(self, comm: MPI.Intracomm, compressed: Path, exact: Path, step: int) -> None:
        self.comm = comm
        about = comm.bcast(_attributes(compressed, exact) if comm.rank == 0 else None)
        if isinstance(about, Exception):
            raise ProxyError(str(about))
        self.grid = tuple(map(int, about["grid"].split("x")))
        self.periodic, self.proxy = about["periodic"], about["proxy"]
        files = Reader(compressed, comm), Reader(exact, comm)
        if len(files[0]) != len(files[1]) or not -len(files[0]) <= step < len(files[0]):
            raise ProxyError(f"--step {step}: the files have {len(files[0])} and {len(files[1])} steps")
        self.files, self.steps = files, [file[step] for file in files]
        written = [step.read("diagnostics", (0,), (1,))[0] for step in self.steps]
        if written[0] != written[1]:
            raise ProxyError(
                f"the files' steps are of different times: steps {written[0]:g} and {written[1]:g} of the run"
            )
        self.names = [name for name in self.steps[0].variables if name != "diagnostics"]

    def blocks(self, name: str, axis: int = 0) -> tuple[Array, Array, Slabs]:
        """This rank's slab of a field, original and decoded, in double precision."""
        shape = self.steps[0].shape(name)
        slabs = Slabs(self.comm, shape[axis])
        start, count = [0] * len(shape), list(shape)
        start[axis], count[axis] = slabs.start, slabs.count
        decoded, original = (step.read(name, start, count).astype(np.float64) for step in self.steps)
        return original, decoded, slabs

    def finding(self, name: str) -> Finding:
        """All results for a field except its spectrum."""
        original, decoded, _ = self.blocks(name)
        low, low_back = (self.comm.allreduce(float(x.min()), MPI.MIN) for x in (original, decoded))
        high, high_back = (self.comm.allreduce(float(x.max()), MPI.MAX) for x in (original, decoded))
        error = np.abs(original - decoded)
        n, squares = self.comm.allreduce(error.size), self.comm.allreduce(float(np.square(error).sum()))
        table = self.steps[0].blocks(name)
        result = Finding(low=low, high=high, low_back=low_back, high_back=high_back)
        result.ratio = float(table["raw_bytes"].sum() / table["archive_bytes"].sum())
        result.bound = float(table["eb_abs"].max())
        result.max_error = self.comm.allreduce(float(error.max()), MPI.MAX)
        result.psnr = 10 * math.log10((high - low) ** 2 * n / squares) if squares > 0 else math.inf
        if high > low:
            scale = HISTOGRAM_BINS / (high - low)
            bins = [np.clip((x - low) * scale, 0, HISTOGRAM_BINS - 1).astype(np.int32) for x in (original, decoded)]
            result.moved = self.comm.allreduce(int(np.count_nonzero(bins[0] != bins[1]))) / n
        return result

    def spectra(self, name: str) -> Spectrum:
        """The power spectrum of a field."""
        original, decoded, slabs = self.blocks(name)
        return self._spectra(original, decoded, slabs, tuple(map(int, self.periodic.split(","))))

    def density_spectra(self) -> Spectrum:
        """The power spectrum of the particles' density on the simulation's mesh; each rank holds the whole mesh."""
        n = self.grid[0]
        slabs = Slabs(self.comm, n)
        places = [self.blocks(name)[:2] for name in "xyz"]
        densities: list[Array] = []
        for which in (0, 1):
            mass = np.zeros((n + 1, n, n))
            for index, weight in corners(wrapped(np.stack([place[which] for place in places]), n), n, 0):
                mass += np.bincount(index, weight, minlength=mass.size).reshape(mass.shape)
            mass[0] += mass[n]
            self.comm.Allreduce(MPI.IN_PLACE, mass)
            densities.append(mass[slabs.own] * 2.0 ** (-3 * FRACTION_BITS))
        return self._spectra(densities[0], densities[1], slabs, (0, 1, 2))

    def _spectra(self, original: Array, decoded: Array, slabs: Slabs, axes: tuple[int, ...]) -> Spectrum:
        shape = list(original.shape)
        shape[0] = slabs.n
        # Waves are counted per length of the longest axis. A real transform leaves out conjugates, so most count twice.
        longest = max(shape[axis] for axis in axes)
        waves = [np.fft.fftfreq(shape[axis]) * longest for axis in axes]
        waves[-1] = np.fft.rfftfreq(shape[axes[-1]]) * longest
        twins = np.where((waves[-1] == 0) | (2 * waves[-1] == longest), 1.0, 2.0)
        if 0 in axes:  # the transform leaves the array divided along ky
            share = Slabs(slabs.comm, shape[1])
            waves[1] = waves[1][share.own]
        number = np.rint(np.sqrt(sum(each**2 for each in np.ix_(*waves)))).astype(np.int64)
        shells = longest // 2 + 1
        transform: Callable[[Array], Array] = slabs.forward if 0 in axes else lambda x: np.fft.rfftn(x, axes=axes)
        transformed = [transform(x) for x in (original, decoded, decoded - original)]
        powers = []
        for each in transformed:
            power = np.broadcast_to(twins * np.abs(each) ** 2, each.shape)
            index = np.broadcast_to(number, each.shape)
            inside = index < shells
            powers.append(np.bincount(index[inside], power[inside], minlength=shells))
        total = np.stack(powers)
        slabs.comm.Allreduce(MPI.IN_PLACE, total)
        norm = math.prod(shape) * math.prod(shape[axis] for axis in axes)  # the sum over all waves is the mean square
        return [(float(a), float(b), float(c)) for a, b, c in total[:, 1:].T / norm]

    def not_orthonormal(self) -> tuple[float, float]:
        """The largest deviation of the orbitals' scalar products from 0 and 1, original and decoded."""
        blocks = self.blocks("orbitals", axis=1)[:2]
        products = []
        for states in blocks:
            flat = states.reshape(len(states), -1)
            products.append(flat @ flat.T)
            self.comm.Allreduce(MPI.IN_PLACE, products[-1])
        unit = np.trace(products[0]) / len(products[0])  # one over the volume of a cell
        original, decoded = (float(np.abs(each / unit - np.eye(len(each))).max()) for each in products)
        return original, decoded


def _attributes(*paths: Path) -> dict[str, str] | Exception:
    """The attributes of the run that the files come from, or the reason why they cannot be compared."""
    found = []
    for path in paths:
        if not path.is_dir():
            return ProxyError(f"{path} does not exist")
        index = path / "md.idx"
        if not index.is_file() or index.stat().st_size == 0:  # ADIOS2 crashes when it closes such a file
            return ProxyError(f"{path} holds no complete step")
        with adios2.FileReader(str(path)) as file:
            names = file.available_attributes()
            if not {"proxy", "grid", "periodic"} <= set(names):
                return ProxyError(f"{path} was not written by a proxy")
            found.append({name: str(file.read_attribute(name)) for name in ("proxy", "grid", "periodic")})
    if any(each != found[0] for each in found):
        return ProxyError(f"{' and '.join(map(str, paths))} are of different runs: {found}")
    return found[0]


def spectrum_change(power: Spectrum) -> float:
    """The largest |P' / P - 1| over the longer half of the waves."""
    longer = power[: (len(power) + 1) // 2]
    return max((abs(decoded / original - 1) for original, decoded, _ in longer if original > 0), default=0.0)


def print_tables(findings: dict[str, Finding], spectra: dict[str, Spectrum], which: str) -> None:
    """The fields, and the spectrum of one of them."""
    rows: list[tuple[str, ...]] = [
        ("field", "ratio", "bound", "max error", "PSNR dB", "low -> decoded", "high -> decoded", "moved %")
    ]
    for name, each in findings.items():
        numbers = (f"{each.ratio:.1f}", f"{each.bound:.3g}", f"{each.max_error:.3g}", f"{each.psnr:.1f}")
        extremes = (f"{each.low:.5g} -> {each.low_back:.5g}", f"{each.high:.5g} -> {each.high_back:.5g}")
        rows.append((name, *numbers, *extremes, f"{100 * each.moved:.2f}"))
    _print_table(rows)
    print("\nlargest change of the power spectrum, over the longer half of the waves:")
    print(", ".join(f"{name} {spectrum_change(power):.1e}" for name, power in spectra.items()))
    power = spectra[which]
    print(f"\npower spectrum of {which}: variance by waves per box\n")
    rows = [("waves", "original", "decoded", "decoded/original", "error/original")]
    for wave in sorted({round(x) for x in np.geomspace(1, len(power), min(LINES, len(power)))}):
        original, decoded, error = power[wave - 1]
        ratios = (decoded / original, error / original) if original > 0 else (math.nan, math.nan)
        rows.append((str(wave), f"{original:.4e}", f"{decoded:.4e}", f"{ratios[0]:.6f}", f"{ratios[1]:.1e}"))
    _print_table(rows)


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def change_of_kept(spectra: dict[str, Spectrum]) -> float:
    """The largest |P' / P - 1| over the waves kept, whose error is less than KEPT of their variance."""
    waves = [wave for power in spectra.values() for wave in power]
    kept = (abs(decoded / original - 1) for original, decoded, error in waves if error < KEPT * original)
    return max(kept, default=0.0)


def draw(spectra: dict[str, Spectrum], path: Path, title: str) -> None:
    """Draws the spectra of the fields, original (line), decoded (dots) and of the error (dashes), and below them their
    change, on an axis just longer than the largest change of the waves kept."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 8), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    shown = {name: np.array(power) for name, power in spectra.items() if sum(each[0] for each in power) > 0}
    for i, (name, power) in enumerate(shown.items()):
        waves, colour, scale = np.arange(1, len(power) + 1), f"C{i % 10}", power[:, 0].sum()
        above.loglog(waves, power[:, 0] / scale, color=colour, label=name)
        above.loglog(waves, power[:, 1] / scale, ".", color=colour)
        above.loglog(waves, power[:, 2] / scale, "--", color=colour, linewidth=0.8)
        below.semilogx(waves, power[:, 1] / np.where(power[:, 0] > 0, power[:, 0], np.nan) - 1, color=colour)
    above.set_ylabel("variance over the total (dots: decoded, dashes: error)")
    above.legend(fontsize=8)
    band = change_of_kept(spectra)
    below.set_ylabel("decoded / original - 1")
    below.set_title(f"changes by up to {band:.1e} where the error has less than {KEPT:.0%} of the variance", fontsize=9)
    below.set_ylim(-1.1 * (band or 1), 1.1 * (band or 1))
    below.set_xlabel("waves per box")
    figure.suptitle(title)
    figure.savefig(path, dpi=110)


def run(comm: MPI.Intracomm) -> None:
    """The whole program (collective)."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("compressed", type=Path, help="a file written by a proxy")
    parser.add_argument("exact", type=Path, help="the same run without loss")
    parser.add_argument("--step", type=int, default=-1, help="step of the files, from 0, or from the end if negative")
    parser.add_argument("--field", metavar="NAME", help="whose spectrum is printed (default: the first)")
    parser.add_argument("--picture", type=Path, metavar="PATH", help="draw the spectra (with matplotlib)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the findings")
    options = parser.parse_args()
    both = Comparison(comm, options.compressed, options.exact, options.step)
    findings = {name: both.finding(name) for name in both.names}
    if both.periodic == "particles":
        spectra = {"density": both.density_spectra()}
    else:
        spectra = {name: both.spectra(name) for name in both.names}
    if options.field is not None and options.field not in spectra:
        raise ProxyError(f"--field {options.field}: choose one of {', '.join(spectra)}")
    orthonormal = both.not_orthonormal() if "orbitals" in both.names else None
    if comm.rank == 0:
        print(f"{options.compressed} against {options.exact}, by {comm.size} ranks\n")
        print_tables(findings, spectra, options.field or next(iter(spectra)))
        if orthonormal is not None:
            print(f"\nscalar products differ from 0 and 1 by {orthonormal[0]:.2g}, decoded by {orthonormal[1]:.2g}")
        if options.json is not None:
            fields = {name: asdict(each) for name, each in findings.items()}
            told = {"proxy": both.proxy, "fields": fields, "spectra": spectra, "orthonormal": orthonormal}
            options.json.write_text(json.dumps(told))
        if options.picture is not None:
            draw(spectra, options.picture, f"{both.proxy}: {options.compressed.name} against {options.exact.name}")
    for file in both.files:
        file.close()


def main() -> int:
    """Exit status: 0, or 1 after a message."""
    comm = MPI.COMM_WORLD
    try:
        run(comm)
    except ProxyError as error:  # the same on every rank
        if comm.rank == 0:
            print(f"analyse: {error}", file=sys.stderr, flush=True)
        return 1
    except CuszError as error:  # from reading, which each rank does by itself
        print(f"analyse: rank {comm.rank}: {error}", file=sys.stderr, flush=True)
        comm.Abort(1)
    except Exception:
        traceback.print_exc()
        comm.Abort(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
