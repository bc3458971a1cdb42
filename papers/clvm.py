"""CLVM: what maximum likelihood costs, and what it finds on the papers' data.

    python papers/clvm.py

CPU seconds of one thread, the best of three, with the moments. The optimum is what L-BFGS on the
likelihood, without expectation maximisation, ends at from a random start. Silhouettes are of the
salient posterior means with each axis scaled to unit sd.

Must reach: mouse, two shared and two salient variables, the subspace of the optimum to sine 0.01 in
0.2 s; 5000 + 5000 rows of 500 features in 1 s, to the same; a likelihood that never falls by more
than rounding; mouse silhouette 0.40 for 1 to 8 shared variables. Exactly the channels that carry
nothing of the activities left out in 16 of 20 sets of `make_motion_sensors` with the penalty chosen
automatically or by the horseshoe prior, in 18 at a good one; five of twenty shared dimensions found
by automatic relevance determination in every one of 36 sets from the model.

Missing values, mouse, Student's t for entries: silhouettes 0.40, 0.39, 0.37, 0.30 with 0, 25, 50,
75% removed beside what the data lack (means of ten masks), at 50% above cPCA of data filled with
means at its best alpha, at 75% by 0.03. Outliers, 400 + 400 rows of 40 features: sine to the
solution without them 0.08 with the matching Student's t, where the normal model is at 0.25 or more
(twenty bad rows, or 5% bad values).

Both at once and features to select: sensors of which a quarter of the values is missing and three
in a hundred are wrong, by 20: exactly the channels that carry nothing are left out in 16 of 20
sets. (By variational inference in three, without a bound: it takes longer.)

Variational inference, from the same start as expectation maximisation, to sine 0.07 or 128 passes:
at least eight times its CPU time.
"""

from __future__ import annotations

import sys
import time
import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits

from contrast_core import CLVM, CPCA, ContrastWarning
from contrast_core.datasets import load_mouse_protein, make_motion_sensors
from contrast_core.linalg import subspace_error
from contrast_core.probabilistic import _clvm_em as em
from contrast_core.rows import rows_of


def generated(n: int, d: int, size: float, seed: int = 0) -> tuple[Any, Any]:
    """Rows of the model with five shared and two salient dimensions and noise of variance 1."""
    rng = np.random.default_rng(seed)
    S, W = size * rng.normal(size=(5, d)), size * rng.normal(size=(2, d)) / 2
    X = rng.normal(size=(n, 5)) @ S + rng.normal(size=(n, 2)) @ W
    Y = rng.normal(size=(n, 5)) @ S
    return X + rng.normal(size=(n, d)), Y + rng.normal(size=(n, d))


def seconds(X: Any, Y: Any, **options: Any) -> tuple[CLVM, float]:
    times = []
    for _ in range(3):
        start = time.process_time()
        model = CLVM(**options).fit(X, background=Y)
        times.append(time.process_time() - start)
    return model, min(times)


def optimum(model: CLVM) -> tuple[Any, float]:
    """Salient subspace and log-likelihood, by L-BFGS from a random start."""
    k, t = model.n_shared, model.n_salient
    shape = model.n_features_in_, k + t
    problem = em.likelihood_problem(model.foreground_moments_, model.background_moments_, k)
    start = np.append(np.random.default_rng(1).normal(size=shape).ravel(), np.log(0.5))

    def loss(point: Any) -> tuple[float, Any]:
        at = em.Model(point[:-1].reshape(shape), float(np.exp(point[-1])))
        value, slope, _ = em.evaluate(at, problem)
        return -value, -np.append(slope.loadings.ravel(), slope.noise)

    options = {"maxiter": 20_000, "maxfun": 20_000, "gtol": 1e-11, "ftol": 0.0}
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    salient = best.x[:-1].reshape(shape)[:, k:]
    return np.linalg.qr(salient)[0].T, float(problem.log_likelihoods(np.array(-best.fun)))


def selections() -> list[str]:
    """Channels of the sensors, and shared dimensions; prints how often the right ones are found."""
    failures, seeds = [], range(20)
    print("\nsensors: sets in which exactly the six magnetometers are left out, of 20; longest fit")
    penalties: list[Any] = [8.0, 16.0, 32.0, 64.0, 128.0, "auto", "horseshoe"]
    for sparsity, least in zip(penalties, (0, 0, 18, 0, 0, 16, 16), strict=True):
        right, times = 0, []
        for seed in seeds:
            data = make_motion_sensors(random_state=seed)
            start = time.process_time()
            model = CLVM(n_shared=5, sparsity=sparsity)
            model.fit(data.foreground, background=data.background)
            times.append(time.process_time() - start)
            right += bool((model.selected_ == (np.arange(23) < 17)).all())
        print(f"  sparsity {sparsity!s:9s} {right:3d}   {max(times):.2f} s")
        if right < least:
            failures.append(f"sensors at sparsity {sparsity}: {right} of 20 < {least}")
    print("\nshared dimensions kept of 20 where there are 5, in 12 sets each")
    for n, d, size in ((1000, 50, 1.0), (200, 100, 1.0), (1000, 30, 0.5)):
        kept = []
        for seed in range(12):
            X, Y = generated(n, d, size, seed)
            model = CLVM(n_shared=20, ard=True).fit(X, background=Y)
            kept.append(model.shared_loadings_.shape[1])
        print(f"  {n} + {n} rows, {d} features: {kept}")
        if set(kept) != {5}:
            failures.append(f"relevance, {d} features: {kept}")
    return failures


def combinations() -> list[str]:
    """Few features, missing values and wrong ones; how many channels are left in or out wrongly."""
    failures = []
    print("\nspoilt sensors: channels that are wrongly left in or out, in each set; longest fit")
    ways: list[Any] = ["em", "vi"] if find_spec("torch") else ["em"]
    for inference in ways:
        wrong, times = [], []
        for seed in range(20 if inference == "em" else 3):
            data, rng = make_motion_sensors(random_state=seed), np.random.default_rng(seed)
            both = []
            for rows in (data.foreground.copy(), data.background.copy()):
                bad = rng.random(rows.shape) < 0.03
                rows[bad] += 20 * rng.normal(size=bad.sum())
                both.append(np.where(rng.random(rows.shape) < 0.25, np.nan, rows))
            start = time.process_time()
            model = CLVM(
                n_shared=5, sparsity="auto", robust="entries", inference=inference, random_state=0
            ).fit(both[0], background=both[1])
            times.append(time.process_time() - start)
            wrong.append(int((model.selected_ != (np.arange(23) < 17)).sum()))
        print(f"  {inference} {wrong}  {max(times):.1f} s")
        if inference == "em" and wrong.count(0) < 16:
            failures.append(f"spoilt sensors: {wrong.count(0)} of 20 < 16")
    return failures


def standardised(rows: Any) -> Any:
    return (rows - np.nanmean(rows, axis=0)) / np.nanstd(rows, axis=0)


def scaled_silhouette(scores: Any, labels: Any) -> float:
    return float(silhouette_score(scores / scores.std(axis=0), labels))


def removed() -> list[str]:
    failures, mice = [], load_mouse_protein(raw=True)
    print("\nmouse, share removed: silhouette, cPCA with means at its best alpha; seconds a fit")
    for share, least, margin in (
        (0, 0.40, None),
        (0.25, 0.39, None),
        (0.5, 0.37, 0.0),
        (0.75, 0.30, 0.03),
    ):
        own, filled, times = [], [], []
        for seed in range(10 if share else 1):
            rng = np.random.default_rng(seed)
            X, Y = (
                standardised(np.where(rng.random(rows.shape) < share, np.nan, rows))
                for rows in (mice.foreground, mice.background)
            )
            start = time.process_time()
            model = CLVM(robust="entries").fit(X, background=Y)
            times.append(time.process_time() - start)
            own.append(scaled_silhouette(model.transform(X), mice.labels))
            x = standardised(np.nan_to_num(X))
            cpca = CPCA().fit(x, background=standardised(np.nan_to_num(Y)))
            with warnings.catch_warnings():
                # Beyond the best alpha no contrast is positive.
                warnings.simplefilter("ignore", ContrastWarning)
                at_each = [cpca.at(alpha).transform(x) for alpha in np.geomspace(0.1, 1000, 25)]
            filled.append([scaled_silhouette(scores, mice.labels) for scores in at_each])
        mean, other = float(np.mean(own)), float(np.mean(filled, axis=0).max())
        print(f"  {share:4.0%} {mean:8.3f} {other:8.3f} {max(times):8.2f}")
        if mean < least:
            failures.append(f"{share:.0%} removed: {mean:.3f} < {least}")
        if margin is not None and not mean > other + margin:
            failures.append(f"{share:.0%} removed: {mean:.3f}, cPCA {other:.3f}")
    return failures


def outliers() -> list[str]:
    failures = []
    print("\noutliers: sine to the solution without; most of ten with t, least of ten without")
    for tails in ("rows", "entries"):
        sines = []
        for seed in range(10):
            rng = np.random.default_rng(seed)
            S, W = 1.5 * rng.normal(size=(2, 40)), rng.normal(size=(2, 40))
            Y = rng.normal(size=(400, 2)) @ S + rng.normal(size=(400, 40))
            X = rng.normal(size=(400, 2)) @ S + rng.normal(size=(400, 2)) @ W
            X += rng.normal(size=(400, 40))
            clean = CLVM().fit(X, background=Y).components_
            if tails == "rows":
                X[:20] += 15 * rng.normal(size=(20, 40))
            else:
                for rows in (X, Y):
                    bad = rng.random(rows.shape) < 0.05
                    rows[bad] += 20 * rng.normal(size=bad.sum())
            models = [CLVM(robust=robust).fit(X, background=Y) for robust in (tails, None)]
            sines.append([subspace_error(model.components_, clean) for model in models])
        robust, normal = np.max(sines, axis=0)[0], np.min(sines, axis=0)[1]
        print(f"  {tails:8s} {robust:.3f} {normal:.3f}")
        if robust > 0.08 or normal < 0.25:
            failures.append(f"outliers, {tails}: {robust:.3f}, {normal:.3f}")
    return failures


def to_sine(run: Any, optimum: Any, most: int) -> tuple[float, float]:
    """CPU seconds of the shortest of ever longer fits that comes to sine 0.07, and that sine."""
    limit = 1
    while True:
        start = time.process_time()
        loadings = run(limit)
        spent = time.process_time() - start
        sine = subspace_error(np.linalg.qr(loadings)[0].T, optimum)
        if sine <= 0.07 or limit >= most:
            return spent, sine
        limit *= 2


def inferences() -> list[str]:
    """Both ways from the same start."""
    try:
        import torch
    except ImportError:
        print("\nvariational inference: torch is not installed")
        return []
    from contrast_core.probabilistic._clvm_start import Start
    from contrast_core.probabilistic._clvm_variational import fit_variational

    torch.set_num_threads(1)
    failures, mouse = [], load_mouse_protein()
    print("\nto sine 0.07 from the same start: EM, variational (CPU s), sines, ratio")
    for name, (X, Y), k in (
        ("mouse", (mouse.foreground, mouse.background), 2),
        ("500 + 500 x 100", generated(500, 100, 0.5), 5),
    ):
        model = CLVM(n_shared=k).fit(X, background=Y)
        x, y = model.foreground_moments_, model.background_moments_
        problem = em.likelihood_problem(x, y, k)
        first = em.first_model(x, y, problem, 2)
        scale = first.noise**0.5
        means = np.array([x.mean, y.mean])
        varies = np.ones(len(x.mean), dtype=bool)
        unit = scale * problem.unit
        start = Start(*(first.loadings / scale, means, np.zeros(1), unit, 1 / scale, varies, means))

        def by_em(limit: int, problem: Any = problem, first: Any = first, k: int = k) -> Any:
            return em.fit_em(problem, first, tol=1e-9, max_iter=limit).model.loadings[:, k:]

        def by_vi(limit: int, X: Any = X, Y: Any = Y, start: Any = start, k: int = k) -> Any:
            options = {"max_passes": limit, "device": torch.device("cpu"), "progress": False}
            rng = np.random.default_rng(0)
            rows = rows_of(X), rows_of(Y)
            found = fit_variational(rows, start, k, "normal", None, False, rng=rng, **options)
            return found.loadings[:, k:]

        quick, sine = to_sine(by_em, model.components_, 4096)
        slow, other = to_sine(by_vi, model.components_, 128)
        ratio = slow / quick
        print(f"  {name:16s} {quick:8.3f} {slow:8.2f}  {sine:.3f} {other:.3f} {ratio:6.0f}")
        if ratio < 8 or sine > 0.07:
            failures.append(f"{name}: EM only {ratio:.1f} times as fast as variational inference")
    return failures


def main() -> int:
    failures = inferences()
    mouse = load_mouse_protein()
    X, Y = mouse.foreground, mouse.background
    print("data                k   t  CPU s  steps  sine to the optimum  largest fall  silhouette")
    for name, rows, k, t, bound in [
        *(("mouse", (X, Y), k, 2, 0.2 if k == 2 else None) for k in (1, 2, 4, 8, 20)),
        *(("5000 + 5000 x 500", generated(5000, 500, 0.5), k, 2, 1.0) for k in (2, 5, 10)),
    ]:
        model, spent = seconds(*rows, n_shared=k, n_salient=t)
        subspace, best = optimum(model)
        sine = subspace_error(model.components_, subspace)
        values = model.log_likelihoods_
        fall = -min(np.diff(values).min(), 0.0) / abs(best)
        line = f"{name:18s}{k:3d} {t:3d} {spent:6.3f} {model.n_iter_:6d} {sine:20.1e} {fall:13.1e}"
        if name == "mouse":
            scores = model.transform(X)
            silhouette = silhouette_score(scores / scores.std(axis=0), mouse.labels)
            line += f" {silhouette:11.3f}"
            if k <= 8 and silhouette < 0.40:
                failures.append(f"{name}, k = {k}: silhouette {silhouette:.3f} < 0.40")
        print(line)
        if sine > 0.01:
            failures.append(f"{name}, k = {k}: sine {sine:.1e} > 0.01")
        if fall > 1e-12:
            failures.append(f"{name}, k = {k}: the likelihood falls by {fall:.1e}")
        if bound is not None and spent > bound:
            failures.append(f"{name}, k = {k}: {spent:.2f} s > {bound} s")
    failures += selections()
    failures += removed()
    failures += outliers()
    failures += combinations()
    print("\n" + ("; ".join(["NOT REACHED", *failures]) if failures else "all bounds reached"))
    return bool(failures)


if __name__ == "__main__":
    with threadpool_limits(1):
        sys.exit(main())
