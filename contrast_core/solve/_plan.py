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
    sparse_span : int
        Rows up to which one contrast of wide sparse data comes from the span of the rows: beyond,
        their Gram matrix costs more than products with a few columns.
    one_matrix : int
        Rows or features, whichever are fewer, up to which a matrix is formed for one contrast.
    matrix : int
        The same for a path, and for what else is to be done where an iteration fails.
    pair_features, pair_rows : int
        Features up to which PCA+ and PCA++ form a covariance; rows, a Gram matrix.
    sparse_entries, sparse_features : int
        Stored entries or features from which on few components of tall sparse data come from
        products.
    columns, columns_each : int
        How many columns such data are multiplied with for one contrast, at no component and more
        for each. Products pay where a matrix costs more.
    automatic_columns, automatic_columns_each : int
        The same where the contrast has to be found too.
    automatic_rows, automatic_rows_each : int
        Rows for each feature, at no component and more for each, from which on that holds: of fewer
        rows the contrast is higher, its eigenvalues lie closer, and it takes more columns.
    made_columns : float
        For how many columns moments are summed up, for each entry of a row.
    compiled_share : float
        What part of it, where machine code does that.
    solved_share : int
        How many features cubed cost as much, solved as a matrix, as one product of an entry.
    products : int
        Columns that an iteration may multiply where nothing else would do.
    products_first : int
        Columns that it may multiply where a matrix would do too.
    search_share : float
        How many times the columns expected a search for the contrast may multiply there: what is
        spent in vain is to be less than what the matrix then takes.
    pair_products : (int, int, int)
        Of pairs: features for each column, least and most columns.
    single_features, single_features_each : int
        Features, in all and for each component, from which on one contrast is iterated.
    single_columns : int
        Features squared for each column that this may multiply.
    refined_features, refined_features_each : int
        Features, in all and for each component, from which on it goes on without a gap.
    lead_features, lead_features_each : int
        Features from which on cheap steps lead up to the automatic contrast; and for each
        component, from which on these are one iteration.
    lead_columns, lead_columns_each : int
        Features squared for each column that this may multiply; columns for each component that it
        may multiply in any case.
    relabelled_features : int
        Features from which on relabelled contrasts are searched for near the given one, and where
        groups are relabelled in single precision.
    relabelled_columns : int
        Features for each column that this may multiply.
    path_contrasts, path_features, path_features_each : int
        Contrasts, features and features for each component from which on a path is iterated.
    path_columns : int
        Features squared for each column that it may multiply for each contrast: three quarters of
        LAPACK's time.
    ratio_features : int
        Features from which on a path of ratios is.
    ratio_columns : int
        Features squared for each column that it may multiply for each ratio.
    """

    sparse_span: int = 3000
    one_matrix: int = 5000
    matrix: int = 10_000
    pair_features: int = 3000
    pair_rows: int = 5000
    sparse_entries: int = 2**22
    sparse_features: int = 1000
    columns: int = 60
    columns_each: int = 20
    automatic_columns: int = 170
    automatic_columns_each: int = 46
    automatic_rows: int = 4
    automatic_rows_each: int = 2
    made_columns: float = 3.5
    compiled_share: float = 0.65
    solved_share: int = 5
    products: int = 5000
    products_first: int = 360
    search_share: float = 1.25
    pair_products: tuple[int, int, int] = (8, 640, 2000)
    single_features: int = 1000
    single_features_each: int = 200
    single_columns: int = 10_000
    refined_features: int = 2000
    refined_features_each: int = 400
    lead_features: int = 700
    lead_features_each: int = 50
    lead_columns: int = 4000
    lead_columns_each: int = 45
    relabelled_features: int = 700
    relabelled_columns: int = 4
    path_contrasts: int = 8
    path_features: int = 500
    path_features_each: int = 200
    path_columns: int = 25_000
    ratio_features: int = 700
    ratio_columns: int = 16_000


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
    compiled : bool
        Whether machine code sums up their moments.
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
    compiled: bool = False
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
        if size < max(at.single_features, at.single_features_each * k):
            return None
        refine = size >= max(at.refined_features, at.refined_features_each * k)
        return Iteration(size**2 / at.single_columns, refine)

    def leads_up(self, size: int) -> bool:
        """Whether cheap steps lead up to the automatic contrast."""
        return size >= self.limits.lead_features

    def lead_budget(self, size: int, k: int) -> float | None:
        """Columns that these may multiply; None where single precision is faster."""
        at = self.limits
        if size < at.lead_features_each * k:
            return None
        return max(size**2 / at.lead_columns, at.lead_columns_each * k)

    def nearby_budget(self, size: int) -> float | None:
        """Columns for a contrast near one that is known; None where LAPACK is faster."""
        at = self.limits
        return size / at.relabelled_columns if size >= at.relabelled_features else None

    def path_budget(self, size: int, k: int, contrasts: int) -> float | None:
        """Columns for each of so many contrasts of matrices of this size; None: LAPACK only."""
        at = self.limits
        if contrasts < at.path_contrasts or size < max(at.path_features, at.path_features_each * k):
            return None
        return size**2 / at.path_columns

    def ratio_iteration(self, size: int, k: int, contrasts: int) -> Iteration | None:
        """The iteration for each of so many ratios of variances; None where LAPACK is faster."""
        if size < self.limits.ratio_features or self.path_budget(size, k, contrasts) is None:
            return None
        return Iteration(size**2 / self.limits.ratio_columns, True)


def make_plan(task: Task, limits: Limits = LIMITS) -> Plan:
    """The cheapest way that is exact."""
    form, reason = _form_of(task, limits)
    if form != "products":
        return Plan(form, None, 0, reason, limits)
    matrix = task.form is None and min(task.n_rows, task.n_features) <= limits.matrix
    if not matrix:
        return Plan(form, None, limits.products, reason, limits)
    direct: Form = "span" if _is_wide(task) else "dense"
    most = limits.products_first
    if task.automatic:
        most = max(most, int(limits.search_share * _columns(task, limits)))
    elif task.entries is not None and direct == "dense":
        most = max(most, int(_columns_of_a_matrix(task, limits) / 2))
    return Plan(form, direct, most, reason, limits)


def plan_pairs(n_rows: int, n_features: int, limits: Limits = LIMITS) -> Plan:
    """The way for positive pairs, both views of which have `n_rows` rows together."""
    task = Task(n_rows, n_features, 1)
    wide = _is_wide(task)
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


def _is_wide(task: Task) -> bool:
    """Whether the rows of all datasets span fewer dimensions than there are features."""
    return task.n_features > task.n_rows


def _form_of(task: Task, limits: Limits) -> tuple[Form, str]:
    if task.held is not None and (task.products or task.held != "products"):
        return task.held, "its moments are given"
    if task.form is not None:
        return task.form, f"solver={NAMES[task.form]!r} was asked for"
    size = min(task.n_rows, task.n_features)
    wide = _is_wide(task)
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
            if one and wide and task.entries is not None and task.n_rows > limits.sparse_span:
                return "products", "one contrast of many wide sparse rows"
            if not wide and _products_pay(task, limits):
                return "products", "few components of tall sparse rows"
    if wide:
        return "span", "more features than rows"
    return "dense", "no more features than rows"


def _products_pay(task: Task, limits: Limits) -> bool:
    """Whether tall sparse rows are multiplied with few columns for what a matrix costs."""
    if task.entries is None:
        return False
    if task.n_features < limits.sparse_features and task.entries < limits.sparse_entries:
        return False
    least = limits.automatic_rows + limits.automatic_rows_each * task.n_components
    if task.automatic and task.n_rows < least * task.n_features:
        return False
    return _columns(task, limits) < _columns_of_a_matrix(task, limits)


def _columns_of_a_matrix(task: Task, limits: Limits) -> float:
    """How many columns sparse rows are multiplied with while a matrix is made and solved."""
    assert task.entries is not None
    made = limits.made_columns * task.entries / task.n_rows
    solved = task.n_features**3 / (limits.solved_share * max(task.entries, 1))
    return made * (limits.compiled_share if task.compiled else 1.0) + solved


def _columns(task: Task, limits: Limits) -> int:
    if task.automatic:
        return limits.automatic_columns + limits.automatic_columns_each * task.n_components
    return limits.columns + limits.columns_each * task.n_components
