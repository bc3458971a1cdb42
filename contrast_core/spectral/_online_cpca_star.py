"""Online cPCA*, which estimates the subspace of cPCA* from a stream of rows."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._base import LinearContrast, check_not_positional
from contrast_core._strength import ContrastStrength
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_beta,
    check_count,
    check_generator,
    check_n_components,
    check_number,
    check_same_features,
)
from contrast_core.linalg import fix_signs, orthonormal_rows
from contrast_core.rows import load_into_memory, rows_of
from contrast_core.solve import contrast_rows
from contrast_core.spectral._online_checks import (
    check_flags,
    check_learning_rate,
    check_variation,
    unit_beta,
    warn_unless_converged,
)
from contrast_core.spectral._online_rows import (
    Scatter,
    alternating,
    scatter_of,
    standardise_running,
)
from contrast_core.spectral._online_steps import OnlineState, StepSizes, advance

_LOST = 1e100  # if a weight is larger than this, the iteration has diverged
_ENOUGH_TO_JUDGE = 20  # the learning rate is checked once there are this many background rows


class OnlineCPCAStar(ContrastStrength, LinearContrast):
    r"""Contrastive PCA* from a stream of rows, which needs memory for k rows and no covariances.

    The method updates feedforward weights W (k, D) and lateral weights M (k, k) by each row. Let
    :math:`\delta = 1` if the row is foreground and 0 if it is background, and let p be the share of
    background rows so far. A standardised row x updates W and M by the following equations. The
    standardisation and :math:`\beta'` are explained in the Notes.

    .. math::
        c &= W x, \qquad z = \delta\, M^{-1} c, \\
        W &\leftarrow W + 2\eta \left(z - \beta' \tfrac{1-\delta}{p}\, c\right) x^\top
            - 2\eta (1-\beta') W, \\
        M &\leftarrow M + \tfrac{\eta}{\tau} \left(z z^\top - M\right).

    The span of the rows of W converges to the span of the k leading solutions of
    :math:`C_X v = \lambda B_\beta v`, with :math:`B_\beta = (1 - \beta) I + \beta C_Y` and
    the covariances :math:`C_X` and :math:`C_Y` of foreground and background. This is also the span
    of the components of `CPCAStar`.

    Parameters
    ----------
    n_components : int, default=2
        Number of components, k. It must not exceed the number of directions in which the foreground
        varies.
    beta : float from 0 to 1, default=0.5
        Contrast strength, in the units of the data, as in `CPCAStar`. One way to choose it is to
        take ``CPCAStar().fit(...).beta_`` from a first part of the data.
    learning_rate : float, default=0.003
        Step size eta, above 0 and below `tau`. It applies to rows of unit scale, because rows are
        divided by their scale.
    decay_steps : float, optional
        If given, the step size after s steps is ``learning_rate / (1 + s / decay_steps)``, which
        removes the noise that a constant step size leaves. A tenth of all steps is a good value.
        None keeps the step size constant, so that the components follow a stream that changes.
    tau : float, default=0.5
        Ratio of the step sizes of W and M, above `learning_rate`. With a ratio up to 0.5, the
        solution is stable whatever the eigenvalues are. Above 0.5, the iteration never settles at
        the solution if two leading eigenvalues have a ratio r with :math:`(2 - 1/\tau)(r + 1/r) \ge
        4 + 1/\tau`. At ``tau=1``, which is the paper's value, this is the case from r = 4.8 on. A
        smaller step size does not help. The instability is a property of the paper's equations.
    batch_size : int, default=1
        Number of rows per step. With 1, the updates are those above, as in the paper, and they are
        compiled if numba is installed. With a larger number, each step uses the average over a
        batch of rows. This iteration differs from the paper's and allows a larger learning rate.
    n_passes : int, default=20
        Number of passes of `fit` over the data. In each pass, foreground and background rows are
        shuffled and then alternate. The smaller set is repeated until the larger set is used up.
    random_state : int, Generator or None, default=0
        Seed of the initial weights and of the shuffling.

    Attributes
    ----------
    components_ : ndarray of shape (k, n_features)
        Orthonormal rows with the same span as W, in the order of the eigenvalues, as in `CPCAStar`.
    directions_ : ndarray of shape (k, n_features)
        Estimates of the generalised eigenvectors.
    generalized_eigenvalues_ : ndarray of shape (k,)
        Estimates of the generalised eigenvalues, descending. They are the eigenvalues of M divided
        by the share of foreground rows.
    feedforward_weights_ : ndarray of shape (k, n_features)
        The weights W, which apply to standardised rows.
    lateral_weights_ : ndarray of shape (k, k)
        The weights M, which apply to standardised rows.
    mean_, background_mean_ : ndarray of shape (n_features,)
        Means of the foreground and background rows seen so far. They are zero before the first row.
    n_steps_ : int
        Number of steps done so far.
    beta_, strength_ : float
        The contrast strength used. If it was changed between calls, this is the latest value.
    projection_, reconstruction_ : ndarrays of shape (n_features, k) and (k, n_features)
        `projection_` is ``components_.T`` and maps centred rows to scores. `reconstruction_` is
        ``components_`` and maps scores back. With the mean, they form `linear_map_`, a
        `contrast_core.spectral.LinearMap`.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the data had names.

    Warns
    -----
    ContrastWarning
        If the components of `fit` have not converged. They count as not converged if the residuals
        :math:`C_X v - \lambda B_\beta v` lead to better components, or if there are too few steps
        for the data, which happens if :math:`\beta'` (see Notes) is near 1.

    See Also
    --------
    CPCAStar : The batch solution, for data whose covariances fit into memory.

    Notes
    -----
    *Centring.* The paper assumes centred rows. `fit` centres foreground and background, each at its
    own mean. `partial_fit` subtracts from each row the running mean of its kind (foreground or
    background), which includes the row itself. It then multiplies the t-th row of a kind by
    :math:`\sqrt{t/(t-1)}`. The outer products of the resulting rows add up exactly to the scatter
    about the running mean (Welford). Rows that are already centred hardly change.

    *Scale.* Each row is divided by s, where :math:`s^2` is the mean variance of the features that
    vary. `fit` computes s from all rows of the same kind. `partial_fit` computes it from the rows
    of the same kind up to and including the row itself. In the updates, beta is replaced by
    :math:`\beta' = \beta s^2 / (1 - \beta + \beta s^2)` with the s of the background. The division
    then changes the steps, but not the solutions. Therefore both datasets may have any scale, and
    beta has the same meaning as in `CPCAStar`. If the features are standardised, s is 1, and the
    iteration is the same as in the paper. The closer :math:`\beta'` is to 1, the more steps are
    needed.

    *Streams.* Interleave foreground and background rows, because many rows of one kind in
    succession make the iteration forget the other kind. The first background row after t foreground
    rows would have a weight 1/p of about t. Therefore the weight of a row is limited to :math:`1 /
    (\eta\beta'|x|^2)`. With a larger weight, its step would overshoot.

    *Learning rate.* A step must not overshoot: :math:`\eta(\beta' |x|^2 / p + 1 - \beta')` must
    stay below 1. Here :math:`|x|^2` is the mean squared length of the standardised background rows,
    which is about the number of features. The mean is weighted by the squared length, to allow for
    heavy tails. The condition is checked once there are 20 background rows.

    *Accuracy.* The alignment with the batch solution is the trace of the product of the two
    projectors, divided by k. On the mouse data of the paper (beta = 0.5, 60 passes), it is 0.98 at
    the constant default step size and above 0.999 with ``decay_steps=3000``.

    References
    ----------
    Golkar, Lipshutz, Tesileanu and Chklovskii, "An online algorithm for contrastive principal
    component analysis", arXiv:2211.07723, Sec. 3, equations 9 to 11.

    Examples
    --------
    >>> from contrast_core import CPCAStar, OnlineCPCAStar
    >>> from contrast_core.linalg import principal_angles
    >>> from contrast_core.datasets import load_mouse_protein
    >>> mice = load_mouse_protein()
    >>> online = OnlineCPCAStar(beta=0.5, decay_steps=1000)
    >>> online = online.fit(mice.foreground, background=mice.background)
    >>> batch = CPCAStar(beta=0.5).fit(mice.foreground, background=mice.background)
    >>> bool(principal_angles(online.components_, batch.components_).max() < 0.1)
    True
    """

    _strength = "beta"

    beta_: float
    directions_: FloatArray
    generalized_eigenvalues_: FloatArray
    feedforward_weights_: FloatArray
    lateral_weights_: FloatArray
    n_steps_: int
    _state: OnlineState
    _foreground: Scatter
    _background: Scatter

    def __init__(
        self,
        n_components: int = 2,
        *,
        beta: float = 0.5,
        learning_rate: float = 0.003,
        decay_steps: float | None = None,
        tau: float = 0.5,
        batch_size: int = 1,
        n_passes: int = 20,
        random_state: int | np.random.Generator | None = 0,
    ) -> None:
        self.n_components = n_components
        self.beta = beta
        self.learning_rate = learning_rate
        self.decay_steps = decay_steps
        self.tau = tau
        self.batch_size = batch_size
        self.n_passes = n_passes
        self.random_state = random_state

    def fit(self, X: MatrixLike, y: object = None, *, background: Any = None) -> Self:
        """Fit by several passes over data in memory.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n, n_features)
            Foreground. Sparse rows are made dense block by block.
        y : ignored
        background : array-like, DataFrame or sparse matrix of shape (m, n_features)
            Background, with the same features in the same order.

        Returns
        -------
        Self

        Raises
        ------
        ValueError
            If the features differ, or if a dataset has fewer than two rows, is not finite, or has
            squares beyond the range of float64. The error is also raised if a parameter is out of
            range, or if the learning rate is too large for the data.
        TypeError
            If moments are given (the method needs rows), or a parameter has the wrong type.
        """
        if background is None:
            check_not_positional(X, y)
        x, y = contrast_rows(X, background)
        rows = load_into_memory(x), load_into_memory(y)
        sizes = self._step_sizes()
        batch_size = check_count(self.batch_size, "batch_size")
        n_passes = check_count(self.n_passes, "n_passes")
        scatters = scatter_of(rows[0], "X"), scatter_of(rows[1], "background")
        rng = check_generator(self.random_state)
        state = self._start(rows[0].shape[1], rng)
        check_variation(*scatters, beta=float(sizes.beta))
        sizes = sizes._replace(beta=unit_beta(sizes.beta, scatters[1].variance))
        check_learning_rate(sizes, 0, scatters[1], per_step=0.5 * batch_size)
        for _ in range(n_passes):
            for block, is_foreground in alternating(rows, scatters, rng):
                state = self._advance(state, block, is_foreground, sizes, batch_size)
        self._set_state(x.names or y.names, state, *scatters)
        warn_unless_converged(self.components_, state.n_steps, sizes, rows, scatters)
        return self

    def partial_fit(self, X: MatrixLike, is_foreground: ArrayLike) -> Self:
        """Update the fit with the next rows of a stream, using each row once, in the order given.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n, n_features)
            Rows of both kinds, interleaved. The first call fixes the features. With
            ``batch_size=1``, the result does not depend on how many rows each call gets, up to
            rounding. With a larger `batch_size`, the rows of each call are divided into batches of
            nearly equal size.
        is_foreground : array-like of bool (or 0 and 1) of shape (n,)
            True for foreground rows, False for background rows.

        Returns
        -------
        Self

        Raises
        ------
        ValueError
            If the features differ from those of the first call, a value is NaN or infinite, or
            squares are beyond the range of float64. The error is also raised if a parameter is out
            of range, or if the learning rate is too large for the data. The estimator does not
            change in any of these cases.
        TypeError
            If a parameter has the wrong type.
        """
        sizes = self._step_sizes()
        batch_size = check_count(self.batch_size, "batch_size")
        data = rows_of(X)
        rows, names = data.load(dense=True), data.names
        flags = check_flags(is_foreground, len(rows))
        if hasattr(self, "components_"):
            known = getattr(self, "feature_names_in_", None)
            known = None if known is None else tuple(known)
            check_same_features(
                rows.shape[1], names, self.n_features_in_, known, background_name="the fitted data"
            )
            if self.n_components != len(self.components_):
                raise ValueError(
                    f"n_components={self.n_components}, but the stream began with "
                    f"{len(self.components_)} components. The number cannot change during a "
                    "stream. Clone the estimator and begin again."
                )
            state, foreground, background = self._state, self._foreground, self._background
            names = known or names
        else:
            state = self._start(rows.shape[1], check_generator(self.random_state))
            foreground = background = Scatter.empty(rows.shape[1])
        if len(rows):
            x, y = rows[flags], rows[~flags]
            variance = background.variance
            x, _, foreground = standardise_running(x, foreground, "X's foreground rows")
            y, variances, background = standardise_running(y, background, "X's background rows")
            standardised = np.empty(rows.shape)
            standardised[flags], standardised[~flags] = x, y
            n_background = state.n_background + len(y)
            share = n_background / (state.n_seen + len(rows))
            # For each row of either kind, take the variance of the background rows up to this row.
            variances = np.concatenate([[variance], variances])[np.cumsum(~flags)]
            sizes = sizes._replace(beta=unit_beta(sizes.beta, variances))
            if background.n_rows >= _ENOUGH_TO_JUDGE:
                check_learning_rate(sizes, state.n_steps, background, per_step=share * batch_size)
            state = self._advance(state, standardised, flags, sizes, batch_size)
        return self._set_state(names, state, foreground, background)

    def _start(self, n_features: int, rng: np.random.Generator) -> OnlineState:
        """Return the initial state: orthonormal random weights and M = I."""
        k = check_n_components(self.n_components, n_features)
        weights = np.linalg.qr(rng.standard_normal((n_features, k)))[0].T
        return OnlineState(np.ascontiguousarray(weights), np.eye(k), 0, 0, 0)

    def _step_sizes(self) -> StepSizes:
        beta = check_beta(self.beta)
        tau = check_number(self.tau, "tau", above=0)
        learning_rate = check_number(self.learning_rate, "learning_rate", above=0)
        if learning_rate >= tau:
            raise ValueError(
                f"learning_rate={learning_rate:g} must be below tau={tau:g}; otherwise the lateral "
                "weights M do not stay positive definite."
            )
        decay = np.inf if self.decay_steps is None else self.decay_steps
        decay = check_number(decay, "decay_steps", above=0, at_most=np.inf)
        return StepSizes(learning_rate, decay, tau, beta)

    def _advance(
        self,
        state: OnlineState,
        rows: FloatArray,
        is_foreground: NDArray[np.bool_],
        sizes: StepSizes,
        batch_size: int,
    ) -> OnlineState:
        try:
            new = advance(state, rows, is_foreground, sizes, batch_size)
            lost = not 0 < np.abs(new.feedforward).max() < _LOST  # also True for NaN
        except np.linalg.LinAlgError:
            lost = True
        if lost:
            raise ValueError(
                f"the iteration diverged or died out after step {state.n_steps}: use a smaller "
                f"learning_rate than {self.learning_rate:g}, and interleave foreground and "
                "background rows."
            )
        return new

    def _set_state(
        self,
        feature_names: tuple[str, ...] | None,
        state: OnlineState,
        foreground: Scatter,
        background: Scatter,
    ) -> Self:
        # At the solution, M^2 = W B W^T, where B is the matrix B_beta of the standardised rows. The
        # eigenvalues of M are lambda times the share of foreground rows. The eigenvectors of M
        # therefore rotate W to the generalised eigenvectors.
        values, rotation = np.linalg.eigh(state.lateral)
        values = np.maximum(values[::-1], np.finfo(np.float64).eps * values[-1])
        directions = rotation[:, ::-1].T @ state.feedforward
        n_foreground = max(state.n_seen - state.n_background, 1)
        beta = check_beta(self.beta)
        # B_beta of the original rows is `unit` times B_beta of the standardised rows.
        unit = 1 - beta + beta * background.variance or 1.0
        return self._set_fitted(
            feature_names,
            mean_=foreground.mean,
            background_mean_=background.mean,
            components_=orthonormal_rows(directions),
            directions_=fix_signs(directions / (np.sqrt(unit) * values[:, None])),
            generalized_eigenvalues_=values
            * (foreground.variance / unit * state.n_seen / n_foreground),
            feedforward_weights_=state.feedforward,
            lateral_weights_=state.lateral,
            n_steps_=state.n_steps,
            beta_=beta,
            _state=state,
            _foreground=foreground,
            _background=background,
        )
