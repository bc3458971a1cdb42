"""Configure Sphinx. `scripts/docs.sh` builds the pages offline, with warnings as errors."""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes
from sphinx.domains.python import PyObject
from sphinx.ext.napoleon.docstring import NumpyDocstring

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
    # The sidebar opens only the section of the current page, so the pages are built faster.
    "collapse_navbar": True,
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
# If a docstring names a parameter without its type, the type is taken from the signature.
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
    """Leave out inherited members that are documented elsewhere.

    They are the members that scikit-learn adds to every estimator, the methods of tuples and
    exceptions, and the fields of named tuples, which the class lists as parameters.
    """
    inherited = getattr(member, "__objclass__", None) in (tuple, BaseException)
    field = type(member).__name__ == "_tuplegetter"
    of_sklearn = str(getattr(member, "__module__", "")).startswith("sklearn.")
    return skip or inherited or field or of_sklearn


def _signature(
    _app: Sphinx, _what: str, _name: str, obj: Any, _options: Any, args: str | None, result: Any
) -> tuple[str | None, Any]:
    """Leave out private parameters, and show the value of a constant instead of its name."""
    if not args:
        return args, result

    def shown(match: re.Match[str]) -> str:
        value = functools.reduce(getattr, match[1].split("."), sys.modules[obj.__module__])
        is_plain = isinstance(value, int | float | str | tuple)
        return f"={value!r}" if is_plain else f"={match[1].rpartition('.')[2]}"

    args = re.sub(r", _\w+=None", "", args)
    return re.sub(r"=((?:\w+\.)?_?[A-Z][A-Z_]+)\b", shown, args), result


def _returns_section(self: NumpyDocstring, _section: str) -> list[str]:
    """Return the section "Returns" as reST: paragraphs, and types with indented descriptions.

    Napoleon would take each line of a paragraph for a type of its own. Classes become links.
    """
    lines = self._dedent(self._consume_to_next_section())
    a_class = re.compile(r"((list|tuple) of )?[A-Z]\w+")
    lines = [
        re.sub(r"(\w+)$", r"`.\1`", line) if a_class.fullmatch(line) else line for line in lines
    ]
    return [":returns:", *self._indent(lines, 4), ""]


NumpyDocstring._parse_returns_section = _returns_section
# The class docstrings have a section "Attributes", and napoleon calls them variables.
for _field in PyObject.doc_field_types:
    if _field.name == "variable":
        _field.label = "Attributes"


def _slots(
    _app: Sphinx, _what: str, _name: str, _obj: object, _options: Any, lines: list[str]
) -> None:
    """Mark names of AnnData slots as code. As a reference, a name would lose its leading point.

    A line that ends with a backslash is joined with the next line, because a raw docstring keeps
    the backslash and the line break.
    """
    lines[:] = re.sub(r"(?<!\\)\\\n\s*", "", "\n".join(lines)).split("\n")
    for number, line in enumerate(lines):
        name, colon, kind = line.partition(" : ")
        if colon and name.strip().startswith("`."):
            lines[number] = name.replace("`", "``") + colon + kind


def _attributes(
    _app: Sphinx, _what: str, _name: str, _obj: object, _options: Any, lines: list[str]
) -> None:
    """Give each attribute its own field, and escape the underscore at the end of its name.

    Napoleon does neither: `alpha_, strength_ : float` would become `strength` of the type `alpha,`.
    It also writes several lines of the section "Raises" as one, which would run lists together.
    """
    lines[:] = [part for line in lines for part in line.split("\n")]
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


def _drop_return_type(_app: Sphinx, _domain: str, _objtype: str, content: nodes.Element) -> None:
    """Remove the annotation of the result, because the section "Returns" says more."""
    for fields in content.findall(nodes.field_list):
        names = [field[0].astext() for field in fields]
        for field, name in zip(list(fields), names, strict=True):
            if name == "rtype" and "returns" in names:
                fields.remove(field)


# Readable words for types that scanpy_ext names in its annotations.
_TYPES = {
    "Mask": "str | array of bool",
    "Level": "str | float | bool",
    "Levels": "str | float | bool | Iterable",
    "Default": "DEFAULT",
}


def _fields(_app: Sphinx, doctree: nodes.document) -> None:
    """Repair types and paragraphs in lists of parameters."""
    for node in list(doctree.findall(addnodes.pending_xref)):
        # In a type, a word such as n_features is the name of a number. It is not the attribute of
        # some class that has the same name.
        if node.get("reftype") == "class" and node["reftarget"].islower():
            node.replace_self(node.children)
    for text in list(doctree.findall(nodes.Text)):
        name = str(text).removeprefix("_select.")
        if isinstance(text.parent, nodes.emphasis | addnodes.pending_xref):
            text.parent.replace(text, nodes.Text(_TYPES.get(name, name)))
    for node in doctree.findall(addnodes.desc_annotation):
        short = re.sub(r"ndarray\[tuple\[Any, \.\.\.\], dtype\[\w+\]\]", "ndarray", node.astext())
        if short != node.astext():
            node.clear()
            node += nodes.Text(short)
    for body in list(doctree.findall(nodes.field_body)):
        # HTML does not allow lists in a paragraph.
        for paragraph in [child for child in body if isinstance(child, nodes.paragraph)]:
            if len(paragraph) and all(isinstance(child, nodes.Body) for child in paragraph):
                paragraph.replace_self(paragraph.children)


def _links_to_reference(
    _app: Sphinx, pagename: str, _template: str, context: dict[str, Any], _doctree: Any
) -> None:
    """Correct the links from source code to the reference.

    The extension viewcode assumes that all names of a file are documented in the same package. But
    `permutation_test` is in `contrast_core` and its result in `contrast_core.significance`.
    """
    if pagename.startswith("_modules/"):
        link = r"(generated/((?:\w+\.)+(\w+))\.html#)(?:\w+\.)+?(?=\3\b)\3"
        context["body"] = re.sub(link, r"\1\2", context["body"])


def setup(app: Sphinx) -> None:
    """Copy the notebooks into this folder and connect the handlers of Sphinx's events."""
    _copy_tutorials()
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _slots, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", _attributes, priority=600)  # after napoleon
    app.connect("object-description-transform", _drop_return_type, priority=600)  # after autodoc
    app.connect("doctree-read", _fields)
    app.connect("html-page-context", _links_to_reference)
