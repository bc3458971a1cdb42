"""Kernel cPCA: contrastive PCA in the feature space of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np
from scipy.sparse import issparse, vstack

from contrast_core._base import BackgroundMixin, Embedding, check_not_positional
from contrast_core._strength import StrengthPath
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_choice,
    check_number,
    shown,
)
from contrast_core.feedback import muted
from contrast_core.linalg import fix_signs
from contrast_core.moments import SecondMoments
from contrast_core.rows import Rows, load_into_memory, rows_of
from contrast_core.solve import contrast_rows
from contrast_core.spectral._cpca import CPCA, check_strength, default_alphas
from contrast_core.spectral._kernel_factor import KernelFactor, check_kernel, factorise

Kernel: TypeAlias = (
    Literal[
        "additive_chi2",
        "chi2",
        "cosine",
        "laplacian",
        "linear",
        "poly",
        "polynomial",
        "precomputed",
        "rbf",
        "sigmoid",
    ]
    | Callable[..., float]
)

_KERNELS = get_args(get_args(Kernel)[0])


class KernelCPCA(StrengthPath, BackgroundMixin, Embedding):
    r"""Kernel contrastive PCA, which is contrastive PCA in the feature space of a kernel.

    Let :math:`\phi` be the feature map of the kernel. The components are the top-k eigenvectors of

    .. math:: C(\alpha) = C_{\phi(X)} - \alpha\, C_{\phi(Y)} ,

    where each covariance is taken about the mean of its own dataset in feature space and divided by
    its own number of rows. To this end, the kernel matrix of all N = n + m rows (n in the
    foreground, m in the background) is centred separately in each of its four blocks (foreground
    and background rows by foreground and background columns). It is then factorised once, as
    :math:`K = L L^\top`. The rows of L are the coordinates of the mapped rows in an orthonormal
    basis of their span. In this basis, the contrast is a difference of two ordinary covariances,
    :math:`L^\top B L` with :math:`B = \operatorname{diag}(1/n, \ldots, -\alpha/m, \ldots)`. The
    eigenproblem is solved in this basis for every contrast strength.

    Parameters
    ----------
    n_components : int, default=2
        Number of components, k, from 1 to the rank of the centred kernel (at most N - 2).
    alpha : "auto" or float from 0 to inf, default="auto"
        Contrast strength. "auto" is the rule of `CPCA`, applied in feature space. It works as well
        as the best strength if the variation that both datasets have is about as large as the
        variation between groups, as with radial kernels that are not too narrow. It is too weak if
        the variation that both datasets have dominates the kernel, as with polynomial kernels of
        data with large shared variance. In that case, try several strengths, as in the examples.
    kernel : str or callable, default="rbf"
        Name of a kernel of `sklearn.metrics.pairwise.pairwise_kernels`, a callable of two rows that
        returns a number, or "precomputed". With "precomputed", `X` and `background` are rows of the
        kernel matrix. Each of these rows has the kernel values of one data row with all N data
        rows, foreground first. `transform` then takes the kernel values of new data rows with the N
        data rows of the fit.
    kernel_gamma : float, optional
        Coefficient of the rbf, laplacian, polynomial, sigmoid and chi2 kernels. The default is the
        default of scikit-learn, 1 / n_features (1 for chi2), which suits standardised features.
    degree : float, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=1
        Constant of the polynomial and sigmoid kernels.
    kernel_params : dict, optional
        Further arguments of a callable kernel.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (k, N)
        Coefficients of each component as a linear combination of the mapped rows. A component has
        unit length in feature space: ``a @ K @ a == 1`` with the centred K.
    X_fit_ : ndarray or CSR matrix of shape (N, n_features), or None
        The rows of the fit, foreground first. It is None with a precomputed kernel.
    alpha_, strength_ : float
        The contrast strength used.
    contrastive_eigenvalues_ : ndarray of shape (k,)
        Eigenvalues of the contrast, descending.
    foreground_variance_, background_variance_ : ndarray of shape (k,)
        Variance of foreground and background along each component.
    foreground_moments_, background_moments_ : SecondMoments
        Moments of the mapped rows in the coordinates of L, which `at` and `contrast_path` use.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the data had names.

    Raises
    ------
    ValueError
        On `fit`, if the datasets have different features, or if the kernel matrix is not finite,
        not symmetric or not positive semi-definite. Some sigmoid kernels are not positive
        semi-definite; the message then gives the most negative eigenvalue.

    Warns
    -----
    ContrastWarning
        If components have negative contrast, or the two total variances in feature space differ by
        orders of magnitude.

    See Also
    --------
    CPCA : The linear method. The linear kernel gives the same components of positive contrast.
    contrast_core.contrast_path : Fit a grid of contrasts, and select representative ones.

    Notes
    -----
    Time grows with N cubed, and memory with N squared. Rows cannot be reconstructed from their
    scores, and the method does not denoise, because most points of the feature space are not images
    of rows.

    The appendix of the paper has two misprints in the centring: K_YX stands in the formula for
    K_XY, and K_X stands in the formula for K_Y. The paper's matrix :math:`B K` is not symmetric,
    but has the same non-zero eigenvalues as :math:`L^\top B L`.

    The sign of a component is chosen so that the largest entry of ``dual_coef_ @ X_fit_`` is
    positive. With the linear kernel, this is the sign rule of `CPCA`. With a precomputed kernel,
    the largest entry of ``dual_coef_`` is positive.

    References
    ----------
    Abid, Zhang, Bagaria and Zou, "Contrastive principal component analysis", arXiv:1709.06716,
    Sec. 5 (equation 5) and Appendix E.

    Examples
    --------
    >>> from contrast_core import KernelCPCA, contrast_path
    >>> from contrast_core.datasets import load_mouse_protein
    >>> mice = load_mouse_protein()
    >>> kernel = KernelCPCA().fit(mice.foreground, background=mice.background)
    >>> kernel.transform(mice.foreground).shape
    (270, 2)

    A path of contrasts, and the estimators at the contrast strengths that represent the path, use
    the same factorisation:

    >>> mapped = kernel.foreground_moments_, kernel.background_moments_
    >>> path = contrast_path(mapped[0], background=mapped[1], alphas=[0, 1, 10, 100])
    >>> estimators = [kernel.at(alpha) for alpha in path.representative_alphas]
    >>> len(estimators)
    3
    """

    _strength = "alpha"
    _of_moments = (*Embedding._of_moments, "_factor")

    dual_coef_: FloatArray
    X_fit_: Any
    alpha_: float
    contrastive_eigenvalues_: FloatArray
    foreground_variance_: FloatArray
    background_variance_: FloatArray
    foreground_moments_: SecondMoments
    background_moments_: SecondMoments

    def __init__(
        self,
        n_components: int = 2,
        *,
        alpha: float | Literal["auto"] = "auto",
        kernel: Kernel = "rbf",
        kernel_gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.kernel = kernel
        self.kernel_gamma = kernel_gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params

    def fit(self, X: MatrixLike, y: object = None, *, background: Any = None) -> Self:
        """Fit from foreground and background rows.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n, n_features)
            Foreground.
        y : ignored
        background : array-like, DataFrame or sparse matrix of shape (m, n_features)
            Background, with the same features in the same order.

        Returns
        -------
        Self

        Raises
        ------
        ValueError
            If the features differ, a dataset has fewer than two rows or is not finite, the kernel
            is indefinite, or a parameter is out of range.
        TypeError
            If moments are given (a kernel needs rows), or a parameter has the wrong type.
        """
        if background is None:
            check_not_positional(X, y)
        check_strength(self.alpha, ["auto"])
        self._kernel_arguments()
        datasets = tuple(map(load_into_memory, contrast_rows(X, background)))
        rows = _stack(*datasets, dense=self.kernel == "precomputed")
        n = datasets[0].shape[0]
        kernel = self._kernel(rows, rows)
        check_kernel(kernel)
        coordinates, pivots = factorise(kernel, n)
        return self._fit_mapped(
            SecondMoments.from_data(coordinates[:n]),
            SecondMoments.from_data(coordinates[n:]),
            KernelFactor(coordinates[pivots], pivots, n, kernel[:n].mean(axis=0)),
            feature_names=datasets[0].names,
            X_fit_=None if self.kernel == "precomputed" else rows,
            n_features_in_=rows.shape[1],
        )

    def _default_strengths(self) -> FloatArray:
        return default_alphas()

    def _fit_one(self, other: Self) -> Self:
        return other._fit_mapped(
            self.foreground_moments_, self.background_moments_, self._factor, **self._fitted_rows()
        )

    def _fit_each(self, others: list[Self]) -> list[Self]:
        strengths = [check_strength(other.alpha, ["auto"]) for other in others]
        with muted():  # alpha = 0 need not be in the path, so its warnings are not shown
            linear = CPCA(self._n_features_out, alpha=0.0).fit(
                self.foreground_moments_, background=self.background_moments_
            )
        return [
            self._with_strength(each.alpha)._set_components(
                each, self._factor, **self._fitted_rows()
            )
            for each in linear.path(strengths)
        ]

    def _fitted_rows(self) -> dict[str, Any]:
        """Return the fitted attributes that do not depend on the strength."""
        names = getattr(self, "feature_names_in_", None)
        return {
            "feature_names": None if names is None else tuple(names),
            "X_fit_": self.X_fit_,
            "n_features_in_": self.n_features_in_,
        }

    def transform(self, X: MatrixLike) -> FloatArray:
        """Return the scores of rows on the components.

        Every row is centred by the foreground mean in feature space, so that foreground and
        background can be plotted together.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, stored dataset, dask array or torch tensor of \
                shape (l, n_features)
            The rows, which are read in blocks. With a precomputed kernel, X has one column for each
            row of the fit: the kernel value of the new row and this row.

        Returns
        -------
        ndarray of shape (l, n_components)
            The scores. If X is a dask array, they are a dask array that is not computed yet.

        Raises
        ------
        ValueError
            If the features are not those of the fit, or a value is NaN or infinite.
        """
        rows = self._rows(X)
        if rows.device is not None:
            rows = rows_of(rows.load(), rows.name)
        # Blocks are made smaller, so that the kernel matrix between a block and the rows of the fit
        # has no more elements than a block of rows usually has.
        (k, n_fit), width = self.dual_coef_.shape, rows.shape[1]
        rows = rows.replace(elements=max(1, rows.elements * width // max(width, n_fit)))
        scores: FloatArray = rows.map(self._scores, k, dense=self.kernel == "precomputed")
        return scores

    def _scores(self, rows: Any) -> FloatArray:
        kernel = self._kernel(rows.astype(np.float64, copy=False), self.X_fit_)
        return np.asarray((kernel - self._foreground_mean) @ self.dual_coef_.T)

    @property
    def _n_features_out(self) -> int:
        return len(self.dual_coef_)

    def _kernel(self, rows: Any, others: Any) -> FloatArray:
        if self.kernel == "precomputed":
            return np.asarray(rows)
        from sklearn.metrics.pairwise import pairwise_kernels

        if callable(self.kernel):
            self._check_callable(self.kernel, rows)
        with np.errstate(over="ignore", invalid="ignore"):  # an infinite kernel is refused later
            kernel = pairwise_kernels(
                rows, others, metric=self.kernel, filter_params=True, **self._kernel_arguments()
            )
        return np.asarray(kernel, dtype=np.float64)

    def _check_callable(self, kernel: Callable[..., Any], rows: Any) -> None:
        """Raise TypeError unless the callable returns a number for two rows."""
        row = rows[:1].toarray()[0] if issparse(rows) else rows[0]
        value = kernel(row, row, **self._kernel_arguments())
        if np.ndim(value) or not isinstance(np.asarray(value).item(), int | float):
            raise TypeError(
                f"kernel={shown(kernel)} returned {shown(value)} for two rows; expected a "
                "function of two rows of shape (n_features,) each that returns a real number."
            )

    def _kernel_arguments(self) -> dict[str, Any]:
        """Check all parameters of kernels, and return the arguments for the kernel in use."""
        if not callable(self.kernel):
            check_choice(self.kernel, "kernel", _KERNELS, "a callable")
        if not isinstance(self.kernel_params, Mapping | None):
            raise TypeError(
                f"kernel_params={shown(self.kernel_params)} is {type(self.kernel_params).__name__};"
                " expected a dict of arguments for a callable kernel, or None."
            )
        params = {
            "degree": check_number(self.degree, "degree", above=0),
            "coef0": check_number(self.coef0, "coef0"),
        }
        if self.kernel_gamma is not None:  # chi2_kernel refuses None
            params["gamma"] = check_number(self.kernel_gamma, "kernel_gamma", above=0)
        return dict(self.kernel_params or {}) if callable(self.kernel) else params

    def _fit_mapped(
        self,
        foreground: SecondMoments,
        background: SecondMoments,
        factor: KernelFactor,
        **seen: Any,
    ) -> Self:
        """Fit contrastive PCA in the coordinates of L."""
        check_strength(self.alpha, ["auto"])
        linear = CPCA(self.n_components, alpha=self.alpha).fit(foreground, background=background)
        return self._set_components(linear, factor, **seen)

    def _set_components(self, linear: CPCA, factor: KernelFactor, **seen: Any) -> Self:
        """Set the dual coefficients of components that were found in the coordinates of L."""
        dual = factor.dual(linear.components_)
        rows = seen["X_fit_"]
        loadings = dual if rows is None else np.asarray((rows.T @ dual.T).T)
        flipped = (fix_signs(loadings) * loadings).sum(axis=1) < 0
        return self._set_fitted(
            dual_coef_=np.where(flipped[:, None], -dual, dual),
            alpha_=linear.alpha_,
            contrastive_eigenvalues_=linear.contrastive_eigenvalues_,
            foreground_variance_=linear.foreground_variance_,
            background_variance_=linear.background_variance_,
            foreground_moments_=linear.foreground_moments_,
            background_moments_=linear.background_moments_,
            _factor=factor,
            _foreground_mean=factor.foreground_mean,
            **seen,
        )


def _stack(foreground: Rows, background: Rows, *, dense: bool) -> Any:
    """Stack all rows in double precision, foreground first; sparse rows give a CSR matrix."""
    parts = [foreground.load(), background.load()]
    if not (foreground.is_sparse or background.is_sparse):
        return np.vstack(parts).astype(np.float64, copy=False)
    stacked = vstack(parts, format="csr", dtype=np.float64)
    return stacked.toarray() if dense else stacked
