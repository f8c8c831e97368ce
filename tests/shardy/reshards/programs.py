"""Random programs whose every value has a random sharding: what no propagation would make agree."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from tests.shardy.reshards.shardings import Shape, Shardings

MESHES = (
    '<["x"=4, "y"=2]>', '<["x"=2, "y"=3, "z"=2]>', '<["x"=8]>', '<["x"=2, "y"=4]>', '<["x"=4, "y"=4, "z"=2]>',
)
#: A value's name and shape; all are f32.
Value = tuple[str, Shape]
EXTENTS = (1, 2, 3, 4, 6, 8, 8, 12, 16)


def tensor(shape: Shape, kind: str = "f32") -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{kind}>"


class Program:
    """A module of one function, written op by op."""

    def __init__(
        self, seed: int, ops: int = 8, annotate: float = 0.9, unreduced: float = 0.0, open_: float = 0.0,
        replicated: float = 0.0, orders: int = 1,
    ) -> None:
        self.rng = random.Random(seed)
        self.mesh = self.rng.choice(MESHES)
        self.names = tuple(f"mesh{i or ''}" for i in range(orders))
        self.sharding = Shardings(self.rng, self.mesh, self.names, unreduced, open_, replicated)
        self.functions: list[str] = []
        self.annotate, self.lines, self.values, self.count = annotate, [], [], 0
        self.indent = "    "
        self.arguments = [(f"%a{i}", self.shape()) for i in range(self.rng.randint(1, 4))]
        self.values += self.arguments
        for _ in range(ops):
            self.rng.choice(OPS)(self)

    # -- parts -------------------------------------------------------------------------------------------------------

    def shape(self, low: int = 1, high: int = 3) -> Shape:
        return tuple(self.rng.choice(EXTENTS) for _ in range(self.rng.randint(low, high)))

    def value(self, rank: int = 0) -> Value:
        found = [v for v in self.values if len(v[1]) >= rank]
        return self.rng.choice(found) if found else self.fresh(self.shape(max(rank, 1), max(rank, 3)))

    def like(self, shape: Shape) -> Value:
        """A value of this shape: one that is there, or a new one."""
        found = [v for v in self.values if v[1] == shape]
        return self.rng.choice(found) if found and self.rng.random() < 0.8 else self.fresh(shape)

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def attributes(self, *shapes: Shape) -> str:
        if self.rng.random() > self.annotate:
            return ""
        return f"sdy.sharding = #sdy.sharding_per_value<[{', '.join(self.sharding(*shapes))}]>"

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def op(self, name: str, operands: list[Value], shape: Shape, inner: str = "", region: str = "") -> Value:
        """An op in generic form."""
        out = self.name()
        attributes = ", ".join(part for part in (inner, self.attributes(shape)) if part)
        types = ", ".join(tensor(s) for _, s in operands)
        self.line(f'{out} = "stablehlo.{name}"({", ".join(n for n, _ in operands)}){region} {{{attributes}}} '
                  f": ({types}) -> {tensor(shape)}")
        return self.added(out, shape)

    def added(self, name: str, shape: Shape) -> Value:
        self.values.append((name, shape))
        return name, shape

    def fresh(self, shape: Shape) -> Value:
        return self.op("constant", [], shape, f"value = dense<1.0> : {tensor(shape)}")

    def scalar(self) -> str:
        name = self.name()
        self.line(f"{name} = stablehlo.constant dense<0.0> : tensor<f32>")
        return name

    # -- the whole ---------------------------------------------------------------------------------------------------

    def text(self, results: int = 2) -> str:
        returned = [self.rng.choice(self.values) for _ in range(self.rng.randint(1, results))]
        arguments = ", ".join(f"{n}: {tensor(s)}{self.stated(s)}" for n, s in self.arguments)
        types = ", ".join(tensor(s) for _, s in returned)
        body = "\n".join(self.lines)
        devices = math.prod(self.sharding.axes.values())
        orders = [list(range(devices))] + [self.rng.sample(range(devices), devices) for _ in self.names[1:]]
        meshes = "\n".join(
            f"  sdy.mesh @{name} = {self.mesh[:-1] + f', device_ids={ids}>' if i else self.mesh}"
            for i, (name, ids) in enumerate(zip(self.names, orders, strict=True)))
        functions = "\n".join(self.functions)
        return f"""
module {{
{meshes}
{functions}
  func.func @main({arguments}) -> ({", ".join(tensor(s) + self.stated(s) for _, s in returned)}) {{
{body}
    return {", ".join(n for n, _ in returned)} : {types}
  }}
}}"""

    def stated(self, shape: Shape) -> str:
        if self.rng.random() > self.annotate:
            return ""
        return f" {{sdy.sharding = #sdy.sharding{self.sharding(shape)[0]}}}"


def i64s(values: list[int] | Shape) -> str:
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


def unary(p: Program) -> None:
    v = p.value()
    p.op(p.rng.choice(("negate", "tanh", "abs")), [v], v[1])


def binary(p: Program) -> None:
    v = p.value()
    p.op(p.rng.choice(("add", "multiply", "maximum")), [v, p.like(v[1])], v[1])


def transpose(p: Program) -> None:
    v = p.value(2)
    permutation = list(range(len(v[1])))
    p.rng.shuffle(permutation)
    p.op("transpose", [v], tuple(v[1][i] for i in permutation), f"permutation = {i64s(permutation)}")


def split(rng: random.Random, count: int, parts: int) -> Shape:
    out = []
    for _ in range(parts - 1):
        divisor = rng.choice([d for d in range(1, count + 1) if count % d == 0])
        out.append(divisor)
        count //= divisor
    out.append(count)
    rng.shuffle(out)
    return tuple(out)


def reshape(p: Program) -> None:
    v = p.value()
    shape = v[1]
    if p.rng.random() < 0.4:
        new = split(p.rng, math.prod(shape), p.rng.randint(1, 3))
    elif len(shape) > 1 and p.rng.random() < 0.5:
        at = p.rng.randrange(len(shape) - 1)
        new = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2:])
    else:
        at = p.rng.randrange(len(shape))
        new = (*shape[:at], *split(p.rng, shape[at], 2), *shape[at + 1:])
    p.op("reshape", [v], new)


def broadcast(p: Program) -> None:
    v = p.value()
    shape = list(v[1])
    at = p.rng.randint(0, len(shape))
    shape.insert(at, p.rng.choice(EXTENTS))
    dims = [i for i in range(len(shape)) if i != at]
    shape = [p.rng.choice(EXTENTS) if n == 1 and i != at and p.rng.random() < 0.5 else n for i, n in enumerate(shape)]
    p.op("broadcast_in_dim", [v], tuple(shape), f"broadcast_dimensions = {i64s(dims)}")


def dot(p: Program) -> None:
    lhs = p.value()
    rank = len(lhs[1])
    batch = [0] if rank == 3 and p.rng.random() < 0.6 else []
    contracted = p.rng.choice([i for i in range(rank) if i not in batch])
    free = [p.rng.choice(EXTENTS) for _ in range(p.rng.randint(0, 1 if batch else 2))]
    rhs = p.like((*(lhs[1][i] for i in batch), lhs[1][contracted], *free))
    shape = (*(lhs[1][i] for i in batch), *(n for i, n in enumerate(lhs[1]) if i not in (*batch, contracted)), *free)
    numbers = (
        f"#stablehlo.dot<lhs_batching_dimensions = {batch}, rhs_batching_dimensions = {batch}, "
        f"lhs_contracting_dimensions = [{contracted}], rhs_contracting_dimensions = [{len(batch)}]>")
    if shape:
        p.op("dot_general", [lhs, rhs], shape, f"dot_dimension_numbers = {numbers}")


def reduction(p: Program) -> None:
    v = p.value(2)
    dims = sorted(p.rng.sample(range(len(v[1])), p.rng.randint(1, len(v[1]) - 1)))
    region = ("({ ^bb0(%l: tensor<f32>, %r: tensor<f32>): %s = stablehlo.add %l, %r : tensor<f32> "
              "stablehlo.return %s : tensor<f32> })")
    shape = tuple(n for i, n in enumerate(v[1]) if i not in dims)
    p.op("reduce", [v, (p.scalar(), ())], shape, f"dimensions = {i64s(dims)}", region)


def concatenate(p: Program) -> None:
    v = p.value()
    dim = p.rng.randrange(len(v[1]))
    others = [p.like(tuple(p.rng.choice(EXTENTS) if i == dim else n for i, n in enumerate(v[1])))
              for _ in range(p.rng.randint(1, 2))]
    parts = [v, *others] if p.rng.random() < 0.8 else [v, v]
    shape = tuple(sum(s[i] for _, s in parts) if i == dim else n for i, n in enumerate(v[1]))
    p.op("concatenate", parts, shape, f"dimension = {dim} : i64")


def pad(p: Program) -> None:
    v = p.value()
    low, high, interior = ([p.rng.choice((0, 0, 1, 2)) for _ in v[1]] for _ in range(3))
    shape = tuple(a + n + b + (n - 1) * i for n, a, b, i in zip(v[1], low, high, interior, strict=True))
    p.op("pad", [v, (p.scalar(), ())], shape,
         f"edge_padding_low = {i64s(low)}, edge_padding_high = {i64s(high)}, interior_padding = {i64s(interior)}")


def slices(p: Program) -> None:
    v = p.value()
    start = [p.rng.randint(0, n - 1) if p.rng.random() < 0.5 else 0 for n in v[1]]
    limit = [p.rng.randint(s + 1, n) if p.rng.random() < 0.5 else n for s, n in zip(start, v[1], strict=True)]
    stride = [p.rng.choice((1, 1, 2)) for _ in v[1]]
    shape = tuple(-(-(e - s) // t) for s, e, t in zip(start, limit, stride, strict=True))
    p.op("slice", [v], shape,
         f"start_indices = {i64s(start)}, limit_indices = {i64s(limit)}, strides = {i64s(stride)}")


def reverse(p: Program) -> None:
    v = p.value()
    p.op("reverse", [v], v[1], f"dimensions = {i64s([p.rng.randrange(len(v[1]))])}")


def sort(p: Program) -> None:
    v = p.value()
    other = p.like(v[1])
    out = p.name()
    dim = p.rng.randrange(len(v[1]))
    inner = ", ".join(part for part in (
        f"dimension = {dim} : i64, is_stable = true", p.attributes(v[1], v[1])) if part)
    kind = tensor(v[1])
    p.line(f'{out}:2 = "stablehlo.sort"({v[0]}, {other[0]}) ({{')
    p.line("^bb0(%l: tensor<f32>, %r: tensor<f32>, %m: tensor<f32>, %n: tensor<f32>):")
    p.line("  %s = stablehlo.compare LT, %l, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>")
    p.line("  stablehlo.return %s : tensor<i1>")
    p.line(f"}}) {{{inner}}} : ({kind}, {kind}) -> ({kind}, {kind})")
    p.added(f"{out}#0", v[1])
    p.added(f"{out}#1", v[1])


def index(p: Program, shape: Shape) -> str:
    name = p.name()
    inner = p.attributes(shape)
    p.line(f"{name} = stablehlo.constant {{{inner}}} dense<0> : {tensor(shape, 'i32')}")
    return name


def dynamic_slice(p: Program) -> None:
    v = p.value()
    sizes = tuple(p.rng.randint(1, n) if p.rng.random() < 0.5 else n for n in v[1])
    starts = [index(p, ()) for _ in v[1]]
    out = p.name()
    inner = ", ".join(part for part in (f"slice_sizes = {i64s(sizes)}", p.attributes(sizes)) if part)
    p.line(f'{out} = "stablehlo.dynamic_slice"({", ".join([v[0], *starts])}) {{{inner}}} : '
           f"({', '.join([tensor(v[1]), *['tensor<i32>'] * len(starts)])}) -> {tensor(sizes)}")
    p.added(out, sizes)


def dynamic_update_slice(p: Program) -> None:
    v = p.value()
    update = p.like(tuple(p.rng.randint(1, n) if p.rng.random() < 0.5 else n for n in v[1]))
    starts = [index(p, ()) for _ in v[1]]
    out = p.name()
    types = [tensor(v[1]), tensor(update[1]), *["tensor<i32>"] * len(starts)]
    p.line(f'{out} = "stablehlo.dynamic_update_slice"({", ".join([v[0], update[0], *starts])}) '
           f"{{{p.attributes(v[1])}}} : ({', '.join(types)}) -> {tensor(v[1])}")
    p.added(out, v[1])


def gather(p: Program) -> None:
    """Rows of a table."""
    v = p.value(2)
    count = p.rng.choice(EXTENTS)
    rows = index(p, (count, 1))
    rest = v[1][1:]
    shape = (count, *rest)
    numbers = (
        f"#stablehlo.gather<offset_dims = {list(range(1, len(shape)))}, collapsed_slice_dims = [0], "
        "start_index_map = [0], index_vector_dim = 1>")
    inner = ", ".join(part for part in (
        f"dimension_numbers = {numbers}, slice_sizes = {i64s((1, *rest))}, indices_are_sorted = false",
        p.attributes(shape)) if part)
    out = p.name()
    p.line(f'{out} = "stablehlo.gather"({v[0]}, {rows}) {{{inner}}} : '
           f"({tensor(v[1])}, {tensor((count, 1), 'i32')}) -> {tensor(shape)}")
    p.added(out, shape)


def constraint(p: Program) -> None:
    v = p.value()
    out = p.name()
    kind = p.rng.choice(("sdy.sharding_constraint", "sdy.reshard"))
    p.line(f"{out} = {kind} {v[0]} {p.sharding(v[1])[0]} : {tensor(v[1])}")
    p.added(out, v[1])


def barrier(p: Program) -> None:
    v, w = p.value(), p.value()
    out = p.name()
    p.line(f"{out}:2 = stablehlo.optimization_barrier {{{p.attributes(v[1], w[1])}}} {v[0]}, {w[0]} : "
           f"{tensor(v[1])}, {tensor(w[1])}")
    p.added(f"{out}#0", v[1])
    p.added(f"{out}#1", w[1])


def nested(p: Program, ops: tuple[Callable[[Program], None], ...], more: list[Value]) -> None:
    """Some ops within a region, whose values are not seen outside."""
    p.values += more
    for _ in range(p.rng.randint(0, 2)):
        p.rng.choice(ops)(p)


def loop(p: Program) -> None:
    v, w = p.value(), p.value()
    out, k = p.name(), p.count
    counter = index(p, ())
    kinds = f"{tensor(v[1])}, {tensor(w[1])}, tensor<i32>"
    p.line(f'{out}:3 = "stablehlo.while"({v[0]}, {w[0]}, {counter}) ({{')
    p.line(f"^bb0(%c{k}: {tensor(v[1])}, %d{k}: {tensor(w[1])}, %n{k}: tensor<i32>):")
    p.line(f"%t{k} = stablehlo.compare LT, %n{k}, %n{k} : (tensor<i32>, tensor<i32>) -> tensor<i1>")
    p.line(f"stablehlo.return %t{k} : tensor<i1>")
    p.line("}, {")
    p.line(f"^bb0(%e{k}: {tensor(v[1])}, %f{k}: {tensor(w[1])}, %m{k}: tensor<i32>):")
    outside = list(p.values)
    nested(p, STRAIGHT, [(f"%e{k}", v[1]), (f"%f{k}", w[1])])
    first, second = (p.rng.choice([x for x in p.values if x[1] == s]) for s in (v[1], w[1]))
    p.line(f"stablehlo.return {first[0]}, {second[0]}, %m{k} : {kinds}")
    p.values = outside
    p.line(f"}}) {{{p.attributes(v[1], w[1], ())}}} : ({kinds}) -> ({kinds})")
    p.added(f"{out}#0", v[1])
    p.added(f"{out}#1", w[1])


def branches(p: Program) -> None:
    v = p.value()
    out, which = p.name(), index(p, ())
    p.line(f'{out} = "stablehlo.case"({which}) ({{')
    outside = list(p.values)
    for i in range(2):
        nested(p, STRAIGHT, [])
        p.line(f"stablehlo.return {p.rng.choice([x for x in p.values if x[1] == v[1]])[0]} : {tensor(v[1])}")
        p.line("}, {" if i == 0 else f"}}) {{{p.attributes(v[1])}}} : (tensor<i32>) -> {tensor(v[1])}")
        p.values = list(outside)
    p.added(out, v[1])


def call(p: Program) -> None:
    """A call of a function of its own, which shardings are stated for as for any."""
    v, w = p.value(), p.value()
    name = f"f{len(p.functions)}"
    types = f"{tensor(v[1])}, {tensor(w[1])}"
    p.functions.append(
        f"  func.func private @{name}(%a: {tensor(v[1])}{p.stated(v[1])}, %b: {tensor(w[1])}{p.stated(w[1])}) "
        f"-> ({tensor(w[1])}{p.stated(w[1])}, {tensor(v[1])}{p.stated(v[1])}) {{\n"
        f"    return %b, %a : {tensor(w[1])}, {tensor(v[1])}\n  }}")
    out = p.name()
    p.line(f"{out}:2 = func.call @{name}({v[0]}, {w[0]}) {{{p.attributes(w[1], v[1])}}} : "
           f"({types}) -> ({tensor(w[1])}, {tensor(v[1])})")
    p.added(f"{out}#0", w[1])
    p.added(f"{out}#1", v[1])


def named(p: Program) -> None:
    v = p.value()
    out, k = p.name(), p.count
    first, second = p.sharding(v[1])[0], p.sharding(v[1])[0]
    p.line(f'{out} = sdy.named_computation<"f{k}">({v[0]}) in_shardings=[{first}] out_shardings=[{second}] '
           f"(%g{k}: {tensor(v[1])}) {{")
    outside, p.values = p.values, []
    nested(p, STRAIGHT, [(f"%g{k}", v[1])])
    p.line(f"sdy.return {p.rng.choice([x for x in p.values if x[1] == v[1]])[0]} : {tensor(v[1])}")
    p.line(f"}} : ({tensor(v[1])}) -> {tensor(v[1])}")
    p.values = outside
    p.added(out, v[1])


def kept(p: Program) -> None:
    v = p.value()
    out = p.name()
    p.line(f"{out} = sdy.propagation_barrier {v[0]} allowed_direction=NONE : {tensor(v[1])}")
    p.added(out, v[1])


STRAIGHT = (
    unary, binary, binary, binary, transpose, reshape, reshape, broadcast, dot, dot, dot, reduction, concatenate, pad,
    slices, reverse, sort, dynamic_slice, dynamic_update_slice, gather, constraint, barrier,
)
OPS = (*STRAIGHT, loop, branches, call, named, kept)
