"""Configure Sphinx, generate the pages of the reference, and save the explorer for the home page.

``make docs`` sets the tag ``explorer`` if npm has put onnxruntime-web into ``_runtime``. Without
the tag the home page shows a picture in place of the explorer.
"""

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from docutils import nodes
from reference_pages import write_reference

import torchcaps

HERE = Path(__file__).parent
RUNTIME = HERE / "_runtime" / "node_modules" / "onnxruntime-web" / "dist"
write_reference(HERE / "reference" / "generated")

# tutorials run without the user's settings of IPython, and without messages about the kernel
PROFILE = HERE / "_build" / "ipython" / "profile_default"
PROFILE.mkdir(parents=True, exist_ok=True)
(PROFILE / "ipython_kernel_config.py").write_text('get_config().IPKernelApp.log_level = "ERROR"\n')
os.environ["IPYTHONDIR"] = str(PROFILE.parent)
logging.getLogger("traitlets").setLevel(logging.WARNING)

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
exclude_patterns = ["_build", "_runtime", "_vendor", "*.py", "looking-inside/*.json"]
nitpicky = False

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True

add_module_names = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
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


def setup(app: Any) -> None:
    """Save the explorer beside the pages while they are built, and mark wide tables."""
    app.connect("doctree-resolved", mark_wide_tables)
    if app.tags.has("explorer"):
        app.add_js_file("draw.js")
        app.connect("builder-inited", start_saving)
        app.connect("build-finished", finish_saving)


def mark_wide_tables(app: Any, doctree: nodes.document, name: str) -> None:
    """Give wide tables and long cells classes, for which the style sheet sets widths."""
    for table in doctree.findall(nodes.table):
        if len(list(table.findall(nodes.colspec))) > 3:
            table["classes"].append("wide")
        for cell in table.findall(nodes.entry):
            if (length := len(cell.astext())) > 24:
                cell["classes"].append("long" if length > 60 else "medium")


def start_saving(app: Any) -> None:
    """Start to write the explorer as one page, unless an earlier build has written it."""
    page = Path(app.outdir, "draw.html")
    app.saving = None
    if not page.is_file():
        page.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "torchcaps", "explore", "--save", str(page)]
        app.saving = subprocess.Popen([*command, "--runtime", str(RUNTIME)], stderr=subprocess.PIPE)


def finish_saving(app: Any, error: Exception | None) -> None:
    """Wait for the explorer; fail the build if it could not be written."""
    if app.saving is not None:
        _, messages = app.saving.communicate()
        if app.saving.returncode and error is None:
            raise RuntimeError(f"the explorer could not be saved: {messages.decode()}")
