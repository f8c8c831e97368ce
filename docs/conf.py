"""The manual's settings: Markdown through MyST, the reference from docstrings."""

import eggshard

project = "eggshard"
author = "The eggshard contributors"
release = eggshard.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
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
