"""Programs that know nothing of this package, with the HDF5 of Debian: h5dump, h5repack, and one in C."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

import support
from cusz_core.hdf5 import FILTER_ID, Cusz
from support import F32, F64

Run = Callable[..., str]
Tool = Callable[[str, str], str]


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    """Runs a command in the test's folder, and returns what it prints."""
    return functools.partial(support.output, env=environment, cwd=tmp_path)


def dumped(run: Run, h5dump: str, path: Path, like: np.ndarray) -> np.ndarray:
    """A dataset as h5dump writes it to a binary file."""
    binary = path.with_suffix(".bin")
    run(h5dump, "-d", "x", "-b", "LE", "-o", binary, path)
    return np.fromfile(binary, like.dtype).reshape(like.shape)


@pytest.mark.parametrize("mode", ["abs", "rel", "pw_rel"])
def test_h5dump_reads_what_h5py_wrote(tmp_path: Path, run: Run, require_tool: Tool, dtype: np.dtype, mode) -> None:
    h5dump = require_tool("h5dump", "hdf5-tools")
    x = support.smooth((30, 40, 50), dtype)
    x.reshape(-1)[::50] = 1e20
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=x, chunks=(16, 16, 50), fillvalue=1e20, **Cusz(1e-3, mode))
    with h5py.File(path) as file:
        expected = file["x"][...]
    y = dumped(run, h5dump, path, x)
    assert support.same_bits(y, expected)
    if mode == "abs":
        assert support.violations(x, y, 1e-3, 1e20) == []
    said = run(h5dump, "-p", "-H", path)
    assert f"FILTER_ID {FILTER_ID}" in said
    (values,) = re.findall(r"PARAMS \{ ([-0-9 ]+) \}", said)
    assert [int(word) % 2**32 for word in values.split()][:5] == list(Cusz(1e-3, mode).filter_options)


def test_h5repack_writes_it(tmp_path: Path, run: Run, require_tool: Tool, dtype: np.dtype) -> None:
    """Repacks an uncompressed file, then that to other chunks, then back; each copy keeps the bound to its input."""
    h5repack, h5dump = require_tool("h5repack", "hdf5-tools"), require_tool("h5dump", "hdf5-tools")
    x = support.smooth((30, 40, 50), dtype)
    plain, one, other, back = (tmp_path / f"{name}.h5" for name in ("plain", "one", "other", "back"))
    with h5py.File(plain, "w") as file:
        file.create_dataset("x", data=x)
    values = ",".join(map(str, Cusz(1e-3).filter_options))
    run(h5repack, "-l", "x:CHUNK=16x16x16", "-f", f"x:UD={FILTER_ID},0,5,{values}", plain, one)
    y = dumped(run, h5dump, one, x)
    assert support.violations(x, y, 1e-3) == []
    with h5py.File(one) as file:
        assert repr(Cusz.of(file["x"])) == repr(Cusz(1e-3))
        assert support.same_bits(file["x"][...], y)
        assert file["x"].id.get_storage_size() < x.nbytes / 1.5

    run(h5repack, "-l", "x:CHUNK=30x40x7", one, other)  # the filter stays, and learns the new chunks
    with h5py.File(other) as file:
        assert file["x"].chunks == (30, 40, 7)
        assert repr(Cusz.of(file["x"])) == repr(Cusz(1e-3))
        assert support.violations(y, file["x"][...], 1e-3) == []
        z = file["x"][...]

    run(h5repack, "-f", "x:NONE", other, back)
    with h5py.File(back) as file:
        assert FILTER_ID not in file["x"]._filters
        assert support.same_bits(file["x"][...], z)


def test_damage_is_named(tmp_path: Path, run: Run, require_tool: Tool) -> None:
    h5dump = require_tool("h5dump", "hdf5-tools")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        options = Cusz(1e-3, predictor="lorenzo")
        dataset = file.create_dataset("x", data=support.smooth((30, 40), F32), chunks=(30, 40), **options)
        file.flush()
        archive = bytearray(dataset.id.read_direct_chunk((0, 0))[1])
        archive[-1] ^= 1
        dataset.id.write_direct_chunk((0, 0), bytes(archive))
    said = run(h5dump, "--enable-error-stack", path, ok=False)
    assert re.search(r"cusz: corrupt archive: .*checksum", said)
    with h5py.File(path, "r+") as file:
        file["x"].id.write_direct_chunk((0, 0), bytes(archive[:-5]))
    assert "cusz: truncated archive: " in run(h5dump, "--enable-error-stack", path, ok=False)


READ = "import h5py; h5py.File('x.h5')['x'][...]"
WRITE = (
    "import h5py; h5py.File('y.h5', 'w').create_dataset('x', (4,), 'f4', compression=453, compression_opts=(1, 0, 0))"
)
#: What programs say that do not find the filter, as docs/reference/troubleshooting.md quotes it.
NOT_FOUND = {
    "required filter 'cusz (error-bounded lossy)' is not registered": "h5dump --enable-error-stack x.h5",
    "h5dump error: unable to print data": "h5dump x.h5",
    "Warning: dataset <...> cannot be read, user defined filter is not available": "h5repack -f NONE x.h5 y.h5",
    "NetCDF: Filter error: undefined filter encountered": "ncdump x.h5",
    "(can't open directory (...). Please verify its existence)": READ,
    "(can't find plugin. Check either HDF5_VOL_CONNECTOR, HDF5_PLUGIN_PATH, default location, ...": READ,
    "Unknown compression filter number: 453": WRITE,
}


@pytest.mark.parametrize("message", NOT_FOUND)
def test_without_the_filter(message: str, tmp_path: Path, environment: dict[str, str], require_tool: Tool) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=support.smooth((30, 40), F32), chunks=(30, 40), **Cusz(1e-3))
    folder = tmp_path / "nowhere" if "directory" in message else tmp_path
    if NOT_FOUND[message].startswith("import"):
        if h5py.version.hdf5_version_tuple < (2, 0, 0):
            pytest.skip("the messages are those of HDF5 2.0, which h5py of requirements.lock has")
        command = [sys.executable, "-c", NOT_FOUND[message]]
    else:
        command = NOT_FOUND[message].split()
        require_tool(command[0], "netcdf-bin" if command[0] == "ncdump" else "hdf5-tools")
    said = support.run(command, status=None, cwd=tmp_path, env={**environment, "HDF5_PLUGIN_PATH": str(folder)})
    assert re.search(".*".join(map(re.escape, message.split("..."))), said.stdout + said.stderr)


# Like a simulation. It exits without closing its file: HDF5 then writes the chunks that it still holds. With a second
# argument it reads.
PROGRAM = r"""
#include <hdf5.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { N = 50, FILTER = 453 };
static double x[N][N];

int main(int argc, char** argv) {
    if (argc == 3) {
        const hid_t file = H5Fopen(argv[1], H5F_ACC_RDONLY, H5P_DEFAULT);
        const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
        if (H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) < 0) return 1;
        FILE* const out = fopen(argv[2], "wb");
        return fwrite(x, sizeof x, 1, out) != 1 || fclose(out) != 0;
    }
    const double eb = 1e-3;
    uint64_t bits;
    memcpy(&bits, &eb, sizeof bits);
    const unsigned values[] = {1, (unsigned)(bits >> 32), (unsigned)bits};
    const hsize_t shape[] = {N, N}, chunk[] = {N, N};
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) x[i][j] = (i * 37 % 101 + j * j % 53) / 64.0;
    const hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(2, shape, NULL);
    const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    if (H5Pset_chunk(dcpl, 2, chunk) < 0 || H5Pset_filter(dcpl, FILTER, H5Z_FLAG_MANDATORY, 3, values) < 0) return 1;
    const hid_t dataset = H5Dcreate2(file, "x", H5T_IEEE_F64LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    if (dataset < 0) return 1;
    return H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) < 0;
}
"""


def test_programs_in_c(tmp_path: Path, run: Run, require_tool: Tool) -> None:
    """One with a shared HDF5, and one with HDF5 linked in statically: that one exports nothing, so it can only read."""
    h5cc = require_tool("h5cc", "libhdf5-dev")
    (tmp_path / "main.c").write_text(PROGRAM)
    for name, kind in (("shared", "-shlib"), ("static", "-noshlib")):
        run(h5cc, kind, "-std=c11", "-Wall", "-o", tmp_path / name, tmp_path / "main.c")
    i, j = np.indices((50, 50))
    x = (i * 37 % 101 + j * j % 53) / 64.0

    run(tmp_path / "shared", tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        assert repr(Cusz.of(file["x"])) == repr(Cusz(1e-3))
        y = file["x"][...]
    assert y.dtype == F64
    assert support.violations(x, y, 1e-3) == []
    assert not support.same_bits(x, y)  # it is compressed

    for name in ("shared", "static"):
        run(tmp_path / name, tmp_path / "x.h5", tmp_path / f"{name}.bin")
        assert (tmp_path / f"{name}.bin").read_bytes() == y.tobytes()
    linked = run("ldd", tmp_path / "static")
    if "libhdf5" in linked:
        pytest.skip("h5cc -noshlib links a shared HDF5 here")
    run(tmp_path / "static", tmp_path / "z.h5", ok=False)
