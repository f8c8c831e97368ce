"""Reports of plans for people.

In: plans. Out: tables for terminals (`tables`), explanations of single steps (`explanation`), differences of two plans,
graphs, notebook cells, and one HTML page that needs no network (`page_file`).

Figures are computed below; here they are only shown.
"""
