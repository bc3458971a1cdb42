"""Tests of unusual data: one function with every kind, the other functions with a few kinds.

Valid data must give the results of plain arrays. Invalid data must be refused by a check of this
package, whose message names the argument and shows what was given. NumPy's warnings are errors, and
the data stay unchanged.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tests.core.odd_inputs import EVERYWHERE, REFUSED, TAKEN, Kind
from tests.core.odd_subjects import DATA, SUBJECTS, Subject

pytestmark = [
    pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning"),
    # scikit-learn gives this warning if only one of fit and transform gets a DataFrame.
    pytest.mark.filterwarnings("ignore:X (has feature names|does not have valid):UserWarning"),
]

ON_PURPOSE = ("/contrast_core/", "/scanpy_ext/")
# These functions of scikit-learn check that transform gets the features and names of the fit.
_CONTRACT = ("check_is_fitted", "_check_n_features", "_check_feature_names", "_get_feature_names")


def complaint(error: BaseException, words: str) -> str:
    """Describe what is wrong with an error, or return an empty string if the error is clear."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = any(package in last.filename for package in ON_PURPOSE) or last.name in _CONTRACT
    text = str(error)
    if not isinstance(error, TypeError | ValueError):
        return f"ends in {type(error).__name__}: {text}"
    if not (ours and (last.line or "").startswith("raise")):
        return f"is refused by {last.filename}:{last.lineno}: {text}"
    if not re.search(words, text):
        return f"is refused in other words than {words!r}: {text}"
    return "" if len(text) < 500 else f"is refused at length: {text}"


def content(data: Any) -> Any:
    """Return everything that data in memory hold, in a form that can be compared."""
    if sp.issparse(data):
        parts = ("data", "indices", "indptr", "coords", "offsets", "rows")
        found = [getattr(data, part) for part in parts if hasattr(data, part)]
        return data.format, str(dict(data.items())) if data.format == "dok" else repr(found)
    if hasattr(data, "detach"):
        return data.requires_grad, str(data.to_dense().detach().numpy().tolist())
    if hasattr(data, "columns"):
        return str(data.dtypes), data.to_csv()
    if hasattr(data, "__next__"):
        return None
    if hasattr(data, "dtype"):
        return str(getattr(data, "flags", "")), repr(np.asarray(data).tolist())
    return repr(np.asarray(data, dtype=object).tolist() if np.iterable(data) else data)


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Callable[[], Path]:
    """Return a function that makes a new folder when it is called."""
    return lambda: request.getfixturevalue("tmp_path_factory").mktemp("data")


def with_odd(subject: Subject, slot: str, kind: Kind, folder: Callable[[], Path]) -> dict[str, Any]:
    """Return the arguments of a call, of which one is of an unusual kind."""
    data = {name: DATA[name].copy() for name in subject.slots}
    return data | {slot: kind.make(data[slot], folder)}


def cases(kinds: list[Kind]) -> list[Any]:
    """Return test cases: all kinds for one function of data, and a few kinds for the others."""
    return [
        pytest.param(subject, slot, kind, id=f"{subject.name}-{slot}-{kind.name}")
        for subject in SUBJECTS
        for slot in subject.slots
        for kind in kinds
        if kind.name not in subject.but
        if kind.name in EVERYWHERE or subject.name == "SecondMoments.from_data"
    ]


def assert_as_expected(found: list[Any], expected: list[Any], tolerance: float) -> None:
    for one, other in zip(found, expected, strict=True):
        # For a tensor of half precision the result has half precision.
        single = isinstance(one, np.ndarray) and one.dtype.kind == "f" and one.dtype.itemsize < 8
        relative = max(tolerance, 4 * float(np.finfo(one.dtype).eps) if single else 0)
        atol = relative * float(np.abs(other).max(initial=0.0))
        np.testing.assert_allclose(np.asarray(one, dtype=np.float64), other, rtol=0, atol=atol)


@pytest.mark.parametrize(("subject", "slot", "kind"), cases(TAKEN))
def test_the_same_numbers_in_any_container_give_the_same_result(
    subject: Subject, slot: str, kind: Kind, folder: Callable[[], Path]
) -> None:
    data = with_odd(subject, slot, kind, folder)
    before = {name: content(each) for name, each in data.items()}
    expected = subject.call(**{name: DATA[name] for name in subject.slots})
    assert_as_expected(subject.call(**data), expected, subject.tolerance)
    assert {name: content(each) for name, each in data.items()} == before


@pytest.mark.parametrize(("subject", "slot", "kind"), cases(REFUSED))
def test_invalid_data_are_refused_with_a_message(
    subject: Subject, slot: str, kind: Kind, folder: Callable[[], Path]
) -> None:
    data = with_odd(subject, slot, kind, folder)
    before = {name: content(each) for name, each in data.items()}
    with pytest.raises(Exception, match=rf"\b({'|'.join(subject.slots)}|y)\b") as caught:
        subject.call(**data)
    assert not complaint(caught.value, kind.refused)
    assert {name: content(each) for name, each in data.items()} == before
