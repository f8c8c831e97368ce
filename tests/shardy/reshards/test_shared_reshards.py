"""Reshards of one value in several shapes and orders of dimensions become one."""

from __future__ import annotations

import random

import pytest
from tests.shardy.peer import run_peer
from tests.shardy.running import assert_runs_equal

from eggshard import shardy
from eggshard.shardy.module import parsed
from eggshard.shardy.wire_bytes import module_bytes

PASS = "canonicalize-reshards"
EXPLICIT = "insert-explicit-reshards{enable-full-version=true}"
PEER_EXPLICIT = "func.func(sdy-insert-explicit-reshards{enable-full-version=true})"
STAGES = f"{PEER_EXPLICIT},func.func(sdy-reshard-to-collectives),canonicalize"
SHAPES = ((16, 16), (4, 4, 16), (16, 4, 4), (64, 4), (256,), (8, 32), (2, 8, 16))
DIMS = ('"x"', '"y"', '"x", "y"', '"y", "x"', '"x":(1)2', "", "", "", "")
CUBE = "tensor<8x8x8xf32>"


def tensor(shape: tuple[int, ...]) -> str:
    return f"tensor<{'x'.join(map(str, shape))}xf32>"


def program(seed: int) -> str:
    """Reshapes, transposes and reshards of one value; those that nobody uses are returned, as they lie.

    Of odd seeds no reshapes; reshards are then of one of few dimensions of the value, wherever these are.
    """
    rng = random.Random(seed)
    start = (4, 8, 16) if seed % 2 else (16, 16)
    values = [("%a", start, (0, 1, 2))]
    lines: list[str] = []
    used: set[str] = set()
    for i in range(rng.randint(4, 10)):
        x, shape, at = rng.choice(values[-4:])
        kind, name = rng.random(), f"%v{i}"
        new = shape
        if kind < 0.3 and not seed % 2:
            new = rng.choice(SHAPES)
            lines.append(f"{name} = stablehlo.reshape {x} : ({tensor(shape)}) -> {tensor(new)}")
        elif kind < 0.6:
            order = rng.sample(range(len(shape)), len(shape))
            new, at = tuple(shape[d] for d in order), tuple(at[d] for d in order) if seed % 2 else at
            lines.append(f"{name} = stablehlo.transpose {x}, dims = {order} : ({tensor(shape)}) -> {tensor(new)}")
        else:
            dims = [""] * len(shape)
            if seed % 2:
                dims[at.index(rng.choice([0, 2]))] = '"y"'
            else:
                dims[rng.randrange(len(shape))] = rng.choice(DIMS)
            text = ", ".join(f"{{{d}}}" for d in dims)
            lines.append(f"{name} = sdy.reshard {x} <@mesh, [{text}]> : {tensor(shape)}")
        used.add(x)
        values.append((name, new, at))
    returned = [(x, shape) for x, shape, _ in values[1:] if x not in used]
    types = ", ".join(tensor(shape) for _, shape in returned)
    body = "\n".join(lines)
    stated = ", ".join(['{"x"}', *["{}"] * (len(start) - 1)])
    return f"""module {{
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  func.func @main(%a: {tensor(start)} {{sdy.sharding = #sdy.sharding<@mesh, [{stated}]>}}) -> ({types}) {{
    {body}
    return {", ".join(x for x, _ in returned)} : {types}
  }}
}}"""


def received(text: str) -> float:
    with parsed(text) as module:
        return module_bytes(module).busiest


def compared(seeds: range) -> int:
    """In how many programs jaxlib sends more after its canonicalisation; in none less.

    The shardings that jaxlib leaves on what it moves are not those that the values have: reshards are inserted again.
    """
    fewer = 0
    for seed in seeds:
        text = run_peer(program(seed), PEER_EXPLICIT).text
        made = shardy.transform(text, PASS), run_peer(text, "canonicalize").text
        ours, theirs = (received(run_peer(module, STAGES).text) for module in made)
        assert ours <= theirs + 1e-3, text
        fewer += ours < theirs - 1e-3
    return fewer


@pytest.mark.slow
def test_no_fewer_are_shared_than_by_jaxlib() -> None:
    assert compared(range(80)) >= 1


def test_what_is_shared_computes_the_same() -> None:
    for seed in range(25):
        text = program(seed)
        before = shardy.transform(text, f"{EXPLICIT},{PASS},reshard-to-collectives")
        assert_runs_equal(before, shardy.transform(before, "convert-global-to-local"), text, seed, nans=(False,))


@pytest.mark.slow
def test_many_programs() -> None:
    assert compared(range(100, 800)) >= 1


def cube(*lines: str, returned: str) -> str:
    values = returned.split(", ")
    types = ", ".join([CUBE] * len(values))
    body = "\n".join(f"  {line}" for line in lines)
    return f"""module {{
sdy.mesh @mesh = <["x"=2, "y"=2]>
func.func @main(%a: {CUBE} {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}, {{}}]>}}) -> ({types}) {{
{body}
  return {returned} : {types}
}}}}"""


def transpose(x: str, order: str, dims: str) -> str:
    stated = f"{{sdy.sharding = #sdy.sharding_per_value<[<@mesh, {dims}>]>}}"
    return f"stablehlo.transpose {x}, dims = {order} {stated} : ({CUBE}) -> {CUBE}"


FIRST = f'%0 = sdy.reshard %a <@mesh, [{{}}, {{"x"}}, {{}}]> : {CUBE}'
TURNED = f"""%1 = {transpose("%a", "[1, 0, 2]", '[{}, {"x"}, {}]')}"""


def test_a_transpose_of_the_reshard_has_the_sharding_that_it_has() -> None:
    """jaxlib leaves the one from before on it."""
    text = cube(FIRST, TURNED, f'%2 = sdy.reshard %1 <@mesh, [{{"x"}}, {{}}, {{}}]> : {CUBE}', returned="%0, %2")
    theirs, ours = run_peer(text, "canonicalize").text, shardy.transform(text, PASS)
    assert theirs.count("sdy.reshard") == ours.count("sdy.reshard") == 1
    moved = "stablehlo.transpose %0, dims = [1, 0, 2] {sdy.sharding = #sdy.sharding_per_value<[<@mesh, "
    assert f'{moved}[{{}}, {{"x"}}, {{}}]>' in theirs and f'{moved}[{{"x"}}, {{}}, {{}}]>' in ours


def test_transposes_beside_one_another() -> None:
    """jaxlib looks at what the transposed value itself is resharded to alone."""
    text = cube(
        TURNED, f'%2 = sdy.reshard %1 <@mesh, [{{"x"}}, {{}}, {{}}]> : {CUBE}',
        f"""%3 = {transpose("%a", "[2, 1, 0]", '[{}, {}, {"x"}]')}""",
        f'%4 = sdy.reshard %3 <@mesh, [{{}}, {{"x"}}, {{}}]> : {CUBE}', returned="%2, %4")
    assert run_peer(text, "canonicalize").text.count("sdy.reshard") == 2
    assert shardy.transform(text, PASS).count("sdy.reshard") == 1


@pytest.mark.parametrize("target", [
    '<@mesh, [{}, {"x"}, {}]>', '<@mesh, [{"y"}, {}, {}]>', '<@mesh, [{"x"}, {}, {}], unreduced={"y"}>',
])
def test_other_elements_are_not_shared(target: str) -> None:
    text = cube(FIRST, TURNED, f"%2 = sdy.reshard %1 {target} : {CUBE}", returned="%0, %2")
    assert shardy.transform(text, PASS).count("sdy.reshard") == 2


def test_scalars_have_one_element() -> None:
    text = """module {
      sdy.mesh @mesh = <["x"=2]>
      func.func @main(%a: tensor<f32>) -> (tensor<1x1xf32>, tensor<1xf32>) {
        %0 = stablehlo.reshape %a : (tensor<f32>) -> tensor<1x1xf32>
        %1 = sdy.reshard %0 <@mesh, [{}, {}]> : tensor<1x1xf32>
        %2 = stablehlo.reshape %a : (tensor<f32>) -> tensor<1xf32>
        %3 = sdy.reshard %2 <@mesh, [{}]> : tensor<1xf32>
        return %1, %3 : tensor<1x1xf32>, tensor<1xf32>
      }
    }"""
    assert shardy.transform(text, PASS).count("sdy.reshard") == 1


def test_without_common_reshards_stay() -> None:
    text = cube(FIRST, TURNED, f'%2 = sdy.reshard %1 <@mesh, [{{"x"}}, {{}}, {{}}]> : {CUBE}', returned="%0, %2")
    for name in ("canonicalize-reshards{common=false}", "canonicalize-collectives{reshards=false}"):
        assert shardy.transform(text, name).count("sdy.reshard") == 2
