"""The plan: which form the second moments take, which solver runs, and why.

Problem: the same components can be computed from a covariance matrix, from a matrix in the span of
the rows, or by an iteration that only multiplies the data with columns. The sizes of the data
decide which way is fastest. A plan depends only on the few numbers in `ProblemSize`, so it can be
shown to the user and tested.

Costs are counted in columns: one column is the time of one product of the data with one vector. The
covariance of dense rows costs half as many columns as there are features. The covariance of sparse
rows costs a few columns for each stored entry of a row. If a plan iterates although a matrix would
be possible, the number of columns that the iteration may multiply is limited: to half of the cost
of the matrix at most for dense rows, and to about the whole cost for sparse rows. If it has not
converged by then, the matrix is formed. A wrong guess therefore adds about half of the time for
dense rows, and doubles the time for sparse rows. For dense rows, these estimates are rough: noise
has been measured to take 1.8 times as long as with a matrix.

All thresholds are in `Limits`, with their reasons.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from contrast_core.moments import Form

Solver: TypeAlias = Literal["auto", "eigh", "gram", "lanczos"]

SOLVERS: dict[str, Form | None] = {
    "auto": None,
    "eigh": "dense",
    "gram": "span",
    "lanczos": "products",
}
NAMES: dict[Form, str] = {form: name for name, form in SOLVERS.items() if form is not None}


@dataclass(frozen=True)
class Limits:
    """Sizes at which one way of solving becomes faster than another, measured on one thread.

    Parameters
    ----------
    matrix : int
        Size of the largest matrix that is formed. A matrix of this size takes 800 MB, and LAPACK
        takes minutes to solve it.
    reading : int
        To read and centre dense rows takes as long as to multiply them with this many columns. This
        time is spent for each product, however few columns are multiplied.
    wide : int
        One contrast of sparse data with more features than rows is solved by products if the
        squared number of rows exceeds this times ``(k + 2) * n_features``. The cost of a Gram
        matrix grows with the square of the number of rows. The cost of a search grows with the
        numbers of components and features.
    columns_each : int
        A search for k components is expected to multiply ``columns_each * (k + 2)`` columns.
    entry_columns : float
        The covariance of sparse rows costs this many columns for each stored entry of a row.
    products : int
        Largest number of columns that a search may multiply if a matrix would be too large.
    iterated : int
        Size of a matrix from which an iteration is faster than LAPACK.
    iterated_each : int
        Size of a matrix, divided by the number of components, from which an iteration is faster
        than LAPACK. The cost of an iteration grows with the number of components, and the cost of
        LAPACK hardly does.
    lapack_columns : int
        LAPACK solves a matrix in the time of ``size**2 / lapack_columns`` products of the matrix
        with a column.
    path_contrasts : int
        Number of contrasts from which one search for the whole path is faster than LAPACK, although
        its search space has to be built first.
    """

    matrix: int = 10_000
    reading: int = 20
    wide: int = 70
    columns_each: int = 30
    entry_columns: float = 2.5
    products: int = 5000
    iterated: int = 700
    iterated_each: int = 150
    lapack_columns: int = 10_000
    path_contrasts: int = 8


LIMITS = Limits()


class ProblemSize(NamedTuple):
    """Numbers that describe an eigenproblem and determine its plan.

    n_rows, n_features : int
        Number of rows of all datasets together, and number of features.
    n_components : int
        Number of components, k.
    contrasts : int
        Number of contrast strengths alpha that will be solved from the same moments, as far as this
        is known.
    automatic : bool
        Whether the contrast strength is chosen automatically.
    entries : int or None
        Number of stored entries of sparse rows; None for dense rows.
    in_memory : bool
        Whether the rows are in memory, so that reading them again costs nothing.
    products : bool
        Whether the method can work with products instead of a matrix.
    form, given : Form or None
        `form` is the form of the moments that the user asked for by the name of a solver. `given`
        is the form of the moments that the user passed in place of data.
    """

    n_rows: int
    n_features: int
    n_components: int
    contrasts: int = 1
    automatic: bool = False
    entries: int | None = None
    in_memory: bool = True
    products: bool = True
    form: Form | None = None
    given: Form | None = None

    @property
    def size(self) -> int:
        """Size of the smaller matrix: the covariance, or the matrix in the span of the rows."""
        return min(self.n_rows, self.n_features)

    @property
    def direct(self) -> Form:
        """The form with the smaller matrix."""
        return "span" if self.n_features > self.n_rows else "dense"


@dataclass(frozen=True)
class Plan:
    """Plan of how an eigenproblem is solved, with the reason.

    Parameters
    ----------
    form : {"dense", "span", "products"}
        The form of the covariances: a matrix of the features, a matrix in the span of the
        rows, or the rows themselves.
    fallback : Form or None
        The form that is used instead if the iteration with products does not converge.
    max_products : int
        Largest number of columns that the iteration with products may multiply.
    reason : str
        Reason for the plan, in words.
    limits : Limits
        The limits with which the plan was chosen.
    """

    form: Form
    fallback: Form | None = None
    max_products: int = 0
    reason: str = ""
    limits: Limits = LIMITS

    def direct(self) -> Plan:
        """Return the plan that is used instead if the iteration does not converge."""
        reason = f"{self.reason}, but the search by products did not converge"
        return Plan(self.fallback or "dense", None, 0, reason, self.limits)

    def by_lapack(self) -> Plan:
        """Return the same plan, but with LAPACK for every matrix."""
        return replace(self, limits=replace(self.limits, iterated=sys.maxsize))

    def iterates(self, size: int, k: float) -> bool:
        """Return whether an iteration is faster than LAPACK for a matrix of this size."""
        return size >= max(self.limits.iterated, self.limits.iterated_each * k)

    def budget(self, size: int, k: int, decompositions: int = 1) -> float | None:
        """Return the budget of columns for one contrast; None if LAPACK is faster.

        The search multiplies several columns at a time, which takes less time than one after
        another, so the budget is larger than LAPACK's cost as a number of columns. If the search
        saves LAPACK several decompositions, it is worth trying with more components.
        """
        if not self.iterates(size, k / decompositions):
            return None
        return max(2.5 * size**2 / self.limits.lapack_columns, 1.5 * self.limits.columns_each * k)

    def path_budget(self, size: int, k: int, contrasts: int) -> float | None:
        """Return the budget of columns for each contrast of a path; None if LAPACK is faster.

        The search space of the neighbouring contrasts is a good start, so the budget is smaller
        than for a single contrast.
        """
        if contrasts < self.limits.path_contrasts or not self.iterates(size, k):
            return None
        return size**2 / self.limits.lapack_columns


def make_plan(task: ProblemSize, limits: Limits = LIMITS) -> Plan:
    """Return the plan with the lowest expected cost; the components do not depend on the plan."""
    form, reason = _form_of(task, limits)
    if form != "products":
        return Plan(form, None, 0, reason, limits)
    if task.form is not None or task.size > limits.matrix:
        return Plan(form, None, limits.products, reason, limits)
    most = int(max(_columns_of_a_matrix(task, limits), _columns(task, limits)))
    return Plan(form, task.direct, most, reason, limits)


def _form_of(task: ProblemSize, limits: Limits) -> tuple[Form, str]:
    if task.given is not None and (task.products or task.given != "products"):
        return task.given, "moments were given instead of data"
    if task.form is not None:
        return task.form, f"solver={NAMES[task.form]!r} was asked for"
    if task.products and task.size > limits.matrix:
        return "products", f"rows and features both exceed {limits.matrix}"
    if task.products and task.contrasts == 1 and task.in_memory and _products_pay(task, limits):
        kind = "rows and features" if task.entries is None else "sparse rows"
        return "products", f"one contrast, and few components of many {kind}"
    if task.direct == "span":
        return "span", "more features than rows"
    return "dense", "no more features than rows"


def _products_pay(task: ProblemSize, limits: Limits) -> bool:
    """Return whether a search by products is faster than a matrix."""
    if task.size < limits.iterated or (task.entries is None and task.automatic):
        return False
    if task.entries is not None and task.direct == "span":
        search = limits.wide * (task.n_components + 2) * task.n_features
        return task.n_rows**2 > search and not task.automatic
    return _columns(task, limits) < _columns_of_a_matrix(task, limits)


def _columns(task: ProblemSize, limits: Limits) -> float:
    """Return how many columns a search is expected to multiply.

    An automatic contrast takes twice as many columns as a given contrast. If there are few rows for
    each feature, it takes still more, because the eigenvalues of noise lie close together.
    """
    columns = limits.columns_each * (task.n_components + 2.0)
    if task.automatic:
        noise = (12 + 3 * task.n_components) * task.n_features / task.n_rows
        columns *= 2 * max(1.0, noise)
    return columns


def _columns_of_a_matrix(task: ProblemSize, limits: Limits) -> float:
    """Return the number of columns that a search multiplies in the time that a matrix takes.

    For dense rows, it is half of this number, because a matrix has other advantages: its result is
    proved, it serves further contrasts, and it does not depend on rows that the user may change.
    """
    if task.entries is None:
        together = task.n_components + 2
        return task.size / 4 * together / (together + limits.reading)
    # A search also makes each column orthogonal to all earlier columns, which matters if there are
    # few entries. For each column, this is estimated to cost as much as inner products with a third
    # of all columns that the search multiplies.
    others = limits.columns_each * (task.n_components + 2.0) / 3
    column = task.entries + others * task.n_features
    solved = task.size**4 / (4 * limits.lapack_columns * column)
    return limits.entry_columns * task.entries / task.n_rows + solved
