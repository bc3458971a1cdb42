"""Report on a contrast and how certain it is, for the supplement of a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeAlias, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._moment_contrast import MomentContrast
from contrast_core._strength import StrengthPath
from contrast_core._validation import FloatArray, MatrixLike, check_count, check_generator
from contrast_core.feedback import Progress
from contrast_core.linalg import principal_angles
from contrast_core.moments import FeatureMoments, warn_of_units
from contrast_core.significance._advice import ContrastAdvice, contrast_advice
from contrast_core.significance._bootstrap import BootstrapStability, bootstrap_stability
from contrast_core.significance._estimators import check_estimator, quietly_fitted
from contrast_core.significance._permutation import PermutationTest, permutation_test
from contrast_core.significance._units import Weights
from contrast_core.solve import Design, loaded_rows

Columns: TypeAlias = dict[str, list[Any]]

_NEAR = 10.0  # degrees; subspaces whose largest angle is smaller are reported as the same
_LEVEL = 0.05
_EXCESS = (
    "Excess variance of the foreground over the background, divided by the background's variance "
    "and summed over the first components. It is measured on units that were left out of the fit. "
    "The columns lower and upper are the ends of the 95% interval of the advised method"
)


@dataclass(frozen=True, eq=False)
class ContrastReport:
    """Summary of a contrast and how certain it is, as computed by `contrast_report`.

    The report prints as plain text, and as tables in a notebook. The methods `statements`,
    `components` and `features` return its parts, for example for
    ``pandas.DataFrame(report.features())``.

    Parameters
    ----------
    estimator : MomentContrast
        The method, fitted to the data.
    n_rows : tuple of int
        Numbers of rows of foreground and background.
    advice : ContrastAdvice
        Advice on whether a contrast is needed, from the excess variance on left-out units.
    test : PermutationTest
        Permutation test of the components.
    stability : BootstrapStability
        Bootstrap of the subspace and the loadings.
    strengths : ndarray of shape (S,)
        Other strengths of the contrast, ascending, from the method's default grid.
    angles : ndarray of shape (S,)
        Largest principal angle between the subspace at each of these strengths and the subspace of
        `estimator`, in radians.
    """

    estimator: MomentContrast
    n_rows: tuple[int, int]
    advice: ContrastAdvice
    test: PermutationTest
    stability: BootstrapStability
    strengths: FloatArray
    angles: FloatArray

    def statements(self) -> dict[str, str]:
        """Return the sentences of the report as a dictionary with their subjects as keys."""
        return {
            "contrast": self._contrast(),
            "data": self._data(),
            "anything to find": self._finding(),
            "advice": self.advice.sentence(self._has_effect()),
            "components": self._components(),
            "subspace": self._subspace(),
            "other strengths": self._strengths(),
        }

    def components(self) -> Columns:
        """Return a table of the components, as a dictionary of columns.

        For each component, the table has the variances of foreground and background, the contrast
        index, and the p-value of the permutation test. It also has two measures of stability under
        resampling, which are the means of `matched` and `retained` of `bootstrap_stability`.
        """
        fitted: Any = self.estimator
        return {
            "component": list(range(1, len(fitted.components_) + 1)),
            "foreground variance": fitted.foreground_variance_.tolist(),
            "background variance": fitted.background_variance_.tolist(),
            "contrast index": fitted.contrast_index_.tolist(),
            "p-value": self.test.p_values.tolist(),
            "stability": self.stability.component_stability.tolist(),
            "retained": self.stability.component_retention.tolist(),
        }

    def features(self, n_top: int = 10) -> Columns:
        """Return a table of the features with the largest loadings, as a dictionary of columns.

        Parameters
        ----------
        n_top : int, default=10
            Number of features to show for each component.

        Returns
        -------
        dict of lists
            The columns ``component``, ``feature`` and ``loading``, and the ends ``lower`` and
            ``upper`` of the loading's bootstrap interval.
        """
        n_top = check_count(n_top, "n_top")
        found = self.stability
        names = self._names()
        table: Columns = {
            name: [] for name in ("component", "feature", "loading", "lower", "upper")
        }
        for j, (loadings, lower, upper) in enumerate(
            zip(found.components, found.lower, found.upper, strict=True), start=1
        ):
            top = np.argsort(-np.abs(loadings), kind="stable")[:n_top]
            table["component"] += [j] * len(top)
            table["feature"] += [str(names[i]) for i in top]
            for name, values in (("loading", loadings), ("lower", lower), ("upper", upper)):
                table[name] += values[top].tolist()
        return table

    def __str__(self) -> str:
        statements = self.statements()
        width = max(map(len, statements))
        lines = [f"{subject:{width}}  {text}" for subject, text in statements.items()]
        return "\n".join(
            [
                "Contrast report",
                *lines,
                "",
                *_aligned(self.components()),
                "",
                _EXCESS,
                *_aligned(self.advice.table()),
                "",
                self._heading_of_loadings(),
                *_aligned(self.features()),
            ]
        )

    def _repr_html_(self) -> str:
        statements = "".join(
            f"<tr><th style='text-align:left'>{escape(subject)}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for subject, text in self.statements().items()
        )
        return (
            f"<h4>Contrast report</h4><table>{statements}</table>{_html(self.components())}"
            f"<p>{_EXCESS}</p>{_html(self.advice.table())}"
            f"<p>{self._heading_of_loadings()}</p>{_html(self.features())}"
        )

    def _heading_of_loadings(self) -> str:
        level = self.stability.level
        return f"Largest loadings, with the ends of their {level:.0%} bootstrap intervals"

    def _names(self) -> NDArray[Any]:
        given = getattr(self.estimator, "feature_names_in_", None)
        return np.arange(self.stability.components.shape[1]) if given is None else given

    def _contrast(self) -> str:
        fitted: Any = self.estimator
        name, k = fitted._strength, len(fitted.components_)
        given = fitted.get_params()[name]
        chosen = f"chosen by {name}={given!r}" if isinstance(given, str) else "given"
        strength = f"{name} = {fitted.strength_:.4g}, {chosen}"
        return f"{type(fitted).__name__} at {strength}; {_count_of_components(k)}"

    def _data(self) -> str:
        n, m = self.n_rows
        text = f"{n} foreground and {m} background rows"
        if self.test.n_units is not None:
            text += f", in {self.test.n_units} and {self.test.n_background_units} units"
        return f"{text}; {self.stability.components.shape[1]} features"

    def _has_effect(self) -> bool:
        return bool(self.test.n_significant(_LEVEL)) or self.advice.found

    def _finding(self) -> str:
        test, advice = self.test, self.advice
        usual = np.quantile(test.null_statistics[:, 0], 0.95)
        return (
            f"{'yes' if self._has_effect() else 'no'}: the permutation test gives p = "
            f"{test.p_values[0]:.2g} for the first component. Its statistic is "
            f"{test.statistics[0]:.3g}, and 95% of the relabelled datasets have statistics up to "
            f"{usual:.3g}; no p-value can be below {test.smallest_p_value:.2g}. The comparison of "
            f"variances on units that were left out of the fit gives p = {advice.p_value:.2g}. The "
            f"answer is yes if the first p-value is at most {_LEVEL:g} or the second is at most "
            f"{advice.level:g}"
        )

    def _components(self) -> str:
        test, k = self.test, len(self.test.p_values)
        kind = "all" if test.exact else "random"
        return (
            f"{test.n_significant(_LEVEL)} of {k} significant at {_LEVEL:.0%}, tested one after "
            f"the other by {test.n_permutations} {kind} relabellings"
        )

    def _subspace(self) -> str:
        largest = np.degrees(self.stability.angles.max(axis=1))
        half, most = np.quantile(largest, [0.5, 0.95])
        return (
            f"the largest principal angle to the subspace of a resample is at most {half:.0f} "
            f"degrees in half of {len(largest)} resamples, and at most {most:.0f} degrees in 95%"
        )

    def _strengths(self) -> str:
        name = self.estimator._strength
        own, degrees = self.estimator.strength_, np.degrees(self.angles)
        near = np.append(self.strengths[_nearest_run(self.strengths, own, degrees < _NEAR)], own)
        return (
            f"the subspace is within {_NEAR:.0f} degrees of the reported one for {name} from "
            f"{near.min():.3g} to {near.max():.3g}, and {degrees[0]:.0f} degrees away from it at "
            f"{self.strengths[0]:.3g}; strengths from {self.strengths[0]:.3g} to "
            f"{self.strengths[-1]:.3g} were tried"
        )


def contrast_report(
    estimator: MomentContrast,
    X: MatrixLike,
    *,
    background: MatrixLike | Sequence[MatrixLike],
    units: ArrayLike | None = None,
    background_units: ArrayLike | None = None,
    n_permutations: int = 999,
    n_resamples: int = 200,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = False,
    **weights: Unpack[Weights],
) -> ContrastReport:
    """Report what a contrast shows, and how certain it is, for the supplement of a paper.

    The report states

    - which contrast was used, and how it was chosen;
    - whether there is anything to find, and how many components are significant at 5%
      (`permutation_test`);
    - whether PCA is good enough, and for how many components a contrast is needed
      (`contrast_core.significance.contrast_advice`);
    - how certain the components and loadings are (`bootstrap_stability`);
    - over which strengths the subspace stays the same;
    - which features have the largest loadings.

    Parameters
    ----------
    estimator : CPCA, CPCAStar or PCPCA
        The method and number of components; it is cloned.
    X, background : array-like, DataFrame or sparse matrix of shape (n or m, n_features)
        Foreground and background rows, not moments. Without units, the background may be a list of
        several datasets.
    units, background_units : array-like of shape (n,) and (m,), optional
        The donor, animal or other unit that each row belongs to. Without units, rows are treated as
        independent. If several rows come from the same donor, all results then look far more
        certain than they are.
    sample_weight, background_weight : array-like of shape (n,) and (m,), optional
        A weight for each row, as for `CPCA.fit`.
    background_mix : array-like of shape (number of backgrounds,), optional
        Share of each background in the mixture, as for `CPCA.fit`.
    n_permutations : int, default=999
        Number of relabellings.
    n_resamples : int, default=200
        Number of bootstrap samples.
    random_state : int, Generator or None, default=None
        Seed of all random numbers.
    progress : bool or callable, default=False
        Whether to show progress bars of tqdm. A callable is used in place of tqdm, and is called as
        ``progress(iterable, total=, desc=)``.

    Returns
    -------
    ContrastReport

    Raises
    ------
    ValueError, TypeError
        In the cases in which `permutation_test`, `bootstrap_stability` or `contrast_advice` raises.

    Warns
    -----
    ContrastWarning
        If a tenth of the features, or a single feature if there are fewer than 20, holds more than
        90% of the variance of both datasets. Scale features of different units first.

    See Also
    --------
    contrast_core.contrast_path : Fit the contrast at many strengths, and compare the subspaces.

    Notes
    -----
    Units are used for the test, the bootstrap and the advice only. The contrast itself is fitted to
    all rows, not within units.

    Examples
    --------
    >>> from contrast_core import CPCA, contrast_report
    >>> from contrast_core.datasets import make_four_groups
    >>> data = make_four_groups(random_state=0)
    >>> report = contrast_report(
    ...     CPCA(1), data.foreground, background=data.background,
    ...     n_permutations=99, n_resamples=20, random_state=0,
    ... )
    >>> print(report.statements()["components"])
    1 of 1 significant at 5%, tested one after the other by 99 random relabellings
    >>> report.features(3)["feature"]
    ['1', '9', '4']
    """
    check_estimator(estimator)
    rng = check_generator(random_state)
    given: dict[str, Any] = {
        "background": background,
        "units": units,
        "background_units": background_units,
        "random_state": rng,
        **weights,
    }
    bars: dict[str, Any] = {"progress": progress}
    test = permutation_test(estimator, X, n_permutations=n_permutations, **given, **bars)
    advice = contrast_advice(X, **given)
    stability = bootstrap_stability(estimator, X, n_resamples=n_resamples, **given, **bars)
    fitted = quietly_fitted(estimator, X, background, Design(**weights))
    strengths, angles = _other_strengths(fitted)
    rows = loaded_rows(X, background)
    x, y = (FeatureMoments.from_data(part).variance for part in (rows.foreground, rows.background))
    warn_of_units(x, y, most=len(x))
    return ContrastReport(
        estimator=fitted,
        n_rows=(rows.foreground.shape[0], rows.background.shape[0]),
        advice=advice,
        test=test,
        stability=stability,
        strengths=strengths,
        angles=angles,
    )


def _other_strengths(fitted: Any) -> tuple[FloatArray, FloatArray]:
    """Return the default strengths, and the largest angle of each subspace to the fitted subspace.

    Angles are in radians.
    """
    path: list[StrengthPath] = fitted.path()
    angles = [principal_angles(other.components_, fitted.components_)[0] for other in path]  # type: ignore[attr-defined]
    return np.array([other.strength_ for other in path]), np.array(angles)


def _nearest_run(strengths: FloatArray, own: float, near: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask of the longest run of strengths around `own` that are all `near`."""
    far = strengths[~near]
    lower, upper = far[far < own], far[far > own]
    return np.asarray(
        near
        & (strengths > (lower.max() if len(lower) else -np.inf))
        & (strengths < (upper.min() if len(upper) else np.inf))
    )


def _count_of_components(k: int) -> str:
    return f"{k} component" + ("" if k == 1 else "s")


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _aligned(columns: Columns) -> list[str]:
    """Return a table as lines of text, with its cells aligned to the right."""
    columns = {name: list(map(_shown, values)) for name, values in columns.items()}
    widths = [max(map(len, [name, *cells])) for name, cells in columns.items()]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in [columns, *zip(*columns.values(), strict=True)]
    ]


def _html(columns: Columns) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_shown(value))}</td>" for value in row) + "</tr>"
        for row in zip(*columns.values(), strict=True)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
