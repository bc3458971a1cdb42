"""Form a matrix if an iteration that only multiplies the data with vectors does not converge.

Problem: whether an iteration converges within its budget is known only after it has run. The plan
therefore names a second form of the moments, which is used if the iteration does not converge. An
iteration that fails costs time, but the result is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from contrast_core.linalg import NotConvergedError
from contrast_core.solve._plan import Plan

T = TypeVar("T")


def with_fallback(plan: Plan, work: Callable[[Plan], T], *, task: str = "", advice: str = "") -> T:
    """Run `work` with a plan; if it does not converge, run it again with the plan's fallback.

    Raises
    ------
    NotConvergedError
        If `work` does not converge and the plan has no fallback. The message names the task and
        ends with the advice.
    """
    try:
        return work(plan)
    except NotConvergedError as error:
        if plan.fallback is None:
            parts = f"{task}: " if task else "", error, f" {advice}" if advice else ""
            raise NotConvergedError("".join(map(str, parts))) from error
    return work(plan.direct())
