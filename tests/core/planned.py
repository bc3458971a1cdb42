"""Moments and pairs in a form of choice, and plans by limits that small data exceed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from contrast_core.moments import Form, Moments, PairRows
from contrast_core.rows import rows_of
from contrast_core.solve import (
    LIMITS,
    Limits,
    Pairs,
    Plan,
    Solver,
    Task,
    contrast_moments,
    make_plan,
    plan_pairs,
)

# Everything that may be iterated is.
EAGER = replace(
    LIMITS,
    single_features=0,
    single_features_each=0,
    single_columns=1,
    lead_features=0,
    lead_features_each=0,
    lead_columns=1,
    path_contrasts=1,
    path_features=0,
    path_features_each=0,
    path_columns=1,
)
NAMES: dict[Form, Solver] = {"dense": "eigh", "span": "gram", "products": "lanczos"}


def moments_in(form: Form, x: Any, y: Any) -> tuple[Moments, Moments]:
    """Moments of a foreground and a background in this form."""
    return contrast_moments(x, y, solver=NAMES[form])[:2]


def plan_in(form: Form, limits: Limits = LIMITS, **task: Any) -> Plan:
    """A plan for moments of this form."""
    return make_plan(Task(1, 1, 1, held=form, **task), limits)


def pairs_by(limits: Limits, x: Any, positive: Any) -> Pairs:
    """Positive pairs, solved as these limits say."""
    rows = PairRows(rows_of(x, "X"), rows_of(positive, "positive"))
    return Pairs(rows, None, plan_pairs(2 * rows.n_pairs, rows.n_features, limits))
