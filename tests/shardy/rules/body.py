"""Writing modules of single ops as text, at random: a function whose body grows op by op."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

Shape = Sequence[int]


@dataclass(frozen=True)
class Value:
    name: str
    type: str


def tensor(shape: Shape, dtype: str = "f32") -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{dtype}>"


def array(values: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


def matrix(rows: Sequence[Sequence[int]]) -> str:
    width = len(rows[0]) if rows else 2
    return f"dense<{[list(row) for row in rows] or ''}> : tensor<{len(rows)}x{width}xi64>"


class Body:
    """random: the source of what is drawn for it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.arguments: list[Value] = []
        self.lines: list[str] = []
        self.results: list[Value] = []

    def argument(self, shape: Shape, dtype: str = "f32") -> Value:
        """A new argument of the function."""
        value = Value(f"%a{len(self.arguments)}", tensor(shape, dtype))
        self.arguments.append(value)
        return value

    def op(
        self, name: str, operands: Sequence[Value], results: Sequence[str], attributes: str = "", regions: str = ""
    ) -> list[Value]:
        """An op in the generic form; its results."""
        names = [f"%v{len(self.lines)}_{i}" for i in range(len(results))]
        self.lines.append(
            f"{', '.join(names)}{' = ' if names else ''}\"{name}\"({', '.join(v.name for v in operands)}) "
            f"{f'({regions}) ' if regions else ''}{{{attributes}}} : "
            f"({', '.join(v.type for v in operands)}) -> ({', '.join(results)})")
        values = [Value(n, t) for n, t in zip(names, results, strict=True)]
        self.results += values
        return values

    def module(self) -> str:
        """The module's text: a function that returns everything."""
        arguments = ", ".join(f"{v.name}: {v.type}" for v in self.arguments)
        names, types = ", ".join(v.name for v in self.results), ", ".join(v.type for v in self.results)
        head = f'module {{\nsdy.mesh @mesh = <["x"=4, "y"=2]>\nfunc.func @main({arguments}) -> ({types}) {{'
        return "\n".join([head, *self.lines, f"return {names} : {types}\n}}\n}}"])

    # -- drawing -----------------------------------------------------------------------------------------------------

    def size(self) -> int:
        return self.random.choice((0, 1, 1, 2, 3, 4, 5, 6, 8, 12, 16)) if self.random.random() < 0.9 else 7

    def shape(self, least: int = 0, most: int = 4) -> list[int]:
        return [self.size() for _ in range(self.random.randint(least, most))]

    def filled(self, least: int = 0, most: int = 4) -> list[int]:
        """A shape without empty dimensions."""
        return [max(1, n) for n in self.shape(least, most)]

    def some(self, items: Sequence[int], least: int = 0) -> list[int]:
        """A few of them, in order."""
        return sorted(self.random.sample(list(items), self.random.randint(min(least, len(items)), len(items))))

    def shuffled(self, items: Sequence[int]) -> list[int]:
        return self.random.sample(list(items), len(items))

    def any(self, *items: str) -> str:
        return self.random.choice(items)


def combiner(name: str, dtype: str = "f32", count: int = 1, swapped: bool = False) -> str:
    """A region that combines ``count`` pairs of scalars by an op."""
    scalar = tensor((), dtype)
    arguments = ", ".join(f"%l{i}: {scalar}" for i in range(count)) + ", " + ", ".join(
        f"%r{i}: {scalar}" for i in range(count))
    lines = [
        f'%c{i} = "stablehlo.{name}"({f"%r{i}, %l{i}" if swapped else f"%l{i}, %r{i}"}) : ({scalar}, {scalar}) -> '
        f"{scalar}" for i in range(count)
    ]
    returned = ", ".join(f"%c{i}" for i in range(count))
    types = ", ".join([scalar] * count)
    return "\n".join([f"{{^bb0({arguments}):", *lines, f'"stablehlo.return"({returned}) : ({types}) -> ()}}'])
