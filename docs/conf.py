"""Sphinx configuration: pydata theme, gallery of the examples, no network."""

import re
import warnings

import plml

project = "plml"
author = "The plml developers"
copyright = author
release = version = plml.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
exclude_patterns = ["_build", "symbols.md"]  # the symbols are a part of the mathematics
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
autosummary_generate = True
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "inherited-members": True}
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
html_theme = "pydata_sphinx_theme"
html_title = "plml"
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"**": ["sidebar-nav-bs"]}
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "plot_",
    "show_memory": False,
    "download_all_examples": False,
    "min_reported_time": 1e9,
}
# matplotlib's backend of the gallery cannot show windows, and says so.
warnings.filterwarnings("ignore", message=".*non-interactive.*")


#: Roles of scikit-learn's own documentation in docstrings that are inherited from it.
_ELSEWHERE = re.compile(r":(?:ref|term):`([^`<]+?)(?: *<[^>]*>)?`")


def formulas_as_they_are(app, what, name, obj, options, lines):
    """Indented lines behind a paragraph are formulas: shown literally."""
    text = _ELSEWHERE.sub(r"\1", "\n".join(lines))
    lines[:] = text.split("\n")
    result = []
    section = False
    for number, line in enumerate(lines):
        previous = lines[number - 1] if number else ""
        section = section or set(line.strip()) == {"-"} or line.startswith(":")
        opens = line.startswith("    ") and not previous.strip() and not section
        if opens and not (len(result) > 1 and result[-2].startswith("    ")):
            result += ["::", ""]
        result.append(line)
    lines[:] = result


def setup(app):
    app.connect("autodoc-process-docstring", formulas_as_they_are, priority=900)
