"""Random shardings on a mesh, as text."""

from __future__ import annotations

import random

Shape = tuple[int, ...]


def axes_of(mesh: str) -> dict[str, int]:
    body = mesh[mesh.index("[") + 1 : mesh.index("]")]
    return {k.strip(' "'): int(v) for k, v in (part.split("=") for part in body.split(","))}


class Shardings:
    """Random shardings on a mesh: whole axes, or parts of them, on any dimensions, whether they divide or not.

    names: the symbols of the mesh, and of the same with its devices in other orders. unreduced: how often a sharding
    has partial sums; open: how often a dimension is open; replicated: how often axes must not be used.
    """

    def __init__(
        self, rng: random.Random, mesh: str, names: tuple[str, ...], unreduced: float, open_: float,
        replicated: float,
    ) -> None:
        self.rng, self.axes, self.names = rng, axes_of(mesh), names
        self.unreduced, self.open, self.replicated = unreduced, open_, replicated

    def __call__(self, *shapes: Shape) -> list[str]:
        """Of values that are unreduced along the same axes, if they are."""
        pool = self.pool()
        kept, banned = (self.chosen(pool, often) for often in (self.unreduced, self.replicated))
        banned = [a for a in banned if a not in kept]
        out = []
        for shape in shapes:
            dims = self.dims(shape, [a for a in pool if a not in kept + banned])
            shown = "".join(f", {name}={{{', '.join(_unmergeable(axes))}}}"
                            for name, axes in (("replicated", banned), ("unreduced", kept)) if axes)
            out.append(f"<@{self.rng.choice(self.names)}, [{', '.join(dims)}]{shown}>")
        return out

    def chosen(self, pool: list[str], often: float) -> list[str]:
        """Some of these axes in the order of the mesh, if any."""
        order = list(self.axes)
        axes = pool[: self.rng.randint(1, 2)] if self.rng.random() < often else []
        return sorted(axes, key=lambda a: (order.index(a.split('"')[1]), a))

    def pool(self) -> list[str]:
        """Axes that may stand together, in any order."""
        pool: list[str] = []
        for name, size in self.axes.items():
            if size > 2 and size % 2 == 0 and self.rng.random() < 0.35:
                halves = [f'"{name}":(1)2', f'"{name}":(2){size // 2}']
                pool += halves if self.rng.random() < 0.5 else [self.rng.choice(halves)]
            else:
                pool.append(f'"{name}"')
        self.rng.shuffle(pool)
        return pool

    def dims(self, shape: Shape, pool: list[str]) -> list[str]:
        dims: list[list[str]] = [[] for _ in shape]
        if shape and 0 not in shape:
            for axis in self.rng.sample(pool, len(pool)):
                if self.rng.random() < 0.6:
                    dims[self.rng.randrange(len(shape))].append(axis)
        dims = [_unmergeable(dim) + ["?"] * (self.rng.random() < self.open) for dim in dims]
        return [f"{{{', '.join(dim)}}}" for dim in dims]


def _unmergeable(dim: list[str]) -> list[str]:
    """Without a second half right after its first, which has to be written as one axis."""
    return [a for i, a in enumerate(dim) if not (i and ":(2)" in a and dim[i - 1].split(":")[0] == a.split(":")[0])]
