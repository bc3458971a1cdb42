"""Compare the suite with other published packages: `python benchmarks peers`.

The current versions of the packages are installed for the length of the run. The first part tests
whether the packages find the same subspaces as this suite after their parameters are converted as
described in docs/coming_from.md. The error is the sine of the largest principal angle. n and m are
the numbers of foreground and background rows, and D is the number of features. gamma' is the
parameter `gamma` of the suite, and gamma = gamma' n / m is the parameter of `pcpca`. The second
part measures the separation of known groups with all defaults. The third part prints the figures of
docs/coming_from.md that show where packages depart from the papers. `benchmarks/speed.py` compares
the times.
"""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from importlib.metadata import distributions
from io import StringIO
from typing import Any

import anndata
import numpy as np
import scipy.sparse as sp

from benchmarks.common.measures import accuracy, silhouette
from benchmarks.common.peers import installed
from benchmarks.common.report import Report, run
from contrast_core import CPCA, PCPCA, CPCAStar
from contrast_core.datasets import digits_on_photos, load_mouse_protein, make_four_groups
from contrast_core.linalg import subspace_error

# The key is the name on the package index. The values are the name of the module and the version
# that docs/coming_from.md describes. The fork contrastive-cv kept the name of the original module.
PACKAGES = {
    "contrastive": ("contrastive", "1.2.0"),
    "contrastive-cv": ("contrastive", "0.2.0"),
    "pcpca": ("pcpca", "0.4"),
    "generalized_contrastive_PCA": ("generalized_contrastive_PCA", "1.0.2"),
    "rhopca": ("rhopca.core", "0.1.0"),
}
SINE = 1e-7


def packages() -> dict[str, Any]:
    """Install the packages and return the module of each one that can be installed."""
    found = {}
    for name, (module, described) in PACKAGES.items():
        try:
            with installed(name) as folder:
                [version] = {each.version for each in distributions(path=[folder])}
                found[name] = import_module(module)
        except subprocess.CalledProcessError:
            print(f"{name} cannot be installed and is left out")
            continue
        note = "" if version == described else f"; docs/coming_from.md describes {described}"
        print(f"{name} {version}{note}")
    return found


def quietly(call: Callable[[], Any]) -> Any:
    """Return the result of a call, and suppress its output and warnings."""
    with warnings.catch_warnings(), redirect_stdout(StringIO()), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return call()


def centred(*sets: Any) -> list[Any]:
    return [rows - rows.mean(axis=0) for rows in sets]


def rho_scores(module: Any, X: Any, Y: Any) -> Any:
    """Return rhoPCA's two scores of the foreground's rows."""
    adata = anndata.AnnData(sp.csr_matrix(np.vstack([X, Y])))
    adata.obs["set"] = ["foreground"] * len(X) + ["background"] * len(Y)
    model = module.rhoPCA(adata, "set", "foreground", "background", n_GEs=2)
    quietly(model.fit)
    return model.target_proj


def fitted_gcpca(module: Any, X: Any, Y: Any) -> Any:
    model = module.gcPCA(normalize_flag=False, method="v4")
    quietly(lambda: model.fit(X, Y))
    return model


def same_subspaces(report: Report, found: dict[str, Any]) -> None:
    """Compare `contrastive`, `pcpca` and rhoPCA with the suite on three datasets."""

    def sine(text: str, ours: Any, theirs: Any) -> None:
        report.measured(f"{text}: sine", subspace_error(ours, theirs), most=SINE)

    for name, data in {
        "mouse protein": load_mouse_protein(),
        "four groups": make_four_groups(),
        "digits on photographs": digits_on_photos(1500),
    }.items():
        X, Y = data.foreground, data.background
        n, m = len(X), len(Y)
        x, y = (rows.T for rows in centred(X, Y))  # pcpca takes centred data of shape (D, n)
        print(f"\n{name}: n = {n}, m = {m}, D = {X.shape[1]}")
        ours = CPCA().fit(X, background=Y)
        for peer in ("contrastive", "contrastive-cv"):
            if peer in found:
                model = found[peer].CPCA(standardize=False)
                model.fit(X, Y)
                for alpha in (0.0, 0.5, 2.0, 20.0):
                    converted = ours.at(alpha * (m / (m - 1)) / (n / (n - 1)))
                    theirs = model.cpca_alpha(np.eye(model.features_d), alpha).T
                    sine(f"{peer}, CPCA alpha={alpha:g}", converted.components_, theirs)
        scaled = [rows / rows.std(axis=0) for rows in centred(X, Y)]
        if "rhopca" in found and np.linalg.matrix_rank(scaled[1]) == X.shape[1]:
            star = CPCAStar(2, beta=1).fit(scaled[0], background=scaled[1])
            scores = (star.transform(scaled[0]), rho_scores(found["rhopca"], X, Y))
            spans = (np.linalg.qr(each)[0].T for each in scores)
            sine("rhopca, CPCAStar(beta=1), sets scaled separately", *spans)
        if "pcpca" not in found:
            continue
        model = PCPCA().fit(X, background=Y)
        for fraction in (0.0, 0.3, 0.9):
            mine = model.at(fraction * model.gamma_max_)
            other = found["pcpca"].PCPCA(n_components=2, gamma=mine.gamma_ * n / m)
            scores = other.fit_transform(x, y)[0].T
            title = f"pcpca.PCPCA gamma={other.gamma:.3f} (gamma'={mine.gamma_:.3f})"
            sine(title, mine.components_, other.W_mle.T)
            own = mine.transform(X)
            for what, one, two in (
                ("sigma^2", mine.noise_variance_, other.sigma2_mle),
                ("W W^T", mine.loadings_ @ mine.loadings_.T, other.W_mle @ other.W_mle.T),
                ("posterior means", own, scores * np.sign((scores * own).sum(axis=0))),
            ):
                apart = float(np.abs(one - two).max() / np.abs(one).max())
                report.measured(f"{title}: {what}", apart, most=SINE)


def same_directions(report: Report, found: dict[str, Any]) -> None:
    """Compare the directions of gcPCA, method "v4", with the directions of CPCAStar."""
    if "generalized_contrastive_PCA" not in found:
        return
    package, mouse = found["generalized_contrastive_PCA"], load_mouse_protein()
    groups = make_four_groups()
    for name, *sets in (
        ("mouse protein", mouse.foreground, mouse.background),
        ("four groups", groups.foreground, groups.background),
        ("mouse protein, 50 + 50 rows", mouse.foreground[::5][:50], mouse.background[::2][:50]),
    ):
        X, Y = centred(*sets)  # gcPCA does not centre
        print(f"\n{name}: n = {len(X)}, m = {len(Y)}, D = {X.shape[1]}")
        d, limit = min(*X.shape, len(Y)), 1e13
        # gcPCA keeps the d = min(n, m, D) leading directions of the pooled data. This limit makes
        # CPCAStar keep the same directions.
        if d < X.shape[1]:
            pooled = np.linalg.eigvalsh(X.T @ X / len(X) + Y.T @ Y / len(Y))[::-1]
            limit = pooled[0] / np.sqrt(pooled[d - 1] * pooled[d])
        directions = fitted_gcpca(package, X, Y).loadings_.T
        star = CPCAStar(len(directions), beta=1, condition_limit=limit).fit(X, background=Y)
        for part, end in ((slice(0, 5), "largest"), (slice(-5, None), "smallest")):
            pairs = zip(star.directions_[part], directions[part], strict=True)
            sine = max(subspace_error(a[None], b[None]) for a, b in pairs)
            report.measured(
                f"gcPCA, five directions with {end} contrast index: sine", sine, most=SINE
            )


def default_views(name: str, module: Any, X: Any, Y: Any) -> list[Any]:
    """Return the embeddings of the foreground that a package computes with all its defaults."""
    if name.startswith("contrastive"):
        return module.CPCA().fit_transform(X, Y)
    if name == "pcpca":
        return [module.PCPCA().fit_transform(*(rows.T for rows in centred(X, Y)))[0].T]
    if name == "rhopca":
        return [rho_scores(module, X, Y)]
    if name == "generalized_contrastive_PCA":
        model = fitted_gcpca(module, X, Y)
        model.transform(X, Y)
        return [model.Ra_transformed_[:, :2]]
    return [CPCA().fit(X, background=Y).transform(X)]


def by_default(found: dict[str, Any]) -> None:
    """Print measures of the separation of known groups with all defaults.

    If a package returns several embeddings, the best one counts.
    """
    mice, digits = load_mouse_protein(), digits_on_photos(1500)
    print(f"\n{'all defaults':38}{'mice: silhouette':>20}{'digits: accuracy':>20}")
    for name, module in {"contrast_core": None, **found}.items():
        values = []
        for data, measure in ((mice, silhouette), (digits, accuracy)):
            sets = data.foreground, data.background
            views = quietly(lambda n=name, m=module, s=sets: default_views(n, m, *s))
            values.append(max(measure(view, data.labels) for view in views))
        print(f"{name:38}" + "".join(f"{value:20.3f}" for value in values), flush=True)


def departures(found: dict[str, Any]) -> None:
    """Print the figures of docs/coming_from.md that show where packages depart from the papers."""
    mice = load_mouse_protein()
    X, Y = mice.foreground, mice.background
    if "pcpca" in found:
        # The variances are 10, 5, 1 in the foreground and 0, 0, 1 in the background. With two
        # components the noise variance is proportional to 1 - gamma' * 1, the contrast along the
        # third feature. It is positive for gamma' < 1, which is the valid range.
        axes = np.vstack([np.eye(3), -np.eye(3)]) * np.sqrt(3)
        sets = axes * np.sqrt([10.0, 5.0, 1.0]), axes * [0.0, 0.0, 1.0]
        peer = found["pcpca"].PCPCA(n_components=2)
        bound = peer.get_gamma_bound(*(rows.T for rows in sets))
        exact = PCPCA().fit(sets[0], background=sets[1]).gamma_max_
        print(f"  pcpca: get_gamma_bound {bound:.2f}; the end of the range {exact:.2f}")
    if "generalized_contrastive_PCA" in found:
        sets = centred(X, Y)
        model = fitted_gcpca(found["generalized_contrastive_PCA"], *sets)
        star = CPCAStar(1, beta=1, condition_limit=1e13).fit(sets[0], background=sets[1])
        value, index = model.objective_values_[0], star.contrast_index_[0]
        print(f"  gcPCA with n = 2 m: objective_values_ {value:.3f}; contrast index {index:.3f}")
    for few in (Y, Y[:40]) if "rhopca" in found else ():
        value = silhouette(rho_scores(found["rhopca"], X, few), mice.labels)
        print(f"  rhopca, {len(few)} background rows of 77 features: silhouette {value:.2f}")


def main(report: Report) -> None:
    found = packages()
    same_subspaces(report, found)
    same_directions(report, found)
    by_default(found)
    departures(found)


if __name__ == "__main__":
    run(main)
