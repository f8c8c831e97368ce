"""Opaque ops, kept verbatim: custom calls, and all ops that the registry does not know.

They are computed replicated, except where a custom call's own sharding rule says along which dimensions it is
independent.
"""

from __future__ import annotations

import re

from eggshard.errors import LoweringError, ProgramError, ShardingError
from eggshard.ops.base import (
    PASS,
    REPLICATE,
    Arrays,
    Factor,
    FactorRule,
    OpDef,
    Printed,
    Printer,
    Regions,
    Results,
    Types,
    Values,
    register,
    replicated_rule,
)
from eggshard.ops.calls.custom_calls import meaning_of
from eggshard.ops.opaque_factors import PLACEMENTS, known_factors
from eggshard.ops.spelling import bound, function_type
from eggshard.program import codec
from eggshard.program.attributes import Attributes
from eggshard.program.codec import attribute_dictionary, encode_attributes
from eggshard.program.op_sharding_rule import PASS_THROUGH, OpShardingRule
from eggshard.program.program import Region

_VERBATIM = codec.Verbatim().optional()
#: JAX's callback for partitioning by the user: a name without an implementation behind it.
_PARTITIONING_CALLBACK = "CustomSPMDPartitioning"


def partitions_itself(region: Region) -> bool:
    """Whether a region calls, at any depth, what its author partitions (`jax.custom_partitioning`).

    XLA asks its callback for shardings, which nothing has in a manual region.
    """
    return any(
        op.attributes.get("call_target_name") == _PARTITIONING_CALLBACK or any(map(partitions_itself, op.regions))
        for op in region.ops
    )


class _CustomCall(OpDef):
    """A call of ``call_target_name``, known to the compiler that runs the program.

    A Shardy sharding rule on it says which dimensions of operands and results are one independent index.
    """

    name = "custom_call"
    stated = ("result_types",)
    attributes = {
        "call_target_name": codec.String(),
        "has_side_effect": codec.Flag(default=False),
        "backend_config": _VERBATIM,
        "api_version": codec.Verbatim(default="1 : i32"),
        "called_computations": codec.Verbatim(default="[]"),
        "operand_layouts": _VERBATIM,
        "result_layouts": _VERBATIM,
        "output_operand_aliases": _VERBATIM,
        "mhlo.backend_config": _VERBATIM,
        "mhlo.frontend_attributes": _VERBATIM,
        "sdy.sharding_rule": _VERBATIM,
    }
    mlir_name = "stablehlo.custom_call"

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        text, target = attrs.get("sdy.sharding_rule"), attrs["call_target_name"]
        if self.pure and target in PLACEMENTS:
            return known_factors(target, operands, results) or replicated_rule(operands, results)
        if not self.pure or not text or target == _PARTITIONING_CALLBACK:
            return replicated_rule(operands, results)
        return rule_of_text(text, operands, results)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        target = attrs["call_target_name"]
        meaning = meaning_of(target)
        if meaning is None:
            raise LoweringError(f"the simulator does not know custom call {target!r}; run the plan with XLA")
        return meaning(attrs, arrays)

    def emit(self, attrs: Attributes, operands: Values, results: Types, regions: Regions, printer: Printer) -> Printed:
        # The sharding rule has done its work, and speaks of global sizes.
        pairs = [p for p in encode_attributes(self.attributes, attrs) if p[0] != "sdy.sharding_rule"]
        return _emit_verbatim(self.spelling, attribute_dictionary(pairs), "", operands, results, printer)


class _CustomCallEffectful(_CustomCall):
    """A custom call with side effects: callbacks, host transfers, assertions."""

    name = "custom_call_effectful"
    pure = False


class _Opaque(OpDef):
    """Any other op: ``mlir_name``, ``attribute_text`` (one dictionary, ``{a = 1 : i64}``) and ``region_text`` as read.

    ``region_text`` is what stands between an op's operands and attributes: ``({...}, {...})``, or empty. It may not
    use values from outside itself.
    """

    name = "opaque"
    stated = ("result_types",)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        raise LoweringError(f"the simulator does not know op {attrs['mlir_name']!r}; run the plan with XLA")

    def emit(self, attrs: Attributes, operands: Values, results: Types, regions: Regions, printer: Printer) -> Printed:
        body = _renamed(attrs.get("region_text") or "", printer)
        return _emit_verbatim(attrs["mlir_name"], attrs.get("attribute_text") or "", body, operands, results, printer)


class _OpaqueEffectful(_Opaque):
    """An unknown op that may have side effects."""

    name = "opaque_effectful"
    pure = False


class _Unstated(OpDef):
    """What a program computes of which only the types are known: that of a plan put on another number of devices."""

    name = "unstated"
    stated = ("result_types",)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        raise LoweringError(_UNSTATED)

    def emit(self, attrs: Attributes, operands: Values, results: Types, regions: Regions, printer: Printer) -> Printed:
        raise LoweringError(_UNSTATED)


_UNSTATED = (
    "the plan was put on another number of devices without its program at these sizes; give it to "
    "Plan.on(devices, program)"
)


def _emit_verbatim(
    mlir_name: str, attributes: str, regions: str, operands: Values, results: Types, printer: Printer
) -> Printed:
    """The generic form with all attributes in the dictionary behind the regions, which may hold any name."""
    head, names = bound(printer.fresh, mlir_name, [name for name, _ in operands], len(results))
    parts = [head, regions, "" if attributes == "{}" else attributes]
    types = function_type([t for _, t in operands], results)
    return " ".join(p for p in (*parts, f": {types}") if p).splitlines(), names


def _renamed(text: str, printer: Printer) -> str:
    """Text with new names for its values, so that it can stand next to any other; strings are left alone."""
    names: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        found = match[0]
        return found if found.startswith('"') else names.setdefault(found, printer.fresh())

    return re.sub(r'"(?:[^"\\]|\\.)*"|%[\w$.-]+', rename, text)


def rule_of_text(text: str, operands: Types, results: Types) -> FactorRule:
    """The factors of a custom call's own sharding rule.

    A factor passes where it makes up one dimension of some operand and of every result and is of no other kind; all
    others replicate, since nothing is known of how the op would combine them. That propagation is blocked along a
    factor does not keep it from being sharded. ProgramError for a rule that is malformed, or for other tensors.
    """
    try:
        rule = OpShardingRule.parse(text)
        rule.check_shapes([t.shape for t in operands], [t.shape for t in results], "custom_call")
    except ShardingError as error:
        raise ProgramError(str(error)) from None

    def passes(factor: int) -> bool:
        uses = [dim for tensor in rule.tensors for dim in tensor if factor in dim]
        everywhere = any((factor,) in t for t in rule.operands) and all((factor,) in t for t in rule.results)
        return rule.factors[factor].kind == PASS_THROUGH and everywhere and all(dim == (factor,) for dim in uses)

    kinds = (PASS if passes(i) else REPLICATE for i in range(len(rule.factors)))
    factors = tuple(Factor(f.size, kind) for f, kind in zip(rule.factors, kinds, strict=True))
    return FactorRule(factors, rule.operands, rule.results)


for _definition in (_CustomCall(), _CustomCallEffectful(), _Opaque(), _OpaqueEffectful(), _Unstated()):
    register(_definition)
