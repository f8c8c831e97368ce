"""Meshes of many axes: what a program can do without communication stays free, however many axes there are."""

import random

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P
from tests.slowness import some

import eggshard

NAMES = "abcdefg"
EQUATIONS = ("bij,jk->bik", "ij,jk->ik", "bhqd,bhkd->bhqk", "ij,ij->ij", "ijk,k->kij")


def lowered(axes: int, equation: str, roles: dict[str, str]) -> str:
    """An einsum whose operands and result are sharded as the roles of axes say, and a tanh behind it."""
    grid = AbstractMesh((2,) * axes, tuple(NAMES[:axes]), axis_types=(AxisType.Auto,) * axes)

    def sharding(letters: str) -> NamedSharding:
        return NamedSharding(grid, P(*(tuple(a for a, role in roles.items() if role == x) or None for x in letters)))

    left, right, out = equation.replace("->", ",").split(",")
    shapes = [jax.ShapeDtypeStruct((64,) * len(x), jnp.float32) for x in (left, right)]
    return jax.jit(
        lambda x, y: jnp.tanh(jnp.einsum(equation, x, y)), in_shardings=(sharding(left), sharding(right)),
        out_shardings=sharding(out)).trace(*shapes).lower(lowering_platforms=("cpu",)).as_text()


@pytest.mark.parametrize("axes", [4, 7])
@pytest.mark.parametrize("seed", some(range(4), 2))
def test_free_programs_stay_free(axes: int, seed: int) -> None:
    """On devices of their own; those that share the processors of a host share work, which is worth a message."""
    rng = random.Random(100 * axes + seed)
    equation = rng.choice(EQUATIONS)
    kept = sorted(set(equation.split("->")[1]))
    names = rng.sample(NAMES[:axes], rng.randint(2, axes))
    roles = {a: rng.choice(kept) for a in names}
    plan = eggshard.optimize(lowered(axes, equation, roles), cost_model="alpha-beta")
    assert plan.wire_bytes == 0, (equation, roles)


@pytest.mark.parametrize("axes", [4, 7])
def test_axes_that_nobody_names_change_nothing(axes: int) -> None:
    roles = {"a": "i", "b": "j"}
    want = eggshard.optimize(lowered(2, "ij,jk->ik", roles))
    assert 0 < eggshard.optimize(lowered(axes, "ij,jk->ik", roles)).wire_bytes <= want.wire_bytes
