"""Compare times on dense data with other packages, and with the main computation alone.

Times are CPU seconds on one BLAS thread; short times are medians of three runs. The main
computation is an eigenproblem or matrix product. The two computations of a ratio alternate in the
same process, so that a busy machine does not distort it. The data of 10,000 x 10,000 and the wide
data with `contrastive` take minutes. `contrastive` 1.2.0 and `pcpca` 0.4 are installed for the
length of the run.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import scipy.linalg

from benchmarks.common.measures import seconds
from benchmarks.common.peers import installed
from benchmarks.common.report import Report, run
from contrast_core import CPCA, PCPCA, PCAPlusPlus, SecondMoments, contrast_path


def path(report: Report, contrastive: Any) -> None:
    """Time the path of 41 contrasts, which `contrastive` always computes, and one contrast."""
    sets = {
        "5000 + 5000 x 500": (expression_like(500), 8.0, 3),
        "1000 + 1000 x 20,000": (wide(), 8.0, 1),
    }
    for name, ((X, Y), least, repeats) in sets.items():
        (slow, _), (fast, _) = seconds(
            lambda x=X, y=Y: contrastive.CPCA(standardize=False).fit_transform(x, y),
            lambda x=X, y=Y: contrast_path(x, background=y),
            repeats=repeats,
        )
        report.measured(
            f"path of 41 contrasts, {name}, contrastive / ours", slow / fast, least=least
        )
        [(one, _)] = seconds(lambda x=X, y=Y: CPCA(alpha=1.0).fit(x, background=y))
        report.measured("  one contrast: seconds", one)


def likelihood(report: Report, pcpca: Any) -> None:
    """Time PCPCA with missing values. The package `pcpca` takes data with features as rows."""
    rng = np.random.default_rng(0)
    X, Y = (rng.normal(size=(500, 50)) for _ in range(2))
    for rows in (X, Y):
        rows[rng.random(rows.shape) < 0.3] = np.nan
    peer = pcpca.PCPCA(n_components=2, gamma=0.2)
    (slow, _), (fast, _) = seconds(
        lambda: peer.gradient_descent_missing_data(X.T, Y.T, n_iter=1, verbose=False),
        lambda: PCPCA(2, gamma=0.2).fit(X, background=Y),
    )
    what = "PCPCA, 500 + 500 x 50, 30% missing: our fit / one iteration of pcpca"
    report.measured(what, fast / slow)


def chunks(report: Report) -> None:
    """Time the moments of 50,000 x 2000 float32 values in chunks, from a plain loop and from dask.

    The lower limit is the time that BLAS needs for the symmetric products of these chunks. A few
    chunks are made once and used repeatedly, so that neither a disk nor a random generator is
    timed. Dask runs in the same process.
    """
    import dask.array as da
    from dask.delayed import delayed

    rng, size, n_chunks, few = np.random.default_rng(0), (4096, 2000), 13, 4
    pool = [rng.standard_normal(size, np.float32) + np.float32(3) for _ in range(4)]

    def products(rows: Any) -> None:
        out = np.zeros((size[1], size[1]), rows.dtype)
        for _ in range(few):
            out += rows.T @ rows

    def moments(precision: Any) -> Any:
        rows = (pool[i % len(pool)] for i in range(n_chunks))
        return SecondMoments.from_chunks(rows, precision=precision)

    # Each chunk is a separate task, as if it were read from a file, so that dask can free it.
    read = delayed(lambda i: pool[i % len(pool)], pure=False)
    lazy = da.concatenate([da.from_delayed(read(i), size, np.float32) for i in range(n_chunks)])
    doubles = pool[0].astype(np.float64)
    (limit, _), (plain, _), (by_dask, _), (limit_single, _), (single, _) = seconds(
        lambda: products(doubles),
        lambda: moments("double"),
        lambda: SecondMoments.from_data(lazy),
        lambda: products(pool[0]),
        lambda: moments("single"),
    )
    scale = n_chunks / few
    report.measured(
        "chunks: share of the speed of BLAS in float64", scale * limit / plain, least=0.6
    )
    share = scale * limit_single / single
    report.measured('chunks, precision="single": share of the speed in float32', share, least=0.6)
    report.measured("dask / the plain loop", by_dask / plain, most=1.1)


def pairs(report: Report) -> None:
    """Compare the time of PCA++ with the time of its generalised eigenproblem alone.

    The eigenproblem has two matrices: S+, the covariance between the two views of the pairs, and S,
    the covariance of the rows.
    """
    rng = np.random.default_rng(0)
    shared = 5 * rng.normal(size=(10_000, 5))
    X, positive = rng.normal(size=(2, 10_000, 10_000))
    X[:, :5] += shared
    positive[:, :5] += shared
    [(fast, _)] = seconds(lambda: PCAPlusPlus(5).fit(X, positive=positive), repeats=1)
    covariance, cross = X.T @ X, X.T @ positive
    covariance.flat[:: len(covariance) + 1] += 1.0
    cross += cross.T
    options = {"overwrite_a": True, "overwrite_b": True, "check_finite": False}
    top = [len(cross) - 5, len(cross) - 1]
    [(slow, _)] = seconds(
        lambda: scipy.linalg.eigh(cross, covariance, subset_by_index=top, **options), repeats=1
    )
    report.measured("PCA++ from rows, n = D = 10,000 / eigh(S+, S)", fast / slow, most=0.25)


def wide() -> tuple[Any, Any]:
    """Return rows with two shared directions, and two directions of the foreground alone."""
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(4, 20_000)) * (rng.random((4, 20_000)) < 0.05)
    X, Y = rng.normal(size=(2, 1000, 20_000))
    X += rng.normal(size=(1000, 4)) * [3.0, 2.0, 1.5, 1.0] @ directions
    Y += rng.normal(size=(1000, 2)) * [3.0, 2.0] @ directions[:2]
    return X, Y


def expression_like(n_features: int, n: int = 5000) -> tuple[Any, Any]:
    """Return X and Y with a spectrum like that of expression data.

    X also varies along eight more directions.
    """
    rng = np.random.default_rng(0)
    spectrum = np.maximum(3 / np.sqrt(np.arange(1, n_features + 1)), 0.15)
    rotation = np.linalg.qr(rng.normal(size=(n_features, n_features)))[0]
    X = rng.normal(size=(n, n_features)) * spectrum
    Y = rng.normal(size=(n, n_features)) * spectrum * (1 + 0.2 * np.sin(np.arange(n_features)))
    extra = np.linalg.qr(rng.normal(size=(n_features, 8)))[0]
    X += rng.normal(size=(n, 8)) * np.linspace(3, 1, 8) @ extra.T
    return X @ rotation, Y @ rotation


def main(report: Report) -> None:
    with installed("contrastive==1.2.0", "pcpca==0.4"):
        path(report, import_module("contrastive"))
        likelihood(report, import_module("pcpca"))
    chunks(report)
    pairs(report)


if __name__ == "__main__":
    run(main)
