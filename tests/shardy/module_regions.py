"""Ops with regions or data flow that random modules are made of: loops, branches, barriers, manual computations."""

from __future__ import annotations

from typing import Any

from tests.shardy.module_ops import FAMILIES, family


def body(w: Any, values: list[Any]) -> list[Any]:
    """Some elementwise ops on the values of a region; what they become, of the same shapes."""
    out = list(values)
    for i, value in enumerate(values):
        if value.dtype == "f32" and w.maybe(0.8):
            other = w.operand(lambda v, s=value.shape: v.shape == s, value.shape)
            (out[i],) = w.emit("stablehlo.add", [value, other], [(value.shape, "f32")])
    if w.features.constants and w.maybe(0.5):
        FAMILIES["constant"](w)
    return out


def behind_edges(w: Any, results: list[Any]) -> None:
    """The results of an op come into scope behind their edges."""
    w.function.values += [w.edge(v) for v in results if v.dtype == "f32"]


@family
def while_(w: Any) -> None:
    carried = [w.operand() for _ in range(w.rng.randint(1, 2))]
    counter = w.constant((), "i32", "0")
    operands = [counter, *carried]
    named = [type(v)(w.fresh(), v.shape, v.dtype) for v in operands]
    with w.region(named, inside=[]) as condition:
        limit = w.constant((), "i32", "3")
        attributes = "comparison_direction = #stablehlo<comparison_direction LT>"
        less = w.emit("stablehlo.compare", [named[0], limit], [((), "i1")], attributes, stated=False)
        w.terminate("stablehlo.return", less)
    named = [type(v)(w.fresh(), v.shape, v.dtype) for v in operands]
    outside = [v for v in w.function.values if v.dtype == "f32"]
    with w.region(named, inside=outside) as looped:
        one = w.constant((), "i32", "1")
        (count,) = w.emit("stablehlo.add", [named[0], one], [((), "i32")], stated=False)
        w.terminate("stablehlo.return", [count, *body(w, named[1:])])
    types = [(v.shape, v.dtype) for v in operands]
    behind_edges(w, w.emit("stablehlo.while", operands, types, "", [*condition, *looped], keep=False))


@family
def case(w: Any) -> None:
    index = w.constant((), "i32", "0")
    shapes = [w.operand().shape for _ in range(w.rng.randint(1, 2))]
    branches: list[str] = []
    for _ in range(w.rng.randint(1, 3)):
        with w.region([]) as written:
            values = [w.operand(lambda v, s=s: v.shape == s, s) for s in shapes]
            w.terminate("stablehlo.return", body(w, values))
        branches += written
    behind_edges(w, w.emit("stablehlo.case", [index], [(s, "f32") for s in shapes], "", branches, keep=False))


@family
def barrier(w: Any) -> None:
    values = [w.operand() for _ in range(w.rng.randint(1, 3))]
    behind_edges(
        w, w.emit("stablehlo.optimization_barrier", values, [(v.shape, v.dtype) for v in values], keep=False)
    )


@family
def manual(w: Any) -> None:
    """A computation that is manual over some axes, on shards of a value along them."""
    names = sorted(w.rng.sample(list(w.mesh.axes), k=w.rng.randint(1, len(w.mesh.axes))), key=list(w.mesh.axes).index)
    names = [n for n in names if n not in w.barred]
    if not names:
        return
    first = w.operand(lambda v: len(v.shape) >= 1, w.shape(2))
    values = [first, *([w.operand()] if w.maybe(0.4) else [])]
    placed = [_manual_sharding(w, names, v.shape) for v in values]
    w.barred, before = (*w.barred, *names), w.barred
    arguments = [type(v)(w.fresh(), local, v.dtype) for v, (_, local) in zip(values, placed, strict=True)]
    with w.region(arguments, inside=[]) as written:
        inner = [w.edge(v) for v in arguments]
        w.function.values[:] = inner
        w.terminate("sdy.return", body(w, inner))
    w.barred = before
    shardings = f"#sdy.sharding_per_value<[{', '.join(s for s, _ in placed)}]>"
    axes = f"#sdy<manual_axes{{{', '.join(f'{chr(34)}{n}{chr(34)}' for n in names)}}}>"
    attributes = f"in_shardings = {shardings}, out_shardings = {shardings}, manual_axes = {axes}"
    types = [(v.shape, v.dtype) for v in values]
    results = w.emit("sdy.manual_computation", values, types, attributes, written, stated=False, keep=False)
    # The edge of a result has the manual axes too: here as stated, so that the body still fits.
    w.function.values += [w.edge(v, s) for v, (s, _) in zip(results, placed, strict=True)]


def _manual_sharding(w: Any, names: list[str], shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """A sharding along manual axes, and the shape of a shard; axes that divide nothing replicate."""
    dims: list[list[str]] = [[] for _ in shape]
    local = list(shape)
    for name in names:
        fits = [i for i, n in enumerate(local) if n and n % w.mesh.axes[name] == 0]
        if fits and w.maybe(0.8):
            at = w.rng.choice(fits)
            dims[at].append(name)
            local[at] //= w.mesh.axes[name]
    partial = len(names) < len([a for a in w.mesh.axes if a not in w.barred])
    shown = [
        "{" + ", ".join([*(f'"{a}"' for a in d), *(["?"] if partial and w.maybe(w.features.open) else [])]) + "}"
        for d in dims
    ]
    mesh = w.bound("[" + ", ".join(shown) + "]")
    unused = [f'"{n}"' for n in names if not any(n in d for d in dims)]
    return (mesh[:-1] + f", replicated={{{', '.join(unused)}}}>" if unused else mesh), tuple(local)


@family
def named(w: Any) -> None:
    """A named computation, with or without shardings."""
    values = [w.operand() for _ in range(w.rng.randint(1, 2))]
    arguments = [type(v)(w.fresh(), v.shape, v.dtype) for v in values]
    with w.region(arguments, inside=[]) as written:
        inner = [w.edge(v) for v in arguments]
        w.function.values[:] = inner
        w.terminate("sdy.return", body(w, inner))
    attributes = 'name = "inner"'
    for key in ("in_shardings", "out_shardings"):
        if w.maybe(w.features.stated):
            attributes += f", {key} = {w.per_value([v.shape for v in values])}"
    types = [(v.shape, v.dtype) for v in values]
    behind_edges(w, w.emit("sdy.named_computation", values, types, attributes, written, stated=False, keep=False))
