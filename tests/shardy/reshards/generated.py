"""Random modules of the ops that decisions about reshards are about, by seed."""

from __future__ import annotations

import random

MESHES = ({"x": 8}, {"x": 4, "y": 2}, {"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2})


class Module:
    """Appends ops; ``values`` are (name, shape) of f32 tensors."""

    def __init__(self, seed: int, ops: int = 8, meshes: tuple[dict[str, int], ...] = MESHES,
                 sizes: tuple[int, ...] = (8, 16, 24), sub_axes: bool = False, looks: bool = False):
        self.random = random.Random(seed)
        self.mesh = self.random.choice(meshes)
        self.sizes, self.sub_axes = sizes, sub_axes
        self.lines: list[str] = []
        self.values: list[tuple[str, tuple[int, ...]]] = []
        self.count = 0
        arguments = []
        for i in range(self.random.randint(2, 4)):
            shape = tuple(self.random.choice(sizes) for _ in range(self.random.choice((1, 2, 2, 2, 3))))
            arguments.append(f"%a{i}: {type_of(shape)} {{sdy.sharding = #sdy.sharding{self.sharding(shape)}}}")
            self.values.append((f"%a{i}", shape))
        kinds = [self.pointwise] * 3 + [self.dot] * 2 + [
            self.reduce, self.transpose, self.reshape, self.broadcast, self.constraint, self.created]
        kinds += [self.slice, self.pad, self.concatenate, self.reverse] if looks else []
        for _ in range(ops):
            self.random.choice(kinds)()
        results = self.values[-self.random.randint(1, 2):]
        types = ", ".join(
            f"{type_of(shape)} {{sdy.sharding = #sdy.sharding{self.sharding(shape)}}}" for _, shape in results)
        axes = ", ".join(f'"{name}"={size}' for name, size in self.mesh.items())
        self.text = "\n".join([
            f"sdy.mesh @mesh = <[{axes}]>", f"func.func @main({', '.join(arguments)}) -> ({types}) {{",
            *("  " + line for line in self.lines),
            f"  return {', '.join(n for n, _ in results)} : {', '.join(type_of(s) for _, s in results)}", "}", "",
        ])

    def sharding(self, shape: tuple[int, ...]) -> str:
        """A closed sharding whose axes divide every dimension, one axis in three unused."""
        axes = list(self.mesh.items())
        self.random.shuffle(axes)
        dims: list[list[str]] = [[] for _ in shape]
        left = list(shape)
        for name, size in axes:
            d = self.random.randrange(-1, len(shape)) if shape else -1
            text = f'"{name}"'
            if self.sub_axes and size > 2 and self.random.random() < 0.4:
                pre = self.random.choice((1, size // 2))
                size, text = size // (pre if pre > 1 else 2), f'"{name}":({pre}){size // (pre if pre > 1 else 2)}'
            if d >= 0 and left[d] % size == 0:
                dims[d].append(text)
                left[d] //= size
        return f"<@mesh, [{', '.join('{' + ', '.join(d) + '}' for d in dims)}]>"

    def append(self, text: str, shape: tuple[int, ...]) -> None:
        self.lines.append(f"%{self.count} = {text}")
        self.values.append((f"%{self.count}", shape))
        self.count += 1

    def pick(self) -> tuple[str, tuple[int, ...]]:
        """Mostly a late value."""
        return self.values[max(self.random.randrange(len(self.values)), self.random.randrange(len(self.values)))]

    def pointwise(self) -> None:
        name, shape = self.pick()
        same = [n for n, s in self.values if s == shape]
        kind = self.random.choice(("add", "subtract", "multiply", "maximum", "tanh", "negate"))
        if kind in ("tanh", "negate"):
            self.append(f"stablehlo.{kind} {name} : {type_of(shape)}", shape)
        else:
            self.append(f"stablehlo.{kind} {name}, {self.random.choice(same)} : {type_of(shape)}", shape)

    def dot(self) -> None:
        pairs = [
            (a, b, i, j) for a in self.values for b in self.values[-6:]
            for i, n in enumerate(a[1]) for j, m in enumerate(b[1]) if n == m and len(a[1]) + len(b[1]) <= 5
        ]
        if not pairs:
            return
        (a, s), (b, t), i, j = self.random.choice(pairs)
        shape = (*s[:i], *s[i + 1:], *t[:j], *t[j + 1:])
        types = f"({type_of(s)}, {type_of(t)}) -> {type_of(shape)}"
        self.append(f"stablehlo.dot_general {a}, {b}, contracting_dims = [{i}] x [{j}] : {types}", shape)

    def reduce(self) -> None:
        name, shape = self.pick()
        if not shape:
            return
        dim, kind = self.random.randrange(len(shape)), self.random.choice(("add", "maximum"))
        start = "0.000000e+00" if kind == "add" else "0xFF800000"
        kept = (*shape[:dim], *shape[dim + 1:])
        self.lines.append(f"%c{self.count} = stablehlo.constant dense<{start}> : tensor<f32>")
        self.append(
            f"stablehlo.reduce({name} init: %c{self.count}) applies stablehlo.{kind} across dimensions = [{dim}] : "
            f"({type_of(shape)}, tensor<f32>) -> {type_of(kept)}", kept)

    def transpose(self) -> None:
        name, shape = self.pick()
        order = list(range(len(shape)))
        self.random.shuffle(order)
        out = tuple(shape[i] for i in order)
        self.append(f"stablehlo.transpose {name}, dims = {order} : ({type_of(shape)}) -> {type_of(out)}", out)

    def reshape(self) -> None:
        name, shape = self.pick()
        if len(shape) > 1 and self.random.random() < 0.5:
            d = self.random.randrange(len(shape) - 1)
            out = (*shape[:d], shape[d] * shape[d + 1], *shape[d + 2:])
        elif shape and len(shape) < 4:
            d = self.random.randrange(len(shape))
            part = self.random.choice([p for p in (2, 4, 8) if shape[d] % p == 0] or [1])
            out = (*shape[:d], part, shape[d] // part, *shape[d + 1:])
        else:
            return
        self.append(f"stablehlo.reshape {name} : ({type_of(shape)}) -> {type_of(out)}", out)

    def broadcast(self) -> None:
        name, shape = self.pick()
        if len(shape) > 2:
            return
        at = self.random.randrange(len(shape) + 1)
        out = (*shape[:at], self.random.choice(self.sizes), *shape[at:])
        dims = [i for i in range(len(out)) if i != at]
        self.append(
            f"stablehlo.broadcast_in_dim {name}, dims = {dims} : ({type_of(shape)}) -> {type_of(out)}", out)

    def created(self) -> None:
        """What has no operands, and a choice by it."""
        name, shape = self.pick()
        if not shape:
            return
        n, dim = self.count, self.random.randrange(len(shape))
        words = "x".join(map(str, shape))
        self.lines += [
            f"%i{n} = stablehlo.iota dim = {dim} : tensor<{words}xi32>",
            f"%k{n} = stablehlo.constant dense<{self.random.choice(shape) // 2}> : tensor<{words}xi32>",
            f"%f{n} = stablehlo.constant dense<2.0> : {type_of(shape)}",
            f"%p{n} = stablehlo.compare LT, %i{n}, %k{n} : (tensor<{words}xi32>, tensor<{words}xi32>)"
            f" -> tensor<{words}xi1>",
        ]
        self.append(f"stablehlo.select %p{n}, {name}, %f{n} : tensor<{words}xi1>, {type_of(shape)}", shape)

    def slice(self) -> None:
        name, shape = self.pick()
        bounds = [(self.random.choice((0, 0, 1)), n - self.random.choice((0, 0, 1, 2))) for n in shape]
        out = tuple(stop - start for start, stop in bounds)
        if shape and min(out) > 0:
            shown = ", ".join(f"{start}:{stop}" for start, stop in bounds)
            self.append(f"stablehlo.slice {name} [{shown}] : ({type_of(shape)}) -> {type_of(out)}", out)

    def pad(self) -> None:
        name, shape = self.pick()
        low, high = ([self.random.choice((0, 0, 1, 2)) for _ in shape] for _ in range(2))
        out = tuple(n + a + b for n, a, b in zip(shape, low, high, strict=True))
        self.lines.append(f"%c{self.count} = stablehlo.constant dense<0.5> : tensor<f32>")
        self.append(
            f"stablehlo.pad {name}, %c{self.count}, low = {low}, high = {high}, interior = {[0] * len(shape)} : "
            f"({type_of(shape)}, tensor<f32>) -> {type_of(out)}", out)

    def concatenate(self) -> None:
        name, shape = self.pick()
        if not shape:
            return
        other = self.random.choice([n for n, s in self.values if s == shape])
        dim = self.random.randrange(len(shape))
        out = (*shape[:dim], 2 * shape[dim], *shape[dim + 1:])
        types = f"({type_of(shape)}, {type_of(shape)}) -> {type_of(out)}"
        self.append(f"stablehlo.concatenate {name}, {other}, dim = {dim} : {types}", out)

    def reverse(self) -> None:
        name, shape = self.pick()
        if shape:
            dim = self.random.randrange(len(shape))
            self.append(f"stablehlo.reverse {name}, dims = [{dim}] : {type_of(shape)}", shape)

    def constraint(self) -> None:
        name, shape = self.pick()
        if shape:
            self.append(f"sdy.sharding_constraint {name} {self.sharding(shape)} : {type_of(shape)}", shape)


def type_of(shape: tuple[int, ...]) -> str:
    """``tensor<8x8xf32>``."""
    return f"tensor<{''.join(f'{n}x' for n in shape)}f32>"
