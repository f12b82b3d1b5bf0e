"""How a Writer stores what the compressor does not take, and how a Reader gives it back.

The compressor takes float32 and float64. Other types are stored as ADIOS2 variables of

- integers: their own type, exactly; packed, unless the Writer is told not to, or appends to a file where they are not;
- bool: uint8, exactly;
- float16: float32, with a bound that still holds when values are rounded to float16 (`float16_bound`);
- complex64, complex128: two variables, `NAME/real` and `NAME/imag`, each with the bound;
- one value (a number or a text): one value, exactly.

The attribute `cusz/as/NAME` says what a variable was, if that is not what ADIOS2 says.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cusz_core import Parameters, embedding
from cusz_core.errors import ParameterError, UnsupportedError

from ..plugin import MAX_NDIM

#: The types that are stored as others.
CONVERTED = ("bool", "float16", "complex64", "complex128")
#: Prefix of the names of this package's own attributes.
ATTRIBUTE_PREFIX = "cusz/"
#: Suffixes to the name of a complex variable, for its parts.
PARTS = ("/real", "/imag")
#: What `Writer.put` takes, for messages.
_ACCEPTED = (
    "a Writer takes numpy arrays of float16, float32, float64, complex64, complex128, integers of 8 to 64 bits and "
    f"bool, with 1 to {MAX_NDIM} dimensions, arrays of float32 and float64 on a CUDA device or by DLPack, numbers and "
    "texts"
)
_MAX_TEXT_OF_BP4 = 2**16 - 1  # bytes: BP4 stores their number in 16 bits
_FLOAT16 = np.finfo(np.float16)


class Stored(NamedTuple):
    """An array as it is stored.

    Attributes:
        name: of the variable that stores it.
        array: float32, float64 (which are compressed) or integers (which are stored exactly).
        given: the type that the user gave: a numpy name; "" if the array does not tell it.
    """

    name: str
    array: Any
    given: str


def attribute_name(variable: str) -> str:
    """The attribute that says what a variable was."""
    return f"{ATTRIBUTE_PREFIX}as/{variable}"


@functools.cache
def type_name(dtype: np.dtype[Any]) -> str:
    """numpy's name of a type; cached, because numpy takes long to find it."""
    return dtype.name


def is_exact(dtype: Any) -> bool:
    """Whether values of a type are stored exactly, without a bound."""
    return isinstance(dtype, np.dtype) and dtype.kind in "iu"


def widening(given: str) -> int:
    """How many times larger values of a type are in the type that stores them, before compression."""
    return 2 if given == "float16" else 1


def are_stored_alike(a: np.dtype[Any], b: np.dtype[Any]) -> bool:
    """Whether values of two types can belong to one variable: another program has uint8 for a Writer's bool."""
    return a == b or {a.name, b.name} == {"bool", "uint8"}


def is_packed(parameters: Parameters) -> bool:
    """Whether values that are stored exactly are packed."""
    return parameters.lossless != "none"


def require_text(text: str, what: str, engine: str) -> None:
    """Refuses a text that ADIOS2 would change, or that would make the file unreadable.

    Args:
        what: names the text in messages.

    Raises:
        ParameterError, UnsupportedError: it cannot be stored.
    """
    try:
        n_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        raise ParameterError(f"{what} is {text!r:.100}, which is no valid Unicode text: {error}") from error
    if "\0" in text:
        raise ParameterError(f"{what} is {text!r:.100}, which ADIOS2 would end at the NUL character")
    if engine == "BP4" and n_bytes > _MAX_TEXT_OF_BP4:
        raise UnsupportedError(
            f"{what} is a text of {n_bytes} bytes, and with more than {_MAX_TEXT_OF_BP4} a file of BP4 cannot be read "
            "any more: use BP5"
        )


def one_value(value: Any) -> Any:
    """A number (numpy.generic) or a text that is one value, not an array; None for anything else.

    Raises:
        UnsupportedError: a number that ADIOS2 has no type for, or one that is masked.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        if isinstance(value, np.ma.MaskedArray):
            raise UnsupportedError("one value of a masked array, whose mask would be lost: put a number, or nothing")
        value = value[()]
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bool, np.bool_)):
        return np.uint8(value)
    if isinstance(value, (int, float, complex, np.generic)):
        array = np.asarray(value)
        if array.dtype.kind not in "iufc" or array.dtype.name in ("float128", "complex256"):
            raise UnsupportedError(f"{value!r:.100} is no number that ADIOS2 can store")
        number: Any = (array.astype(np.float32) if array.dtype.name == "float16" else array)[()]
        return number
    return None


def stored(name: str, array: Any) -> list[Stored]:
    """An array in host or device memory, as it is stored.

    Raises:
        UnsupportedError: no array, a masked one, or one of a type that a Writer does not take.
    """
    what = f"the block of {name!r}"
    if not _is_array(array):
        raise UnsupportedError(f"{what} is {embedding.describe(array)}; {_ACCEPTED}{_remedy(array)}")
    dtype = getattr(array, "dtype", None)
    if isinstance(dtype, np.dtype) and (dtype.kind not in "biufc" or dtype.char in "gG"):
        raise UnsupportedError(f"{what} has dtype {dtype.str} ({dtype.name}); {_ACCEPTED}")
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
        option = ", with fill=value" if array.dtype.kind in "fc" else ""  # which what is stored exactly does not take
        raise UnsupportedError(f"{what} is a masked array, whose mask would be lost: put its .filled(value){option}")
    given = type_name(dtype) if isinstance(dtype, np.dtype) else getattr(dtype, "name", "")
    if given == "bool":
        return [Stored(name, array.view(np.uint8), given)]
    if given == "float16":
        return [Stored(name, array.astype(np.float32), given)]
    if given in ("complex64", "complex128"):
        parts = (array.real, array.imag)
        return [Stored(name + suffix, part, given) for suffix, part in zip(PARTS, parts, strict=True)]
    return [Stored(name, array, given)]


def _is_array(value: Any) -> bool:
    """Whether something is an array of numpy's or on a device, or can be had through DLPack."""
    if isinstance(value, np.ndarray):
        return True
    try:
        return hasattr(value, "__cuda_array_interface__") or hasattr(value, "__dlpack_device__")
    except Exception:  # such as PyTorch's for a tensor that requires a gradient; cusz_core says so
        return True


def _remedy(value: Any) -> str:
    """What to put in place of something that is no array, for a message; its values are not computed for this."""
    kind = type(value)
    if isinstance(value, Mapping):
        return ": put its variables one by one"
    if isinstance(getattr(kind, "values", None), property):  # xarray, pandas
        return ": put its .values"
    if hasattr(kind, "compute"):  # dask
        return ": put its .compute()"
    if hasattr(kind, "__array__") or (isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray))):
        return ": put numpy.asarray(...) of it"
    return ""


def float16_of(value: float) -> float:
    """The float16 value nearest to a number: what a float16 array that was filled with it has."""
    with np.errstate(over="ignore"):
        return float(np.float16(value))


def float16_bound(eb: float, largest: float) -> float:
    """A bound for float32 values, such that `eb` holds after they are rounded to float16.

    Let d be a float16 value, d' what it is decoded to (within the bound b), and g the float16 value nearest to d'. Then
    |g - d'| <= |d - d'|, because d is a float16 value too, so that |g - d| <= 2 b; and |g - d'| <= s / 2, where s is
    the spacing of float16 there, so that |g - d| <= b + s / 2.

    Args:
        largest: the largest magnitude of all values; NaN: not known.
    """
    if eb < 2.0**-25:  # half the least spacing: d' is rounded to d
        return eb
    reached = min(largest + eb, float(_FLOAT16.max)) if largest == largest else float(_FLOAT16.max)
    spacing = max(math.ldexp(1.0, math.frexp(reached)[1] - 11), 2.0**-24)
    return max(eb / 2, math.nextafter(eb - spacing / 2, 0.0))


def given_back(parts: list[NDArray[Any]], given: str) -> NDArray[Any]:
    """What a user gave, from the values that store it: for complex numbers two arrays, otherwise one."""
    if given == "bool":
        return parts[0].view(np.bool_)
    if given == "float16":
        values = parts[0]
        # Rounding must not make the largest ones infinite.
        limited = np.clip(values, _FLOAT16.min, _FLOAT16.max, where=np.isfinite(values), out=values.copy())
        return limited.astype(np.float16)
    whole = np.empty(parts[0].shape, given)
    whole.real, whole.imag = parts
    return whole


def rounded_back(values: NDArray[Any], given: str) -> NDArray[Any]:
    """Stored values as `given_back` rounds them, in the type that stores them; the array itself if none is rounded."""
    return given_back([values], given).astype(values.dtype) if given == "float16" else values
