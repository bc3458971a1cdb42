"""Sparse principal components of a positive semidefinite matrix C, from its eigendecomposition.

Problem: find components that have few non-zero loadings and explain as much variance as they can.
They minimise the error of a regression with an elastic-net penalty (Zou, Hastie and Tibshirani,
Journal of Computational and Graphical Statistics 15:265, 2006). Two steps alternate. With fixed
components A, each column of the sparse loadings B is the solution of an elastic net. With fixed
loadings B, the best A is the polar factor of C B, which is the nearest matrix with orthonormal
columns. Every step lowers the objective. The problem is not convex, so the result is a stationary
point.

In this file, the *level* of an elastic net is the weight of its L1 norm. The public parameter
`penalty` is a level divided by the level that leaves no feature.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray

_EPS = float(np.finfo(np.float64).eps)
_MAX_STEPS = 3000  # tens of steps suffice unless variances of components are nearly equal
_LAST_FEATURE = 1 - 1e-3  # largest level, as a share of the level that removes the last feature
# Largest number of steps of least angle regression, per feature to select. At each step, a feature
# enters the selection, leaves it, or is ruled out.
_MOST_EVENTS = 8
_TIED = 1e-9  # largest relative difference of two levels that counts as rounding


class SparseComponents(NamedTuple):
    """Result of `sparse_components`.

    components : ndarray of shape (k, D)
        Rows of unit length.
    penalties : ndarray of shape (k,)
        Levels divided by the level that leaves no feature, as in the parameter `penalty`.
    converged : bool
        Whether the last step changed the components by no more than rounding.
    """

    components: FloatArray
    penalties: FloatArray
    converged: bool


def sparse_components(
    values: FloatArray,
    vectors: FloatArray,
    k: int,
    *,
    ridge: float,
    penalty: float = 0.0,
    count: int | None = None,
) -> SparseComponents:
    r"""Return elastic-net sparse principal components of :math:`C = \sum_i \lambda_i v_i v_i^\top`.

    .. math:: \min_{A, B} \sum_j (a_j - b_j)^\top C (a_j - b_j) + \rho\lambda_1 \|b_j\|^2
        + 2 t_j \|b_j\|_1, \qquad A^\top A = I,

    The iteration begins with the leading eigenvectors. It alternates between B, whose columns solve
    one elastic net each, and A, the polar factor of C B. This is the method of Zou, Hastie and
    Tibshirani (2006), with a square root of C in the place of the data.

    Parameters
    ----------
    values, vectors : ndarray of shape (r,) and (r, D)
        Positive eigenvalues, descending, and their eigenvectors as rows; r at least k.
    k : int
        Number of components.
    ridge : float
        The ridge rho, above 0.
    penalty : float from 0 to below 1
        The level :math:`t_j` as a share of :math:`\max_d |C v_j|_d`, which is the level that leaves
        no feature.
    count : int, optional
        Number of non-zero entries of each component. It replaces the penalty: least angle
        regression lowers the level until one more feature than `count` would enter.
    """
    if (not penalty and count is None) or count == vectors.shape[1]:
        return SparseComponents(vectors[:k].copy(), np.zeros(k), True)
    root = np.asfortranarray(np.sqrt(values)[:, None] * vectors)
    matrix = _Matrix(root, ridge * float(values[0]), {})
    largest = values[:k] * np.abs(vectors[:k]).max(axis=1)
    nets = [_ElasticNet(matrix, penalty * each, count) for each in largest]
    ortho = units = vectors[:k].T
    # Rounding errors change the components by this much from one step to the next.
    tolerance = 1e-12 + 64 * _EPS / ridge
    for step in range(_MAX_STEPS):
        sparse = np.column_stack([net.solve(a) for net, a in zip(nets, ortho.T, strict=True)])
        before, units = units, sparse / np.linalg.norm(sparse, axis=0)
        settled = bool(step and np.abs(units - before).max() <= tolerance)
        if settled:
            break
        left, _, right = np.linalg.svd(matrix.product(sparse), full_matrices=False)
        ortho = left @ right
    levels = np.array([net.level for net in nets])
    return SparseComponents(units.T, levels / largest, settled)


class _Matrix(NamedTuple):
    """Matrix ``C = R^T R`` with R (r, D), the elastic net's ridge, and a cache of its columns.

    The cache holds columns of C plus the ridge on the diagonal.
    """

    root: FloatArray
    ridge: float
    columns: dict[int, FloatArray]

    def product(self, columns: FloatArray) -> FloatArray:
        """Return C times columns (D,) or (D, b)."""
        return np.asarray(self.root.T @ (self.root @ columns))

    def column(self, feature: int) -> FloatArray:
        """Return a column of C plus the ridge, from the cache if it was needed before."""
        if feature not in self.columns:
            column = self.root.T @ self.root[:, feature]
            column[feature] += self.ridge
            self.columns[feature] = column
        return self.columns[feature]


class _Support:
    """Features whose coefficients in an elastic net are not zero, and the coefficients' signs.

    Given the features and the signs, the coefficients solve a linear system.
    """

    def __init__(self, matrix: _Matrix, coefficients: FloatArray) -> None:
        self.matrix, self.kept = matrix, np.flatnonzero(coefficients)
        self.signs = np.sign(coefficients[self.kept])
        self.root = matrix.root[:, self.kept]
        # The root has r rows. If the support has more than r features, an r x r matrix is
        # factorised instead of the larger matrix of the features (Woodbury identity).
        self.has_few_features = self.kept.size <= len(self.root)
        inner = self.root.T @ self.root if self.has_few_features else self.root @ self.root.T
        inner.flat[:: len(inner) + 1] += matrix.ridge
        self.factor = scipy.linalg.cho_factor(inner, overwrite_a=True, check_finite=False)

    def matches(self, coefficients: FloatArray) -> bool:
        """Return whether these coefficients have the same non-zero features and signs."""
        kept = np.flatnonzero(coefficients)
        return np.array_equal(kept, self.kept) and bool(
            (np.sign(coefficients[kept]) == self.signs).all()
        )

    def values(self, right: FloatArray) -> FloatArray:
        """Solve ``(C + ridge I) b = right`` for the features of the support, in their order."""
        if self.has_few_features:
            return np.asarray(scipy.linalg.cho_solve(self.factor, right, check_finite=False))
        inner = scipy.linalg.cho_solve(self.factor, self.root @ right, check_finite=False)
        return np.asarray((right - self.root.T @ inner) / self.matrix.ridge)

    def spread(self, values: FloatArray) -> FloatArray:
        """Return coefficients of all features (D,): the values on the support, 0 elsewhere."""
        whole = np.zeros(self.matrix.root.shape[1])
        whole[self.kept] = values
        return whole

    def at_level(self, correlations: FloatArray, level: float) -> FloatArray | None:
        """Return the elastic net's coefficients (D,) at this level; None if a sign changes."""
        values = self.values(correlations[self.kept] - level * self.signs)
        return None if (np.sign(values) != self.signs).any() else self.spread(values)

    def next_level(self, correlations: FloatArray) -> float:
        """Return the level at which the next feature enters as the level falls.

        The value is right only if no feature leaves before.
        """
        at_zero = self.values(correlations[self.kept])
        slope = self.values(self.signs)  # values are at_zero - level * slope
        outside = np.ones(len(correlations), dtype=bool)
        outside[self.kept] = False
        rest = (correlations - self.matrix.root.T @ (self.root @ at_zero))[outside]
        growth = (self.matrix.root.T @ (self.root @ slope))[outside]
        with np.errstate(divide="ignore", invalid="ignore"):
            crossings = np.stack([rest / (1 - growth), -rest / (1 + growth)])
        return float(crossings[np.isfinite(crossings)].max(initial=0.0))


class _ElasticNet:
    """Solver of one elastic net for one vector `a` after another.

    The solution b minimises ``(a - b)'C(a - b) + ridge b'b + 2 level |b|_1``. As long as the
    non-zero features and their signs do not change, b solves a linear system. Otherwise,
    scikit-learn's coordinate descent finds the new features and signs for a given level, and least
    angle regression finds them for a given count. In the methods, `correlations` stands for the
    product C a.
    """

    def __init__(self, matrix: _Matrix, level: float, count: int | None) -> None:
        self.matrix, self.given_level, self.count = matrix, level, count
        self.level = level
        self.support: _Support | None = None

    def solve(self, target: FloatArray) -> FloatArray:
        """Return the coefficients b (D,) for the vector a, here called `target`."""
        correlations = self.matrix.product(target)
        self.level = min(self.given_level, _LAST_FEATURE * float(np.abs(correlations).max()))
        again = self._on_support(correlations)
        if again is not None and self._is_optimal(correlations, again):
            return again
        if self.count is not None:
            coefficients, self.level = _least_angle(correlations, self.matrix, self.count)
            self._keep(coefficients)
            return coefficients
        coefficients = self._by_descent(target, correlations)
        self._keep(coefficients)
        exact = self._on_support(correlations)
        return coefficients if exact is None else exact

    def _keep(self, coefficients: FloatArray) -> None:
        """Remember the non-zero features and signs of a solution."""
        if self.support is None or not self.support.matches(coefficients):
            self.support = _Support(self.matrix, coefficients)

    def _on_support(self, correlations: FloatArray) -> FloatArray | None:
        """Return the solution with the remembered features and signs, or None if there is none."""
        if self.support is None:
            return None
        if self.count is not None:
            self.level = self.support.next_level(correlations)
        return self.support.at_level(correlations, self.level)

    def _is_optimal(self, correlations: FloatArray, coefficients: FloatArray) -> bool:
        """Return whether no other feature would enter."""
        outside = coefficients == 0
        rest = np.abs(correlations[outside] - self.matrix.product(coefficients)[outside])
        return bool(rest.max(initial=0.0) <= self.level * (1 + 1e-9))

    def _by_descent(self, target: FloatArray, correlations: FloatArray) -> FloatArray:
        """Return the solution at the present level, by coordinate descent."""
        # This import takes longer than importing this whole package, so it is made only if needed.
        from sklearn.linear_model import enet_path

        root, ridge = self.matrix.root, self.matrix.ridge
        start = np.zeros(len(target))
        if self.support is not None:
            start = self.support.spread(self.support.signs * 1e-6)
        _, path, _ = enet_path(
            root,
            root @ target,
            alphas=[(self.level + ridge) / len(root)],
            l1_ratio=self.level / (self.level + ridge),
            precompute=False,
            Xy=correlations,
            coef_init=start,
            tol=1e-12,
            max_iter=10_000,
            check_input=False,
            random_state=0,  # without a seed, NumPy's global random state would advance
        )
        return np.asarray(path[:, 0])


def _least_angle(correlations: FloatArray, matrix: _Matrix, count: int) -> tuple[FloatArray, float]:
    """Return an elastic net's coefficients (D,) of which `count` are not zero, and their level.

    Least angle regression lowers the level L from the largest correlation. While no feature enters
    or leaves, the coefficients of the selected features are ``inverse (c - L signs)``, with their
    correlations c and the inverse of ``C + ridge I`` on these features. When a feature enters or
    leaves, the inverse is updated. Many levels may give `count` features. The function returns the
    smallest of them, just before one more feature enters. A feature that would enter together with
    the last one, such as a copy of it, is left out. (scikit-learn's own path is not used here,
    because it warns about such features, and a warning can only be silenced for the whole process.)

    References
    ----------
    Efron, Hastie, Johnstone and Tibshirani, "Least angle regression", Annals of Statistics 32(2),
    2004.
    """
    inside: list[int] = []
    left_out = np.zeros(len(correlations), dtype=bool)
    signs, inverse, level = np.empty(0), np.empty((0, 0)), np.inf
    # Columns of C plus the ridge, for the features `inside`.
    columns = np.empty((len(correlations), count), order="F")
    at_zero = slope = np.empty(0)
    just_left = -1
    for _ in range(_MOST_EVENTS * (count + 1)):
        both = inverse @ np.column_stack([correlations[inside], signs])
        at_zero, slope = both.T
        rest, growth = (columns[:, : len(inside)] @ both).T
        rest = correlations - rest
        # Levels at which features enter, with sign + and -.
        enters = np.zeros((2, len(correlations)))
        for row, sign in zip(enters, (1, -1), strict=True):
            np.divide(sign * rest, 1 - sign * growth, out=row, where=sign * growth < 1)
        enters[:, left_out] = enters[:, inside] = 0.0
        if just_left >= 0:
            enters[:, just_left] = 0.0
        leaves = np.zeros(len(inside))
        np.divide(at_zero, slope, out=leaves, where=signs * slope < 0)
        new = int(enters.max(axis=0).argmax())
        entering, leaving = enters[:, new].max(), leaves.max(initial=0.0)
        if leaving > entering:
            gone, level = int(leaves.argmax()), leaving
            kept = np.arange(len(inside)) != gone
            column = inverse[kept, gone]
            inverse = inverse[np.ix_(kept, kept)] - np.outer(column, column) / inverse[gone, gone]
            columns[:, gone : len(inside) - 1] = columns[:, gone + 1 : len(inside)]
            signs, just_left = signs[kept], inside.pop(gone)
        elif len(inside) == count and entering > level * (1 - _TIED):
            left_out[new] = True
        elif len(inside) == count or entering <= 0:
            level = entering
            break
        else:
            added = matrix.column(new)
            column = inverse @ added[inside]
            schur = float(added[new] - added[inside] @ column)  # Schur complement
            edge = np.append(-column, 1.0)
            inverse = np.pad(inverse, (0, 1)) + np.outer(edge, edge) / schur
            signs = np.append(signs, 1.0 if enters[0, new] >= enters[1, new] else -1.0)
            columns[:, len(inside)] = added
            inside.append(new)
            level, just_left = entering, -1
    coefficients = np.zeros(len(correlations))
    coefficients[inside] = at_zero - level * slope
    return coefficients, level
