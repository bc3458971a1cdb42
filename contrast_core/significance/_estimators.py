"""Clone estimators for resampling, with a fixed strength and a given number of components."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sklearn.base import clone

from contrast_core._moment_contrast import MomentContrast
from contrast_core._strength import StrengthPath
from contrast_core._validation import FloatArray, MatrixLike
from contrast_core.feedback import muted
from contrast_core.linalg import blas_threads
from contrast_core.probabilistic import PCPCA
from contrast_core.significance._units import TwoSamples, Units
from contrast_core.solve import Design
from contrast_core.spectral import CPCA

_SMALL = 1000  # up to this number of features, several BLAS threads are slower than one


def fitted_on(
    samples: TwoSamples,
    units: tuple[Units, Units],
    estimator: MomentContrast,
    X: MatrixLike,
    background: MatrixLike | Sequence[MatrixLike],
) -> MomentContrast:
    """Return a clone of the estimator, fitted to the moments of the units.

    If there are more features than rows, the clone is fitted to the rows instead.

    Raises
    ------
    TypeError
        If the estimator is not a linear method that contrasts second moments.
    """
    check_estimator(estimator)
    if samples.basis is None:
        x, y = (part.moments(part.counts) for part in units)
        return quietly_fitted(estimator, x, y)
    return quietly_fitted(estimator, X, background, samples.design)


def check_estimator(estimator: object) -> None:
    """Raise TypeError unless the estimator is a linear method that contrasts second moments."""
    if not isinstance(estimator, MomentContrast):
        raise TypeError(
            f"estimator is {type(estimator).__name__}; expected a linear contrastive method such "
            "as CPCA(), CPCAStar() or PCPCA()."
        )


def quietly_fitted(
    estimator: MomentContrast, X: Any, background: Any, design: Design | None = None
) -> MomentContrast:
    """Return a fitted clone; mute warnings about components that the caller will test anyway."""
    fitted: MomentContrast = clone(estimator)
    with muted("negative contrast|hardly depends on other features"):
        return fitted.fit(X, background=background, **({} if design is None else vars(design)))


def at_fixed_strength(fitted: MomentContrast, n_components: int) -> MomentContrast:
    """Return an unfitted estimator with the contrast strength of a fitted one.

    For PCPCA, a cPCA at ``alpha = gamma_`` is returned, which has the same components. PCPCA itself
    cannot be used, because its noise variance may not exist at that strength for every resample.

    Raises
    ------
    TypeError
        If the estimator has no contrast strength that can be kept fixed.
    """
    if not isinstance(fitted, StrengthPath):
        raise TypeError(
            f"{type(fitted).__name__} keeps no moments, so its strength cannot be kept fixed while "
            "data are resampled; expected a method such as CPCA(), CPCAStar() or PCPCA()."
        )
    if isinstance(fitted, PCPCA):
        return CPCA(n_components, alpha=fitted.strength_)
    other: MomentContrast = fitted._with_strength(fitted.strength_)
    other.set_params(n_components=n_components)
    return other


def components_of(fitted: MomentContrast, samples: TwoSamples) -> FloatArray:
    """Return the components as rows, in the coordinates in which the units are stored.

    These are the features or, if ``samples.basis`` is not None, the coordinates of this basis.
    """
    components = fitted.components_
    return components if samples.basis is None else components @ samples.basis.T


@contextmanager
def resampling(samples: TwoSamples) -> Iterator[None]:
    """Limit BLAS to one thread while many small problems are solved.

    On an idle machine, several threads hardly speed up small products and eigenproblems. On a busy
    machine, the computation takes many times longer, because the threads wait for each other.
    """
    small = samples.foreground.rows.shape[1] <= _SMALL
    with blas_threads() as blas, blas.limit(limits=1 if small else None):
        yield
