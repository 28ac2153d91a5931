"""Sphinx configuration: pydata theme, gallery of the examples, nothing loaded from a network."""

import re
import sys
import warnings
from pathlib import Path

import plml

sys.path.insert(0, str(Path(__file__).parent))  # for mathml and gallery_order

project = "plml"
author = "The plml developers"
copyright = author
release = version = plml.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "mathml",
]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
exclude_patterns = ["_build", "symbols.md"]  # the symbols are a part of the mathematics
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
highlight_language = "none"  # blocks of Python say so
templates_path = ["_templates"]
autosummary_generate = True
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "inherited-members": True}
numpydoc_show_class_members = False  # autodoc shows them
html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "plml"
html_context = {"default_mode": "auto"}
html_static_path = ["_static"]
html_css_files = ["plml.css"]
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": [], "paper": []},
}
#: Pages that are sections of one page have no navigation of their own to show.
html_sidebars = {
    "**": ["sidebar-nav-bs"],
    "index": [],
    "installation": [],
    "search": [],
    "genindex": [],
    "py-modindex": [],
}
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "plot_",
    "within_subsection_order": "gallery_order.place",
    "show_memory": False,
    "backreferences_dir": "generated/examples",
    "doc_module": ("plml",),
    "write_computation_times": False,  # their page loads scripts from elsewhere
    "download_all_examples": False,
    "min_reported_time": 1e9,
    "capture_repr": (),  # the picture is the output
}
# matplotlib's backend of the gallery cannot show windows, and says so.
warnings.filterwarnings("ignore", message=".*non-interactive.*")


#: Roles of scikit-learn's own documentation in docstrings that are inherited from it.
_ELSEWHERE = re.compile(r":(?:ref|term):`([^`<]+?)(?: *<[^>]*>)?`")


def formulas_as_they_are(app, what, name, obj, options, lines):
    """Indented lines after a paragraph are formulas: shown literally."""
    text = _ELSEWHERE.sub(r"\1", "\n".join(lines))
    lines[:] = text.split("\n")
    result = []
    section = False
    for number, line in enumerate(lines):
        previous = lines[number - 1] if number else ""
        section = section or set(line.strip()) == {"-"} or line.startswith((":", ".. "))
        opens = line.startswith("    ") and not previous.strip() and not section
        if opens and not (len(result) > 1 and result[-2].startswith("    ")):
            result += [".. code-block:: none", ""]
        result.append(line)
    lines[:] = result


#: What the first words of a type are.
_TYPE = re.compile(
    r"(\(|\{|None\b|int|float|bool|str|dict|array|list|sequence|tuple|callable|estimator|label\b"
    r"|data frame|[A-Z]\w+\b|``[A-Z])"
)
#: A line of words that goes on below is at least this long; one of a type is shorter.
_FULL_LINE = 70
#: An entry of a section: names and what follows the colon.
_ENTRY = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*) : (.+)$")
_SECTIONS = {"Parameters", "Attributes", "Returns", "Yields"}


def words_are_no_types(app, what, name, obj, options, lines):
    """Entries such as ``path : of the file`` get their words as a description, not as a type."""
    if not (getattr(obj, "__module__", None) or "").startswith("plml"):
        return
    result, section = [], ""
    for number, line in enumerate(lines):
        below = lines[number + 1] if number + 1 < len(lines) else ""
        if below and not below.strip("-"):
            section = line.strip()
        entry = _ENTRY.match(line) if section in _SECTIONS else None
        goes_on = below.startswith("    ") and len(line) >= _FULL_LINE
        if entry and (goes_on or not _TYPE.match(entry[2])):
            result += [entry[1], f"    {entry[2]}"]
        else:
            result.append(line)
    lines[:] = result


#: Methods that estimators have for other parts of the library.
_INTERNAL = {"case_base", "fit_collection", "fit_warnings", "fit_within", "n_listed", "recipe"}


def leave_out(app, what, name, obj, skip, options):
    """Whether a member has no place in the reference."""
    return True if name in _INTERNAL else None


def setup(app):
    """Connect what is defined here."""
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-docstring", words_are_no_types, priority=400)
    app.connect("autodoc-process-docstring", formulas_as_they_are, priority=900)
