"""The planner: from a program to the cheapest device program found, in stages.

read | saturate | encode | select | decode | schedule (`pipeline`), each a function from one frozen state (`state`) to
the next. `context` is what a search fixes, `hints` what propagation proposes, `op_plans` how each op may run, `bodies`
the bodies of loops, branches and manual computations, planned by the same stages. `layers` plans programs of many equal
layers by two of them. `optimization` runs the stages, compares with the `baseline` and keeps to a memory limit.

In: a source program, a cost model, rules, limits. Out: a `PlanRecord`. How a selection problem is solved stands in
`selection`, which knows nothing of tensors.

`python -m bench dense stencil layers` shows what a change of its constants does.
"""
