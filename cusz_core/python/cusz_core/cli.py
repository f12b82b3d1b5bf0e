"""The command `cusz`: compress, decompress, inspect, verify, bench, devices, config, check."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib
import json
import mmap
import os
import re
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from . import __version__, _native, backends, codec, verification
from .arguments import ArchiveLike
from .bench import command as bench_command
from .errors import CuszError, ParameterError, UnsupportedError
from .info import inspect, json_value
from .parameters import INTEGER, TABLE, Parameters

SUFFIX = ".cusz"
EXIT_FAILURE, EXIT_USAGE = 1, 2
DTYPES: dict[str, np.dtype[Any]] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


class _UsageError(Exception):
    """A command line that makes no sense."""


class _FailureError(Exception):
    """Work that could not be done, told in one line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _UsageError(f"{message} (see '{self.prog} --help')")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns the exit code: 0, 1 for failures, 2 for usage and parameters."""
    try:
        options = _parser().parse_args(argv)
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except (_UsageError, ParameterError, UnsupportedError) as error:
        return _report(error, EXIT_USAGE)
    except (CuszError, _FailureError) as error:
        return _report(error, EXIT_FAILURE)
    except BrokenPipeError:
        # The reader of our output is gone, as with `| head`; keep Python from complaining when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    except OSError as error:
        name = f": {error.filename}" if error.filename else ""
        return _report(f"{error.strerror or error}{name}", EXIT_FAILURE)
    except MemoryError:
        return _report("out of memory", EXIT_FAILURE)
    except KeyboardInterrupt:
        _report("interrupted", EXIT_FAILURE)
        return 130


def _report(error: object, code: int) -> int:
    text = re.sub(r"\033\[[0-9;]*m", "", str(error))  # ADIOS2 colours its messages
    print(f"cusz: error: {' '.join(text.split())}", file=sys.stderr)
    return code


# ------------------------------------------------------------------------------------------------ command line


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="cusz", description="Error-bounded lossy compression of floating-point fields.")
    parser.add_argument("--version", action="version", version=f"cusz {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    sub = commands.add_parser("compress", help="compress a .npy or raw file")
    sub.add_argument("input", type=Path, help=".npy file, or raw values with --shape and --dtype")
    sub.add_argument("-o", "--output", type=Path, help=f"archive to write (default: INPUT{SUFFIX})")
    _add_parameters(sub, *TABLE)
    _add_raw_options(sub)
    _add_force(sub)
    _add_json(sub)
    sub.set_defaults(run=_compress)

    sub = commands.add_parser("decompress", help="decompress an archive to a .npy or raw file")
    sub.add_argument("archive", type=Path)
    sub.add_argument(
        "-o", "--output", type=Path, help=f"file to write: .npy, or raw values (default: ARCHIVE without {SUFFIX})"
    )
    sub.add_argument("--max-bytes", type=int, help="refuse a field of more bytes (for archives from elsewhere)")
    _add_parameters(sub, "backend", "threads")
    _add_force(sub)
    sub.set_defaults(run=_decompress)

    sub = commands.add_parser("inspect", help="show what an archive, or every block of a .bp directory, says of itself")
    sub.add_argument("path", type=Path, help="archive, or .bp directory")
    sub.add_argument("--check", action="store_true", help="verify the checksums of an archive's payload as well")
    _add_json(sub)
    sub.set_defaults(run=_inspect)

    sub = commands.add_parser("verify", help="prove that an archive keeps its bound")
    sub.add_argument("original", type=Path, help=".npy file, or raw values of the archive's shape and dtype")
    sub.add_argument("archive", type=Path)
    _add_raw_options(sub)
    _add_parameters(sub, "backend", "threads")
    _add_json(sub)
    sub.set_defaults(run=_verify)

    sub = commands.add_parser("bench", help="measure this and other compressors on fields")
    bench_command.add_options(sub, _number)
    sub.set_defaults(run=bench_command.run)

    sub = commands.add_parser("devices", help="show the backends of this build and machine")
    sub.add_argument("--mpi", action="store_true", help="under mpirun or srun: show what every rank works with")
    _add_json(sub)
    sub.set_defaults(run=_devices)

    sub = commands.add_parser("config", help="print the ADIOS2 configuration that switches the operator on")
    sub.add_argument("--environment", action="store_true", help='the environment alone: eval "$(cusz config ...)"')
    sub.add_argument("--variable", action="append", metavar="NAME", help="repeat for more variables")
    sub.add_argument("--eb", action="append", type=_number, help="once for all, or once per variable")
    sub.add_argument("--mode", action="append", choices=_native.MODES, help="the same; rel is per block (default: abs)")
    sub.add_argument("--engine", default="BP5", help="ADIOS2 engine: BP5 (default), BP4 or SST")
    sub.add_argument("--io", default="SimulationOutput", help="name that the program declares its IO with")
    _add_parameters(sub, *(key for key in TABLE if key not in ("eb", "mode")))
    sub.add_argument("--order", choices=("row", "column"), help="column for a Fortran program")
    sub.add_argument(
        "--no-statistics",
        action="store_true",
        help="ADIOS2 finds no minimum and maximum: for programs that put device memory, and to save the time",
    )
    sub.add_argument("--format", choices=("xml", "yaml"), help="this file alone (default: both, and the environment)")
    sub.set_defaults(run=_config)

    sub = commands.add_parser(
        "check", help="tell what is wrong with an ADIOS2 configuration, or the .bp written with it"
    )
    sub.add_argument("paths", type=Path, nargs="+", metavar="PATH", help=".bp directory, XML configuration, or both")
    sub.add_argument(
        "--io", help="of the configuration, where it has several: name that the program declares its IO with"
    )
    _add_json(sub)
    sub.set_defaults(run=_check)
    return parser


def _add_raw_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--shape", type=_shape, metavar="NxNxN", help="of a raw file, slowest dimension first: 256x256x256"
    )
    sub.add_argument("--dtype", choices=DTYPES, help="of a raw file")


def _add_parameters(sub: argparse.ArgumentParser, *keys: str) -> None:
    """Options for parameters of the library, by its table; those that are not given are left out of what is parsed."""
    for row in map(TABLE.__getitem__, keys):
        kind = {} if row.choices else {"type": int if row.type == INTEGER else _number}
        text = row.description + (f" (default: {row.default})" if row.default not in (None, "0") else "")
        sub.add_argument(
            f"--{row.key}",
            choices=row.choices,
            required=row.key == "eb",
            default=argparse.SUPPRESS,
            help=text,
            **kind,  # type: ignore[arg-type]
        )


def _parameters(options: argparse.Namespace) -> dict[str, Any]:
    """The parameters that were given."""
    return {key: value for key, value in vars(options).items() if key in TABLE}


def _add_force(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("-f", "--force", action="store_true", help="overwrite the output file")


def _add_json(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--json", action="store_true", help="print JSON")


def _shape(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+([x,]\d+)*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape such as 256x256x256")
    return tuple(int(extent) for extent in re.split("[x,]", text))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


# ---------------------------------------------------------------------------------------------------- commands


def _compress(options: argparse.Namespace) -> int:
    output: Path = options.output or Path(f"{options.input}{SUFFIX}")
    _refuse_overwrite(output, options.input, options.force)
    field = _read_field(options.input, options.shape, options.dtype)
    parameters = Parameters(**_parameters(options))
    started = time.perf_counter()
    with _progress(f"compressing {_size(field.nbytes)}"):
        archive = codec.compress_with(field, parameters)
    seconds = time.perf_counter() - started
    with _new_file(output) as file:
        file.write(archive)
    info = inspect(archive)
    rate = field.nbytes / seconds / 1e9
    if options.json:
        _print_json({"output": str(output), "seconds": seconds, "gbps": rate, **info.to_dict()})
    else:
        print(
            f"{output}: {_size(info.raw_bytes)} -> {_size(info.archive_bytes)}, ratio {info.ratio:.2f}, "
            f"{info.bit_rate:.3f} bits per value, bound {_bound(info.eb_abs)}, {seconds:.3f} s, {rate:.2f} GB/s"
        )
    return 0


def _decompress(options: argparse.Namespace) -> int:
    source: Path = options.archive
    output: Path | None = options.output
    if output is None:
        if source.suffix != SUFFIX:
            raise _UsageError(f"{source} does not end in {SUFFIX}: name the output with -o")
        output = source.with_suffix("")
    _refuse_overwrite(output, source, options.force)
    archive = source.read_bytes()
    info = inspect(archive)
    started = time.perf_counter()
    with _progress(f"decompressing to {_size(info.raw_bytes)}"):
        field = codec.decompress(archive, **_parameters(options), max_bytes=options.max_bytes)
    seconds = time.perf_counter() - started
    with _new_file(output) as file:
        if output.suffix == ".npy":
            np.save(file, field)
        else:
            file.write(field.reshape(-1).data)
    print(
        f"{output}: {info.dtype.name} {_extents(info.shape)}, {_size(info.raw_bytes)}, "
        f"{seconds:.3f} s, {field.nbytes / seconds / 1e9:.2f} GB/s"
    )
    return 0


def _inspect(options: argparse.Namespace) -> int:
    path: Path = options.path
    if path.is_dir():
        return _inspect_bp(path, options.json)
    with _mapped(path) as archive:
        info = inspect(archive)
    if options.check:
        codec.check(path.read_bytes())
    if options.json:
        _print_json(info.to_dict())
        return 0
    sections = info.sections
    rows = {
        "archive": f"{path}, {_size(info.archive_bytes)}, {info.kind}, format version {info.version}",
        "field": f"{info.dtype.name} {_extents(info.shape)}, {_size(info.raw_bytes)}",
        "ratio": f"{info.ratio:.2f}, {info.bit_rate:.3f} bits per value",
        "bound": f"{_bound(info.eb_abs)}" + (f" ({info.eb!r} of the value range)" if info.mode == "rel" else ""),
        "fill": None if info.fill is None else repr(info.fill),
        "coding": None
        if info.kind == "raw"
        else f"{info.predictor}, {info.coder}, step {info.step!r}, {info.bins} bins, lossless: {info.lossless}",
        "tiles": None if info.kind == "raw" else f"{info.tiles} of {_extents(info.tile_shape)}",
        "special": None if info.kind == "raw" else f"{info.special} values",
        "outliers": None if info.kind == "raw" else f"{info.out_of_range} codes, {info.unpredictable} values",
        "sections": f"header {sections.header}, codebook {sections.codebook}, index {sections.index}, "
        f"payload {sections.payload} bytes",
        "checksum": f"{info.checksum:08x}" + (" (verified)" if options.check else ""),
    }
    for name, text in rows.items():
        if text is not None:
            print(f"{name:10s}{text}")
    return 0


def _inspect_bp(path: Path, as_json: bool) -> int:
    inspect_bp = _operator_package(f"to inspect {path}").inspect_bp
    try:
        rows: list[dict[str, Any]] = list(inspect_bp(str(path)))
    except CuszError:
        raise
    except Exception as error:  # whatever ADIOS2 makes of a damaged directory
        raise _FailureError(f"{path} cannot be read: {error}") from None
    if as_json:
        _print_json([{key: json_value(value) for key, value in row.items()} for row in rows])
        return 0
    if not rows:
        print(f"{path}: no blocks written with the cusz operator")
        return 0
    columns = list(dict.fromkeys(key for row in rows for key in row))
    _print_table([columns] + [[_cell(row.get(key, "")) for key in columns] for row in rows])
    return 0


def _verify(options: argparse.Namespace) -> int:
    archive = options.archive.read_bytes()
    info = inspect(archive)
    shape, dtype = options.shape, options.dtype
    if options.original.suffix != ".npy":
        shape = shape or info.shape
        dtype = dtype or {dtype: name for name, dtype in DTYPES.items()}[info.dtype]
    field = _read_field(options.original, shape, dtype)
    with _progress(f"verifying {_size(field.nbytes)}"):
        result = verification.verify(field, archive, **_parameters(options))
    if options.json:
        _print_json(result.to_dict())
        return 0
    rows = {
        "bound": f"holds: {_bound(result.eb_abs)}",
        "max error": f"{result.max_error!r} ({result.max_error_over_eb:.6f} of the bound)",
        "PSNR": f"{result.psnr:.2f} dB",
        "ratio": f"{result.ratio:.2f}, {result.bit_rate:.3f} bits per value",
        "values": f"{result.values}, and {result.special} NaN, infinite or fill, bit for bit",
    }
    for name, text in rows.items():
        print(f"{name:10s}{text}")
    return 0


def _devices(options: argparse.Namespace) -> int:
    if options.mpi:
        return _devices_of_ranks(options.json)
    found = backends.devices()
    stages = backends.lossless_stages()
    if options.json:
        _print_json(
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


def _devices_of_ranks(as_json: bool) -> int:
    device_map = _operator_package("for --mpi").device_map
    try:
        bindings = device_map()
    except ImportError as error:
        raise _FailureError(f"--mpi needs the Python package mpi4py, which cannot be imported ({error})") from None
    if as_json and bindings:
        _print_json([dataclasses.asdict(binding) for binding in bindings])
    elif bindings:  # on rank 0
        rows = [(str(b.rank), b.node, f"{b.node_rank} of {b.node_size}", _works_with(b)) for b in bindings]
        _print_table([("rank", "node", "on node", "works with"), *rows])
    return 0


def _works_with(binding: Any) -> str:
    """What a rank works with, of a cusz_operator.Binding."""
    if binding.device is None:
        threads = f"{binding.threads} thread{'s' if binding.threads > 1 else ''}"
        return f"CPU, {threads} on cores {_intervals(binding.cores)}: {binding.name}"
    visible = f" of CUDA_VISIBLE_DEVICES={binding.visible}" if binding.visible is not None else ""
    shared = f", shared by {binding.sharing} ranks" if binding.sharing > 1 else ""
    return f"CUDA device {binding.device}{visible}{shared}: {binding.name}"


def _config(options: argparse.Namespace) -> int:
    package = _operator_package("to switch the operator on")
    if options.environment:
        print(f"export ADIOS2_PLUGIN_PATH={shlex.quote(str(package.plugin_path()))}")
        return 0
    if not options.variable or not options.eb:
        raise ParameterError("--variable NAME and --eb EB are needed (or --environment alone)")
    names: list[str] = options.variable
    bounds = _one_per_variable("--eb", options.eb, names)
    modes = _one_per_variable("--mode", options.mode or ["abs"], names)
    configuration = package.configuration
    variables = [
        configuration.OperatedVariable(
            name, package.operator_parameters(**{**_parameters(options), "eb": eb, "mode": mode}, order=options.order)
        )
        for name, eb, mode in zip(names, bounds, modes, strict=True)
    ]
    configuration.check_engine(options.engine)
    formats = {
        "xml": functools.partial(configuration.xml, statistics=not options.no_statistics),
        "yaml": functools.partial(configuration.yaml, statistics=not options.no_statistics),
    }
    try:
        environment = f"export ADIOS2_PLUGIN_PATH={shlex.quote(str(package.plugin_path()))}"
    except CuszError as error:  # the files are of use all the same, where the program runs
        print(f"cusz: warning: {error}", file=sys.stderr)
        environment = ""
    if options.format:
        print(formats[options.format](options.io, options.engine, variables, environment), end="")
        return 0
    sections = {"environment": f"{environment}\n"} if environment else {}
    sections |= {f"adios2.{name}": write(options.io, options.engine, variables) for name, write in formats.items()}
    print("\n".join(f"# {title}\n{text}" for title, text in sections.items()), end="")
    return 0


def _check(options: argparse.Namespace) -> int:
    package = _operator_package("to check ADIOS2's files")
    configurations = [path for path in options.paths if path.suffix.lower() in (".xml", ".yaml", ".yml")]
    runs = [path for path in options.paths if path not in configurations]
    if len(configurations) > 1 or len(runs) > 1:
        raise _UsageError("one .bp directory and one configuration (.xml) can be checked at a time")
    report = package.check(*(runs or [None]), *(configurations or [None]), io=options.io)
    code = EXIT_FAILURE if report.problems else 0
    if options.json:
        _print_json(report.to_dict())
        return code
    if report.plugin:
        print(f"plugin    {report.plugin['path']}, version {report.plugin['version'] or 'unknown'}")
    for io in report.ios:
        bounds = ", ".join(f"{name} ({'no bound' if eb is None else repr(eb)})" for name, eb in io.variables.items())
        print(f"IO        {io.name}, engine {io.engine or 'of the program'}: {bounds or 'nothing is compressed'}")
    if report.variables:
        print()
        columns = ("variable", "type", "blocks", "compressed", "ratio", "remarks")
        rows = [(v.name, v.type, v.blocks, v.compressed, v.ratio or "", v.remarks) for v in report.variables]
        _print_table([columns, *([_cell(value) for value in row] for row in rows)])
        print()
    for problem in report.problems:
        print(f"PROBLEM   {problem}")
    for note in report.notes:
        print(f"note      {note}")
    if not report.problems:
        print("no problem was found")
    return code


def _one_per_variable(option: str, values: list[Any], names: list[str]) -> list[Any]:
    if len(values) == 1:
        return values * len(names)
    if len(values) != len(names):
        raise _UsageError(f"{len(values)} of {option} for {len(names)} of --variable: give it once, or once for each")
    return values


def _operator_package(purpose: str) -> Any:
    try:
        return importlib.import_module("cusz_operator")
    except ImportError as error:
        raise _FailureError(
            f"the package cusz_operator is needed {purpose} and cannot be imported ({error}): "
            "install this project with ADIOS2"
        ) from None


# ------------------------------------------------------------------------------------------------------- files


def _read_field(path: Path, shape: tuple[int, ...] | None, dtype: str | None) -> NDArray[Any]:
    if path.suffix == ".npy":
        if shape is not None or dtype is not None:
            raise _UsageError(f"--shape and --dtype are for raw files; {path} tells its own")
        try:
            field: NDArray[Any] = np.load(path, allow_pickle=False)
        except ValueError as error:
            raise _FailureError(f"{path} is not a readable .npy file: {error}") from None
        except EOFError:
            raise _FailureError(f"{path} is not a readable .npy file: it is empty or cut short") from None
        return field
    if shape is None or dtype is None:
        raise _UsageError(f"{path} is not a .npy file: give --shape (such as 256x256x256) and --dtype (f32 or f64)")
    value_bytes = DTYPES[dtype].itemsize
    expected = value_bytes
    for extent in shape:
        expected *= extent
    actual = path.stat().st_size
    if actual != expected:
        raise _UsageError(f"{path} has {actual} bytes; {dtype} of shape {_extents(shape)} has {expected}")
    return np.fromfile(path, dtype=DTYPES[dtype]).reshape(shape)


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[ArchiveLike]:
    """The bytes of a file, without reading those that are not needed."""
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


def _refuse_overwrite(output: Path, source: Path, force: bool) -> None:
    if not output.exists():
        return
    if output.is_dir():
        raise _UsageError(f"{output} is a directory")
    if source.exists() and output.samefile(source):
        raise _UsageError(f"the output {output} is the input itself")
    if not force:
        raise _UsageError(f"{output} exists: use --force to overwrite it")


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when it is complete."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


# ---------------------------------------------------------------------------------------------------- printing


@contextlib.contextmanager
def _progress(what: str) -> Iterator[None]:
    """Shows on a terminal, after a second, that work goes on; nothing where standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    started = time.monotonic()

    def show() -> None:
        wait = 1.0
        while not done.wait(wait):
            wait = 0.2
            print(f"\r\033[K{what} ... {time.monotonic() - started:.1f} s", end="", file=sys.stderr, flush=True)
        if wait != 1.0:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, allow_nan=False, default=_plain))


def _plain(value: Any) -> Any:
    """What JSON does not know: numpy scalars and arrays, paths."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _print_table(lines: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _intervals(numbers: Sequence[int]) -> str:
    """Ascending numbers, as in "0-3,8"."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{first}-{last}" if first < last else str(first) for first, last in found)


def _size(n: int) -> str:
    if n < 1000:
        return f"{n} bytes"
    size = n / 1000
    for unit in ("kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def _extents(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _bound(eb_abs: float) -> str:
    return f"{eb_abs!r}" if eb_abs else "0 (every value is exact)"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return _extents(value)
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
