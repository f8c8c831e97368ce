"""The manual's settings: Markdown through MyST, the reference from docstrings."""

import sys
from pathlib import Path

import eggshard

sys.path.insert(0, str(Path(__file__).parent))

project = "eggshard"
author = "The eggshard contributors"
release = eggshard.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "parameter_lists"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"eggshard {release}"
exclude_patterns = ["_build"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False, "show-inheritance": True}
# Docstrings are plain text with `names`; what they name is code.
default_role = "code"
nitpicky = False
# Two classes are called Proof, and two Difference: annotations name them without their modules.
suppress_warnings = ["ref.python"]
