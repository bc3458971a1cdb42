"""The Gibbs posterior of probabilistic contrastive PCA, from moments."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from contrast_core._posterior import (
    Draws,
    Target,
    contrast_spectrum,
    posterior_moments,
    sample_posterior,
)
from contrast_core._validation import FloatArray, check_number
from contrast_core.feedback import warn
from contrast_core.linalg import Eigenpairs, aligned
from contrast_core.moments import Moments
from contrast_core.probabilistic._row_posterior import Model, expected_by_covariance
from contrast_core.solve import plan_for, solve_contrasts

_FLOOR = 0.01  # default noise floor, as a share of the noise variance at gamma = 0


class GibbsPosterior:
    """Posterior sampling for `PCPCA`."""

    if TYPE_CHECKING:
        gamma_: float
        components_: FloatArray

    def posterior(
        self,
        draws: int = 1000,
        *,
        chains: int = 4,
        gamma: float | None = None,
        learning_rate: float = 1.0,
        noise_floor: float | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> Any:
        r"""Draw loadings and noise variance from the Gibbs posterior, to see their uncertainty.

        With :math:`A = W W^\top + \sigma^2 I`, n foreground rows and a flat prior, the density is

        .. math:: \log \pi(W, \sigma^2) = -\frac{w n}{2} \left[ (1 - \gamma) \log |A|
            + \operatorname{tr} A^{-1} C(\gamma) \right] + \text{const}, \qquad
            \sigma^2 \ge \sigma_0^2 ,

        where :math:`C(\gamma) = C_X - \gamma C_Y` is the difference of the covariances of
        foreground and background, w is `learning_rate` and :math:`\sigma_0^2` is `noise_floor`. The
        closed-form solution of the fit maximises this density. At ``gamma = 0`` and
        ``learning_rate = 1`` the density is the posterior of probabilistic PCA. The density is
        computed from the moments of the fit, so the time does not depend on the number of rows. The
        No-U-Turn sampler of nutpie draws from it. The extra ``posterior`` of the package installs
        nutpie and ArviZ.

        Parameters
        ----------
        draws : int from 10, default=1000
            Number of draws that each chain keeps. The warm-up before them takes half as many draws,
            but at least 400.
        chains : int from 2, default=4
            Number of independent chains.
        gamma : float from 0 to below 1, optional
            Contrast strength, by default the strength of the fit. The posterior also exists above
            `gamma_max_`, where the closed form does not exist.
        learning_rate : float above 0, default=1.0
            The factor w, by which the log-density is multiplied. If the rows have weights, n is
            their total weight, so that a row of weight 2 counts as two equal rows. If your weights
            have another meaning, choose w such that w n is the effective number of rows.
        noise_floor : float above 0, optional
            :math:`\sigma_0^2`, in the units of the data's variances; by default a hundredth of the
            noise variance at ``gamma = 0``.
        random_state : int, Generator or None, default=None
            Seed of the chains.

        Returns
        -------
        arviz.InferenceData
            Its group `posterior` holds these variables for each chain and draw:

            - ``loadings`` (feature, component): W, rotated as near as possible to the closed form.
            - ``noise_variance``: sigma^2.
            - ``components`` (component, feature): the orthonormal basis of W's span that is nearest
              to the components of the closed form.
            - ``feature_weights`` (component, feature): the squared components, scaled as by the
              function `feature_weights`.

            The model does not determine the rotation of W, and none of these variables depends on
            the rotation of a draw. `arviz.summary` lists means, intervals and diagnostics,
            `arviz.hdi` returns the intervals as arrays, and `arviz.plot_forest` draws them.

        Raises
        ------
        ImportError
            If nutpie or ArviZ is not installed.
        ValueError
            If the posterior is not proper, because ``w n (1 - gamma)`` is not above ``D + d - 1``
            for D features and d components; if a parameter is out of range; or if the fit has no
            moments, because its data were incomplete or because it was loaded from a file without
            them.
        TypeError
            If a parameter has the wrong type.

        Warns
        -----
        ContrastWarning
            If the closed form's noise variance is not above the floor, so that the posterior
            concentrates at the floor; or if R-hat, effective sample sizes or divergences show that
            the chains have not converged.

        Notes
        -----
        A Gibbs posterior expresses the uncertainty of the minimiser of a loss. It is not the
        posterior of a probability model of both datasets. At ``gamma > 0`` no choice of w gives
        its intervals the nominal coverage.
        `contrast_core.bootstrap_stability` measures how the result varies with the rows.

        W is drawn as a lower trapezoidal matrix in the coordinates of the eigenvectors of
        :math:`C(\gamma)`. This form fixes the rotation of W, so chains do not wander among matrices
        with equal density. To account for all rotations, the density is multiplied by their volume.

        References
        ----------
        Li, Jones and Engelhardt, arXiv:2012.07977, 2020, Sec. 5.3 and Theorem 5. Sampler: Hoffman
        and Gelman, "The No-U-Turn Sampler", JMLR 15, 2014.

        Examples
        --------
        >>> from contrast_core import PCPCA
        >>> from contrast_core.datasets import make_toy
        >>> toy = make_toy(300, 300)
        >>> pcpca = PCPCA(1, gamma=0.8).fit(toy.foreground, background=toy.background)
        >>> found = pcpca.posterior(random_state=0)
        >>> found.posterior["components"].sizes
        Frozen({'chain': 4, 'draw': 1000, 'component': 1, 'feature': 2})
        >>> found.posterior["components"].mean(["chain", "draw"]).to_numpy().round(1)
        array([[ 0.8, -0.4]])
        """
        x, y = posterior_moments(self)
        d = len(self.components_)
        rate = check_number(learning_rate, "learning_rate", above=0)
        strength = self.gamma_ if gamma is None else check_number(gamma, "gamma", at_least=0)
        if strength > 0 and not hasattr(self, "background_mean_"):
            raise ValueError(
                f"gamma={strength:g} needs a background, but this PCPCA was fitted without one: "
                "leave gamma out, or fit again with fit(X, background=...)."
            )
        _check_proper(strength, rate, x.n_samples, x.n_features, d)
        floor = _noise_floor(noise_floor, x, y, d)
        density = _Density.from_spectrum(contrast_spectrum(x, y, strength), d, strength, floor)
        if not density.noise_variance > floor:
            warn(
                f"at gamma={strength:.4g} the closed form's noise variance, "
                f"{density.noise_variance:.3g}, is not above noise_floor={floor:.3g}: the "
                "posterior then lies at the floor. A lower floor makes the posterior narrower and "
                "harder to sample. Use a smaller gamma or a higher noise_floor."
            )
        return sample_posterior(
            density.target(rate * x.n_samples),
            density.start(rate * x.n_samples),
            density.variables,
            draws=draws,
            chains=chains,
            random_state=random_state,
            checked=["loadings", "noise_variance"],
            feature_names=x.feature_names,
            gamma=strength,
            learning_rate=rate,
            noise_floor=floor,
        )


def _check_proper(gamma: float, rate: float, n: float, n_features: int, d: int) -> None:
    least = n_features + d - 1
    limit = 1 - least / (rate * n)
    if gamma < limit:
        return
    advice = f"Use a gamma below {limit:.4g}" if limit > 0 else "No gamma is valid: use more rows"
    raise ValueError(
        f"the posterior at gamma={gamma:.4g} is not proper: with {n_features} features, "
        f"n_components={d} and learning_rate={rate:.4g}, learning_rate * n * (1 - gamma) must be "
        f"above {least}, and n is {n:.6g}. {advice}, fewer features or a higher learning_rate."
    )


def _noise_floor(noise_floor: object, x: Moments, y: Moments, d: int) -> float:
    if noise_floor is not None:
        return check_number(noise_floor, "noise_floor", above=0)
    [found] = solve_contrasts(x, y, [0.0], d, plan_for(x, y, d))
    return _FLOOR * float(x.total_variance - found.values.sum()) / (x.n_features - d)


class _Density(NamedTuple):
    """Posterior density in the coordinates of the contrast's eigenvectors.

    Variances are divided by `unit`, except `floor` and `noise_variance`.
    """

    directions: FloatArray
    values: FloatArray  # eigenvalues of C(gamma) divided by the unit, descending
    gamma: float
    floor: float
    noise_variance: float
    lengths: FloatArray  # lengths of the closed form's loadings, at least 0.01
    unit: float

    @classmethod
    def from_spectrum(cls, spectrum: Eigenpairs, d: int, gamma: float, floor: float) -> _Density:
        values, directions = spectrum
        noise_variance = float(values[d:].sum()) / ((1 - gamma) * (len(values) - d))
        unit = max(float(values[0]) / (1 - gamma), floor)
        squares = (values[:d] / (1 - gamma) - max(noise_variance, floor)) / unit
        lengths = np.sqrt(np.maximum(squares, 1e-4))
        return cls(directions, values / unit, gamma, floor, noise_variance, lengths, unit)

    def start(self, weight: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the arguments `start`, `spread` and `others` of `draw_matrices`.

        They are the loadings W, the standard deviation of the starting points around W, and the
        value of log(sigma^2 - floor).
        """
        loadings = np.zeros((len(self.values), len(self.lengths)))
        np.fill_diagonal(loadings, self.lengths)
        above = max(self.noise_variance - self.floor, 0.1 * self.floor) / self.unit
        width = 2 / np.sqrt(weight * (1 - self.gamma))
        return loadings, np.full((len(self.values), 1), width), np.log([above])

    def target(self, weight: float) -> Target:
        """Return the log-density as a function of W and of log(sigma^2 - floor).

        `weight` is w n. The objective is ``1 - gamma`` times the mean log-likelihood of rows with
        the covariance ``C(gamma) / (1 - gamma)``, which is diagonal in these coordinates.
        """
        n_features, share, floor = len(self.values), 1 - self.gamma, self.floor / self.unit
        variances, scale = self.values / share, weight * share
        total = float(variances.sum())

        def applied(columns: FloatArray) -> FloatArray:
            return np.asarray(variances[:, None] * columns)

        def log_density(
            loadings: FloatArray, logarithm: FloatArray
        ) -> tuple[float, FloatArray, FloatArray]:
            above = math.exp(logarithm[0])
            model = Model(loadings, floor + above)
            found = expected_by_covariance(model, applied, total, n_features)
            # Adding the logarithm makes this the density of log(sigma^2 - floor), not of sigma^2.
            value = scale * found.log_likelihood + logarithm[0]
            by_noise = scale * found.slope.noise * above / model.noise + 1.0
            return float(value), scale * found.slope.loadings, np.array([by_noise])

        return log_density

    def variables(self, found: Draws) -> dict[str, FloatArray]:
        """Return draws in the units of the data, rotated as near as possible to the closed form."""
        d, loadings, logarithms = len(self.lengths), found.matrices, found.others[..., 0]
        transposed = np.swapaxes(loadings, -1, -2)
        closed_form = np.zeros((d, len(self.values)))
        np.fill_diagonal(closed_form, self.lengths)
        bases = np.swapaxes(np.linalg.qr(loadings)[0], -1, -2)
        near = aligned(transposed, closed_form) @ self.directions * np.sqrt(self.unit)
        return {
            "loadings": np.swapaxes(near, -1, -2),
            "noise_variance": self.floor + self.unit * np.exp(logarithms),
            "components": aligned(bases, np.eye(*closed_form.shape)) @ self.directions,
        }
