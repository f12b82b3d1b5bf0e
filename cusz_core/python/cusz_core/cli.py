"""The command `cusz`: compress, decompress, inspect, verify, tune, bench, devices, and what other packages add."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import mmap
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import __version__, _native, backends, bench, codec, command_line, extensions, preview, tuning, verification
from .arguments import ArchiveLike
from .command_line import (
    DTYPES,
    FailureError,
    Parser,
    UsageError,
    add_json,
    add_parameters,
    extents,
    new_file,
    number,
    parameters_given,
    print_json,
    print_table,
    progress,
    read_npy,
    refuse_overwrite,
    size,
    told_beside,
)
from .info import ArchiveInfo, inspect, json_value
from .parameters import TABLE, Parameters

SUFFIX = ".cusz"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns the exit code: 0, 1 for failures, 2 for usage and parameters."""
    words = list(sys.argv[1:] if argv is None else argv)

    def run() -> int:
        options = parser(words).parse_args(words)
        code: int = options.run(options)
        return code

    return command_line.exit_code_of("cusz", run)


# ------------------------------------------------------------------------------------------------ command line


def parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of the command line, with the commands of all installed packages.

    Args:
        words: the command line. Other packages are not imported if its first word is a command of this package.
    """
    made = Parser(prog="cusz", description="Error-bounded lossy compression of floating-point fields.")
    made.add_argument("--version", action="version", version=f"cusz {__version__}")
    commands = made.add_subparsers(dest="command", metavar="COMMAND", required=True)

    sub = commands.add_parser("compress", help="compress a .npy or raw file")
    sub.add_argument("input", type=Path, help=".npy file, or raw values with --shape and --dtype")
    sub.add_argument("-o", "--output", type=Path, help=f"archive to write (default: INPUT{SUFFIX})")
    goal = sub.add_mutually_exclusive_group(required=True)
    add_parameters(goal, "eb", is_bound_required=False)
    goal.add_argument("--psnr", type=number, metavar="DB", help="in place of a bound: the largest one with this PSNR")
    goal.add_argument("--ratio", type=number, metavar="R", help="the smallest one with this ratio (both: as cusz tune)")
    add_parameters(sub, *(key for key in TABLE if key != "eb"))
    _add_raw_options(sub)
    _add_force(sub)
    add_json(sub)
    sub.set_defaults(run=_compress)

    sub = commands.add_parser("decompress", help="decompress an archive to a .npy or raw file")
    sub.add_argument("archive", type=Path)
    sub.add_argument(
        "-o", "--output", type=Path, help=f"file to write: .npy, or raw values (default: ARCHIVE without {SUFFIX})"
    )
    sub.add_argument(
        "--level",
        type=int,
        default=0,
        metavar="K",
        help="every 2**K-th value along the last three dimensions; cusz inspect lists the levels (default: 0, all)",
    )
    sub.add_argument("--max-bytes", type=int, help="refuse a larger field (for untrusted archives)")
    add_parameters(sub, "backend", "threads")
    _add_force(sub)
    sub.set_defaults(run=_decompress)

    sub = commands.add_parser("inspect", help="describe an archive, or the variables in a directory")
    sub.add_argument("path", type=Path, help="archive, or a directory that another package reads")
    sub.add_argument("--check", action="store_true", help="verify the checksums of payloads as well")
    of_directories = sub.add_argument_group("options for directories")
    of_directories.add_argument("--blocks", action="store_true", help="a line for every block, not for every variable")
    of_directories.add_argument("--variable", action="append", metavar="NAME", help="only this one; repeat for more")
    of_directories.add_argument(
        "--step",
        action="append",
        type=int,
        metavar="N",
        help="only this one, counted from 0, or from the end if negative; repeat for more",
    )
    add_json(sub)
    sub.set_defaults(run=_inspect)

    sub = commands.add_parser("verify", help="prove that an archive keeps its bound")
    sub.add_argument("original", type=Path, help=".npy file, or raw values of the archive's shape and dtype")
    sub.add_argument("archive", type=Path)
    _add_raw_options(sub)
    add_parameters(sub, "backend", "threads")
    add_json(sub)
    sub.set_defaults(run=_verify)

    sub = commands.add_parser(
        "tune",
        help="find the bound for a PSNR or a ratio, or show what a few bounds give",
        description="Finds the absolute bound that gives a PSNR or a ratio, and tries it on the whole field. Without "
        "either, shows what a few bounds give, estimated from a sample if the field has more than 2 million values.",
    )
    sub.add_argument("field", type=Path, help=".npy file, or raw values with --shape and --dtype")
    goal = sub.add_mutually_exclusive_group()
    goal.add_argument("--psnr", type=number, metavar="DB", help="the largest bound found whose PSNR is at least this")
    goal.add_argument("--ratio", type=number, metavar="R", help="the smallest bound found whose ratio is at least this")
    goal.add_argument(
        "--bounds", type=number, nargs="+", metavar="EB", help="to show, as fractions of the value range (1e-1 to 1e-6)"
    )
    add_parameters(sub, *(key for key in TABLE if key not in ("eb", "mode")))
    _add_raw_options(sub)
    add_json(sub)
    sub.set_defaults(run=_tune)

    sub = commands.add_parser("bench", help="measure ratio, errors and speed on fields")
    bench.add_options(sub)
    sub.set_defaults(run=bench.run)

    sub = commands.add_parser("devices", help="show the backends of this build and machine")
    sub.add_argument("--mpi", action="store_true", help="under mpirun or srun: show the device or cores of every rank")
    add_json(sub)
    sub.set_defaults(run=_devices)

    if not words or words[0] not in commands.choices:
        _add_commands_of_others(commands, words)
    return made


def _add_commands_of_others(commands: Any, words: Sequence[str]) -> None:
    """Adds the commands of other packages. One that cannot be imported is an error only if it is the command given."""
    for name, entry in sorted(extensions.of_group(command_line.GROUP).items()):
        if "." in name or name in commands.choices:  # a part of a command
            continue
        try:
            command = command_line.load(name, entry)
        except FailureError as error:
            if words[:1] == [name]:
                raise
            commands.add_parser(name, help=f"not available: {error}".replace("%", "%%"))
            continue
        sub = commands.add_parser(name, help=command.help.replace("%", "%%"))
        command.add_options(sub)
        sub.set_defaults(run=command.run)


def _add_raw_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--shape", type=_shape, metavar="NxNxN", help="of a raw file, slowest dimension first: 256x256x256"
    )
    sub.add_argument("--dtype", choices=DTYPES, help="of a raw file")


def _add_force(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("-f", "--force", action="store_true", help="overwrite the output file")


def _shape(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+([x,]\d+)*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape such as 256x256x256")
    return tuple(int(extent) for extent in re.split("[x,]", text))


# ---------------------------------------------------------------------------------------------------- commands


def _compress(options: argparse.Namespace) -> int:
    output: Path = options.output or Path(f"{options.input}{SUFFIX}")
    refuse_overwrite(output, options.input, options.force)
    field = _read_field(options.input, options.shape, options.dtype)
    given = parameters_given(options)
    if "eb" not in given and "mode" in given:
        raise UsageError("--mode is that of --eb: the bound for --psnr or --ratio is absolute")
    found: tuning.TunedBound | None = None
    started = time.perf_counter()
    with progress(f"compressing {size(field.nbytes)}"):
        if "eb" in given:
            archive = codec.compress_with(field, Parameters(**given))
        else:
            found = tuning.compress_for(field, psnr=options.psnr, ratio=options.ratio, **given)
            assert found.archive is not None  # because it was given the whole field
            archive = found.archive
    seconds = time.perf_counter() - started
    with new_file(output) as file:
        file.write(archive)
    info = inspect(archive)
    rate = field.nbytes / seconds / 1e9
    with told_beside(output):
        if options.json:
            goal = {"psnr": json_value(found.psnr)} if found else {}
            print_json({"output": str(output), "seconds": seconds, "gbps": rate, **goal, **info.to_dict()})
        else:
            psnr = f"PSNR {found.psnr:.2f} dB, " if found else ""
            print(
                f"{output}: {size(info.raw_bytes)} -> {size(info.archive_bytes)}, ratio {info.ratio:.2f}, "
                f"{info.bit_rate:.3f} bits per value, {psnr}bound {_bound(info)}, {seconds:.3f} s, {rate:.2f} GB/s"
            )
    return 0


def _decompress(options: argparse.Namespace) -> int:
    source: Path = options.archive
    _require_file(source)
    output: Path | None = options.output
    if output is None:
        if source.suffix != SUFFIX:
            raise UsageError(f"{source} does not end in {SUFFIX}: name the output with -o")
        output = source.with_suffix("")
    refuse_overwrite(output, source, options.force)
    started = time.perf_counter()
    with _mapped(source) as archive:
        level, dtype = preview.level_of(archive, options.level)
        size_of_level = level.size * dtype.itemsize
        with progress(f"decompressing to {size(size_of_level)}"):
            given = parameters_given(options) | ({"level": options.level} if options.level else {})
            field = codec.decompress(archive, **given, max_bytes=options.max_bytes)
    seconds = time.perf_counter() - started
    with new_file(output) as file:
        if output.suffix == ".npy":  # np.save does not say why it could not write
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(field))
        file.write(field.reshape(-1).data)
    with told_beside(output):
        print(
            f"{output}: {dtype.name} {extents(level.shape)}, {size(size_of_level)}, "
            f"{seconds:.3f} s, {field.nbytes / seconds / 1e9:.2f} GB/s"
        )
    return 0


def _inspect(options: argparse.Namespace) -> int:
    path: Path = options.path
    if path.is_dir():
        return command_line.load("inspect.directory").run(options)
    for option in ("blocks", "variable", "step"):
        if path.exists() and getattr(options, option):
            raise UsageError(f"--{option} is for directories, and {path} is a file")
    with _mapped(path) as archive:
        info = inspect(archive)
        levels = preview.levels(archive)
        if options.check:
            codec.check(archive)
    if options.json:
        print_json({**info.to_dict(), "levels": [dataclasses.asdict(level) for level in levels]})
        return 0
    sections = info.sections
    rows = {
        "archive": f"{path}, {size(info.archive_bytes)}, {info.kind}, format version {info.version}",
        "field": f"{info.dtype.name} {extents(info.shape)}, {size(info.raw_bytes)}",
        "ratio": f"{info.ratio:.2f}, {info.bit_rate:.3f} bits per value",
        "bound": _bound(info) + (f" ({info.eb!r} of the value range)" if info.mode == "rel" else ""),
        "fill": None if info.fill is None else repr(info.fill),
        "coding": None
        if info.kind == "raw"
        else f"{info.predictor}, {info.coder}, step {info.step!r}, {info.bins} bins, lossless: {info.lossless}",
        "tiles": None if info.kind == "raw" else f"{info.tiles} of {extents(info.tile_shape)}",
        "special": None if info.kind == "raw" else f"{info.special} values",
        "outliers": None if info.kind == "raw" else f"{info.out_of_range} codes, {info.unpredictable} values",
        "sections": f"header {sections.header}, codebook {sections.codebook}, index {sections.index}, "
        f"payload {sections.payload} bytes",
        "checksum": f"{info.checksum:08x}" + (" (verified)" if options.check else ""),
    }
    for level in levels[1:]:
        how = "" if level.exact_cost else ", decoded from finer ones"
        needed = "all" if level.needed_bytes == info.archive_bytes else f"the first {size(level.needed_bytes)}"
        rows[f"level {level.number}"] = f"{extents(level.shape)}, needs {needed}{how}"
    for name, text in rows.items():
        if text is not None:
            print(f"{name:10s}{text}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    _require_file(options.archive)
    archive = options.archive.read_bytes()
    info = inspect(archive)
    shape, dtype = options.shape, options.dtype
    if options.original.suffix != ".npy":
        shape = shape or info.shape
        dtype = dtype or {dtype: name for name, dtype in DTYPES.items()}[info.dtype]
    field = _read_field(options.original, shape, dtype)
    with progress(f"verifying {size(field.nbytes)}"):
        result, decoded = verification.verified_and_decoded(field, archive, **parameters_given(options))
        effects = verification.effects(field.reshape(-1), decoded, info.fill)
    if options.json:
        print_json({**result.to_dict(), **effects._asdict()})
        return 0
    rows = {
        "bound": f"holds: {_bound(result)}",
        "max error": f"{result.max_error!r} ({result.max_error_over_eb:.6f} of the bound)",
        "PSNR": f"{result.psnr:.2f} dB",
        "ratio": f"{result.ratio:.2f}, {result.bit_rate:.3f} bits per value",
        "values": f"{result.values}, and {result.special} NaN, infinite or fill, bit for bit",
        "effects": str(effects),
    }
    for name, text in rows.items():
        print(f"{name:10s}{text}")
    return 0


def _tune(options: argparse.Namespace) -> int:
    path: Path = options.field
    field = _read_field(path, options.shape, options.dtype)
    given = parameters_given(options)
    found, outcomes = None, []
    with progress(f"trying bounds on {size(field.nbytes)}"):
        sample = tuning.sample(field, **given)
        if options.psnr is None and options.ratio is None:
            outcomes = tuning.survey(sample, options.bounds or tuning.BOUNDS, **given)
        else:
            found = tuning.find_bound(field, psnr=options.psnr, ratio=options.ratio, **given)
    mark = None if "fill" in given else tuning.likely_fill(sample)
    lowest, highest, values = sample.limits
    if options.json:
        head = {
            "field": str(path),
            "shape": list(field.shape),
            "dtype": field.dtype.name,
            "fill": json_value(given.get("fill")),
        }
        head |= {"min": lowest, "max": highest, "likely_fill": mark and mark.value}
        print_json(head | (found.to_dict() if found else {"bounds": [outcome.to_dict() for outcome in outcomes]}))
        return 0
    limits = f"values {lowest:.6g} to {highest:.6g}" if values else "no finite values"
    print(f"{path}: {field.dtype.name} {extents(field.shape)}, {size(field.nbytes)}, {limits}")
    if mark:
        print(
            f"{tuning.percent(mark.share)} are {mark.value:g}, far from the others: give --fill {mark.value:g} if it "
            "means no data"
        )
    print()
    if found is None:
        columns = {"of range": ".3g", "bound": ".4g", "ratio": ".2f", "bits/value": ".2f", "PSNR": ".1f"}
        figures = [(o.relative, o.eb, o.ratio, o.bit_rate, o.psnr) for o in outcomes]
        rows = [[format(value, form) for value, form in zip(row, columns.values(), strict=True)] for row in figures]
        rows = [[*row, *map(tuning.percent, outcome.effects)] for row, outcome in zip(rows, outcomes, strict=True)]
        print_table([[*columns, "to 0", "sign", "off > 1%", "> 10%"], *rows])
        if not sample.is_field:
            print(f"\nestimated from {sample.share:.0%} of the values")
        ruined = any(o.relative <= tuning.USUAL and o.effects.off_10_percent > tuning.MANY for o in outcomes)
        if ruined and not mark and tuning.has_one_sign(sample):
            print(
                "the values are of one sign, and small ones suffer: --mode pw_rel of cusz compress gives a bound "
                "relative to every value"
            )
        return 0
    relative = "" if math.isnan(found.relative) else f", {found.relative:.2g} of the value range"
    lines = {
        "bound": f"{found.eb!r}{relative}",
        "PSNR": f"{found.psnr:.2f} dB",
        "ratio": f"{found.ratio:.2f}, {found.bit_rate:.3f} bits per value",
        "max error": f"{found.max_error:.6g}",
        "values": str(found.effects),
    }
    for name, text in lines.items():
        print(f"{name:10s}{text}")
    words = [path, "--eb", repr(found.eb), *_repeated(options, given)]
    print(f"\ncusz compress {shlex.join(map(str, words))}")
    return 0


def _repeated(options: argparse.Namespace, given: dict[str, Any]) -> Iterator[str]:
    """The given options, as arguments for another command that also takes them."""
    if options.shape:
        yield from ("--shape", extents(options.shape), "--dtype", options.dtype)
    for key, value in given.items():
        yield f"--{key}={value!r}" if isinstance(value, float) else f"--{key}={value}"  # negative ones, too


def _devices(options: argparse.Namespace) -> int:
    if options.mpi:
        return command_line.load("devices.mpi").run(options)
    found = backends.devices()
    stages = backends.lossless_stages()
    if options.json:
        print_json(
            {
                "version": __version__,
                "format_version": _native.FORMAT_VERSION,
                "backends": [backend.to_dict() for backend in found],
                "lossless": stages,
            }
        )
        return 0
    for backend in found:
        texts = [backend.device]
        if backend.available and backend.threads:
            texts[0] += f", {backend.threads} thread{'s' if backend.threads > 1 else ''} by default"
        elif backend.available:
            texts = [f"device {number}: {name}" for number, name in enumerate(backend.devices)]
        for text in texts:
            print(f"{backend.name:10s}{text}")
    print(f"{'lossless':10s}{', '.join(stages)}")
    return 0


# ------------------------------------------------------------------------------------------------------- files


def _require_file(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"{path} is a directory, not one field: cusz --help lists commands for those")


def _read_field(path: Path, shape: tuple[int, ...] | None, dtype: str | None) -> NDArray[Any]:
    if path.suffix == ".npy":
        if shape is not None or dtype is not None:
            raise UsageError(f"--shape and --dtype are for raw files; {path} has its own")
        return read_npy(path)
    _require_file(path)
    if shape is None or dtype is None:
        raise UsageError(f"{path} is not a .npy file: give --shape (such as 256x256x256) and --dtype (f32 or f64)")
    value_bytes = DTYPES[dtype].itemsize
    expected = value_bytes
    for extent in shape:
        expected *= extent
    actual = path.stat().st_size
    if actual != expected:
        raise UsageError(f"{path} has {actual} bytes; {dtype} of shape {extents(shape)} has {expected}")
    return np.fromfile(path, dtype=DTYPES[dtype]).reshape(shape)


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[ArchiveLike]:
    """The bytes of a file; only the pages that are used are read."""
    with open(path, "rb") as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (ValueError, OSError):  # an empty file, or one that cannot be mapped
            yield file.read()
            return
        try:
            yield mapped
        finally:
            with contextlib.suppress(BufferError):
                mapped.close()


def _bound(of: ArchiveInfo | verification.Verification) -> str:
    if of.mode == "pw_rel":
        return f"{of.eb!r} of every value"
    return f"{of.eb_abs!r}" if of.eb_abs else "0 (every value is exact)"


if __name__ == "__main__":
    sys.exit(main())
