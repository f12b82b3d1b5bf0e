"""The C interface as programs see it that were compiled with the header of another version."""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

import numpy as np
import pytest

import cusz_core as cusz
import support

OK, PARAMETER = 0, 1
X = support.smooth((20, 30, 40), support.F32)
SHAPE = (c_uint64 * 3)(*X.shape)
GUARD = 0xA5


class FirstParams(ctypes.Structure):
    """cusz_params of version 0.1.0."""

    _fields_ = (
        ("struct_bytes", c_uint32),
        ("mode", c_int32),
        ("eb", c_double),
        *((name, c_int32) for name in ("bins", "backend", "threads", "lossless", "has_fill")),
        ("fill", c_double),
    )


class FirstInfo(ctypes.Structure):
    """cusz_info of version 0.1.0."""

    _fields_ = (
        ("struct_bytes", c_uint32),
        *((name, c_int32) for name in ("version", "kind", "dtype", "ndim", "mode", "lossless", "bins", "has_fill")),
        ("checksum", c_uint32),
        ("shape", c_uint64 * 4),
        *((name, c_double) for name in ("eb", "eb_abs", "step", "fill")),
        *((name, c_uint64) for name in ("raw_bytes", "archive_bytes")),
        *((name, c_uint64) for name in ("header_bytes", "codebook_bytes", "index_bytes", "payload_bytes")),
        ("tile_shape", c_uint64 * 4),
        *((name, c_uint64) for name in ("n_tiles", "n_special", "n_out_of_range", "n_unpredictable")),
    )


class Memory(ctypes.Structure):
    """A structure with something behind it that nobody may touch, unless a size says that it belongs to it."""

    def reaches(self, size: int) -> bytes:
        return bytes(self)[size:]


class ParamsMemory(Memory):
    _fields_ = (("known", FirstParams), ("behind", ctypes.c_ubyte * 200))


class InfoMemory(Memory):
    _fields_ = (("known", FirstInfo), ("behind", ctypes.c_ubyte * 200))


@pytest.fixture(scope="module")
def library():
    library = ctypes.CDLL(str(Path(cusz.__file__).parent / "libcusz_core.so.0"))
    library.cusz_create.restype = c_void_p
    library.cusz_last_error.restype = c_char_p
    library.cusz_last_error.argtypes = library.cusz_destroy.argtypes = [c_void_p]
    library.cusz_predictor_name.restype = library.cusz_coder_name.restype = c_char_p
    library.cusz_params_init.restype = library.cusz_params_init_sized.restype = None
    library.cusz_params_init_sized.argtypes = [c_void_p, c_size_t]
    library.cusz_compress.argtypes = [
        *(c_void_p, c_void_p, c_int, c_int32, POINTER(c_uint64), c_void_p, c_void_p, c_size_t, POINTER(c_size_t))
    ]
    library.cusz_inspect.argtypes = [c_void_p, c_void_p, c_size_t, c_void_p]
    return library


@pytest.fixture
def context(library):
    made = library.cusz_create()
    yield made
    library.cusz_destroy(made)


def guarded(kind: type) -> Memory:
    memory = kind()
    ctypes.memset(byref(memory), GUARD, ctypes.sizeof(memory))
    return memory


def compress(library, context, params) -> tuple[int, bytes]:
    """(status, archive or message)."""
    archive, size = ctypes.create_string_buffer(X.nbytes + 48), c_size_t()
    status = library.cusz_compress(
        context, byref(params), 1, 3, SHAPE, X.ctypes.data, archive, ctypes.sizeof(archive), byref(size)
    )
    return status, archive.raw[: size.value] if status == OK else library.cusz_last_error(context)


def test_the_first_structures_have_the_sizes_that_the_library_accepts():
    assert (ctypes.sizeof(FirstParams), ctypes.sizeof(FirstInfo)) == (48, 216)


def test_a_program_of_the_first_version_compresses(library, context):
    memory = guarded(ParamsMemory)
    library.cusz_params_init(byref(memory))
    assert memory.known.struct_bytes == ctypes.sizeof(FirstParams)
    assert memory.reaches(ctypes.sizeof(FirstParams)) == bytes([GUARD]) * 200
    assert memory.known.bins == 64
    memory.known.eb = 1e-3
    memory.known.fill, memory.known.has_fill = 5.0, 1
    assert compress(library, context, memory) == (OK, cusz.compress(X, 1e-3, fill=5.0))


def test_a_program_of_the_first_version_inspects(library, context):
    archive = cusz.compress(X, 1e-3, "rel")
    memory = guarded(InfoMemory)
    memory.known.struct_bytes = ctypes.sizeof(FirstInfo)
    assert library.cusz_inspect(context, archive, len(archive), byref(memory)) == OK
    assert memory.reaches(ctypes.sizeof(FirstInfo)) == bytes([GUARD]) * 200
    info = cusz.inspect(archive)
    assert memory.known.struct_bytes == ctypes.sizeof(FirstInfo)
    assert (memory.known.eb_abs, memory.known.n_unpredictable) == (info.eb_abs, info.unpredictable)
    assert tuple(memory.known.shape) == (*X.shape, 0)


def test_a_program_of_a_newer_version_compresses_if_it_asks_for_nothing_new(library, context):
    memory = guarded(ParamsMemory)
    size = ctypes.sizeof(ParamsMemory)
    library.cusz_params_init_sized(byref(memory), size)
    assert memory.known.struct_bytes == size
    assert memory.reaches(ctypes.sizeof(FirstParams)) == bytes(200)  # 0 is the default of all that came later
    memory.known.eb = 1e-3
    assert compress(library, context, memory) == (OK, cusz.compress(X, 1e-3))
    memory.behind[-1] = 1
    status, message = compress(library, context, memory)
    assert status == PARAMETER
    assert f"params has a parameter at byte {size - 1}; this library, version {cusz.__version__}".encode() in message
    assert b"leave it at 0, or use a newer release" in message


def test_a_program_of_a_newer_version_is_told_what_this_one_knows(library, context):
    archive = cusz.compress(X, 1e-3)
    memory = guarded(InfoMemory)
    memory.known.struct_bytes = ctypes.sizeof(InfoMemory)
    assert library.cusz_inspect(context, archive, len(archive), byref(memory)) == OK
    known = memory.known.struct_bytes
    assert ctypes.sizeof(FirstInfo) < known < ctypes.sizeof(InfoMemory)
    assert not any(memory.reaches(known))
    assert memory.known.n_tiles == cusz.inspect(archive).tiles


@pytest.mark.parametrize("size", [0, 4, 40, 47, 52, 4104, 0xA5A5A5A5])
def test_sizes_that_no_version_has_are_refused(library, context, size):
    params = FirstParams(struct_bytes=size, bins=64)
    status, message = compress(library, context, params)
    assert status == PARAMETER
    assert f"params.struct_bytes is {size}; legal: multiples of 8 from 48 to 4096: call cusz_params_init".encode() in (
        message
    )
    archive, info = cusz.compress(X, 1e-3), FirstInfo(struct_bytes=size)
    assert library.cusz_inspect(context, archive, len(archive), byref(info)) == PARAMETER
    assert b"from 216 to 4096: set it to sizeof(cusz_info)" in library.cusz_last_error(context)


def test_names_of_stages(library):
    assert [library.cusz_predictor_name(n) for n in (-1, 0, 99)] == [b"none", b"lorenzo", None]
    assert [library.cusz_coder_name(n) for n in (-1, 0, 99)] == [b"none", b"huffman", None]


def test_an_archive_names_its_stages(library, context):
    """The ids of bytes 48 and 49, in the members that came after version 0.1.0."""
    stages = (c_int32 * 2).from_buffer
    for field, expected in ((X, (0, 0)), (np.zeros((0, 2), np.float32), (-1, -1))):
        archive, memory = cusz.compress(field, 1e-3), guarded(InfoMemory)
        memory.known.struct_bytes = ctypes.sizeof(FirstInfo) + 8
        assert library.cusz_inspect(context, archive, len(archive), byref(memory)) == OK
        assert tuple(stages(memory, ctypes.sizeof(FirstInfo))) == expected
