"""Configure Sphinx, and generate the pages of the reference before it reads them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from reference_pages import write_reference

import torchcaps

HERE = Path(__file__).parent
write_reference(HERE / "reference" / "generated")

project = "torchcaps"
author = "The torchcaps authors"
project_copyright = author
version = release = torchcaps.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "_vendor", "*.py", "looking-inside/*.json"]
nitpicky = False

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"torchcaps {version}"
html_static_path = ["_vendor", "_static"]
html_css_files = ["torchcaps.css"]
html_theme_options = {
    "source_repository": "https://github.com/torchcaps/torchcaps/",
    "source_branch": "main",
    "source_directory": "docs/",
}
mathjax_path = "mathjax/tex-svg.js"
mathjax_options = {"defer": "defer"}
mathjax4_config = {  # speech would fetch its rules, which browsers refuse for pages on a disk
    "options": {"menuOptions": {"settings": {"enrich": False, "speech": False, "braille": False}}}
}
