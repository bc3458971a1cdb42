"""Tests of `make_plan`, which chooses the form of the moments from the sizes of the data.

The form "dense" is a covariance matrix of the features. The form "span" is a matrix of about as
many rows and columns as the data have rows; it describes the covariance within the span of the
rows. The form "products" has no matrix; the rows are multiplied with columns instead. Its fallback
is the form that is used if the iteration by products does not converge.
"""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from contrast_core import CPCA
from contrast_core.datasets import make_four_groups
from contrast_core.solve import LIMITS, ProblemSize, make_plan

DENSE, SPAN, PRODUCTS = "dense", "span", "products"
SIZES = [10, 60, 500, 700, 1000, 2000, 3000, 3001, 5000, 10_000, 10_001, 50_000]


def sparse(task: ProblemSize, per_row: int) -> ProblemSize:
    """Return the task for sparse rows with this number of stored entries in each row."""
    return task._replace(entries=per_row * task.n_rows)


TALL = sparse(ProblemSize(100_000, 2000, 2), 120)
# Each case has a task, the form of its moments, and the fallback. A task begins with the numbers of
# rows, features and components. `contrasts` is the number of alphas. `automatic` is true if alpha
# is chosen automatically.
FORMS: list[tuple[ProblemSize, str, str | None]] = [
    # The form is "dense" if there are no more features than rows, and otherwise "span".
    (ProblemSize(60, 60, 2), DENSE, None),
    (ProblemSize(60, 61, 2), SPAN, None),
    (ProblemSize(40, 1000, 10, contrasts=41), SPAN, None),
    (sparse(ProblemSize(100, 1500, 2, contrasts=41), 75), SPAN, None),
    (sparse(ProblemSize(160, 6000, 2), 60), SPAN, None),
    # Products are planned for a single contrast of large data, with a matrix as the fallback.
    (ProblemSize(6000, 2880, 2), DENSE, None),
    (ProblemSize(6000, 2881, 2), PRODUCTS, DENSE),
    (ProblemSize(2881, 6000, 2), PRODUCTS, SPAN),
    (ProblemSize(6000, 3840, 10), DENSE, None),
    (ProblemSize(6000, 3841, 10), PRODUCTS, DENSE),
    (ProblemSize(6000, 5001, 2, automatic=True), DENSE, None),
    (ProblemSize(100_000, 6000, 1, automatic=True), DENSE, None),
    (ProblemSize(6000, 5001, 2, contrasts=2), DENSE, None),
    (ProblemSize(6000, 5001, 2, products=False), DENSE, None),
    (ProblemSize(6000, 5001, 2, in_memory=False), DENSE, None),
    (sparse(ProblemSize(3000, 25_000, 2), 1750), PRODUCTS, SPAN),
    (sparse(ProblemSize(1500, 25_000, 2), 1750), SPAN, None),
    (sparse(ProblemSize(600, 601, 1), 10), SPAN, None),
    (sparse(ProblemSize(3000, 25_000, 2, automatic=True), 1750), SPAN, None),
    (sparse(ProblemSize(3000, 25_000, 2, contrasts=2), 1750), SPAN, None),
    # Products are planned for every task if a matrix would be too large.
    (ProblemSize(20_000, 10_001, 2, contrasts=41), PRODUCTS, None),
    (ProblemSize(10_001, 20_000, 2, automatic=True, in_memory=False), PRODUCTS, None),
    (ProblemSize(10_001, 20_000, 2, products=False), SPAN, None),
    # Products are planned for few components of many sparse rows, if a matrix would cost more.
    (TALL, PRODUCTS, DENSE),
    (TALL._replace(automatic=True), PRODUCTS, DENSE),
    (TALL._replace(n_components=50), DENSE, None),
    (TALL._replace(contrasts=41), DENSE, None),
    (TALL._replace(in_memory=False), DENSE, None),
    (sparse(ProblemSize(3750, 2000, 2), 160), PRODUCTS, DENSE),
    # If rows have few entries, the iteration spends more time on making its columns orthogonal than
    # on products.
    (sparse(ProblemSize(1500, 1000, 1), 10), PRODUCTS, DENSE),
    (sparse(ProblemSize(1500, 1000, 1, automatic=True), 10), DENSE, None),
    (sparse(ProblemSize(1500, 1000, 50), 10), DENSE, None),
    (sparse(ProblemSize(1500, 1000, 10), 10), DENSE, None),
    (sparse(ProblemSize(15_000, 6000, 10), 10), PRODUCTS, DENSE),
    # If alpha is chosen automatically and there are few rows for each feature, the eigenvalues are
    # close together, so the iteration would need many products.
    (sparse(ProblemSize(3750, 2000, 2, automatic=True), 160), DENSE, None),
    # PCA++ is planned like three components, or more if more are asked for.
    (ProblemSize(80, 80, 3), DENSE, None),
    (ProblemSize(9000, 3000, 3), DENSE, None),
    (ProblemSize(9000, 3001, 3), PRODUCTS, DENSE),
    (ProblemSize(3001, 40_000, 3), PRODUCTS, SPAN),
    (ProblemSize(10_001, 11_000, 3), PRODUCTS, None),
    # `form` is what the caller requests; `given` is the form of moments that were passed as data.
    (ProblemSize(60, 90, 2, form="span"), SPAN, None),
    (ProblemSize(60, 90, 2, form="products"), PRODUCTS, None),
    (ProblemSize(60, 9000, 2, given="products", products=False), SPAN, None),
    (ProblemSize(60, 9000, 2, given="dense"), DENSE, None),
]


@pytest.mark.parametrize("task, form, fallback", FORMS)
def test_these_sizes_get_the_expected_form_and_fallback(
    task: ProblemSize, form: str, fallback: str | None
) -> None:
    plan = make_plan(task)
    assert plan.form == form, plan.reason
    assert plan.fallback == fallback
    assert len(plan.reason) > 10


@pytest.mark.parametrize("entries", [None, 5, 300])
@pytest.mark.parametrize("automatic", [False, True])
def test_a_planned_matrix_is_the_smaller_of_the_dense_and_the_span_matrix(
    entries: int | None, automatic: bool
) -> None:
    for n_rows, n_features in product(SIZES, SIZES):
        task = ProblemSize(n_rows, n_features, 2, automatic=automatic)
        plan = make_plan(task if entries is None else sparse(task, entries))
        direct = plan.fallback or plan.form
        if direct == PRODUCTS:
            assert min(n_rows, n_features) > LIMITS.matrix
        else:
            assert direct == (SPAN if n_features > n_rows else DENSE)


def test_more_components_or_contrasts_never_replace_a_matrix_by_products() -> None:
    for n_rows, n_features, per_row in product(SIZES, SIZES, (None, 20, 300)):
        base = ProblemSize(n_rows, n_features, 1)
        task = base if per_row is None else sparse(base, per_row)
        several = [task._replace(n_components=k) for k in (1, 2, 5, 10, 50, 200)]
        more = [task._replace(contrasts=n) for n in (1, 2, 41)]
        for chain in (several, more) if n_features <= n_rows else (more,):
            made = [make_plan(one).form for one in chain]
            for one, other in pairwise(made):
                assert one == PRODUCTS or other != PRODUCTS, (task, made)


def test_a_search_by_dense_products_takes_about_half_of_the_time_of_a_matrix_at_most() -> None:
    for size, k in product(SIZES, (1, 2, 5, 10, 50)):
        plan = make_plan(ProblemSize(size, size, k))
        if plan.fallback is not None:
            # A covariance takes the time of size / 2 columns. For each product, reading the rows
            # takes the time of another 20 columns.
            products = plan.max_products / (k + 2)
            assert 30 <= products <= size / 4 / (k + 22), (size, k)


def test_a_fit_says_how_it_was_solved_and_why() -> None:
    data = make_four_groups(random_state=0)
    fitted = CPCA().fit(data.foreground, background=data.background)
    assert (fitted.solver_, fitted.form_) == ("eigh", DENSE)
    assert fitted.plan_.reason == "no more features than rows"
    forced = CPCA(alpha=1.0, solver="lanczos").fit(data.foreground, background=data.background)
    assert forced.form_ == PRODUCTS
    assert forced.plan_.reason == "solver='lanczos' was asked for"


def test_dense_data_of_moderate_size_may_change_after_the_fit() -> None:
    X, Y = np.random.default_rng(0).normal(size=(2, 1100, 1050))
    fitted = CPCA(2, alpha=1.0).fit(X, background=Y)
    before = fitted.at(2.0).components_
    X *= np.linspace(0, 3, 1050)
    np.testing.assert_allclose(fitted.at(2.0).components_, before, atol=1e-12)
