"""What is refused, by which error, and with which words: the value, the limit, the remedy."""

import array
import mmap
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import cusz_core as cusz
import support

X = support.smooth((4, 5, 6), support.F32)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([1.0, 2.0], "a list; accepted are numpy arrays of float32 or float64.*numpy.asarray"),
        ((1.0,), "a tuple; accepted"),
        (1.0, "1.0; accepted"),
        (None, "None; accepted"),
        (b"abcd", "a bytes; accepted"),
        (memoryview(X), "a memoryview; accepted"),
        (X.astype(np.float16), r"float16.*accepted are float32 and float64.*x.astype\(numpy.float32\)"),
        (X.astype(np.longdouble), "accepted are float32 and float64"),
        (X.astype(np.int32), "int32.*accepted are float32 and float64"),
        (X > 0, "bool.*accepted are float32 and float64"),
        (X.astype(np.complex64), "complex64.*x.real and x.imag"),
        (X.astype(">f4"), r">f4.*native byte order.*newbyteorder"),
        (X.astype(">f8"), r">f8.*native byte order"),
        (np.zeros(3, [("u", "f4"), ("v", "f4")]), r"one field at a time, such as x\['u'\]"),
        (np.array(["a"]), "accepted are float32 and float64"),
        (np.array([None]), "accepted are float32 and float64"),
        (np.float32(1), "numpy.float32; accepted"),
        (np.array(1.0), r"0 dimensions; 1 to 4 are accepted: pass x.reshape\(1\)"),
        (np.zeros((2, 3, 4, 5, 6)), r"5 dimensions; 1 to 4 are accepted.*x.reshape\(6, 4, 5, 6\)"),
        (np.zeros((2, 3, 1, 4, 5, 6), "f4"), r"6 dimensions.*x.reshape\(6, 4, 5, 6\)"),
        (np.ma.masked_invalid(X), r"masked array.*x.filled\(value\) with fill=value"),
    ],
)
def test_refused_fields(x, words):
    with pytest.raises(cusz.UnsupportedError, match=words) as raised:
        cusz.compress(x, 1e-3)
    assert isinstance(raised.value, TypeError)
    with pytest.raises(cusz.UnsupportedError, match=words):
        cusz.value_range(x)
    with pytest.raises(cusz.UnsupportedError, match=words):
        cusz.verify(x, cusz.compress(X, 1e-3))


def test_nothing_is_converted_behind_the_callers_back():
    """An object with only `__array__` may read a file, compute a graph or copy: the caller has to ask for that."""

    class Lazy:
        dtype, shape = X.dtype, X.shape

        def __array__(self, *args, **options):
            raise AssertionError("it was computed")

    for x, words in (
        (Lazy(), r"a .*Lazy; accepted.*pass numpy.asarray\(x\), which may have to read, compute or copy all of it"),
        (memoryview(X), r"pass numpy.asarray\(x\), which does not copy"),
        (array.array("f", [1, 2]), r"pass numpy.asarray\(x\), which does not copy"),
    ):
        for call in (lambda x: cusz.compress(x, 1e-3), cusz.value_range, lambda x: cusz.verify(x, b"")):
            with pytest.raises(cusz.UnsupportedError, match=words):
                call(x)


def test_tensors_of_pytorch_are_used_in_place():
    torch = pytest.importorskip("torch")
    archive = cusz.compress(X, 1e-3)
    tensor = torch.from_numpy(X.copy())
    assert cusz.compress(tensor, 1e-3) == archive
    assert cusz.compress(tensor.transpose(0, 2), 1e-3) == cusz.compress(X.transpose(2, 1, 0), 1e-3)
    assert cusz.verify(tensor, archive).ratio > 1
    with pytest.raises(cusz.UnsupportedError, match="gradient"):
        cusz.compress(tensor.requires_grad_(), 1e-3)
    for dtype in (torch.float16, torch.bfloat16, torch.int64):
        with pytest.raises(cusz.UnsupportedError):
            cusz.compress(torch.zeros(10, dtype=dtype), 1e-3)


def test_native_byte_order_may_be_written_down(dtype):
    """numpy's buffers then have the format "<f" instead of "f"; Zarr makes arrays like that."""
    x = support.smooth((4, 5, 6), dtype)
    written = x.astype(dtype.newbyteorder("<" if sys.byteorder == "little" else ">"))
    assert memoryview(written).format == ("<" if sys.byteorder == "little" else ">") + dtype.char
    archive = cusz.compress(x, 1e-3)
    assert cusz.compress(written, 1e-3) == archive
    assert cusz.decompress(archive, out=written) is written
    assert support.same_bits(written, cusz.decompress(archive))


@pytest.mark.parametrize(
    ("eb", "words"),
    [
        (True, "eb is True; it must be a number"),
        (None, "eb is None"),
        ("1e-3", "eb is '1e-3'; it must be a number, such as eb=1e-3"),
        (1j, "eb is 1j"),
        ([1e-3], "eb is a list"),
        (np.array(1e-3), "eb is a numpy.ndarray"),
        (np.bool_(True), "eb is np.True_|eb is True"),
        (float("nan"), "eb is nan; it must be finite and >= 0"),
        (float("inf"), "eb is inf; it must be finite"),
        (-1e-300, "eb is -1e-300; it must be finite and >= 0"),
        (10**400, "too large"),
    ],
)
def test_refused_bounds(eb, words):
    with pytest.raises(cusz.ParameterError, match=words) as raised:
        cusz.compress(X, eb)
    assert isinstance(raised.value, ValueError)


def test_a_bound_is_required():
    with pytest.raises(TypeError, match="eb"):
        cusz.compress(X)


@pytest.mark.parametrize("eb", [1, np.float32(0.5), np.float64(0.5), np.int64(1), 0, -0.0])
def test_accepted_bounds(eb):
    assert cusz.compress(X, eb) == cusz.compress(X, float(eb))


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("mode", ["ABS", "relative", "", None, 0, b"abs", ["abs"]], "it must be one of 'abs', 'rel'"),
        ("bins", [0, 1, 32, 63, 65, 100, 4097, 16384, -64, 2**70], "it must be a power of two from 64 to 8192"),
        ("bins", [64.0, "64", None, True], "it must be an integer"),
        ("threads", [1.0, "2", True], "it must be an integer"),
        ("backend", ["gpu"], "it must be one of 'auto', 'cpu', 'cuda'"),
        ("lossless", ["gzip"], "it must be one of 'none', 'zstd'"),
        ("fill", ["1e20", True, 1j], "it must be a number, such as fill=1e20, or None"),
    ],
)
def test_refused_parameters(name, values, words):
    for value in values:
        with pytest.raises(cusz.ParameterError, match=re.escape(f"{name} is {value!r}; {words}")):
            cusz.compress(X, 1e-3, **{name: value})


def test_a_list_is_no_fill():
    with pytest.raises(cusz.ParameterError, match="fill is a list; it must be a number"):
        cusz.compress(X, 1e-3, fill=[1e20])


def test_a_build_without_cuda_says_so():
    if "cuda" not in support.BACKENDS:
        with pytest.raises(cusz.DeviceError, match="CUDA"):
            cusz.compress(X, 1e-3, backend="cuda")


@pytest.mark.parametrize("threads", [0, -1, 1025])
def test_refused_threads(threads):
    archive = cusz.compress(X, 1e-3)
    for call in (
        lambda: cusz.compress(X, 1e-3, threads=threads),
        lambda: cusz.decompress(archive, threads=threads),
        lambda: cusz.check(archive, threads=threads),
        lambda: cusz.value_range(X, threads=threads),
    ):
        with pytest.raises(cusz.ParameterError, match=f"threads is {threads}; it must be from 1 to 1024, or None"):
            call()


@pytest.mark.parametrize(
    ("archive", "words"),
    [
        ("archive.cusz", "'archive.cusz'; accepted are bytes.*read_bytes"),
        (Path("archive.cusz"), "Path; accepted are bytes.*read_bytes"),
        (None, "None; accepted"),
        ([1, 2, 3], "a list; accepted"),
        (X, "4-byte items; accepted"),
        (np.zeros((100, 2), np.uint8)[:, 0], r"not contiguous: pass bytes\(archive\)"),
    ],
)
def test_refused_archives(archive, words):
    for read in (cusz.inspect, cusz.decompress, cusz.check, lambda a: cusz.verify(X, a)):
        with pytest.raises(cusz.UnsupportedError, match=words):
            read(archive)


def test_archives_in_any_buffer(tmp_path):
    archive = cusz.compress(X, 1e-3)
    wanted = cusz.decompress(archive)
    path = tmp_path / "x.cusz"
    path.write_bytes(archive)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        buffers = [bytearray(archive), memoryview(archive), np.frombuffer(archive, np.uint8), mapped]
        buffers += [memoryview(b"-" + archive)[1:], np.frombuffer(archive, np.int8)]
        for buffer in buffers:
            assert support.same_bits(cusz.decompress(buffer), wanted)
            assert cusz.inspect(buffer).shape == X.shape
            cusz.check(buffer)
        del buffers, buffer


def test_decompress_into_an_array():
    for dtype in support.DTYPES:
        x = X.astype(dtype)
        archive = cusz.compress(x, 1e-3)
        out = np.full_like(x, 7)
        assert cusz.decompress(archive, out=out) is out
        assert support.same_bits(out, cusz.decompress(archive))
        part = np.zeros((3, *x.shape), dtype)
        cusz.decompress(archive, out=part[1])
        assert support.same_bits(part[1], out)
        assert not part[0].any()
        assert not part[2].any()


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        ([0.0], cusz.UnsupportedError, "out is a list"),
        (bytearray(480), cusz.UnsupportedError, "out is a bytearray"),
        (X.astype(np.float64), cusz.UnsupportedError, r"float64.*needs a writable C-contiguous.*float32"),
        (X.astype(">f4"), cusz.UnsupportedError, ">f4"),
        (X.reshape(20, 6), cusz.ParameterError, r"shape \(20, 6\).*shape \(4, 5, 6\)"),
        (np.asfortranarray(X), cusz.ParameterError, "C-contiguous"),
        (np.zeros((4, 5, 12), np.float32)[:, :, ::2], cusz.ParameterError, "C-contiguous"),
        (np.frombuffer(X.tobytes(), np.float32).reshape(X.shape), cusz.ParameterError, "read-only"),
    ],
)
def test_refused_output_arrays(out, error, words):
    with pytest.raises(error, match=words):
        cusz.decompress(cusz.compress(X, 1e-3), out=out)


def test_output_must_not_overlap():
    archive = cusz.compress(X, 0.0)
    memory = np.zeros(len(archive) // 4 + 200, np.float32)
    memory.view(np.uint8)[100 : 100 + len(archive)] = np.frombuffer(archive, np.uint8)
    with pytest.raises(cusz.ParameterError, match="overlaps"):
        cusz.decompress(memory.view(np.uint8)[100 : 100 + len(archive)], out=memory[: X.size].reshape(X.shape))
    x = memory[: X.size].reshape(X.shape)
    with pytest.raises(cusz.ParameterError, match="overlaps"):
        cusz.compress(x, 1e-3, out=memory[100:])


@pytest.mark.parametrize("eb", [0.0, 1e-3])
def test_boxes_and_levels_must_not_overlap(eb):
    made = cusz.compress(X, eb)
    memory = np.zeros(len(made) + 4 * X.size, np.uint8)
    archive = memory[: len(made)]
    archive[:] = np.frombuffer(made, np.uint8)
    values = memory[len(made) // 8 * 8 - 8 :].view(np.float32)  # overlaps the last bytes of the archive
    box, level = values[:54:2].reshape(3, 3, 3), values[:18].reshape(2, 3, 3)
    for read in (
        lambda: cusz.decompress_box(archive, (0, 0, 0), out=box),
        lambda: cusz.decompress_box(archive, (0, 0, 0), out=level, level=1),
        lambda: cusz.decompress(archive, out=level, level=1),
        lambda: cusz.decompress(archive, out=level, level=1, archive_bytes=len(made)),
    ):
        with pytest.raises(cusz.ParameterError, match="out overlaps the archive: pass separate memory"):
            read()
    behind = values[2 + 4 :][:54:2].reshape(3, 3, 3)
    assert support.same_bits(cusz.decompress_box(archive, (0, 0, 0), out=behind), cusz.decompress(made)[:3, :3, :3])


@pytest.mark.parametrize("extra", [0, 1, 1000])
@pytest.mark.parametrize("make", [bytearray, lambda n: np.zeros(n, np.uint8), lambda n: memoryview(bytearray(n))])
def test_compress_into_a_buffer(make, extra):
    wanted = cusz.compress(X, 1e-3)
    out = make(cusz.max_archive_bytes(X.shape, X.dtype) + extra)
    filled = cusz.compress(X, 1e-3, out=out)
    assert isinstance(filled, memoryview)
    assert bytes(filled) == wanted == bytes(memoryview(out)[: len(wanted)])
    out[0] = 0
    assert filled[0] == 0


def test_compress_into_a_buffer_that_is_just_enough():
    x = support.smooth((40, 50, 60), support.F32)
    wanted = cusz.compress(x, 1e-3)
    for size in (len(wanted), len(wanted) + 1, x.nbytes):
        out = bytearray(size)
        assert cusz.compress(x, 1e-3, out=out) == wanted
    assert cusz.compress(x, 1e-3, out=np.zeros((100, 4000), np.float64)) == wanted


@pytest.mark.parametrize(
    "out",
    [bytearray(2000), memoryview(bytearray(2000)), np.zeros((20, 100), np.uint8), np.zeros(2000)],
    ids=["bytearray", "memoryview", "bytes in rows", "doubles"],
)
def test_archives_in_a_buffer_of_any_kind(out):
    wanted = cusz.compress(X, 1e-3)
    parameters = cusz.Parameters(1e-3)
    assert cusz.compress_described(X, parameters, out=out).archive == wanted
    assert cusz.compress_many([X, X], 1e-3, out=out) == [wanted, wanted]
    assert cusz.compress_many_described([X, X], parameters, out=out).archives == 2 * wanted
    assert bytes(memoryview(np.frombuffer(out, np.uint8))[: 2 * len(wanted)]) == 2 * wanted


@pytest.mark.parametrize("compress", ["compress", "compress_described", "compress_many", "compress_many_described"])
@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        (b"0" * 2000, cusz.ParameterError, r"out is read-only \(bytes\)"),
        ([0] * 2000, cusz.UnsupportedError, "out is a list; it must be a writable buffer"),
        (np.zeros((2000, 2), np.uint8)[:, 0], cusz.ParameterError, "out is not C-contiguous"),
        (np.empty(2000, object), cusz.UnsupportedError, "out holds references to Python objects"),
        (memoryview(np.empty(2000, object)), cusz.UnsupportedError, "out holds references to Python objects"),
        (np.empty(2000, [("a", object)]), cusz.UnsupportedError, "out holds references to Python objects"),
    ],
)
def test_no_archives_in_other_memory(compress, out, error, words):
    x = [X] if "many" in compress else X
    how = cusz.Parameters(1e-3) if "described" in compress else 1e-3
    with pytest.raises(error, match=words):
        getattr(cusz, compress)(x, how, out=out)


def test_fields_may_have_any_name():
    out = np.zeros(2000, [("O", np.uint8)])
    assert cusz.compress(X, 1e-3, out=out) == cusz.compress(X, 1e-3)


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        (bytearray(10), cusz.ParameterError, "out holds 10 bytes, the archive has .*max_archive_bytes"),
        (bytearray(0), cusz.ParameterError, "out holds 0 bytes"),
        (memoryview(b"0" * 1000), cusz.ParameterError, "read-only"),
    ],
)
def test_refused_output_buffers(out, error, words):
    with pytest.raises(error, match=words):
        cusz.compress(X, 1e-3, out=out)


def test_max_archive_bytes():
    assert cusz.max_archive_bytes((2, 3), np.float32) == 24 + 48
    assert cusz.max_archive_bytes((0, 3), "f8") == 48
    assert cusz.max_archive_bytes(X.shape, X.dtype) == X.nbytes + 48
    for shape in ((), (1,) * 5, (-1,), (1.5,), (2**70,)):
        with pytest.raises(cusz.ParameterError, match="shape"):
            cusz.max_archive_bytes(shape, np.float32)
    with pytest.raises(cusz.UnsupportedError, match="63 bits"):
        cusz.max_archive_bytes((2**62,), np.float32)
    with pytest.raises(cusz.UnsupportedError, match="int32"):
        cusz.max_archive_bytes((1,), np.int32)


def test_errors_are_of_one_family():
    for name in (
        "Parameter",
        "Unsupported",
        "CorruptArchive",
        "ArchiveTooNew",
        "Device",
        "OutOfMemory",
        "Plugin",
        "Bound",
    ):
        assert issubclass(getattr(cusz, f"{name}Error"), cusz.CuszError)
    assert issubclass(cusz.OutOfMemoryError, MemoryError)
    assert issubclass(cusz.DeviceError, RuntimeError)


def test_public_names_exist():
    assert sorted(cusz.__all__) == sorted(set(cusz.__all__))
    for name in cusz.__all__:
        assert hasattr(cusz, name)
    for name in ("compress", "decompress", "inspect", "verify", "check", "value_range", "devices"):
        assert getattr(cusz, name).__doc__
    assert re.fullmatch(r"\d+\.\d+\.\d+", cusz.__version__)


@pytest.mark.parametrize(
    ("limit", "legal"), [(399, False), (400, True), (np.int64(400), True), (0, False), (None, True)]
)
def test_max_bytes_limits_the_field(limit, legal):
    x = np.arange(100, dtype=np.float32)
    archive = cusz.compress(x, 0.0)
    if legal:
        assert cusz.decompress(archive, max_bytes=limit).tobytes() == x.tobytes()
    else:
        with pytest.raises(cusz.ParameterError, match="400 bytes, more than max_bytes"):
            cusz.decompress(archive, max_bytes=limit)


@pytest.mark.parametrize("limit", [-1, 1.5, "1", True])
def test_max_bytes_must_be_a_number_of_bytes(limit):
    with pytest.raises(cusz.ParameterError, match="max_bytes is"):
        cusz.decompress(cusz.compress(np.zeros(3, np.float32), 0.0), max_bytes=limit)
