"""TritonGPU kernels drawn at random: tensors of all encodings through ops, loops and branches.

What they compute makes no sense, but is defined: indices are masked to what they index, loops end.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from tests.layouts.random_encodings import Draw

from eggshard.kernels.ir import Block, Kernel, Operation, Region, TensorType, Type, Value
from eggshard.kernels.text import write_generic
from eggshard.layouts.encodings import Encoding, make, read
from eggshard.layouts.machine import Machine
from eggshard.triton.rules import structure
from eggshard.triton.rules.rule import Mapped
from eggshard.triton.rules.table import rule_of

_FAST = {"fastmath": "#arith.fastmath<none>"}
_OVERFLOW = {"overflowFlags": "#arith.overflow<none>"}
_SHARED = "#ttg.swizzled_shared<{{vec = 1, perPhase = 1, maxPhase = 1, order = {}}}>"
_FLOATS, _INTEGERS = ("f32", "f16"), ("i32", "i8")
#: Elements in memory that kernels read and write, per pointer.
_EXTENT = 1024


def random_kernel(seed: int, ops: int = 14) -> Kernel:
    """A kernel of about so many ops (and those that they need), the same for the same seed."""
    return _Maker(seed).kernel(ops)


def random_text(seed: int, ops: int = 14) -> str:
    """The kernel in generic form."""
    return write_generic(random_kernel(seed, ops))


class _Maker:
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
        if _type(value).encoding == str(encoding):
            return value
        if self.random.random() < 0.1:
            value = self.at(value, self.encoding(len(_type(value).shape)))
            if _type(value).encoding == str(encoding):
                return value
        return self.one("ttg.convert_layout", [value], _type(value)._replace(encoding=str(encoding)))

    def tensors(self, test: Callable[[TensorType], bool] = lambda _: True) -> list[Value]:
        return [v for v in self.known if v.tensor is not None and test(v.tensor)]

    def tensor(self, test: Callable[[TensorType], bool] = lambda _: True) -> Value | None:
        """A known tensor, rather a late one."""
        some = self.tensors(test)
        return some[-1 - int(len(some) * self.random.random() ** 1.5)] if some else None

    def like(self, value: Value, element: str | None = None, encoding: Encoding | None = None) -> Value:
        """A tensor of the shape (and element) of another, at its encoding."""
        type_ = _type(value)
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

    # -- ops ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        kinds = [self.range, self.unary, self.unary, self.binary, self.binary, self.binary, self.chosen, self.expand,
                 self.expand, self.broadcast, self.broadcast, self.reduce, self.reduce, self.scan, self.trans,
                 self.reshape, self.join, self.split, self.gather, self.load, self.load, self.store, self.converted,
                 self.converted, self.scalar_op, self.atomic, self.shared, self.repeat, self.repeat]
        if self.depth < 3:
            kinds += [self.loop, self.loop, self.branch, self.branch, self.endless, self.dot_loop]
        self.random.choice(kinds)()

    def range(self) -> None:
        (n,) = self.shape(1)
        self.keep(self.one("tt.make_range", [], self.type_((n,), "i32"), start="0 : i32", end=f"{n} : i32"))

    def unary(self) -> None:
        value = self.tensor(lambda t: t.element in (*_FLOATS, "i32"))
        if value is None:
            return self.range()
        if self.random.random() < 0.4:
            value = self.at(value, self.encoding(len(_type(value).shape)))
        name, element = self.random.choice({
            "f32": [("math.exp2", "f32"), ("math.absf", "f32"), ("arith.negf", "f32"), ("arith.truncf", "f16"),
                    ("arith.bitcast", "i32")],
            "f16": [("arith.extf", "f32"), ("arith.negf", "f16")],
            "i32": [("arith.sitofp", "f32"), ("arith.sitofp", "f16"), ("arith.trunci", "i8")]}[_type(value).element])
        fast = {"math.exp2": _FAST, "math.absf": _FAST, "arith.negf": _FAST, "arith.truncf": {}, "arith.extf": {},
                "arith.trunci": _OVERFLOW}
        self.keep(self.one(name, [value], _type(value)._replace(element=element), **fast.get(name, {})))

    def binary(self) -> None:
        value = self.tensor(lambda t: t.element in (*_FLOATS, *_INTEGERS))
        if value is None:
            return self.range()
        if self.random.random() < 0.5:
            value = self.at(value, self.encoding(len(_type(value).shape)))
        other = self.like(value)
        if _type(value).element in _FLOATS:
            name = self.random.choice(["arith.addf", "arith.mulf", "arith.subf", "arith.maxnumf"])
            self.keep(self.one(name, [value, other], value.type, **_FAST))
        else:
            name = self.random.choice(["arith.addi", "arith.muli", "arith.subi", "arith.xori", "arith.maxsi"])
            more = _OVERFLOW if name[6:] in ("addi", "muli", "subi") else {}
            self.keep(self.one(name, [value, other], value.type, **more))

    def chosen(self) -> None:
        value = self.tensor(lambda t: t.element in (*_FLOATS, *_INTEGERS))
        if value is None:
            return self.range()
        self.keep(self.one("arith.select", [self.mask(value), value, self.like(value)], value.type))

    def mask(self, value: Value) -> Value:
        """Booleans of a tensor's shape, at its encoding."""
        encoding = read(_type(value).encoding or "")
        found = self.tensor(lambda t: t.shape == _type(value).shape and t.element == "i1")
        if found is not None and self.random.random() < 0.5:
            return self.at(found, encoding)
        left, right = self.like(value, "i32"), self.like(value, "i32")
        mask = self.one("arith.cmpi", [left, right], _type(value)._replace(element="i1"), predicate="2 : i64")
        self.keep(mask)
        return mask

    def converted(self) -> None:
        value = self.tensor()
        if value is not None:
            self.keep(self.at(value, self.encoding(len(_type(value).shape))))

    def repeat(self) -> None:
        """The same once more, as it is or at another encoding, perhaps in another block."""
        some = [v for v in self.tensors() if isinstance(v.owner, Operation) and len(v.owner.results) == 1
                and v.owner.name.partition(".")[0] in ("arith", "math") and v.owner.operands]
        if not some:
            return
        op = self.random.choice(some).owner
        assert isinstance(op, Operation)
        encoding = self.encoding(len(_type(op.results[0]).shape))
        operands = [self.at(v, encoding) for v in op.operands]
        self.keep(self.one(op.name, operands, _type(op.results[0])._replace(encoding=str(encoding)), **op.properties))

    def expand(self) -> None:
        value = self.tensor(lambda t: len(t.shape) < 3)
        if value is None:
            return self.range()
        shape = list(_type(value).shape)
        axis = self.random.randrange(len(shape) + 1)
        parent = self.encoding(len(shape) + 1)
        sliced = self.at(value, structure.sliced(axis, parent))
        shape.insert(axis, 1)
        found = self.one("tt.expand_dims", [sliced], _type(value)._replace(shape=tuple(shape), encoding=str(parent)),
                         axis=f"{axis} : i32")
        self.keep(found, self.broadcasted(found))

    def broadcasted(self, value: Value) -> Value:
        shape = tuple(self.random.choice(self.sizes) if n == 1 else n for n in _type(value).shape)
        return self.one("tt.broadcast", [value], _type(value)._replace(shape=shape))

    def broadcast(self) -> None:
        value = self.tensor(lambda t: 1 in t.shape)
        if value is None:
            return self.expand()
        if self.random.random() < 0.5:
            value = self.at(value, self.encoding(len(_type(value).shape)))
        self.keep(self.broadcasted(value))

    def combine(self, kind: str, elements: Sequence[str]) -> Region:
        def fill(arguments: list[Value]) -> None:
            half = len(elements)
            found = []
            for i, element in enumerate(elements):
                name, more = ("arith.maxnumf", _FAST) if element[0] == "f" else ("arith.addi", _OVERFLOW)
                found.append(self.one(name, [arguments[i], arguments[half + i]], element, **more))
            self.op(f"tt.{kind}.return", found)

        return self.region([*elements, *elements], fill)

    def several(self) -> tuple[list[Value], TensorType] | None:
        """One or two tensors of a shape and an encoding."""
        value = self.tensor(lambda t: t.element in ("f32", "i32"))
        if value is None:
            return None
        value = self.at(value, self.encoding(len(_type(value).shape))) if self.random.random() < 0.3 else value
        values = [value]
        if self.random.random() < 0.4:
            values.append(self.like(value, self.random.choice(["f32", "i32"])))
        return values, _type(value)

    def reduce(self) -> None:
        found = self.several()
        if found is None:
            return self.range()
        values, type_ = found
        axis = self.random.randrange(len(type_.shape))
        region = self.combine("reduce", [_type(v).element for v in values])
        shape = tuple(n for d, n in enumerate(type_.shape) if d != axis)
        encoding = structure.sliced(axis, read(type_.encoding or ""))
        types: list[Type] = [TensorType(shape, _type(v).element, str(encoding)) if shape else _type(v).element
                             for v in values]
        self.keep(*self.op("tt.reduce", values, types, [region], axis=f"{axis} : i32"))

    def scan(self) -> None:
        found = self.several()
        if found is None:
            return self.range()
        values, type_ = found
        encoding = read(self.draw.blocked(len(type_.shape), self.machine))
        values = [self.at(v, encoding) for v in values]
        region = self.combine("scan", [_type(v).element for v in values])
        axis = self.random.randrange(len(type_.shape))
        self.keep(*self.op("tt.scan", values, [v.type for v in values], [region], axis=f"{axis} : i32",
                           reverse=self.random.choice(["true", "false"])))

    def moved(self, name: str, values: Sequence[Value], shape: Sequence[int], **properties: str) -> list[Value] | None:
        """An op whose results' encoding follows from its operands'; None if it has none."""
        type_ = _type(values[0])._replace(shape=tuple(shape))
        count = 2 if name == "tt.split" else 1
        probe = Operation(name, list(values), [], properties)
        probe.results = [Value(type_, probe, i) for i in range(count)]
        rule = rule_of(name)
        assert isinstance(rule, Mapped)
        encoding = rule.forward(probe, read(_type(values[0]).encoding or ""), self.machine)
        if encoding is None:
            return None
        return self.op(name, values, [type_._replace(encoding=str(encoding))] * count, **properties)

    def trans(self) -> None:
        value = self.tensor(lambda t: len(t.shape) > 1)
        if value is None:
            return self.expand()
        shape = _type(value).shape
        order = self.random.sample(range(len(shape)), len(shape))
        self.keep(*self.moved("tt.trans", [value], [shape[d] for d in order], order=f"array<i32: {str(order)[1:-1]}>")
                  or ())

    def reshape(self) -> None:
        value = self.tensor()
        if value is None:
            return self.range()
        shape = list(_type(value).shape)
        if len(shape) > 1 and self.random.random() < 0.5:
            at = self.random.randrange(len(shape) - 1)
            shape[at:at + 2] = [shape[at] * shape[at + 1]]
        elif len(shape) < 3:
            at = self.random.randrange(len(shape))
            low = 1 << self.random.randint(0, shape[at].bit_length() - 1)
            shape[at:at + 1] = [shape[at] // low, low]
        self.keep(*self.moved("tt.reshape", [value], shape) or ())

    def join(self) -> None:
        value = self.tensor(lambda t: len(t.shape) < 3)
        if value is None:
            return self.range()
        self.keep(*self.moved("tt.join", [value, self.like(value)], [*_type(value).shape, 2]) or ())

    def split(self) -> None:
        value = self.tensor(lambda t: len(t.shape) > 1 and t.shape[-1] == 2)
        if value is None:
            return self.join()
        rank = len(_type(value).shape) - 1
        joined = structure.joined(read(self.draw.blocked(rank, self.machine)), rank)
        assert joined is not None
        self.keep(*self.moved("tt.split", [self.at(value, joined)], _type(value).shape[:-1]) or ())

    def gather(self) -> None:
        value = self.tensor()
        if value is None:
            return self.range()
        type_ = _type(value)
        axis = self.random.randrange(len(type_.shape))
        encoding = self.encoding(len(type_.shape))
        indices = self.like(value, "i32", encoding)
        limit = self.one("arith.constant", [], indices.type, value=f"dense<{type_.shape[axis] - 1}> : {indices.type}")
        indices = self.one("arith.andi", [indices, limit], indices.type)
        self.keep(self.one("tt.gather", [value, indices], type_._replace(encoding=str(encoding)), axis=f"{axis} : i32"))

    def scalar_op(self) -> None:
        some = [v for v in self.known if v.type == "i32"]
        left, right = self.random.choice(some), self.random.choice(some)
        self.keep(self.one("arith.xori", [left, right], "i32"))

    # -- memory ------------------------------------------------------------------------------------------------------

    def pointers(self, element: str, offsets: Value) -> Value:
        """Into an argument's memory, at offsets that are cut to its extent."""
        base = next(v for v in self.known if v.type == f"!tt.ptr<{element}>")
        limit = self.one("arith.constant", [], offsets.type, value=f"dense<{_EXTENT - 1}> : {offsets.type}")
        offsets = self.one("arith.andi", [offsets, limit], offsets.type)
        type_ = _type(offsets)._replace(element=f"!tt.ptr<{element}>")
        return self.one("tt.addptr", [self.one("tt.splat", [base], type_), offsets], type_)

    def load(self) -> None:
        offsets = self.tensor(lambda t: t.element == "i32")
        if offsets is None:
            return self.range()
        if self.random.random() < 0.5:
            offsets = self.at(offsets, self.encoding(len(_type(offsets).shape)))
        element = self.random.choice(["f32", "f16", "i32"])
        operands = [self.pointers(element, offsets)]
        if self.random.random() < 0.5:
            operands.append(self.mask(offsets))
            operands.append(self.like(offsets, element))
        sizes = ", ".join(str(int(i < len(operands))) for i in range(3))
        self.keep(self.one("tt.load", operands, _type(offsets)._replace(element=element),
                           isVolatile=self.random.choice(["false", "false", "false", "true"]),
                           operandSegmentSizes=f"array<i32: {sizes}>"))

    def store(self) -> None:
        offsets = self.tensor(lambda t: t.element == "i32")
        if offsets is None:
            return self.range()
        value = self.tensor(lambda t: t.shape == _type(offsets).shape and t.element in ("f32", "f16", "i32"))
        if value is not None:
            self.stored(value, offsets)

    def stored(self, value: Value, offsets: Value) -> None:
        offsets = self.at(offsets, read(_type(value).encoding or ""))
        operands = [self.pointers(_type(value).element, offsets), value]
        if self.random.random() < 0.3:
            operands.append(self.mask(value))
        self.op("tt.store", operands)

    def atomic(self) -> None:
        offsets = self.tensor(lambda t: t.element == "i32")
        if offsets is None:
            return self.range()
        value = self.like(offsets)
        operands = [self.pointers("i32", offsets), value, self.mask(offsets)]
        self.keep(self.one("tt.atomic_rmw", operands, value.type, atomic_rmw_op="4 : i32", sem="4 : i32",
                           scope="1 : i32"))

    def shared(self) -> None:
        value = self.tensor(lambda t: t.element in ("f32", "f16", "i32"))
        if value is None:
            return self.range()
        type_ = _type(value)
        shape = "".join(f"{n}x" for n in type_.shape)
        order = list(reversed(range(len(type_.shape))))
        memory = f"!ttg.memdesc<{shape}{type_.element}, {_SHARED.format(order)}, #ttg.shared_memory>"
        held = self.one("ttg.local_alloc", [value], memory)
        encoding = self.encoding(len(type_.shape))
        self.keep(self.one("ttg.local_load", [held], type_._replace(encoding=str(encoding))))

    # -- loops and branches ------------------------------------------------------------------------------------------

    def steps(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.step()

    def ended(self, name: str, types: Sequence[Type], first: Sequence[Value] = ()) -> None:
        """A terminator with values of these types: any that are there, new ones where there are none."""
        found: list[Value] = []
        for type_ in types:
            if not isinstance(type_, TensorType):
                some = [v for v in self.known if v.type == type_]
                found.append(self.random.choice(some[-3:]))
                continue
            same = self.tensors(lambda t, s=type_: t.shape == s.shape and t.element == s.element)  # type: ignore[misc]
            exact = [v for v in same if v.type == type_]
            if same and self.random.random() < 0.7:
                found.append(self.at(same[-1 - int(len(same) * self.random.random() ** 2)], read(type_.encoding or "")))
            elif exact:
                found.append(self.random.choice(exact))
            else:
                found.append(self.made(type_.shape, type_.element, read(type_.encoding or "")))
        self.op(name, [*first, *found])

    def carried(self, least: int = 0) -> list[Value]:
        some = self.tensors(lambda t: "ptr" not in t.element)
        values = [self.random.choice(some) for _ in range(self.random.randint(least, 3))] if some else []
        if some and values and self.random.random() < 0.3:  # two of a type, which can be swapped
            other = self.tensor(lambda t: t.shape == _type(values[0]).shape and t.element == _type(values[0]).element)
            if other is not None:
                values.append(self.at(other, read(_type(values[0]).encoding or "")))
        return [self.at(v, self.encoding(len(_type(v).shape))) if self.random.random() < 0.2 else v for v in values]

    def loop(self) -> None:
        values = self.carried()
        low, step = self.scalar(0), self.scalar(1)
        known = self.random.random()
        high = self.scalar(self.random.randint(0, 3)) if known < 0.7 else self.known[_COUNT]
        types = [v.type for v in values]

        def fill(arguments: list[Value]) -> None:
            self.steps()
            self.ended("scf.yield", types)

        body = self.region(["i32", *types], fill)
        self.keep(*self.op("scf.for", [low, high, step, *values], types, [body]))

    def condition(self) -> Value:
        some = [v for v in self.known if v.type == "i32"]
        pair = [self.random.choice(some), self.random.choice([*some, self.scalar(1)])]
        return self.one("arith.cmpi", pair, "i1", predicate=f"{self.random.choice([0, 1, 2])} : i64")

    def branch(self) -> None:
        types = [v.type for v in self.carried()]
        condition = self.condition()

        def fill(arguments: list[Value]) -> None:
            self.steps()
            self.ended("scf.yield", types)

        regions = [self.region([], fill)]
        regions.append(self.region([], fill) if types or self.random.random() < 0.5 else Region())
        self.keep(*self.op("scf.if", [condition], types, regions))

    def endless(self) -> None:
        """A loop without a count."""
        values = self.carried()
        types: list[Type] = [v.type for v in values]
        passed: list[Type] = [v.type for v in self.random.sample(values, self.random.randint(0, len(values)))]

        def test(arguments: list[Value]) -> None:
            if self.random.random() < 0.5:
                self.steps()
            more = self.one("arith.cmpi", [arguments[0], self.scalar(3)], "i1", predicate="2 : i64")
            self.ended("scf.condition", passed, [more, arguments[0]])

        def fill(arguments: list[Value]) -> None:
            self.steps()
            count = self.one("arith.addi", [arguments[0], self.scalar(1)], "i32", **_OVERFLOW)
            self.ended("scf.yield", types, [count])

        start = self.scalar(self.random.randint(0, 3))
        regions = [self.region(["i32", *types], test), self.region(["i32", *passed], fill)]
        self.keep(*self.op("scf.while", [start, *values], ["i32", *passed], regions))

    def dot_loop(self) -> None:
        """A product in a loop, with the accumulator carried."""
        shape = (16, 16)
        warps = self.machine.num_warps
        fields: dict[str, int] = {}
        parent = read(self.draw.blocked(2, self.machine))
        if self.machine.target == "cuda:80":
            parent = make("ttg.nvidia_mma", versionMajor=2, versionMinor=0, warpsPerCTA=(warps, 1), instrShape=(16, 8))
            fields = {"kWidth": 2}
        sides = [make(structure.DOT_OPERAND, opIdx=i, parent=parent, **fields) for i in (0, 1)]
        start = self.made(shape, "f32", parent)
        if self.random.random() < 0.5:
            start = self.like(start)
        first = self.made(shape, "f16", self.encoding(2))
        self.keep(first)

        def fill(arguments: list[Value]) -> None:
            self.steps()
            operands = [self.at(self.like(first), side) for side in sides]
            found = self.one("tt.dot", [*operands, arguments[1]], arguments[1].type, inputPrecision="2 : i32",
                             maxNumImpreciseAcc="0 : i32")
            self.keep(found)
            if self.random.random() < 0.3:
                self.branch()
            self.op("scf.yield", [self.like(found) if self.random.random() < 0.2 else found])

        body = self.region(["i32", start.type], fill)
        bounds = [self.scalar(0), self.scalar(2), self.scalar(1)]
        self.keep(*self.op("scf.for", [*bounds, start], [start.type], [body]))

    # -- the whole ---------------------------------------------------------------------------------------------------

    def kernel(self, ops: int) -> Kernel:
        types: list[Type] = ["!tt.ptr<f32>", "!tt.ptr<f16>", "!tt.ptr<i32>", "i32", "i32", "f32"]

        def fill(arguments: list[Value]) -> None:
            self.keep(self.one("tt.get_program_id", [], "i32", axis="0 : i32"))
            self.range()
            for _ in range(ops):
                self.step()
            stored = self.tensors(lambda t: t.element in ("f32", "f16", "i32"))
            for value in self.random.sample(stored, min(len(stored), 4)):
                self.stored(value, self.like(value, "i32"))
            self.op("tt.return")

        body = self.region(types, fill)
        signature = f"({', '.join(map(str, types))}) -> ()"
        function = Operation("tt.func", [], [], {"function_type": signature, "sym_name": '"drawn"',
                                                 "sym_visibility": '"public"'}, {"noinline": "false"}, [body])
        body.parent = function
        outer = Region()
        outer.blocks.append(Block(outer, [], [function]))
        function.parent = outer.blocks[0]
        machine = self.machine
        module = Operation("builtin.module", [], [], {}, {
            "ttg.num-ctas": "1 : i32", "ttg.num-warps": f"{machine.num_warps} : i32",
            "ttg.target": f'"{machine.target}"', "ttg.threads-per-warp": f"{machine.threads_per_warp} : i32"}, [outer])
        outer.parent = module
        return Kernel(module)


#: Where the kernel's arguments have its count of iterations.
_COUNT = 3


def _type(value: Value) -> TensorType:
    assert value.tensor is not None
    return value.tensor


def elements(value: Value) -> int:
    """How many elements a tensor has."""
    return math.prod(_type(value).shape)
