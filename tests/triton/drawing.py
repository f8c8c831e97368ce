"""TritonGPU kernels in the making: blocks, encodings, and tensors that are known at a place."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.triton.layouts.random_encodings import Draw

from eggshard.triton.kernels.ir import Block, Operation, Region, TensorType, Type, Value
from eggshard.triton.layouts.encodings import Encoding, read
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules import structure

FAST = {"fastmath": "#arith.fastmath<none>"}
OVERFLOW = {"overflowFlags": "#arith.overflow<none>"}
FLOATS, INTEGERS = ("f32", "f16"), ("i32", "i8")


class Drawing:
    """A kernel in the making: the block that is being filled, and what is known there."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.draw = Draw(self.random.getrandbits(32))
        target = self.random.choice(["cuda:80", "cuda:90", "hip:gfx942"])
        self.machine = Machine(target, self.random.choice([1, 2, 4]), 64 if target.startswith("hip") else 32)
        #: Sizes of dimensions are few, so that tensors meet.
        self.sizes = self.random.sample([2, 4, 8, 16, 32], 2)
        self.encodings: dict[int, list[Encoding]] = {rank: [] for rank in (1, 2, 3)}
        self.block = Block()
        self.known: list[Value] = []
        self.depth = 0

    # -- building blocks ---------------------------------------------------------------------------------------------

    def op(self, name: str, operands: Sequence[Value] = (), types: Sequence[Type] = (), regions: Sequence[Region] = (),
           **properties: str) -> list[Value]:
        found = Operation(name, list(operands), [], properties, {}, list(regions), [], self.block)
        for region in regions:
            region.parent = found
        found.results = [Value(type_, found, i) for i, type_ in enumerate(types)]
        self.block.operations.append(found)
        return found.results

    def one(self, name: str, operands: Sequence[Value], type_: Type, **properties: str) -> Value:
        return self.op(name, operands, [type_], **properties)[0]

    def region(self, types: Sequence[Type], fill: Callable[[list[Value]], None]) -> Region:
        """A region of one block, filled with what is known so far and its arguments in scope."""
        region = Region()
        block = Block(region)
        region.blocks.append(block)
        block.arguments = [Value(type_, block, i) for i, type_ in enumerate(types)]
        before, known = self.block, list(self.known)
        self.block = block
        self.known += block.arguments
        self.depth += 1
        fill(block.arguments)
        self.depth -= 1
        self.block, self.known = before, known
        return region

    def scalar(self, value: int, element: str = "i32") -> Value:
        return self.one("arith.constant", [], element, value=f"{value} : {element}")

    def encoding(self, rank: int) -> Encoding:
        """One that was drawn before, or a new one."""
        some = self.encodings[rank]
        if not some or len(some) < 3 and self.random.random() < 0.4:
            kinds = self.random.random()
            if kinds < 0.5:
                text = self.draw.blocked(rank, self.machine)
            elif kinds < 0.75 and rank < 3:
                text = str(structure.sliced(self.random.randrange(rank + 1), self.encoding(rank + 1)))
            else:
                text = self.draw.encoding(rank, self.machine, linear=True)
            if "dot_op" in text or "isTransposed" in text:  # they ask for certain element types
                text = self.draw.blocked(rank, self.machine)
            some.append(read(text))
        return self.random.choice(some)

    def shape(self, rank: int) -> tuple[int, ...]:
        return tuple(self.random.choice(self.sizes) for _ in range(rank))

    def type_(self, shape: Sequence[int], element: str, encoding: Encoding | None = None) -> TensorType:
        return TensorType(tuple(shape), element, str(encoding or self.encoding(len(shape))))

    def at(self, value: Value, encoding: Encoding) -> Value:
        """A tensor at an encoding, converted if need be; now and then by a detour."""
        if typed(value).encoding == str(encoding):
            return value
        if self.random.random() < 0.1:
            value = self.at(value, self.encoding(len(typed(value).shape)))
            if typed(value).encoding == str(encoding):
                return value
        return self.one("ttg.convert_layout", [value], typed(value)._replace(encoding=str(encoding)))

    def tensors(self, test: Callable[[TensorType], bool] = lambda _: True) -> list[Value]:
        return [v for v in self.known if v.tensor is not None and test(v.tensor)]

    def tensor(self, test: Callable[[TensorType], bool] = lambda _: True) -> Value | None:
        """A known tensor, rather a late one."""
        some = self.tensors(test)
        return some[-1 - int(len(some) * self.random.random() ** 1.5)] if some else None

    def like(self, value: Value, element: str | None = None, encoding: Encoding | None = None) -> Value:
        """A tensor of the shape (and element) of another, at its encoding."""
        type_ = typed(value)
        element = element or type_.element
        encoding = encoding or read(type_.encoding or "")
        found = self.tensor(lambda t: t.shape == type_.shape and t.element == element)
        if found is None or self.random.random() < 0.15:
            return self.made(type_.shape, element, encoding)
        return self.at(found, encoding)

    def made(self, shape: Sequence[int], element: str, encoding: Encoding) -> Value:
        """A constant or splat."""
        type_ = self.type_(shape, element, encoding)
        scalars = [v for v in self.known if v.type == element]
        if scalars and self.random.random() < 0.5:
            return self.one("tt.splat", [self.random.choice(scalars)], type_)
        number = self.random.choice([0, 1, 2, 3])
        text = f"dense<{number}{'.0' if element[0] == 'f' else ''}>" if element != "i1" else "dense<true>"
        return self.one("arith.constant", [], type_, value=f"{text} : {type_}")

    def keep(self, *values: Value) -> None:
        self.known += values


def typed(value: Value) -> TensorType:
    """A tensor's type."""
    assert value.tensor is not None
    return value.tensor
