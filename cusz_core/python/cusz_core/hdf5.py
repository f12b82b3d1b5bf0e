"""The HDF5 filter, for h5py and packages built on it (docs/guides/hdf5.md).

    import h5py
    from cusz_core.hdf5 import Cusz

    with h5py.File("run.h5", "w") as file:
        file.create_dataset("T", data=t, chunks=(64, 64, 64), **Cusz(eb=1e-3))

Importing this module lets h5py find the filter, for reading too, and adds its folder to HDF5_PLUGIN_PATH for processes
started later, such as dask's workers. For other programs `python -m cusz_core.hdf5` prints the folder.
"""

from __future__ import annotations

import importlib.util
import math
import os
import platform
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from .errors import ParameterError, UnsupportedError
from .parameters import TABLE, Parameters, Predictor

if TYPE_CHECKING:
    import h5py

__all__ = ["FILTER_ID", "Cusz", "plugin_path"]

#: The filter's number: from the range that the HDF Group reserves for tests, because none has been registered yet.
FILTER_ID = 453

_FILE_NAME = "libcusz_hdf5.so"
_SEARCH_VARIABLE = "HDF5_PLUGIN_PATH"
#: Where builds of HDF5 search if HDF5_PLUGIN_PATH is not set: the library's default, and those of wheels and Debian.
_SEARCHED_BY_HDF5 = (
    "/usr/local/hdf5/lib/plugin",
    "/usr/local/lib/plugin",
    "/usr/local/lib/hdf5/plugin",
    *(f"/usr/lib/{platform.machine()}-linux-gnu/hdf5/{kind}/plugins" for kind in ("serial", "openmpi", "mpich")),
)
_LAYOUT = 1  # of cd_values
_N_OF_USER, _N = 5, 13  # of cd_values: those without a fill value, and all, which the filter adds for a dataset

#: The modes that are bounds.
Mode = Literal["abs", "rel", "pw_rel"]


def plugin_path() -> Path:
    """The folder of the filter's library, for HDF5_PLUGIN_PATH.

    Raises:
        UnsupportedError: this package was built without the filter.
    """
    folder = Path(__file__).resolve().parent / "hdf5_plugin"
    if not (folder / _FILE_NAME).is_file():
        raise UnsupportedError(
            f"{_FILE_NAME} is not in {folder}: this package was installed without the HDF5 filter "
            "(CUSZ_BUILD_HDF5=OFF): install it with the filter"
        )
    return folder


class Cusz(Mapping[str, Any]):
    """The filter and its parameters, as keywords of `h5py.Group.create_dataset` and of xarray's `encoding`.

    A mapping with `compression` (the filter's number) and `compression_opts` (its cd_values); h5py takes
    `compression=Cusz(...)` as well. The dataset has to be of little-endian float32 or float64, and chunked. A fill
    value set on it comes back exactly, and does not count in a chunk's value range.

    Args:
        eb: the error bound, finite and >= 0; 0 is lossless.
        mode: "abs": |d - d'| <= eb. "rel": |d - d'| <= eb * (max - min), over the values of each chunk. "pw_rel":
            |d - d'| <= eb * |d|.
        predictor: as in `cusz_core.Parameters`.
        fill: a value that stands for "no data", for datasets on which no fill value is set.

    Attributes:
        eb, mode, predictor, fill: as given.
        filter_options: the integers that HDF5 calls cd_values: 1, the upper and the lower 32 bits of `eb` as a float64,
            and the numbers of mode and predictor; with `fill` eight more.

    Raises:
        ParameterError: a value out of its legal range.
    """

    filter_id = FILTER_ID  # h5py asks for this, and for filter_options

    def __init__(self, eb: float, mode: Mode = "abs", predictor: Predictor = "auto", fill: float | None = None) -> None:
        if mode not in get_args(Mode):
            raise ParameterError(f"mode is {mode!r}; legal for HDF5: {', '.join(get_args(Mode))}")
        checked = Parameters(eb, mode, predictor=predictor, fill=fill)
        self.eb, self.mode, self.predictor, self.fill = checked.eb, mode, checked.predictor, checked.fill
        self.filter_options: tuple[int, ...] = (
            _LAYOUT,
            *_words(self.eb),
            _choices("mode").index(self.mode),
            _choices("predictor").index(self.predictor),
        )
        if self.fill is not None:  # the filter replaces the zeros; NaN comes back anyway
            has_fill = not math.isnan(self.fill)
            self.filter_options += (0, 0, 0, 0, 0, int(has_fill), *_words(self.fill if has_fill else 0.0))

    @classmethod
    def of(cls, dataset: h5py.Dataset) -> Cusz:
        """The parameters of a dataset.

        Raises:
            UnsupportedError: it was not written with this filter, or with a newer version of it.
        """
        found = dataset.id.get_create_plist().get_filter_by_id(FILTER_ID)
        if found is None:
            raise UnsupportedError(f"{dataset.name} was not written with the filter {FILTER_ID}")
        modes, predictors = _choices("mode"), _choices("predictor")
        given: list[int] = list(found[1][:_N_OF_USER])
        left_out = [0, 0, 0, modes.index(Parameters.mode), predictors.index(Parameters.predictor)][len(given) :]
        values = given + left_out
        if values[0] != _LAYOUT or values[3] >= len(modes) or values[4] >= len(predictors):
            raise UnsupportedError(
                f"{dataset.name} was written with a newer version of the filter: use a newer release"
            )
        mode: Any = modes[values[3]]
        predictor: Any = predictors[values[4]]
        has_fill = len(found[1]) == _N and found[1][-3] != 0
        return cls(_real(values[1:3]), mode, predictor, _real(found[1][-2:]) if has_fill else None)

    def __getitem__(self, key: str) -> Any:
        return {"compression": FILTER_ID, "compression_opts": self.filter_options}[key]

    def __iter__(self) -> Iterator[str]:
        return iter(("compression", "compression_opts"))

    def __len__(self) -> int:
        return 2

    def __hash__(self) -> int:
        return hash(self.filter_options)

    def __repr__(self) -> str:
        fill = "" if self.fill is None else f", fill={self.fill!r}"
        return f"Cusz(eb={self.eb!r}, mode={self.mode!r}, predictor={self.predictor!r}{fill})"


def _choices(key: str) -> tuple[str, ...]:
    return TABLE[key].choices or ()


def _words(value: float) -> tuple[int, ...]:
    """The upper and the lower 32 bits of a float64."""
    return struct.unpack(">2I", struct.pack(">d", value))


def _real(words: Sequence[int]) -> float:
    value: float = struct.unpack(">d", struct.pack(">2I", *words))[0]
    return value


def _tell_h5py() -> None:
    """If h5py is installed, makes it accept `compression=Cusz(...)`, and its HDF5 also search the filter's folder."""
    try:
        import h5py
    except ImportError:
        return
    h5py.filters.FilterRefBase.register(Cusz)
    folder = bytes(plugin_path())
    searched = [h5py.h5pl.get(i) for i in range(h5py.h5pl.size())]
    if folder in searched:
        return
    place = _place_among(searched)
    if place < len(searched):
        h5py.h5pl.insert(folder, place)
    else:  # HDF5 inserts nothing behind the last one
        h5py.h5pl.append(folder)


def _tell_children() -> None:
    """Passes the folder on to child processes. Where HDF5_PLUGIN_PATH is set, HDF5 searches no other folders, and
    netCDF4 does not add the folder of its own filters: so if it was unset, both are added as well."""
    given = os.environ.get(_SEARCH_VARIABLE)
    usual = [folder for folder in _SEARCHED_BY_HDF5 if os.path.isdir(folder)]
    folders = [*usual, *_of_netcdf4()] if given is None else given.split(os.pathsep)
    try:
        ours = str(plugin_path())
    except UnsupportedError:  # reported when the filter is used
        return
    folders = [folder for folder in folders if folder not in ("", ours)]
    folders.insert(_place_among(folders), ours)
    os.environ[_SEARCH_VARIABLE] = os.pathsep.join(folders)


def _place_among(folders: Sequence[str | bytes]) -> int:
    """Where the filter's folder belongs: last, but before any that does not exist, because HDF5 1.12 searches none
    behind it."""
    return next((i for i, folder in enumerate(folders) if not os.path.isdir(folder)), len(folders))


def _of_netcdf4() -> list[str]:
    """The folder of the filters shipped with the package netCDF4, if it is installed and has them."""
    found = importlib.util.find_spec("netCDF4")
    folders = [Path(folder) / "plugins" for folder in (found.submodule_search_locations or [])] if found else []
    return [str(folder) for folder in folders if (folder / "lib__nczhdf5filters.so").exists()]


if __name__ == "__main__":
    print(plugin_path())
else:
    _tell_h5py()
    _tell_children()
