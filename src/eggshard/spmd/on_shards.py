"""Device programs of ops whose local computation depends on the shard's position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from eggshard.ops import registry
from eggshard.ops.shard_program import PLACE, Shard, ShardProgram
from eggshard.placement.transfer import Strategy
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement
from eggshard.program.program import Region
from eggshard.program.types import TensorType, numpy_dtype
from eggshard.steps.assemble import Assembler
from eggshard.steps.authored_steps import DeviceNumber
from eggshard.steps.steps import Local, StepPlan

Types = tuple[TensorType, ...]
#: Of constants until it is known along which axes the program finds its way.
_UNTOLD = ("",)


def on_shards(
    mesh: Mesh, name: str, attributes: Attributes, regions: tuple[Region, ...], operands: Types, results: Types,
    strategy: Strategy,
) -> StepPlan:
    """The device program of an op by a strategy that shards a positional factor of it."""
    program = _Steps(mesh, operands, results, strategy)
    made = registry.get(name).on_shards(attributes, program, regions)
    return program.build(made)


def likeness(operands: Types, results: Types, strategy: Strategy) -> tuple[object, ...]:
    """What of a strategy `on_shards` looks at; where that is the same, only numbers of places differ, and no cost."""
    placements = (*strategy.operands, *strategy.results)
    shards = _shards((*operands, *results), placements)
    starts: dict[tuple[Dim, int], int] = {}
    same = tuple(
        (starts.setdefault((p.dims[d], s.type.shape[d]), len(starts)), bool(p.dims[d].low))
        for s, p in zip(shards, placements, strict=True) for d in sorted(s.sharded)
    )
    return shards, same


def _shards(types: Types, placements: Sequence[Placement]) -> tuple[Shard, ...]:
    return tuple(
        Shard(i, t, p.local_type(t), _which(dim.axes for dim in p.dims), _which(dim.wrapped for dim in p.dims))
        for i, (t, p) in enumerate(zip(types, placements, strict=True))
    )


class _Steps(ShardProgram):
    """Writes steps."""

    def __init__(self, mesh: Mesh, operands: Types, results: Types, strategy: Strategy):
        self.mesh = mesh
        self._placements = (*strategy.operands, *strategy.results)
        shards = _shards((*operands, *results), self._placements)
        self.operands, self.results = shards[: len(operands)], shards[len(operands) :]
        self.assembler = Assembler(mesh)
        self.values = tuple(self.assembler.input(shard.local) for shard in self.operands)
        self._starts: dict[tuple[Dim, int], int] = {}

    def emit(
        self, name: str, operands: Sequence[int], attributes: Attributes, regions: tuple[Region, ...] = ()
    ) -> tuple[int, ...]:
        definition = registry.get(name)
        types = tuple(map(self.type_of, operands))
        results = definition.infer(attributes, types, regions)
        sized = _UNTOLD if name == "constant" else ()
        action = Local(name, attributes, results, regions, definition.flops(attributes, types, results), sized)
        return self.assembler.emit(action, tuple(operands), ("by place",))

    def build(self, outputs: Sequence[int]) -> StepPlan:
        """The finished program. Its constants may be sizes of the tensors in which it asked where a shard begins."""
        axes = tuple(dict.fromkeys(a for held, _ in self._starts for a in held.axes))
        built = self.assembler.build(outputs)
        return replace(built, steps=tuple(
            replace(s, action=replace(s.action, sized=axes))
            if isinstance(s.action, Local) and s.action.sized == _UNTOLD else s for s in built.steps
        ))

    def type_of(self, value: int) -> TensorType:
        return self.assembler.types[value]

    def start(self, shard: Shard, dim: int) -> int:
        held, size = self._placements[shard.number].dims[dim], shard.type.shape[dim]
        if (held, size) not in self._starts:
            starts = self.mesh.index(held.axes) * held.tile
            if held.wrapped:
                starts = (starts + held.low) % size
            (number,) = self.assembler.emit(DeviceNumber(tuple(starts.tolist())), (), ("by place",))
            place = self.op("convert", number, dtype=PLACE)
            if held.low and not held.wrapped:  # numbers of devices are not negative
                low = Attributes(value=Literal(np.asarray(held.low, numpy_dtype(PLACE))))
                # A window that begins farther away than the next shard may be counted from the tensor's end.
                sized = held.axes if abs(held.low) > held.tile else ()
                constant = Local("constant", low, (self.type_of(place),), sized=sized)
                (by,) = self.assembler.emit(constant, (), ("by place",))
                place = self.op("add", place, by)
            self._starts[held, size] = place
        return self._starts[held, size]


def _which(properties: Iterable[object]) -> frozenset[int]:
    return frozenset(d for d, has in enumerate(properties) if has)
