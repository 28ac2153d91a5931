"""Mathematics as MathML, which browsers draw by themselves: no JavaScript, no network.

docutils, on which Sphinx is built, translates the LaTeX.
"""

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml


def inline(writer, node):
    """Write a formula within a sentence."""
    writer.body.append(tex2mathml(node.astext()))
    raise SkipNode


def block(writer, node):
    """Write a formula on a line of its own."""
    writer.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise SkipNode


def setup(app):
    """Register the renderer ``html_math_renderer = "mathml"``."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
