"""Models in files: the same to the last bit, small, whole or not there, and never run."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

import contrast_core
from contrast_core import (
    CPCA,
    PCPCA,
    ContrastByLabel,
    CPCAStar,
    KernelCPCA,
    OnlineCPCAStar,
    SecondMoments,
    load,
    save,
)
from contrast_core._model_files import _HOMES
from contrast_core.datasets import load_mouse_protein
from contrast_core.images import FrameBackgroundRemover, StructuredBackgroundRemover
from contrast_core.linalg import subspace_error
from contrast_core.moments import PairMoments
from tests.core.estimators import CASES
from tests.core.test_contract import data_for, planted

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")


def by_label() -> Any:
    X, Y = planted()
    labels = np.repeat(["treated", "control"], [len(X), len(Y)])
    return ContrastByLabel(CPCA(), background="control").fit(np.vstack([X, Y]), labels)


def precomputed() -> Any:
    X, Y = planted()
    rows = np.vstack([X, Y])
    kernel = rows @ rows.T
    n = len(X)
    return KernelCPCA(kernel="precomputed").fit(kernel[:n], background=kernel[n:])


def streamed() -> Any:
    X, Y = planted()
    online = OnlineCPCAStar(learning_rate=1e-4)
    return online.partial_fit(np.vstack([X[:50], Y[:50]]), np.repeat([True, False], 50))


MODELS: dict[str, Callable[[], Any]] = {
    case.name: lambda case=case: case.fit(*data_for(case)) for case in CASES
} | {
    "path": lambda: CPCA().fit(*planted()[:1], background=planted()[1]).path([0.0, 1.0])[1],
    "gram": lambda: CPCA(solver="gram").fit(planted()[0][:9], background=planted()[1][:8]),
    "kernel": lambda: KernelCPCA(alpha=2.0).fit(planted()[0], background=planted()[1]),
    "kernel-sparse": lambda: KernelCPCA(kernel="linear").fit(
        sp.csr_matrix(planted()[0]), background=sp.csr_matrix(planted()[1])
    ),
    "kernel-precomputed": precomputed,
    "online": lambda: OnlineCPCAStar(n_passes=2).fit(planted()[0], background=planted()[1]),
    "online-stream": streamed,
    "by-label": by_label,
    "frames": lambda: FrameBackgroundRemover((1, planted()[0].shape[1])).fit(
        planted()[0], background=planted()[1]
    ),
    "remover": lambda: StructuredBackgroundRemover().fit(planted()[0], background=planted()[1]),
}


def rows_for(name: str) -> Any:
    X, Y = planted()
    if name == "kernel-precomputed":
        return X @ np.vstack([X, Y]).T
    return X


@pytest.fixture(params=MODELS)
def fitted(request: pytest.FixtureRequest) -> tuple[str, Any]:
    return request.param, MODELS[request.param]()


def arrays_of(value: Any) -> Iterator[np.ndarray]:
    """All arrays that a model holds."""
    match value:
        case np.ndarray():
            yield value
        case dict():
            for one in value.values():
                yield from arrays_of(one)
        case tuple() | list():
            for one in value:
                yield from arrays_of(one)
        case sp.csr_matrix() | sp.csr_array():
            yield from (value.data, value.indices, value.indptr)
        case _ if is_dataclass(value):
            yield from arrays_of([getattr(value, field.name) for field in fields(value)])
        case _ if hasattr(value, "get_params"):
            yield from arrays_of(vars(value))


def distinct_bytes(model: Any, *, moments: bool = False) -> int:
    skipped = () if moments else ("foreground_moments_", "background_moments_", "_factor")
    state = {name: value for name, value in vars(model).items() if name not in skipped}
    found = {(a.ctypes.data, a.shape, a.strides): a.nbytes for a in arrays_of(state)}
    return sum(found.values())


def assert_identical(found: Any, expected: Any) -> None:
    """The same values of the same types, whatever holds them."""
    assert type(found) is type(expected) or isinstance(expected, np.generic)
    match expected:
        case np.ndarray() | np.generic():
            assert np.asarray(found).dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
        case sp.csr_matrix() | sp.csr_array():
            assert_identical(
                (found.data, found.indices, found.indptr, found.shape),
                (expected.data, expected.indices, expected.indptr, expected.shape),
            )
        case dict():
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                assert_identical(found[key], value)
        case tuple() | list():
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                assert_identical(one, other)
        case _ if hasattr(expected, "__dict__"):
            assert_identical(vars(found), vars(expected))
        case _:
            assert found == expected or found is expected


def without_moments(model: Any) -> dict[str, Any]:
    skipped = ("foreground_moments_", "background_moments_", "_factor", "estimator_", "plan_")
    return {name: value for name, value in vars(model).items() if name not in skipped}


def test_a_model_comes_back_to_the_last_bit(fitted: tuple[str, Any], tmp_path: Path) -> None:
    name, model = fitted
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert type(again) is type(model)
    assert str(again) == str(model)
    assert_identical(without_moments(again), without_moments(model))
    rows = rows_for(name)
    scores = model.transform(rows)
    np.testing.assert_array_equal(again.transform(rows), scores)
    for verb in ("denoise", "remove_components"):
        if hasattr(model, verb):
            np.testing.assert_array_equal(getattr(again, verb)(rows), getattr(model, verb)(rows))
    if hasattr(model, "inverse_transform"):
        expected = model.inverse_transform(scores)
        np.testing.assert_array_equal(again.inverse_transform(scores), expected)
    assert list(tmp_path.iterdir()) == [tmp_path / "model"]


@pytest.mark.slow
def test_a_new_process_reads_the_same_numbers(tmp_path: Path) -> None:
    for name, make in MODELS.items():
        model = make()
        save(model, tmp_path / f"{name}.model")
        np.save(tmp_path / f"{name}.rows.npy", rows_for(name))
        np.save(tmp_path / f"{name}.scores.npy", model.transform(rows_for(name)))
    code = (
        "import sys, pathlib, numpy as np; from contrast_core import load\n"
        "files = sorted(pathlib.Path(sys.argv[1]).glob('*.model'))\n"
        "for file in files:\n"
        "    rows = np.load(file.with_suffix('.rows.npy'))\n"
        "    scores = np.load(file.with_suffix('.scores.npy'))\n"
        "    assert (load(file).transform(rows) == scores).all(), file\n"
        "print(len(files))\n"
    )
    run = [sys.executable, "-c", code, str(tmp_path)]
    out = subprocess.run(run, check=True, capture_output=True, text=True, cwd=Path.cwd()).stdout
    assert out.split() == [str(len(MODELS))]


@pytest.mark.parametrize("strength", ["alpha", "beta", "gamma", "kernel"])
def test_with_moments_other_strengths_come_back_too(strength: str, tmp_path: Path) -> None:
    kind = {"alpha": CPCA, "beta": CPCAStar, "gamma": PCPCA, "kernel": KernelCPCA}[strength]
    X, Y = planted()
    model = kind().fit(X, background=Y)
    save(model, tmp_path / "small")
    save(model, tmp_path / "large", moments=True)
    small, large = load(tmp_path / "small"), load(tmp_path / "large")
    assert_identical(large, model)
    np.testing.assert_array_equal(large.at(0.2).transform(X), model.at(0.2).transform(X))
    for one, same in zip(large.path([0.0, 0.1, 0.3]), model.path([0.0, 0.1, 0.3]), strict=True):
        np.testing.assert_array_equal(one.transform(X), same.transform(X))
    for call in (lambda: small.at(0.2), lambda: small.path(), lambda: small.path([0.0])):
        with pytest.raises(ValueError, match=rf"{kind.__name__} .* no moments.*moments=True"):
            call()
    assert small.strength_ == model.strength_
    assert not hasattr(small, "foreground_moments_")


def test_a_stream_goes_on_from_a_file(tmp_path: Path) -> None:
    X, Y = planted()
    rows, flags = np.vstack([X[50:90], Y[50:90]]), np.repeat([True, False], 40)
    model = streamed()
    save(model, tmp_path / "model")
    again = load(tmp_path / "model").partial_fit(rows, flags)
    assert_identical(vars(again), vars(model.partial_fit(rows, flags)))


def test_names_and_output_come_back(tmp_path: Path) -> None:
    X, Y = (pd.DataFrame(a, columns=[f"µ{i}" for i in range(12)]) for a in planted())
    model = CPCA(alpha=np.inf).fit(X, background=Y[:5]).set_output(transform="pandas")
    save(model, tmp_path / "model", moments=True)
    again = load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.transform(X), model.transform(X))
    assert again.feature_names_in_.dtype == object
    assert again.foreground_moments_.feature_names == tuple(X.columns)
    assert again.alpha == again.alpha_ == np.inf
    with pytest.raises(ValueError, match="feature names should match"):
        again.transform(X[X.columns[::-1]])
    with zipfile.ZipFile(tmp_path / "model") as archive:
        assert archive.read("model.json").count(rb"\u00b5" + b"11") == 1


SIZED: dict[str, Callable[[], Any]] = {
    "CPCA": lambda: CPCA(),
    "CPCAStar": lambda: CPCAStar(),
    "PCPCA": lambda: PCPCA(),
    "KernelCPCA": lambda: KernelCPCA(),
    "OnlineCPCAStar": lambda: OnlineCPCAStar(n_passes=1),
    "StructuredBackgroundRemover": lambda: StructuredBackgroundRemover(),
}


@pytest.mark.parametrize("name", SIZED)
def test_files_are_as_small_as_what_they_hold(name: str, tmp_path: Path) -> None:
    mice = load_mouse_protein()
    model = SIZED[name]().fit(mice.foreground, background=mice.background)
    for moments in (False, True):
        save(model, tmp_path / "model", moments=moments)
        assert (tmp_path / "model").stat().st_size < 1.2 * distinct_bytes(model, moments=moments)


@pytest.mark.parametrize("name", ["PCAPlus", "PCAPlusPlus"])
def test_files_of_pairs_are_small_too(name: str, tmp_path: Path) -> None:
    X, positive = planted(300, 300, 90)
    model = getattr(contrast_core, name)().fit(X, positive=positive)
    save(model, tmp_path / "model")
    assert (tmp_path / "model").stat().st_size < 1.2 * distinct_bytes(model)


def test_wide_data_leave_neither_rows_nor_moments_in_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 30, 2000))
    model = CPCA(2).fit(X, background=Y)
    save(model, tmp_path / "model")
    assert (tmp_path / "model").stat().st_size < 1.05 * 4 * 2000 * 8
    with pytest.raises(TypeError, match=r"foreground_moments_ is .*without moments=True, or fit"):
        save(model, tmp_path / "other", moments=True)
    assert not (tmp_path / "other").exists()
    formed = CPCA(2).fit(SecondMoments.from_data(X), background=SecondMoments.from_data(Y))
    save(formed, tmp_path / "other", moments=True)
    assert load(tmp_path / "other").at(1.0).strength_ == 1.0


def test_moments_of_wide_rows_within_donors_are_saved_as_matrices(tmp_path: Path) -> None:
    """The path of the saved model is that of the covariances about the donors' means."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 30, 200))
    donors = np.repeat([0, 1, 2], [5, 10, 15])
    X += 5.0 * np.outer(donors, rng.normal(size=200))
    groups: Any = {"within": donors, "background_within": donors}
    model = CPCA(2, alpha=1.0).fit(X, background=Y, **groups)
    assert model.form_ == "span"
    save(model, tmp_path / "model", moments=True)
    again = load(tmp_path / "model")
    moments = again.foreground_moments_
    assert isinstance(moments, SecondMoments)
    assert moments.groups is not None and moments.groups.tolist() == [0, 1, 2]
    assert moments.group_weights is not None and moments.group_weights.tolist() == [5, 10, 15]
    expected = [X[donors == i].mean(axis=0) for i in range(3)]
    np.testing.assert_allclose(moments.group_means, expected, rtol=0, atol=1e-12)
    dense = CPCA(2, alpha=3.0, solver="eigh").fit(X, background=Y, **groups)
    for found in (again.at(3.0), *again.path([0.0, 3.0])[1:], *model.path([0.0, 3.0])[1:]):
        assert subspace_error(found.components_, dense.components_) < 1e-8
        np.testing.assert_allclose(found.mean_, dense.mean_, rtol=0, atol=1e-12)


def test_moments_are_saved_and_merged_later(tmp_path: Path) -> None:
    X, Y = planted(160, 160)
    for kind, data in ((SecondMoments, [X]), (PairMoments, [X, Y])):
        parts = [
            kind.from_data(*(rows[part] for rows in data)) for part in (slice(70), slice(70, 160))
        ]
        for i, part in enumerate(parts):
            save(part, tmp_path / f"part{i}")
        again = [load(tmp_path / f"part{i}") for i in (0, 1)]
        for one, part in zip(again, parts, strict=True):
            assert_identical(one, part)
        assert_identical(again[0].merge(again[1]), parts[0].merge(parts[1]))
        size = (tmp_path / "part0").stat().st_size
        assert size < sum(a.nbytes for a in arrays_of(parts[0])) + 800


def test_the_order_in_memory_comes_back(tmp_path: Path) -> None:
    """It decides the last bits of products."""
    covariance = np.asfortranarray(np.diag(np.arange(4.0)) + 1)
    moments = SecondMoments(3, np.arange(8.0)[::2], covariance)
    save(moments, tmp_path / "moments")
    again = load(tmp_path / "moments")
    assert again.covariance.flags.f_contiguous
    assert not again.covariance.flags.c_contiguous
    np.testing.assert_array_equal(again.covariance, covariance)
    np.testing.assert_array_equal(again.mean, moments.mean)
    assert again.covariance.flags.writeable


@pytest.mark.parametrize("dtype", [">f8", "<f4", "i1", ">i4", "bool", "f2"])
def test_arrays_of_every_kind_of_number(dtype: str, tmp_path: Path) -> None:
    values = np.array([0, 1, 1], dtype=dtype)
    model = MODELS["CPCA-auto"]()
    model.mean_, model.background_mean_ = values, values[:0]
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.mean_.dtype == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(again.mean_, values)
    assert again.background_mean_.shape == (0,)


def test_the_same_model_makes_the_same_file(tmp_path: Path) -> None:
    model = MODELS["CPCA-auto"]()
    for name in ("one", "two"):
        save(model, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_all_public_models_can_be_saved() -> None:
    public = {
        name
        for home in (contrast_core, contrast_core.images)
        for name in home.__all__
        if hasattr(getattr(home, name), "fit")
    }
    moments = {"SecondMoments", "PairMoments", "Plan"}
    assert public | moments == set(_HOMES)


class Mine(CPCA):
    pass


def test_what_a_file_cannot_hold_is_refused_by_name_and_nothing_is_written(tmp_path: Path) -> None:
    X, Y = planted()

    def product(a: Any, b: Any) -> float:
        return float(a @ b)

    generator = np.random.default_rng(0)
    for model, message in [
        (KernelCPCA(kernel=product), "KernelCPCA.kernel is the function 'product'"),
        (
            OnlineCPCAStar(random_state=generator, n_passes=1),
            r"OnlineCPCAStar\.random_state is a numpy\.random.*Generator.*Give the parameter",
        ),
        (Mine(), r"model is a .*\.Mine; expected one of 'CLVM', 'CPCA', 'CPCAStar'"),
        (
            KernelCPCA(kernel="rbf", kernel_params={"a": np.array([object()])}),
            r"KernelCPCA\.kernel_params\.a is an array of object",
        ),
    ]:
        model.fit(X, background=Y)
        with pytest.raises(TypeError, match=message):
            save(model, tmp_path / "model")
    with pytest.raises(TypeError, match=r"model is a builtins\.list; expected one of 'CLVM'"):
        save([CPCA()], tmp_path / "model")
    with pytest.raises(NotFittedError):
        save(CPCA(), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_file_is_replaced_as_a_whole_or_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"
    save(MODELS["CPCA-0"](), target)
    before = target.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(MODELS["CPCA-1"](), target)
    with pytest.raises(OSError, match="No space left"):
        save(MODELS["CPCA-1"](), tmp_path / "new")
    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]
    monkeypatch.undo()
    link = tmp_path / "link"
    link.symlink_to(target)
    save(MODELS["CPCA-1"](), str(link))
    assert link.is_symlink()
    assert load(target).alpha == 1.0
    with pytest.raises(FileNotFoundError):
        save(MODELS["CPCA-1"](), tmp_path / "no folder" / "model")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing")
