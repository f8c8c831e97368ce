"""Shardy's sharding rule of an op, derived from the op's factors, and a table of the exceptions.

Factors say what a plan may do with an op's dimensions; Shardy's rules say along which dimensions shardings propagate.
Rules match Shardy's verbatim: where they differ from the factors, a function here says how, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from eggshard.ops import registry
from eggshard.ops.base import PASS, PERMUTE, REDUCE, REPLICATE, FactorRule, OpDef, Types
from eggshard.ops.elementwise.pointwise import Pointwise
from eggshard.ops.opaque_factors import UNREGISTERED, known_factors
from eggshard.ops.windows import Windows
from eggshard.program import monoids
from eggshard.program.attributes import Attributes
from eggshard.program.op_sharding_rule import (
    NEED_REPLICATION,
    PASS_THROUGH,
    PERMUTATION,
    REDUCTION,
    OpShardingRule,
    RuleFactor,
)
from eggshard.program.program import Region


class Nearby(NamedTuple):
    """The ops around an op, by name, for the rules that depend on them.

    makers: of each operand, "" for an argument. sources: what each operand is a slice of, else the operand, by numbers.
    users: of the results.
    """

    makers: tuple[str, ...] = ()
    sources: tuple[int, ...] = ()
    users: frozenset[str] = frozenset()


_ALONE = Nearby()
#: The ops whose rules depend on those around.
DEPENDENT = frozenset(("concatenate", "custom_call", "custom_call_effectful", "dynamic_update_slice"))


class _Call(NamedTuple):
    attributes: Attributes
    operands: Types
    results: Types
    regions: tuple[Region, ...]
    nearby: Nearby
    conservative: bool


def sharding_rule(
    name: str, attributes: Attributes, operands: Types, results: Types, regions: tuple[Region, ...] = (),
    nearby: Nearby = _ALONE, *, conservative: bool = False,
) -> OpShardingRule | None:
    """The rule that an op states, else Shardy's; None where there is none. ShardingError for one of other tensors.

    nearby: is asked of `DEPENDENT` ops alone. conservative: shardings do not propagate where neighbours would exchange.
    """
    definition = ruled(name)
    if definition is None or not operands or not results:
        return None
    if attributes.get("sdy.sharding_rule"):
        stated = OpShardingRule.parse(attributes["sdy.sharding_rule"])
        stated.check_shapes([t.shape for t in operands], [t.shape for t in results], name)
        return stated
    if definition.spelling == "stablehlo.custom_call":
        factors = known_factors(attributes["call_target_name"], operands, results)
    else:
        factors = definition.factors(attributes, operands, results)
    if factors is None or (name == "reshape" and not operands[0].elements):
        return None
    draft = _Draft(factors)
    if name in _DIFFERENCES:
        _DIFFERENCES[name](draft, _Call(attributes, operands, results, regions, nearby, conservative))
    return draft.built()


def ruled(name: str) -> OpDef | None:
    """The definition of an op that Shardy has a rule for; None for other ops."""
    if name in UNREGISTERED:
        return UNREGISTERED[name]
    if not registry.known(name):
        return None
    definition = registry.get(name)
    pointwise = isinstance(definition, Pointwise) and definition.spelling.startswith("stablehlo.")
    return definition if pointwise or name in _ALIKE or name in _DIFFERENCES else None


@dataclass(eq=False, slots=True)
class _Factor:
    """A factor of a rule in the making, which is numbered last."""

    size: int
    kind: str = PASS_THROUGH
    blocked: bool = False


_KINDS = {PASS: PASS_THROUGH, REDUCE: REDUCTION, REPLICATE: NEED_REPLICATION, PERMUTE: PERMUTATION}
_Row = list[list[_Factor]]


class _Draft:
    """A rule in the making: an op's factors in order, and those of each dimension of its operands and results."""

    def __init__(self, rule: FactorRule) -> None:
        self.factors = [_Factor(f.size, _KINDS[f.kind]) for f in rule.factors]
        self.operands, self.results = (
            [[[self.factors[f] for f in dim] for dim in row] for row in rows] for rows in (rule.operands, rule.results)
        )

    @property
    def rows(self) -> list[_Row]:
        return [*self.operands, *self.results]

    def number(self, *dims: list[_Factor]) -> None:
        """Number the factors of these dimensions first, in this order."""
        self.factors = list(dict.fromkeys([*(factor for dim in dims for factor in dim), *self.factors]))

    def align(self, shape: tuple[int, ...], kind: str, blocked: Container[int]) -> None:
        """Make every dimension one factor of all tensors; those that do not pass of this shape's size and ``kind``."""
        first, self.factors = self.operands[0], []
        for dim, n in enumerate(shape):
            (own,) = first[dim]
            self.factors.append(own if own.kind == PASS_THROUGH else _Factor(n, kind, dim in blocked))
            for row in self.rows:
                if row:
                    row[dim] = [self.factors[dim]]

    def built(self) -> OpShardingRule:
        """The rule; factors that no tensor has are left out, and dimensions without one get one of size 1."""
        used = {factor for row in self.rows for dim in row for factor in dim}
        factors = [factor for factor in self.factors if factor in used]
        for dim in (dim for row in self.rows for dim in row if not dim):
            dim.append(_Factor(1))
            factors += dim
        numbers = {factor: number for number, factor in enumerate(factors)}
        operands, results = (
            tuple(tuple(tuple(numbers[f] for f in dim) for dim in row) for row in rows)
            for rows in (self.operands, self.results)
        )
        return OpShardingRule(tuple(RuleFactor(f.size, f.kind, f.blocked) for f in factors), operands, results)


# -- what differs ------------------------------------------------------------------------------------------------------


def _transpose(rule: _Draft, call: _Call) -> None:
    """Numbered as the result's dimensions."""
    rule.number(*rule.results[0])


def _broadcast_in_dim(rule: _Draft, call: _Call) -> None:
    """An expanded dimension has a factor of its own, before that of what it becomes."""
    (source,), (target,) = rule.operands, rule.results
    for dim, place in zip(source, call.attributes["broadcast_dimensions"], strict=True):
        if not dim:
            dim.append(_Factor(1))
            rule.factors.insert(rule.factors.index(target[place][0]), dim[0])


def _reshape(rule: _Draft, call: _Call) -> None:
    """Factors of one side pass, too; those of size 1 come in the order of the dimensions.

    But where neither side is ahead of the other, nothing comes between a factor of one and a factor of the other.
    """
    ordered: list[_Factor] = []
    sides = [list(row) for row in rule.rows]
    taken, paired = [1, 1], False
    for factor in (*rule.factors, None):
        for side in sides if not paired else ():
            while side and all(f in ordered for f in side[0]):
                dim = side.pop(0)
                if not dim:
                    dim.append(_Factor(1))
                    ordered += dim
        if factor is not None:
            factor.kind = PASS_THROUGH
            ordered.append(factor)
            has = [any(factor in dim for dim in row) for row in rule.rows]
            paired = taken[0] == taken[1] and not has[1]
            taken = [n * factor.size if mine else n for n, mine in zip(taken, has, strict=True)]
    rule.factors = ordered


def _moved(rule: _Draft, call: _Call) -> None:
    """A dimension of another size is the same one nevertheless: its elements lie with neighbours."""
    rank = call.operands[0].rank
    rule.align(call.operands[0].shape, PERMUTATION, range(rank if call.conservative else 0))


def _windowed(rule: _Draft, call: _Call) -> None:
    """As of what is moved, but a factor has the result's size."""
    shape = call.results[0].shape
    rule.align(shape, PERMUTATION, range(len(shape) if call.conservative else 0))


def _resized(rule: _Draft, call: _Call) -> None:
    """A dimension of another size is the same one nevertheless, though nothing propagates along it."""
    sizes = enumerate(zip(call.operands[0].shape, call.results[0].shape, strict=True))
    rule.align(call.operands[0].shape, NEED_REPLICATION, [d for d, (n, m) in sizes if n != m])


def _concatenate(rule: _Draft, call: _Call) -> None:
    """Operands and result share the joined dimension, which is shifted where slices are joined again."""
    if call.conservative:
        for row in rule.rows:
            row[call.attributes["dimension"]] = []
        return
    slices = [maker == "slice" for maker in call.nearby.makers]
    shifted = any(slices) and (all(slices) or len(set(call.nearby.sources)) == 1)
    rule.align(call.results[0].shape, PERMUTATION if shifted else NEED_REPLICATION, ())


def _dynamic_update_slice(rule: _Draft, call: _Call) -> None:
    """The tensor can always be sharded, and the update where it begins at constants."""
    fixed = len(call.operands) == 2 or set(call.nearby.makers[2:]) == {"constant"}
    for row in rule.operands[: 2 if fixed else 1]:
        for (factor,) in row:
            factor.kind = PASS_THROUGH
    rule.number(*chain(*zip(rule.operands[0], rule.operands[1], strict=True)))


def _select_and_scatter(rule: _Draft, call: _Call) -> None:
    """Blocks of windows are as other windows. Nothing propagates conservatively where windows look at neighbours."""
    (operand, source, _), (result,) = rule.operands, rule.results
    for d, (n, m) in enumerate(zip(call.operands[0].shape, call.operands[1].shape, strict=True)):
        if len(operand[d]) > 1:
            operand[d], source[d] = [_Factor(n, PERMUTATION)], [_Factor(m, NEED_REPLICATION)]
            result[d] = operand[d]
    for factor in (factor for row in rule.rows for dim in row for factor in dim):
        factor.blocked = call.conservative and factor.kind != PASS_THROUGH
    rule.number(*chain(*zip(rule.operands[1], rule.operands[0], strict=True)))


def _sort(rule: _Draft, call: _Call) -> None:
    """Nothing propagates along the sorted dimension unless another one could be sharded instead."""
    shape = call.operands[0].shape
    rest = [n for n, (factor,) in zip(shape, rule.operands[0], strict=True) if factor.kind == PASS_THROUGH]
    rule.align(shape, NEED_REPLICATION, range(0 if any(n != 1 for n in rest) else len(shape)))


def _reduce_general(rule: _Draft, call: _Call) -> None:
    """Any body can combine what devices have reduced."""
    for factor in rule.factors:
        factor.kind = REDUCTION if factor.kind == NEED_REPLICATION else factor.kind


def _triangular_solve(rule: _Draft, call: _Call) -> None:
    """Right-hand sides stay whole."""
    for (factor,) in (*rule.operands[1][-2:], *rule.results[0][-2:]):
        factor.kind = NEED_REPLICATION


def _rng_bit_generator(rule: _Draft, call: _Call) -> None:
    """The numbers' sharding is free, though all devices draw all of them; nothing propagates along the state."""
    for (factor,) in rule.results[1]:
        factor.kind = PASS_THROUGH
    for (factor,) in rule.operands[0]:
        factor.blocked = True


def _collective(rule: _Draft, call: _Call) -> None:
    """Operands of one shape have one sharding."""
    if len({t.shape for t in call.operands}) == 1:
        rule.operands, rule.results = ([rows[0]] * len(rows) for rows in (rule.operands, rule.results))


def _convolution(rule: _Draft, call: _Call) -> None:
    """A spatial dimension of the input is windows and places in a window, the larger number major.

    Each is at most what the input has left, and not a factor if that is 1; nor are the kernel's outputs.
    """
    numbers = call.attributes["dimension_numbers"]
    (source, kernel), (target,) = rule.operands, rule.results
    (x, weights), (y,) = call.operands, call.results
    dims = (numbers[f"{name}_spatial_dimensions"] for name in ("input", "kernel", "output"))
    for i, k, o in zip(*dims, strict=True):
        left, found = x.shape[i], []
        wanted = sorted(((y.shape[o], PERMUTATION), (weights.shape[k], REDUCTION)), key=lambda pair: -pair[0])
        for n, kind in wanted if not call.conservative else ():
            size = min(left, n)
            if size > 1:
                found.append(_Factor(size, kind))
                left //= size
        source[i], kernel[k], target[o] = (
            [f for f in found if f.kind in kinds] for kinds in ((PERMUTATION, REDUCTION), (REDUCTION,), (PERMUTATION,))
        )
    rule.number(
        source[numbers["input_batch_dimension"]], target[numbers["output_batch_dimension"]],
        *(source[i] for i in numbers["input_spatial_dimensions"]), source[numbers["input_feature_dimension"]],
        kernel[numbers["kernel_input_feature_dimension"]],
    )
    for row, d in ((kernel, numbers["kernel_output_feature_dimension"]), (target, numbers["output_feature_dimension"])):
        row[d] = [f for f in row[d] if f.size > 1]


def _gather(rule: _Draft, call: _Call) -> None:
    """Read elements are always summed; where windows have several, but not all, nothing propagates along theirs."""
    x, y = call.operands[0], call.results[0]
    windows = Windows.of_gather(call.attributes["dimension_numbers"])
    read, slices = rule.operands[0], rule.results[0]
    for w, dim in enumerate(_walked(rule, windows, read, slices)):
        if dim is None or read[dim] == slices[w]:
            continue
        (factor,) = read[dim]
        if y.shape[w] == 1:
            factor.kind = REDUCTION
        else:
            factor.kind, factor.blocked, slices[w] = NEED_REPLICATION, True, read[dim]
    for dim in windows.collapsed:
        read[dim][0].kind = REDUCTION if x.shape[dim] != 1 else NEED_REPLICATION


def _scatter(rule: _Draft, call: _Call) -> None:
    """A dimension of which windows are parts stays whole; what devices have updated is combined by fewer bodies."""
    windows = Windows.of_scatter(call.attributes["scatter_dimension_numbers"])
    written, updates = rule.operands[0], rule.operands[-1]
    combined = REDUCTION if _combines(call) else NEED_REPLICATION
    for dim in windows.collapsed:
        written[dim][0].kind = PASS_THROUGH
    for w, place in enumerate(_walked(rule, windows, written, updates)):
        if place is None:
            updates[w][0].kind = combined
        elif written[place] != updates[w]:
            written[place][0].kind = NEED_REPLICATION


def _walked(rule: _Draft, windows: Windows, operand: _Row, windowed: _Row) -> list[int | None]:
    """Per dimension of the windowed tensor the operand's dimension, if any, in which order factors are numbered."""
    sources = windows.sources(len(operand), len(windowed))
    pairs = ((*([] if d is None else [operand[d]]), dim) for d, dim in zip(sources, windowed, strict=True))
    rule.number(*chain(*pairs), *(operand[d] for d in windows.collapsed))
    return sources


def _combines(call: _Call) -> bool:
    """Whether a scatter's body combines each of its tensors with the update, all by one op that Shardy knows."""
    count = len(call.results)
    if not call.regions:
        names = {monoids.MONOIDS[m].op if m in monoids.MONOIDS else "" for m in (call.attributes.get("monoid"),)}
    else:
        body = call.regions[0]
        made = {op.results: (op.name, sorted(op.operands)) for op in body.ops}
        found = [made.get((value,), ("", [])) for value in body.outputs]
        names = {name if args == [i, count + i] else "" for i, (name, args) in enumerate(found)}
    known = {"add", "multiply", "maximum", "minimum"}
    if all(t.dtype == "i1" for t in call.results):
        known |= {"and", "or"}
    return len(names) == 1 and names <= known


def _custom_call(rule: _Draft, call: _Call) -> None:
    """Nothing propagates along what is searched; the words of a random generator's state stay whole, as it does."""
    target = call.attributes["call_target_name"]
    seeds = target == "X64Combine" and call.results[0].rank == 1 and "rng_bit_generator" in call.nearby.users
    for factor in rule.factors:
        factor.kind = NEED_REPLICATION if seeds else factor.kind
        searched = target in ("mhlo.topk", "ApproxTopK", "PartialReduce")
        factor.blocked = (seeds or searched) and factor.kind == NEED_REPLICATION


#: How Shardy's rule differs from the factors, by op. Rotations and the like are printed as slices put together again.
_DIFFERENCES: dict[str, Callable[[_Draft, _Call], None]] = {
    **dict.fromkeys(("all_gather", "all_reduce", "all_to_all", "collective_permute", "reduce_scatter"), _collective),
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": _concatenate,
    "convolution": _convolution,
    **dict.fromkeys(("custom_call", "custom_call_effectful"), _custom_call),
    **dict.fromkeys(("dynamic_slice", "fft"), _resized),
    **dict.fromkeys(("dynamic_update_slice", "update_slice"), _dynamic_update_slice),
    "gather": _gather,
    **dict.fromkeys(("pad", "slice", "rotate", "wrap", "extend"), _moved),
    "reduce_general": _reduce_general,
    **dict.fromkeys(("reduce_window", "reduce_window_general"), _windowed),
    "reshape": _reshape,
    "rng_bit_generator": _rng_bit_generator,
    "scatter": _scatter,
    "select_and_scatter": _select_and_scatter,
    "sort": _sort,
    "transpose": _transpose,
    "triangular_solve": _triangular_solve,
}
#: Ops besides the pointwise ones whose rule is what the factors say. Those that stand nowhere here have none.
_ALIKE = frozenset(
    ("bitcast_convert", "cholesky", "dot", "dot_general", "reduce", "reverse", "sharding_constraint"))
