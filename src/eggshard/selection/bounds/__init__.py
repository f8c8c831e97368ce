"""Lower bounds without a solver.

In comes a `Graph` and, for the dual ascent, the cost of a known plan; out goes what no plan undercuts. `bound` adds up
what every plan pays, and bounds every plan. `dual` ascends in the Lagrangian dual and bounds plans that compute nothing
twice (the no-recomputation bound; of one plan's nodes, the fixed-node bound); its reduced costs fix choices.

Terms: a charge or a share is a dual variable (multiplier), a label's slack its reduced cost, and `exclusive` finds
mutually exclusive uses, which share their multipliers. `charges`, `batches`, `balancing` and `segments` are how an
ascent is laid out in arrays. Plans do not belong here, but for what prices decode to.
"""
