"""The C interface as seen by programs that were compiled with the header of another version."""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

import numpy as np
import pytest

import cusz_core as cusz
import support

OK, PARAMETER = 0, 1
KNOWN = 56  # bytes of cusz_params that this library knows
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


class Block(ctypes.Structure):
    """cusz_block in its first version."""

    _fields_ = (
        ("struct_bytes", c_uint32),
        ("reserved", c_int32),
        *((name, c_void_p) for name in ("shape", "field", "info", "archive")),
        ("archive_bytes", c_size_t),
        ("min", c_double),
        ("max", c_double),
        ("n_valid", c_uint64),
    )


class FirstLevel(ctypes.Structure):
    """cusz_level in its first version."""

    _fields_ = (
        ("struct_bytes", c_uint32),
        *((name, c_int32) for name in ("n_levels", "exact_cost", "dtype", "ndim")),
        ("checksum", c_uint32),
        *((name, c_uint64 * 4) for name in ("shape", "step")),
        ("needed_bytes", c_uint64),
    )


class Memory(ctypes.Structure):
    """A structure followed by bytes that the library may touch only if struct_bytes includes them."""

    def reaches(self, size: int) -> bytes:
        return bytes(self)[size:]


class ParamsMemory(Memory):
    _fields_ = (("known", FirstParams), ("behind", ctypes.c_ubyte * 200))


class InfoMemory(Memory):
    _fields_ = (("known", FirstInfo), ("behind", ctypes.c_ubyte * 200))


class BlockMemory(Memory):
    _fields_ = (("known", Block), ("behind", ctypes.c_ubyte * 200))


class LevelMemory(Memory):
    _fields_ = (("known", FirstLevel), ("behind", ctypes.c_ubyte * 200))


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
    library.cusz_decompress_many.argtypes = [c_void_p, c_int32, c_int32, c_int32, c_uint64, c_void_p]
    library.cusz_compress_many.argtypes = [
        *(c_void_p, c_void_p, c_int, c_int32, c_uint64, c_void_p, c_int32, c_void_p, c_size_t)
    ]
    library.cusz_inspect_level.argtypes = [c_void_p, c_void_p, c_size_t, c_size_t, c_int32, c_void_p]
    library.cusz_level_of_shape.argtypes = [c_int32, POINTER(c_uint64), c_int32, c_void_p]
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
    assert (ctypes.sizeof(FirstParams), ctypes.sizeof(FirstInfo), ctypes.sizeof(FirstLevel)) == (48, 216, 96)


def test_a_program_of_the_first_version_compresses(library, context):
    memory = guarded(ParamsMemory)
    library.cusz_params_init(byref(memory))
    assert memory.known.struct_bytes == ctypes.sizeof(FirstParams)
    assert memory.reaches(ctypes.sizeof(FirstParams)) == bytes([GUARD]) * 200
    assert memory.known.bins == 64
    memory.known.eb = 1e-3
    memory.known.fill, memory.known.has_fill = 5.0, 1
    assert compress(library, context, memory) == (OK, cusz.compress(X, 1e-3, fill=5.0, predictor="lorenzo"))


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
    assert memory.reaches(KNOWN) == bytes(48 + 200 - KNOWN)
    memory.known.eb = 1e-3
    assert compress(library, context, memory) == (OK, cusz.compress(X, 1e-3))
    for at in range(len(memory.behind)):  # 99 is illegal in all members that this library knows
        before, memory.behind[at] = memory.behind[at], 99
        status, message = compress(library, context, memory)
        assert status == PARAMETER
        memory.behind[at] = before
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


@pytest.mark.parametrize("size", [ctypes.sizeof(FirstLevel), ctypes.sizeof(LevelMemory)])
def test_a_program_of_this_or_a_newer_version_asks_for_a_level(library, context, size):
    archive = cusz.compress(X, 1e-3)
    level = cusz.levels(archive)[1]
    memory = guarded(LevelMemory)
    memory.known.struct_bytes = size
    assert library.cusz_inspect_level(context, archive, 200, len(archive), 1, byref(memory)) == OK
    assert memory.known.struct_bytes == ctypes.sizeof(FirstLevel)
    assert (tuple(memory.known.shape), tuple(memory.known.step)) == ((*level.shape, 0), (*level.step, 0))
    assert (memory.known.needed_bytes, memory.known.checksum) == (level.needed_bytes, cusz.inspect(archive).checksum)
    assert set(memory.reaches(ctypes.sizeof(FirstLevel))) == ({GUARD} if size == 96 else {0})
    memory.known.struct_bytes = size
    assert library.cusz_level_of_shape(3, SHAPE, 1, byref(memory)) == OK
    assert (tuple(memory.known.shape), memory.known.needed_bytes) == ((*level.shape, 0), 0)
    for wrong in (-1, level.number + 6):
        memory.known.struct_bytes = size
        assert library.cusz_level_of_shape(3, SHAPE, wrong, byref(memory)) == PARAMETER


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
    level = FirstLevel(struct_bytes=size)
    assert library.cusz_inspect_level(context, archive, len(archive), len(archive), 1, byref(level)) == PARAMETER
    assert b"from 96 to 4096: set it to sizeof(cusz_level)" in library.cusz_last_error(context)


@pytest.mark.parametrize("kind", [Block, BlockMemory])
def test_blocks_of_this_version_and_of_a_newer_one(library, context, kind):
    size, n = ctypes.sizeof(kind), 5
    blocks = (kind * n)()
    ctypes.memset(byref(blocks), GUARD, ctypes.sizeof(blocks))
    for made in blocks:
        known = getattr(made, "known", made)
        known.struct_bytes, known.info, known.field = size, None, X.ctypes.data
        known.shape = ctypes.cast(SHAPE, c_void_p)
    params, room = FirstParams(), ctypes.create_string_buffer(n * (X.nbytes + 48))
    library.cusz_params_init(byref(params))
    params.eb, params.threads = 1e-3, 2

    def call(short_of=0):
        capacity = ctypes.sizeof(room) - short_of
        status = library.cusz_compress_many(context, byref(params), 1, 3, n, byref(blocks), 1, room, capacity)
        return status, library.cusz_last_error(context)

    assert call() == (OK, b"")
    expected = cusz.compress(X, 1e-3, predictor="lorenzo")
    assert room.raw[: n * len(expected)] == n * expected
    for number, made in enumerate(blocks):
        known = getattr(made, "known", made)
        assert known.archive == ctypes.addressof(room) + number * len(expected)
        assert (known.archive_bytes, known.min, known.max) == (len(expected), X.min(), X.max())
        assert known.n_valid == X.size
        if kind is BlockMemory:
            assert bytes(made.behind) == bytes([GUARD]) * 200
    assert call(short_of=1)[0] == PARAMETER
    known = getattr(blocks[3], "known", blocks[3])
    known.field = None
    assert call() == (PARAMETER, b"block 3 of 5: field is NULL")
    known.field, known.struct_bytes = X.ctypes.data, size + 8
    status, message = call()
    assert status == PARAMETER
    assert message.startswith(b"struct_bytes of blocks[3]")
    getattr(blocks[0], "known", blocks[0]).struct_bytes = 40
    assert call()[0] == PARAMETER


class Box(ctypes.Structure):
    """cusz_box."""

    _fields_ = (
        *(("struct_bytes", c_uint32), ("reserved", c_int32), ("archive", c_char_p), ("archive_bytes", c_size_t)),
        *((name, c_void_p) for name in ("start", "count", "stride", "field")),
    )


class NewerBox(Box):
    _fields_ = (("behind", ctypes.c_ubyte * 200),)


@pytest.mark.parametrize("kind", [Box, NewerBox])
def test_boxes_of_this_version_and_of_a_newer_one(library, context, kind):
    archive, made = cusz.compress(X, 1e-3), np.empty((3, *X.shape), X.dtype)
    start, stride = (c_uint64 * 3)(), (c_uint64 * 3)(*(step // X.itemsize for step in X.strides))
    places = (ctypes.cast(each, c_void_p) for each in (start, SHAPE, stride))
    boxes = (kind * 3)(*[kind(ctypes.sizeof(kind), 0, archive, len(archive), *places)] * 3)
    for box, to in zip(boxes, made, strict=True):
        box.field = to.ctypes.data

    def call(dtype=1, ndim=3, threads=2):
        status = library.cusz_decompress_many(context, dtype, ndim, threads, 3, byref(boxes))
        return status, library.cusz_last_error(context)

    assert call() == (OK, b"")
    assert made.tobytes() == 3 * cusz.decompress(archive).tobytes()
    assert call(dtype=2) == (
        PARAMETER,
        b"archive 0 of 3: its field is of float32 and has 3 dimensions; the box is of float64 and has 3",
    )
    assert call(ndim=2)[0] == PARAMETER
    assert call(ndim=5)[0] == call(threads=-1)[0] == PARAMETER
    boxes[1].count = None
    assert call() == (PARAMETER, b"count is NULL")
    boxes[1].count, boxes[1].struct_bytes = boxes[0].count, 48
    assert call()[1].startswith(b"struct_bytes of boxes[1] is 48, that of boxes[0] is")
    boxes[0].struct_bytes = 48
    assert b"boxes.struct_bytes is 48; legal: multiples of 8 from 56 to 4096" in call()[1]
    assert library.cusz_decompress_many(context, 1, 1, 0, 0, None) == OK


def test_names_of_stages(library):
    assert [library.cusz_predictor_name(n) for n in (-1, 0, 99)] == [b"none", b"lorenzo", None]
    assert [library.cusz_coder_name(n) for n in (-1, 0, 99)] == [b"none", b"huffman", None]


def test_an_archive_names_its_stages(library, context):
    """The ids of bytes 48 and 49, in members that were added after version 0.1.0."""
    stages = (c_int32 * 2).from_buffer
    empty = np.zeros((0, 2), np.float32)
    for field, predictor, expected in ((X, "lorenzo", (0, 0)), (X, "spline", (1, 1)), (empty, "auto", (-1, -1))):
        archive, memory = cusz.compress(field, 1e-3, predictor=predictor), guarded(InfoMemory)
        memory.known.struct_bytes = ctypes.sizeof(FirstInfo) + 8
        assert library.cusz_inspect(context, archive, len(archive), byref(memory)) == OK
        assert tuple(stages(memory, ctypes.sizeof(FirstInfo))) == expected


class Row(ctypes.Structure):
    """cusz_parameter."""

    _fields_ = (
        *((name, c_char_p) for name in ("key", "description", "legal", "default_value")),
        ("choices", POINTER(c_char_p)),
        ("type", c_int32),
        ("decides", c_int32),
    )


def rows(library) -> list[Row]:
    library.cusz_parameter_at.restype = POINTER(Row)
    found = []
    while row := library.cusz_parameter_at(len(found)):
        found.append(row.contents)
    assert not library.cusz_parameter_at(-1)
    return found


def choices(row: Row) -> list[bytes]:
    found: list[bytes] = []
    while row.choices and (name := row.choices[len(found)]):
        found.append(name)
    return found


def set_parameter(library, params, key: bytes, value: bytes, message_bytes: int = 500) -> tuple[int, bytes]:
    message = ctypes.create_string_buffer(b"\xa5" * 600)
    status = library.cusz_params_set(byref(params), key, value, message, c_size_t(message_bytes))
    return status, message.value if message_bytes else b""


@pytest.fixture
def params(library):
    memory = guarded(ParamsMemory)
    library.cusz_params_init_sized(byref(memory), ctypes.sizeof(memory))
    return memory


def test_the_table_describes_every_parameter_in_one_line(library):
    table = rows(library)
    assert len({row.key for row in table}) == len(table)
    for row in table:
        assert row.key
        assert row.legal
        assert row.description
        assert b"\n" not in row.description
        names = choices(row)
        if names:  # the legal values in words are the choices
            assert row.legal.replace(b" or ", b", ") == b", ".join(b"'" + name + b"'" for name in names)


def test_every_default_and_choice_can_be_set(library, params):
    before = bytes(params)
    for row in rows(library):
        if row.default_value is not None:
            assert set_parameter(library, params, row.key, row.default_value) == (OK, b"")
            assert bytes(params) == before
        for name in choices(row):
            assert set_parameter(library, params, row.key, b" " + name.upper() + b"\n") == (OK, b"")
        if row.choices:
            set_parameter(library, params, row.key, row.default_value)


def test_the_predictor_came_later(library, context):
    """Programs that do not know it have nothing or 0 in its place, and get the same archives as ever. Programs that do
    know it get its default."""
    archives = {name: cusz.compress(X, 0.1, predictor=name) for name in ("lorenzo", "spline", "auto")}
    assert archives["lorenzo"] != archives["auto"] == archives["spline"]
    for size, expected in ((48, "lorenzo"), (56, "auto"), (64, "auto")):
        memory = guarded(ParamsMemory)
        library.cusz_params_init_sized(byref(memory), size)
        assert memory.known.struct_bytes == size
        assert memory.reaches(size) == bytes([GUARD]) * (48 + 200 - size)
        memory.known.eb = 0.1
        assert compress(library, context, memory) == (OK, archives[expected])
        assert set_parameter(library, memory, b"eb", b"0.1") == (OK, b"")
        assert compress(library, context, memory) == (OK, archives[expected])
    memory.behind[0] = 0
    assert compress(library, context, memory) == (OK, archives["lorenzo"])


def test_values_are_set(library, params):
    for key, value in ((b"eb", b"+1e-3"), (b"bins", b"128"), (b"fill", b"-inf"), (b"threads", b"3"), (b"mode", b"REL")):
        assert set_parameter(library, params, key, value) == (OK, b"")
    known = params.known
    assert (known.eb, known.bins, known.fill, known.has_fill) == (1e-3, 128, -float("inf"), 1)
    assert (known.threads, known.mode) == (3, 1)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (b"acuracy", b"1", b"there is no parameter 'acuracy'; legal: eb, mode, bins, "),
        (b"bins", b"100", b"bins is 100; it must be a power of two from 64 to 8192"),
        (b"bins", b"64.5", b"bins is 64.5; it must be a power of two"),
        (b"bins", b"", b"bins is ''; it must be"),
        (b"eb", b"-1e-3", b"eb is -1e-3; it must be an error bound (a finite number >= 0, such as 1e-3)"),
        (b"eb", b"0,001", b"eb is '0,001'; it must be"),
        (b"threads", b"1025", b"threads is 1025; it must be a whole number from 0 (the library chooses) to 1024"),
        (b"backend", b"gpu", b"backend is 'gpu'; it must be 'auto', 'cpu' or 'cuda'"),
        (b"fill", b"none", b"fill is 'none'; it must be a number (or nan, inf, -inf)"),
        (b"lossless", b"x" * 300, b"lossless is '" + b"x" * 80 + b"'; it must be 'none' or 'zstd'"),
    ],
)
def test_what_cannot_be_set_is_told_and_changes_nothing(library, params, key, value, message):
    before = bytes(params)
    status, told = set_parameter(library, params, key, value)
    assert status == PARAMETER
    assert told.startswith(message)
    assert bytes(params) == before
    assert set_parameter(library, params, key, value, 10) == (PARAMETER, told[:9])
    assert set_parameter(library, params, key, value, 0)[0] == PARAMETER
    assert library.cusz_params_set(byref(params), key, value, None, c_size_t(0)) == PARAMETER


def test_a_program_of_the_first_version_sets_what_it_has(library):
    memory = guarded(ParamsMemory)
    library.cusz_params_init(byref(memory))
    for row in rows(library):
        member = {b"fill": "fill"}.get(row.key, row.key.decode())
        status, told = set_parameter(library, memory, row.key, row.default_value or b"1e20")
        if hasattr(FirstParams, member):
            assert (status, told) == (OK, b"")
        else:
            words = f"there is no {member} in the cusz_params of this program: compile it with the cusz.h of version"
            assert status == PARAMETER
            assert words.encode() in told
    assert memory.reaches(ctypes.sizeof(FirstParams)) == bytes([GUARD]) * 200


@pytest.mark.parametrize(
    ("member", "value", "words"),
    [
        ("mode", 5, "mode is 5; legal: 0 to 4 ('abs', 'rel', 'pw_rel', 'psnr' or 'ratio')"),
        ("backend", -1, "backend is -1; legal: 0 to 2 ('auto', 'cpu' or 'cuda')"),
        ("bins", 100, "bins is 100; it must be a power of two from 64 to 8192"),
        ("threads", -1, "threads is -1; it must be a whole number from 0"),
        ("eb", -0.1, "eb is -0.1; it must be an error bound"),
        ("eb", float("nan"), "eb is nan; it must be an error bound"),
    ],
)
def test_members_are_checked_too(library, context, params, member, value, words):
    setattr(params.known, member, value)
    status, message = compress(library, context, params)
    assert status == PARAMETER
    assert message.startswith(words.encode())
