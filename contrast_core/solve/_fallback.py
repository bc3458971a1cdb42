"""The way back to a matrix where products with the rows are not enough.

Problem: whether an iteration converges within its budget is known only after it has run. The plan
names the form to go over to, so a wrong guess costs time but no result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from contrast_core.linalg import NotConvergedError
from contrast_core.solve._plan import Plan

T = TypeVar("T")


def with_fallback(plan: Plan, work: Callable[[Plan], T], *, task: str = "", advice: str = "") -> T:
    """Run `work` with a plan, and with the plan's fallback where products do not suffice.

    Raises NotConvergedError, which names the task and ends with the advice, where there is nothing
    to fall back to.
    """
    try:
        return work(plan)
    except NotConvergedError as error:
        if plan.fallback is None:
            parts = f"{task}: " if task else "", error, f" {advice}" if advice else ""
            raise NotConvergedError("".join(map(str, parts))) from error
    return work(plan.direct())
