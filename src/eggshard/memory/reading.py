"""From instructions to nodes: what each op is to the compiler's memory."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from eggshard.memory.instructions import Block, Instruction
from eggshard.memory.kernels import CALL, JOIN, LOOP, SUM, UPDATE, VIEW, Nodes
from eggshard.memory.kernels import _ELEMENTWISE, _EXPENSIVE, _MOVING, _UPDATES
from eggshard.program.types import TensorType


_SHORT = ("bf16", "f16")


def nodes_of(block: Block, inside: object) -> Nodes:
    """The nodes of a block. ``inside(block, carried)`` says what a loop's or branch's body takes beside what it is given."""
    return _Reader(block, inside).nodes


class _Reader:
    def __init__(self, block: Block, inside):
        self.block, self.inside = block, inside
        self.nodes = Nodes()
        self.node: dict[str, int] = {}
        for name in block.inputs:
            self.node[name] = self.nodes.add("input", (), block.types[name].bytes)
        self.nodes.inputs = tuple(self.node[name] for name in block.inputs)
        #: Broadcasts of fewer elements, and constants: what a product or quotient with them takes from memory is small.
        self.small: set[int] = set()
        self.plain: set[int] = set()
        self.flipped: dict[int, int] = {}
        self.parts: dict[int, tuple[int, list[tuple[int, TensorType]]]] = {}
        self.pads = {}
        self.cuts = {}
        self.equal = {}
        self.joins: dict[tuple[int, ...], int] = {}
        for instruction in block.body:
            self.read(instruction)
        self.nodes.outputs = tuple(self.node[name] for name in block.outputs)

    def bind(self, i: Instruction, node: int) -> None:
        self.node[i.results[0]] = node

    def read(self, i: Instruction) -> None:
        operands = [self.node[v] for v in i.operands if v in self.node]
        if not i.results:
            return
        key = (i.name, tuple(operands), i.attributes)
        if not i.regions and key in self.equal and len(i.operands) == len(operands):
            for name, other in zip(i.results, self.equal[key], strict=True):
                self.node[name] = self.node[other]
            return
        self.equal[key] = i.results
        size = sum(t.bytes for t in i.types)
        add = self.nodes.add
        match i.name:
            case "constant":
                splat = "dense<[" not in i.attributes and 'dense<"' not in i.attributes
                self.bind(i, add(LOOP, (), size if splat and i.types[0].rank else 0, True, name="constant"))
                self.small.add(self.node[i.results[0]])
            case "reshape" | "optimization_barrier":
                self.views(i, operands)
            case "transpose":
                self.bind(i, self.permuted(operands[0], self.type(i), i.integers("permutation")))
            case "broadcast_in_dim" if size == self.type(i).bytes:
                self.bind(i, add(VIEW, tuple(operands), 0))
            case "dot_general":
                self.bind(i, self.product(i, operands))
            case "concatenate":
                self.bind(i, self.joined(i, operands))
            case "slice":
                start, stop, stride = (i.integers(k) for k in ("start_indices", "limit_indices", "strides"))
                self.bind(i, self.cut(operands[0], self.type(i), start, stop, stride))
            case "pad":
                self.bind(i, add(LOOP, tuple(operands), size, name=i.name))
                low, between = i.integers("edge_padding_low"), i.integers("interior_padding")
                if not any(between) and min(low, default=0) >= 0:
                    self.pads[self.node[i.results[0]]] = operands[0], self.type(i), low
            case "reduce":
                out = add(SUM, tuple(operands), size, name=i.types[0].dtype)
                self.several(i, out)
            case "all_to_all":
                n = int(re.search(r"split_count = (\d+)", i.attributes)[1])
                size = self.wide(i.types[0])
                blocks = add(LOOP, tuple(operands), size, pieces=n, name="blocks")
                sent = self.call(i.name, (blocks,), i.types[0], n)
                self.bind(i, add(JOIN, (sent,), size, name="blocks joined"))
            case "all_gather":
                self.bind(i, self.gathered(i, operands[0]))
            case "reduce_scatter":
                dim = int(re.search(r"scatter_dimension = (\d+)", i.attributes)[1])
                if math.prod(i.types[0].shape[:dim]) > 1:
                    operands = [add(LOOP, tuple(operands), self.wide(self.type(i)), name="blocks")]
                else:
                    operands = [self.widened(operands[0], self.type(i))]
                self.bind(i, self.call(i.name, operands, i.types[0]))
            case "all_reduce" | "collective_permute":
                self.several(i, self.call(i.name, [self.widened(operands[0], self.type(i))], i.types[0]))
            case "while":
                self.loop(i, operands)
            case "if" | "case":
                work = max((self.inside(r, self.block.types, ()) for r in i.regions), default=0)
                outside = [self.node[v] for r in i.regions for b in r.body for v in b.operands if v in self.node]
                out = add(CALL, (*operands, *outside), size + work, name=i.name)
                self.several(i, out)
            case _ if i.name in _UPDATES:
                self.bind(i, add(UPDATE, tuple(operands), size, name=i.name))
            case _ if i.name in _ELEMENTWISE:
                expensive = i.name in _EXPENSIVE
                if i.name == "divide" and self.is_small(operands[1]):
                    expensive = False  # a product with the reciprocals
                self.bind(i, add(LOOP, tuple(operands), size, True, expensive, name=i.name))
            case _ if i.name in _MOVING:
                self.bind(i, add(LOOP, tuple(operands), size, name=i.name))
                if i.name == "broadcast_in_dim":
                    self.small.add(self.node[i.results[0]])
            case _:
                self.several(i, add(CALL, tuple(operands), size, name=i.name))

    def is_small(self, n: int) -> bool:
        return self.nodes.base(n) in self.small

    def type(self, i: Instruction, k: int = 0) -> TensorType:
        return self.block.types[i.operands[k]]

    def several(self, i: Instruction, out: int) -> None:
        for name in i.results:
            self.node[name] = out if len(i.results) == 1 else self.nodes.add(VIEW, (out,), 0)

    def views(self, i: Instruction, operands: Sequence[int]) -> None:
        for name, operand in zip(i.results, operands, strict=True):
            self.node[name] = self.nodes.add(VIEW, (operand,), 0)

    def permuted(self, n: int, type_: TensorType, order: Sequence[int]) -> int:
        """A view where only dimensions of size 1 change places."""
        moved = [d for d in order if type_.shape[d] != 1]
        if moved == sorted(moved) or (len(moved) == 2 and self.nodes.base(n) in self.plain):
            return self.nodes.add(VIEW, (n,), 0)
        out = self.nodes.add(LOOP, (n,), type_.bytes, name="transpose")
        if len(moved) == 2:
            self.flipped[out] = n
        return out

    def product(self, i: Instruction, operands: Sequence[int]) -> int:
        text = i.attributes

        def dims(key: str) -> tuple[int, ...]:
            found = re.search(rf"{key} = \[([\d, ]*)\]", text)
            return tuple(int(n) for n in found[1].split(",")) if found and found[1].strip() else ()

        sides, made = [], []
        for k, side in enumerate(("lhs", "rhs")):
            type_ = self.type(i, k)
            batch, contracted = dims(f"{side}_batching_dimensions"), dims(f"{side}_contracting_dimensions")
            free = tuple(d for d in range(type_.rank) if d not in batch + contracted)
            sides.append((type_, [[d for d in part if type_.shape[d] != 1] for part in (batch, free, contracted)],
                          (batch, free, contracted)))
        vector = any(not kept[1] for _, kept, _ in sides)
        for k, (type_, kept, (batch, free, contracted)) in enumerate(sides):
            n = operands[k]
            order = (*batch, *free, *contracted) if k == 0 else (*batch, *contracted, *free)
            leading = kept[0] == sorted(kept[0]) and all(d < e for d in kept[0] for e in kept[1] + kept[2])
            plain = (not kept[0] or (vector and leading)) and len(kept[1]) <= 1 and len(kept[2]) <= 1
            n = self.flipped.get(n, n) if plain else self.permuted(n, type_, order)
            made.append(self.widened(n, type_))
        out = self.call(i.name, made, i.types[0])
        if not any(n != 1 for n in i.types[0].shape[: len(batch)]):
            self.plain.add(out)
        return out

    def widened(self, n: int, type_: TensorType) -> int:
        """Short floats are converted before products and collectives, which are done in single precision."""
        if type_.dtype not in _SHORT:
            return n
        return self.nodes.add(LOOP, (n,), 4 * type_.elements, True, name="convert")

    def call(self, name: str, operands: Sequence[int], type_: TensorType, pieces: int = 1) -> int:
        short = type_.dtype in _SHORT
        size = 4 * type_.elements if short else type_.bytes
        out = self.nodes.add(CALL, tuple(operands), size, pieces=pieces, name=name)
        return self.nodes.add(LOOP, (out,), type_.bytes, True, name="convert") if short else out

    def joined(self, i: Instruction, operands: Sequence[int]) -> int:
        dim = int(re.search(r"dimension = (\d+)", i.attributes)[1])
        types = [self.block.types[v] for v in i.operands]
        return self.join(dim, list(zip(operands, types, strict=True)))

    def join(self, dim: int, parts: list[tuple[int, TensorType]]) -> int:
        """A concatenation; along the minor dimension it is a call, for which its operands are written out."""
        if len(parts) == 1:
            return parts[0][0]
        key = (dim, *(n for n, _ in parts))
        if key not in self.joins:
            minor = math.prod(parts[0][1].shape[dim + 1 :]) == 1
            size = sum(t.bytes for _, t in parts)
            node = self.nodes.add(CALL if minor else JOIN, tuple(n for n, _ in parts), size, name="concatenate")
            self.joins[key] = node
            self.parts[node] = dim, parts
        return self.joins[key]

    def cut(self, n: int, type_: TensorType, start, stop, stride) -> int:
        """A slice: of slices, pads and concatenations of what it touches of their operands."""
        while True:
            if n in self.cuts:
                n, type_, first = self.cuts[n]
                start, stop = ([a + b for a, b in zip(ends, first, strict=True)] for ends in (start, stop))
                continue
            if n in self.pads:
                operand, inner, low = self.pads[n]
                lower, upper = ([a - b for a, b in zip(ends, low, strict=True)] for ends in (start, stop))
                if all(a >= 0 and b <= size for a, b, size in zip(lower, upper, inner.shape, strict=True)):
                    n, type_, start, stop = operand, inner, lower, upper
                    continue
            if n in self.parts:
                dim, parts = self.parts[n]
                at, touched, before = 0, [], 0
                for part, t in parts:
                    if at < stop[dim] and at + t.shape[dim] > start[dim]:
                        touched.append((part, t))
                    elif not touched:
                        before += t.shape[dim]
                    at += t.shape[dim]
                if len(touched) < len(parts):
                    n = self.join(dim, touched)
                    shape = list(type_.shape)
                    shape[dim] = sum(t.shape[dim] for _, t in touched)
                    type_ = type_.with_shape(tuple(shape))
                    start, stop = ([x - before * (d == dim) for d, x in enumerate(ends)] for ends in (start, stop))
                    continue
            break
        shape = tuple(-(-(b - a) // s) for a, b, s in zip(start, stop, stride, strict=True))
        if shape == type_.shape:
            return n
        key = ("slice", n, *start, *stop, *stride)
        if key not in self.joins:
            self.joins[key] = self.nodes.add(LOOP, (n,), type_.with_shape(shape).bytes, name="slice")
            if all(s == 1 for s in stride):
                self.cuts[self.joins[key]] = n, type_, tuple(start)
        return self.joins[key]

    def gathered(self, i: Instruction, operand: int) -> int:
        dim = int(re.search(r"all_gather_dim = (\d+)", i.attributes)[1])
        out = self.call(i.name, (self.widened(operand, self.type(i)),), i.types[0])
        if math.prod(i.types[0].shape[:dim]) == 1:
            return out
        return self.nodes.add(LOOP, (out,), i.types[0].bytes, name="transpose")

    def wide(self, type_: TensorType) -> int:
        return 4 * type_.elements if type_.dtype in _SHORT else type_.bytes

    def loop(self, i: Instruction, operands: Sequence[int]) -> None:
        condition, body = i.regions
        through = [a == b for a, b in zip(body.inputs, body.outputs, strict=True)]
        carried = tuple(k for k, same in enumerate(through) if not same)
        work = self.inside(body, self.block.types, carried)
        node = self.nodes.add(CALL, tuple(operands), work, name="while body")
        for k, (name, operand, type_) in enumerate(zip(i.results, operands, i.types, strict=True)):
            if through[k]:
                self.node[name] = self.nodes.add(VIEW, (operand,), 0)
            else:
                self.node[name] = self.nodes.add(UPDATE, (operand, node), type_.bytes, name="carried")
