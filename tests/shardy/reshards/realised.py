"""What a module with explicit reshards comes to: its collectives by jaxlib, every op on shards as its shardings say.

A second reading of such modules: the placements of values are taken from the text alone, and an op is only accepted on
shards where one of its own strategies has its operands and results there.
"""

from __future__ import annotations

from typing import Any

from jax.interpreters import mlir as jax_mlir
from tests.shardy.peer import run_peer

import eggshard as es
from eggshard import shardy
from eggshard.api import Plan
from eggshard.costmodel import WireBytes
from eggshard.frontends.stablehlo.module_reader import ModuleReader
from eggshard.frontends.stablehlo.op_readers import OP_READERS
from eggshard.frontends.stablehlo.reading import parse_module
from eggshard.frontends.stablehlo.region_reader import RegionReader
from eggshard.limits import Limits
from eggshard.placement.transfer import Strategy
from eggshard.planner.bodies import plans_of
from eggshard.planner.context import Context
from eggshard.planner.op_plans import OpPlans
from eggshard.program.attributes import Attributes
from eggshard.program.placement import Placement
from eggshard.program.program import Op, Program, Region
from eggshard.program.types import TensorType
from eggshard.shardy.module import OWN_SHARDING
from eggshard.steps.assemble import Assembler
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import StepPlan

FULL = "func.func(sdy-insert-explicit-reshards{enable-full-version=true})"
COLLECTIVES = "func.func(sdy-reshard-to-collectives),canonicalize"
PLANNED_COLLECTIVES = "reshard-to-collectives{mode=global},canonicalize-collectives"
Placements = tuple[Placement, ...]
#: Ops that Shardy leaves sharded along a dimension that they look along. Here they are computed whole.
LOOK_ALONG = ("slice", "pad", "reverse", "concatenate", "convolution", "reduce_window")


def passed(text: str, pipeline: str) -> str:
    """The module after some of jaxlib's passes."""
    found = run_peer(text, pipeline)
    assert not found.failure, f"jaxlib's {pipeline} failed: {found.failure}\n{text}"
    return found.text


def realised(original: str, explicit: str, planned: bool = False) -> Plan:
    """The plan that a module with explicit reshards stands for, of the program that the original is.

    planned: by collectives planned for each reshard, else by those that jaxlib's pass makes of it.
    """
    collectives = shardy.transform(explicit, PLANNED_COLLECTIVES) if planned else passed(explicit, COLLECTIVES)
    program = _as_written(es.load(collectives))
    limits = Limits(permutes=0, windows=0)
    plans = plans_of(Context(program, WireBytes(), limits, False), [])
    ends = (program.input_shardings, program.input_types), (program.output_shardings, program.output_types)
    inputs, outputs = (
        tuple(plans.context.resolve(s, t) for s, t in zip(shardings, types, strict=True)) for shardings, types in ends
    )
    steps = _Body(plans, program.region).steps(inputs, outputs)
    return Plan(es.load(original), steps, inputs, outputs, WireBytes())


class NotInPlace(AssertionError):
    """An op is stated to be computed on shards where none of its strategies is."""


class _Explicit(RegionReader):
    """Keeps the collectives of scalars, whose shardings say nothing to the front end."""

    def read_one(self, operation: Any) -> None:
        key = OWN_SHARDING.get(operation.name)
        if key is None:
            super().read_one(operation)
            return
        sharding = Attributes(sharding=self.module.meshes.sharding(str(operation.attributes[key])))
        types = self.result_types(operation)
        self.bind(operation, self.append("sharding_constraint", self.operands(operation), types, sharding))


def _as_written(program: Program) -> Program:
    """The program op by op as its text has it."""
    assert program.text is not None
    with jax_mlir.make_ir_context():
        module = parse_module(program.text)
        reader = ModuleReader(module)
        block = reader.functions["main"].regions[0].blocks[0]
        body = _Explicit(reader, OP_READERS)
        body.add_inputs(block.arguments)
        region = body.builder.build(body.read(block))
    return Program(program.mesh, region, program.input_shardings, program.output_shardings)


class _Body:
    def __init__(self, plans: OpPlans, region: Region):
        self.plans, self.region = plans, region
        self.assembler = Assembler(plans.mesh, plans.context.router)
        self.at: dict[int, Placement] = {}
        self.value: dict[int, int] = {}

    def steps(self, inputs: Placements, outputs: Placements | None) -> StepPlan:
        region = self.region
        for v, placement in zip(region.inputs, inputs, strict=True):
            self.at[v], self.value[v] = placement, self.assembler.input(placement.local_type(region.types[v]))
        for op in region.ops:
            if op.name == "sharding_constraint":
                self._convert(op)
            else:
                self._compute(op)
        have = tuple(self.at[v] for v in region.outputs)
        assert outputs is None or have == outputs, f"results lie at {have}, and are stated at {outputs}"
        return self.assembler.build(self.value[v] for v in region.outputs)

    def _convert(self, op: Op) -> None:
        (v,), (r,) = op.operands, op.results
        target = self._stated(op.attributes["sharding"], self.region.types[r])
        made = self.assembler.convert(self.value[v], self.region.types[v], self.at[v], [target])
        self.at[r], self.value[r] = target, made[target]

    def _stated(self, sharding: Any, type_: TensorType) -> Placement:
        return self.plans.context.resolve(sharding, type_)

    def _compute(self, op: Op) -> None:
        types, results = (tuple(self.region.types[v] for v in vs) for vs in (op.operands, op.results))
        have = tuple(self.at[v] for v in op.operands)
        stated = op.shardings or (None,) * len(results)
        want = tuple(self._stated(s, t) for s, t in zip(stated, results, strict=True))
        if op.name in ("while", "case", "if"):
            action: Any = self._control(op, have, want)
            strategy = Strategy(have, have if op.name == "while" else want)
            operands = [self.value[v] for v in op.operands]
            want = strategy.results
        else:
            strategy = self._strategy(op, types, results, have, want)
            given = tuple(self._at(v, p) for v, p in zip(op.operands, strategy.operands, strict=True))
            action = self.plans.action(op, types, results, strategy)
            operands = self.assembler.mask(list(given), strategy)
        made = self.assembler.emit(action, tuple(operands), (), op.location)
        for r, placement, value, w in zip(op.results, strategy.results, made, want, strict=True):
            if placement.dims != w.dims:
                value = self.assembler.convert(value, self.region.types[r], placement, [w])[w]
                placement = w
            self.at[r], self.value[r] = placement, value

    def _at(self, v: int, placement: Placement) -> int:
        """A value where it lies, or, for what looks at neighbours, where it is needed instead."""
        found = self.assembler.convert(self.value[v], self.region.types[v], self.at[v], [placement])
        return found[placement]

    def _control(self, op: Op, have: Placements, want: Placements) -> Any:
        if op.name == "while":
            condition, body = op.regions
            return Loop(_Body(self.plans, condition).steps(have, None), _Body(self.plans, body).steps(have, have),
                        op.attributes.get("trip_count"))
        branches = tuple(_Body(self.plans, r).steps(have[1:], want) for r in op.regions)
        return Branch(branches, predicate=op.name == "if")

    def _strategy(self, op: Op, types: Any, results: Any, have: Placements, want: Placements) -> Strategy:
        for s, _ in self.plans.strategies(op, types, results, "planned"):
            if s.operands == have and all(
                p.dims == w.dims and set(w.partial) <= set(p.partial) for p, w in zip(s.results, want, strict=True)
            ):
                return s
        if op.name in LOOK_ALONG:
            return self.plans.strategies(op, types, results, "planned")[0][0]
        shown = f"{', '.join(map(str, have))} -> {', '.join(map(str, want))}"
        raise NotInPlace(f"{op.name}{types} is not computed in place at {shown}")
