"""What a module with explicit reshards comes to: its collectives by jaxlib, every op on shards as its shardings say.

A second reading of such modules: the placements of values are taken from the text alone, and an op is only accepted on
shards where one of its own strategies has its operands and results there.
"""

from __future__ import annotations

from typing import Any

from jax.interpreters import mlir as jax_mlir

import eggshard as es
from eggshard.costmodel import WireBytes
from eggshard.frontends.region_reader import ModuleReader
from eggshard.frontends.stablehlo import parse_module
from eggshard.limits import Limits
from eggshard.placement.placement import Placement
from eggshard.placement.sharding import Sharding
from eggshard.placement.transfer import Strategy
from eggshard.plan.assemble import Assembler
from eggshard.plan.plan import Plan
from eggshard.planning import Planning
from eggshard.program.program import Op, Program
from eggshard.program.types import TensorType
from eggshard.regions import RegionPlanner
from eggshard.shardy.peer import run_peer

FULL = "func.func(sdy-insert-explicit-reshards{enable-full-version=true})"
COLLECTIVES = "func.func(sdy-reshard-to-collectives),canonicalize"


def peer_reshards(text: str) -> str:
    """The module with the reshards that jaxlib's pass decides on."""
    return passed(text, FULL)


def passed(text: str, pipeline: str) -> str:
    found = run_peer(text, pipeline)
    assert not found.failure, f"jaxlib's {pipeline} failed: {found.failure}\n{text}"
    return found.text


def realised(original: str, explicit: str) -> Plan:
    """The plan that a module with explicit reshards stands for, of the program that the original is."""
    program = es.load(original)
    collectives = es.load(passed(explicit, COLLECTIVES))
    steps, inputs, outputs = _Reader(_unnormalised(collectives)).steps()
    return Plan(program, steps, inputs, outputs, WireBytes())


def _unnormalised(program: Program) -> Program:
    """The program op by op as the text has it."""
    assert program.text is not None
    with jax_mlir.make_ir_context():
        module = parse_module(program.text)
        reader = ModuleReader(module)
        block = reader.functions["main"].regions[0].blocks[0]
        body = reader.region(block.arguments)
        region = body.builder.build(body.read(block))
    return Program(program.mesh, region, program.input_shardings, program.output_shardings)


class _Reader:
    def __init__(self, program: Program):
        self.program, self.region = program, program.region
        limits = Limits(permutes=0, windows=0)
        self.planning = Planning(program, WireBytes(), limits, False, RegionPlanner([]))
        self.assembler = Assembler(program.mesh, self.planning.router)
        self.at: dict[int, Placement] = {}
        self.value: dict[int, int] = {}
        self.unreduced: set[int] = set()

    def steps(self) -> tuple[Any, tuple[Placement, ...], tuple[Placement, ...]]:
        region = self.region
        inputs = tuple(self._placed(s, region.types[v])
                       for s, v in zip(self.program.input_shardings, region.inputs, strict=True))
        for v, placement in zip(region.inputs, inputs, strict=True):
            self.at[v], self.value[v] = placement, self.assembler.input(placement.local_type(region.types[v]))
        for op in region.ops:
            if op.name == "sharding_constraint":
                self._convert(op)
            else:
                self._compute(op)
        outputs = tuple(self._placed(s, region.types[v])
                        for s, v in zip(self.program.output_shardings, region.outputs, strict=True))
        for v, placement in zip(region.outputs, outputs, strict=True):
            self._combine_scalar(v)
            assert self.at[v] == placement, f"output %{v} lies at {self.at[v]}, and is stated at {placement}"
        return self.assembler.build(self.value[v] for v in region.outputs), inputs, outputs

    def _placed(self, sharding: Sharding | None, type_: TensorType) -> Placement:
        return self.planning.resolve(sharding, type_)

    def _convert(self, op: Op) -> None:
        (v,), (r,) = op.operands, op.results
        target = self._placed(op.attributes["sharding"], self.region.types[r])
        made = self.assembler.convert(self.value[v], self.region.types[v], self.at[v], [target])
        self.at[r], self.value[r] = target, made[target]

    def _combine_scalar(self, v: int) -> None:
        """The front end takes a scalar's collectives for nothing, as shardings say nothing of scalars otherwise."""
        if not self.region.types[v].rank and v not in self.unreduced:
            whole = Placement(())
            self.value[v] = self.assembler.convert(self.value[v], self.region.types[v], self.at[v], [whole])[whole]
            self.at[v] = whole

    def _compute(self, op: Op) -> None:
        types, results = (tuple(self.region.types[v] for v in vs) for vs in (op.operands, op.results))
        for v in op.operands:
            self._combine_scalar(v)
        have = tuple(self.at[v] for v in op.operands)
        stated = op.shardings or (None,) * len(results)
        want = tuple(self._placed(s, t) for s, t in zip(stated, results, strict=True))
        strategy = self._strategy(op, types, results, have, want)
        operands = self.assembler.mask([self.value[v] for v in op.operands], strategy)
        action = self.planning.action(op, types, results, strategy)
        made = self.assembler.emit(action, tuple(operands), (), op.location)
        for r, placement, value in zip(op.results, strategy.results, made, strict=True):
            self.at[r], self.value[r] = placement, value
        self.unreduced.update(r for r, w in zip(op.results, want, strict=True) if w.partial)

    def _strategy(self, op: Op, types: Any, results: Any, have: Any, want: Any) -> Strategy:
        for s, _ in self.planning.strategies(op, types, results, "planned"):
            if s.operands == have and all(
                p.dims == w.dims and set(w.partial) <= set(p.partial) for p, w in zip(s.results, want, strict=True)
            ):
                return s
        shown = f"{', '.join(map(str, have))} -> {', '.join(map(str, want))}"
        raise AssertionError(f"{op.name}{types} is not computed in place at {shown}")
