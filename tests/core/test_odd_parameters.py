"""Every parameter with values that it should not, or may, be given."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import pytest

import contrast_core as cc
from contrast_core import datasets, pairing
from tests.core.odd_parameters import TABLE, Parameter

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")


def result_of(value: Any) -> list[Any]:
    """What a call gave, as arrays."""
    if isinstance(value, cc.SecondMoments):
        return [value.mean, value.covariance, value.feature_names]
    if isinstance(value, datasets.ContrastData):
        return [value.foreground, value.background]
    if isinstance(value, pairing.PositivePairs):
        return [value.rows, value.positive_rows]
    if isinstance(value, cc.PCAPlusPlus):
        return [value.components_]
    if hasattr(value, "__next__"):
        return [rows for _, rows in value]
    if isinstance(value, tuple | list):
        return list(value)
    return [value]


def shown(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # an integer of too many digits
        return "10**5000"


def complaint(parameter: Parameter, value: Any) -> str:
    """What is wrong with how a value is refused; nothing if it is refused well."""
    try:
        result_of(parameter.call(value))
    except (TypeError, ValueError) as error:
        text = str(error)
        where = traceback.extract_tb(error.__traceback__)[-1].filename
    except Exception as error:
        return f"ends in {type(error).__name__}: {error}"
    else:
        return "is taken"
    if parameter.name not in text:
        return f"is refused without the parameter's name: {text}"
    if not ("/contrast_core/" in where or "/sklearn/utils/" in where):
        return f"is refused by {where}: {text}"
    return "" if len(text) < 400 else f"is refused at length: {text}"


EACH = pytest.mark.parametrize("parameter", TABLE, ids=lambda p: f"{p.where}-{p.name}")


@EACH
def test_what_means_nothing_is_refused_by_name(parameter: Parameter) -> None:
    found = {shown(value): complaint(parameter, value) for value in parameter.kind.refused}
    assert not {value: text for value, text in found.items() if text}


@EACH
def test_what_means_the_same_gives_the_same(parameter: Parameter) -> None:
    for plain, other in parameter.kind.same:
        results = result_of(parameter.call(plain)), result_of(parameter.call(other))
        for one, two in zip(*results, strict=True):
            np.testing.assert_array_equal(one, two, err_msg=f"{plain!r} and {other!r}")
