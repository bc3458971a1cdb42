"""Configure Sphinx. `scripts/docs.sh` builds the pages offline, with warnings as errors."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE / "_ext"), str(ROOT)]

import contrast_core  # noqa: E402  the path must be set first

project = "Contrast Suite"
author = "Contrast Suite developers"
copyright = f"2026, {author}"
version = release = contrast_core.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_design",
    "mathml",
]
exclude_patterns = ["_build", "tutorials/data"]
templates_path = ["_templates"]
html_theme = "sphinx_book_theme"
html_title = project
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "use_download_button": True,
    "navbar_end": [],
    "navbar_persistent": [],
}

# Notebooks are stored with their output, and the tests run them, so they are not run again here.
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_default_options = {"members": True, "inherited-members": True}
autodoc_member_order = "groupwise"
# Types of parameters that a docstring does not name are taken from the signature.
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
# torch is not part of a default installation, so the reference can be built without it.
autodoc_mock_imports = [name for name in ("torch",) if importlib.util.find_spec(name) is None]
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_preprocess_types = False
# Text in single backticks becomes a link if there is a target, and code otherwise.
default_role = "py:obj"
smartquotes = False
# Names in types, such as n_features, are also attributes of several classes, so Sphinx would warn
# that these references are ambiguous.
suppress_warnings = ["config.cache", "ref.python"]


def _copy_tutorials() -> None:
    """Copy the notebooks into this folder, because Sphinx reads only files below it."""
    target = HERE / "tutorials"
    target.mkdir(exist_ok=True)
    for old in target.glob("*.ipynb"):
        old.unlink()
    for notebook in (ROOT / "tutorials").glob("*.ipynb"):
        shutil.copy2(notebook, target)


def _skip(_app: Sphinx, _what: str, _name: str, member: object, skip: bool, _options: Any) -> bool:
    """Leave out the members that scikit-learn adds to every estimator and documents itself."""
    return skip or str(getattr(member, "__module__", "")).startswith("sklearn.")


def _slots(
    _app: Sphinx, _what: str, _name: str, _obj: object, _options: Any, lines: list[str]
) -> None:
    """Remove the code markup from names of AnnData slots, because bold text cannot contain code."""
    for number, line in enumerate(lines):
        name, colon, kind = line.partition(" : ")
        if colon and name.startswith("`."):
            lines[number] = name.replace("`", "").replace("*", r"\*") + colon + kind


def _attributes(
    _app: Sphinx, _what: str, _name: str, _obj: object, _options: Any, lines: list[str]
) -> None:
    """Give each attribute its own field, and escape the underscore at the end of its name.

    Napoleon does neither: `alpha_, strength_ : float` would become `strength` of the type `alpha,`.
    """
    fields: list[list[str]] = []  # each field is a list of its first line and the lines below
    for line in lines:
        if fields and line.startswith(" ") and fields[-1][0].startswith((":ivar", ":vartype")):
            fields[-1].append(line)
        else:
            fields.append([line])
    lines.clear()
    for first, *rest in fields:
        field = re.fullmatch(r":(ivar|vartype) ([^:]+):(.*)", first)
        for name in field[2].split(", ") if field else ():
            escaped = re.sub(r"_$", r"\\_", name)
            lines += [f":{field[1]} {escaped}:{field[3]}", *rest]
        if not field:
            lines += [first, *rest]


def setup(app: Sphinx) -> None:
    """Copy the notebooks into this folder and connect the handlers of autodoc's events."""
    _copy_tutorials()
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-docstring", _slots, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", _attributes, priority=600)  # after napoleon
