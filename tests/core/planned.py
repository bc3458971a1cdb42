"""Moments and pairs in a chosen form, and plans with limits so low that small data exceed them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from contrast_core.moments import Form, Moments
from contrast_core.solve import (
    LIMITS,
    Limits,
    Plan,
    PositivePairs,
    Solver,
    Task,
    contrast_moments,
    make_plan,
    positive_pairs,
)

# Everything that may be iterated is.
EAGER = replace(
    LIMITS,
    iterated=0,
    iterated_each=0,
    lapack_columns=1,
    path_contrasts=1,
)
NAMES: dict[Form, Solver] = {"dense": "eigh", "span": "gram", "products": "lanczos"}


def moments_in(form: Form, x: Any, y: Any) -> tuple[Moments, Moments]:
    """Moments of a foreground and a background in this form."""
    return contrast_moments(x, y, solver=NAMES[form])[:2]


def plan_in(form: Form, limits: Limits = LIMITS, **task: Any) -> Plan:
    """A plan for moments of this form."""
    return make_plan(Task(1, 1, 1, given=form, **task), limits)


def pairs_by(limits: Limits, x: Any, positive: Any) -> PositivePairs:
    """Positive pairs, solved as these limits say."""
    return positive_pairs(x, positive, limits=limits)
