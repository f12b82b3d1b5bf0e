"""The parameters of a compression: the library's table of them, and one object that holds their values.

Keys, legal values, defaults and descriptions come from the library's own table, which the command line, C programs and
this package share.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from . import _native, arguments
from .errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "GOALS",
    "INTEGER",
    "REAL",
    "TABLE",
    "WORK",
    "ArchiveOptions",
    "Backend",
    "Coarse",
    "Lossless",
    "Mode",
    "Options",
    "Parameter",
    "Parameters",
    "is_legal",
]

Mode = Literal["abs", "rel", "pw_rel", "psnr", "ratio"]
GOALS = ("psnr", "ratio")  #: Modes in which `eb` is not a bound but a goal for which one is sought.
Backend = Literal["auto", "cpu", "cuda"]
Lossless = Literal["none", "zstd"]
Predictor = Literal["lorenzo", "spline", "auto"]
Coarse = Literal["auto", "same", "fine", "finer", "finest"]

REAL, INTEGER = 0, 1  # cusz_type
WORK = 0  # cusz_decides


class Parameter(NamedTuple):
    """A row of the library's table (cusz_parameter of cusz.h).

    Attributes:
        key: its name.
        description: one line.
        legal: what its value must be, such as "a power of two from 64 to 8192".
        default: as text; None: there is none.
        choices: the legal values, if it is not a number.
        type: REAL, INTEGER, or neither for a choice.
        decides: WORK: the archive is the same whatever the value.
    """

    key: str
    description: str
    legal: str
    default: str | None
    choices: tuple[str, ...] | None
    type: int
    decides: int


#: The library's parameters by their keys.
TABLE = {row[0]: Parameter(*row) for row in _native.PARAMETERS}


class ArchiveOptions(TypedDict, total=False):
    """Keywords for what an archive depends on besides bound and mode; see `Parameters`."""

    bins: int
    lossless: Lossless
    fill: float | None
    predictor: Predictor
    coarse: Coarse


class Options(ArchiveOptions, total=False):
    """Keywords for all parameters besides bound and mode."""

    backend: Backend
    threads: int | None


@dataclasses.dataclass(frozen=True)
class Parameters:
    """The parameters of a compression, checked.

    Attributes:
        eb: the error bound, finite and >= 0: in the field's unit (mode "abs"), a fraction of its value range (mode
            "rel"), or of every value ("pw_rel"). 0 is lossless to the bit. Modes "psnr" and "ratio": the PSNR in dB,
            above 0, or the ratio, above 1.
        mode: "abs": |d - d'| <= eb. "rel": |d - d'| <= eb * (max - min), over values that are finite and not `fill`,
            rounded as a float is; a field of one value has range 0 and is stored exactly. (Both may lose the sign of a
            zero.) "pw_rel": |d - d'| <= eb * |d|, with every sign kept and zeros exact; for values of many magnitudes.
            Bounds too small for its arithmetic, about 2e-7 for float32 and 4e-15 for float64, give lossless archives.
            "psnr", "ratio": `eb` is a PSNR in dB or a ratio, and an absolute bound that gives it is sought; the archive
            states and keeps this bound. For a PSNR, the spline also varies how exact coarser lattices are, which takes
            fewer bytes than the same PSNR by mode "abs" if the field is smooth. PSNR (as in `Verification`) and ratio
            are not below `eb`; a ratio that no bound up to the value range gives is a ParameterError. The search takes
            a few compressions, first of a sample if the field has more than 2^21 values, on the CPU.
        bins: quantisation bins coded directly, a power of two from 64 to 8192.
        backend: "auto": on the device where the field or the archive lies, else on the CPU. "cuda": on a device; a
            host array is copied there. "cpu": on the CPU, for host arrays only. The archives are the same.
        threads: CPU threads; None: OMP_NUM_THREADS, else 1 where a launcher runs several ranks on this node, else
            the cores this process may use.
        lossless: "none", or "zstd" for a further lossless stage.
        fill: a value that stands for "no data", such as 1e20; None: there is none. It is cast to the field's type and
            compared by its bits.
        predictor: what predicts a value from its neighbours. "lorenzo": those before it; faster, and its archives
            have format version 1, which every release reads (version 2 in mode "pw_rel"). "spline": those around it,
            from coarse to fine; for smooth fields, and for previews (`levels`). Its archives have format version 2;
            where they would be no shorter than the field, it makes those of "lorenzo". A field on a device is
            compressed there, except in the cases that docs/guides/python.md names; a field on the host is compressed on
            the CPU, whatever `backend` says.
            "auto": the one whose archive is shorter, as a sample of the field predicts; both are made where it does
            not tell. `inspect` says which it is.
        coarse: how exact the spline keeps the coarser lattices, from which it interpolates the finer ones. "same": as
            the bound says. "fine": with bounds down to a half of it; "finer", "finest": down to a fourth. The PSNR is
            higher, and so, mostly, is the number of bytes; at the same PSNR, smooth fields take fewer. "auto": what
            takes the fewest bytes at the same bound, or in mode "psnr" at the same PSNR.

    Raises:
        ParameterError: a value out of its legal range.
    """

    eb: float
    mode: Mode = "abs"
    bins: int = 64
    backend: Backend = "auto"
    threads: int | None = None
    lossless: Lossless = "none"
    fill: float | None = None
    predictor: Predictor = "auto"
    coarse: Coarse = "auto"
    native: _native.Params = dataclasses.field(init=False, repr=False, compare=False)  # as the library takes them

    def __post_init__(self) -> None:
        given = self.__dict__  # frozen for everybody else
        chosen = {key: _checked(row, given[key]) for key, row in TABLE.items() if given[key] is not _DEFAULTS[key]}
        given.update(chosen, native=_native.Params(chosen))
        if self.mode in GOALS and not self.eb > GOALS.index(self.mode):
            raise ParameterError(f"{self.mode} is {self.eb}; it must be finite and above {GOALS.index(self.mode)}")

    def __reduce__(self) -> tuple[type[Parameters], tuple[Any, ...]]:
        return Parameters, tuple(getattr(self, key) for key in TABLE)

    def of_archive(self) -> str:
        """The parameters that the archive depends on, as text: equal texts mean equal archives."""
        return ", ".join(f"{key}={getattr(self, key)!r}" for key, row in TABLE.items() if row.decides != WORK)


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Parameters)}


def is_legal(key: str, text: str) -> bool:
    """Whether the library accepts a text, as found in configuration files, as a value of this parameter."""
    try:
        _native.Params({key: text})
    except ParameterError:
        return False
    return True


#: Checks beyond the library's: they allow None, and their messages have examples in Python.
_PYTHON_CHECKS: dict[str, Callable[[Any], Any]] = {
    "eb": arguments.error_bound,
    "threads": arguments.threads,
    "fill": arguments.fill,
}


def _checked(row: Parameter, value: Any) -> Any:
    """Checks that `value` has the parameter's Python type and returns it; the library checks whether it is legal."""
    if check := _PYTHON_CHECKS.get(row.key):
        return check(value)
    if row.choices:
        return arguments.choice(value, row.key, row.choices)
    return arguments.integer(value, row.key) if row.type == INTEGER else arguments.real(value, row.key)
