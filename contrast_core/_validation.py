"""Check arguments, and raise errors that tell users what to do."""

from __future__ import annotations

import math
import os
import sys
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import scipy.sparse

FloatArray: TypeAlias = NDArray[np.float64]
MatrixLike: TypeAlias = "ArrayLike | scipy.sparse.spmatrix | scipy.sparse.sparray"

# Python registers these types as numbers, but the checks of this module refuse them.
NO_NUMBERS = (bool, np.bool_, np.timedelta64)
_LARGEST_COUNT = 2**62
_LARGEST_SEED = 2**32 - 1
_SHOWN = 60  # largest number of characters of a value in an error


class ContrastWarning(UserWarning):
    """Warning of a result that is valid but probably not what the user wanted."""


def check_feature_names(
    names: Sequence[str] | None, n_features: int, name: str = "X"
) -> tuple[str, ...] | None:
    """Check that there is a string for each feature, and return the names as a tuple, or None."""
    if names is None:
        return None
    listed = tuple(names) if np.iterable(names) else None
    if listed is None or not all(isinstance(each, str) for each in listed):
        raise TypeError(
            f"feature_names={shown(names)} must be a sequence of strings, one for each of the "
            f"{n_features} features of {name}."
        )
    if len(listed) != n_features:
        raise ValueError(
            f"{len(listed)} feature_names were given for the {n_features} features of {name}."
        )
    return tuple(map(str, listed))


def check_labels(labels: ArrayLike, n_rows: int, name: str, rows: str = "rows") -> NDArray[Any]:
    """Return one label for each row, after a check that none is missing and all have one type.

    `rows` is the word for the labelled items in error messages, for example "features".
    """
    check_unmasked(labels, name)
    # Labels are converted to objects first, because numpy would turn a NaN in a list of strings
    # into the string "nan".
    objects = np.asarray(labels, dtype=None if hasattr(labels, "dtype") else object)
    if objects.shape != (n_rows,):
        raise ValueError(
            f"{name} has shape {objects.shape}; expected one label for each of the {n_rows} {rows}."
        )
    n_missing = 0
    if objects.dtype.kind not in "biuSU":
        n_missing = sum(map(_is_missing, objects.tolist()))
    if n_missing:
        raise ValueError(f"{name} has {n_missing} missing labels; leave these {rows} out first.")
    if objects.dtype.kind in "mM":  # `tolist` would turn dates in nanoseconds into integers
        return objects.astype(f"{objects.dtype.kind}8[us]")
    if objects.dtype != object or not n_rows:
        return objects
    array = np.array(objects.tolist())
    words = {isinstance(label, str) for label in objects.tolist()}
    kinds = sorted({type(label).__name__ for label in objects.tolist()})
    if len(words) > 1 or array.shape != (n_rows,) or (array.dtype == object and len(kinds) > 1):
        raise TypeError(
            f"{name} mixes labels of the types {', '.join(kinds)}; make them all strings, or all "
            "numbers."
        )
    if array.dtype != object:
        return array
    try:
        np.unique(objects)
    except TypeError as error:
        raise TypeError(
            f"{name} has labels of the type {kinds[0]}, which have no order; give strings or "
            "numbers."
        ) from error
    return objects


def check_both_labels(
    labels: tuple[ArrayLike | None, ArrayLike | None],
    n_rows: tuple[int, int],
    names: tuple[str, str] = ("units", "background_units"),
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return the labels of the rows of two datasets, or None if no labels are given."""
    first, second = labels
    if (first is None) != (second is None):
        given, missing = names if second is None else names[::-1]
        raise ValueError(
            f"{given} was given without {missing}; give a label for every row of both datasets, or "
            "of neither."
        )
    if first is None or second is None:
        return None
    return check_labels(first, n_rows[0], names[0]), check_labels(second, n_rows[1], names[1])


def check_weights(weights: ArrayLike, n_rows: int, name: str) -> FloatArray:
    """Return the weights of rows, which must be finite, not negative, and not all zero."""
    check_unmasked(weights, name)
    try:
        array = np.asarray(weights)
        if array.dtype.kind == "c":
            raise TypeError("complex")
        array = array if array.dtype.kind in "biu" else array.astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} are {shown(weights)}; expected a real number for each row."
        ) from None
    if array.shape != (n_rows,):
        raise ValueError(
            f"{name} have shape {array.shape}; expected one weight for each of the {n_rows} rows."
        )
    array = array.astype(np.float64)
    if not np.isfinite(array).all() or array.min(initial=0.0) < 0 or not array.any():
        raise ValueError(
            f"{name} go from {array.min(initial=np.inf):g} to {array.max(initial=-np.inf):g}; "
            "expected finite weights, none negative and not all zero."
        )
    return array


def _is_missing(label: object) -> bool:
    """Return whether a label is None, NaN, NaT or pandas.NA."""
    if label is None:
        return True
    try:
        return bool(label != label)
    except (TypeError, ValueError):  # pandas.NA and arrays have no truth value
        return type(label).__name__ == "NAType"


def check_same_features(
    n_foreground: int,
    names_foreground: tuple[str, ...] | None,
    n_background: int,
    names_background: tuple[str, ...] | None,
    *,
    background_name: str = "background",
    first_name: str = "X",
) -> None:
    """Raise ValueError unless both datasets have the same features in the same order."""
    advice = "both need the same features in the same order."
    if n_foreground != n_background:
        raise ValueError(
            f"{background_name} has {n_background} features but {first_name} has {n_foreground}; "
            f"{advice}"
        )
    if names_foreground is None or names_background is None:
        return
    if names_foreground == names_background:
        return
    missing = sorted(set(names_foreground) - set(names_background))
    if missing:
        shown = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        raise ValueError(
            f"{background_name} lacks {len(missing)} of {first_name}'s features ({shown}); {advice}"
        )
    first = next(
        i for i, (x, y) in enumerate(zip(names_foreground, names_background, strict=True)) if x != y
    )
    raise ValueError(
        f"{background_name} has {first_name}'s features in another order (column {first} is "
        f"{names_background[first]!r}, in {first_name} it is {names_foreground[first]!r}); "
        f"{advice} With DataFrames select the columns in that order."
    )


def check_count(
    value: object,
    name: str,
    *,
    at_least: int = 1,
    at_most: int | None = None,
    reason: str = "",
) -> int:
    """Return an integer within its limits; `reason` explains the upper limit in the error."""
    if not isinstance(value, Integral) or isinstance(value, NO_NUMBERS):
        raise TypeError(f"{name} must be an integer, got {shown(value)} ({type(value).__name__}).")
    count, highest = int(value), _LARGEST_COUNT if at_most is None else at_most
    if not at_least <= count <= highest:
        limits = f"from {at_least} to {at_most}"
        if at_most is None:
            limits = f"at least {at_least}" if count < at_least else f"below {highest:.1g}"
        raise ValueError(
            f"{name}={shown(count)} is out of range: {reason + ' ' if reason else ''}it must be "
            f"{limits}."
        )
    return count


def check_known_length(n_rows: float, name: str) -> int:
    """Return the number of rows, or raise ValueError if a dask array does not know it."""
    if math.isnan(n_rows):
        raise ValueError(
            f"{name} is a dask array with chunks of unknown size: call compute_chunk_sizes() on it "
            "first."
        )
    return int(n_rows)


def check_number(
    value: object,
    name: str,
    *,
    at_least: float = -math.inf,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    expected: str = "a number",
    reason: str = "",
) -> float:
    """Return a number within its limits; `reason` explains the limits in the error.

    Infinity is accepted only if `at_most` is infinite, and minus infinity never.
    """
    end = None if at_most is None else f"{at_most:g}"
    if below is not None:
        at_most, end = math.nextafter(below, -math.inf), f"below {below:g}"
    limits = f"at least {at_least:g}" if end is None else f"from {at_least:g} to {end}"
    if above is not None:
        upper = end if below is not None else f"up to {end}"
        limits = f"above {above:g}" + ("" if end is None else f", {upper}")
    elif at_least == -math.inf:
        limits = ""
    number = as_number(value, name, f"{expected} {limits}".rstrip())
    lowest = max(at_least, -sys.float_info.max)
    highest = sys.float_info.max if at_most is None else at_most
    if not lowest <= number <= highest or (above is not None and number <= above):
        raise ValueError(
            f"{name}={number:g} is out of range: {reason + ' ' if reason else ''}it must be "
            f"{limits or 'finite'}."
        )
    return number


def as_number(value: object, name: str, expected: str = "a number") -> float:
    """Return a number as a float; NaN and infinity are allowed."""
    if not isinstance(value, Real) or isinstance(value, NO_NUMBERS):
        raise TypeError(f"{name} must be {expected}, got {shown(value)} ({type(value).__name__}).")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number) and value != number:
        raise ValueError(
            f"{name}={shown(value)} is out of range: the largest number of float64 is 1.8e308; "
            f"expected {expected}."
        )
    return number


def check_flag(value: object, name: str) -> bool:
    """Return the value if it is True or False, and raise TypeError otherwise."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(
            f"{name} must be True or False, got {shown(value)} ({type(value).__name__})."
        )
    return bool(value)


def check_path(path: object) -> str | os.PathLike[str]:
    """Return the path if it is a string or a path object, and raise TypeError otherwise.

    An integer is refused, because `open` would take it as the descriptor of an open file.
    """
    if isinstance(path, str | os.PathLike) and "\0" not in str(path):
        return path
    raise TypeError(f"path={shown(path)} is {type(path).__name__}; expected the path of a file.")


def check_choice(value: object, name: str, choices: Iterable[str], other: str = "") -> str:
    """Return the value if it is one of the words `choices`, and raise ValueError otherwise.

    `other` describes, for the error, which other values the caller accepts.
    """
    expected = [*map(repr, choices), *([other] if other else [])]
    word = str(value) if isinstance(value, str) else None  # np.str_ has another repr
    if word is None or repr(word) not in expected:
        listed = " or ".join(filter(None, [", ".join(expected[:-1]), *expected[-1:]]))
        raise ValueError(f"{name}={shown(value)} is unknown; expected {listed or 'none'}.")
    return word


def check_counts(block: Any, name: str) -> None:
    """Raise ValueError unless all values of a dense or sparse block are whole numbers from 0."""
    values = block if isinstance(block, np.ndarray) else block.data
    if not values.size:
        return
    wrong = values < 0
    if values.dtype.kind == "f":
        wrong |= values != np.floor(values)
    if wrong.any():
        raise ValueError(
            f"{name} holds {values[wrong].flat[0]!s}, but noise='counts' takes whole "
            "numbers from 0. Give the raw counts, or use noise='normal'."
        )


def check_generator(random_state: object) -> np.random.Generator:
    """Return the given generator, or a new one with the given seed."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    expected = "a non-negative integer, a numpy.random.Generator, or None"
    return np.random.default_rng(_seed(random_state, expected))


def check_seed(random_state: object) -> int | None:
    """Return a seed for scikit-learn, or None for a new result at every call."""
    expected = f"an integer from 0 to {_LARGEST_SEED}, or None"
    return _seed(random_state, expected, _LARGEST_SEED)


def _seed(random_state: object, expected: str, highest: float = math.inf) -> int | None:
    if random_state is None:
        return None
    given = f"random_state is {shown(random_state)}; give {expected}"
    if not isinstance(random_state, Integral) or isinstance(random_state, NO_NUMBERS):
        raise TypeError(f"{given}, not {type(random_state).__name__}.")
    if not 0 <= int(random_state) <= highest:
        raise ValueError(f"{given}.")
    return int(random_state)


def real_array(values: object, name: str) -> FloatArray:
    """Return real numbers of any shape as float64, without copying a float64 array."""
    check_unmasked(values, name)
    try:
        array = np.asarray(values)
    except ValueError:  # raised if rows differ in length
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{name}={shown(values)} is {type(values).__name__} without real numbers; expected an "
            "array of them."
        )
    return array.astype(np.float64, copy=False)


def check_unmasked(values: object, name: str) -> None:
    """Raise TypeError if a masked array has masked entries."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        n_masked = int(np.ma.getmaskarray(values).sum())
        raise TypeError(
            f"{name} is a masked array with {n_masked} masked entries, which cannot be left out "
            "here. Drop those rows or features, or fill the entries "
            f"({name}.filled(...), imputation). PCPCA treats masked entries as missing values."
        )


def without_mask(values: Any) -> Any:
    """Replace the masked entries of a masked array by NaN; return other values unchanged."""
    if not (isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values)):
        return values
    if values.dtype.kind not in "biuf":
        return values
    kind = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
    return np.where(np.ma.getmaskarray(values), np.nan, values.data).astype(kind)


def numbers_of(values: object, name: str) -> list[object]:
    """Return the entries of a scalar, a sequence or an array as a flat list; any types may occur.

    Raises
    ------
    TypeError
        If entries are masked.
    """
    check_unmasked(values, name)
    entries: list[object] = np.asarray(values, dtype=object).ravel().tolist()
    return entries


def shown(value: object) -> str:
    """Return a short text for a value in an error."""
    try:
        text = repr(value)
    except Exception:  # integers of too many digits, and objects that cannot be shown
        text = f"<{type(value).__name__}>"
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 2]} …"


def check_n_components(n_components: object, n_features: int) -> int:
    """Return the number of components, an integer from 1 to the number of features."""
    return check_count(
        n_components, "n_components", at_most=n_features, reason=f"with {n_features} features"
    )


def check_alpha(alpha: object, *, name: str = "alpha") -> float:
    """Return a contrast strength, a number from 0 to infinity, both included."""
    return check_number(alpha, name, at_least=0, at_most=math.inf)


def check_beta(beta: object) -> float:
    """Return a contrast strength of cPCA*, a number from 0 to 1, both included."""
    return check_number(beta, "beta", at_least=0, at_most=1)
