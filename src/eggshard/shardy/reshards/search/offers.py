"""Offers: the placements at which an op of a module can be computed without communication, with their prices."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from eggshard.errors import EggshardError
from eggshard.frontends.jaxlib_context import attributes_of
from eggshard.frontends.stablehlo.module_reader import captured_values
from eggshard.frontends.stablehlo.op_readers import OP_READERS, literal_value
from eggshard.frontends.stablehlo.region_reader import RegionReader
from eggshard.ops import registry
from eggshard.ops.base import PASS, REDUCE, REPLICATE, Factor, FactorRule
from eggshard.ops.calls.collectives import PerDevice
from eggshard.placement.transfer import Strategy, enumerated, useful
from eggshard.program.op_sharding_rule import NEED_REPLICATION, PASS_THROUGH, PERMUTATION
from eggshard.program.placement import Placement, replicated
from eggshard.program.program import Op
from eggshard.program.types import TOKEN, TensorType
from eggshard.shardy.module import COLLECTIVES, DATA_FLOW, HINTS, callee, maker
from eggshard.shardy.reshards.search.context import Context
from eggshard.shardy.reshards.search.neighbours import kept_sharded
from eggshard.shardy.rules import rule_of

Types = tuple[TensorType, ...]
#: A value of the module at a placement.
Held = tuple[Any, Placement]

#: Ops that leave their operand what it is: hints, and collectives of an earlier plan.
IDENTITIES = (*HINTS, *COLLECTIVES)
BARRIER = "stablehlo.optimization_barrier"
#: Ops with regions that use values from outside.
LOOPS_AND_BRANCHES = tuple(name for name in DATA_FLOW if name != BARRIER)
#: Ops that refer to functions, whose bodies are on whole tensors or at placements of their own.
CALLS = ("func.call", "stablehlo.composite")


class Offer(NamedTuple):
    """A way to compute an op.

    operands, results: where its operands are needed, and its results then lie. captured: where its regions need values
    from outside. seconds: its price. inner: the plans of its blocks, in order.
    """

    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    seconds: float
    captured: tuple[Held, ...] = ()
    inner: tuple[Any, ...] = ()


def captures_of(op: Any) -> list[Any]:
    """The values that an op's regions use from outside."""
    return captured_values(op) if len(op.regions) else []


class Reading(NamedTuple):
    """An op as the registry has it, and which of the module's operands its operands are."""

    op: Op
    operands: tuple[int, ...]


def read(context: Context, op: Any) -> Reading | None:
    """An op of a module as one op of the registry; None if it is several, or none that is known. A loop or branch has
    operands and results besides the module's: what its regions use from outside."""
    scratch = RegionReader(context.reader, OP_READERS)
    values = list(dict.fromkeys([*op.operands, *captured_values(op)]))
    for value in values:
        number = scratch.env[value] = scratch.builder.input(context.type(value))
        constant = maker(value, "stablehlo.constant", "sdy.constant")
        if constant is not None:
            scratch.constants[number] = context.reader.literal(literal_value(constant))
    try:
        scratch.read_one(op)
    except (EggshardError, TypeError):
        return None
    if not scratch.builder.ops:
        return None
    made, *others = scratch.builder.ops
    # What a reduction starts from is combined with its result: it enters once, whatever devices it is computed on.
    started = made.name == "reduce" and op.name == "stablehlo.reduce" and len(op.results) == 1
    if (others and not started) or len(made.results) < len(op.results):
        return None
    given = [scratch.env[v] for v in values]
    listed = [given[values.index(v)] for v in op.operands]
    if list(made.operands) == listed:
        return Reading(made, tuple(range(len(listed))))
    return Reading(made, tuple(listed.index(v) if v in listed else -1 for v in made.operands))


def plain_offers(
    context: Context, op: Any, partial_sums: Sequence[Collection[str]]
) -> tuple[list[Offer], list[set[str]]]:
    """The ways to compute an op without regions to plan, and per result the monoids of which it may have partial
    values.

    partial sums: the same per operand.
    """
    types = tuple(context.type(v) for v in op.operands)
    results = tuple(context.type(v) for v in op.results)
    captured = tuple((v, replicated(context.type(v).shape)) for v in captures_of(op))
    reading = None if op.name in CALLS else read(context, op)
    rule = _rule(context, op, reading, types, results)
    if rule is None:
        return [whole_offer(types, results, captured)], [set() for _ in results]
    stated = rule_of(op)

    def allowed(s: Strategy) -> bool:
        return (
            all(p.monoid in ("", "add") for p in s.operands)
            and useful(s, partial_sums)
            and (not s.positional or not op.operands or stated is not None)
            and all(context.allows(t, p) for t, p in zip((*types, *results), (*s.operands, *s.results), strict=True))
            and (stated is None or _agrees(stated, s))
        )

    found = enumerated(context.free, rule, context.orders, limit=context.limits.strategies).found
    offers = [
        Offer(s.operands, s.results, _seconds(context, reading, s, types, results), captured)
        for s in found if allowed(s)
    ]
    if stated is not None and reading is not None and reading.operands == tuple(range(len(types))):
        offers += [
            Offer(s.operands, s.results, seconds + _seconds(context, reading, s, types, results), captured)
            for s, seconds in kept_sharded(context, op, reading.op, stated, types, results)
            if all(context.allows(t, p) for t, p in zip(results, s.results, strict=True))
        ]
    made = {f.monoid for f in rule.factors if f.kind == REDUCE and f.size > 1}
    made.update(m for m, who in rule.linear if m == "add" and any(m in partial_sums[i] for i in who))
    return offers or [whole_offer(types, results, captured)], [set(made) for _ in results]


def whole_offer(types: Types, results: Types, captured: tuple[Held, ...] = ()) -> Offer:
    """Everything on every device."""
    operands, made = (tuple(replicated(t.shape) for t in ts) for ts in (types, results))
    return Offer(operands, made, 0.0, captured)


def _rule(
    context: Context, op: Any, reading: Reading | None, types: Types, results: Types
) -> FactorRule | None:
    """How an op is sharded, on the module's operands; None: not at all."""
    if has_effects(context, op) or op.name in CALLS or not results:
        return None
    if reading is None or not registry.known(reading.op.name):
        return _passing(op)
    definition = registry.get(reading.op.name)
    if not definition.pure or isinstance(definition, PerDevice):
        return None
    read_types = tuple(types[i] for i in reading.operands)
    rule = definition.factors(reading.op.attributes, read_types, results)
    if reading.operands == tuple(range(len(types))):
        return rule
    if sorted(set(reading.operands)) != sorted(reading.operands) or -1 in reading.operands:
        return None
    # What the registry does not take as operands, such as initial values that change nothing, is scalar: whole.
    place = {i: n for n, i in enumerate(reading.operands)}
    if any(t.rank for i, t in enumerate(types) if i not in place):
        return None
    operands = tuple(rule.operands[place[i]] if i in place else () for i in range(len(types)))
    linear = tuple((m, tuple(reading.operands[n] for n in who)) for m, who in rule.linear)
    factors = tuple(
        f if not f.accumulators else Factor(f.size, REPLICATE) for f in rule.factors
    )
    return FactorRule(factors, operands, rule.results, linear)


def _passing(op: Any) -> FactorRule | None:
    """What Shardy's rule lets through of an op that the registry does not have."""
    rule = rule_of(op)
    if rule is None:
        return None
    factors = tuple(Factor(f.size, PASS if f.kind == PASS_THROUGH else REPLICATE) for f in rule.factors)
    return FactorRule(factors, rule.operands, rule.results)


def _agrees(rule: Any, s: Strategy) -> bool:
    """Whether Shardy, too, takes the sharded dimensions as ones that may be."""
    for factors, placement in zip(rule.tensors, (*s.operands, *s.results), strict=True):
        for dim, placed in zip(factors, placement.dims, strict=True):
            if placed.axes and any(rule.factors[f].kind in (NEED_REPLICATION, PERMUTATION) for f in dim):
                return False
    return True


def _seconds(context: Context, reading: Reading | None, s: Strategy, types: Types, results: Types) -> float:
    local = tuple(p.local_type(t) for p, t in zip(s.operands, types, strict=True))
    made = tuple(p.local_type(t) for p, t in zip(s.results, results, strict=True))
    dtype = (local or made)[0].dtype if local or made else "f32"
    if reading is None:
        return context.pricer.compute("opaque", 0.0, float(sum(t.bytes for t in (*local, *made))), dtype)
    definition, taken = registry.get(reading.op.name), tuple(local[i] for i in reading.operands)
    flops, touched = definition.flops(reading.op.attributes, taken, made), definition.touched(taken, made)
    return context.pricer.compute(reading.op.name, flops, touched, dtype)


def has_effects(context: Context, op: Any) -> bool:
    """Whether an op must stay where it is, used or not: as far as its name, its types and what it holds tell."""
    foreign = op.name.partition(".")[0] not in ("stablehlo", "chlo", "sdy", "func", "mhlo")
    if foreign or any(str(v.type).endswith("token") for v in (*op.operands, *op.results)):
        return True
    if op.name == "stablehlo.custom_call" and str(attributes_of(op).get("has_side_effect", "false")) == "true":
        return True
    if op.name == "stablehlo.rng":
        return True
    if op.name == "func.call":
        return _called_has_effects(context, callee(op))
    return _inside_has_effects(context, op)


def _called_has_effects(context: Context, name: str) -> bool:
    """Whether a function does anything but compute its results; one that is only declared may."""
    if name not in context.effects:
        context.effects[name] = False  # a recursion adds nothing
        function = context.reader.functions.get(name)
        declared = function is None or not len(function.regions[0].blocks)
        context.effects[name] = declared or _inside_has_effects(context, function)
    return context.effects[name]


def _inside_has_effects(context: Context, op: Any) -> bool:
    inner = (i.operation for region in op.regions for block in region.blocks for i in block.operations)
    return any(has_effects(context, i) for i in inner)


def barrier_offers(context: Context, type_: TensorType) -> list[Offer]:
    """The placements that one value may have before and after an optimization barrier."""
    dims = tuple((i,) for i in range(type_.rank))
    linear = (("add", (0,)),) if type_.dtype != TOKEN else ()
    rule = FactorRule(tuple(Factor(n) for n in type_.shape), (dims,), (dims,), linear)
    found = enumerated(context.free, rule, context.orders, limit=context.limits.strategies).found
    return [Offer(s.operands, s.results, 0.0) for s in found if context.allows(type_, s.results[0])]
