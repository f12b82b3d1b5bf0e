"""One field and one set of parameters give one archive."""

import numpy as np
import pytest

import cusz_core as cusz
import support
from support import BACKENDS, DTYPES

PREDICTORS = ["lorenzo", "auto"]
FIELDS = {
    "1-D": (1_200_007,),
    "2-D": (300, 400),
    "3-D": (40, 50, 60),
    "4-D": (3, 20, 33, 47),
    "thin": (20000, 3),
    "one tile": (8, 16, 32),
}


def field(name, dtype):
    x = support.smooth(FIELDS[name], dtype)
    flat = x.reshape(-1)
    flat[::1013] = np.nan
    flat[1::2027] = 1e20
    flat[2::4051] *= dtype.type(1e9)
    return x


@pytest.mark.parametrize("predictor", PREDICTORS)
@pytest.mark.parametrize("name", FIELDS)
def test_any_number_of_threads(name, dtype, backend, predictor):
    x = field(name, dtype)
    options = {"fill": 1e20, "backend": backend, "predictor": predictor}
    for eb, mode, bins in ((1e-3, "rel", 64), (1e-2, "abs", 1024), (1e-3, "pw_rel", 64), (0.0, "abs", 64)):
        archives = {cusz.compress(x, eb, mode, bins=bins, threads=n, **options) for n in (1, 2, 3, 7)}
        assert len(archives) == 1
        (archive,) = archives
        fields = {cusz.decompress(archive, threads=n).tobytes() for n in (1, 2, 3, 7)}
        assert len(fields) == 1


@pytest.mark.parametrize("noise", [1e-4, 0.02, 0.3])
def test_any_number_of_threads_chooses_the_same(noise):
    """In a field that is sampled in several boxes, each box has a thread."""
    x = support.smooth((150, 148, 144), support.F32)
    x += noise * np.ptp(x) * np.random.default_rng(1).standard_normal(x.shape, np.float32)
    assert len({cusz.compress(x, 1e-3, "rel", threads=n) for n in (1, 2, 7)}) == 1


@pytest.mark.parametrize("predictor", PREDICTORS)
def test_every_backend_writes_the_same_bytes(dtype, predictor):
    x = field("3-D", dtype)
    assert len({cusz.compress(x, 1e-3, "rel", backend=name, predictor=predictor) for name in (*BACKENDS, "auto")}) == 1


@pytest.mark.parametrize("predictor", PREDICTORS)
def test_earlier_calls_leave_no_trace(backend, predictor):
    """Scratch memory is reused: what it held before must not matter."""
    wanted, options = {}, {"fill": 1e20, "backend": backend, "predictor": predictor}
    for name in FIELDS:
        for dtype in DTYPES:
            cusz.release_scratch()
            wanted[name, dtype] = cusz.compress(field(name, dtype), 1e-3, **options)
    for name in (*reversed(FIELDS), *FIELDS):
        for dtype in DTYPES:
            archive = cusz.compress(field(name, dtype), 1e-3, **options)
            assert archive == wanted[name, dtype]
            y = cusz.decompress(archive)
            cusz.release_scratch()
            assert support.same_bits(y, cusz.decompress(archive))


def test_layout_in_memory_does_not_matter(backend):
    x = field("3-D", support.F32)
    wanted = cusz.compress(x, 1e-3, backend=backend)
    strided = np.zeros((40, 50, 120), np.float32)[:, :, ::2]
    strided[:] = x
    unaligned = np.frombuffer(b"-" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    readonly = x.copy()
    readonly.flags.writeable = False
    for same in (strided, np.asfortranarray(x), x[::-1][::-1], unaligned, readonly):
        assert cusz.compress(same, 1e-3, backend=backend) == wanted
