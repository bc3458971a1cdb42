"""Which way is taken, by numbers alone: every limit has a task on each side of it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from contrast_core.solve import LIMITS, Limits, Task, make_plan, plan_pairs

DENSE, SPAN, PRODUCTS = "dense", "span", "products"


def sparse(task: Task, per_row: int) -> Task:
    return task._replace(entries=per_row * task.n_rows)


TALL = sparse(Task(100_000, 2000, 2), 120)
FORMS: list[tuple[Task, str, str | None]] = [
    # No more features than rows: the covariance; else the span of the rows, however few features.
    (Task(60, 60, 2), DENSE, None),
    (Task(60, 61, 2), SPAN, None),
    (Task(40, 1000, 10, contrasts=41), SPAN, None),
    (sparse(Task(100, 1500, 2, contrasts=41), 75), SPAN, None),
    (sparse(Task(160, 6000, 2), 60), SPAN, None),
    (Task(5000, 5000, 2, automatic=True), DENSE, None),
    (Task(5000, 5001, 2, automatic=True), SPAN, None),
    # One given contrast of large data, or of wide sparse data: products, with something to go to.
    (Task(6000, 5000, 2), DENSE, None),
    (Task(6000, 5001, 2), PRODUCTS, DENSE),
    (Task(5001, 6000, 2), PRODUCTS, SPAN),
    (Task(6000, 5001, 2, automatic=True), DENSE, None),
    (Task(6000, 5001, 2, contrasts=2), DENSE, None),
    (Task(6000, 5001, 2, products=False), DENSE, None),
    (Task(6000, 5001, 2, in_memory=False), DENSE, None),
    (sparse(Task(3000, 25_000, 2), 1750), SPAN, None),
    (sparse(Task(3001, 25_000, 2), 1750), PRODUCTS, SPAN),
    (sparse(Task(3000, 25_000, 2, automatic=True), 1750), SPAN, None),
    (sparse(Task(3000, 25_000, 2, contrasts=2), 1750), SPAN, None),
    # No matrix is affordable: products whatever is wanted.
    (Task(20_000, 10_000, 2, contrasts=41), DENSE, None),
    (Task(20_000, 10_001, 2, contrasts=41), PRODUCTS, None),
    (Task(10_001, 20_000, 2, automatic=True, in_memory=False), PRODUCTS, None),
    (Task(10_001, 20_000, 2, products=False), SPAN, None),
    # Few components of tall sparse rows: products where a matrix, made and solved, costs more.
    (TALL, PRODUCTS, DENSE),
    (sparse(TALL._replace(n_components=21), 57), PRODUCTS, DENSE),
    (sparse(TALL._replace(n_components=21), 58), DENSE, None),
    (sparse(TALL._replace(n_components=21), 79), DENSE, None),
    (sparse(TALL._replace(n_components=21), 81), PRODUCTS, DENSE),
    # Machine code sums moments up faster.
    (sparse(TALL._replace(n_components=17, compiled=True), 61), PRODUCTS, DENSE),
    (sparse(TALL._replace(n_components=17, compiled=True), 62), DENSE, None),
    (sparse(TALL._replace(n_components=17, compiled=True), 114), DENSE, None),
    (sparse(TALL._replace(n_components=17, compiled=True), 115), PRODUCTS, DENSE),
    (sparse(TALL, 30)._replace(automatic=True, n_components=10), PRODUCTS, DENSE),
    (sparse(TALL, 31)._replace(automatic=True, n_components=10), DENSE, None),
    (sparse(TALL, 149)._replace(automatic=True, n_components=10), DENSE, None),
    (sparse(TALL, 150)._replace(automatic=True, n_components=10), PRODUCTS, DENSE),
    (sparse(TALL, 433)._replace(automatic=True, contrasts=2), DENSE, None),
    # The cells of one type among many: few rows, for which the matrix is what costs.
    (sparse(Task(3750, 2000, 2), 160), PRODUCTS, DENSE),
    (sparse(Task(3750, 2000, 10), 160), PRODUCTS, DENSE),
    (sparse(Task(3750, 2000, 200), 160), DENSE, None),
    # Their automatic contrast is one of noise, which takes many columns.
    (sparse(Task(15_999, 2000, 2, automatic=True), 160), DENSE, None),
    (sparse(Task(16_000, 2000, 2, automatic=True), 160), PRODUCTS, DENSE),
    (sparse(Task(47_999, 2000, 10, automatic=True), 160), DENSE, None),
    (sparse(Task(48_000, 2000, 10, automatic=True), 160), PRODUCTS, DENSE),
    (sparse(Task(3750, 1000, 2), 160), PRODUCTS, DENSE),
    (sparse(Task(3750, 999, 2), 160), DENSE, None),
    (Task(9000, 900, 2, entries=2**22 - 1), DENSE, None),
    (Task(9000, 900, 2, entries=2**22), PRODUCTS, DENSE),
    (TALL._replace(contrasts=41), DENSE, None),
    (TALL._replace(in_memory=False), DENSE, None),
    # What is asked for, or there already.
    (Task(60, 90, 2, form="span"), SPAN, None),
    (Task(60, 90, 2, form="products"), PRODUCTS, None),
    (Task(90, 60, 2, held="products"), PRODUCTS, DENSE),
    (Task(60, 9000, 2, held="products"), PRODUCTS, SPAN),
    (Task(60, 9000, 2, held="products", products=False), SPAN, None),
    (Task(60, 9000, 2, held="dense"), DENSE, None),
]
PAIRS: list[tuple[int, int, str, str | None]] = [
    (80, 80, DENSE, None),
    (80, 81, SPAN, None),
    (9000, 3000, DENSE, None),
    (9000, 3001, PRODUCTS, DENSE),
    (5000, 9000, SPAN, None),
    (5001, 9000, PRODUCTS, SPAN),
    (5001, 40_000, PRODUCTS, SPAN),
    (10_000, 11_000, PRODUCTS, SPAN),
    (10_001, 11_000, PRODUCTS, None),
]
# Size, components, contrasts: columns of one contrast, whether without a gap; of each of a path.
SOLVERS: list[tuple[int, int, int, int | None, bool, int | None]] = [
    (999, 2, 1, None, False, None),
    (1000, 2, 1, 100, False, None),
    (1000, 5, 1, 100, False, None),
    (1000, 6, 1, None, False, None),
    (1000, 11, 1, None, False, None),
    (1999, 2, 1, 399, False, None),
    (2000, 2, 1, 400, True, None),
    (2000, 5, 1, 400, True, None),
    (2000, 6, 1, 400, False, None),
    (499, 2, 41, None, False, None),
    (500, 2, 8, None, False, 10),
    (500, 2, 7, None, False, None),
    (500, 3, 8, None, False, None),
    (699, 2, 41, None, False, 19),
    (700, 2, 41, None, False, 19),
    (900, 4, 41, None, False, 32),
    (1001, 5, 41, 100, False, 40),
    (999, 20, 1, None, False, None),
]


def decisions(limits: Limits) -> list[Any]:
    """Everything that the tables above ask, under these limits."""
    made: list[Any] = []
    for task, _, _ in FORMS:
        plan = make_plan(task, limits)
        made.append((plan.form, plan.fallback, plan.max_products))
    for n_rows, n_features, _, _ in PAIRS:
        plan = plan_pairs(n_rows, n_features, limits)
        made.append((plan.form, plan.fallback, plan.max_products))
    dense = make_plan(Task(60, 90, 2), limits)
    for size, k, contrasts, *_ in SOLVERS:
        made.append((dense.iteration(size, k), dense.path_budget(size, k, contrasts)))
        made.append(dense.ratio_iteration(size, k, contrasts))
        made.append((dense.leads_up(size), dense.lead_budget(size, k), dense.nearby_budget(size)))
    return made


@pytest.mark.parametrize("task, form, fallback", FORMS)
def test_the_form_follows_from_the_numbers(task: Task, form: str, fallback: str | None) -> None:
    plan = make_plan(task)
    assert plan.form == form, plan.reason
    if fallback is not None or form != PRODUCTS:
        assert plan.fallback == fallback
    assert plan.reason


@pytest.mark.parametrize("n_rows, n_features, form, fallback", PAIRS)
def test_so_does_that_of_pairs(
    n_rows: int, n_features: int, form: str, fallback: str | None
) -> None:
    plan = plan_pairs(n_rows, n_features)
    assert (plan.form, plan.fallback) == (form, fallback), plan.reason


@pytest.mark.parametrize("size, k, contrasts, single, refine, path", SOLVERS)
def test_so_does_the_solver(
    size: int, k: int, contrasts: int, single: int | None, refine: bool, path: int | None
) -> None:
    plan = make_plan(Task(60, 90, 2))
    iteration = plan.iteration(size, k)
    assert (int(iteration.budget) if iteration else None) == single
    assert (iteration is not None and iteration.refine) == refine
    budget = plan.path_budget(size, k, contrasts)
    assert (None if budget is None else int(budget)) == path


def test_ratios_are_iterated_later() -> None:
    plan = make_plan(Task(60, 90, 2))
    assert plan.ratio_iteration(699, 2, 41) is None
    iteration = plan.ratio_iteration(1000, 2, 41)
    assert iteration is not None and iteration.budget == 62.5 and iteration.refine
    assert plan.ratio_iteration(700, 2, 41) is not None
    assert plan.ratio_iteration(700, 2, 7) is None
    assert plan.ratio_iteration(700, 4, 41) is None


def test_cheap_steps_lead_up_to_the_automatic_contrast() -> None:
    plan = make_plan(Task(60, 90, 2))
    assert not plan.leads_up(699)
    assert plan.leads_up(700)
    assert plan.lead_budget(1000, 2) == 250
    assert plan.lead_budget(1000, 20) == 900
    assert plan.lead_budget(1000, 21) is None


def test_relabelled_contrasts_are_searched_for_near_the_given_one() -> None:
    plan = make_plan(Task(60, 90, 2))
    assert plan.nearby_budget(699) is None
    assert plan.nearby_budget(700) == 175


def test_how_many_columns_may_be_multiplied() -> None:
    assert make_plan(Task(20_000, 20_000, 2)).max_products == 5000
    assert make_plan(Task(6000, 6000, 2)).max_products == 360
    searched = TALL._replace(automatic=True, n_components=10, entries=2**30)
    assert make_plan(searched).max_products == 787
    assert make_plan(sparse(Task(3750, 2000, 2), 160)).max_products == 1613
    assert make_plan(Task(20_000, 20_000, 2, automatic=True)).max_products == 5000
    found = [plan_pairs(9000, d).max_products for d in (3001, 5120, 8000, 16_000, 40_000)]
    assert found == [640, 640, 1000, 2000, 2000]


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
@pytest.mark.parametrize("factor", [0.5, 10])
def test_no_limit_can_be_changed_unnoticed(name: str, factor: float) -> None:
    """Each component of each of them changes some decision of the tables."""
    value = getattr(LIMITS, name)
    parts = value if isinstance(value, tuple) else (value,)
    for i, part in enumerate(parts):
        other = (*parts[:i], round(part * factor), *parts[i + 1 :])
        changed = replace(LIMITS, **{name: other if isinstance(value, tuple) else other[0]})
        assert decisions(changed) != decisions(LIMITS), (name, i)
