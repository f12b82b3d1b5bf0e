"""xarray's engine "cusz": BP files as datasets, whatever program wrote them.

    xarray.open_dataset("run.bp", engine="cusz")              # nothing is read before it is needed
    xarray.open_dataset("run.bp", engine="cusz", chunks={})   # with dask: a chunk for each block or step
    xarray.open_dataset("run.bp", engine="cusz", level=2)     # every fourth value
    xarray.open_datatree("run.bp", engine="cusz")             # a group for each level

xarray finds it by an entry point; nothing else imports this module.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import math
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from xarray import Dataset, Variable
from xarray.backends import (
    AbstractDataStore,
    BackendArray,
    BackendEntrypoint,
    CachingFileManager,
    StoreBackendEntrypoint,
)
from xarray.core import indexing

from cusz_core import embedding
from cusz_core.errors import CorruptArchiveError, CuszError, ParameterError, UnsupportedError

from .names import OF_DIMENSIONS, dimensions_of
from .reading.levels import VariableLevel
from .reading.reader import Reader, ReaderVariable
from .reading.steps import ReaderStep
from .tables.representation import ATTRIBUTE_PREFIX

__all__ = ["CuszBackendEntrypoint"]

#: Attributes of a variable that stand for missing values.
_FILL_VALUES = ("_FillValue", "missing_value")
#: To tell whether a coordinate changes: how many steps are compared, and how many bytes if values have to be read.
_MOST_COMPARED = 1000
_MOST_BYTES = 2**26
#: How many steps are checked to tell whether a level stays the same.
_STEPS_OF_LEVELS = 3
#: Columns of block tables: where they are equal, values are taken to be equal.
_TELLING = ["start", "count", "raw_bytes", "archive_bytes", "eb_abs", "min", "max", "outliers", "checksum"]


class CuszBackendEntrypoint(BackendEntrypoint):
    """Opens BP files (BP5 and BP4) through `cusz_operator.Reader`."""

    description = "BP files of ADIOS2, with variables that are compressed by cusz or not"
    open_dataset_parameters = (
        *("filename_or_obj", "mask_and_scale", "decode_times", "concat_characters", "decode_coords", "drop_variables"),
        *("use_cftime", "decode_timedelta", "group", "step_dimension", "threads", "cache_bytes", "level"),
    )
    supports_groups = True

    def open_dataset(  # type: ignore[override]
        self,
        filename_or_obj: str | os.PathLike[str],
        *,
        mask_and_scale: bool | Mapping[str, bool] = True,
        decode_times: Any = True,
        concat_characters: bool | Mapping[str, bool] = True,
        decode_coords: Literal["coordinates", "all"] | bool = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: bool | Mapping[str, bool] | None = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        step_dimension: str = "step",
        threads: int | None = None,
        cache_bytes: int = 2**28,
        level: int = 0,
    ) -> Dataset:
        """A dataset of the variables of a file.

        A variable that several steps have gets a dimension of steps before its own; one of a single step does not,
        unless the file has no other. Left out, with a warning: variables whose shape changes from step to step, or that
        have no global shape.

        A one-dimensional variable with the name of its dimension becomes its coordinate, if its values are the same at
        every step. If they change, it has the dimension of steps as well, and no index: `data.isel(step=2)` makes it
        the coordinate of that step. Block tables tell whether they change: those of all steps, or of 1000, evenly
        spread from the first to the last. Files of other programs have no such tables: values are then compared, at as
        many of these steps as take 64 MiB together, but at least at the first, a middle and the last one.

        xarray decodes variables according to the CF conventions, as it would those of a netCDF file with the same
        attributes: `time/units` is the attribute `units` of the variable `time`.

        Args:
            filename_or_obj: the .bp folder.
            mask_and_scale: replace `_FillValue` and `missing_value` by NaN, and apply `scale_factor` and `add_offset`.
                Values become float32 or float64 where that requires it; nothing is read for it.
            decode_times: turn numbers whose `units` are like "days since 2000-01-01" into datetime64; or a
                `xarray.coders.CFDatetimeCoder` that says how. The first and the last value are read to find the dtype.
            concat_characters: join arrays of characters, which ADIOS2 variables never are.
            decode_coords: the variables that `coordinates` names become coordinates; "all": also those of
                `grid_mapping`, `bounds` and so on.
            drop_variables: names of variables to leave out.
            use_cftime: whether times are cftime objects; None: only if datetime64 lacks the calendar or the time.
            decode_timedelta: turn numbers whose `units` are like "hours" into timedelta64; None: the default of
                xarray's release; or a `xarray.coders.CFTimedeltaCoder`. (For this, `decode_times`, `mask_and_scale`,
                `concat_characters` and `use_cftime`, a mapping gives each variable its own value.)
            group: only variables whose names begin with this and a slash, which are then left out of the names; for
                openPMD, such as "/data/0/fields".
            step_dimension: name of the dimension of steps. If the file has a number of this name at each step, these
                are its coordinate; otherwise, the numbers of the steps in the file are.
            threads, cache_bytes: as for `Reader`.
            level: a coarser version of all arrays (`ReaderStep.level`); an array with fewer levels has its last one.
                A dimension without a coordinate gets one: the indices of the level's values in the variable.
                Left out, with a warning: variables whose level is no grid, or has other coordinates along a dimension
                than the variables before, or other ones at the last step or a middle one than at the first, as after an
                append by other ranks. (Reading another step that differs raises a ParameterError.)

        Raises:
            FileNotFoundError, NotADirectoryError, CorruptArchiveError, PluginError, CuszError: as for `Reader`.
            ParameterError: there is no such group, or no variable has such a level.
            ValueError: xarray cannot decode a variable by its attributes; the message names the variable, and which
                option to switch off.
        """
        path = os.path.abspath(os.fspath(filename_or_obj))
        manager = CachingFileManager(_open, path, mode="r", kwargs={"threads": threads, "cache_bytes": cache_bytes})
        try:
            reader: Reader = manager.acquire()
            dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
            prefix = f"{group.rstrip('/')}/" if group else ""
            found = {
                name[len(prefix) :]: variable
                for name, variable in reader.variables.items()
                if name.startswith(prefix) and name[len(prefix) :] not in dropped
            }
            if group and not found:
                raise ParameterError(f"{path!r} has no variables in group {group!r}")
            variables = _variables_of(manager, reader, found, step_dimension, embedding.integer(level, "level"))
            attributes = _attributes_beside(reader, (group or "").rstrip("/"))
            return StoreBackendEntrypoint().open_dataset(
                _Store(variables, attributes, manager.close),
                mask_and_scale=mask_and_scale,
                decode_times=decode_times,
                concat_characters=concat_characters,
                decode_coords=decode_coords,
                use_cftime=use_cftime,
                decode_timedelta=decode_timedelta,
            )
        except BaseException:
            manager.close()
            raise

    def open_groups_as_dict(  # type: ignore[override]
        self, filename_or_obj: str | os.PathLike[str], **options: Any
    ) -> dict[str, Dataset]:
        """A dataset for each level, named "/level_0" (all values), "/level_1", and so on. Variables with a slash in
        their name are in groups below these: "mesh/E/x" is x of "/level_0/mesh/E". Names that are taken get an
        underscore: beside a variable "T", "T/std" is std of `/level_0/T_`; with a dimension x, "E/x" is `x_`.

        Args:
            filename_or_obj: the .bp folder.
            options: as for `open_dataset`.

        Raises:
            As `open_dataset`.
        """
        found = {"/": Dataset(), **_groups("/level_0", self.open_dataset(filename_or_obj, **options))}
        for level in itertools.count(1):
            try:
                found |= _groups(f"/level_{level}", self.open_dataset(filename_or_obj, level=level, **options))
            except _NoSuchLevelError:
                return found
        raise AssertionError

    def open_datatree(self, filename_or_obj: str | os.PathLike[str], **options: Any) -> Any:  # type: ignore[override]
        """A `xarray.DataTree` of the datasets of `open_groups_as_dict`."""
        from xarray import DataTree  # releases before 2024.10 have none

        return DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **options))

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether it is a folder that ADIOS2's BP5 or BP4 engine wrote."""
        try:
            path = Path(os.fspath(filename_or_obj))
        except TypeError:
            return False
        return path.suffix in (".bp", ".bp4", ".bp5") and (path / "md.idx").is_file()


def _groups(name: str, dataset: Dataset) -> dict[str, Dataset]:
    """The dataset under this name, without variables that have a slash in theirs, and a dataset for each group."""
    dataset = dataset.rename({v: str(v).lstrip("/") for v in dataset.data_vars if str(v).startswith("/")})
    of_group: dict[str, dict[str, str]] = {}  # by group: names in the dataset, and in the group
    for variable in map(str, dataset.data_vars):
        group, slash, last = variable.rpartition("/")
        if slash:
            of_group.setdefault(group, {})[variable] = last
    found = {name: dataset.drop_vars(list(itertools.chain(*of_group.values())))}
    within: dict[str, set[str]] = {}  # names of the groups in each
    for parts in (group.split("/") for group in of_group):
        for depth, each in enumerate(parts):
            within.setdefault("/".join(parts[:depth]), set()).add(each)
    for group in sorted(of_group):  # parents come before their children
        path, parts = name, group.split("/")
        inherited: set[str] = set()  # coordinates of the parents
        for depth, each in enumerate(parts):
            there = found.get(path, Dataset())
            beside = inherited.union(map(str, there.variables))
            inherited.update(map(str, there.coords))
            path = f"{path}/{_free(each, beside, within['/'.join(parts[:depth])])}"
        own, names = dataset[list(of_group[group])], of_group[group]
        taken = inherited | {str(each) for each in (*own.dims, *own.coords)}
        found[path] = own.rename({whole: _free(last, taken, names.values()) for whole, last in names.items()})
        found[path].attrs.clear()
    return found


def _free(name: str, taken: Collection[str], wanted: Collection[str]) -> str:
    """The name, with underscores if it is taken; it is then also none of the names that others want."""
    if name in taken:
        while name in taken or name in wanted:
            name += "_"
    return name


def _open(path: str, mode: str, **options: Any) -> Reader:
    """Opens a Reader for xarray, which keeps few files open at once, and reopens them where a dataset is sent to."""
    return Reader(path, **options)


class _Store(AbstractDataStore):
    """What xarray's decoder takes from an engine: variables and attributes as they are in the file."""

    def __init__(
        self, variables: Mapping[str, Variable], attributes: Mapping[str, Any], close: Callable[[], None]
    ) -> None:
        self._variables = variables
        self._attributes = attributes
        self._close = close

    def get_variables(self) -> Mapping[str, Variable]:
        return self._variables

    def get_attrs(self) -> Mapping[str, Any]:
        return self._attributes

    def close(self) -> None:
        self._close()


class _LazyArray(BackendArray):
    """A variable at some steps, which is read when it is indexed.

    Attributes:
        shape: with the dimension of steps, if there is one.
        dtype: of its values.
    """

    def __init__(
        self,
        manager: Any,
        name: str,
        steps: Sequence[int],
        has_step_dimension: bool,
        variable: ReaderVariable,
        level: VariableLevel | None,
    ) -> None:
        self._manager = manager
        self._name = name
        self._steps = list(steps)
        self._has_step_dimension = has_step_dimension
        self._level = level  # at the first of the steps; None: all values
        shape = variable.shape if level is None else level.shape
        self.shape = (*([len(steps)] if has_step_dimension else []), *shape)
        self.dtype = variable.dtype
        self._fill = _fill_of(variable)  # where there is no block

    def __getitem__(self, key: indexing.ExplicitIndexer) -> NDArray[Any]:
        found: NDArray[Any] = indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )
        return found

    def _read(self, key: tuple[int | slice | NDArray[Any], ...]) -> NDArray[Any]:
        """Reads what these integers, slices (with positive steps) and arrays of integers select, each along its axis:
        of the steps only those that are selected, and of each the box around the rest."""
        selected = [_selected(k, n) for k, n in zip(key, self.shape, strict=True)]
        of_steps, *axes = selected if self._has_step_dimension else [range(1), *selected]
        values = np.empty([len(each) for each in (of_steps, *axes)], self.dtype)
        if values.size:
            start = [int(min(each)) for each in axes]
            count = [int(max(each)) - first + 1 for each, first in zip(axes, start, strict=True)]
            is_box = all(isinstance(each, range) and each.step == 1 for each in axes)
            with self._manager.acquire_context() as reader:
                for step, into in zip(of_steps, values, strict=True):
                    at = reader[self._steps[step]]
                    if is_box:
                        self._read_box(at, start, count, into)
                        continue
                    box = self._read_box(at, start, count, None)
                    for axis, (each, first) in enumerate(zip(axes, start, strict=True)):
                        if isinstance(each, range):
                            box = box[(slice(None),) * axis + (slice(None, None, each.step),)]
                        else:
                            box = box.take(each - first, axis)
                    into[...] = box
        kept = tuple(0 if isinstance(k, (int, np.integer)) else slice(None) for k in key)
        return values[kept if self._has_step_dimension else (0, *kept)]

    def _read_box(self, step: ReaderStep, start: list[int], count: list[int], out: Any) -> NDArray[Any]:
        number = self._level.number if self._level is not None else 0
        if self._level is not None:
            _require_same(step, self._name, self._level, self._steps[0])
        values: NDArray[Any] = step.read(self._name, start, count, out=out, fill=self._fill, level=number)
        return values


def _selected(key: int | slice | NDArray[Any], extent: int) -> range | NDArray[np.int64]:
    """The indices that a key selects along an axis; IndexError for an integer beyond it, as numpy raises."""
    if isinstance(key, slice):
        return range(*key.indices(extent))
    indices = np.atleast_1d(key).astype(np.int64)
    beyond = indices[(indices < -extent) | (indices >= extent)]
    if beyond.size:
        raise IndexError(f"index {beyond[0]} is out of bounds for an axis of size {extent}")
    indices = np.where(indices < 0, indices + extent, indices)
    return indices if np.ndim(key) else range(indices[0], indices[0] + 1)


def _require_same(step: ReaderStep, name: str, level: VariableLevel, first: int) -> None:
    """Refuses a level of a variable whose values are elsewhere than at the first step."""
    here = step.level(name, level.number).coordinates
    if not all(map(np.array_equal, here, level.coordinates)):
        raise ParameterError(
            f"level {level.number} of variable {name!r} has other coordinates at step {step.index} than at step "
            f"{first}, because its blocks have moved: read it with cusz_operator.Reader"
        )


def _fill_of(variable: ReaderVariable) -> Any:
    """For integers, `_FillValue` or `missing_value`, which xarray turns into NaN; None if their type cannot hold it."""
    if variable.dtype.kind not in "iu":
        return None
    limits = np.iinfo(variable.dtype)
    for name in _FILL_VALUES:
        given = np.asarray(variable.attributes.get(name, ""))
        if given.size == 1 and given.dtype.kind in "iuf":
            value = given.reshape(-1)[0].item()
            if limits.min <= value <= limits.max and value == int(value):
                return int(value)
    return None


def _variables_of(
    manager: Any, reader: Reader, found: Mapping[str, ReaderVariable], step_dimension: str, level: int
) -> dict[str, Variable]:
    usual = {}
    for name, variable in found.items():  # no comprehension: before Python 3.12 it adds a frame for warnings
        if _is_usual(name, variable):
            usual[name] = variable
    all_steps = list(range(len(reader)))
    attributes = reader.attributes
    given = {name: dimensions_of(v.name, len(v.shape), attributes) for name, v in usual.items()}
    extents = {pair for name, v in usual.items() for pair in zip(given[name] or (), v.shape, strict=False)}
    given |= {name: [name] for name, v in usual.items() if len(v.shape) == 1 and (name, v.shape[0]) in extents}
    # A dimension cannot have the name of a variable without dimensions.
    alone = {name for name, v in usual.items() if not v.shape and len(v.steps) == 1 and v.steps != all_steps}
    of_steps = _names_of_step_dimensions(usual, all_steps, step_dimension + "_" * (step_dimension in alone))
    names = _Names({*of_steps.values(), *alone})
    levels = _Levels(reader, [variable.name for name, variable in usual.items() if given[name] != [name]], level)
    variables = {}
    changing = set()  # names of dimensions whose values change from step to step
    # The most common shapes come first, and get the shortest names of dimensions.
    common = collections.Counter(variable.shape for variable in usual.values())
    for name, variable in sorted(usual.items(), key=lambda item: -common[item[1].shape]):
        shape, steps = variable.shape, variable.steps
        own = given[name] or [f"dim_{axis}" for axis in range(len(shape))]
        dimensions = [names.of(each, n) for each, n in zip(own, shape, strict=True)]
        names_dimension = dimensions == [name]
        is_coordinate = names_dimension and _is_constant(variable)
        has_levels = level > 0 and shape and not names_dimension
        of_level = levels.of(variable.name, steps, dimensions) if has_levels else None
        if has_levels and of_level is None:
            continue
        if is_coordinate:
            steps = steps[:1]
        elif names_dimension:
            changing.add(name)
        has_step_dimension = not is_coordinate and (len(steps) > 1 or steps == all_steps)
        if has_step_dimension:
            dimensions = [of_steps[tuple(steps)], *dimensions]
        data: Any
        if shape:
            array = _LazyArray(manager, variable.name, steps, has_step_dimension, variable, of_level)
            data = indexing.LazilyIndexedArray(array)
        else:
            values = [reader[step].read(variable.name) for step in steps]
            # Texts have a fixed width, as from xarray's other engines: dask cannot choose chunks of Python's objects.
            dtype = np.dtype(str) if variable.dtype.hasobject else variable.dtype
            data = np.array(values if has_step_dimension else values[0], dtype)
        of_variable = variable.attributes
        if not has_step_dimension and len(all_steps) > 1 and not is_coordinate:
            of_variable = {"step": steps[0], **of_variable}
        if given[name] is not None:  # xarray has the names, and scipy fails to write an attribute "dimensions"
            of_variable = {key: value for key, value in of_variable.items() if key not in OF_DIMENSIONS}
        own_attributes = _with_fill_values_of(_attributes(of_variable), data.dtype)
        chunks = _preferred_chunks(variable, steps, has_step_dimension, of_level)
        encoding = {} if chunks is None else {"preferred_chunks": dict(zip(dimensions, chunks, strict=True))}
        variables[name] = Variable(dimensions, data, own_attributes, encoding)
    variables |= _coordinates_of_level(variables, levels.coordinates, changing)
    used = {dimension for variable in variables.values() for dimension in variable.dims}
    for numbers, which in of_steps.items():
        if which in used and which not in variables:
            variables[which] = Variable([which], np.array(numbers, np.int64), {"long_name": "step of the file"})
    return variables


def _coordinates_of_level(
    variables: Mapping[str, Variable], positions: Mapping[str, NDArray[np.int64]], changing: Collection[str]
) -> dict[str, Variable]:
    """The coordinates of a level's points.

    Args:
        variables: of the dataset; coordinates among them are those of all points.
        positions: of the level's points, by dimension.
        changing: names of dimensions whose values change from step to step.
    """
    found = {}
    for dimension, along in positions.items():
        whole = variables.get(dimension)
        if whole is None:
            found[dimension] = Variable([dimension], along, {"long_name": "index in the variable"})
        elif whole.dims == (dimension,):  # read whole, to tell where values are
            found[dimension] = Variable([dimension], whole.to_numpy()[along], whole.attrs)
        elif dimension in changing:
            found[dimension] = whole.isel({dimension: along})
            found[dimension].encoding = {"preferred_chunks": {whole.dims[0]: 1, dimension: len(along)}}
    return found


def _names_of_step_dimensions(
    found: Mapping[str, ReaderVariable], all_steps: Sequence[int], step_dimension: str
) -> dict[tuple[int, ...], str]:
    """The dimension of each set of steps that variables have. Unless it has all steps, it is named after the group that
    its variables are in, such as step_level1, or after its only variable, or gets a number."""
    having: dict[tuple[int, ...], list[str]] = {}
    for name, variable in sorted(found.items(), key=lambda item: not item[1].shape):  # arrays first
        own = having.setdefault(tuple(variable.steps), [])
        if variable.shape or not own:
            own.append(name)
    names = {tuple(all_steps): step_dimension}
    for steps, variables in having.items():
        if steps in names:
            continue
        group = os.path.commonpath([name.lstrip("/") for name in variables])
        words = "_".join(re.findall(r"\w+", group)) or str(len(names) + 1)
        name = f"{step_dimension}_{words}"
        names[steps] = name if name not in names.values() and name not in found else f"{name}_{len(names) + 1}"
    return names


def _is_usual(name: str, variable: ReaderVariable) -> bool:
    """Whether a variable has the same shape at all steps, and a type that numpy has; if not, there is a warning."""
    entry = variable._contents.entry(variable.name)
    shapes: set[Any] = set()
    unreadable = ""
    try:
        shapes = {variable._input.shape(entry.stored[0], step) for step in variable.steps}
    except UnsupportedError as error:  # in BP4, if its first array is empty
        unreadable = str(error)
    if unreadable:
        why = unreadable
    elif entry.dtype is None:
        why = f"its type is {entry.type}"
    elif None in shapes:
        why = "it has no global shape"
    elif len(shapes) > 1:
        why = "its shape changes from step to step"
    elif variable.dtype.hasobject and shapes != {()}:
        why = "it is an array of texts"
    else:
        return True
    warnings.warn(
        f"variable {name!r} is left out: {why} (cusz_operator.Reader reads it; drop_variables avoids this warning)",
        stacklevel=5,  # the caller of xarray.open_dataset
    )
    return False


def _is_constant(variable: ReaderVariable) -> bool:
    """Whether an array has the same values at all steps, judging by those that are compared."""
    reader, contents, steps = variable._reader, variable._contents, variable.steps
    stored = contents.entry(variable.name).stored
    n_values = math.prod(variable.shape)

    def tables(step: int) -> list[bytes] | None:
        """What block tables say about values and where they are; None if there are none."""
        blocks = [contents.blocks(part, step) for part in stored]
        if not all(each.has_table for each in blocks):
            return None
        return [each.table[column].tobytes() for each in blocks for column in _TELLING]

    def values(step: int) -> NDArray[Any]:
        found: NDArray[Any] = reader[step].read(variable.name, [0], [n_values])
        return found

    if len(steps) == 1:
        return True
    told, first = tables(steps[0]), None
    most = _MOST_COMPARED
    if told is None:
        most = min(most, max(_MOST_BYTES // max(n_values * variable.dtype.itemsize, 1), 3))
    for step in _spread(steps, most)[1:]:
        try:
            here = tables(step)
            if here is not None and here == told:
                continue
            now = values(step)  # equal values can be in other blocks, or stored with another bound
        except CuszError:  # reading that step will report it
            return False
        first = values(steps[0]) if first is None else first
        if not np.array_equal(now, first, equal_nan=variable.dtype.kind in "fc"):
            return False
        told = here
    return True


def _spread(steps: Sequence[int], most: int) -> list[int]:
    """At most `most` of the steps, evenly spread, with the first and the last one."""
    if len(steps) <= most:
        return list(steps)
    return [steps[i * (len(steps) - 1) // (most - 1)] for i in range(most)]


class _NoSuchLevelError(ParameterError):
    """No variable has the level that was asked for."""


class _Levels:
    """A level of all variables.

    Attributes:
        coordinates: where its values are along each dimension, as indices in the variables.
    """

    def __init__(self, reader: Reader, names: Sequence[str], level: int) -> None:
        self._reader = reader
        self._level = level
        self._first: dict[str, str] = {}  # variable of each dimension
        self.coordinates: dict[str, NDArray[np.int64]] = {}
        number = _most_levels(reader, names) if level else 1
        if not 0 <= level < number:
            raise _NoSuchLevelError(f"level is {level}; the variables have the levels 0 to {number - 1}")

    def of(self, name: str, steps: Sequence[int], dimensions: Sequence[str]) -> VariableLevel | None:
        """The level of a variable; None, with a warning, if it is no grid, does not match the others, or differs
        between steps that are checked."""
        at = self._reader[steps[0]]
        why = ""
        try:
            found = at.level(name, min(self._level, at.n_levels(name) - 1))
            for dimension, along in zip(dimensions, found.coordinates, strict=True):
                if not np.array_equal(self.coordinates.get(dimension, along), along):
                    why = f"its level has other values along {dimension} than that of {self._first[dimension]!r}"
            for step in _spread(steps, _STEPS_OF_LEVELS)[1:]:
                with contextlib.suppress(CorruptArchiveError):  # reading that step will report it
                    _require_same(self._reader[step], name, found, steps[0])
        except ParameterError as error:  # no grid, or not the same one
            why = str(error)
        if why:
            warnings.warn(f"variable {name!r} is left out: {why} (drop_variables avoids this warning)", stacklevel=5)
            return None
        for dimension, along in zip(dimensions, found.coordinates, strict=True):
            self._first.setdefault(dimension, name)
            self.coordinates.setdefault(dimension, along)
        return found


def _most_levels(reader: Reader, names: Sequence[str]) -> int:
    """The largest number of levels that one of these variables has, at its first step."""
    number = 1
    for name in names:
        step = reader[reader[name].steps[0]]
        if step.has_shape(name):
            number = max(number, step.n_levels(name))
    return number


def _chunks_of_level(chunks: Sequence[tuple[int, ...]], level: VariableLevel) -> list[tuple[int, ...]]:
    """How many values of a level are in each chunk of the variable, along every axis."""
    edges = [np.searchsorted(c, np.cumsum([0, *n])) for c, n in zip(level.coordinates, chunks, strict=True)]
    return [tuple(int(n) for n in np.diff(each)) for each in edges]


class _Names:
    """Names of dimensions: each has a single extent, so that variables of the same shape can share their dimensions.

    Args:
        taken: names that none of them can have.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._extents: dict[str, int] = {}
        self._taken = set(taken)

    def of(self, name: str, extent: int) -> str:
        if name in self._taken or self._extents.setdefault(name, extent) != extent:
            name = f"{name}_{extent}"
        self._extents[name] = extent
        return name


def _preferred_chunks(
    variable: ReaderVariable, steps: Sequence[int], has_step_dimension: bool, level: VariableLevel | None
) -> list[tuple[int, ...]] | None:
    """The extents of a variable's chunks along every dimension; None if it has no values.

    Args:
        level: that is opened; None: the variable itself.
    """
    if not all(variable.shape):
        return None
    chunks = _chunks(variable, steps[0]) if variable.shape else []
    if level is not None:
        chunks = _chunks_of_level(chunks, level)
    return [(1,) * len(steps), *chunks] if has_step_dimension else chunks


def _chunks(variable: ReaderVariable, step: int) -> list[tuple[int, ...]]:
    """The extents of the blocks along every axis, if they form a grid; otherwise, the step is one chunk."""
    table = variable._reader[step].blocks(variable.name)
    table = table[(table["count"] > 0).all(axis=1)]
    chunks = []
    for axis, extent in enumerate(variable.shape):
        starts = np.unique(table["start"][:, axis])
        ends = np.unique(table["start"][:, axis] + table["count"][:, axis])
        edges = [*starts.tolist(), extent]
        fits = len(starts) > 0 and starts[0] == 0 and np.array_equal(edges[1:], ends)
        chunks.append(tuple(int(n) for n in np.diff(edges)) if fits else ())
    is_grid = math.prod(map(len, chunks)) == len(table) > 0
    return chunks if is_grid else [(extent,) for extent in variable.shape]


def _attributes(found: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as xarray has them: one number or text instead of an array or list of one."""
    return {
        name: value[0] if isinstance(value, (np.ndarray, list)) and len(value) == 1 else value
        for name, value in found.items()
    }


def _with_fill_values_of(attributes: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    """Attributes whose fill values have the type of the variable, if that is a floating-point type.

    CF requires this; but programs often give ADIOS2 a double, and no float equals the double nearest to 1e20. A value
    beyond the type's range stays as it is: nothing equals it.
    """
    if dtype.kind != "f":
        return attributes
    converted = dict(attributes)
    for name in _FILL_VALUES:
        given = np.asarray(attributes.get(name, ""))
        if given.dtype.kind in "iuf":
            with np.errstate(over="ignore"):
                own = given.astype(dtype)
            if np.array_equal(np.isinf(own), np.isinf(given)):
                converted[name] = own[()]
    return converted


def _attributes_beside(reader: Reader, group: str) -> dict[str, Any]:
    """The attributes of a file that belong to no variable; with a group, those of it and its parents."""
    of_others = (ATTRIBUTE_PREFIX, *(f"{name}/" for name in reader.variables))
    found = {}
    for name, value in reader.attributes.items():
        owner, _, last = name.rpartition("/")
        if not group and not name.startswith(of_others):
            found[name] = value
        elif group and f"{group}/".startswith(f"{owner}/"):
            found[last] = value
    return _attributes(found)
