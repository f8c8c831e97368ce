"""What is said of the elements of integer tensors holds of what the program computes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from eggshard.frontends.stablehlo.reading import read
from eggshard.ops.evaluate import evaluate_region
from eggshard.shardy.module import parsed
from eggshard.shardy.propagation.known_indices import Known, known_indices

DIRECTIONS = ("LT", "LE", "GT", "GE", "EQ", "NE")


def tensor(shape: tuple[int, ...], dtype: str) -> str:
    return f"tensor<{'x'.join([*map(str, shape), dtype])}>"


def random_chain(seed: int) -> str:
    """A function of an argument that returns every value of a random program of integers."""
    draw = random.Random(seed)
    values: list[tuple[str, tuple[int, ...], str]] = [("%a", (3, 4), "i32")]
    lines: list[str] = []

    def emit(op: str, operands: list[str], shape: tuple[int, ...], dtype: str, attributes: str = "") -> str:
        name = f"%v{len(lines)}"
        types = [next(tensor(s, t) for n, s, t in values if n == o) for o in operands]
        lines.append(f'{name} = "stablehlo.{op}"({", ".join(operands)}) {{{attributes}}} : ({", ".join(types)}) -> '
                     f"{tensor(shape, dtype)}")
        values.append((name, shape, dtype))
        return name

    for _ in range(14):
        kind = draw.choice(("iota", "iota", "constant", "broadcast", "reshape", "convert", "clamp", "select"))
        shape = draw.choice(((3, 4), (4,), (12,), (3, 4), (4, 3), (1, 4), (2, 6)))
        dtype = draw.choice(("i32", "i32", "i8", "ui16"))
        source, before, held = draw.choice(values)
        alike = [n for n, s, t in values if s == before and t == held]
        if kind == "iota":
            emit("iota", [], shape, dtype, f"iota_dimension = {draw.randrange(len(shape))} : i64")
        elif kind == "constant":
            numbers = np.indices(shape)[draw.randrange(len(shape))] if draw.random() < 0.5 else \
                np.random.default_rng(seed).integers(0, 5, shape) * draw.choice((0, 1))
            emit("constant", [], shape, dtype, f"value = dense<{numbers.tolist()}> : {tensor(shape, dtype)}")
        elif kind == "broadcast":
            first = draw.randrange(2)
            dims = ", ".join(str(d + first) for d in range(len(before)))
            after = (4, *before) if first else (*before, 3)
            emit("broadcast_in_dim", [source], after, held, f"broadcast_dimensions = array<i64: {dims}>")
        elif kind == "reshape":
            size = int(np.prod(before))
            after = draw.choice(((size,), (1, size), (size // 4, 4), (4, size // 4), (size // 4, 1, 4)))
            emit("reshape", [source], after, held)
        elif kind == "convert":
            emit("convert", [source], before, dtype)
        elif kind == "clamp":
            emit("clamp", [draw.choice(alike), source, draw.choice(alike)], before, held)
        else:
            direction = f"comparison_direction = #stablehlo<comparison_direction {draw.choice(DIRECTIONS)}>"
            wanted = emit("compare", [source, draw.choice(alike)], before, "i1", direction)
            emit("select", [wanted, draw.choice(alike), draw.choice(alike)], before, held)
    del values[0]
    names, types = ", ".join(n for n, _, _ in values), ", ".join(tensor(s, t) for _, s, t in values)
    body = "\n".join(lines)
    return f"func.func @main(%a: tensor<3x4xi32>) -> ({types}) {{\n{body}\nreturn {names} : {types}\n}}"


def assert_holds(known: Known, value: np.ndarray, what: str) -> None:
    whole = value.astype(object)
    assert (whole >= known.low).all() and (whole <= known.high).all(), what
    for dim in known.counted:
        assert (value == np.indices(value.shape)[dim]).all(), what


@pytest.mark.parametrize("seed", range(40))
def test_what_is_known_holds(seed: int) -> None:
    text = random_chain(seed)
    array = np.random.default_rng(seed).integers(-3, 6, (3, 4)).astype(np.int32)
    computed = evaluate_region(read(text).region, [array])
    with parsed(text) as module:
        found = known_indices(module)
        (end,) = module.walk("func.return")
        facts = [found.get(operand) for operand in end.operands]
    for number, (known, value) in enumerate(zip(facts, computed, strict=True)):
        if known is not None:
            assert_holds(known, value, f"value {number} of\n{text}")
    assert any(known is not None and known.counted for known in facts)


@pytest.mark.parametrize(("type_", "size", "known"), [
    ("i8", 128, True), ("i8", 129, False), ("ui8", 256, True), ("ui8", 257, False), ("i64", 1000, True),
])  # fmt: skip
def test_positions_that_wrap_around_are_not_known(type_: str, size: int, known: bool) -> None:
    text = f"func.func @main() {{\n  %0 = stablehlo.iota dim = 0 : tensor<{size}x{type_}>\n  return\n}}"
    with parsed(text) as module:
        assert list(known_indices(module).values()) == [Known(0, size - 1, frozenset({0}))] * known
