"""From instructions to a graph of what takes memory: how XLA prepares each op for CPUs before it fuses and schedules.

- A product wants matrices, (batch, rows, contracted) and (batch, contracted, columns): operands with their dimensions
  in another order are copied first, but for plain transposes of one matrix, which the product does itself.
- An all-to-all sends and receives a buffer per block, and joins the blocks. A gather along any but the major dimension
  gathers into a buffer of its own and is copied from there; a reduce-scatter is copied before.
- Products and collectives of 16-bit floats are done in single precision, and windows at runtime positions are read and
  replaced in it: not in place, and a loop is given what it reads windows of in single precision.
- All-reductions over the same groups that do not wait for one another are one.
- What a loop carries has one buffer for all iterations, and is copied into it unless nothing else needs it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from eggshard.memory.graph import ALIGNED, Graph, Kind, Node
from eggshard.memory.instructions import Block, Instruction
from eggshard.memory.pieces import Pieces
from eggshard.program.types import TensorType

_EXPENSIVE = frozenset({
    "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "tanh", "tan", "sine", "cosine", "power",
    "atan2", "cbrt", "erf", "erf_inv", "divide", "remainder", "sqrt", "rsqrt", "asin", "acos", "atan", "sinh", "cosh",
    "asinh", "acosh", "atanh",
})  # fmt: skip
_ELEMENTWISE = _EXPENSIVE | {
    "abs", "add", "and", "bitcast_convert", "ceil", "clamp", "compare", "complex", "conj", "convert",
    "count_leading_zeros", "floor", "imag", "is_finite", "maximum", "minimum", "multiply", "negate", "not", "or",
    "popcnt", "real", "reduce_precision", "round_nearest_afz", "round_nearest_even", "select", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "square", "subtract", "xor",
}  # fmt: skip
_MOVING = frozenset({"dynamic_slice", "reverse", "gather"})
_GROUPS = re.compile(r"replica_groups = dense<[^>]*>")
_SHORT_FLOATS = ("bf16", "f16")
#: Values of so few bytes are indices and the like: nothing is laid out anew because of them.
_INDICES = 64
#: Several buffers that are one result, or that a loop carries, are a list of pointers besides.
_POINTER = 8

#: Temporaries of a body that carries the inputs at these positions (None: a branch), and the inputs it wants relaid.
Inside = Callable[[Block, Sequence[int] | None], tuple[int, set[int]]]


def graph_of(block: Block, inside: Inside) -> Graph:
    """The graph of a block; ``inside`` says what the bodies of its loops and branches take."""
    return _Reader(block, inside).graph


class _Reader:
    def __init__(self, block: Block, inside: Inside):
        self.block, self.inside = block, inside
        self.graph = Graph()
        self.pieces = Pieces(self.graph)
        self.node: dict[str, int] = {}
        #: Of broadcasts the dimensions along which they differ; products of two matrices; plain transposes, with what
        #: they transpose.
        self.along: dict[int, frozenset[int]] = {}
        self.matrices: set[int] = set()
        self.transposed: dict[int, int] = {}
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
        result = i.types[0]
        size = sum(t.bytes for t in i.types)
        match i.name:
            case "constant":
                stored = "dense<[" in i.attributes or 'dense<"' in i.attributes or not result.rank
                n = self.add(Kind.LOOP, (), 0 if stored else size, i.name, elementwise=True, spread=True)
                if not stored or not result.rank:
                    self.along[n] = frozenset()
                return n
            case "reshape":
                return self.add(Kind.VIEW, operands, 0)
            case "optimization_barrier":
                return [self.add(Kind.VIEW, (o,), 0) for o in operands]
            case "transpose":
                return self.permuted(operands[0], types[0], i.integers("permutation"))
            case "broadcast_in_dim" if size == types[0].bytes:
                return self.add(Kind.VIEW, operands, 0)
            case "dot_general":
                return self.product(i, operands, types)
            case "concatenate":
                return self.pieces.join(i.integer("dimension"), list(zip(operands, types, strict=True)))
            case "slice":
                ends = (i.integers(key) for key in ("start_indices", "limit_indices", "strides"))
                return self.pieces.cut(operands[0], types[0], *ends)
            case "pad":
                if result == types[0]:
                    return operands[0]
                low, high = i.integers("edge_padding_low"), i.integers("edge_padding_high")
                plain = not any(i.integers("interior_padding")) and min((*low, *high), default=0) >= 0
                return self.pieces.pad(tuple(operands), types[0], size, low, plain)
            case "reduce":
                return self.add(Kind.SUM, operands, size, i.name, vectorised=result.dtype == "f32")
            case "all_to_all":
                return self.exchanged(i, operands[0])
            case "all_gather":
                return self.gathered(i, operands[0], types[0])
            case "reduce_scatter":
                if math.prod(result.shape[: i.integer("scatter_dimension")]) == 1:
                    return self.called(i, [self.widened(operands[0], types[0])])
                return self.called(i, [self.add(Kind.LOOP, operands, _wide(types[0]), "blocks")])
            case "all_reduce":
                operand = self.widened(operands[0], types[0])
                kind = (result.dtype, *(j.name for j in i.regions[0].body), *_GROUPS.findall(i.attributes))
                self.reductions.setdefault(kind, []).append(len(self.graph.nodes))
                return self.called(i, [operand])
            case "collective_permute":
                return self.called(i, [self.widened(operands[0], types[0])])
            case "while":
                return self.loop(i, operands)
            case "if" | "case":
                return self.branch(i, operands, size)
            case "dynamic_update_slice" if result.dtype in _SHORT_FLOATS:
                return self.add(Kind.LOOP, operands, size, i.name)
            case "dynamic_slice" if result.dtype in _SHORT_FLOATS:
                self.wide_inputs(operands[0])
                return self.add(Kind.LOOP, operands, size, i.name)
            case "dynamic_update_slice" | "scatter":
                return self.add(Kind.UPDATE, operands, size, i.name)
        if i.name in _ELEMENTWISE:
            # A quotient by few numbers is a product with their reciprocals.
            few = i.name == "divide" and self.graph.nodes[self.graph.base(operands[1])].spread
            expensive = i.name in _EXPENSIVE and not few
            along = self.spread(operands)
            spread = along is not None and len(along) < result.rank
            n = self.add(Kind.LOOP, operands, size, i.name, elementwise=True, expensive=expensive, spread=spread)
            if along is not None:
                self.along[n] = along
            return n
        if i.name in ("broadcast_in_dim", "iota"):
            n = self.add(Kind.LOOP, operands, size, i.name, spread=True)
            dims = i.integers("broadcast_dimensions") if operands else (i.integer("iota_dimension"),)
            source = self.along.get(operands[0], range(types[0].rank)) if operands else (0,)
            self.along[n] = frozenset(dims[d] for d in source)
            return n
        if i.name in _MOVING:
            return self.add(Kind.LOOP, operands, size, i.name)
        return self.add(Kind.CALL, operands, size, i.name)

    def spread(self, operands: Sequence[int]) -> frozenset[int] | None:
        """The dimensions along which an elementwise op of broadcasts differs: it is done before they are; else None."""
        known = [self.along.get(o) for o in operands]
        along = {dims for dims in known if dims}
        return None if None in known or len(along) > 1 else next(iter(along), frozenset())

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

    def widened(self, n: int, type_: TensorType) -> int:
        """In single precision, if it is a shorter float."""
        if type_.dtype not in _SHORT_FLOATS:
            return n
        return self.add(Kind.LOOP, (n,), _wide(type_), "convert", elementwise=True)

    def called(self, i: Instruction, operands: Sequence[int], pieces: int = 1) -> int:
        """A product or collective, in single precision at least, and its result in its own type."""
        type_ = i.types[0]
        out = self.add(Kind.CALL, operands, _wide(type_), i.name, pieces=pieces)
        if type_.dtype not in _SHORT_FLOATS:
            return out
        return self.add(Kind.LOOP, (out,), type_.bytes, "convert", elementwise=True)

    def product(self, i: Instruction, operands: Sequence[int], types: Sequence[TensorType]) -> int:
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
        out = self.called(i, made)
        if not kept[0][0]:
            self.matrices.add(out)
        return out

    # -- collectives ---------------------------------------------------------------------------------------------------

    def combine(self, nodes: Sequence[int]) -> None:
        """All-reductions that do not wait for one another become one, which waits for what any of them needs.

        What an earlier one waits for may have been changed so, and then it may wait for a later one.
        """
        groups: list[list[int]] = []
        for n in nodes:
            before = self.graph.ancestors(n)
            group = next((g for g in groups if before.isdisjoint(g) and n not in self.graph.ancestors(g[0])), None)
            if group is None:
                groups.append([n])
                continue
            group.append(n)
            operands = tuple(dict.fromkeys(o for member in group for o in self.graph.nodes[member].operands))
            for member in group:
                self.graph.nodes[member].operands = operands

    def exchanged(self, i: Instruction, operand: int) -> int:
        size, count = _wide(i.types[0]), i.integer("split_count")
        blocks = self.add(Kind.LOOP, (operand,), size, "blocks", pieces=count)
        listed = self.add(Kind.CALL, (blocks,), _aligned(_POINTER * count), "tuple")
        return self.add(Kind.JOIN, (self.called(i, (blocks,), count), listed), size, "blocks")

    def gathered(self, i: Instruction, operand: int, type_: TensorType) -> int:
        dim = i.integer("all_gather_dim")
        out = self.called(i, (self.widened(operand, type_),))
        if math.prod(i.types[0].shape[:dim]) == 1 and not (dim and self.relaid(operand)):
            return out
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

    def loop(self, i: Instruction, operands: Sequence[int]) -> list[int]:
        body = i.regions[1]
        carried = [k for k, (a, b) in enumerate(zip(body.inputs, body.outputs, strict=True)) if a != b]
        size, relaid = self.inside(body, carried)
        given = [
            self.add(Kind.LOOP, (o,), _wide(t) if k in relaid else t.bytes, "copy")
            if (k in relaid and k not in carried) or (k in carried and o in operands[:k]) else o
            for k, (o, t) in enumerate(zip(operands, i.types, strict=True))
        ]
        counter = self.add(Kind.CALL, (), ALIGNED, "counter")
        listed = self.add(Kind.CALL, given, _aligned(_POINTER * len(given)), "tuple")
        work = self.add(Kind.CALL, (*given, counter, listed), _aligned(size) + ALIGNED, "body")
        return [
            self.add(Kind.UPDATE, (o, work), t.bytes, "carried") if k in carried else self.add(Kind.VIEW, (o,), 0)
            for k, (o, t) in enumerate(zip(given, i.types, strict=True))
        ]

    def branch(self, i: Instruction, operands: Sequence[int], size: int) -> int:
        """What the dearest branch takes; branches use values of outside by name."""
        outside: dict[str, None] = {}
        for region in i.regions:
            free = dict.fromkeys(v for v in region.free() if v in self.node)
            region.inputs = tuple(free)
            region.types.update((v, self.block.types[v]) for v in free)
            outside |= free
        work = max((self.inside(region, None)[0] for region in i.regions), default=0)
        return self.add(Kind.CALL, (*operands, *(self.node[v] for v in outside)), size + work, i.name)


def _wide(type_: TensorType) -> int:
    """Bytes of a value, of 16-bit floats in single precision."""
    return 4 * type_.elements if type_.dtype in _SHORT_FLOATS else type_.bytes


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
