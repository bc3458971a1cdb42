"""The plan: which form the second moments take, which solver runs, and why.

A plan is a pure function of a few numbers (`Task`), so it can be read, tested and shown. Costs are
compared in one unit, the product of the data with one column. A covariance of dense rows costs half
as many columns as it has features; one of sparse rows some columns for each stored entry of a row.
Where a form without a matrix is planned and a matrix would do too, the iteration may take as many
columns as the matrix costs, and then goes over to it: so a wrong guess at most doubles the time.

Every threshold stands in `Limits`, with its reason, and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    """Where one way begins to cost less than another, as measured on one thread.

    Parameters
    ----------
    matrix : int
        Largest matrix that is formed: it takes 800 MB, and LAPACK minutes.
    one_matrix : int
        Rows and features that both have to be exceeded for one contrast of dense rows, or one fit
        of pairs, to come from products: some passes over the rows then cost less than a covariance.
    sparse_rows : int
        Rows for each component that have to be exceeded for one contrast of wide sparse rows to
        come from products: the Gram matrix grows with the square of the rows, a search with the
        components.
    columns_each : int
        Columns that a search of one contrast multiplies for each component and two more.
    entry_columns : float
        Columns that the covariance of sparse rows costs for each stored entry of a row.
    products : int
        Columns that a search may multiply where no matrix would do.
    iterated : int
        Size of a matrix from which an iteration is faster than LAPACK.
    iterated_each : int
        The size for each component from which it is faster: an iteration's cost grows with the
        components, LAPACK's hardly.
    lapack_columns : int
        Size squared for each column that a matrix is multiplied with while LAPACK solves it.
    path_contrasts : int
        Contrasts from which on one search space serves a whole path: it has to be built first.
    """

    matrix: int = 10_000
    one_matrix: int = 3000
    sparse_rows: int = 500
    columns_each: int = 30
    entry_columns: float = 2.5
    products: int = 5000
    iterated: int = 700
    iterated_each: int = 100
    lapack_columns: int = 10_000
    path_contrasts: int = 8


LIMITS = Limits()


class Task(NamedTuple):
    """The numbers that describe what is to be solved.

    n_rows, n_features : int
        Rows and features of all datasets together.
    n_components : int
        k.
    contrasts : int
        How many are solved from the same moments, as far as that is known.
    automatic : bool
        Whether the contrast has to be found.
    entries : int or None
        Stored entries of sparse rows; None for dense ones.
    in_memory : bool
        Whether the rows can be read again at no cost.
    products : bool
        Whether the method can do with products.
    form, given : Form or None
        Form of the moments that was asked for; form of moments that are there already.
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
        """Size of the smaller matrix: of the features or of the rows' span."""
        return min(self.n_rows, self.n_features)

    @property
    def direct(self) -> Form:
        """The form with the smaller matrix."""
        return "span" if self.n_features > self.n_rows else "dense"


@dataclass(frozen=True)
class Plan:
    """How a task is solved, and why.

    Parameters
    ----------
    form : {"dense", "span", "products"}
        What the covariances are held as: a matrix of the features, a matrix in the span of the
        rows, or the rows themselves.
    fallback : Form or None
        The form to go over to where products are not enough.
    max_products : int
        Columns that may be multiplied.
    reason : str
        Why, in words.
    limits : Limits
        What was decided by.
    """

    form: Form
    fallback: Form | None = None
    max_products: int = 0
    reason: str = ""
    limits: Limits = LIMITS

    def direct(self) -> Plan:
        """Return the plan to go over to where products are not enough."""
        reason = f"{self.reason}, but products do not suffice"
        return Plan(self.fallback or "dense", None, 0, reason, self.limits)

    def iterates(self, size: int, k: int) -> bool:
        """Return whether an iteration is faster than LAPACK for a matrix of this size."""
        return size >= max(self.limits.iterated, self.limits.iterated_each * k)

    def single_budget(self, size: int, k: int) -> float | None:
        """Return the columns that one contrast may multiply; None where LAPACK is faster.

        As many as LAPACK costs.
        """
        return size**2 / self.limits.lapack_columns if self.iterates(size, k) else None

    def automatic_budget(self, size: int, k: int) -> float | None:
        """Return the same for the automatic contrast, which LAPACK solves several times for."""
        if not self.iterates(size, k):
            return None
        return max(2.5 * size**2 / self.limits.lapack_columns, 1.5 * self.limits.columns_each * k)

    def path_budget(self, size: int, k: int, contrasts: int) -> float | None:
        """Return the same for each of several contrasts, to which the space is close already."""
        if contrasts < self.limits.path_contrasts or not self.iterates(size, 2 * k):
            return None
        return 0.4 * size**2 / self.limits.lapack_columns


def make_plan(task: Task, limits: Limits = LIMITS) -> Plan:
    """Return the cheapest way that is exact."""
    form, reason = _form_of(task, limits)
    if form != "products":
        return Plan(form, None, 0, reason, limits)
    if task.form is not None or task.size > limits.matrix:
        return Plan(form, None, limits.products, reason, limits)
    most = int(max(_columns_of_a_matrix(task, limits), _columns(task, limits)))
    return Plan(form, task.direct, most, reason, limits)


def plan_pairs(n_rows: int, n_features: int, limits: Limits = LIMITS) -> Plan:
    """Return the way for positive pairs, both views of which have `n_rows` rows together."""
    return make_plan(Task(n_rows, n_features, 1), limits)


def _form_of(task: Task, limits: Limits) -> tuple[Form, str]:
    if task.given is not None and (task.products or task.given != "products"):
        return task.given, "its moments are given"
    if task.form is not None:
        return task.form, f"solver={NAMES[task.form]!r} was asked for"
    if task.products and task.size > limits.matrix:
        return "products", f"rows and features both exceed {limits.matrix}"
    if task.products and task.contrasts == 1 and task.in_memory:
        if task.entries is not None and _products_pay(task, limits):
            return "products", "few components of many sparse rows"
        if task.size > limits.one_matrix and not task.automatic and task.entries is None:
            return "products", f"one contrast; rows and features both exceed {limits.one_matrix}"
    if task.direct == "span":
        return "span", "more features than rows"
    return "dense", "no more features than rows"


def _products_pay(task: Task, limits: Limits) -> bool:
    """Return whether sparse rows are searched in less time than a matrix takes."""
    if task.direct == "span":
        few_rows = task.n_rows <= limits.sparse_rows * task.n_components
        return not (few_rows or task.automatic)
    if task.n_features < limits.iterated:
        return False
    return _columns(task, limits) < _columns_of_a_matrix(task, limits)


def _columns(task: Task, limits: Limits) -> float:
    """Return how many columns a search is expected to multiply.

    Twice as many where the contrast has to be found, and more where there are few rows for each
    feature: the contrast is then one of noise, whose eigenvalues lie close.
    """
    columns = limits.columns_each * (task.n_components + 2.0)
    if task.automatic:
        noise = (6 + 3 * task.n_components) * task.n_features / task.n_rows
        columns *= 2 * max(1.0, noise)
    return columns


def _columns_of_a_matrix(task: Task, limits: Limits) -> float:
    """Return how many columns the rows are multiplied with while a matrix is made and solved."""
    if task.entries is None:
        return task.size / 2
    # A search also makes each column orthogonal to those before it, which counts where entries are
    # few: a third of its columns on average, and BLAS is as much faster as that is more work.
    others = limits.columns_each * (task.n_components + 2.0) / 3
    column = task.entries + others * task.n_features
    solved = task.size**4 / (4 * limits.lapack_columns * column)
    return limits.entry_columns * task.entries / task.n_rows + solved
