"""Dense data in memory: the table of times against peers and against "just PCA".

    python benchmarks/speed.py            # everything, a quarter of an hour
    python benchmarks/speed.py path pca   # some of it: path, pca, kernel, pairs

CPU seconds on one BLAS thread, medians of three to nine, both sides of a ratio by turns in the same
process, so that a busy machine does not decide (10,000 x 10,000, which takes minutes: once). Memory
is what numpy allocates beyond the data at most, in a run of its own. `contrastive` 1.2.0 and
`pcpca` 0.4 are installed for the length of the run.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from contrast_path import errors
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import rbf_kernel
from threadpoolctl import threadpool_limits

from benchmarks.common.peers import peers
from contrast_core import (
    CPCA,
    PCPCA,
    ContrastWarning,
    CPCAStar,
    KernelCPCA,
    PCAPlusPlus,
    SecondMoments,
    contrast_path,
)
from contrast_core.linalg import add_products, leading_eigenpairs

N = 5000


class Row(NamedTuple):
    """One line of the table: a measured figure, and the bound that it must keep."""

    work: str
    figure: str
    bound: str
    reached: bool


def main(chosen: list[str]) -> int:
    parts = {"path": path_rows, "pca": pca_rows, "kernel": kernel_rows, "pairs": pair_rows}
    missed = 0
    print(f"{'work':<64}{'measured':<34}{'bound':<16}")
    for name in chosen or list(parts):
        for row in parts[name]():
            missed += not row.reached
            verdict = "" if row.reached else "  NOT REACHED"
            print(f"{row.work:<64}{row.figure:<34}{row.bound:<16}{verdict}", flush=True)
    print("all bounds reached" if not missed else f"{missed} bounds NOT REACHED")
    return int(missed > 0)


def path_rows() -> Iterator[Row]:
    """cPCA at the automatic contrast and over the whole path."""
    with peers() as (contrastive, pcpca, _):
        for n_features, wanted in ((500, 8.0), (1000, 15.0), (2000, 6.0)):
            X, Y = expression_like(n_features)
            peer = contrastive.CPCA(standardize=False)

            def ours(X: Any = X, Y: Any = Y) -> Any:
                path = contrast_path(X, background=Y)
                CPCA().fit(path.foreground, background=path.background)
                return path

            (slow, _), (fast, path) = medians(
                lambda peer=peer, X=X, Y=Y: peer.fit_transform(X, Y), ours
            )
            yield Row(
                f"automatic cPCA and 41 contrasts, D = {n_features}, contrastive",
                f"{slow:.2f} s / {fast:.2f} s = {slow / fast:.1f}",
                f"at least {wanted:g}",
                slow / fast >= wanted,
            )
            x, y = path.foreground.covariance, path.background.covariance
            some = slice(None, None, 1 if n_features < 1000 else 8)
            sine, relative = errors(x, y, path.alphas[some], path.components[some])
            yield Row(
                f"  largest sine to dense eigh, D = {n_features}",
                f"{sine:.1e}",
                "its own",
                relative <= 1,
            )
            large, small = peak(lambda peer=peer, X=X, Y=Y: peer.fit_transform(X, Y)), peak(ours)
            yield Row(
                f"  peak memory, D = {n_features}, contrastive",
                f"{large:.0f} MB / {small:.0f} MB = {large / small:.1f}",
                "",
                True,
            )
            if n_features == 500:
                yield from pcpca_rows(pcpca, X, Y)
    for n_features, wanted in ((500, 0.02), (2000, 0.5)):
        X, Y = expression_like(n_features)
        fitted = CPCA(alpha=1.0).fit(X, background=Y)
        [(again, _)] = medians(lambda fitted=fitted: fitted.at(17.0), repeats=9)
        yield Row(
            f"solving again at another contrast, D = {n_features}",
            f"{again * 1000:.0f} ms",
            f"at most {wanted * 1000:g} ms",
            again <= wanted,
        )
    star = CPCAStar(2, beta=0.5).fit(path.foreground, background=path.background)
    betas = 1 - 1 / (1 + np.logspace(-2, 2, 41))
    (solving, _), (lapack, _) = medians(
        lambda: star.path(betas.tolist()), lambda: leading_eigenpairs(x, 2)
    )
    yield Row(
        "41 proved betas of cPCA*, D = 2000, LAPACK at each",
        f"41 x {lapack:.2f} s / {solving:.2f} s = {41 * lapack / solving:.1f}",
        "at least 2",
        41 * lapack >= 2 * solving,
    )


def pcpca_rows(pcpca: Any, X: Any, Y: Any) -> Iterator[Row]:
    """PCPCA at one contrast; the peer takes centred features as rows."""
    x, y = (X - X.mean(axis=0)).T, (Y - Y.mean(axis=0)).T
    peer = pcpca.PCPCA(n_components=2, gamma=0.5)
    (slow, _), (fast, ours) = medians(
        lambda: peer.fit(x, y), lambda: PCPCA(2, gamma=0.5).fit(X, background=Y)
    )
    sine = np.sin(scipy.linalg.subspace_angles(peer.W_mle, ours.loadings_).max())
    yield Row(
        f"PCPCA at one contrast, D = {X.shape[1]}, pcpca",
        f"{slow:.2f} s / {fast:.2f} s = {slow / fast:.1f}",
        "",
        True,
    )
    yield Row("  sine to the peer's", f"{sine:.1e}", "at most 1e-7", sine <= 1e-7)


def pca_rows() -> Iterator[Row]:
    """One contrast as the price of just PCA."""
    X, Y = expression_like(2000)
    both = np.vstack([X, Y])
    pca = PCA(2, svd_solver="covariance_eigh")
    (plain, _), (ours, _) = medians(
        lambda: pca.fit(both), lambda: CPCA(alpha=1.0).fit(X, background=Y), repeats=5
    )
    yield Row(
        "CPCA(alpha=1), D = 2000, scikit-learn's PCA of all rows",
        f"{ours:.2f} s / {plain:.2f} s = {ours / plain:.2f}",
        "at most 1",
        ours <= plain,
    )
    rows, products = np.ascontiguousarray(X), np.zeros((2000, 2000))
    (limit, _), (moments, _) = medians(
        lambda: add_products(rows, products), lambda: SecondMoments.from_data(X), repeats=5
    )
    yield Row(
        "moments of 5000 x 2000, share of the measured syrk rate",
        f"{limit:.2f} s / {moments:.2f} s = {limit / moments:.0%}",
        "at least 60%",
        limit >= 0.6 * moments,
    )


def kernel_rows() -> Iterator[Row]:
    """A path of kernel contrasts against the paper's non-symmetric eigenproblem."""
    X, Y = (rows[:1000] for rows in expression_like(50))
    rows, gamma = np.vstack([X, Y]), 0.01

    def ours() -> None:
        fitted = KernelCPCA(2, alpha=1.0, kernel="rbf", kernel_gamma=gamma).fit(X, background=Y)
        contrast_path(fitted.foreground_moments_, background=fitted.background_moments_)

    centring = scipy.linalg.block_diag(*[np.eye(1000) - 1 / 1000] * 2)
    kernel = centring @ rbf_kernel(rows, gamma=gamma) @ centring

    def paper() -> None:  # one contrast; 41 take 41 times as long
        weights = np.concatenate([np.full(1000, 1 / 1000), np.full(1000, -1.0 / 1000)])
        scipy.linalg.eig(weights[:, None] * kernel)

    (fast, _), (slow, _) = medians(ours, paper)
    yield Row(
        "kernel path, N = 2000, 41 contrasts, non-symmetric form",
        f"41 x {slow:.2f} s / {fast:.2f} s = {41 * slow / fast:.0f}",
        "at least 30",
        41 * slow >= 30 * fast,
    )


def pair_rows() -> Iterator[Row]:
    """PCA++ against the plain generalised eigenproblem."""
    X, positive = paired(4000, 2000)

    def published() -> None:
        """The truncated inverse of S times S+, and its eigenvectors."""
        n = len(X)
        values, vectors = np.linalg.eigh(X.T @ X / n)
        kept = vectors[:, -100:]
        inverse = (kept / values[-100:]) @ kept.T
        np.linalg.eig(inverse @ ((X.T @ positive + positive.T @ X) / (2 * n)))

    literal = PCAPlusPlus(5, truncation=100, exchangeable=False)
    (plain, _), (ours, _) = medians(published, lambda: literal.fit(X, positive=positive), repeats=5)
    yield Row(
        "PCA++ from rows, D = 2000, s = 100, inverse(S) S+ by eig",
        f"{plain:.2f} s / {ours:.2f} s = {plain / ours:.1f}",
        "at least 6",
        plain >= 6 * ours,
    )
    X, positive = paired(10_000, 10_000)
    taken = {
        truncation: medians(
            lambda t=truncation: PCAPlusPlus(5, truncation=t).fit(X, positive=positive), repeats=1
        )[0][0]
        for truncation in ("auto", 100)
    }
    covariance = X.T @ X
    covariance.flat[:: len(covariance) + 1] += 1.0
    cross = X.T @ positive
    cross += cross.T
    top = len(covariance) - 1
    [(plain, _)] = medians(
        lambda: scipy.linalg.eigh(
            cross,
            covariance,
            subset_by_index=[top - 4, top],
            overwrite_a=True,
            overwrite_b=True,
            check_finite=False,
        ),
        repeats=1,
    )
    for truncation, ours in taken.items():
        # The noise has no gap behind the hundredth direction: there the covariance is decomposed.
        bounded = truncation == "auto"
        yield Row(
            f"PCA++ from rows, n = D = 10,000, k = 5, s = {truncation}, eigh(S+, S)",
            f"{ours:.1f} s / {plain:.1f} s = {ours / plain:.2f}",
            "less than 0.25" if bounded else "",
            not bounded or ours < 0.25 * plain,
        )


def expression_like(n_features: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows with a spectrum like that of expression data, and eight directions in X alone."""
    rng = np.random.default_rng(seed)
    spectrum = np.maximum(3 / np.sqrt(np.arange(1, n_features + 1)), 0.15)
    rotation = np.linalg.qr(rng.normal(size=(n_features, n_features)))[0]
    X = rng.normal(size=(N, n_features)) * spectrum
    Y = rng.normal(size=(N, n_features)) * spectrum * (1 + 0.2 * np.sin(np.arange(n_features)))
    extra = np.linalg.qr(rng.normal(size=(n_features, 8)))[0]
    X += rng.normal(size=(N, 8)) * np.linspace(3, 1, 8) @ extra.T
    return X @ rotation, Y @ rotation


def paired(n_pairs: int, n_features: int, seed: int = 0) -> tuple[Any, Any]:
    """Two views that share five directions; each has strong background in five others."""
    rng = np.random.default_rng(seed)
    signal = rng.normal(size=(n_pairs, 5)) * np.sqrt([50, 25, 20, 15, 10])
    views = []
    for _ in range(2):
        rows = rng.normal(size=(n_pairs, n_features))
        rows[:, :5] += signal
        rows[:, 5:10] += rng.normal(size=(n_pairs, 5)) * np.sqrt([500, 400, 300, 200, 100])
        views.append(rows)
    return views[0], views[1]


def medians(*calls: Callable[[], Any], repeats: int = 3) -> list[tuple[float, Any]]:
    """Median CPU seconds of each, by turns, and what it returned."""
    taken: list[list[float]] = [[] for _ in calls]
    results: list[Any] = [None] * len(calls)
    for _ in range(repeats):
        for i, call in enumerate(calls):
            start = time.process_time()
            results[i] = call()
            taken[i].append(time.process_time() - start)
    return [(float(np.median(t)), result) for t, result in zip(taken, results, strict=True)]


def peak(call: Callable[[], Any]) -> float:
    """What a call allocates at most, MB."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


if __name__ == "__main__":
    warnings.simplefilter("ignore", ContrastWarning)
    with threadpool_limits(1):
        sys.exit(main(sys.argv[1:]))
