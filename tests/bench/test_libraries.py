"""Plans of programs by well-known libraries are right."""

import jax
import numpy as np
import pytest
from bench.programs import libraries
from bench.run import difference

import eggshard
from eggshard.program.types import numpy_dtype


def test_programs_are_named_after_their_library() -> None:
    assert len({name.partition(":")[0].partition(".")[0] for name in libraries.names()}) >= 7


def drawn(type_, generator):
    """Positive numbers, as second moments and variances are; small integers, as labels are."""
    dtype = numpy_dtype(type_.dtype)
    if dtype.kind == "f":
        return generator.uniform(0.05, 0.2, type_.shape).astype(dtype)
    return generator.integers(0, 2 if dtype.kind == "b" else 8, type_.shape).astype(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("name", libraries.names())
def test_plans_are_right(name: str) -> None:
    pytest.importorskip(name.partition(":")[0])
    lowered = libraries.lowered(name)
    plan = eggshard.optimize(lowered)
    generator = np.random.default_rng(0)
    inputs = [drawn(type_, generator) for type_ in plan.program.input_types]
    assert not plan.search.fallback
    if "callback" not in lowered.as_text():
        plan.verify(inputs=inputs, engines=("jax",))
        return
    # The program in double precision can't be run apart from its callbacks.
    compiled = lowered.compile()
    args, _ = jax.tree.unflatten(lowered.in_tree, inputs)
    placed = jax.tree.map(jax.device_put, args, compiled.input_shardings[0])
    assert difference(jax.jit(plan.to_jax())(*placed), compiled(*placed)) < 1e-5
