"""The Gibbs posterior of contrastive PCA: a matrix Bingham distribution of subspaces."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from contrast_core._posterior import (
    Draws,
    Target,
    contrast_spectrum,
    posterior_moments,
    sample_posterior,
)
from contrast_core._validation import FloatArray, check_number
from contrast_core.linalg import Eigenpairs, aligned
from contrast_core.moments import Moments
from contrast_core.solve import in_form

_LEAST_DEGREES = 30  # fewest degrees of freedom of the Wishart distribution in `_target`


class BinghamPosterior:
    """Mixin with the posterior of the components of `CPCA`."""

    if TYPE_CHECKING:
        alpha_: float
        components_: FloatArray

    def posterior(
        self,
        draws: int = 1000,
        *,
        chains: int = 4,
        learning_rate: float | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> Any:
        r"""Draw components from their Gibbs posterior, which shows how certain they are.

        The columns of V (D, k) are an orthonormal basis of a subspace of the D features. With n
        foreground rows, the covariances :math:`C_X` and :math:`C_Y` of foreground and background,
        the learning rate w and a uniform prior over subspaces, the posterior is

        .. math:: \log \pi(V) = w n \operatorname{tr} V^\top (C_X - \alpha C_Y) V + \text{const},
            \qquad V^\top V = I .

        This is a matrix Bingham distribution, and its mode is the result of cPCA. It depends on the
        data only through the moments of the fit, so the time does not depend on the number of rows.
        The draws are made by the No-U-Turn sampler of nutpie. The extra ``posterior`` installs
        nutpie and ArviZ. For another contrast strength, use ``at(alpha).posterior()``.

        Parameters
        ----------
        draws : int from 10, default=1000
            Number of draws that each chain keeps. The warm-up before them is half as long, but at
            least 400 draws.
        chains : int from 2, default=4
            Number of independent chains.
        learning_rate : float above 0, optional
            The rate w, in units of one over the variance of the data. Let :math:`v_i` be the
            eigenvectors of the contrast and :math:`\lambda_i` its eigenvalues. The default is

            .. math:: w = \frac{\sum_{ij} (\lambda_i - \lambda_j)}{2 \sum_{ij} s_{ij}}, \qquad
                s_{ij} = n \operatorname{var}\bigl(v_i^\top (C_X - \alpha C_Y)\, v_j\bigr) ,

            with i from 1 to k and j above k. The variances :math:`s_{ij}` are computed for normally
            distributed rows. With this rate, components that are drawn from the posterior vary as
            much, on average over i and j, as components that are fitted to independent samples of
            rows. At ``alpha = 0`` and ``k = 1``, the result is the posterior of probabilistic PCA.
            The posterior does not change if both datasets are multiplied by the same number.
        random_state : int, Generator or None, default=None
            Seed of the chains.

        Returns
        -------
        arviz.InferenceData
            The group `posterior` holds two variables for each chain and draw:

            - ``components`` (component, feature) is an orthonormal basis of the drawn subspace. The
              posterior does not determine the basis, so the basis nearest to `components_` is used.
            - ``feature_weights`` (component, feature) are the squares of the components, scaled as
              in the method `feature_weights`.

            `arviz.summary` lists means, intervals and diagnostics, `arviz.hdi` returns the
            intervals as arrays, and `arviz.plot_forest` plots them.

        Raises
        ------
        ImportError
            If nutpie or ArviZ is not installed.
        ValueError
            If alpha is infinite, a parameter is out of range, there are as many components as
            features, or the fit comes from a file without moments. (A fit without a background has
            ``alpha = 0``.)
        TypeError
            If a parameter has the wrong type.

        Warns
        -----
        ContrastWarning
            If R-hat, effective sample sizes or divergences show that the chains have not converged.

        Notes
        -----
        The sampler draws matrices A that have the same span as V, in the coordinates of the
        contrast's eigenvectors. The Gram matrix A^T A follows a Wishart distribution, which does
        not change the distribution of the span. The sampler draws all D coordinates, and a D x D
        matrix is decomposed once, even if there are more features than rows.

        References
        ----------
        Posterior: Li, Jones and Engelhardt, arXiv:2012.07977, 2020, Sec. 5.2 and Theorem 4.
        Sampler: Hoffman and Gelman, "The No-U-Turn Sampler", JMLR 15, 2014.

        Examples
        --------
        >>> from contrast_core import CPCA
        >>> from contrast_core.datasets import make_toy
        >>> toy = make_toy(300, 300)
        >>> cpca = CPCA(1).fit(toy.foreground, background=toy.background)
        >>> found = cpca.posterior(random_state=0)
        >>> found.posterior["components"].mean(["chain", "draw"]).to_numpy().round(1)
        array([[ 0.7, -0.7]])
        """
        x, y = posterior_moments(self)
        given = None
        if learning_rate is not None:
            given = check_number(learning_rate, "learning_rate", above=0)
        k, n_features = self.components_.shape
        if math.isinf(self.alpha_):
            raise ValueError(
                "at alpha=inf there is no posterior, because only the null space of the background "
                "is possible. Use a large finite alpha instead: at(alpha).posterior()."
            )
        if k == n_features:
            raise ValueError(
                f"n_components={k} equals the number of features, {n_features}. There is only one "
                "subspace of this dimension, so there is nothing to draw. Use fewer components."
            )
        wide = x.n_samples + y.n_samples < n_features
        x, y = in_form(x, y, "span" if wide else "dense")
        spectrum = contrast_spectrum(x, y, self.alpha_)
        rate = _sampling_rate(x, y, spectrum, k, self.alpha_) if given is None else given
        exponents = rate * x.n_samples * (spectrum.values - spectrum.values[0])
        towards = self.components_ @ spectrum.components.T

        def variables(found: Draws) -> dict[str, FloatArray]:
            bases = np.swapaxes(np.linalg.qr(found.matrices)[0], -1, -2)
            return {"components": aligned(bases, towards) @ spectrum.components}

        return sample_posterior(
            _target(exponents, k),
            (*_start(exponents, k), np.empty(0)),
            variables,
            draws=draws,
            chains=chains,
            random_state=random_state,
            checked=["components"],
            feature_names=x.feature_names,
            alpha=self.alpha_,
            learning_rate=rate,
        )


def _sampling_rate(x: Moments, y: Moments, spectrum: Eigenpairs, k: int, alpha: float) -> float:
    """Return the default learning rate; directions without any variance are left out."""
    coordinates = x.coordinates_of(spectrum.components)
    leading = coordinates[:k].T
    along_x, along_y = x.variances_along(coordinates), y.variances_along(coordinates)
    across_x, across_y = (coordinates @ part.apply(leading) for part in (x, y))
    total = along_x + along_y
    varies = total > 1e-12 * total.max()
    varies[:k] = False
    gaps = spectrum.values[:k] - spectrum.values[varies][:, None]
    variances = sum(
        weight * (np.outer(along[varies], along[:k]) + across[varies] ** 2)
        for weight, along, across in (
            (1.0, along_x, across_x),
            (alpha**2 * x.n_samples / y.n_samples, along_y, across_y),
        )
    )
    return float(gaps.sum() / (2 * np.sum(variances)))


def _start(exponents: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """Return the mode (D, k) of the density of A, and the scale (D, 1) of random starts around it.

    The scale is about twice the standard deviation of the density.
    """
    start = np.eye(len(exponents), k)
    below = np.maximum(exponents[:k].mean() - exponents, 0.0)
    spread = 2 / np.sqrt(_degrees(len(exponents)) + 2 * below)
    spread[:k] /= 2
    return start, spread[:, None]


def _degrees(n_features: int) -> int:
    return max(n_features, _LEAST_DEGREES)


def _target(exponents: FloatArray, k: int) -> Target:
    r"""Return the log-density of the matrix A that the sampler draws.

    This log-density has two terms: the log-density of the span of A, and the log-density of a
    Wishart distribution of :math:`S = A^\top A`. With K = A' diag(exponents) A, the first term is
    tr S^-1 K. Here `exponents` are the eigenvalues of the contrast times w n, minus the largest of
    these products. The entries of A are normal if the Wishart distribution has D degrees of
    freedom. If there are few features, such an A could come so close to zero that the scales of its
    entries differ widely. The Wishart distribution therefore has at least 30 degrees of freedom.
    """
    n_features = len(exponents)
    scales, degrees = exponents[:, None], _degrees(n_features)
    excess = degrees - n_features
    nothing = np.empty(0)

    def log_density(matrix: FloatArray, _: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        gram = matrix.T @ matrix
        applied = scales * matrix
        squares, turn = np.linalg.eigh(gram)
        squares = np.maximum(squares, 1e-300)
        inverse = (turn / squares) @ turn.T
        explained = inverse @ (matrix.T @ applied)
        value = float(explained.trace()) - 0.5 * degrees * float(gram.trace())
        value += 0.5 * excess * float(np.log(squares).sum())
        gradient = 2 * (applied @ inverse - matrix @ (explained @ inverse))
        gradient += matrix @ (excess * inverse) - degrees * matrix
        return value, gradient, nothing

    return log_density
