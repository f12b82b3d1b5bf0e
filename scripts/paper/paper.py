#!/usr/bin/env python3
"""Measures the tables and figures of the cuSZ paper: docs/benchmarks/paper/README.md, its figures and results.json.

    .venv/bin/python scripts/paper/paper.py     # everything; the first time it installs zfp and SZ into .venv-peers
    ... paper.py --without-peers                # installs nothing: rows of zfp and SZ may say that they are missing
    ... paper.py --sdrbench FOLDER              # on the paper's own data, if available (sdrbench.py)
    ... paper.py --from results.json            # only the report, from an earlier measurement

On a machine with a GPU and no .venv, use the Python of scripts/gpu, with --without-peers; the results can be reported
elsewhere with --from.

Fields are those of the proxies in apps/, one for each of the paper's five datasets. Three things are measured on them:
the paper's algorithm in its own setting (paper_reference.py, in NumPy), the engine of `cusz_core`, and zfp and SZ-1.4.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paper_reference as reference
import paper_report
import sdrbench
from numpy.typing import NDArray

import cusz_core as cusz

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))

import runner
from comparison import tools
from runner import ROOT, Failure, Row, median_seconds, say

sys.path.append(str(ROOT / "apps"))

Array = NDArray[Any]

#: 4.2: the bound for all tables, and those for the rate-distortion curves; relative to the value range.
VALREL = 1e-4
BOUNDS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5)
#: Bits per value of zfp's fixed-rate mode.
RATES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20)
#: Table 3.
BINS = (128, 256, 512, 1024, 2048, 4096, 8192)
#: Table 6: the paper has at least 4000 threads, on fields a hundred times as large.
MIN_CHUNKS = 60
PERCENTILES = (1, 25, 50, 75, 99)


#: For each dataset of the paper's Table 2 the module in apps/ that stands for it, and the scale of its grid along each
#: axis, for fields of some million values.
PROXIES = {
    "HACC": ("particles", 2.0),
    "CESM-ATM": ("climate", 3.0),
    "Hurricane": ("hurricane", 2.0),
    "Nyx": ("cosmology", 2.0),
    "QMCPACK": ("orbitals", 1.5),
}
#: Where the paper draws rate-distortion curves, Figures 6 and 7.
CURVES = ("Hurricane", "Nyx")
#: Table 8: fields of the hurricane that the benchmark also has as logarithms.
LOGARITHMS = ("CLOUD", "PRECIP", "QCLOUD", "QGRAUP", "QICE", "QRAIN", "QSNOW")


# ------------------------------------------------------------------------------------------------------------ fields


@dataclasses.dataclass(frozen=True)
class Field:
    dataset: str
    name: str
    origin: str
    x: Array


def proxy_fields(dataset: str, factor: float) -> Iterator[Field]:
    """The fields of a proxy, its grid scaled by `factor`, and the logarithms that the benchmark also has."""
    proxy, scale = PROXIES[dataset]
    say(f"running apps/{proxy}.py, its grid times {scale * factor:g}")
    for name, x in importlib.import_module(proxy).fields(scale * factor).items():
        yield Field(dataset, name, f"apps/{proxy}.py", np.ascontiguousarray(x))
        if dataset == "Hurricane" and name in LOGARITHMS:
            yield Field(dataset, f"{name}.log10", f"apps/{proxy}.py", logarithms(x))


def logarithms(x: Array) -> Array:
    """log10 of a field; values that are not positive are replaced by the smallest positive one."""
    positive = x[x > 0]
    least = positive.min() if positive.size else x.dtype.type(1)
    return np.log10(np.maximum(x, least))


def sdrbench_fields(options: argparse.Namespace) -> Iterator[Field]:
    """The fields in a folder; from those larger than `--max-mb`, only the first planes."""
    names = {"CESM-ATM-3D": "CESM-ATM", "QMCPACK-orbitals-last": "QMCPACK"}
    for file in sdrbench.find(options.sdrbench, options.shrink):
        x = file.load()
        planes = max(1, int(options.max_mb * 1e6 / x.nbytes * len(x)))
        yield Field(names.get(file.dataset.name, file.dataset.name), file.field, file.path.name, x[:planes])


def fields_of(options: argparse.Namespace) -> Iterator[Field]:
    if options.sdrbench:
        yield from sdrbench_fields(options)
    else:
        for dataset in PROXIES:
            yield from proxy_fields(dataset, options.scale)


# -------------------------------------------------------------------------------------------- the paper's algorithm


def gbps(x: Array, seconds: float) -> float:
    return x.nbytes / seconds / 1e9


def codebook_of(tree: reference.Tree, bins: int) -> reference.Codebook:
    """The step that Table 3 calls getting the codebook."""
    return reference.canonise(reference.base_codebook(tree, bins)[0])


def reference_row(x: Array, repeat: int) -> Row:
    """Tables 4, 5, 7, 8: the stages of paper_reference.py one by one, in seconds, and their results on the field."""
    eb = reference.absolute_bound(x, VALREL)
    extents = reference.as_tiled(x.shape)
    tile, field = reference.TILES[len(extents)], x.reshape(extents)
    times: dict[str, float] = {}

    def stage(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        call = functools.partial(function, *arguments)
        times[name] = median_seconds(call, repeat)
        return call()

    def quantise() -> tuple[Array, Array]:
        integers = reference.prequantise(field, eb)
        return reference.postquantise(reference.lorenzo_deltas(integers, tile), integers)

    codes, outliers = stage("quantise", quantise)
    counts = stage("histogram", reference.histogram, codes)
    tree = stage("tree", reference.build_tree, counts)
    book = stage("codebook", codebook_of, tree, counts.size)
    flat = codes.ravel().astype(np.intp)  # numpy's index type: the conversion is not part of encoding
    encoded = {}
    for bits in (32, 64):
        if bits >= reference.word_bits(book):
            words = reference.words_of(book, bits)
            encoded[bits] = stage(f"encode{bits}", reference.encode, flat, words)
    chosen = encoded[reference.word_bits(book)]
    chunk = reference.chunk_of(x.size)
    stream, lengths = stage("deflate", reference.deflate, chosen, chunk)
    stage("inflate", reference.inflate, stream, lengths, book, x.size, chunk)
    back = stage("reverse", reference.reversed_dual_quantisation, codes, outliers, eb, tile, reference.BINS)

    archive, y = reference.compress(x, VALREL), back.reshape(x.shape)
    return {
        "seconds": times,
        "rate": archive.rate,
        "psnr": reference.psnr(x, y),
        "beyond_bound": int((np.abs(x.astype(np.float64) - y) > eb).sum()),
        "max_error_over_eb": float(np.abs(x.astype(np.float64) - y).max()) / eb,
        "outliers": int(outliers.size),
        "entropy": reference.entropy(codes),
        "widest": int(book.widths.max()),
        "word": archive.word,
        "chunk": chunk,
    }


def deltas_of(x: Array) -> tuple[Array, Array]:
    """The arguments of `postquantise`."""
    extents = reference.as_tiled(x.shape)
    integers = reference.prequantise(x, reference.absolute_bound(x, VALREL)).reshape(extents)
    return reference.lorenzo_deltas(integers, reference.TILES[len(extents)]), integers


def chunk_rows(x: Array, repeat: int) -> list[Row]:
    """Table 6: deflating and inflating in chunks of different sizes."""
    codes, _ = reference.postquantise(*deltas_of(x))
    counts = reference.histogram(codes)
    book = codebook_of(reference.build_tree(counts), counts.size)
    encoded = reference.encode(codes, reference.words_of(book, reference.word_bits(book)))
    rows = []
    for chunk in reference.chunk_sizes(x.size, MIN_CHUNKS):
        deflate = functools.partial(reference.deflate, encoded, chunk)
        stream, lengths = deflate()
        inflate = functools.partial(reference.inflate, stream, lengths, book, x.size, chunk)
        rows.append(
            {
                "chunk": chunk,
                "threads": int(lengths.size),
                "deflate_gbps": gbps(x, median_seconds(deflate, repeat)),
                "inflate_gbps": gbps(x, median_seconds(inflate, repeat)),
                "overhead": (8 * stream.nbytes + 32 * lengths.size) / int(lengths.sum()) - 1,
            }
        )
    return rows


def reference_curve(x: Array) -> list[Row]:
    """Figures 6 to 8."""
    rows = []
    for eb in BOUNDS:
        try:
            archive = reference.compress(x, eb)
        except ValueError:  # values too large for exact integers in single precision
            continue
        rows.append({"eb": eb, "rate": archive.rate, "psnr": reference.psnr(x, reference.decompress(archive))})
    return rows


def codebook_rows(x: Array, repeat: int) -> list[Row]:
    """Table 3: times for a codebook by number of bins: the reference on a field, and an upper limit for the engine.

    The engine has no internal timers. It gets 2^18 random values that use all bins equally, so that prediction gains
    nothing: the time of the whole call is an upper limit for its codebook.
    """
    deltas, integers = deltas_of(x)
    rng = np.random.default_rng(0)
    rows = []
    for bins in BINS:
        counts = reference.histogram(reference.postquantise(deltas, integers, bins)[0], bins)
        tree = reference.build_tree(counts)
        book = codebook_of(tree, bins)
        even = rng.integers(1 - bins // 2, bins // 2, 1 << 18).astype(np.float32)
        calls: dict[str, Callable[[], object]] = {
            "tree_ms": functools.partial(reference.build_tree, counts),
            "codebook_ms": functools.partial(codebook_of, tree, bins),
        }
        row: Row = {"bins": bins, "symbols": int(book.symbols.size), "widest": int(book.widths.max())}
        row |= {name: 1e3 * median_seconds(call, repeat) for name, call in calls.items()}
        row["engine_ms"] = {}
        for backend in backends():
            call = functools.partial(
                cusz.compress, even, 0.5, bins=bins, threads=1, backend=backend, predictor="lorenzo"
            )
            row["engine_ms"][backend] = 1e3 * median_seconds(call, repeat)
        rows.append(row)
    return rows


# ---------------------------------------------------------------------------------------------------------- the engine


def backends() -> list[str]:
    return [backend.name for backend in cusz.devices() if backend.available]


def engine_speeds(x: Array, threads: int, repeat: int) -> Row:
    """One field at VALREL: ratio, errors, and 10^9 raw bytes a second from host memory to host memory, medians.

    Raises:
        cusz.BoundError: a value came back beyond the bound.
    """
    options: Any = {"threads": threads, "backend": "cpu"}
    archive = bytes(cusz.compress(x, VALREL, "rel", predictor="lorenzo", **options))
    found = cusz.verify(x, archive, threads=threads)
    out, back = np.empty(cusz.max_archive_bytes(x.shape, x.dtype), np.uint8), np.empty_like(x)
    calls: dict[str, Callable[[], object]] = {
        "compress_gbps": lambda: cusz.compress(x, VALREL, "rel", predictor="lorenzo", out=out, **options),
        "decompress_gbps": lambda: cusz.decompress(archive, out=back, **options),
    }
    return {
        **{name: getattr(found, name) for name in ("ratio", "bit_rate", "psnr", "max_error_over_eb")},
        **{name: gbps(x, median_seconds(call, repeat)) for name, call in calls.items()},
    }


def engine_row(x: Array, threads: int, repeat: int) -> Row:
    """Tables 5, 7, 8: one thread, `threads` threads, and the pass over the field that finds its range."""
    one = engine_speeds(x, 1, repeat)
    row = {**one, "range_gbps": gbps(x, median_seconds(lambda: cusz.value_range(x, threads=1), repeat))}
    if threads > 1:
        many = engine_speeds(x, threads, repeat)
        row |= {f"threads_{what}": many[what] for what in ("compress_gbps", "decompress_gbps")}
    return row


def engine_curve(x: Array) -> list[Row]:
    """Figures 6 to 8."""
    rows = []
    for eb in BOUNDS:
        archive = cusz.compress(x, eb, "rel", predictor="lorenzo")
        rows.append({"eb": eb, "rate": 8 * len(archive) / x.size, "psnr": cusz.verify(x, archive).psnr})
    return rows


def gpu_rows(fields: Sequence[Field], repeat: int) -> tuple[list[Row], Row]:
    """Tables 3 and 7 on a GPU, by scripts/bench/gpu.py: rows, and its name or the reason why there are none."""
    import gpu

    try:
        options = gpu.parser().parse_args(["--repeat", str(repeat)])
        machine = gpu.open_machine(options)
    except Failure as error:
        return [], {"gpu": None, "gpu_missing": str(error)}
    rows = []
    for n, field in enumerate(fields):
        say(f"GPU: {field.dataset} {field.name}")
        for bins in (64, *(BINS if n == 0 else ())):
            task = gpu.Task(machine.cupy.asarray(field.x), "rel", VALREL, None, bins)
            rows.append({"bins": bins, **machine.row(f"{field.dataset} {field.name}", field.x, task)})
    return rows, {"gpu": gpu.head(machine.cupy)["gpu"], "gpu_missing": None}


# ----------------------------------------------------------------------------------------------- the other compressors


def peers_here() -> Row:
    """The installed peers: a version, or None and the reason."""
    found = {}
    for name, tool in (("zfp", "zfp"), ("sz14", "SZ2")):
        known = next(each for each in tools.TOOLS if each.name == tool)
        missing = known.missing()
        found[name] = {"version": None if missing else known.version(), "missing": missing}
    return found


def zfp_curve(x: Array, repeat: int) -> list[Row]:
    """Tables 5 and 7, Figures 6 to 8: zfp's fixed-rate mode, the one that cuZFP has; 4-D fields as 3-D ones."""
    imagecodecs: Any = importlib.import_module("imagecodecs")
    field = x.reshape(reference.as_tiled(x.shape))
    rows = []
    for rate in RATES:
        encode = functools.partial(imagecodecs.zfp_encode, field, rate, mode="rate")
        archive = encode()
        decode = functools.partial(imagecodecs.zfp_decode, archive)
        rows.append(
            {
                "asked": rate,
                "rate": 8 * len(archive) / x.size,
                "psnr": reference.psnr(x, decode().reshape(x.shape)),
                "compress_gbps": gbps(x, median_seconds(encode, repeat)),
                "decompress_gbps": gbps(x, median_seconds(decode, repeat)),
            }
        )
    return rows


#: 4.1: 1,024 bins, best_compression, gzip at best speed. Without regression SZ 2.1 predicts as SZ-1.4 does.
SZ14 = """\
[ENV]
dataEndianType = LITTLE_ENDIAN_DATA
sol_name = SZ
[PARAMETER]
max_quant_intervals = 65536
quantization_intervals = 1024
predThreshold = 0.99
sampleDistance = 100
losslessCompressor = GZIP_COMPRESSOR
withLinearRegression = NO
szMode = SZ_BEST_COMPRESSION
gzipMode = Gzip_BEST_SPEED
errorBoundMode = REL
absErrBound = 1
relBoundRatio = 1E-4
"""


def sz14_row(x: Array, repeat: int) -> Row:
    """Tables 7 and 8: SZ-1.4, reproduced by SZ 2.1 in the paper's setting."""
    # It does not give 4-D fields back correctly.
    codec = tools._Sz2(tools.Task(x.reshape(reference.as_tiled(x.shape)), "rel", VALREL, 0.0, True), tools.Buffers(x))
    functions = codec.sz2.functions
    codec.bound = (codec.sz2.REL, 0.0, VALREL, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "sz.config"
        settings.write_text(SZ14)
        if functions.SZ_Init(str(settings).encode()) != 0:
            raise RuntimeError("SZ_Init failed")
    row = {"compress_gbps": gbps(x, median_seconds(codec.compress, repeat))}
    archive = codec.compress().tobytes()
    row |= {
        "rate": 8 * len(archive) / x.size,
        "psnr": reference.psnr(x, codec.decompress(archive).reshape(x.shape)),
        "decompress_gbps": gbps(x, median_seconds(lambda: codec.decompress(archive), repeat)),
    }
    functions.SZ_Finalize()  # it crashes when it compresses again after decompressing
    return row


def sz14_apart(x: Array, repeat: int) -> Row:
    """The row of `sz14_row`, or {"error": ...} where the library failed or crashed."""
    row, how = runner.apart(sz14_row, x, repeat)
    return row or {"error": how}


# ---------------------------------------------------------------------------------------------------------------- all


def percentiles(x: Array) -> Row:
    """Table 9: the distribution of the values, and the share within a bound of 0 and of the min."""
    low, high = float(x.min()), float(x.max())
    row: Row = {"min": low, "max": high, "range": high - low}
    row |= {f"{p}%": float(v) for p, v in zip(PERCENTILES, np.percentile(x, PERCENTILES), strict=True)}
    for name, eb in (("eb", VALREL * (high - low)), ("eb/10", VALREL * (high - low) / 10)):
        row[name] = eb
        row[f"within {name} of 0"] = float((np.abs(x) <= eb).mean())
        row[f"within {name} of min"] = float((x <= np.float64(low) + eb).mean())
    return row


def field_row(field: Field, first: bool, here: Row, options: argparse.Namespace) -> Row:
    """All results for one field except the codebooks."""
    x, repeat = field.x, options.repeat
    row: Row = {"dataset": field.dataset, "field": field.name, "origin": field.origin, "shape": list(x.shape)}
    if not np.isfinite(x).all() or not x.max() > x.min():
        return {**row, "error": "values that are not finite, or all alike: valrel has no meaning"}
    curves = field.dataset in CURVES
    row |= {
        "percentiles": percentiles(x),
        "reference": reference_row(x, repeat),
        "engine": engine_row(x, options.threads, repeat),
        "chunks": chunk_rows(x, repeat) if first else [],
        "reference_curve": reference_curve(x) if curves else [],
        "engine_curve": engine_curve(x) if curves else [],
        "zfp": zfp_curve(x, 1) if here["zfp"]["version"] else [],
        "sz14": sz14_apart(x, repeat) if here["sz14"]["version"] else {"error": here["sz14"]["missing"]},
    }
    return row


def measure(options: argparse.Namespace) -> Row:
    """The document that paper_report.py reads."""
    began = time.monotonic()
    here = peers_here()
    runner.reuse_freed_memory()
    document: Row = {
        "head": runner.machine(options.repeat, peers=here),
        "valrel": VALREL,
        "fields": [],
        "codebooks": {},
    }
    document["head"] |= {"threads": options.threads, "scale": options.scale, "sdrbench": bool(options.sdrbench)}
    firsts: dict[str, Field] = {}
    for field in fields_of(options):
        say(f"{field.dataset} {field.name}, {field.x.nbytes / 1e6:.1f} MB")
        first = field.dataset not in firsts
        row = field_row(field, first, here, options)
        document["fields"].append(row)
        if first and "error" not in row:
            firsts[field.dataset] = field
    if chosen := firsts.get("Hurricane") or next(iter(firsts.values()), None):
        say("codebooks")
        rows = codebook_rows(chosen.x, options.repeat)
        document["codebooks"] = {"dataset": chosen.dataset, "field": chosen.name, "rows": rows}
    document["gpu"], device = gpu_rows(list(firsts.values()), max(options.repeat, 5))
    document["head"] |= device
    document["head"] |= {"minutes": (time.monotonic() - began) / 60, "load": os.getloadavg()[1]}
    return document


def parser() -> argparse.ArgumentParser:
    sub = runner.parser(__doc__, repeat=3, has_json=False)
    add = sub.add_argument
    add("--out", type=Path, default=ROOT / "docs/benchmarks/paper", metavar="FOLDER", help="default: %(default)s")
    add("--without-peers", action="store_true", help="do not install zfp and SZ; use them if they are installed")
    add("--sdrbench", type=Path, metavar="FOLDER", help="the fields of these files instead of the proxies'")
    add("--shrink", type=int, default=1, metavar="N", help="the files are stand-ins of 1/N of every extent")
    add(
        "--max-mb", type=float, default=100, metavar="MB", help="the planes at the front of larger files (default: 100)"
    )
    add("--scale", type=float, default=1.0, metavar="F", help="multiplies the extents of the proxies' grids")
    add(
        "--threads",
        type=int,
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="of the engine (default: all cores)",
    )
    add("--from", type=Path, dest="earlier", metavar="JSON", help="report this earlier measurement instead")
    return sub


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if not (options.without_peers or options.earlier):
        import peers

        if Path(sys.prefix) != runner.PEERS:
            peers.make_environment()
            command = [runner.PEERS / "bin/python", __file__, *(sys.argv[1:] if arguments is None else arguments)]
            return subprocess.run(command, check=False).returncode

    def work() -> int:
        document = json.loads(options.earlier.read_text()) if options.earlier else measure(options)
        options.out.mkdir(parents=True, exist_ok=True)
        paper_report.write(document, options.out)
        with contextlib.suppress(ValueError):
            say(f"written to {options.out.resolve().relative_to(ROOT)}")
        return 0

    return runner.exit_code_of(work, (Failure, cusz.CuszError, OSError))


if __name__ == "__main__":
    sys.exit(main())
