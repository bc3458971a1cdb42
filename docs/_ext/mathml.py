"""Formulas as MathML, which browsers draw themselves: no script is fetched when a page is read."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

_log = logging.getLogger(__name__)
# Matches the invisible operator between a function's name, such as tr, and an argument without
# brackets. Browsers put no space there, so `_mathml` adds one.
_AFTER_FUNCTION = re.compile(r"(<mo>&ApplyFunction;</mo>)(?!\s*<mo[^>]*>[(\[])")
# Matches the end of a factor that stands before the name of a function, as in `n tr C`.
_BEFORE_FUNCTION = re.compile(
    r"(</(?:mi|mn|msub|msup|msubsup)>|[)\]]</mo>)(?=\s*<mi[^>]*>[A-Za-z]{2,}</mi>)"
)
# Matches a letter with an accent and an index, such as `\hat w_i`. docutils puts the index below
# the letter, as the limit of a sum.
_ACCENT_AND_INDEX = re.compile(
    r"<munderover>\s*(<mi>\w</mi>)\s*(<m([a-z]+)>(?:(?!<m\3>).)*?</m\3>)\s*(<mo[^>]*>[^<]*</mo>)"
    r"\s*</munderover>",
    re.DOTALL,
)


def _mathml(node: nodes.Element, *, as_block: bool) -> str:
    try:
        formula = str(tex2mathml(node.astext(), as_block=as_block))
    except MathError as error:
        _log.warning("formula %r: %s", node.astext(), error, location=node)
        return f"<code>{node.astext()}</code>"
    formula = _ACCENT_AND_INDEX.sub(r"<msub><mover>\1\4</mover>\2</msub>", formula)
    # Browsers would stretch the bars of a norm to the height of the whole formula.
    formula = formula.replace("<mo>‖</mo>", '<mo stretchy="false">‖</mo>')
    for place in (_AFTER_FUNCTION, _BEFORE_FUNCTION):
        formula = place.sub(r'\1<mspace width="0.17em"/>', formula)
    return formula


def _inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def _block(self: HTML5Translator, node: nodes.math_block) -> None:
    # A blank line within a directive separates two formulas.
    for formula in node.astext().split("\n\n"):
        part = nodes.math_block(formula, formula)
        part.source, part.line = node.source, node.line
        self.body.append(f'<div class="math">{_mathml(part, as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the MathML renderer and select it for all pages."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
