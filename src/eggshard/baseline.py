"""The baseline plan: propagated shardings as they are, every op resharded on its own.

This is what an op-by-op partitioner does, with each op's cheapest strategy and each reshard's cheapest route. It
needs no e-graph and cannot fail where the program is understood: every fallback ends here.
"""

from __future__ import annotations

from collections.abc import Sequence

from eggshard.extract.encode import local_action
from eggshard.egraph.graph import ENode
from eggshard.placement.placement import Placement
from eggshard.placement.sharding import Sharding
from eggshard.plan.assemble import Assembler
from eggshard.plan.plan import Plan, Search
from eggshard.planning import Planning
from eggshard.program.program import Op
from eggshard.program.types import TensorType


def baseline_plan(planning: Planning, propagated: Sequence[Sharding | None], outputs: Sequence[Placement]) -> Plan:
    """The plan in which value v of the program lies as ``propagated[v]`` says, and outputs as ``outputs`` say."""
    program, region = planning.program, planning.program.region
    assembler = Assembler(planning.mesh, planning.router)
    at: dict[int, Placement] = {}
    value: dict[int, dict[Placement, int]] = {}
    for i, v in enumerate(region.inputs):
        at[v] = planning.inputs[i]
        value[v] = {at[v]: assembler.input(at[v].local_type(region.types[v]))}

    def get(v: int, placement: Placement) -> int:
        if placement not in value[v]:
            made = assembler.convert(value[v][at[v]], region.types[v], at[v], [placement], f"%{v}")
            value[v] = {**made, **value[v]}
        return value[v][placement]

    for op in region.ops:
        if op.name == "sharding_constraint":
            source, (result,) = op.operands[0], op.results
            wanted = planning.resolve(op.attributes["sharding"], region.types[result])
            at[result], value[result] = wanted, {wanted: get(source, wanted)}
            continue
        operand_types = tuple(region.types[v] for v in op.operands)
        result_types = tuple(region.types[v] for v in op.results)
        targets = tuple(planning.resolve(propagated[v], region.types[v]) for v in op.results)
        strategy = _cheapest(planning, op, operand_types, result_types, tuple(at[v] for v in op.operands), targets)
        operands = [get(v, p) for v, p in zip(op.operands, strategy.operands, strict=True)]
        operands = assembler.mask(operands, strategy.masks)
        node = ENode(op.name, op.attributes, op.regions, (), ())
        made = assembler.emit(
            local_action(node, operand_types, result_types, strategy), tuple(operands), ("baseline",), op.location
        )
        for v, new, have, want in zip(op.results, made, strategy.results, targets, strict=True):
            at[v], value[v] = have, {have: new}
            if have != want:
                new = get(v, want)
                at[v], value[v] = want, {want: new}
    results = [get(v, p) for v, p in zip(region.outputs, outputs, strict=True)]
    return Plan(
        program, assembler.build(results), planning.inputs, tuple(outputs), planning.model,
        Search(method="baseline", exact=planning.exact),
    )


def _cheapest(planning: Planning, op: Op, operands: tuple[TensorType, ...], results: tuple[TensorType, ...],
              have: tuple[Placement, ...], want: tuple[Placement, ...]):  # type: ignore[no-untyped-def]
    """The strategy that costs this op alone least: its operands' reshards, and its results' to where they shall lie."""

    def price(strategy) -> float:  # type: ignore[no-untyped-def]
        moves = [*zip(operands, have, strategy.operands, strict=True), *zip(results, strategy.results, want, strict=True)]
        return sum(planning.router.cost(t, a, b) for t, a, b in dict.fromkeys(moves) if a != b)

    return min(planning.op_strategies(op.name, op.attributes, operands, results), key=price)
