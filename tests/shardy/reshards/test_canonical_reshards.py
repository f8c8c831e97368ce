from __future__ import annotations

import random

import pytest
from tests.shardy.peer import run_peer

from eggshard import shardy

SHARDINGS = (
    '[{"x"}, {}]', '[{}, {"x"}]', '[{"x", "y"}, {}]', '[{"y"}, {"x"}]', "[{}, {}]", '[{"x", ?}, {?}]',
)
#: Our passes, and jaxlib's that do as much.
PASSES = (
    ("canonicalize-reshards", "canonicalize"),
    ("canonicalize-reshards{common=false}", "canonicalize{enable-patterns=sdy-reshard}"),
)


def program(seed: int) -> str:
    """Reshards of reshards, between sums and branches. What nobody uses is returned."""
    rng = random.Random(seed)
    values, lines = ["%a", "%b"], []
    for i in range(rng.randint(3, 14)):
        name, value, kind = f"%v{i}", rng.choice(values), rng.random()
        target = f"<@mesh, {rng.choice(SHARDINGS)}> : tensor<8x8xf32>"
        if kind < 0.75:
            lines.append(f"{name} = sdy.reshard {value} {target}")
        elif kind < 0.9:
            lines.append(f"{name} = stablehlo.add {value}, {rng.choice(values)} : tensor<8x8xf32>")
        else:
            lines.append(f"""{name} = "stablehlo.case"(%n) ({{ %i{i} = sdy.reshard {value} {target}
              stablehlo.return %i{i} : tensor<8x8xf32> }}, {{ stablehlo.return {value} : tensor<8x8xf32> }})
              : (tensor<i32>) -> tensor<8x8xf32>""")
        values.append(name)
    used = " ".join(line.split(" = ", 1)[1] for line in lines).replace(",", " ").replace(")", " ").split()
    unused = [v for v in values[2:] if v not in used]
    returned = unused + rng.sample(values, rng.randint(0, 2))
    types = ", ".join(["tensor<8x8xf32>"] * len(returned))
    body = "\n".join(lines)
    return f"""module {{
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  func.func @main(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>, %n: tensor<i32>) -> ({types}) {{
    {body}
    return {", ".join(returned)} : {types}
  }}
}}"""


def check(seeds: range, ours: str, theirs: str) -> None:
    for seed in seeds:
        text = program(seed)
        assert shardy.transform(text, ours) == run_peer(text, theirs).text, text


@pytest.mark.parametrize(("ours", "theirs"), PASSES)
def test_random_reshards(ours: str, theirs: str) -> None:
    check(range(60), ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize(("ours", "theirs"), PASSES)
def test_many_random_reshards(ours: str, theirs: str) -> None:
    check(range(100, 1000), ours, theirs)


def module(text: str) -> str:
    return f'module {{ sdy.mesh @mesh = <["x"=4, "y"=2]>\nfunc.func @main(%a: tensor<8x8xf32>) {text} }}'


def test_reshards_to_partial_sums_are_not_shared_with_others() -> None:
    """jaxlib compares how dimensions are sharded alone, and so loses the partial sums."""
    text = """-> (tensor<8x8xf32>, tensor<8x8xf32>) {
      %0 = sdy.reshard %a <@mesh, [{"x"}, {}]> : tensor<8x8xf32>
      %1 = sdy.reshard %a <@mesh, [{"x"}, {}], unreduced={"y"}> : tensor<8x8xf32>
      return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
    }"""
    assert run_peer(module(text), "canonicalize").text.count("sdy.reshard") == 1
    assert shardy.transform(module(text), "canonicalize-reshards").count("sdy.reshard") == 2


def test_unused_reshards_go() -> None:
    text = """{
      %0 = sdy.reshard %a <@mesh, [{"x"}, {}]> : tensor<8x8xf32>
      %1 = sdy.reshard %0 <@mesh, [{}, {}]> : tensor<8x8xf32>
      return
    }"""
    assert "sdy.reshard" not in shardy.transform(module(text), "canonicalize-reshards")
