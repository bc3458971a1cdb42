"""Helpers that choose how second moments are represented and which solver is used.

A `Form` of moments is "dense" (a matrix of features x features), "span" (a matrix in a basis of the
span of the rows) or "products" (no matrix, but products of the rows with a few columns).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from contrast_core.moments import Form, Moments
from contrast_core.solve import (
    LIMITS,
    Limits,
    Plan,
    PlannedPairs,
    ProblemSize,
    Solver,
    contrast_moments,
    make_plan,
    positive_pairs,
)

# With these limits, an iterative solver is used for every task that has one.
EAGER = replace(LIMITS, iterated=0, iterated_each=0, lapack_columns=1, path_contrasts=1)
SOLVERS: dict[Form, Solver] = {"dense": "eigh", "span": "gram", "products": "lanczos"}


def rotation(size: int, seed: int = 0) -> Any:
    """Return a random orthogonal matrix."""
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]


def symmetric(values: Any, seed: int = 0) -> Any:
    """Return a symmetric matrix with these eigenvalues and random orthogonal eigenvectors."""
    basis = rotation(len(values), seed)
    matrix = (basis * values) @ basis.T
    return (matrix + matrix.T) / 2


def moments_in(form: Form, x: Any, y: Any) -> tuple[Moments, Moments]:
    """Return the moments of a foreground and a background in the given form."""
    return contrast_moments(x, y, solver=SOLVERS[form])[:2]


def plan_in(form: Form, limits: Limits = LIMITS, **task: Any) -> Plan:
    """Return a plan for moments in the given form."""
    return make_plan(ProblemSize(1, 1, 1, given=form, **task), limits)


def pairs_by(limits: Limits, x: Any, positive: Any) -> PlannedPairs:
    """Return positive pairs whose solver is chosen by the given limits."""
    return positive_pairs(x, positive, limits=limits)
