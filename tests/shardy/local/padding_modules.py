"""Random modules of values that are sharded unevenly, in one way here and in another there."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.shardy.local.modules import CHOICES, MESHES, tensor


class Value(NamedTuple):
    name: str
    sizes: tuple[int, ...]
    sharding: str


class Program:
    """A list of f32 values; every op takes some and adds one. loose: each op has a sharding of its own."""

    def __init__(self, seed: int, loose: bool) -> None:
        self.rng = random.Random(seed)
        self.mesh = self.rng.randrange(len(MESHES))
        self.loose = loose
        self.lines: list[str] = []
        self.values: list[Value] = []
        self.arguments: list[Value] = []
        self.count = 0

    def text(self, ops: int) -> str:
        for _ in range(2):
            self.argument([self.rng.randint(3, 11) for _ in range(2)])
        for _ in range(ops):
            self.rng.choice(OPS)(self)
        results = [self.resharded(value, "") for value in self.values[-2:]]
        arguments = ", ".join(f"{a.name}: {tensor(a.sizes)}" for a in self.arguments)
        types = ", ".join(tensor(r.sizes) for r in results)
        body = "\n".join(f"    {line}" for line in self.lines)
        return f"""module {{
  sdy.mesh @mesh = {MESHES[self.mesh]}
  func.func @main({arguments}) -> ({types}) {{
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %i0 = stablehlo.constant dense<0> : tensor<i32>
    %i2 = stablehlo.constant dense<2> : tensor<i32>
    %i9 = stablehlo.constant dense<9> : tensor<i32>
    %true = stablehlo.constant dense<true> : tensor<i1>
{body}
    return {', '.join(r.name for r in results)} : {types}
  }}
}}
"""

    def sharding(self, rank: int, like: Value | None = None) -> str:
        if like is not None and not self.loose and like.sharding:
            return like.sharding
        first, second, both = CHOICES[self.mesh]
        axes: list[list[str]] = [[] for _ in range(rank)]
        places = list(range(rank))
        self.rng.shuffle(places)
        if rank > 1 and self.rng.random() < 0.5:
            axes[places[0]], axes[places[1]] = first, second
        elif rank and self.rng.random() < 0.8:
            axes[places[0]] = self.rng.choice([first, both])
        return f"<@mesh, [{', '.join('{' + ', '.join(a) + '}' for a in axes)}]>"

    def argument(self, sizes: Sequence[int]) -> Value:
        value = Value(f"%a{len(self.arguments)}", tuple(sizes), "")
        self.arguments.append(value)
        value = self.resharded(value, self.sharding(len(sizes)))
        self.values.append(value)
        return value

    def resharded(self, value: Value, sharding: str) -> Value:
        if value.sharding == sharding:
            return value
        where = sharding or f"<@mesh, [{', '.join(['{}'] * len(value.sizes))}]>"
        return Value(self.line(f"sdy.reshard {value.name} {where} : {tensor(value.sizes)}"), value.sizes, sharding)

    def line(self, text: str) -> str:
        name = f"%v{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {text}")
        return name

    def add(self, text: str, types: str, sizes: Sequence[int], sharding: str) -> Value:
        value = Value(self.line(f"{text} {{{attribute(sharding)}}} : {types}"), tuple(sizes), sharding)
        self.values.append(value)
        return value

    def pick(self, rank: int | None = None) -> Value:
        found = [v for v in self.values if (rank is None or len(v.sizes) == rank) and min(v.sizes, default=1) > 1]
        return self.rng.choice(found[-4:]) if found else self.argument([self.rng.randint(3, 11)] * (rank or 2))

    def partner(self, sizes: Sequence[int], sharding: str) -> Value:
        """A value of some shape: one that is there, or a new argument."""
        found = [v for v in self.values if v.sizes == tuple(sizes)]
        value = self.rng.choice(found) if found else self.argument(sizes)
        return value if self.loose else self.resharded(value, sharding)


def attribute(sharding: str) -> str:
    return f"sdy.sharding = #sdy.sharding_per_value<[{sharding}]>" if sharding else ""


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def unary(p: Program) -> None:
    x = p.pick()
    name = p.rng.choice(["negate", "tanh", "abs", "cosine", "log", "sqrt"])
    p.add(f"stablehlo.{name} {x.name}", tensor(x.sizes), x.sizes, p.sharding(len(x.sizes), x))


def binary(p: Program) -> None:
    x = p.pick()
    y = p.partner(x.sizes, x.sharding)
    name = p.rng.choice(["add", "multiply", "divide", "subtract", "maximum"])
    p.add(f"stablehlo.{name} {x.name}, {y.name}", tensor(x.sizes), x.sizes, p.sharding(len(x.sizes), x))


def constant(p: Program) -> None:
    sizes = [p.rng.randint(3, 9), p.rng.randint(3, 9)]
    rows = [[float(p.rng.randint(-4, 4)) for _ in range(sizes[1])] for _ in range(sizes[0])]
    text = str(rows) if p.rng.random() < 0.5 else "2.0"
    sharding = p.sharding(2)
    name = p.line(f"stablehlo.constant {{{attribute(sharding)}}} dense<{text}> : {tensor(sizes)}")
    p.values.append(Value(name, tuple(sizes), sharding))


def iota(p: Program) -> None:
    x = p.pick()
    dim = p.rng.randrange(len(x.sizes))
    p.add(f"stablehlo.iota dim = {dim}", tensor(x.sizes), x.sizes, p.sharding(len(x.sizes), x))


def transpose(p: Program) -> None:
    x = p.pick(2)
    out = x.sizes[::-1]
    p.add(f"stablehlo.transpose {x.name}, dims = [1, 0]", f"({tensor(x.sizes)}) -> {tensor(out)}", out, p.sharding(2))


def broadcast(p: Program) -> None:
    x = p.pick(p.rng.choice([1, 2]))
    out = [p.rng.randint(2, 7), *x.sizes]
    if p.rng.random() < 0.4:
        x, out = Value("%one", (), ""), [p.rng.randint(2, 7), 5]
    dims = list(range(1, len(out))) if x.sizes else []
    p.add(f"stablehlo.broadcast_in_dim {x.name}, dims = {dims}", f"({tensor(x.sizes)}) -> {tensor(out)}", out,
          p.sharding(len(out)))


def reshape(p: Program) -> None:
    x = p.pick()
    flat = [1]
    for n in x.sizes:
        flat[0] *= n
    divisor = next((n for n in (2, 3, 5, 7) if flat[0] % n == 0), 1)
    out = p.rng.choice([flat, [*x.sizes, 1], [x.sizes[0], 1, *x.sizes[1:]], [flat[0] // divisor, divisor],
                        [divisor, flat[0] // divisor]])
    p.add(f"stablehlo.reshape {x.name}", f"({tensor(x.sizes)}) -> {tensor(out)}", out, p.sharding(len(out)))


def dot(p: Program) -> None:
    x = p.pick(p.rng.choice([2, 2, 3]))
    if len(x.sizes) == 3:
        y = p.partner([x.sizes[0], p.rng.randint(2, 5), x.sizes[2]], x.sharding)
        text = f"stablehlo.dot_general {x.name}, {y.name}, batching_dims = [0] x [0], contracting_dims = [2] x [2]"
        out = [x.sizes[0], x.sizes[1], y.sizes[1]]
    else:
        y = p.partner([x.sizes[1], p.rng.randint(2, 7)], p.sharding(2))
        text = f"stablehlo.dot_general {x.name}, {y.name}, contracting_dims = [1] x [0]"
        out = [x.sizes[0], y.sizes[1]]
    p.add(text, f"({tensor(x.sizes)}, {tensor(y.sizes)}) -> {tensor(out)}", out, p.sharding(len(out)))


def reduction(p: Program) -> None:
    x = p.pick(2)
    dim = p.rng.randrange(2)
    out = [x.sizes[1 - dim]]
    name, initial = p.rng.choice([("add", "%z"), ("maximum", "%low"), ("multiply", "%one"), ("add", "%one")])
    p.add(f"stablehlo.reduce({x.name} init: {initial}) applies stablehlo.{name} across dimensions = [{dim}]",
          f"({tensor(x.sizes)}, tensor<f32>) -> {tensor(out)}", out, p.sharding(1))


def argmax(p: Program) -> None:
    x = p.pick(2)
    out = [x.sizes[0]]
    index = p.line(f"stablehlo.iota dim = 1 : {tensor(x.sizes, 'i32')}")
    where, name = p.sharding(1), f"%v{p.count}"
    p.count += 1
    both = f"sdy.sharding = #sdy.sharding_per_value<[{where}, {where}]>"
    p.lines.append(f"""{name}:2 = "stablehlo.reduce"({x.name}, {index}, %low, %i0) ({{
    ^bb0(%l: tensor<f32>, %li: tensor<i32>, %r: tensor<f32>, %ri: tensor<i32>):
      %g = stablehlo.compare GT, %l, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %nan = stablehlo.compare NE, %l, %l : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %p = stablehlo.or %g, %nan : tensor<i1>
      %q = stablehlo.compare EQ, %l, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %s = stablehlo.compare LT, %li, %ri : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %t = stablehlo.and %q, %s : tensor<i1>
      %u = stablehlo.or %p, %t : tensor<i1>
      %m = stablehlo.select %p, %l, %r : tensor<i1>, tensor<f32>
      %i = stablehlo.select %u, %li, %ri : tensor<i1>, tensor<i32>
      stablehlo.return %m, %i : tensor<f32>, tensor<i32>
    }}) {{dimensions = array<i64: 1>, {both}}}
      : ({tensor(x.sizes)}, {tensor(x.sizes, 'i32')}, tensor<f32>, tensor<i32>) -> ({tensor(out)}, {tensor(out, 'i32')})
    """)
    p.add(f"stablehlo.convert {name}#1", f"({tensor(out, 'i32')}) -> {tensor(out)}", out, where)


def cumulative(p: Program) -> None:
    x = p.pick(2)
    n = x.sizes[0]
    p.values.append(Value(p.line(f"""\"stablehlo.reduce_window"({x.name}, %z) ({{
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      %s = stablehlo.add %l, %r : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }}) {{window_dimensions = array<i64: {n}, 1>, window_strides = array<i64: 1, 1>,
      padding = dense<[[{n - 1}, 0], [0, 0]]> : tensor<2x2xi64>, {attribute(where := p.sharding(2, x))}}}
      : ({tensor(x.sizes)}, tensor<f32>) -> {tensor(x.sizes)}"""), x.sizes, where))


def sort(p: Program) -> None:
    x = p.pick(2)
    where = p.sharding(2, x)
    p.values.append(Value(p.line(f"""\"stablehlo.sort"({x.name}) ({{
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      %s = stablehlo.compare LT, %l, %r, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %s : tensor<i1>
    }}) {{dimension = {p.rng.randrange(2)} : i64, is_stable = true, {attribute(where)}}}
      : ({tensor(x.sizes)}) -> {tensor(x.sizes)}"""), x.sizes, where))


def concatenate(p: Program) -> None:
    x = p.pick(2)
    y = p.partner([x.sizes[0], p.rng.randint(2, 6)], x.sharding)
    out = [x.sizes[0], x.sizes[1] + y.sizes[1]]
    p.add(f"stablehlo.concatenate {x.name}, {y.name}, dim = 1",
          f"({tensor(x.sizes)}, {tensor(y.sizes)}) -> {tensor(out)}", out, p.sharding(2, x))


def cut(p: Program) -> None:
    x = p.pick(2)
    start = p.rng.choice([0, 0, 1])
    out = [x.sizes[0] - start, x.sizes[1] - p.rng.choice([0, 1])]
    text = f"stablehlo.slice {x.name} [{start}:{x.sizes[0]}, 0:{out[1]}]"
    p.add(text, f"({tensor(x.sizes)}) -> {tensor(out)}", out, p.sharding(2, x))


def pad(p: Program) -> None:
    x = p.pick(2)
    low, high = p.rng.choice([0, 0, 1]), p.rng.choice([0, 1, -1, 2])
    out = [x.sizes[0] + low + high, x.sizes[1]]
    p.add(f"stablehlo.pad {x.name}, %one, low = [{low}, 0], high = [{high}, 0], interior = [0, 0]",
          f"({tensor(x.sizes)}, tensor<f32>) -> {tensor(out)}", out, p.sharding(2, x))


def reverse(p: Program) -> None:
    x = p.pick(2)
    p.add(f"stablehlo.reverse {x.name}, dims = [{p.rng.randrange(2)}]", tensor(x.sizes), x.sizes, p.sharding(2, x))


def dynamic_slice(p: Program) -> None:
    x = p.pick(2)
    out = [p.rng.randint(1, x.sizes[0]), x.sizes[1]]
    start = p.rng.choice(["%i0", "%i2", "%i9"])
    p.add(f"stablehlo.dynamic_slice {x.name}, {start}, %i2, sizes = {out}",
          f"({tensor(x.sizes)}, tensor<i32>, tensor<i32>) -> {tensor(out)}", out, p.sharding(2, x))


def dynamic_update_slice(p: Program) -> None:
    x = p.pick(2)
    y = p.partner([p.rng.randint(2, x.sizes[0]), x.sizes[1]], x.sharding)
    start = p.rng.choice(["%i0", "%i2", "%i9"])
    p.add(f"stablehlo.dynamic_update_slice {x.name}, {y.name}, {start}, %i9",
          f"({tensor(x.sizes)}, {tensor(y.sizes)}, tensor<i32>, tensor<i32>) -> {tensor(x.sizes)}", x.sizes,
          p.sharding(2, x))


def _indices(p: Program, count: int, most: int) -> str:
    rows = [[p.rng.randint(-2, most + 2)] for _ in range(count)]
    where = p.sharding(2)
    return p.line(f"stablehlo.constant {{{attribute(where)}}} dense<{rows}> : {tensor([count, 1], 'i32')}")


def gather(p: Program) -> None:
    x, count = p.pick(2), p.rng.randint(2, 7)
    size = p.rng.choice([1, 1, 2])
    out = [count, x.sizes[1]] if size == 1 else [count, 2, x.sizes[1]]
    dims = "offset_dims = [1], collapsed_slice_dims = [0]" if size == 1 else "offset_dims = [1, 2]"
    where = p.sharding(len(out))
    text = f""""stablehlo.gather"({x.name}, {_indices(p, count, x.sizes[0])}) {{
      dimension_numbers = #stablehlo.gather<{dims}, start_index_map = [0], index_vector_dim = 1>,
      slice_sizes = array<i64: {size}, {x.sizes[1]}>, indices_are_sorted = false, {attribute(where)}}}
      : ({tensor(x.sizes)}, {tensor([count, 1], 'i32')}) -> {tensor(out)}"""
    p.values.append(Value(p.line(text), tuple(out), where))


def scatter(p: Program) -> None:
    x, count = p.pick(2), p.rng.randint(2, 7)
    updates = p.partner([count, x.sizes[1]], p.sharding(2))
    where = p.sharding(2, x)
    last = p.rng.choice(["%r", "%sum"])
    text = f""""stablehlo.scatter"({x.name}, {_indices(p, count, x.sizes[0])}, {updates.name}) ({{
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      %sum = stablehlo.add %l, %r : tensor<f32>
      stablehlo.return {last} : tensor<f32>
    }}) {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false,
      {attribute(where)}}}
      : ({tensor(x.sizes)}, {tensor([count, 1], 'i32')}, {tensor(updates.sizes)}) -> {tensor(x.sizes)}"""
    p.values.append(Value(p.line(text), x.sizes, where))


def loop(p: Program) -> None:
    x, where = p.pick(2), p.sharding(2)
    kind, name = tensor(x.sizes), f"%v{p.count}"
    p.count += 1
    shardings = f"sdy.sharding = #sdy.sharding_per_value<[<@mesh, []>, {where}]>"
    p.lines.append(f"""{name}:2 = stablehlo.while(%k = %i0, %y = {x.name}) : tensor<i32>, {kind}
    attributes {{{shardings}}} cond {{
      %t = stablehlo.compare LT, %k, %i2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %t : tensor<i1>
    }} do {{
      %s = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [0, 1]
        : ({kind}, tensor<f32>) -> tensor<f32>
      %b = stablehlo.broadcast_in_dim %s, dims = [] {{{attribute(where)}}} : (tensor<f32>) -> {kind}
      %n = stablehlo.subtract %b, %y {{{attribute(where)}}} : {kind}
      %one_more = stablehlo.constant dense<1> : tensor<i32>
      %m = stablehlo.add %k, %one_more : tensor<i32>
      stablehlo.return %m, %n : tensor<i32>, {kind}
    }}""")
    p.values.append(Value(f"{name}#1", x.sizes, where))


def branches(p: Program) -> None:
    x, where = p.pick(2), p.sharding(2)
    kind = tensor(x.sizes)
    p.values.append(Value(p.line(f"""\"stablehlo.if"(%true) ({{
      %s = stablehlo.cosine {x.name} {{{attribute(p.sharding(2, x))}}} : {kind}
      stablehlo.return %s : {kind}
    }}, {{
      stablehlo.return {x.name} : {kind}
    }}) {{{attribute(where)}}} : (tensor<i1>) -> {kind}"""), x.sizes, where))


def barrier(p: Program) -> None:
    x = p.pick()
    where = p.sharding(len(x.sizes), x)
    name = p.line(f"stablehlo.optimization_barrier {{{attribute(where)}}} {x.name} : {tensor(x.sizes)}")
    p.values.append(Value(name, x.sizes, where))


def reshard(p: Program) -> None:
    x = p.pick()
    p.values.append(p.resharded(x, p.sharding(len(x.sizes))))


OPS: list[Callable[[Program], None]] = [
    unary, binary, binary, constant, iota, transpose, broadcast, reshape, reshape, dot, dot, reduction, reduction,
    argmax, cumulative, sort, concatenate, cut, pad, reverse, dynamic_slice, dynamic_update_slice, gather, scatter,
    loop, branches, barrier, reshard, reshard,
]


def padding_module(seed: int, loose: bool = True, ops: int = 6) -> str:
    """Some ops on unevenly sharded values, whose results are whole again."""
    return Program(seed, loose).text(ops)
