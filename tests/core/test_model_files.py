"""Tests of model files: they hold exact values, and damaged or foreign files are refused."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import contrast_core as cc
from contrast_core import CPCA, KernelCPCA, OnlineCPCAStar, SecondMoments, load, save
from contrast_core._model_files import _HOMES
from contrast_core.images import FrameBackgroundRemover, StructuredBackgroundRemover
from contrast_core.linalg import subspace_error
from contrast_core.moments import PairMoments
from tests.core.estimators import CASES
from tests.core.test_contract import data_for, planted

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")


X, Y = planted()
BOTH = np.vstack([X, Y])


def by_label() -> Any:
    labels = np.repeat(["treated", "control"], [len(X), len(Y)])
    return cc.ContrastByLabel(CPCA(), background="control").fit(BOTH, labels)


def precomputed() -> Any:
    return KernelCPCA(kernel="precomputed").fit(X @ BOTH.T, background=Y @ BOTH.T)


def streamed() -> Any:
    online = OnlineCPCAStar(learning_rate=1e-4)
    return online.partial_fit(np.vstack([X[:50], Y[:50]]), np.repeat([True, False], 50))


def fit(model: Any, n: int = 160, form: Callable[[Any], Any] = np.asarray) -> Any:
    return model.fit(form(X[:n]), background=form(Y[:n]))


MODELS: dict[str, Callable[[], Any]] = {
    case.name: lambda case=case: case.fit(*data_for(case)) for case in CASES
} | {
    "path": lambda: fit(CPCA()).path([0.0, 1.0])[1],
    "gram": lambda: fit(CPCA(solver="gram"), 9),
    "kernel": lambda: fit(KernelCPCA(alpha=2.0)),
    "kernel-sparse": lambda: fit(KernelCPCA(kernel="linear"), form=sp.csr_matrix),
    "kernel-precomputed": precomputed,
    "online": lambda: fit(OnlineCPCAStar(n_passes=2)),
    "online-stream": streamed,
    "by-label": by_label,
    "frames": lambda: fit(FrameBackgroundRemover((1, 12))),
    "remover": lambda: fit(StructuredBackgroundRemover()),
}


# Attributes that a file holds only if the model is saved with moments=True.
MOMENTS = ("foreground_moments_", "background_moments_", "_factor")


def fingerprints(holder: Any) -> dict[str, str]:
    """Return a hash of the type and of every bit of each attribute of a model or of moments."""
    # The hash includes strides, which a file does not keep. A copy has neither gaps nor a reversed
    # axis.
    return {
        name: joblib.hash(value.copy("K") if isinstance(value, np.ndarray) else value)
        for name, value in vars(holder).items()
    }


def without_moments(model: Any) -> dict[str, str]:
    skipped = (*MOMENTS, "estimator_", "plan_")
    return {name: found for name, found in fingerprints(model).items() if name not in skipped}


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_equals_the_saved_model_to_the_last_bit(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert type(again) is type(model)
    assert str(again) == str(model)
    assert without_moments(again) == without_moments(model)
    rows = X @ BOTH.T if name == "kernel-precomputed" else X
    scores = model.transform(rows)
    np.testing.assert_array_equal(again.transform(rows), scores)
    for verb in ("denoise", "remove_components"):
        if hasattr(model, verb):
            np.testing.assert_array_equal(getattr(again, verb)(rows), getattr(model, verb)(rows))
    if hasattr(model, "inverse_transform"):
        expected = model.inverse_transform(scores)
        np.testing.assert_array_equal(again.inverse_transform(scores), expected)
    assert list(tmp_path.iterdir()) == [tmp_path / "model"]


@pytest.mark.parametrize("kind", [CPCA, cc.CPCAStar, cc.PCPCA, KernelCPCA])
def test_saved_moments_give_models_at_other_strengths(kind: Any, tmp_path: Path) -> None:
    model = fit(kind())
    save(model, tmp_path / "small")
    save(model, tmp_path / "large", moments=True)
    small, large = load(tmp_path / "small"), load(tmp_path / "large")
    assert fingerprints(large) == fingerprints(model)
    np.testing.assert_array_equal(large.at(0.2).transform(X), model.at(0.2).transform(X))
    for one, same in zip(large.path([0.0, 0.1, 0.3]), model.path([0.0, 0.1, 0.3]), strict=True):
        np.testing.assert_array_equal(one.transform(X), same.transform(X))
    for call in (lambda: small.at(0.2), lambda: small.path(), lambda: small.path([0.0])):
        with pytest.raises(ValueError, match=rf"{kind.__name__} .* no moments.*moments=True"):
            call()
    assert small.strength_ == model.strength_
    assert not hasattr(small, "foreground_moments_")


def test_a_stream_continues_from_a_file(tmp_path: Path) -> None:
    rows, flags = np.vstack([X[50:90], Y[50:90]]), np.repeat([True, False], 40)
    model = streamed()
    save(model, tmp_path / "model")
    again = load(tmp_path / "model").partial_fit(rows, flags)
    assert fingerprints(again) == fingerprints(model.partial_fit(rows, flags))


def test_feature_names_and_the_output_format_are_restored(tmp_path: Path) -> None:
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
    assert members_of(tmp_path / "model")["model.json"].count(rb"\u00b5" + b"11") == 1


def test_files_of_wide_data_contain_neither_rows_nor_moments(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 30, 2000))
    model = CPCA(2).fit(X, background=Y)
    save(model, tmp_path / "model")
    # The file holds two components and the means of both datasets: four vectors of 2000 numbers.
    assert (tmp_path / "model").stat().st_size < 1.05 * 4 * 2000 * 8
    with pytest.raises(TypeError, match=r"foreground_moments_ is .*without moments=True, or fit"):
        save(model, tmp_path / "other", moments=True)
    assert not (tmp_path / "other").exists()
    formed = CPCA(2).fit(SecondMoments.from_data(X), background=SecondMoments.from_data(Y))
    save(formed, tmp_path / "other", moments=True)
    assert load(tmp_path / "other").at(1.0).strength_ == 1.0


def test_moments_of_wide_rows_within_donors_are_saved_as_matrices(tmp_path: Path) -> None:
    """Check that fits from the saved moments equal a fit of the covariances within donors."""
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


@pytest.mark.parametrize("kind", [SecondMoments, PairMoments])
def test_saved_moments_can_be_merged_later(kind: Any, tmp_path: Path) -> None:
    data = planted(160, 160)[: 1 if kind is SecondMoments else 2]
    parts = [kind.from_data(*(X[part] for X in data)) for part in (slice(70), slice(70, 160))]
    again = []
    for part in parts:
        save(part, tmp_path / "part")
        again.append(load(tmp_path / "part"))
        assert fingerprints(again[-1]) == fingerprints(part)
        assert (tmp_path / "part").stat().st_size < len(pickle.dumps(part)) + 800
    assert fingerprints(again[0].merge(again[1])) == fingerprints(parts[0].merge(parts[1]))


@pytest.mark.parametrize("dtype", [">f8", "<f4", "i1", ">i4", "bool", "f2"])
def test_arrays_keep_their_numbers_and_their_order_in_memory(dtype: str, tmp_path: Path) -> None:
    """Check the memory order too, which affects the rounding of products."""
    values = np.arange(6).reshape(2, 3).astype(dtype)
    model = fit(CPCA(alpha=1.0))
    model.mean_, model.components_ = values[0, ::2], np.asfortranarray(values)
    model.background_mean_ = values[0, :0]
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    for name in ("mean_", "components_", "background_mean_"):
        found, expected = getattr(again, name), getattr(model, name)
        assert found.dtype == np.dtype(dtype).newbyteorder("=")
        np.testing.assert_array_equal(found, expected)
    assert again.components_.flags.f_contiguous
    assert not again.components_.flags.c_contiguous
    assert again.components_.flags.writeable


def test_all_public_models_can_be_saved() -> None:
    public = {
        name
        for home in (cc, cc.images)
        for name in home.__all__
        if hasattr(getattr(home, name), "fit")
    }
    moments = {"SecondMoments", "PairMoments", "Plan"}
    assert public | moments == set(_HOMES)


class Mine(CPCA):
    pass


UNSAVED: list[tuple[Any, str]] = [
    (KernelCPCA(kernel=lambda a, b: float(a @ b)), "KernelCPCA.kernel is the function '<lambda>'"),
    (
        OnlineCPCAStar(random_state=np.random.default_rng(0), n_passes=1),
        r"OnlineCPCAStar\.random_state is a numpy\.random.*Generator.*Give the parameter",
    ),
    (Mine(), r"model is a .*\.Mine; expected one of 'CLVM', 'CPCA', 'CPCAStar'"),
    (
        KernelCPCA(kernel="rbf", kernel_params={"a": np.array([object()])}),
        r"KernelCPCA\.kernel_params\.a is an array of object",
    ),
]


@pytest.mark.parametrize(("model", "message"), UNSAVED)
def test_unsupported_values_are_refused_by_name(model: Any, message: str, tmp_path: Path) -> None:
    fit(model)
    with pytest.raises(TypeError, match=message):
        save(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_file_is_replaced_completely_or_not_at_all(tmp_path: Path, monkeypatch: Any) -> None:
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
        load(tmp_path / "nothing")


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_archive(path: Path, members: dict[str, Any], **options: Any) -> None:
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    ("message", "change"),
    [
        (r"has format 2, written by .* reads format 1", lambda h: h.update(format=2)),
        (r"is damaged.*'format'", lambda h: h.pop("format")),
        (
            r"holds 'os\.system', which this version",
            lambda h: h["model"].update({"class": "os.system"}),
        ),
        (r"holds 'CPCA2', .* 'CLVM', 'CPCA', ", lambda h: h["model"].update({"class": "CPCA2"})),
        (r"parameter\(s\) 'speed'", lambda h: h["model"]["parameters"].update(speed=3)),
        (r"'fit' of CPCA is not a fitted", lambda h: h["model"]["fitted"].update(fit=3)),
        (r"an array is of '\|O'", lambda h: h["arrays"][0].__setitem__(0, "|O")),
        (r"an array has shape \[-1\]", lambda h: h["arrays"][0].__setitem__(1, [-1])),
        (r"bytes has", lambda h: h["arrays"][0].__setitem__(1, [10**12])),
        (r"holds more values", lambda h: h["arrays"].pop()),
        (r"list index out of range", lambda h: h["model"]["fitted"].update(mean_={"array": 99})),
        (r"has an unknown kind", lambda h: h["model"]["fitted"].update(mean_={"eval": "1"})),
        (r"is damaged", lambda h: h.update(model=3)),
        (r"holds no model", lambda h: h.update(model={"names": 0}, names=[["a"]])),
        (r"is not fitted yet", lambda h: h["model"].update(fitted={})),
        (r"is damaged", lambda h: "[" * 100_000 + "]" * 100_000),
    ],
)
def test_a_changed_file_is_refused(message: str, change: Any, tmp_path: Path) -> None:
    save(MODELS["CPCA-1"](), tmp_path / "good")
    members = members_of(tmp_path / "good")
    header = json.loads(members["model.json"])
    text = change(header)
    members["model.json"] = text if isinstance(text, str) else json.dumps(header)
    write_archive(tmp_path / "changed", members)
    with pytest.raises(ValueError, match=rf"(?s)changed .*{message}"):
        load(tmp_path / "changed")


def test_sparse_rows_with_wrong_indices_are_refused(tmp_path: Path) -> None:
    model = MODELS["kernel-sparse"]()
    model.X_fit_.indices[5] = 10**6
    save(model, tmp_path / "model")
    with pytest.raises(ValueError, match=r"model is damaged.* indices"):
        load(tmp_path / "model")


@pytest.mark.parametrize("member", ["model.json", "arrays"])
def test_zip_bombs_are_refused_before_they_unpack(tmp_path: Path, member: str) -> None:
    save(MODELS["CPCA-1"](), tmp_path / "good")
    members = members_of(tmp_path / "good")
    members[member] = b" " * (2**28 + 1 - len(members[member])) + members[member]
    packed: Any = {"compression": zipfile.ZIP_DEFLATED, "compresslevel": 1}
    write_archive(tmp_path / "bomb", members, **packed)
    with pytest.raises(ValueError, match="larger when unpacked than a model file"):
        load(tmp_path / "bomb")


class Evil:
    """Object that makes a folder when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("evil",)


def test_files_that_could_run_code_are_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pickled").write_bytes(pickle.dumps(Evil()))
    np.savez(tmp_path / "arrays.npz", evil=np.array([Evil()], dtype=object))
    save(MODELS["CPCA-0"](), "good")
    for extra in ("evil.pkl", "model.json"):
        Path(f"with {extra}").write_bytes(Path("good").read_bytes())
        with zipfile.ZipFile(f"with {extra}", "a") as archive:
            # Without this line, zipfile would warn about a second member of the same name.
            archive.NameToInfo.pop(extra, None)
            archive.writestr(extra, pickle.dumps(Evil()))
    for name, message in [
        ("pickled", "not a model file, or it is damaged .* Pickles are refused"),
        ("arrays.npz", r"is an archive of 'evil\.npy', not a model file: expected 'model\.json'"),
        ("with evil.pkl", r"is an archive of 'arrays', 'evil\.pkl', 'model\.json'"),
        ("with model.json", r"is an archive of 'arrays', 'model\.json', 'model\.json'"),
    ]:
        with pytest.raises(ValueError, match=message):
            load(name)
    assert not Path("evil").exists()


def test_every_truncation_and_a_flipped_bit_of_each_byte_is_detected(tmp_path: Path) -> None:
    model = CPCA(1, alpha=1.0).fit([[1.0, 2.0], [2.0, 1.0]], background=[[0.0, 1.0], [1.0, 1.0]])
    save(model, tmp_path / "good")
    good = (tmp_path / "good").read_bytes()
    damaged = tmp_path / "damaged"
    for length in range(len(good)):
        damaged.write_bytes(good[:length])
        with pytest.raises(ValueError, match=r"not a model file|is damaged"):
            load(damaged)
    for place, bit in zip(range(len(good)), cycle((1, 16, 128)), strict=False):
        damaged.write_bytes(good[:place] + bytes([good[place] ^ bit]) + good[place + 1 :])
        try:
            # Bits of the archive's dates and attributes do not change the model.
            again = load(damaged)
        except ValueError:
            continue
        assert without_moments(again) == without_moments(model)
