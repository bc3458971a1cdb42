"""On which real data does a contrast help, and with how many components?

    python -m validation.track_record                # all datasets; updates docs/track_record.md
    python -m validation.track_record mice sensors   # some datasets; only prints

Units (mice, donors, compounds, pictures, guides) are left out in turn. If there are more than nine
units, they are left out in nine groups. The embedding is fitted to the other units, without labels.
A linear discriminant with equal priors learns the labels from its first k components and classifies
the rows of the units that were left out. Each figure is the share of rows that are classified
correctly, averaged over units. After ± stands half the width of its 95% interval (Student's t over
units). A linear discriminant ignores the scale of components, so only their subspace matters.

Three rows are references that use labels. "cPCA, best alpha" is an upper bound: for each k it is
the highest figure of PCA and of cPCA at nine strengths. "All features, with labels" is a
discriminant of all features with Ledoit-Wolf shrinkage. "All features, neighbours" classifies by
the fifteen nearest rows in all features, without an embedding.

"Whitening r" adds r times the background's mean variance to the diagonal of the background's
covariance, whitens the data by this matrix, and applies PCA. Its subspace is the subspace of cPCA*
at another beta. The automatic beta of cPCA* corresponds to r = 0.25. "Within" subtracts the mean of
each unit from both datasets. PCA++ takes rows of the same mouse, or of the same compound and
concentration, as pairs. Missing values are replaced by the foreground's means, except for PCPCA and
CLVM, which accept them. SparseCPCA and CLVM are fitted for up to 5 components, and PCPCA for up to
20 (5 with missing values), because fits of more components take too long. A dash means that a fit
takes too long, or that a method does not have so many components. CLVM has as many shared as
salient variables.

The advice of `contrast_report`, which uses no labels, is then compared with these figures. Each
number of components on each dataset with an effect is called a place. In at least 80% of the places
the figure of the advised method must be within 0.02 of the best of the four methods that can be
advised. For each kind of dataset without an effect, the advice must be "nothing to find" in at
least 19 of 20 random draws.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.common.measures import centred
from contrast_core import (
    CLVM,
    CPCA,
    PCPCA,
    CPCAStar,
    PCAPlusPlus,
    SecondMoments,
    SparseCPCA,
    permutation_test,
)
from contrast_core.significance import contrast_advice
from validation._real_data import LabelledDataset, nulls, tasks

COMPONENTS = (1, 2, 3, 5, 10, 20, 50)
ALPHAS = np.append(0.0, np.logspace(-1, 3, 9))
RIDGES = (0.01, 0.1, 1.0)
BEST = "cPCA, best alpha"
NEIGHBOURS, CEILING = "all features, neighbours", "all features, with labels"
TAKE_GAPS = ("PCPCA", "CLVM")  # methods that accept missing values
WITHIN = ("PCA", "cPCA", "cPCA*")  # methods that are also fitted to data centred within units

PAGE = Path(__file__).resolve().parents[1] / "docs" / "track_record.md"
ADVISED = {"PCA": "PCA", "cPCA": "cPCA", "cPCA*": "cPCA*", "whitening": "whitening 0.1"}
N_DEALS = 20  # number of random draws of each kind of dataset without an effect
MOST_FOLDS = 9
CLOSE = 0.02  # largest distance from the best method's figure at which advice counts as good

Scores = dict[str, dict[int, Any]]  # method -> number of components -> score of each unit
Fit = Callable[[int], Any]  # maps a number of components to an object with `transform`


class Truncated:
    """The first k components of a fitted method."""

    def __init__(self, fitted: Any, k: int) -> None:
        self.components, self.mean = fitted.components_[:k], fitted.mean_

    def transform(self, rows: Any) -> Any:
        """Return the scores of rows."""
        return (rows - self.mean) @ self.components.T


def nested(fit: Callable[[], Any]) -> Fit:
    """Fit a method once, and take its first k components for each k.

    This is valid for methods whose first k components do not depend on how many are fitted.
    """
    once = cache(fit)
    return lambda k: Truncated(once(), k)


def methods(rows: Any, background: Any, replicates: Any) -> dict[str, Fit]:
    """Return for each method a function that fits it to the datasets of a fold."""
    whole = not (np.isnan(rows).any() or np.isnan(background).any())
    x, y = (SecondMoments.from_data(part) for part in filled(rows, background))
    given = (x, y) if whole else (rows, background)
    most = min(COMPONENTS[-1], x.n_features)

    def star(beta: float | str) -> Fit:
        return nested(lambda: CPCAStar(most, beta=beta).fit(x, background=y))

    def cpca(alpha: float) -> Fit:
        return nested(lambda: CPCA(most, alpha=alpha).fit(x, background=y))

    variance = y.total_variance / x.n_features
    every: dict[str, Fit] = {"PCA": cpca(0.0), "cPCA": lambda k: CPCA(k).fit(x, background=y)}
    every["cPCA*"] = star("auto")
    every |= {f"whitening {ridge:g}": star(1 / (1 + ridge * variance)) for ridge in RIDGES}
    every |= {
        "PCPCA": lambda k: PCPCA(_up_to(k, 20 if whole else 5)).fit(given[0], background=given[1]),
        "SparseCPCA": lambda k: SparseCPCA(_up_to(k, 5)).fit(x, background=y),
        "CLVM": lambda k: CLVM(n_shared=_up_to(k, 5), n_salient=k, tol=1e-4).fit(
            given[0], background=given[1]
        ),
    }
    if replicates is not None and whole:
        first, second = pairs(replicates)
        every["PCA++"] = lambda k: PCAPlusPlus(k).fit(rows[first], positive=rows[second])
    return every | {f"{BEST} {alpha:g}": cpca(alpha) for alpha in ALPHAS}


def filled(rows: Any, *others: Any) -> tuple[Any, ...]:
    """Replace missing values by the means of the first dataset."""
    means = np.nanmean(rows, axis=0)
    return tuple(np.where(np.isnan(part), means, part) for part in (rows, *others))


def _up_to(k: int, most: int) -> int:
    if k > most:
        raise ValueError(f"{k} components take too long here")
    return k


def pairs(samples: Any) -> tuple[Any, Any]:
    """Return each row with the next row of the same sample."""
    order = np.argsort(samples, kind="stable")
    same = samples[order][1:] == samples[order][:-1]
    return order[:-1][same], order[1:][same]


def accuracies(
    rule: Any, train: Any, test: Any, labels: Any, truth: Any, units: Any
) -> list[float]:
    """Return the share of each unit's test rows that a rule classifies correctly."""
    right = rule.fit(train, labels).predict(test) == truth
    return [float(right[units == unit].mean()) for unit in np.unique(units)]


def scores(task: LabelledDataset) -> Scores:
    """Leave out units in turn, and return the accuracy of every method on each of them."""
    found: dict[str, dict[int, list[float]]] = {}
    folds = task.folds
    if folds is None:
        folds = np.unique(task.units, return_inverse=True)[1] % MOST_FOLDS
    forms = {"": (task.foreground, task.background)}
    if task.within:
        forms[" within"] = (
            centred(task.foreground, task.units),
            centred(task.background, task.background_units),
        )
    for fold in np.unique(folds):
        new = folds == fold
        rest = ~np.isin(task.background_units, task.units[new])
        answers = task.labels[~new], task.labels[new], task.units[new]
        n_labels = len(np.unique(answers[0]))
        rule = LinearDiscriminantAnalysis(priors=np.full(n_labels, 1 / n_labels))
        for form, (front, back) in forms.items():
            rows, test = front[~new], front[new]
            whole = filled(rows, test)
            replicates = None if task.replicates is None else task.replicates[~new]
            fits = methods(rows, back[rest], replicates)
            for name in WITHIN if form else fits:
                for k in COMPONENTS:
                    if k > rows.shape[1]:
                        continue
                    try:
                        model = fits[name](k)
                    except ValueError:  # so many components do not exist, or take too long
                        continue
                    parts = (rows, test) if name in TAKE_GAPS else whole
                    right = accuracies(rule, *map(model.transform, parts), *answers)
                    found.setdefault(name + form, {}).setdefault(k, []).extend(right)
        with_labels = clone(rule).set_params(solver="lsqr", shrinkage="auto")
        whole = filled(task.foreground[~new], task.foreground[new])
        for name, every in ((NEIGHBOURS, KNeighborsClassifier(15)), (CEILING, with_labels)):
            right = accuracies(every, *whole, *answers)
            for k in COMPONENTS:
                found.setdefault(name, {}).setdefault(k, []).extend(right)
    arrays = {name: {k: np.array(v) for k, v in of.items()} for name, of in found.items()}
    path = [arrays.pop(name) for name in list(arrays) if name.startswith(BEST)]
    return arrays | {BEST: {k: max((of[k] for of in path), key=np.mean) for k in path[0]}}


def interval(values: Any) -> float:
    """Return half of the 95% interval of a mean."""
    n = len(values)
    return float(student.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n))


def table_of(task: LabelledDataset, found: Scores) -> list[str]:
    """Return the lines of the table for a dataset."""
    order = [name for name in ("PCA", "PCA within", "cPCA", "cPCA within") if name in found]
    order += [name for name in ("cPCA*", "cPCA* within") if name in found]
    order += [name for name in found if name not in (*order, BEST, NEIGHBOURS, CEILING)]
    n_units, n_labels = len(found["PCA"][1]), len(np.unique(task.labels))
    data = f"**{task.name}**: {task.question}, {n_labels} labels, {n_units} units"
    lines = []
    for i, name in enumerate([*order, BEST, NEIGHBOURS, CEILING]):
        whole = name in (NEIGHBOURS, CEILING)
        cells = [
            f"{values.mean():.2f} ± {interval(values):.2f}"
            if (values := found[name].get(k)) is not None and not (whole and k > 1)
            else "–"
            for k in COMPONENTS
        ]
        lines.append(f"| {data if i == 0 else ''} | {name} | {' | '.join(cells)} |")
    return lines


def advice_of(task: LabelledDataset) -> tuple[Any, bool]:
    """Return the advice on a dataset, and whether there is anything to find.

    Both follow the procedure of `contrast_report`.
    """
    given: dict[str, Any] = {
        "background": task.background,
        "units": task.units,
        "background_units": task.background_units,
        "random_state": 0,
    }
    advice = contrast_advice(task.foreground, **given)
    found = advice.found
    try:
        test = permutation_test(CPCA(1), task.foreground, n_permutations=99, **given)
        found |= bool(test.n_significant())
    except ValueError:  # there are too few units to relabel
        pass
    return advice, found


def judged(task: LabelledDataset, found: Scores) -> tuple[str, str, list[bool]]:
    """Return the advice as a table row and in words, and whether it is good for each k.

    It is good if the figure of the advised method is within `CLOSE` of the best of the four.
    """
    advice, something = advice_of(task)
    close, cells = [], []
    for k, name in zip(advice.n_components.tolist(), advice.advised, strict=True):
        means = {each: found[ADVISED[each]][k].mean() for each in ADVISED}
        close.append(bool(means[name] >= max(means.values()) - CLOSE))
        cells.append(name + ("" if close[-1] else f" (−{max(means.values()) - means[name]:.2f})"))
    cells += ["–"] * (len(COMPONENTS) - len(cells))
    row = f"| {task.name} | {' | '.join(cells)} |"
    return row, f"- **{task.name}**: {advice.sentence(something)}", close


def methods_compared(found: dict[str, Scores]) -> list[str]:
    """Return a table of how often each method is close to the best of the four, for each k.

    Two lines that compare cPCA* with cPCA follow the table.
    """
    lines = [f"| always | {' | '.join(f'k = {k}' for k in COMPONENTS)} | all |"]
    lines.append("|---" * (len(COMPONENTS) + 2) + "|")
    for name in ADVISED.values():
        cells, total = [], np.zeros(2, dtype=int)
        for k in COMPONENTS:
            means = [
                {each: scores[each][k].mean() for each in ADVISED.values()}
                for scores in found.values()
                if k in scores["PCA"]
            ]
            close = sum(each[name] >= max(each.values()) - CLOSE for each in means)
            cells.append(f"{close} of {len(means)}")
            total += close, len(means)
        lines.append(f"| {name} | {' | '.join(cells)} | {total[0]} of {total[1]} |")
    star, plain = (
        np.array([values.mean() for scores in found.values() for values in scores[name].values()])
        for name in ("cPCA*", "cPCA")
    )
    gap = np.round(star - plain, 2)
    lines += [
        "",
        f"At the automatic strengths, cPCA\\* is better than cPCA by at least 0.01 in "
        f"{int((gap >= 0.01).sum())} of {len(gap)} places (largest difference {gap.max():.2f}), "
        f"and worse by at least 0.01 in {int((gap <= -0.01).sum())} (largest difference "
        f"{-gap.min():.2f}). The mean difference is {(star - plain).mean():+.3f}.",
    ]
    return lines


def main() -> int:
    folder = os.environ.get("CONTRAST_DATA")
    data, chosen = Path(folder) if folder else None, sys.argv[1:]
    columns = " | ".join(f"k = {k}" for k in COMPONENTS)
    rows = [f"| data | method | {columns} |", "|---" * (len(COMPONENTS) + 2) + "|"]
    advice = [f"| data | {columns} |", "|---" * (len(COMPONENTS) + 1) + "|"]
    words = ["", "In words:", ""]
    every: dict[str, Scores] = {}
    close: list[bool] = []
    for task in tasks(data):
        if chosen and not any(task.name.startswith(name) for name in chosen):
            continue
        found = scores(task)
        lines = table_of(task, found)
        rows += lines
        print("\n".join(lines), flush=True)
        if not task.null and not np.isnan(task.foreground).any():
            every[task.name] = found
            row, sentence, places = judged(task, found)
            advice.append(row)
            words.append(sentence)
            close += places
    held = f"within {CLOSE} of the best of the four in {sum(close)} of {len(close)} places"
    advice += [*words, "", "How often the advice was right:", ""]
    advice.append(f"- The advised method is {held}.")
    missed = sum(close) < 0.8 * len(close)
    for deal in nulls(data) if not chosen else []:
        tried = [deal(np.random.default_rng(seed)) for seed in range(N_DEALS)]
        silent = sum(not advice_of(task)[1] for task in tried)
        text = f'the advice is "nothing to find" in {silent} of {N_DEALS} random draws'
        advice.append(f"- {tried[0].name}: {text}.")
        missed |= silent < N_DEALS - 1
    compared = methods_compared(every) if every else []
    print("\n".join(["", *compared, "", *advice]), flush=True)
    print("\nNOT reached" if missed else "\nreached")
    if not chosen and data is not None:
        parts = {"COMPARED": compared, "ADVICE": advice, "TABLE": rows}
        text = PAGE.read_text(encoding="utf-8")
        for name, lines in parts.items():
            block = "\n".join([f"<!-- {name} -->", *lines, f"<!-- END {name} -->"])
            before, rest = text.split(f"<!-- {name} -->")
            text = before + block + rest.split(f"<!-- END {name} -->")[1]
        PAGE.write_text(text, encoding="utf-8")
    return int(missed)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
