"""Ops of TritonGPU kernels, drawn at random on tensors that are known."""

from __future__ import annotations

from collections.abc import Sequence

from tests.triton.drawing import FAST, FLOATS, INTEGERS, OVERFLOW, Drawing, typed

from eggshard.triton.kernels.ir import Operation, Region, TensorType, Type, Value
from eggshard.triton.layouts.encodings import read
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.rules import structure
from eggshard.triton.rules.derived import encoding_of_layout
from eggshard.triton.rules.movement import changed
from eggshard.triton.rules.rule import OPERANDS
from eggshard.triton.rules.table import rule_of

_SHARED = "#ttg.swizzled_shared<{{vec = 1, perPhase = 1, maxPhase = 1, order = {}}}>"
#: Elements in memory that kernels read and write, per pointer.
_EXTENT = 1024


class Ops(Drawing):
    """One method per kind of op; each keeps what it makes among what is known."""

    def range(self) -> None:
        (n,) = self.shape(1)
        self.keep(self.one("tt.make_range", [], self.type_((n,), "i32"), start="0 : i32", end=f"{n} : i32"))

    def unary(self) -> None:
        value = self.tensor(lambda t: t.element in (*FLOATS, "i32"))
        if value is None:
            return self.range()
        if self.random.random() < 0.4:
            value = self.at(value, self.encoding(len(typed(value).shape)))
        name, element = self.random.choice({
            "f32": [("math.exp2", "f32"), ("math.absf", "f32"), ("arith.negf", "f32"), ("arith.truncf", "f16"),
                    ("arith.bitcast", "i32")],
            "f16": [("arith.extf", "f32"), ("arith.negf", "f16")],
            "i32": [("arith.sitofp", "f32"), ("arith.sitofp", "f16"), ("arith.trunci", "i8")]}[typed(value).element])
        fast = {"math.exp2": FAST, "math.absf": FAST, "arith.negf": FAST, "arith.truncf": {}, "arith.extf": {},
                "arith.trunci": OVERFLOW}
        self.keep(self.one(name, [value], typed(value)._replace(element=element), **fast.get(name, {})))

    def binary(self) -> None:
        value = self.tensor(lambda t: t.element in (*FLOATS, *INTEGERS))
        if value is None:
            return self.range()
        if self.random.random() < 0.5:
            value = self.at(value, self.encoding(len(typed(value).shape)))
        other = self.like(value)
        if typed(value).element in FLOATS:
            name = self.random.choice(["arith.addf", "arith.mulf", "arith.subf", "arith.maxnumf"])
            self.keep(self.one(name, [value, other], value.type, **FAST))
        else:
            name = self.random.choice(["arith.addi", "arith.muli", "arith.subi", "arith.xori", "arith.maxsi"])
            more = OVERFLOW if name[6:] in ("addi", "muli", "subi") else {}
            self.keep(self.one(name, [value, other], value.type, **more))

    def chosen(self) -> None:
        value = self.tensor(lambda t: t.element in (*FLOATS, *INTEGERS))
        if value is None:
            return self.range()
        self.keep(self.one("arith.select", [self.mask(value), value, self.like(value)], value.type))

    def mask(self, value: Value) -> Value:
        """Booleans of a tensor's shape, at its encoding."""
        encoding = read(typed(value).encoding or "")
        found = self.tensor(lambda t: t.shape == typed(value).shape and t.element == "i1")
        if found is not None and self.random.random() < 0.5:
            return self.at(found, encoding)
        left, right = self.like(value, "i32"), self.like(value, "i32")
        mask = self.one("arith.cmpi", [left, right], typed(value)._replace(element="i1"), predicate="2 : i64")
        self.keep(mask)
        return mask

    def converted(self) -> None:
        value = self.tensor()
        if value is not None:
            self.keep(self.at(value, self.encoding(len(typed(value).shape))))

    def repeat(self) -> None:
        """The same once more, as it is or at another encoding, perhaps in another block."""
        some = [v for v in self.tensors() if isinstance(v.owner, Operation) and len(v.owner.results) == 1
                and v.owner.name.partition(".")[0] in ("arith", "math") and v.owner.operands]
        if not some:
            return
        op = self.random.choice(some).owner
        assert isinstance(op, Operation)
        encoding = self.encoding(len(typed(op.results[0]).shape))
        operands = [self.at(v, encoding) for v in op.operands]
        self.keep(self.one(op.name, operands, typed(op.results[0])._replace(encoding=str(encoding)), **op.properties))

    def expand(self) -> None:
        value = self.tensor(lambda t: len(t.shape) < 3)
        if value is None:
            return self.range()
        shape = list(typed(value).shape)
        axis = self.random.randrange(len(shape) + 1)
        parent = self.encoding(len(shape) + 1)
        sliced = self.at(value, structure.sliced(axis, parent))
        shape.insert(axis, 1)
        found = self.one("tt.expand_dims", [sliced], typed(value)._replace(shape=tuple(shape), encoding=str(parent)),
                         axis=f"{axis} : i32")
        self.keep(found, self.broadcasted(found))

    def broadcasted(self, value: Value) -> Value:
        shape = tuple(self.random.choice(self.sizes) if n == 1 else n for n in typed(value).shape)
        return self.one("tt.broadcast", [value], typed(value)._replace(shape=shape))

    def broadcast(self) -> None:
        value = self.tensor(lambda t: 1 in t.shape)
        if value is None:
            return self.expand()
        if self.random.random() < 0.5:
            value = self.at(value, self.encoding(len(typed(value).shape)))
        self.keep(self.broadcasted(value))

    def combine(self, kind: str, elements: Sequence[str]) -> Region:
        def fill(arguments: list[Value]) -> None:
            half = len(elements)
            found = []
            for i, element in enumerate(elements):
                name, more = ("arith.maxnumf", FAST) if element[0] == "f" else ("arith.addi", OVERFLOW)
                found.append(self.one(name, [arguments[i], arguments[half + i]], element, **more))
            self.op(f"tt.{kind}.return", found)

        return self.region([*elements, *elements], fill)

    def several(self) -> tuple[list[Value], TensorType] | None:
        """One or two tensors of a shape and an encoding."""
        value = self.tensor(lambda t: t.element in ("f32", "i32"))
        if value is None:
            return None
        value = self.at(value, self.encoding(len(typed(value).shape))) if self.random.random() < 0.3 else value
        values = [value]
        if self.random.random() < 0.4:
            values.append(self.like(value, self.random.choice(["f32", "i32"])))
        return values, typed(value)

    def reduce(self) -> None:
        found = self.several()
        if found is None:
            return self.range()
        values, type_ = found
        axis = self.random.randrange(len(type_.shape))
        region = self.combine("reduce", [typed(v).element for v in values])
        shape = tuple(n for d, n in enumerate(type_.shape) if d != axis)
        encoding = structure.sliced(axis, read(type_.encoding or ""))
        types: list[Type] = [TensorType(shape, typed(v).element, str(encoding)) if shape else typed(v).element
                             for v in values]
        self.keep(*self.op("tt.reduce", values, types, [region], axis=f"{axis} : i32"))

    def scan(self) -> None:
        found = self.several()
        if found is None:
            return self.range()
        values, type_ = found
        encoding = read(self.draw.blocked(len(type_.shape), self.machine))
        values = [self.at(v, encoding) for v in values]
        region = self.combine("scan", [typed(v).element for v in values])
        axis = self.random.randrange(len(type_.shape))
        self.keep(*self.op("tt.scan", values, [v.type for v in values], [region], axis=f"{axis} : i32",
                           reverse=self.random.choice(["true", "false"])))

    def moved(self, name: str, values: Sequence[Value], shape: Sequence[int], **properties: str) -> list[Value] | None:
        """An op whose results' encoding follows from its operands'; None if it has none."""
        type_ = typed(values[0])._replace(shape=tuple(shape))
        count = 2 if name == "tt.split" else 1
        probe = Operation(name, list(values), [], properties)
        probe.results = [Value(type_, probe, i) for i in range(count)]
        rule = rule_of(name)
        assert rule.renamed is not None
        encoding = changed(probe, OPERANDS, read(typed(values[0]).encoding or ""), rule.renamed)
        if encoding is None:
            return None
        return self.op(name, values, [type_._replace(encoding=str(encoding))] * count, **properties)

    def trans(self) -> None:
        value = self.tensor(lambda t: len(t.shape) > 1)
        if value is None:
            return self.expand()
        shape = typed(value).shape
        order = self.random.sample(range(len(shape)), len(shape))
        self.keep(*self.moved("tt.trans", [value], [shape[d] for d in order], order=f"array<i32: {str(order)[1:-1]}>")
                  or ())

    def reshape(self) -> None:
        value = self.tensor()
        if value is None:
            return self.range()
        shape = list(typed(value).shape)
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
        self.keep(*self.moved("tt.join", [value, self.like(value)], [*typed(value).shape, 2]) or ())

    def split(self) -> None:
        value = self.tensor(lambda t: len(t.shape) > 1 and t.shape[-1] == 2)
        if value is None:
            return self.join()
        rank = len(typed(value).shape) - 1
        half = linear_layout(read(self.draw.blocked(rank, self.machine)), typed(value).shape[:-1])
        assert half is not None
        joined = encoding_of_layout(half.with_axis(rank, 2, first=True))
        assert joined is not None
        self.keep(*self.moved("tt.split", [self.at(value, joined)], typed(value).shape[:-1]) or ())

    def gather(self) -> None:
        value = self.tensor()
        if value is None:
            return self.range()
        type_ = typed(value)
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
        type_ = typed(offsets)._replace(element=f"!tt.ptr<{element}>")
        return self.one("tt.addptr", [self.one("tt.splat", [base], type_), offsets], type_)

    def load(self) -> None:
        offsets = self.tensor(lambda t: t.element == "i32")
        if offsets is None:
            return self.range()
        if self.random.random() < 0.5:
            offsets = self.at(offsets, self.encoding(len(typed(offsets).shape)))
        element = self.random.choice(["f32", "f16", "i32"])
        operands = [self.pointers(element, offsets)]
        if self.random.random() < 0.5:
            operands.append(self.mask(offsets))
            operands.append(self.like(offsets, element))
        sizes = ", ".join(str(int(i < len(operands))) for i in range(3))
        self.keep(self.one("tt.load", operands, typed(offsets)._replace(element=element),
                           isVolatile=self.random.choice(["false", "false", "false", "true"]),
                           operandSegmentSizes=f"array<i32: {sizes}>"))

    def store(self) -> None:
        offsets = self.tensor(lambda t: t.element == "i32")
        if offsets is None:
            return self.range()
        value = self.tensor(lambda t: t.shape == typed(offsets).shape and t.element in ("f32", "f16", "i32"))
        if value is not None:
            self.stored(value, offsets)

    def stored(self, value: Value, offsets: Value) -> None:
        offsets = self.at(offsets, read(typed(value).encoding or ""))
        operands = [self.pointers(typed(value).element, offsets), value]
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
        type_ = typed(value)
        shape = "".join(f"{n}x" for n in type_.shape)
        order = list(reversed(range(len(type_.shape))))
        memory = f"!ttg.memdesc<{shape}{type_.element}, {_SHARED.format(order)}, #ttg.shared_memory>"
        held = self.one("ttg.local_alloc", [value], memory)
        encoding = self.encoding(len(type_.shape))
        self.keep(self.one("ttg.local_load", [held], type_._replace(encoding=str(encoding))))
