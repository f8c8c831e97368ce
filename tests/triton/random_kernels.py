"""TritonGPU kernels drawn at random: tensors of all encodings through ops, loops and branches.

What they compute makes no sense, but is defined: indices are masked to what they index, loops end.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.triton.drawing import OVERFLOW, typed
from tests.triton.random_ops import Ops

from eggshard.triton.kernels.ir import Block, Kernel, Operation, Region, TensorType, Type, Value
from eggshard.triton.kernels.text import write_generic
from eggshard.triton.layouts.encodings import make, read
from eggshard.triton.rules import structure

#: Where the kernel's arguments have its count of iterations.
_COUNT = 3


def random_kernel(seed: int, ops: int = 14) -> Kernel:
    """A kernel of about so many ops (and those that they need), the same for the same seed."""
    return _Maker(seed).kernel(ops)


def random_text(seed: int, ops: int = 14) -> str:
    """The kernel in generic form."""
    return write_generic(random_kernel(seed, ops))


class _Maker(Ops):
    def step(self) -> None:
        kinds = [self.range, self.unary, self.unary, self.binary, self.binary, self.binary, self.chosen, self.expand,
                 self.expand, self.broadcast, self.broadcast, self.reduce, self.reduce, self.scan, self.trans,
                 self.reshape, self.join, self.split, self.gather, self.load, self.load, self.store, self.converted,
                 self.converted, self.scalar_op, self.atomic, self.shared, self.repeat, self.repeat]
        if self.depth < 3:
            kinds += [self.loop, self.loop, self.branch, self.branch, self.endless, self.dot_loop]
        self.random.choice(kinds)()

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
            other = self.tensor(lambda t: t.shape == typed(values[0]).shape and t.element == typed(values[0]).element)
            if other is not None:
                values.append(self.at(other, read(typed(values[0]).encoding or "")))
        return [self.at(v, self.encoding(len(typed(v).shape))) if self.random.random() < 0.2 else v for v in values]

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
            count = self.one("arith.addi", [arguments[0], self.scalar(1)], "i32", **OVERFLOW)
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
