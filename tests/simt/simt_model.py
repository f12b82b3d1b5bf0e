"""Calls choose_model on the device, and compares what it chooses with what the CPU does (parts.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from simt_library import DEVICE, HOST, Library

N_TABLES, N_GROUP_CONTEXTS, N_CONTEXTS, N_SYMBOLS = 16, 16, 648, 195
MOST = 2**32 - 1

COUNTS = np.dtype(
    [("symbol", "<u4", (N_CONTEXTS, N_SYMBOLS)), ("group", "<u4", (3, N_GROUP_CONTEXTS, 2)), ("finished", "<u4")]
)
MODEL = np.dtype(
    [
        ("n_tables", "<u4"),
        ("bytes", "<u4"),
        ("significant", "<u2", N_GROUP_CONTEXTS),
        ("frequency", "<u2", (N_TABLES, N_SYMBOLS)),
        ("table", "u1", N_CONTEXTS),
    ]
)
ENCODING = np.dtype(
    [
        ("interval", "<u8", (N_TABLES + N_GROUP_CONTEXTS) * 256 + 1),
        ("coded_as", "u1", (N_TABLES, N_SYMBOLS)),
        ("table_of", "u1", (9, 128)),
    ],
    align=True,
)


def chosen(simt: Library, counts: NDArray, weights: Sequence[int]) -> tuple[NDArray, NDArray]:
    """The model and the encoder's tables, after a comparison with the CPU's. What neither sets is 0xA5."""
    sizes = (ctypes.c_size_t * 4)()
    simt.c.simt_model_sizes(sizes)
    counts_bytes, scratch_bytes, model_bytes, encoding_bytes = sizes
    assert (counts_bytes, encoding_bytes) == (COUNTS.itemsize, ENCODING.itemsize)
    assert model_bytes == MODEL.itemsize
    unset = np.full(max(model_bytes, encoding_bytes), 0xA5, np.uint8)
    results = []
    for place in (HOST, DEVICE):
        with (
            simt.memory(place, counts) as given_counts,
            simt.memory(place, unset[:model_bytes]) as model,
            simt.memory(place, unset[:encoding_bytes]) as encoding,
            simt.memory(place, np.full(scratch_bytes, 0xA5, np.uint8)) as scratch,
        ):
            arguments = (ctypes.c_uint64 * 3)(*weights)
            if place == HOST:
                simt.c.simt_choose_model_on_cpu(given_counts.pointer, arguments, model.pointer, encoding.pointer)
            else:
                simt.call(
                    "simt_choose_model", given_counts.pointer, arguments, scratch.pointer, model.pointer,
                    encoding.pointer,
                )  # fmt: skip
            results.append((np.frombuffer(model.get(), MODEL)[0], np.frombuffer(encoding.get(), ENCODING)[0]))
    wanted, got = results
    for of_cpu, of_device in zip(wanted, got, strict=True):
        assert of_cpu.dtype.names is not None
        for name in of_cpu.dtype.names:
            np.testing.assert_array_equal(of_device[name], of_cpu[name], err_msg=name)
    return wanted


def no_counts() -> NDArray:
    return np.zeros((), COUNTS)


def like_a_field(rng: np.random.Generator, n_contexts: int, most: int, scale: float) -> NDArray:
    """Codes from about a Laplace distribution in each context, of very different widths and numbers."""
    counts = no_counts()
    for c in rng.choice(N_CONTEXTS, n_contexts, replace=False):
        codes = np.rint(rng.laplace(0, scale ** rng.random(), int(most ** rng.random())))
        symbols = np.where(np.abs(codes) < 32, codes + 32, 64 + np.minimum(np.abs(codes), 4000) ** 0.5 * 2)
        np.add.at(counts["symbol"][c], symbols.astype(int).clip(0, 191), 1)
        counts["symbol"][c, 194] = rng.integers(0, 2)
    counts["group"] = rng.integers(0, 1 + most, counts["group"].shape)
    return counts
