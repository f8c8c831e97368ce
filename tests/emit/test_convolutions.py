"""Convolutions in loops on CPUs: with features last, where XLA calls its library."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from tests.slowness import some

import eggshard as es
from eggshard.costmodel import WireBytes
from eggshard.emit.stablehlo import plan_text

MESH = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
RNG = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return RNG.integers(-2, 3, shape).astype(np.float32)


def planned(function, *arrays, spec):
    """The plan of a function whose first argument is sharded, and its lowered form."""
    at = (NamedSharding(MESH, P(*spec)), *[NamedSharding(MESH, P())] * (len(arrays) - 1))
    lowered = jax.jit(function, in_shardings=at).lower(*arrays)
    return es.optimize(lowered, cost_model=WireBytes())


CASES = {
    "features first": (("NCHW", "OIHW", "NCHW"), (4, 3, 6, 5), (3, 3, 3, 3), {"padding": "SAME"}),
    "features last": (("NHWC", "HWIO", "NHWC"), (4, 6, 5, 3), (3, 3, 3, 3), {"padding": "SAME"}),
    "gradient of filters": (("CHWN", "IHWO", "HWNC"), (4, 6, 6, 8), (4, 6, 6, 3), {"padding": ((1, 1), (1, 1))}),
    "strides": (("CNHW", "HOWI", "HCWN"), (2, 4, 7, 5), (3, 2, 2, 2),
                {"padding": "VALID", "window_strides": (2, 1), "rhs_dilation": (1, 2)}),
    "one dimension": (("NCH", "OIH", "NCH"), (4, 3, 8), (3, 3, 3), {"padding": "SAME"}),
    "three dimensions": (("NCDHW", "OIDHW", "NCDHW"), (2, 2, 4, 4, 4), (2, 2, 3, 3, 3), {"padding": "SAME"}),
    "groups": (("NCHW", "OIHW", "NCHW"), (4, 4, 6, 5), (4, 2, 3, 3), {"padding": "SAME", "feature_group_count": 2}),
    "groups of a batch": (("NCHW", "OIHW", "NCHW"), (4, 2, 6, 5), (4, 2, 3, 3),
                          {"padding": "SAME", "batch_group_count": 2}),
}


@pytest.mark.parametrize("case", some(CASES, 4))
@pytest.mark.parametrize("sharded", [None, "x"], ids=["whole", "sharded"])
def test_convolutions_in_loops_are_what_jax_computes(case: str, sharded: str | None) -> None:
    names, images, filters, options = CASES[case]
    x, w = drawn(*images), drawn(*filters)

    def f(x, w):
        def body(i, r):
            return r + lax.conv_general_dilated(x + jnp.sum(r) * 0, w, dimension_numbers=numbers, **rest)

        return lax.fori_loop(0, 3, body, jnp.zeros(made, np.float32))

    numbers = lax.conv_dimension_numbers(images, filters, names)
    rest = {"window_strides": (1,) * (x.ndim - 2), **options}
    made = jax.eval_shape(lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=numbers, **rest), x, w).shape
    plan = planned(f, x, w, spec=(sharded,))
    assert np.array_equal(np.asarray(plan.to_jax()(x, w)), np.asarray(f(x, w)))


def test_only_loops_are_given_other_dimension_numbers() -> None:
    """XLA itself brings convolutions of the entry computation into the form that it has fast code for."""
    x, w = drawn(4, 3, 6, 5), drawn(3, 3, 3, 3)

    def once(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME")

    def often(x, w):
        return lax.fori_loop(0, 3, lambda i, x: once(x, w), x)

    first, last = "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]", "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
    for function, cpu, gpu in ((once, first, first), (often, last, first)):
        plan = planned(function, x, w, spec=("x",))
        for platform, wanted in (("cpu", cpu), ("gpu", gpu)):
            assert wanted in plan_text(plan, platform)
