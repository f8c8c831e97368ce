"""Selection: the cheapest plan of an e-graph with costs, and a lower bound that limits its distance from the optimum.

In comes a `problem.Problem`: classes (e-classes), the choices (e-nodes) that compute them at placements from placements
of other classes, and what it costs to convert a class from one placement to another. Out goes a `problem.Extraction`:
a valid selection with its exact cost, every choice and every conversion paid once, and lower bounds.

Nothing in here knows of tensors, meshes or e-graphs; whoever poses the problem keeps its meaning in the choices' tags.

Low to high, and nothing imports what is above it: `problem`, `graph`, `copies` and `verify` (what a plan is, and which
classes may pay to compute twice), `reductions` (smaller problems), `bounds` (what every plan pays), `search` (plans),
`exact` (the integer program), `portfolio` (which of these runs when).

`python -m bench extraction` shows what a change of its constants does.
"""
