"""Builder of the memory graph from instructions: how XLA on CPUs prepares each op before it fuses and schedules.

- A product wants matrices, (batch, rows, contracted) and (batch, contracted, columns): operands with their dimensions
  in another order are copied first, but for plain transposes of one matrix, which the product does itself. A dimension
  of size 1 that is put between others is taken to be the outermost, and who wants it where it is reads a copy.
- An all-to-all sends and receives a buffer per block, and joins the blocks. A gather along any but the major dimension
  is copied before, unless from a reduce-scatter along the same, gathers into a buffer of its own and is copied from
  there; a reduce-scatter is copied before.
- Products and reducing collectives of 16-bit floats are done in single precision. Of brain floats all collectives are,
  and windows at runtime positions are read and replaced in it: not in place, and a loop is given what it reads windows
  of in single precision.
- All-reductions over the same groups that do not wait for one another are one.
- What a loop carries has one buffer for all iterations, and is copied into it unless what else needs it comes before.
  What it wants in another layout is laid out before the outermost loop that does not change it.
- Arithmetic is simplified (`arithmetic.py`), and so are slices of slices (`pieces.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eggshard.memory.xla_cpu.arithmetic import Arithmetic, is_elementwise
from eggshard.memory.xla_cpu.graph import Graph, Kind, Node
from eggshard.memory.xla_cpu.instructions import Block, Instruction
from eggshard.memory.xla_cpu.packing import ALIGNED, Lives, in_turn
from eggshard.memory.xla_cpu.pieces import Pieces
from eggshard.program.types import TensorType

_MOVING = frozenset({"reverse", "gather"})
_GROUPS = re.compile(r"replica_groups = dense<[^>]*>")
#: Floats that are computed with in single precision, and those that are not moved by themselves either.
_SHORT_FLOATS = ("bf16", "f16")
_UNMOVED = ("bf16",)
_MOVERS = frozenset({"all_gather", "all_to_all", "collective_permute", "dynamic_slice", "dynamic_update_slice"})
#: Bytes up to which a value counts as an index or the like, for which no operand is copied into another layout.
_INDICES = 64
#: Bytes of the pointer that XLA keeps for each of several buffers that form one result or that a loop carries.
_POINTER = 8

#: Temporaries of a body that carries the inputs at these positions (None: a branch), and the inputs it wants relaid.
Inside = Callable[[Block, Sequence[int] | None], tuple[Lives, set[int]]]


def graph_of(block: Block, inside: Inside, carried: Sequence[int] | None = None) -> Graph:
    """The graph of a block; ``inside`` says what the bodies of its loops and branches take.

    carried: for a loop's body the positions of the inputs that change; the others are laid out before the loop.
    """
    return _Reader(block, inside, carried).graph


@dataclass
class _Combined:
    """All-reductions that become one: which, in order and as bits; as bits, what they wait for."""

    members: int
    waits: int
    nodes: list[int]


class _Reader:
    def __init__(self, block: Block, inside: Inside, carried: Sequence[int] | None):
        self.block, self.inside, self.carried = block, inside, carried
        self.graph = Graph()
        self.pieces = Pieces(self.graph)
        self.node: dict[str, int] = {}
        self.arithmetic = Arithmetic(self.graph)
        #: Products of two matrices; plain transposes, with what they transpose; views whose dimensions of size 1 XLA
        #: takes to be the outermost.
        self.matrices: set[int] = set()
        self.transposed: dict[int, int] = {}
        self.turned: set[int] = set()
        #: Along which minor dimension a value was scattered, which it has in the major place until it is read.
        self.scattered: dict[int, int] = {}
        #: What floats that are too short are in single precision.
        self.wide: dict[int, int] = {}
        #: Per loop the node of all iterations, and the views with which it begins what it carries, with their bytes.
        self.begun: list[tuple[int, dict[int, int]]] = []
        self.equal: dict[tuple[object, ...], tuple[str, ...]] = {}
        #: All-reductions that one collective can do, and what goes into each.
        self.reductions: dict[tuple[str, ...], list[int]] = {}
        for name in block.inputs:
            self.node[name] = self.add(Kind.INPUT, (), block.types[name].bytes)
        self.graph.inputs = tuple(self.node[name] for name in block.inputs)
        for instruction in block.body:
            self.read(instruction)
        self.graph.outputs = tuple(self.node[name] for name in block.outputs)
        for nodes in self.reductions.values():
            self.combine(nodes)
        self.keep()

    def add(self, kind: Kind, operands: Sequence[int], size: int, name: str = "", **more: bool | int) -> int:
        return self.graph.add(Node(kind, tuple(operands), size, name, **more))  # type: ignore[arg-type]

    def read(self, i: Instruction) -> None:
        operands = [self.node[v] for v in i.operands]
        key = (i.name, *operands, i.attributes)
        if not i.regions and key in self.equal:
            self.node.update((new, self.node[old]) for new, old in zip(i.results, self.equal[key], strict=True))
        elif i.results:
            self.equal[key] = i.results
            made = self.made(i, operands)
            if isinstance(made, int):
                made = [made] if len(i.results) == 1 else [self.add(Kind.VIEW, (made,), 0) for _ in i.results]
            self.node.update(zip(i.results, made, strict=True))

    def made(self, i: Instruction, operands: list[int]) -> int | list[int]:
        """The node of an op, or those of its results."""
        types = [self.block.types[v] for v in i.operands]
        if i.name in _HANDLERS:
            return _HANDLERS[i.name](self, i, operands, types)
        if is_elementwise(i.name):
            return self.arithmetic.elementwise(i.name, operands, types, i.types[0])
        return self.add(Kind.LOOP if i.name in _MOVING else Kind.CALL, operands, i.bytes, i.name)

    # -- data ----------------------------------------------------------------------------------------------------------

    def constant(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        if "dense<[" in i.attributes or 'dense<"' in i.attributes:
            return self.add(Kind.LOOP, (), 0, i.name, elementwise=True, spread=True)
        found = re.search(r"dense<([^>]*)>", i.attributes)
        return self.arithmetic.constant(i.types[0], found[1] if found else "")

    def iota(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        return self.arithmetic.iota(i.integer("iota_dimension"), i.types[0])

    def barrier(self, i: Instruction, operands: list[int], types: list[TensorType]) -> list[int]:
        return [self.add(Kind.VIEW, (o,), 0, i.name, elementwise=True) for o in operands]

    def reshape(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        n = self.add(Kind.VIEW, operands, 0)
        if _inner_ones(i.types[0]) and not _inner_ones(types[0]):
            self.turned.add(n)
        return n

    def transpose(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        return self.permuted(operands[0], types[0], i.integers("permutation"))

    def broadcast(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        if i.bytes == types[0].bytes:
            return self.add(Kind.VIEW, operands, 0)
        return self.arithmetic.broadcast(operands[0], types[0], i.integers("broadcast_dimensions"), i.types[0])

    def concatenate(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        return self.pieces.join(i.integer("dimension"), list(zip(operands, types, strict=True)))

    def slice(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        ends = (i.integers(key) for key in ("start_indices", "limit_indices", "strides"))
        return self.pieces.cut(operands[0], types[0], *ends)

    def pad(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        if i.types[0] == types[0]:
            return operands[0]
        low, high = i.integers("edge_padding_low"), i.integers("edge_padding_high")
        plain = not any(i.integers("interior_padding")) and min((*low, *high), default=0) >= 0
        return self.pieces.pad(tuple(operands), types[0], i.bytes, low, plain)

    def reduce(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        reducer = [j.name for j in i.regions[0].body]
        return self.arithmetic.reduced(reducer, operands, types[0], i.integers("dimensions"), i.bytes)

    def window(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        if i.types[0].dtype in _UNMOVED:
            self.wide_inputs(operands[0])
        return self.add(Kind.LOOP, operands, i.bytes, i.name)

    def update(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        unmoved = i.name == "dynamic_update_slice" and i.types[0].dtype in _UNMOVED
        return self.add(Kind.LOOP if unmoved else Kind.UPDATE, operands, i.bytes, i.name)

    def permuted(self, n: int, type_: TensorType, order: Sequence[int]) -> int:
        """A copy with dimensions in another order; a view where only dimensions of size 1 change places.

        And where a product of matrices is transposed: it makes the transpose instead.
        """
        moved = [d for d in order if type_.shape[d] != 1]
        if moved == sorted(moved) or (len(moved) == 2 and self.graph.base(n) in self.matrices):
            return self.add(Kind.VIEW, (n,), 0)
        out = self.add(Kind.LOOP, (n,), type_.bytes, "transpose")
        if len(moved) == 2:
            self.transposed[out] = n
        return out

    def widened(self, n: int, type_: TensorType, name: str = "") -> int:
        """Return the node converted to single precision if the op has no kernel for its narrow float type."""
        size = _wide(type_, name)
        if size == type_.bytes:
            return n
        if n not in self.wide:
            self.wide[n] = self.add(Kind.LOOP, (n,), size, "convert", elementwise=True)
        return self.wide[n]

    def called(self, i: Instruction, operands: Sequence[int], pieces: int = 1, vectorised: bool = False) -> int:
        """A product or collective, in single precision at least, and its result in its own type."""
        type_ = i.types[0]
        size = _wide(type_, i.name)
        out = self.add(Kind.CALL, operands, size, i.name, pieces=pieces, vectorised=vectorised)
        if size == type_.bytes:
            return out
        return self.add(Kind.LOOP, (out,), type_.bytes, "convert", elementwise=True)

    def laid_out(self, n: int, type_: TensorType) -> int:
        """A value whose dimensions of size 1 XLA takes to be the outermost: a copy, if they are not."""
        return self.add(Kind.LOOP, (n,), type_.bytes, "copy") if _inner_ones(type_) else n

    def product(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        sides = []
        for side, type_ in zip(("lhs", "rhs"), types, strict=True):
            batch, contracted = (i.integers(f"{side}_{kind}_dimensions") for kind in ("batching", "contracting"))
            free = tuple(d for d in range(type_.rank) if d not in batch + contracted)
            sides.append((batch, free, contracted))
        kept = [[[d for d in dims if t.shape[d] != 1] for dims in side] for side, t in zip(sides, types, strict=True)]
        vector = any(not free for _, free, _ in kept)  # then the product is no matter of a library
        made = []
        for k, (batch, free, contracted) in enumerate(sides):
            few = len(kept[k][1]) <= 1 and len(kept[k][2]) <= 1
            leading = kept[k][0] == sorted(kept[k][0]) and kept[k][0] == [
                d for d, n in enumerate(types[k].shape) if n != 1][: len(kept[k][0])]
            if few and (not kept[k][0] or (vector and leading)):
                n = self.transposed.get(operands[k], operands[k])
            else:
                order = (*batch, *contracted, *free) if k else (*batch, *free, *contracted)
                n = self.permuted(operands[k], types[k], order)
            made.append(self.widened(n, types[k]))
        out = self.called(i, made, vectorised=types[0].dtype in ("f32", "f64") and not vector)
        if not kept[0][0]:
            self.matrices.add(out)
        return self.laid_out(out, i.types[0])

    # -- collectives ---------------------------------------------------------------------------------------------------

    def combine(self, nodes: Sequence[int]) -> None:
        """All-reductions that do not wait for one another become one, which waits for what any of them needs.

        What an earlier one waits for may have been changed so, and then it may wait for a later one.
        """
        groups: list[_Combined] = []
        waits = self.graph.waits() if len(nodes) > 1 else []
        for n in nodes if waits else ():
            before = waits[n]
            for g in groups:
                if before & g.members:
                    before |= g.waits
            group = next((g for g in groups if not before & g.members and not g.waits >> n & 1), None)
            if group is None:
                groups.append(_Combined(1 << n, before, [n]))
                continue
            group.members, group.waits = group.members | 1 << n, group.waits | before
            group.nodes.append(n)
            for g in groups:
                if g.waits & group.members:
                    g.waits |= group.waits
        for g in groups:
            operands = tuple(dict.fromkeys(o for n in g.nodes for o in self.graph.nodes[n].operands))
            for n in g.nodes if len(g.nodes) > 1 else ():
                self.graph.nodes[n].operands = operands

    def reduced(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        operand = self.widened(operands[0], types[0])
        kind = (i.types[0].dtype, *(j.name for j in i.regions[0].body), *_GROUPS.findall(i.attributes))
        self.reductions.setdefault(kind, []).append(len(self.graph.nodes))
        return self.called(i, [operand])

    def reduce_scattered(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        dim = i.integer("scatter_dimension")
        if math.prod(i.types[0].shape[:dim]) == 1:
            return self.called(i, [self.widened(operands[0], types[0])])
        out = self.called(i, [self.add(Kind.LOOP, operands, _wide(types[0]), "blocks")])
        self.scattered[out] = dim
        return out

    def permuted_devices(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        return self.called(i, [self.widened(operands[0], types[0], i.name)])

    def exchanged(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        size, count = _wide(i.types[0], i.name), i.integer("split_count")
        blocks = self.add(Kind.LOOP, operands, size, "blocks", pieces=count)
        listed = self.add(Kind.CALL, (blocks,), _aligned(_POINTER * count), "tuple")
        return self.add(Kind.JOIN, (self.called(i, (blocks,), count), listed), size, "blocks")

    def gathered(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        dim, operand, type_ = i.integer("all_gather_dim"), operands[0], types[0]
        relaid = dim > 0 and self.relaid(operand)
        given = self.widened(operand, type_, i.name)
        if math.prod(i.types[0].shape[:dim]) == 1 and not relaid:
            return self.called(i, (given,))
        if not relaid and self.scattered.get(operand) != dim:
            given = self.add(Kind.LOOP, (given,), _wide(type_, i.name), "copy")
        out = self.called(i, (given,))
        return self.add(Kind.LOOP, (out,), i.types[0].bytes, "transpose")

    def wide_inputs(self, n: int) -> None:
        """What is read windows of in single precision is given so, if it comes from outside."""
        base = self.graph.base(n)
        if base in self.graph.inputs:
            self.graph.relaid.add(self.graph.inputs.index(base))

    def relaid(self, n: int) -> bool:
        """Whether what is gathered comes out of a stack that a loop carries.

        The gathered dimension gets the major place, and the loop is given the whole stack in that layout.
        """
        nodes, found = self.graph.nodes, False
        stack = [self.graph.base(n)]
        while stack:
            node = nodes[stack.pop()]
            source = self.graph.base(node.operands[0]) if node.operands else -1
            if node.name == "dynamic_slice" and source in self.graph.inputs:
                self.graph.relaid.add(self.graph.inputs.index(source))
                found = True
            elif node.kind in (Kind.LOOP, Kind.UPDATE) or node.name == "collective_permute":
                bases = (self.graph.base(o) for o in node.operands)
                stack.extend(o for o in bases if nodes[o].bytes > _INDICES)
        return found

    # -- regions -------------------------------------------------------------------------------------------------------

    def loop(self, i: Instruction, operands: list[int], types: list[TensorType]) -> list[int]:
        body = i.regions[1]
        operands = [self.laid_out(o, t) if o in self.turned else o for o, t in zip(operands, i.types, strict=True)]
        carried = [k for k, (a, b) in enumerate(zip(body.inputs, body.outputs, strict=True)) if a != b]
        lives, relaid = self.inside(body, carried)
        given = []
        for k, (o, t) in enumerate(zip(operands, i.types, strict=True)):
            if k in relaid and k not in carried and not self.before(o):
                o = self.add(Kind.LOOP, (o,), _wide(t, "dynamic_slice"), "copy")
            elif k in carried and o in operands[:k]:
                o = self.add(Kind.LOOP, (o,), t.bytes, "copy")
            given.append(o)
        begun = {}
        for k in carried:
            if self.graph.nodes[self.graph.base(given[k])].kind is not Kind.INPUT:
                given[k] = self.add(Kind.VIEW, (given[k],), 0, "begun", elementwise=True)
                begun[given[k]] = i.types[k].bytes
        counter = self.add(Kind.CALL, (), ALIGNED, "counter")
        listed = self.add(Kind.CALL, given, _aligned(_POINTER * len(given)), "tuple")
        work = self.add(Kind.CALL, (*given, counter, listed), ALIGNED, "body")
        self.graph.inside[work] = lives
        self.begun.append((work, begun))
        return [
            self.add(Kind.UPDATE, (o, work), t.bytes, "carried") if k in carried else self.add(Kind.VIEW, (o,), 0)
            for k, (o, t) in enumerate(zip(given, i.types, strict=True))
        ]

    def before(self, n: int) -> bool:
        """Whether a value is given to this block's own loop, which can have it in the layout that is wanted here."""
        base = self.graph.base(n)
        if self.carried is None or base not in self.graph.inputs:
            return False
        k = self.graph.inputs.index(base)
        if k in self.carried:
            return False
        self.graph.relaid.add(k)
        return True

    def keep(self) -> None:
        """Loops begin with copies of what others need that do not come before them."""
        nodes = self.graph.nodes
        readers: dict[int, set[int]] = {self.graph.base(n): set() for _, begun in self.begun for n in begun}
        for m, node in enumerate(nodes):
            if readers and node.kind is not Kind.VIEW:
                for o in self.graph.reads(m):
                    if o in readers:
                        readers[o].add(m)
        results = {self.graph.base(o) for o in self.graph.outputs}
        waits = self.graph.waits() if any(begun for _, begun in self.begun) else []
        for work, begun in self.begun:
            for n, size in begun.items():
                base = self.graph.base(n)
                own = {m for m in readers[base] if m == work or n in nodes[m].operands}
                if base in results or not all(waits[work] >> m & 1 for m in readers[base] - own):
                    nodes[n].kind, nodes[n].bytes, nodes[n].name = Kind.CALL, size, "copy"
                    readers[base] = readers[base] - own | {n}

    def branch(self, i: Instruction, operands: list[int], types: list[TensorType]) -> int:
        """What the dearest branch takes; branches use values of outside by name."""
        outside: dict[str, None] = {}
        for region in i.regions:
            free = dict.fromkeys(v for v in region.free() if v in self.node)
            region.inputs = tuple(free)
            region.types.update((v, self.block.types[v]) for v in free)
            outside |= free
        found = [self.inside(region, None)[0] for region in i.regions]
        work = self.add(Kind.CALL, (*operands, *(self.node[v] for v in outside)), i.bytes, i.name)
        self.graph.inside[work] = in_turn(found)
        return work


#: What each op becomes, from its operands' nodes and types; see `_Reader.made` for all others.
_HANDLERS: dict[str, Callable[[_Reader, Instruction, list[int], list[TensorType]], int | list[int]]] = {
    "constant": _Reader.constant, "iota": _Reader.iota, "optimization_barrier": _Reader.barrier,
    "reshape": _Reader.reshape, "transpose": _Reader.transpose, "broadcast_in_dim": _Reader.broadcast,
    "concatenate": _Reader.concatenate, "slice": _Reader.slice, "pad": _Reader.pad, "reduce": _Reader.reduce,
    "dynamic_slice": _Reader.window, "dynamic_update_slice": _Reader.update, "scatter": _Reader.update,
    "dot_general": _Reader.product, "all_reduce": _Reader.reduced, "reduce_scatter": _Reader.reduce_scattered,
    "collective_permute": _Reader.permuted_devices, "all_to_all": _Reader.exchanged, "all_gather": _Reader.gathered,
    "while": _Reader.loop, "if": _Reader.branch, "case": _Reader.branch,
}


def _inner_ones(type_: TensorType) -> bool:
    """Whether a dimension of size 1 is inside one that is longer."""
    return "n1" in "".join("1" if size == 1 else "n" for size in type_.shape)


def _wide(type_: TensorType, name: str = "") -> int:
    """Bytes of what an op reads or makes: of floats that are too short for it in single precision."""
    short = type_.dtype in (_UNMOVED if name in _MOVERS else _SHORT_FLOATS)
    return 4 * type_.elements if short else type_.bytes


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
