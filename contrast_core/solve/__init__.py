"""Planning and solving eigenproblems: the plan, the moments in the planned form, the solvers."""

from contrast_core.solve._automatic import solve_trace_ratio
from contrast_core.solve._contrast import (
    ContrastSolution,
    check_variances,
    solve_contrasts,
)
from contrast_core.solve._design import Design
from contrast_core.solve._fallback import with_fallback
from contrast_core.solve._moments import (
    check_background_is_given,
    contrast_moments,
    contrast_rows,
    design_rows,
    in_form,
    loaded_rows,
    plan_for,
)
from contrast_core.solve._pairs import PlannedPairs, positive_pairs
from contrast_core.solve._plan import (
    LIMITS,
    NAMES,
    SOLVERS,
    Limits,
    Plan,
    ProblemSize,
    Solver,
    make_plan,
)
from contrast_core.solve._positive_part import n_positive, positive_part
from contrast_core.solve._ratio import contrast_index, solve_ratios

__all__ = [
    "LIMITS",
    "NAMES",
    "SOLVERS",
    "ContrastSolution",
    "Design",
    "Limits",
    "Plan",
    "PlannedPairs",
    "ProblemSize",
    "Solver",
    "check_background_is_given",
    "check_variances",
    "contrast_index",
    "contrast_moments",
    "contrast_rows",
    "design_rows",
    "in_form",
    "loaded_rows",
    "make_plan",
    "n_positive",
    "plan_for",
    "positive_pairs",
    "positive_part",
    "solve_contrasts",
    "solve_ratios",
    "solve_trace_ratio",
    "with_fallback",
]
