"""Random modules whose ops move elements between shards."""

from __future__ import annotations

import random
from collections.abc import Sequence

MESHES = (
    '<["x"=4, "y"=2]>', '<["x"=2, "y"=2]>', '<["x"=3, "y"=2]>', '<["x"=8]>',
    '<["x"=2, "y"=4], device_ids=[3, 1, 0, 2, 7, 6, 5, 4]>',
)
#: Per mesh disjoint ways to shard a dimension; the first two, or the last, may stand in one tensor.
CHOICES = (
    (['"x"'], ['"y"'], ['"y"', '"x"']), (['"x"'], ['"y"'], ['"x"', '"y"']), (['"x"'], ['"y"'], ['"x"', '"y"']),
    (['"x":(2)4'], ['"x":(1)2'], ['"x"']), (['"y":(1)2', '"x"'], ['"y":(2)2'], ['"x"', '"y"']),
)


def sharding(rng: random.Random, mesh: int, rank: int, dims: Sequence[int] | None = None) -> str:
    """A sharding of a tensor of that rank; of some dimensions only, if these are given."""
    first, second, both = CHOICES[mesh]
    axes: list[list[str]] = [[] for _ in range(rank)]
    free = list(dims if dims is not None else range(rank))
    rng.shuffle(free)
    if len(free) > 1 and rng.random() < 0.6:
        axes[free[0]], axes[free[1]] = first, second
    elif free:
        axes[free[0]] = rng.choice([first, both])
    return f"<@mesh, [{', '.join('{' + ', '.join(a) + '}' for a in axes)}]>"


class Writer:
    """Writes a module op by op; every value is f32, and ops are sharded like their operands.

    whole: arguments and results are, and are resharded behind and before the ops.
    """

    def __init__(self, rng: random.Random, mesh: int, whole: bool = False) -> None:
        self.rng, self.mesh, self.whole = rng, mesh, whole
        self.lines: list[str] = []
        self.arguments: list[str] = []
        self.count = 0

    def argument(self, sizes: Sequence[int], sharding: str | None) -> str:
        name = f"%a{len(self.arguments)}"
        outside = replicated(sizes) if self.whole else sharding
        given = f" {{sdy.sharding = #sdy.sharding{outside}}}" if outside else ""
        self.arguments.append(f"{name}: {tensor(sizes)}{given}")
        return self.op(f"sdy.reshard {name} {sharding}", None, tensor(sizes)) if sharding and self.whole else name

    def op(self, text: str, sharding: str | None, types: str) -> str:
        name = f"%{self.count}"
        self.count += 1
        given = f" {{sdy.sharding = #sdy.sharding_per_value<[{sharding}]>}}" if sharding else ""
        self.lines.append(f"    {name} = {text}{given} : {types}")
        return name

    def module(self, result: str, sizes: Sequence[int], sharding: str | None) -> str:
        outside = replicated(sizes) if self.whole else sharding
        given = f" {{sdy.sharding = #sdy.sharding{outside}}}" if outside else ""
        if self.whole:
            result = self.op(f"sdy.reshard {result} {outside}", None, tensor(sizes))
        body = "\n".join(self.lines)
        return f"""module {{
  sdy.mesh @mesh = {MESHES[self.mesh]}
  func.func @main({', '.join(self.arguments)}) -> ({tensor(sizes)}{given}) {{
    %c = stablehlo.constant dense<3.0> : tensor<f32>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
{body}
    return {result} : {tensor(sizes)}
  }}
}}
"""


def tensor(sizes: Sequence[int], kind: str = "f32") -> str:
    return f"tensor<{'x'.join([*map(str, sizes), kind])}>"


def replicated(sizes: Sequence[int]) -> str:
    return f"<@mesh, [{', '.join(['{}'] * len(sizes))}]>"


def moving_module(seed: int, whole: bool = False, joined: bool = True) -> str:
    """One to three ops that move elements: slices, pads, reversals, concatenations if joined, windows, convolutions."""
    rng = random.Random(seed)
    writer = Writer(rng, rng.randrange(len(MESHES)), whole)
    if rng.random() < 0.2:
        return _convolution(writer)
    sizes = [rng.randint(8, 21) for _ in range(rng.choice([1, 2, 2, 3]))]
    if len(sizes) == 3:
        sizes[rng.randrange(3)] = 3
    where = sharding(rng, writer.mesh, len(sizes), [d for d, n in enumerate(sizes) if n > 3])
    value = writer.argument(sizes, where)
    for _ in range(rng.randint(1, 3)):
        ops = [_slice, _pad, _pad, _reverse, _concatenate if joined else _slice, _window]
        value, sizes = rng.choice(ops)(writer, value, sizes, where)
    return writer.module(value, sizes, where)


def _slice(w: Writer, x: str, sizes: list[int], where: str) -> tuple[str, list[int]]:
    cuts = []
    for n in sizes:
        start = w.rng.choice([0, 0, 1, 2, n // 3])
        limit = w.rng.randint(min(n, start + max(1, n // 3)), n)
        cuts.append((start, limit, w.rng.choice([1, 1, 1, 2, 3])))
    out = [-(-(limit - start) // stride) for start, limit, stride in cuts]
    if min(out) < 4 and len(out) < 3 or min(out) < 1:
        return _reverse(w, x, sizes, where)
    text = ", ".join(f"{a}:{b}:{s}" for a, b, s in cuts)
    return w.op(f"stablehlo.slice {x} [{text}]", where, f"({tensor(sizes)}) -> {tensor(out)}"), out


def _pad(w: Writer, x: str, sizes: list[int], where: str) -> tuple[str, list[int]]:
    edges = [(w.rng.choice([0, 1, -2, 5, 9]), w.rng.choice([0, 1, 2, -1, 7]), w.rng.choice([0, 0, 0, 1, 2]))
             for _ in sizes]
    out = [n + low + high + (n - 1) * interior for n, (low, high, interior) in zip(sizes, edges, strict=True)]
    if min(out) < 3 or max(out) > 60:
        return _reverse(w, x, sizes, where)
    low, high, interior = (list(part) for part in zip(*edges, strict=True))
    text = f"stablehlo.pad {x}, %c, low = {low}, high = {high}, interior = {interior}"
    return w.op(text, where, f"({tensor(sizes)}, tensor<f32>) -> {tensor(out)}"), out


def _reverse(w: Writer, x: str, sizes: list[int], where: str) -> tuple[str, list[int]]:
    dims = sorted(w.rng.sample(range(len(sizes)), w.rng.randint(1, len(sizes))))
    return w.op(f"stablehlo.reverse {x}, dims = {dims}", where, tensor(sizes)), sizes


def _concatenate(w: Writer, x: str, sizes: list[int], where: str) -> tuple[str, list[int]]:
    dim = w.rng.randrange(len(sizes))
    other = [w.rng.randint(1, 12) if d == dim else n for d, n in enumerate(sizes)]
    names, parts = [x, w.argument(other, where)], [sizes, other]
    if w.rng.random() < 0.5:
        names, parts = names[::-1] + [x], parts[::-1] + [sizes]
    out = [sum(p[d] for p in parts) if d == dim else n for d, n in enumerate(sizes)]
    types = f"({', '.join(map(tensor, parts))}) -> {tensor(out)}"
    return w.op(f"stablehlo.concatenate {', '.join(names)}, dim = {dim}", where, types), out


def _window(w: Writer, x: str, sizes: list[int], where: str) -> tuple[str, list[int]]:
    rng = w.rng
    rows = [(rng.choice([1, 2, 3]), rng.choice([1, 1, 2]), rng.choice([1, 1, 2]), rng.choice([1, 1, 2]),
             rng.choice([0, 1, 2]), rng.choice([0, 1, -1])) for _ in sizes]
    out = []
    for n, (size, stride, base, dilation, low, high) in zip(sizes, rows, strict=True):
        span = (n - 1) * base + 1 + low + high - ((size - 1) * dilation + 1)
        out.append(span // stride + 1)
    if min(out) < 3 or max(out) > 60:
        return _reverse(w, x, sizes, where)
    size, stride, base, dilation, low, high = (list(part) for part in zip(*rows, strict=True))
    edges = [[a, b] for a, b in zip(low, high, strict=True)]
    initial, combine = rng.choice([("%z", "stablehlo.add"), ("%c", "stablehlo.maximum")])
    name = f"%{w.count}"
    w.count += 1
    w.lines.append(f"""    {name} = "stablehlo.reduce_window"({x}, {initial}) ({{
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      %s = {combine} %l, %r : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }}) {{window_dimensions = array<i64: {_list(size)}>, window_strides = array<i64: {_list(stride)}>,
      base_dilations = array<i64: {_list(base)}>, window_dilations = array<i64: {_list(dilation)}>,
      padding = dense<{edges}> : tensor<{len(sizes)}x2xi64>, sdy.sharding = #sdy.sharding_per_value<[{where}]>}}
      : ({tensor(sizes)}, tensor<f32>) -> {tensor(out)}""")
    return name, out


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def _convolution(w: Writer) -> str:
    rng = w.rng
    n, kernel = [rng.randint(8, 15) for _ in range(2)], [rng.choice([1, 2, 3]) for _ in range(2)]
    stride, base, dilation = ([rng.choice([1, 1, 2]) for _ in range(2)] for _ in range(3))
    edges = [[rng.choice([0, 1, 2, -1]), rng.choice([0, 1])] for _ in range(2)]
    out = [((n[i] - 1) * base[i] + 1 + sum(edges[i]) - ((kernel[i] - 1) * dilation[i] + 1)) // stride[i] + 1
           for i in range(2)]
    where = sharding(rng, w.mesh, 4, rng.choice([[1, 2], [1], [2], [0, 1]]))
    lhs, result = [3, *n, 2], [3, *out, 2]
    x, k = w.argument(lhs, where), w.argument([*kernel, 2, 2], None)
    text = (f"stablehlo.convolution({x}, {k}) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = "
            f"{{stride = {stride}, pad = {edges}, lhs_dilate = {base}, rhs_dilate = {dilation}}} "
            "{batch_group_count = 1 : i64, feature_group_count = 1 : i64, "
            f"sdy.sharding = #sdy.sharding_per_value<[{where}]>}}")
    y = w.op(text, None, f"({tensor(lhs)}, {tensor([*kernel, 2, 2])}) -> {tensor(result)}")
    return w.module(y, result, where)
