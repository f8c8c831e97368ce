"""Which ends of a program are open, and what ties them to one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eggshard.errors import ShardingError
from eggshard.planner.context import Context
from eggshard.planner.layers.shortening import Short
from eggshard.planner.op_plans import OpPlans
from eggshard.program.placement import Placement
from eggshard.program.sharding import Sharding
from eggshard.program.types import TensorType
from eggshard.spmd.boundaries import even_placements


@dataclass(frozen=True)
class Ends:
    """Where a program's inputs and outputs may lie.

    inputs, outputs: per input and per output the placements to choose from, one where it is stated. carried: per output
    that is fed back the input that it becomes, where it has to lie. groups: per input the number of its group, all of
    which lie alike.
    """

    inputs: tuple[Sequence[Placement], ...]
    outputs: tuple[Sequence[Placement], ...]
    carried: Mapping[int, int]
    groups: tuple[int, ...]

    @classmethod
    def of(cls, plans: OpPlans, carried: Mapping[int, int]) -> Ends:
        """The ends of a program, open where a sharding has open dimensions, and at outputs of which none is stated.

        They may lie evenly by whole axes in mesh order, and where propagation has them for what the program states.
        ShardingError for an output that is fed back to an input of another type, or lies elsewhere.
        """
        context, propagated = plans.context, plans.hints.used
        program = context.program
        constrained = {op.results[0]: op.attributes["sharding"] for op in program.region.ops
                       if op.name == "sharding_constraint"}
        inputs = [_options(context, s, t, propagated[v]) for v, s, t in zip(
            program.region.inputs, program.input_shardings, program.input_types, strict=True)]
        outputs = []
        for o, (v, s, t) in enumerate(
                zip(program.region.outputs, program.output_shardings, program.output_types, strict=True)):
            stated = constrained.get(v, s)
            found = _options(context, Sharding.fully_open(t.rank) if stated is None else stated, t, propagated[v])
            if o in carried:
                i = carried[o]
                found = inputs[i] = _fed_back(program.input_types[i], inputs[i], t, found, i, o)
            outputs.append(found)
        return cls(tuple(inputs), tuple(outputs), dict(carried), tuple(range(len(inputs))))

    def shortened(self, short: Short) -> Ends | None:
        """The ends of a program's short form: those of equal parts are of one group, and lie where all of them may.

        None where they have no placement in common.
        """
        region = short.whole.region
        kept, outputs = ([k for k, v in enumerate(values) if v in short.values]
                         for values in (region.inputs, region.outputs))
        number = {k: n for n, k in enumerate(kept)}
        groups = groups_of(short)
        carried = {n: number[self.carried[o]] for n, o in enumerate(outputs) if self.carried.get(o) in number}
        shared: dict[int, Sequence[Placement]] = {}
        for group, options in zip(groups, self.inputs, strict=True):
            shared[group] = [p for p in shared.get(group, options) if p in options]
        if not all(shared.values()):
            return None
        inputs = tuple(shared[groups[k]] for k in kept)
        return Ends(inputs, tuple(inputs[carried[n]] if n in carried else self.outputs[o]
                                  for n, o in enumerate(outputs)), carried, tuple(groups[k] for k in kept))


def groups_of(short: Short) -> list[int]:
    """Per input of a program the number of a group: that of the first of those that equal parts take at one place."""
    inputs = {v: k for k, v in enumerate(short.whole.region.inputs)}
    groups = list(range(len(inputs)))
    for copy, port in short.own:
        if copy >= 0:
            same = [inputs[short.operand(port, part)] for part in short.row(copy)]
            for k in same:
                groups[k] = min(groups[k], *same)
    return groups


def _options(
    context: Context, stated: Sharding | None, type_: TensorType, propagated: Sharding | None
) -> Sequence[Placement]:
    """Where an end may lie; anywhere within what is stated where that leaves no even placement."""
    if stated is not None and stated.is_open and stated.device is None:
        even = even_placements(context.mesh, type_, stated)
        return list(dict.fromkeys([*even, context.boundary(stated if propagated is None else propagated, type_)]))
    return (context.boundary(stated, type_),)


def _fed_back(
    into: TensorType, at: Sequence[Placement], type_: TensorType, found: Sequence[Placement], i: int, o: int
) -> Sequence[Placement]:
    """Where an output may lie that becomes an input."""
    if into != type_:
        raise ShardingError(f"output {o} is a {type_} and cannot become input {i}, which is a {into}")
    shared = [p for p in at if p in found]
    if not shared:
        raise ShardingError(
            f"output {o} becomes input {i}, which lies at {at[0]}, and is stated to lie at {found[0]}; state one of "
            "them")
    return shared
