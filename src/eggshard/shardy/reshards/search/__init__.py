"""Joint planning of a module's placements: what each op offers, the selection problem, and writing its plan down."""
