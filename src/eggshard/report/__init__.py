"""Reports of plans, and of propagation, for people.

In: plans, and what `shardy.explanation` reads off a propagated module. Out: tables for terminals (`tables`),
explanations of single steps (`explanation`), differences of two plans, graphs, notebook cells, and HTML pages that need
no network (`page_file`).

Figures are computed below; here they are only shown.
"""
