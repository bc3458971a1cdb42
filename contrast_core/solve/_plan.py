"""What form the second moments take and which solver runs: one pure function of numbers.

Every threshold between one way and another stands in `Limits`, and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from contrast_core.linalg import Iteration
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
    """Where one way begins to cost less than another, as measured.

    Parameters
    ----------
    narrow : int
        Features up to which the covariance is cheap, however few the rows.
    one_matrix : int
        Rows or features, whichever are fewer, up to which a matrix is formed for one contrast.
    matrix : int
        The same for a path, and for what else is to be done where an iteration fails.
    pair_features, pair_rows : int
        Features up to which PCA+ and PCA++ form a covariance; rows, a Gram matrix.
    sparse_entries : int
        Stored entries from which on few components of tall sparse data come from products.
    columns, columns_each : int
        How many columns such data are multiplied with, at no component and more for each. Products
        pay where a row has more entries.
    products : int
        Columns that an iteration may multiply where nothing else would do.
    products_first : int
        Columns that it may multiply where a matrix would do too.
    pair_products : (int, int, int)
        Of pairs: features for each column, least and most columns.
    krylov_features, krylov_features_each : int
        Features, in all and for each component, from which on one contrast is iterated.
    krylov_share, krylov_patience : int
        Features for each column of its basis; products after which no gap means that there is none.
    refined_features, refined_features_each : int
        Features, in all and for each component, from which on it goes on without a gap.
    lead_features, lead_features_each : int
        Features from which on cheap steps lead up to the automatic contrast; and for each
        component, from which on these are iterated.
    path_contrasts, path_features, path_features_each : int
        Contrasts, features and features for each component from which on a path is iterated.
    ratio_features : int
        Features from which on a path of ratios is.
    """

    narrow: int = 1500
    one_matrix: int = 5000
    matrix: int = 10_000
    pair_features: int = 3000
    pair_rows: int = 5000
    sparse_entries: int = 2**22
    columns: int = -13
    columns_each: int = 26
    products: int = 5000
    products_first: int = 180
    pair_products: tuple[int, int, int] = (8, 640, 2000)
    krylov_features: int = 1000
    krylov_features_each: int = 200
    krylov_share: int = 8
    krylov_patience: int = 16
    refined_features: int = 2000
    refined_features_each: int = 400
    lead_features: int = 700
    lead_features_each: int = 200
    path_contrasts: int = 8
    path_features: int = 500
    path_features_each: int = 200
    ratio_features: int = 700


LIMITS = Limits()


class Task(NamedTuple):
    """What is to be solved, in numbers.

    n_rows, n_features : int
        Of all datasets together.
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
    form, held : Form or None
        Of the moments: asked for; there already.
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
    held: Form | None = None


@dataclass(frozen=True)
class Plan:
    """How a task is solved, and why.

    Parameters
    ----------
    form : Form
        Of the second moments.
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
    fallback: Form | None
    max_products: int
    reason: str
    limits: Limits = LIMITS

    def direct(self) -> Plan:
        """What to go over to where products are not enough."""
        assert self.fallback is not None
        return Plan(
            self.fallback, None, 0, f"{self.reason}, but products do not suffice", self.limits
        )

    def iteration(self, size: int, k: int) -> Iteration | None:
        """The proved iteration for one matrix of this size; None where LAPACK is faster."""
        at = self.limits
        if size < max(at.krylov_features, at.krylov_features_each * k):
            return None
        refine = size >= max(at.refined_features, at.refined_features_each * k)
        return Iteration(size // at.krylov_share, at.krylov_patience, refine)

    def leads_up(self, size: int, k: int = 0) -> bool:
        """Whether cheap steps lead up to the automatic contrast; with k, whether by iteration."""
        at = self.limits
        return self.form != "products" and size >= max(at.lead_features, at.lead_features_each * k)

    def iterates_path(self, size: int, k: int, contrasts: int) -> bool:
        """Whether a path over so many contrasts of matrices of this size is iterated."""
        at = self.limits
        return contrasts >= at.path_contrasts and size >= max(
            at.path_features, at.path_features_each * k
        )

    def iterates_ratios(self, size: int, k: int, contrasts: int) -> bool:
        """The same for ratios of variances."""
        return size >= self.limits.ratio_features and self.iterates_path(size, k, contrasts)


def make_plan(task: Task, limits: Limits = LIMITS) -> Plan:
    """The cheapest way that is exact."""
    form, reason = _form_of(task, limits)
    if form != "products":
        return Plan(form, None, 0, reason, limits)
    matrix = task.form is None and min(task.n_rows, task.n_features) <= limits.matrix
    if not matrix:
        return Plan(form, None, limits.products, reason, limits)
    direct: Form = "span" if _is_wide(task, limits) else "dense"
    return Plan(form, direct, limits.products_first, reason, limits)


def plan_pairs(n_rows: int, n_features: int, limits: Limits = LIMITS) -> Plan:
    """The way for positive pairs, both views of which have `n_rows` rows together."""
    task = Task(n_rows, n_features, 1)
    wide = _is_wide(task, limits)
    direct: Form = "span" if wide else "dense"
    if n_rows <= limits.pair_rows if wide else n_features <= limits.pair_features:
        return Plan(direct, None, 0, f"a {direct} matrix is small", limits)
    each, least, most = limits.pair_products
    return Plan(
        "products",
        direct if min(n_rows, n_features) <= limits.matrix else None,
        min(max(n_features // each, least), most),
        f"{n_rows} rows and {n_features} features are many for a matrix",
        limits,
    )


def _is_wide(task: Task, limits: Limits) -> bool:
    return task.n_features > max(task.n_rows, limits.narrow)


def _form_of(task: Task, limits: Limits) -> tuple[Form, str]:
    if task.held is not None and (task.products or task.held != "products"):
        return task.held, "its moments are given"
    if task.form is not None:
        return task.form, f"solver={NAMES[task.form]!r} was asked for"
    size = min(task.n_rows, task.n_features)
    wide = _is_wide(task, limits)
    if task.products:
        if size > limits.matrix:
            return "products", f"rows and features both exceed {limits.matrix}"
        if task.contrasts == 1 and task.in_memory:
            one = not task.automatic
            if one and size > limits.one_matrix:
                return (
                    "products",
                    f"one contrast; rows and features both exceed {limits.one_matrix}",
                )
            if one and wide and task.entries is not None:
                return "products", "one contrast of wide sparse rows"
            if one and not wide and _products_pay(task, limits):
                return "products", "few components of tall sparse rows"
    if wide:
        return "span", "more features than rows"
    return "dense", "no more features than rows, or few"


def _products_pay(task: Task, limits: Limits) -> bool:
    """Whether tall sparse rows are multiplied with fewer columns than a row has entries."""
    if task.entries is None or task.entries < limits.sparse_entries:
        return False
    columns = limits.columns + limits.columns_each * task.n_components
    return columns * task.n_rows < task.entries
