"""Tests that the Python code in docs/ prints its output, and that the reference is complete."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if "```python" in page.read_text(encoding="utf-8") and "_build" not in page.parts
]
# The expected output of a Python block is in a text block directly below it.
BLOCK = re.compile(r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", re.M | re.S)
NUMBER = re.compile(r"-?\d+(?:\.(\d+))?(?:e[+-]?\d+)?")


def _says(printed: str, shown: str) -> bool:
    """Return whether the words are equal, and numbers differ by rounding only.

    Numbers may differ by two units of the last digit shown, but by at most 5%, because different
    builds of BLAS round differently.
    """
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", shown).split():
        return False
    pairs = zip(NUMBER.finditer(printed), NUMBER.finditer(shown), strict=True)
    return all(
        abs(float(one[0]) - float(two[0]))
        <= (min(2.01 * 10.0 ** -len(two[1]), 0.05 * abs(float(two[0]))) if two[1] else 0)
        for one, two in pairs
    )


def test_numbers_may_differ_by_two_units_of_the_last_digit() -> None:
    assert _says("a = 0.43, 7 rows", "a =  0.41, 7 rows")
    assert not _says("a = 0.44, 7 rows", "a = 0.41, 7 rows")
    assert not _says("0.04 of the error", "0.03 of the error")
    assert not _says("a = 0.41, 8 rows", "a = 0.41, 7 rows")
    assert not _says("b = 0.41, 7 rows", "a = 0.41, 7 rows")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_prints_the_output_that_the_page_shows(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = page.read_text(encoding="utf-8")
    code = "".join(code for code, _ in BLOCK.findall(text))
    for word, needed in {"scanpy_ext": "scanpy", "CVAE": "torch", ".posterior(": "nutpie"}.items():
        if word in code:
            pytest.importorskip(needed)
    monkeypatch.chdir(ROOT)
    namespace: dict[str, object] = {}
    for code, shown in BLOCK.findall(text):
        exec(compile(code, str(page), "exec"), namespace)
        printed = capsys.readouterr().out
        assert _says(printed, shown), f"{page.name} shows\n{shown}\nbut prints\n{printed}"


def test_the_benchmarks_named_on_pages_exist() -> None:
    for page in (*DOCS.rglob("*.md"), ROOT / "README.md"):
        if "_build" in page.parts:
            continue
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"`(?:python )?((?:benchmarks|papers|validation)/[\w./]+)", text):
            assert (ROOT / name.rstrip(".")).exists(), f"{page.name}: {name}"


def test_the_reference_has_every_public_name() -> None:
    pytest.importorskip("scanpy")
    listed: dict[str, set[str]] = {}
    for page in (DOCS / "api").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for module, names in re.findall(
            r"currentmodule:: (\S+)\n\n.*?toctree: generated\n\n(.*?)```", text, re.S
        ):
            listed.setdefault(module, set()).update(names.split())
    # These submodules have pages of their own.
    own_pages = {"datasets", "images", "pairing"}
    for module, names in listed.items():
        top = {name for name in names if "." not in name}
        assert top == set(importlib.import_module(module).__all__) - own_pages, module
        for name in names - top:
            part, own = name.split(".")
            assert own in importlib.import_module(f"{module}.{part}").__all__, name
    results = importlib.import_module("contrast_core.significance").__all__
    core = {name.split(".")[-1] for name in listed["contrast_core"]}
    assert set(results) <= core
