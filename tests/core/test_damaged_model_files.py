"""Tests that damaged, foreign and malicious model files are refused, and never executed."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contrast_core import CPCA, load, save
from tests.core.test_model_files import MODELS, assert_identical, without_moments

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")


def rewritten(tmp_path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """Write a model file whose header was changed by `change`; return its path."""
    save(MODELS["CPCA-1"](), tmp_path / "good")
    with zipfile.ZipFile(tmp_path / "good") as good:
        header, arrays = json.loads(good.read("model.json")), good.read("arrays")
    text = change(header)
    text = text if isinstance(text, str) else json.dumps(header)
    with zipfile.ZipFile(tmp_path / "changed", "w") as changed:
        changed.writestr("model.json", text)
        changed.writestr("arrays", arrays)
    return tmp_path / "changed"


@pytest.mark.parametrize(
    ("message", "change"),
    [
        (r"has format 2, written by .* reads format 1", lambda h: h.update(format=2)),
        (r"has format '1'", lambda h: h.update(format="1")),
        (r"is damaged.*'format'", lambda h: h.pop("format")),
        (
            r"holds 'os\.system', which this version",
            lambda h: h["model"].update({"class": "os.system"}),
        ),
        (r"holds 'CPCA2', .* 'CLVM', 'CPCA', ", lambda h: h["model"].update({"class": "CPCA2"})),
        (r"holds 'principal_angles'", lambda h: h["model"].update({"class": "principal_angles"})),
        (r"parameter\(s\) 'speed'", lambda h: h["model"]["parameters"].update(speed=3)),
        (r"'fit' of CPCA is not a fitted", lambda h: h["model"]["fitted"].update(fit=3)),
        (r"'__class__' of CPCA is not", lambda h: h["model"]["fitted"].update(__class__=3)),
        (r"an array is of '\|O'", lambda h: h["arrays"][0].__setitem__(0, "|O")),
        (r"an array has shape \[-1\]", lambda h: h["arrays"][0].__setitem__(1, [-1])),
        (r"bytes has", lambda h: h["arrays"][0].__setitem__(1, [10**12])),
        (r"holds more values", lambda h: h["arrays"].pop()),
        (r"list index out of range", lambda h: h["model"]["fitted"].update(mean_={"array": 99})),
        (r"is of no known kind", lambda h: h["model"]["fitted"].update(mean_={"eval": "1"})),
        (r"is damaged", lambda h: h.update(model=3)),
        (r"holds no model", lambda h: h.update(model={"names": 0}, names=[["a"]])),
        (r"is not fitted yet", lambda h: h["model"].update(fitted={})),
        (r"is damaged", lambda h: h.update(model=None)),
        (r"is damaged", lambda h: "[" * 100_000 + "]" * 100_000),
    ],
)
def test_a_changed_file_is_refused(
    message: str, change: Callable[[dict[str, Any]], Any], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=rf"(?s)changed .*{message}"):
        load(rewritten(tmp_path, change))


def test_sparse_rows_with_wrong_indices_are_refused(tmp_path: Path) -> None:
    model = MODELS["kernel-sparse"]()
    model.X_fit_.indices[5] = 10**6
    save(model, tmp_path / "model")
    with pytest.raises(ValueError, match=r"model is damaged.* indices"):
        load(tmp_path / "model")


@pytest.mark.parametrize("member", ["model.json", "arrays"])
def test_zip_bombs_are_refused_before_they_unpack(tmp_path: Path, member: str) -> None:
    save(MODELS["CPCA-1"](), tmp_path / "good")
    with zipfile.ZipFile(tmp_path / "good") as good:
        members = {name: good.read(name) for name in ("model.json", "arrays")}
    members[member] = b" " * (2**28 + 1 - len(members[member])) + members[member]
    with zipfile.ZipFile(tmp_path / "bomb", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match="unpacks to more than a model file"):
        load(tmp_path / "bomb")


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("evil",)


def test_nothing_that_runs_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pickled").write_bytes(pickle.dumps(Evil()))
    np.savez(tmp_path / "arrays.npz", evil=np.array([Evil()], dtype=object))
    save(MODELS["CPCA-0"](), "good")
    for extra in ("evil.pkl", "model.json"):
        Path(f"with {extra}").write_bytes(Path("good").read_bytes())
        with zipfile.ZipFile(f"with {extra}", "a") as archive:
            # Without this line, zipfile would warn of a second member with the same name.
            archive.NameToInfo.pop(extra, None)
            archive.writestr(extra, pickle.dumps(Evil()))
    for name, message in [
        ("pickled", "not a model file, or it is damaged .* pickles are not"),
        ("arrays.npz", r"is an archive of 'evil\.npy', not a model file: expected 'model\.json'"),
        ("with evil.pkl", r"is an archive of 'arrays', 'evil\.pkl', 'model\.json'"),
        ("with model.json", r"is an archive of 'arrays', 'model\.json', 'model\.json'"),
    ]:
        with pytest.raises(ValueError, match=message):
            load(name)
    assert not Path("evil").exists()


def test_every_truncation_and_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    model = CPCA(1, alpha=1.0).fit([[1.0, 2.0], [2.0, 1.0]], background=[[0.0, 1.0], [1.0, 1.0]])
    save(model, tmp_path / "good")
    good = (tmp_path / "good").read_bytes()
    damaged = tmp_path / "damaged"
    for length in range(len(good)):
        damaged.write_bytes(good[:length])
        with pytest.raises(ValueError, match=r"not a model file|is damaged"):
            load(damaged)
    for place in range(len(good)):
        for bit in (1, 16, 128):
            damaged.write_bytes(good[:place] + bytes([good[place] ^ bit]) + good[place + 1 :])
            try:
                # Bits of the archive's dates and attributes do not change the model.
                again = load(damaged)
            except ValueError:
                continue
            assert_identical(without_moments(again), without_moments(model))
