"""Tests of the preconditioners, which change how fast a search converges, but not its result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contrast_core.linalg import _precondition
from contrast_core.linalg._precondition import Pencil, by_diagonal
from contrast_core.linalg._search import Ritz
from tests.core.planned import symmetric

ALPHA = 2.0


def test_residuals_are_divided_by_the_diagonal_of_the_contrast() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(1, 2, size=(2, 20))
    values = np.array([9.0, 8.0, 7.0])
    columns = rng.normal(size=(20, 2))
    ritz = Ritz(ALPHA, values, columns, columns)
    found = by_diagonal([x, y], patience=5, extra=0).make(ritz)(columns, values[:2], ritz)
    np.testing.assert_allclose(found, columns / (values[:2] - (x - ALPHA * y)[:, None]))


def test_the_first_shift_is_high_enough_for_a_cholesky_factor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    background = symmetric(np.linspace(0.1, 1, 60), seed=1)
    contrast = symmetric([50.0, 10.0, 9.9, *np.linspace(9, -20, 57)], seed=2)
    leading = np.linalg.eigh(contrast)[1][:, :-4:-1]
    noise = np.random.default_rng(3).normal(size=leading.shape)
    vectors = np.linalg.qr(leading + 0.005 * noise)[0]
    values, turned = np.linalg.eigh(vectors.T @ contrast @ vectors)
    values, vectors = values[::-1], (vectors @ turned)[:, ::-1]
    residual = contrast @ vectors - vectors * values
    ritz = Ritz(ALPHA, values, vectors[:, :2], residual[:, :2])
    outcomes = []
    factorise = _precondition.dpotrf

    def recorded(*args: Any, **options: Any) -> Any:
        factor, failed = factorise(*args, **options)
        outcomes.append(failed)
        return factor, failed

    monkeypatch.setattr(_precondition, "dpotrf", recorded)
    Pencil((contrast + ALPHA * background, background)).factored(ritz)
    assert outcomes == [0]  # the first attempt succeeds
