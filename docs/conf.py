"""Sphinx configuration. `make docs` runs the code of all pages first (docs/_tools/execute.py), then builds the site."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_tools"))

import execute
import reference
from latex2mathml.converter import convert

import hypersphere

project = "hypersphere"
author = "the hypersphere developers"
copyright = "the hypersphere developers, MIT licence"
version = release = hypersphere.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_tools", "_static"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline", "attrs_block"]
myst_heading_anchors = 3
nb_execution_mode = "cache"  # a notebook runs again if its code or the package changed
nb_execution_cache_path = str(execute.BUILD / "notebooks" / execute.code_version()[:12])
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_merge_streams = True
nitpicky = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
default_role = "code"  # docstrings write `names` as in Markdown
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
add_module_names = False
python_maximum_signature_line_length = 80

html_theme = "furo"
html_title = "hypersphere"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_search_summary = False  # it would fetch pages, which a browser forbids for files on disk
html_math_renderer = "mathml"
html_theme_options = {"navigation_with_keys": True}

_OUTPUT = re.compile(r"<!--\s*output(?::\s*(\d+))?\s*-->")


def show_outputs(app, name, source):
    """Put what a block printed where the page says `<!-- output -->`."""
    printed = execute.outputs_of(name)
    text, found, number = source[0], [], -1
    position = 0
    for block in re.finditer(rf"{execute.BLOCK.pattern}|{_OUTPUT.pattern}", text, re.DOTALL):
        found.append(text[position : block.start()])
        position = block.end()
        if block["language"]:
            number += 1
            found.append(block[0])
        else:
            lines = printed[number].rstrip().splitlines() if number < len(printed) else []
            shown = lines[-int(block[4]) :] if block[4] else lines
            found.append("```{code-block} text\n:class: output\n\n" + "\n".join(shown) + "\n```")
    source[0] = "".join([*found, text[position:]])


_PAGES = {"RESULTS": "results", "CHANGELOG": "reference/changelog", "SECURITY": "reference/security"}


def link_included(app, name, source):
    """Lead links to files outside `docs`, which work in the repository, to the pages that include them."""
    up = "../" * name.count("/")
    source[0] = re.sub(
        r"\]\((?:\.\./)+(RESULTS|CHANGELOG|SECURITY)\.md", lambda found: f"]({up}{_PAGES[found[1]]}.md", source[0]
    )


def inline_math(translator, node):
    translator.body.append(convert(node.astext()))


def display_math(translator, node):
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')


def _skip(visit):
    from docutils.nodes import SkipNode

    def visitor(translator, node):
        visit(translator, node)
        raise SkipNode

    return visitor


def setup(app):
    app.connect("source-read", show_outputs)
    app.connect("source-read", link_included)
    app.connect("builder-inited", lambda app: reference.write(Path(app.srcdir)))
    app.add_html_math_renderer("mathml", (_skip(inline_math), None), (_skip(display_math), None))
