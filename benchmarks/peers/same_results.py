"""Do the packages of the papers' authors give the same subspaces, once conventions are converted?

On three data sets. Sines are of the largest principal angle; both sides round in double precision,
and the gaps are of the order of the eigenvalues. Then it shows where the peers depart from the
papers or from what a caller would expect. docs/coming_from.md has the conversions as a table.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from _packages import Package, quietly
from scipy.linalg import subspace_angles
from sklearn.decomposition import PCA

from benchmarks.common.measures import silhouette
from benchmarks.common.report import Report
from contrast_core import CPCA, PCPCA, CPCAStar, contrast_path
from contrast_core.datasets import digits_on_photos, load_mouse_protein, make_four_groups
from contrast_core.linalg import subspace_error

SINE, DIFFERENCE = 1e-7, 1e-8


def datasets() -> dict[str, tuple[Any, Any]]:
    mouse, groups, digits = load_mouse_protein(), make_four_groups(), digits_on_photos(1500)
    return {
        "mouse protein": (mouse.foreground, mouse.background),
        "four groups": (groups.foreground, groups.background),
        "digits on photographs": (digits.foreground, digits.background),
    }


def compare(report: Report, found: dict[str, Package]) -> None:
    """Sines of largest angles between our subspaces and theirs, and relative differences."""

    def sine(text: str, ours: Any, theirs: Any) -> None:
        report.measured(f"{text}: sine", subspace_error(ours, theirs), most=SINE)

    def difference(text: str, ours: Any, theirs: Any, bound: float = DIFFERENCE) -> None:
        apart = np.abs(ours - theirs).max() / np.abs(ours).max()
        report.measured(text, float(apart), most=bound)

    for name, (X, Y) in datasets().items():
        n, m = len(X), len(Y)
        x, y = (X - X.mean(axis=0)).T, (Y - Y.mean(axis=0)).T  # pcpca: (D, n), not centred for you
        print(f"\n{name}: n = {n}, m = {m}, D = {X.shape[1]}")
        ours = CPCA().fit(X, background=Y)
        for peer in (found[name] for name in ("contrastive", "contrastive-cv") if name in found):
            model = peer.module.CPCA(standardize=False)
            model.fit(X, Y)
            for alpha in (0.0, 0.5, 2.0, 20.0):
                converted = ours.at(alpha * (m / (m - 1)) / (n / (n - 1)))
                theirs = model.cpca_alpha(np.eye(model.features_d), alpha).T
                sine(f"{peer.name}, CPCA alpha={alpha:g}", converted.components_, theirs)
        scaled = [(part - part.mean(axis=0)) / part.std(axis=0) for part in (X, Y)]
        if np.linalg.matrix_rank(scaled[1]) < X.shape[1]:
            print("  rhopca: the background does not vary in every direction; see below")
        elif "rhopca" in found:
            star = CPCAStar(2, beta=1).fit(scaled[0], background=scaled[1])
            scores = quietly(lambda X=X, Y=Y: found["rhopca"].fit(X, Y, 2)(X))
            spans = (np.linalg.qr(z)[0].T for z in (star.transform(scaled[0]), scores))
            sine("rhopca, CPCAStar(beta=1) of data scaled apart", *spans)
        pca = PCA(2, svd_solver="full").fit(X)
        plain = PCPCA(gamma=0).fit(X, background=Y)
        sine("sklearn PCA against CPCA alpha=0", ours.at(0.0).components_, pca.components_)
        noise = pca.noise_variance_ * (n - 1) / n
        difference("sklearn PCA noise_variance_ (n-1)/n", plain.noise_variance_, noise)
        if "pcpca" not in found:
            continue
        pcpca = found["pcpca"].module
        for alpha in (0.0, 0.5, 2.0):
            other = pcpca.CPCA(n_components=2, gamma=alpha)
            other.fit(x, y)
            sine(f"pcpca.CPCA gamma={alpha:g}", ours.at(alpha).components_, other.W.T)
        model = PCPCA().fit(X, background=Y)
        for fraction in (0.0, 0.3, 0.9):
            mine = model.at(fraction * model.gamma_max_)
            other = pcpca.PCPCA(n_components=2, gamma=mine.gamma_ * n / m)
            scores = other.fit_transform(x, y)[0].T
            title = f"pcpca.PCPCA gamma={other.gamma:.3f} (gamma'={mine.gamma_:.3f})"
            sine(title, mine.components_, other.W_mle.T)
            difference(f"{title}: sigma^2", mine.noise_variance_, other.sigma2_mle)
            squares = (
                model_loadings @ model_loadings.T
                for model_loadings in (mine.loadings_, other.W_mle)
            )
            difference(f"{title}: W W^T", *squares)
            own = mine.transform(X)
            signs = np.sign((scores * own).sum(axis=0))
            difference(f"{title}: posterior means", own, scores * signs, SINE)


def generalized_loadings(package: ModuleType, method: str, X: Any, Y: Any) -> Any:
    """Unit directions of gcPCA as rows, the largest index first."""
    model = package.gcPCA(method=method, normalize_flag=False)
    quietly(lambda: model.fit(X, Y))
    return model.loadings_.T


def largest_and_smallest_in_turn(X: Any, Y: Any, limit: float, count: int) -> tuple[Any, Any]:
    """gcPCA's orthogonal components from ours: each time the datasets change places."""
    ends: tuple[list[Any], list[Any]] = [], []
    # On the directions of the span, which further removals must not change.
    values, vectors = np.linalg.eigh(sum(np.cov(part.T, bias=True) for part in (X, Y)))
    kept = vectors[:, values * limit >= values[-1]]
    X, Y = X @ kept, Y @ kept
    for i in range(count):
        foreground, background = (Y, X) if i % 2 else (X, Y)
        star = CPCAStar(1, beta=1, condition_limit=1e13).fit(foreground, background=background)
        ends[i % 2].append(kept @ star.components_[0])
        X, Y = (part - part @ star.components_.T @ star.components_ for part in (X, Y))
    return np.array(ends[0]), np.array(ends[1][::-1])


def compare_generalized(report: Report, package: ModuleType) -> None:
    """The same for gcPCA's index, method "v4", and its orthogonal form, "v4.1"."""

    def show(text: str, ours: Any, theirs: Any) -> None:
        sine = max(subspace_error(a[None], b[None]) for a, b in zip(ours, theirs, strict=True))
        report.measured(text, sine, most=SINE)

    mouse, groups = load_mouse_protein(), make_four_groups()
    for name, X, Y in (
        ("mouse protein", mouse.foreground, mouse.background),
        ("four groups", groups.foreground, groups.background),
        ("mouse protein, 50 + 50 rows", mouse.foreground[::5][:50], mouse.background[::2][:50]),
    ):
        X, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)  # not centred for you
        print(f"\n{name}: n = {len(X)}, m = {len(Y)}, D = {X.shape[1]}")
        d, limit = min(*X.shape, len(Y)), 1e13
        if d < X.shape[1]:  # theirs: the leading min(n, m, D) directions of both together
            pooled = np.linalg.eigvalsh(X.T @ X / len(X) + Y.T @ Y / len(Y))[::-1]
            limit = pooled[0] / np.sqrt(pooled[d - 1] * pooled[d])
        directions = generalized_loadings(package, "v4", X, Y)
        star = CPCAStar(len(directions), beta=1, condition_limit=limit).fit(X, background=Y)
        for part in (slice(0, 5), slice(-5, None)):
            text = f"gcPCA v4, five directions of the {'smallest' if part.start else 'largest'}"
            show(f"{text} index: sine", star.directions_[part], directions[part])
        orthogonal = generalized_loadings(package, "v4.1", X, Y)
        largest, smallest = largest_and_smallest_in_turn(X, Y, limit, 6)
        show("gcPCA v4.1, orthogonal, three largest: sine", largest, orthogonal[:3])
        show("gcPCA v4.1, orthogonal, three smallest: sine", smallest, orthogonal[-3:])


def departures_of_generalized(peer: Package) -> None:
    """Where gcPCA's package is not what a caller would expect."""
    mouse = load_mouse_protein()
    X, Y = (part - part.mean(axis=0) for part in (mouse.foreground, mouse.background))

    def first(X: Any, Y: Any, **options: Any) -> Any:
        model = peer.module.gcPCA(normalize_flag=False, **options)
        quietly(lambda: model.fit(X, Y))
        return model

    star = CPCAStar(1, beta=1, condition_limit=1e13).fit(X, background=Y)
    say(
        "gcPCA, objective_values_ compare sums, not variances: "
        f"{first(X, Y).objective_values_[0]:.3f} where n = 2 m; the index is "
        f"{star.contrast_index_[0]:.3f}"
    )
    few, all_ = (first(X, Y, method="v4.1", Ncalc=k).loadings_[:, 0] for k in (3, np.inf))
    say(
        "gcPCA, orthogonal with Ncalc=3: data are cut to three pooled directions; the first "
        f"component turns by a sine of {subspace_error(few[None], all_[None]):.2f}"
    )
    moved = first(X + 5.0, Y + 5.0).loadings_[:, 0]
    say(
        "gcPCA does not centre: all features moved by 5 turn the first direction by a sine of "
        f"{subspace_error(moved[None], star.directions_):.2f}"
    )


def say(text: str) -> None:
    print(f"  - {text}")


def departures_of_contrastive(peer: Package) -> None:
    """Where it, or its fork, is wrong, or not what the paper says."""
    contrastive, name = peer.module, peer.name
    X, Y = datasets()["mouse protein"]
    automatic = contrastive.CPCA(standardize=False)
    np.random.seed(0)  # noqa: NPY002 - its clustering draws from the global generator
    alphas = automatic.fit_transform(X, Y, return_alphas=True)[1]
    ours = contrast_path(X, background=Y).representative_alphas
    say(
        f"{name}, automatic: affinities between spans of the embedded data, not of feature "
        f"space, and the cluster of alpha=0 is dropped: {np.round(alphas, 3)}; Algorithm 2 gives "
        f"{np.round(ours, 3)}"
    )
    first = contrastive.CPCA(n_components=1, standardize=False)
    say(f"{name}, n_components=1, automatic: {outcome(lambda: first.fit_transform(X, Y))}")
    moved = contrastive.CPCA(standardize=False)
    scores = moved.fit_transform(X + 5.0, Y + 5.0, alpha_selection="manual", alpha_value=2.0)
    say(
        f"{name}, all features moved by 5: the scores of the foreground have the mean "
        f"{np.round(scores.mean(axis=0), 1)}, and by transform "
        f"{np.round(moved.transform(X + 5.0, 'manual', alpha_value=2.0).mean(axis=0), 1)}"
    )
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(60, 1100)), rng.normal(size=(1000, 1100))
    reduced = contrastive.CPCA(standardize=False)
    reduced.fit(*wide)
    say(
        f"{name}, more than 1000 features: reduced to 1000 by PCA of both pooled; transform then: "
        + outcome(lambda: reduced.transform(wide[0], alpha_selection="manual", alpha_value=1.0))
    )
    kernel = contrastive.Kernel_CPCA()
    say(
        f"{name}, Kernel_CPCA: "
        + outcome(lambda: kernel.fit_transform(X, Y, alpha_selection="manual", alpha_value=1.0))
    )
    zero = contrastive.CPCA(standardize=False)
    zero.fit(X, Y)
    say(
        f"{name}, alpha_value=0 (PCA): "
        + outcome(lambda: zero.transform(X, alpha_selection="manual", alpha_value=0))
    )


def departures_of_pcpca(peer: Package) -> None:
    """Where it is wrong, or not what the paper says."""
    pcpca = peer.module
    X, Y = datasets()["mouse protein"]
    x, y = (X - X.mean(axis=0)).T, (Y - Y.mean(axis=0)).T
    n, m = len(X), len(Y)
    end = PCPCA().fit(X, background=Y).gamma_max_
    for gamma in (0.9, 1.5):
        beyond = pcpca.PCPCA(n_components=2, gamma=gamma * n / m)
        quietly(lambda beyond=beyond: beyond.fit(x, y))
        say(
            f"pcpca, gamma'={gamma} of at most {end:.3f}: no error; sigma^2 = "
            f"{beyond.sigma2_mle:.3f}, W is {beyond.W_mle.dtype}"
        )
    # Variances 10, 5, 1 against 0, 0, 1: the valid range is gamma' < 1.
    axes = np.vstack([np.eye(3), -np.eye(3)]) * np.sqrt(3)
    fg, bg = axes * np.sqrt([10.0, 5.0, 1.0]), axes * [0.0, 0.0, 1.0]
    bound = pcpca.PCPCA(n_components=2).get_gamma_bound(fg.T, bg.T)
    exact = PCPCA().fit(fg, background=bg).gamma_max_
    say(
        "pcpca, get_gamma_bound starts the sum at d where Remark 1 starts at d + 1, and is on the "
        f"scale of gamma' while fit takes gamma: {bound:.2f} where the range ends at {exact:.2f}"
    )
    uncentred = pcpca.PCPCA(n_components=2, gamma=0.2 * n / m)
    uncentred.fit(X.T + 5.0, Y.T + 5.0)
    angle = subspace_angles(uncentred.W_mle, PCPCA(gamma=0.2).fit(X, background=Y).loadings_)[0]
    say(f"pcpca does not centre: all features moved by 5 give a sine of {np.sin(angle):.2f}")
    fitted = pcpca.PCPCA(n_components=2, gamma=0.2 * n / m)
    fitted.fit(x, y)
    say(f"pcpca, sample() returns {fitted.sample()}")


def departures_of_rho(rhopca: Package) -> None:
    """Where it is not what a caller would expect."""
    mice = load_mouse_protein()
    X, Y = mice.foreground, mice.background
    found = [
        silhouette(scores, mice.labels)
        for few in (Y, Y[:40])
        for scores in (
            quietly(lambda few=few: rhopca.fit(X, few, 2)(X)),
            CPCAStar().fit(X, background=few).transform(X),
        )
    ]
    say(
        "rhopca drops the directions in which the background does not vary, without a word: "
        f"silhouette of the mice {found[0]:.2f} with 135 background rows, {found[2]:.2f} with 40 "
        f"for 77 features (CPCAStar, automatic: {found[1]:.2f} and {found[3]:.2f})"
    )
    say("rhopca scales each dataset by its own standard deviations; new rows have no scores")


def outcome(call: Any) -> str:
    try:
        quietly(call)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "runs"


def main(report: Report, found: dict[str, Package]) -> None:
    compare(report, found)
    if "generalized_contrastive_PCA" in found:
        compare_generalized(report, found["generalized_contrastive_PCA"].module)
    print("\nwhere they depart")
    for name, depart in (
        ("contrastive", departures_of_contrastive),
        ("contrastive-cv", departures_of_contrastive),
        ("pcpca", departures_of_pcpca),
        ("generalized_contrastive_PCA", departures_of_generalized),
        ("rhopca", departures_of_rho),
    ):
        if name in found:
            depart(found[name])
