"""The baseline plan: propagated shardings unchanged, and every op resharded independently.

This is what an op-by-op partitioner does, with each op's cheapest strategy and each reshard's cheapest route. It
needs no e-graph and cannot fail where the program is understood: every fallback ends here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eggshard.placement.transfer import Strategy, useful
from eggshard.planner.op_plans import OpPlans, Types
from eggshard.program.placement import Placement
from eggshard.program.program import Op, Region
from eggshard.program.sharding import Sharding
from eggshard.steps.assemble import Assembler
from eggshard.steps.held import Held, Origin
from eggshard.steps.steps import StepPlan


def baseline_program(
    plans: OpPlans, region: Region, propagated: Sequence[Sharding | None] | None,
    inputs: Sequence[Placement], outputs: Sequence[Placement],
) -> StepPlan:
    """The device program of a region in which value v lies as ``propagated[v]`` says.

    Without propagated shardings a value stays where its op's cheapest strategy leaves it.
    """
    assembler = Assembler(plans.mesh, plans.context.router)
    at: dict[int, Placement] = {}
    value: dict[int, dict[Placement, int]] = {}
    chosen: dict[tuple[object, ...], Strategy] = {}
    for v, placement in zip(region.inputs, inputs, strict=True):
        at[v] = placement
        value[v] = {placement: assembler.input(placement.local_type(region.types[v]))}
        assembler.held[value[v][placement]] = Held(-1, v, region.types[v], placement)

    def get(v: int, placement: Placement) -> int:
        if placement not in value[v]:
            made = assembler.convert(value[v][at[v]], region.types[v], at[v], [placement], f"%{v}", (-1, v))
            value[v] = {**made, **value[v]}
        return value[v][placement]

    for op in region.ops:
        if op.name == "sharding_group":
            continue  # propagation has given its members one sharding
        if op.name == "sharding_constraint":
            source, (result,) = op.operands[0], op.results
            wanted = plans.context.resolve(op.attributes["sharding"], region.types[result])
            at[result], value[result] = wanted, {wanted: get(source, wanted)}
            continue
        operand_types = tuple(region.types[v] for v in op.operands)
        result_types = tuple(region.types[v] for v in op.results)
        have = tuple(at[v] for v in op.operands)
        want = None
        if propagated is not None:
            want = tuple(plans.context.resolve(propagated[v], region.types[v]) for v in op.results)
        alike = tuple(op.operands.index(v) for v in op.operands)
        key = (op.name, op.attributes, op.regions, operand_types, result_types, have, want, alike)
        if key not in chosen:
            chosen[key] = _cheapest(plans, op, operand_types, result_types, have, want)
        strategy = chosen[key]
        action = plans.action(op, operand_types, result_types, strategy, searched=False)
        with assembler.chosen_for(Origin(-1, op=op.described)):
            operands = [get(v, p) for v, p in zip(op.operands, strategy.operands, strict=True)]
            operands = assembler.mask(operands, strategy)
            made = assembler.emit(action, tuple(operands), ("baseline",), op.location)
        for i, (v, new, placement) in enumerate(zip(op.results, made, strategy.results, strict=True)):
            at[v], value[v] = placement, {placement: new}
            assembler.held.setdefault(new, Held(-1, v, region.types[v], placement))
            if want is not None and placement != want[i]:
                new = get(v, want[i])
                at[v], value[v] = want[i], {want[i]: new}
    return assembler.build([get(v, p) for v, p in zip(region.outputs, outputs, strict=True)])


def _cheapest(
    plans: OpPlans, op: Op, operands: Types, results: Types,
    have: tuple[Placement, ...], want: tuple[Placement, ...] | None,
) -> Strategy:
    """The strategy that costs this op alone least: computing, and reshards of its operands and of its results.

    Those with partial values of operands that hold none cost no less than the same without partial values, and are left
    out.
    """
    partial_sums = [{p.monoid} if p.partial else () for p in have]
    offered = plans.strategies(op, operands, results, "plain")
    candidates = [(s, price) for s, price in offered if useful(s, partial_sums)]
    total = np.array([compute for _, compute in candidates], float)
    paid: set[tuple[int, tuple[Placement, ...]]] = set()
    for i, type_ in enumerate(operands):
        needed = tuple(s.operands[i] for s, _ in candidates)
        if (op.operands[i], needed) not in paid:  # an operand used twice in the same way is converted once
            paid.add((op.operands[i], needed))
            numbers = {p: n for n, p in enumerate(dict.fromkeys((have[i], *needed)))}
            total += plans.context.router.table(type_, list(numbers))[0, [numbers[p] for p in needed]]
    for i, type_ in enumerate(results if want is not None else ()):
        assert want is not None
        made = [s.results[i] for s, _ in candidates]
        numbers = {p: n for n, p in enumerate(dict.fromkeys((want[i], *made)))}
        total += plans.context.router.table(type_, list(numbers))[[numbers[p] for p in made], 0]
    return candidates[int(np.argmin(total))][0]
