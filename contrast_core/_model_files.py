"""Save and load fitted models and moments, in files of numbers and text without code.

A file is a zip archive of two members. ``model.json`` holds the class, its parameters and its
fitted attributes, the version of this format and the version of the library. ``arrays`` holds the
values of all arrays one after another in little-endian order, each array once. Entries of
``model.json`` refer to arrays as ``{"array": i}``, and to lists of strings as ``{"names": i}`` (see
`_Writer` and `_Reader`). A file can name only the classes of a fixed list.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, TypeAlias
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix
from sklearn.utils.validation import check_is_fitted

from contrast_core._validation import check_flag, check_path
from contrast_core.moments import SpanMoments

Model: TypeAlias = Any  # an instance of a class in _HOMES: an estimator or moments

_FORMAT = 1
_VERSION: str = import_module("contrast_core").__version__
_HOMES = {
    "CLVM": "contrast_core",
    "CPCA": "contrast_core",
    "CPCAStar": "contrast_core",
    "CVAE": "contrast_core",
    "ContrastByLabel": "contrast_core",
    "FrameBackgroundRemover": "contrast_core.images",
    "KernelCPCA": "contrast_core",
    "OnlineCPCAStar": "contrast_core",
    "PCAPlus": "contrast_core",
    "PCAPlusPlus": "contrast_core",
    "PCPCA": "contrast_core",
    "PairMoments": "contrast_core.moments",
    "Plan": "contrast_core.solve",
    "SecondMoments": "contrast_core",
    "SparseCPCA": "contrast_core",
    "StructuredBackgroundRemover": "contrast_core.images",
}
# Named tuples that are fitted attributes of a model.
_PARTS = {
    "KernelFactor": "contrast_core.spectral._kernel_factor",
    "OnlineState": "contrast_core.spectral._online_steps",
    "Scatter": "contrast_core.spectral._online_rows",
}
_DTYPES = frozenset(np.dtype(kind).newbyteorder("<").str for kind in "?bBhHiIlLqQefd")
_MEMBERS = ("model.json", "arrays")
# `SpanMoments` hold the rows of data with more features than rows. With at most this number of
# features, they are saved as a matrix (n_features, n_features) instead.
_MOST_FEATURES = 1500
_LARGEST_HEADER = 2**28  # largest unpacked size of model.json in bytes; millions of names fit


class _Refused(ValueError):
    """Error for an intact file that is not a model file, or has another version."""


def save(model: Model, path: str | os.PathLike[str], *, moments: bool = False) -> None:
    """Write a fitted model, or moments, to a file that cannot run code.

    Parameters
    ----------
    model : fitted estimator, SecondMoments or PairMoments
        An estimator of this package, or moments. For a `KernelCPCA` the rows of the fit are saved
        too, because `KernelCPCA.transform` needs them.
    path : str or path
        Path of the file. An existing file is replaced only after the new file is complete. If
        anything fails, the existing file stays unchanged.
    moments : bool, default=False
        Whether to save the moments of the fit with an estimator. The methods `at` and `path` need
        the moments, which are as large as covariances of all features. Without moments, the file
        holds little more than the components and means.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If the model, a parameter or a fitted attribute is of a kind that a file cannot hold.
        Examples are a kernel that is a function, a random generator, and moments that hold rows
        instead of a covariance.
    ValueError
        If the names of features take more than 256 MB.
    IsADirectoryError, FileNotFoundError
        If the path is a folder, or its folder does not exist.

    See Also
    --------
    load : Read the file.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from contrast_core import CPCA, load, save
    >>> X, Y = np.random.default_rng(0).normal(size=(2, 30, 5))
    >>> cpca = CPCA(alpha=0.5).fit(X, background=Y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "treated.model")
    ...     save(cpca, path)
    ...     again = load(path)
    >>> bool((again.transform(X) == cpca.transform(X)).all())
    True
    """
    if type(model).__name__ not in _HOMES or _allowed_class(type(model).__name__) is not type(
        model
    ):
        raise TypeError(f"model is {_described(model)}; expected one of {_listed(_HOMES)}.")
    if hasattr(model, "fit"):
        check_is_fitted(model)
    target = Path(os.path.realpath(check_path(path)))
    if target.is_dir():
        raise IsADirectoryError(f"path={str(path)!r} is a folder; expected the path of a file.")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"path={str(path)!r} is in the folder {str(target.parent)!r}, which does not exist. "
            "Create the folder first."
        )
    writer = _Writer(check_flag(moments, "moments"))
    header = {
        "format": _FORMAT,
        "library": _VERSION,
        "model": writer.tree(model, type(model).__name__),
        "names": list(writer.names),
        "arrays": [(a.dtype.str, a.shape, "F" if a.flags.fnc else "C") for a in writer.arrays],
    }
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    if len(text) > _LARGEST_HEADER:
        raise ValueError(
            f"names and parameters take {len(text):,} bytes, but a file holds at most "
            f"{_LARGEST_HEADER:,} bytes of them; shorten the names."
        )

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            # `ZipInfo` has a fixed date, so equal models give equal files.
            header_member, array_member = map(zipfile.ZipInfo, _MEMBERS)
            archive.writestr(header_member, text, zipfile.ZIP_DEFLATED)
            with archive.open(array_member, "w", force_zip64=True) as member:
                for array in writer.arrays:
                    member.write(array.tobytes("A"))

    _replace(target, write)


def load(path: str | os.PathLike[str]) -> Model:
    """Read a model or moments that `save` wrote.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    estimator, SecondMoments or PairMoments
        The model or moments. All numbers equal the saved numbers exactly. The methods `at` and
        `path` of the model need a file with moments.

    Raises
    ------
    ValueError
        If the file is damaged or truncated, or is not a model file (a pickle, for example). The
        error is also raised if this version does not know the format or the class of the file.
    OSError
        If the file cannot be read.

    See Also
    --------
    save : Write the file.
    """
    with open(check_path(path), "rb") as file:
        try:
            return _read(file, str(path))
        except _Refused:
            raise
        except zipfile.BadZipFile as error:
            raise ValueError(
                f"{path} is not a model file, or it is damaged or truncated ({error}). Only files "
                "written by contrast_core.save can be read. Pickles are refused because they can "
                "run code."
            ) from error
        except Exception as error:  # a damaged file can raise any error
            raise ValueError(
                f"{path} is damaged, or was not written by contrast_core.save: {error}."
            ) from error


def _read(file: IO[bytes], path: str) -> Model:
    with zipfile.ZipFile(file) as archive:
        members = sorted(archive.namelist())
        if members != sorted(_MEMBERS):
            raise _Refused(
                f"{path} is an archive of {_listed(members)}, not a model file: expected "
                f"{_listed(_MEMBERS)} and nothing else."
            )
        about, stored = map(archive.getinfo, _MEMBERS)
        if about.file_size > _LARGEST_HEADER or stored.compress_type != zipfile.ZIP_STORED:
            raise ValueError("it is larger when unpacked than a model file can be")
        header = json.loads(archive.read(_MEMBERS[0]))
        if header["format"] != _FORMAT:
            raise _Refused(
                f"{path} has format {header['format']!r}, written by contrast-suite "
                f"{header.get('library')!r}; this version ({_VERSION}) reads format "
                f"{_FORMAT}. Read the file with the version that wrote it."
            )
        with archive.open(_MEMBERS[1]) as values:
            arrays = [_read_array(values, *described) for described in header["arrays"]]
            if values.read(1):  # reading to the end compares the checksum
                raise ValueError("it holds more values than its arrays have")
    model = _Reader(path, arrays, header["names"]).value(header["model"])
    if type(model).__name__ not in _HOMES:
        raise ValueError("it holds no model")
    if hasattr(model, "fit"):
        check_is_fitted(model)
    if hasattr(model, "_check_loaded"):
        model._check_loaded()
    return model


class _Writer:
    """Converter of a model to JSON, which collects every array and list of names once."""

    def __init__(self, moments: bool) -> None:
        self.moments = moments
        self.arrays: list[NDArray[Any]] = []
        self.names: dict[tuple[str, ...], int] = {}
        self._places: dict[object, int] = {}

    def tree(self, value: Any, where: str) -> Any:
        """Return the value in a form that JSON can hold; `where` is its name in errors."""
        match value:
            case None | bool() | int() | float() | str():
                return value
            case np.generic() if value.dtype.newbyteorder("<").str in _DTYPES:
                return value.item()
            case np.ndarray() if value.dtype.newbyteorder("<").str in _DTYPES:
                return {"array": self._place(value)}
            case np.ndarray() if value.ndim == 1 and _all_text(value.tolist()):
                return {"names": self._names(value.tolist())}
            case tuple() if type(value).__name__ in _PARTS:
                return {
                    "class": type(value).__name__,
                    "fields": self._trees(value._asdict(), where),  # type: ignore[attr-defined]
                }
            case tuple() if value and _all_text(value):
                return {"tuple of names": self._names(value)}
            case tuple() if type(value) is tuple:
                return {"tuple": [self.tree(one, where) for one in value]}
            case list():
                return [self.tree(one, where) for one in value]
            case Mapping() if _all_text(value):
                return {"dict": self._trees(value, where)}
            case csr_matrix() | csr_array():
                parts = (value.data, value.indices, value.indptr)
                return {
                    "csr": [self.tree(part, where) for part in parts],
                    "shape": value.shape,
                    "kind": type(value).__name__,
                }
        if isinstance(value, SpanMoments) and value.n_features <= _MOST_FEATURES:
            value = value.in_features()
        if _allowed_class(type(value).__name__) is not type(value):
            advice = "Give the parameter such a value before the fit."
            if where.endswith("_moments_"):
                advice = (
                    "These moments hold rows instead of a covariance. Save the model without "
                    "moments=True, or fit it to SecondMoments.from_data of both datasets."
                )
            raise TypeError(
                f"{where} is {_described(value)}, which a model file cannot hold. A model file "
                f"holds numbers, text and arrays of them. {advice}"
            )
        tree: dict[str, Any] = {"class": type(value).__name__}
        if is_dataclass(value):
            state = {field.name: getattr(value, field.name) for field in fields(value)}
            for field in fields(value):
                if state[field.name] is field.default:  # defaults are not stored
                    del state[field.name]
            return tree | {"fields": self._trees(state, where)}
        parameters = value.get_params(deep=False)
        fitted = {name: one for name, one in vars(value).items() if name not in parameters}
        fitted.pop("_metadata_request", None)  # set by scikit-learn's routing, not by fit
        parameters |= dict.fromkeys(getattr(value, "_not_saved", ()))
        if not self.moments:
            for name in getattr(value, "_of_moments", ()):
                fitted.pop(name, None)
        return tree | {
            "parameters": self._trees(parameters, where),
            "fitted": self._trees(fitted, where),
        }

    def _trees(self, values: Mapping[str, Any], where: str) -> dict[str, Any]:
        return {name: self.tree(value, f"{where}.{name}") for name, value in values.items()}

    def _names(self, names: Any) -> int:
        return self.names.setdefault(tuple(map(str, names)), len(self.names))

    def _place(self, array: NDArray[Any]) -> int:
        """Return the number of the array; two arrays with the same memory have the same number."""
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        memory = (array.ctypes.data, array.shape, array.strides, array.dtype.str)
        if memory not in self._places:
            self._places[memory] = len(self.arrays)
            self.arrays.append(little)
        return self._places[memory]


class _Reader:
    """Converter of the JSON and the arrays of a file to a model."""

    def __init__(self, path: str, arrays: list[NDArray[Any]], names: list[list[str]]) -> None:
        self.path, self.arrays, self.names = path, arrays, names

    def value(self, tree: Any) -> Any:
        match tree:
            case None | bool() | int() | float() | str():
                return tree
            case list():
                return [self.value(one) for one in tree]
            case {"array": int(i)}:
                return self.arrays[i]
            case {"names": int(i)}:
                return np.array(self.names[i], dtype=object)
            case {"tuple of names": int(i)}:
                return tuple(self.names[i])
            case {"tuple": list(values)}:
                return tuple(self.value(one) for one in values)
            case {"dict": dict(values)}:
                return self._values(values)
            case {"csr": [*parts], "shape": [int(n), int(d)], "kind": str(kind)}:
                sparse = {"csr_matrix": csr_matrix, "csr_array": csr_array}[kind]
                matrix = sparse(tuple(self.value(part) for part in parts), shape=(n, d))
                matrix.check_format(full_check=True)  # compiled code does not check the indices
                return matrix
            case {"class": str(name), **state}:
                return self._model(name, state)
        raise ValueError(f"the entry {str(tree)[:40]!r} has an unknown kind")

    def _values(self, trees: dict[str, Any]) -> dict[str, Any]:
        return {name: self.value(tree) for name, tree in trees.items()}

    def _model(self, name: str, state: Mapping[Any, Any]) -> Any:
        kind: Any = _allowed_class(name)
        if kind is None:
            raise _Refused(
                f"{self.path} holds {name!r}, which this version of contrast-suite "
                f"({_VERSION}) does not know; it reads {_listed(_HOMES)}."
            )
        if "fields" in state:
            return kind(**self._values(state["fields"]))
        parameters = self._values(state["parameters"])
        unknown = set(parameters) - set(kind._get_param_names())
        if unknown:
            raise _Refused(
                f"{self.path} holds a {name} with parameter(s) {_listed(sorted(unknown))}, which "
                f"this version of contrast-suite ({_VERSION}) does not know."
            )
        model = kind(**parameters)
        for attribute, tree in state["fitted"].items():
            if hasattr(kind, attribute):
                raise ValueError(f"{attribute!r} of {name} is not a fitted attribute")
            vars(model)[attribute] = self.value(tree)
        return model


def _all_text(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _allowed_class(name: str) -> Any:
    """Return the class with this name if files may hold it, else None."""
    home = (_HOMES | _PARTS).get(name)
    return getattr(import_module(home), name) if home else None


def _read_array(values: IO[bytes], dtype: str, shape: list[int], order: str) -> NDArray[Any]:
    if dtype not in _DTYPES or order not in ("C", "F"):
        raise ValueError(f"an array is of {dtype!r} in {order!r} order")
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"an array has shape {shape}")
    kind = np.dtype(dtype)
    n_bytes = math.prod(shape) * kind.itemsize
    raw = values.read(n_bytes)
    if len(raw) != n_bytes:
        raise ValueError(f"an array of {n_bytes} bytes has {len(raw)}")
    array = np.frombuffer(raw, kind).reshape(shape, order=order)  # type: ignore[call-overload]
    return np.asarray(array.astype(kind.newbyteorder("="), order="K"))  # a writable copy


def _replace(target: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write to a temporary file beside the target, and replace the target once it is complete."""
    part = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        with part.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _described(value: Any) -> str:
    if callable(value):
        return f"the function {getattr(value, '__name__', value)!r}"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}"
    return f"a {type(value).__module__}.{type(value).__name__}"


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "nothing"
