"""What all-reduces pay for latencies where shardings are chosen."""

import jax
import jax.numpy as jnp
import numpy as np
from tests.planner.choosing.test_choice import LIMITS, f32, means, program_of

from eggshard.planner.choosing.choice import Chooser
from eggshard.planner.choosing.latencies import Priced, alike
from eggshard.planner.request import requested
from eggshard.program.mesh import Mesh


def layers(w1, w2, x):
    return x @ w1 @ w2


def step(w1, w2, x):
    return jax.grad(lambda w: jnp.mean(jnp.tanh(layers(*w, x)) ** 2))((w1, w2))


def priced(function, *arguments, hurried: bool = False) -> Priced:
    request = requested(program_of(function, *arguments, mesh=Mesh({"x": 4})), "h100-node", limits=LIMITS)
    chooser = Chooser(request, {})
    return Priced.of(chooser._opened.opener, chooser.ends, hurried)


def paid(found: Priced) -> dict[tuple[int, ...], set[float]]:
    """Per shape of a value, its sizes ascending, the parts of latencies that its all-reduces pay."""
    out: dict[tuple[int, ...], set[float]] = {}
    for c, eclass in enumerate(found.problem.graph.classes):
        none, some, whole = (o.problem.conversions[c] for o in (found.none, found.problem, found.whole))
        dearer = np.isfinite(none) & (whole > none * (1 + 1e-9))
        if not eclass.is_tuple and dearer.any():
            parts = (some[dearer] - none[dearer]) / (whole[dearer] - none[dearer])
            out.setdefault(tuple(sorted(eclass.types[0].shape)), set()).update(np.round(parts, 6).tolist())
    return out


def test_gradients_share_a_latency_and_activations_pay_their_own():
    found = paid(priced(step, f32(96, 160), f32(160, 32), f32(64, 96)))
    assert found[96, 160] == found[32, 160] == {0.5}
    assert found[64, 160] == found[32, 64] == {1.0}


def test_where_nothing_may_be_shared_there_is_one_problem():
    found = priced(layers, f32(96, 160), f32(160, 32), f32(64, 96))
    assert found.none is found.problem is found.whole


def test_sums_in_loops_may_share_too():
    found = priced(means, f32(4096, 16), f32(8, 16))
    assert found.none is not found.whole


def test_problems_at_all_prices_offer_the_same():
    found = priced(step, f32(96, 160), f32(160, 32), f32(64, 96))
    assert alike(found.none, found.whole) and alike(found.none, found.problem) and not found.large
    assert not alike(found.none, priced(layers, f32(96, 160), f32(160, 32), f32(64, 96)).none)


def test_a_search_in_a_hurry_has_the_same_prices_and_asks_for_no_bound():
    arguments = step, f32(96, 160), f32(160, 32), f32(64, 96)
    found, hurried = priced(*arguments), priced(*arguments, hurried=True)
    assert hurried.none is hurried.whole is hurried.problem
    assert hurried.problem.problem.choices == found.problem.problem.choices
