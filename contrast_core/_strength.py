"""Contrast strength of a fit, and fits at other strengths from the same moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeVar

from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from contrast_core._validation import FloatArray, numbers_of

T = TypeVar("T")


class ContrastStrength:
    """Mixin with the contrast strength of a method as `strength_`.

    A subclass sets `_strength` to the name of its parameter: "alpha", "beta" or "gamma".
    """

    _strength: ClassVar[str]

    @property
    def strength_(self) -> float:
        """Return the contrast strength of the fit, which is `alpha_`, `beta_` or `gamma_`."""
        check_is_fitted(self)
        return float(getattr(self, f"{self._strength}_"))


class StrengthPath(ContrastStrength):
    """Mixin that fits a method at other strengths, without reading the data again.

    A subclass keeps ``foreground_moments_`` and ``background_moments_``, and defines `_fit_each`
    and `_default_strengths`.
    """

    _of_moments: ClassVar[tuple[str, ...]]
    _background_is_optional: ClassVar[bool] = False

    def at(self, strength: float | str) -> Self:
        """Fit the method at another contrast strength, from the moments of this fit.

        Parameters
        ----------
        strength : float or str
            Contrast strength. Any value is allowed that the method's parameter (`alpha`, `beta` or
            `gamma`) accepts.

        Returns
        -------
        Self
            A new fitted estimator with as many components as this one. This one does not change.

        Raises
        ------
        ValueError, TypeError
            If the strength is out of range or not a number, or the estimator comes from a file
            without moments.
        """
        self._check_moments()
        return self._like_this(self._fit_one(self._with_strength(strength)))

    def path(self, strengths: ArrayLike | Sequence[float | str] | None = None) -> list[Self]:
        """Fit the method at several contrast strengths, which is faster than one fit for each.

        Parameters
        ----------
        strengths : array-like of float or str, optional
            Contrast strengths, as for `at`. The default is a grid over the method's range:

            - for `alpha`, 0 and 40 log-spaced values from 0.1 to 1000;
            - for `beta`, 0 and 40 values whose ridges ``(1 - beta) / beta`` are log-spaced. They go
              from 1000 times the ridge of the automatic beta down to a thousandth of this ridge;
            - for `gamma`, the multiples 0, 0.05, ... 0.95 of `gamma_max_`.

        Returns
        -------
        list of Self
            A new fitted estimator for each different strength, in ascending order, as `at` returns
            it. A path does not issue the warnings that `fit` issues at a single strength.

        Raises
        ------
        ValueError, TypeError
            If no strength is given, one is out of range or not a number, or the estimator comes
            from a file without moments.
        """
        self._check_moments()
        given = self._default_strengths() if strengths is None else strengths
        values = numbers_of(given, f"{self._strength}s")
        if not values:
            raise ValueError(
                f"{self._strength}s is empty; give at least one strength, or None for a grid."
            )
        others = self._fit_each([self._with_strength(value) for value in values])
        return [self._like_this(other) for other in others]

    def _check_moments(self, purpose: str = "fits at other strengths") -> None:
        """Raise ValueError if the moments that `purpose` needs are missing."""
        check_is_fitted(self)
        if self._background_is_optional and not hasattr(self, "background_mean_"):
            raise ValueError(
                f"this {type(self).__name__} was fitted without a background, but {purpose} need "
                "the moments of a background. Fit it with one: fit(X, background=...)."
            )
        if not all(hasattr(self, name) for name in self._of_moments):
            raise ValueError(
                f"this {type(self).__name__} was read from a file that holds no moments, but "
                f"{purpose} need them. Save the model with save(..., moments=True), or fit it "
                "again."
            )

    def _like_this(self, other: Self) -> Self:
        """Copy the attributes that do not depend on the strength to another estimator."""
        for name in ("within_labels_", "within_means_"):
            if hasattr(self, name):
                setattr(other, name, getattr(self, name))
        return other

    def _with_strength(self, strength: object) -> Self:
        """Return an unfitted estimator with this strength and as many components as the fit."""
        unfitted: Any = clone(self)
        k = self._n_features_out  # type: ignore[attr-defined]
        other: Self = unfitted.set_params(n_components=k, **{self._strength: strength})
        return other

    def _default_strengths(self) -> FloatArray:
        raise TypeError(f"{type(self).__name__} does not define a grid of strengths.")

    def _fit_one(self, other: Self) -> Self:
        [fitted] = self._fit_each([other])
        return fitted

    def _fit_each(self, others: list[Self]) -> list[Self]:
        """Fit estimators that differ from this one in strength, and sort them by `ascending`."""
        raise TypeError(f"{type(self).__name__} does not define how to fit a path.")


def ascending(others: Sequence[T], strengths: Sequence[float]) -> tuple[list[T], list[float]]:
    """Sort estimators by strength, and keep only the first one of several with equal strengths."""
    distinct = dict(zip(reversed(strengths), reversed(others), strict=True))
    order = sorted(distinct)
    return [distinct[strength] for strength in order], order
