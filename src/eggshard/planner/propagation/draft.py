"""A mutable draft of a program, whose ops and values propagation's preparation may copy, add and reconnect.

Uses of a value are listed as MLIR lists them, the latest first, since Shardy visits ops in that order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from eggshard.ops import registry
from eggshard.ops.elementwise.pointwise import Pointwise
from eggshard.ops.module_text import PRINTED_REGIONS
from eggshard.program.attributes import Attributes
from eggshard.program.axes import AxisRef, difference, in_mesh_order
from eggshard.program.mesh import Mesh
from eggshard.program.program import Op, Program, Region
from eggshard.program.sharding import DimSharding, Sharding, whole_mesh
from eggshard.program.types import TensorType

FUNCTION, RETURN, EDGE = "func", "return", "data_flow_edge"
CONSTRAINT, GROUP, MANUAL = "sharding_constraint", "sharding_group", "manual_computation"
#: Ops whose operands flow into regions and out again, or through the op.
DATA_FLOW = ("while", "case", "optimization_barrier", MANUAL)


class Value:
    """Result ``number`` of an op, its owner; or argument ``number`` of a ``block`` of it."""

    __slots__ = ("type", "number", "owner", "block", "sharding", "_uses")

    def __init__(self, type_: TensorType, number: int, owner: DraftOp, block: Block | None = None,
                 sharding: Sharding | None = None) -> None:
        self.type, self.number, self.owner, self.block, self.sharding = type_, number, owner, block, sharding
        self._uses: dict[tuple[DraftOp, int], None] = {}

    @property
    def definer(self) -> DraftOp | None:
        """The op that it is a result of; None for an argument."""
        return self.owner if self.block is None else None

    @property
    def uses(self) -> list[tuple[DraftOp, int]]:
        """The ops that use it, and which operand of theirs it is."""
        return list(reversed(self._uses))

    def replace(self, other: Value, but_for: DraftOp) -> None:
        """Let all users but one use another value instead."""
        for op, number in self.uses:
            if op is not but_for:
                op.set(number, other)


class Block:
    """The ops of a region, in order."""

    __slots__ = ("owner", "arguments", "ops")

    def __init__(self, owner: DraftOp, types: Sequence[TensorType], shardings: Sequence[Sharding | None]) -> None:
        self.owner = owner
        self.arguments = [
            Value(type_, i, owner, self, sharding)
            for i, (type_, sharding) in enumerate(zip(types, shardings, strict=True))
        ]
        self.ops: list[DraftOp] = []
        owner.blocks.append(self)

    def add(self, op: DraftOp, at: int | None = None) -> None:
        """Put an op at a place, or else at the end."""
        op.block = self
        self.ops.insert(len(self.ops) if at is None else at, op)


class DraftOp:
    """An op. key: the number of the program's op that it is, or is a copy of; ops are numbered before their regions'.

    ends: the shardings that a manual computation states for its operands and results.
    """

    __slots__ = ("name", "attributes", "key", "regions", "operands", "results", "blocks", "block", "ends")

    def __init__(self, name: str, types: Sequence[TensorType] = (), attributes: Attributes | None = None,
                 key: int = -1, regions: tuple[Region, ...] = ()) -> None:
        self.name, self.attributes, self.key, self.regions = name, attributes or Attributes(), key, regions
        self.operands: list[Value] = []
        self.results = [Value(type_, i, self) for i, type_ in enumerate(types)]
        self.blocks: list[Block] = []
        self.block: Block | None = None
        self.ends: tuple[list[Sharding], list[Sharding]] = [], []

    def use(self, *operands: Value) -> None:
        """Take further operands."""
        for value in operands:
            value._uses[self, len(self.operands)] = None
            self.operands.append(value)

    def set(self, number: int, value: Value) -> None:
        """Use another value as an operand."""
        del self.operands[number]._uses[self, number]
        value._uses[self, number] = None
        self.operands[number] = value

    def remove(self) -> None:
        """Take it out of its block."""
        if self.block is not None:
            self.block.ops.remove(self)

    def release(self) -> None:
        """Use its operands no more."""
        for number, value in enumerate(self.operands):
            del value._uses[self, number]

    def stand_behind(self, value: Value) -> None:
        """Stand behind the op that defines a value; at the top of its block for an argument."""
        if value.block is not None:
            value.block.add(self, 0)
        elif value.owner.block is not None:
            value.owner.block.add(self, value.owner.block.ops.index(value.owner) + 1)

    def copy(self) -> DraftOp:
        """Insert a copy of this op, with the same operands and shardings, directly before it and return the copy."""
        out = DraftOp(self.name, [value.type for value in self.results], self.attributes, self.key, self.regions)
        for value, copied in zip(self.results, out.results, strict=True):
            copied.sharding = value.sharding
        out.use(*self.operands)
        if self.block is not None:
            self.block.add(out, self.block.ops.index(self))
        return out

    @property
    def elementwise(self) -> bool:
        """Whether elements depend on those at their place alone; Shardy takes constraints for such ops, too."""
        return self.name == CONSTRAINT or (registry.known(self.name) and isinstance(registry.get(self.name), Pointwise))

    @property
    def pure(self) -> bool:
        """Whether nothing would be missed of it but its results."""
        if self.name in (CONSTRAINT, GROUP, EDGE) or not registry.is_pure(self.name, self.regions):
            return False
        return all(op.pure or op.name == RETURN for block in self.blocks for op in block.ops)


def within(op: DraftOp) -> Iterator[DraftOp]:
    """The ops of an op's regions, each before those of its own."""
    for block in op.blocks:
        for inner in block.ops:
            yield inner
            yield from within(inner)


def inside_first(op: DraftOp) -> list[DraftOp]:
    """The ops of an op's regions, each behind those of its own."""
    return [found for block in op.blocks for inner in block.ops for found in (*inside_first(inner), inner)]


def draft_of(program: Program) -> tuple[DraftOp, list[Sharding | None]]:
    """The program as a function, and the shardings stated for its results.

    Without axes of size 1, and without shardings that propagation has no use for.
    """
    reader = _Reader(whole_mesh(program.mesh))
    function = DraftOp(FUNCTION)
    block = Block(function, program.input_types, list(map(reader.stated, program.input_shardings)))
    reader.fill(block, program.region, block.arguments)
    return function, list(map(reader.stated, program.output_shardings))


class _Reader:
    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._keys = count()

    def fill(self, block: Block, region: Region, given: Sequence[Value]) -> None:
        values = dict(zip(region.inputs, given, strict=True))
        for op in region.ops:
            key, operands = next(self._keys), [values[v] for v in op.operands]
            types = [region.types[v] for v in op.results]
            if op.name == CONSTRAINT and self.stated(op.attributes["sharding"]) is None:
                values[op.results[0]] = operands[0]
                continue
            draft = DraftOp(op.name, types, op.attributes, key, op.regions)
            for value, sharding in zip(draft.results, self._of_results(op, types), strict=True):
                value.sharding = sharding
            if op.name == MANUAL:
                self._manual(draft, op)
            elif op.name in PRINTED_REGIONS:
                for inner in op.regions:
                    # As in StableHLO, branches take no arguments: they use the operands from outside.
                    taken = [v.type for v in operands] if op.name == "while" else []
                    body = Block(draft, taken, [None] * len(taken))
                    self.fill(body, inner, body.arguments or operands[1:])
            draft.use(*(operands[:1] if op.name in ("case", "if") else operands))
            block.add(draft)
            values.update(zip(op.results, draft.results, strict=True))
        end = DraftOp(RETURN)
        end.use(*(values[v] for v in region.outputs))
        block.add(end)

    def _manual(self, draft: DraftOp, op: Op) -> None:
        (inner,), axes = op.regions, op.attributes["manual_axes"]
        for end, key in zip(draft.ends, ("in_shardings", "out_shardings"), strict=True):
            end += [naming(without_size_one(s, self.mesh), axes, self.mesh) for s in op.attributes[key]]
        ins, outs = draft.ends
        body = Block(draft, [inner.types[v] for v in inner.inputs], [s.without(axes) for s in ins])
        self.fill(body, inner, body.arguments)
        for value, sharding in zip(draft.results, outs, strict=True):
            value.sharding = sharding

    def _of_results(self, op: Op, types: Sequence[TensorType]) -> list[Sharding | None]:
        if op.name == CONSTRAINT:
            return [self.stated(op.attributes["sharding"])]
        found = list(map(self.stated, op.shardings)) or [None] * len(types)
        return [s or Sharding.fully_open(t.rank) for s, t in zip(found, types, strict=True)] if any(found) else found

    def stated(self, sharding: Sharding | None) -> Sharding | None:
        """A sharding that propagation can use: not of a single device, and without partial values other than sums."""
        if sharding is None or sharding.device is not None or (sharding.unreduced and sharding.reduction != "add"):
            return None
        return without_size_one(sharding, self.mesh)


def without_size_one(sharding: Sharding, mesh: Mesh) -> Sharding:
    """Remove mesh axes of size one from a sharding; a closed dimension left without axes loses its priority."""
    if not any(mesh.axes[axis.name] == 1 for axis in sharding.axes):
        return sharding
    after = sharding.without([name for name, size in mesh.axes.items() if size == 1])
    dims = tuple(d if d.axes or d.open else DimSharding() for d in after.dims)
    # Parts of an axis between which one of size one stood are now one part.
    return Sharding(dims, after.replicated, after.unreduced, after.reduction).canonical(mesh)


def naming(sharding: Sharding, manual: Sequence[str], mesh: Mesh) -> Sharding:
    """The sharding with all of these axes named; those that it does not name are replicated."""
    unnamed = difference([AxisRef(name) for name in manual], sharding.axes, mesh.axes)
    if not unnamed:
        return sharding
    replicated = in_mesh_order([*sharding.replicated, *unnamed], mesh.axes)
    return Sharding(sharding.dims, replicated, sharding.unreduced, sharding.reduction)
