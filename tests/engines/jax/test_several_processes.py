"""Plans in a program of two JAX processes with four devices each."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")
from tests.engines.jax.several_processes import run_processes  # noqa: E402

PROGRAM = """
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
import eggshard as es
from eggshard.costmodel import WireBytes

mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
X = np.random.default_rng(0).standard_normal((16, 8, 8)).astype(np.float32)
A, B = NamedSharding(mesh, P("y", None, "x")), NamedSharding(mesh, P(None, ("x", "y"), None))
TYPE = jax.ShapeDtypeStruct(X.shape, X.dtype)

def array(x, sharding):
    return jax.make_array_from_callback(x.shape, sharding, lambda part: x[part])

def check(y, want):
    assert len(y.addressable_shards) == 4
    for shard in y.addressable_shards:
        np.testing.assert_allclose(np.asarray(shard.data), want[shard.index], rtol=1e-5)

def refused(kind, words, call):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words.split(", ")), error
    else:
        raise AssertionError(f"not refused: {words}")
"""

ARGUMENTS = PROGRAM + """
def function(v):
    return jnp.tanh(2 * v)

jitted = jax.jit(function, in_shardings=A, out_shardings=B)
plan = es.optimize(jitted.lower(TYPE), cost_model=WireBytes())
planned, want = plan.to_jax(), np.tanh(2 * X)
check(planned(array(X, A)), want)
check(planned(array(X, NamedSharding(mesh, P("x")))), want)
check(planned(jnp.asarray(X)), want)
check(jax.jit(planned)(array(X, A)), want)
renamed = jax.make_mesh((4, 2), ("i", "j"), axis_types=(AxisType.Auto,) * 2)
check(planned(array(X, NamedSharding(renamed, P("j", None, "i")))), want)
turned = Mesh(mesh.devices[::-1], ("x", "y"))
check(planned(array(X, NamedSharding(turned, P("y", None, "x")))), want)
refused(es.errors.LoweringError, "args[0] of function, ndarray, make_array_from_process_local_data", lambda: planned(X))
one = jax.device_put(X, jax.local_devices()[0])
refused(es.errors.LoweringError, "lies on 1 devices, make_array", lambda: planned(one))
everywhere = es.optimize(jax.jit(function, in_shardings=NamedSharding(mesh, P()), out_shardings=B).lower(TYPE))
check(everywhere.to_jax()(X), want)
verified = plan.verify()
assert sorted(verified.differences) == ["jax", "numpy"] and not verified.skipped, verified

# A plan for as many devices as each process has: its own.
line = Mesh(np.array(jax.local_devices()), "z")
small = es.optimize(jax.jit(jnp.tanh, in_shardings=NamedSharding(line, P("z"))).lower(TYPE), cost_model=WireBytes())
assert "jax" in small.verify().differences
y = small.to_jax()(jax.device_put(X, NamedSharding(line, P("z"))))
check(y, np.tanh(X))
report("done")
"""

JIT = PROGRAM + """
from eggshard import errors
import warnings

weights = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)

def loss(w, v):
    return jnp.sum(jnp.tanh(v @ w) ** 2)

first = es.jit(loss, cost_model=WireBytes())
w, v = array(weights, NamedSharding(mesh, P("x", None))), array(X, A)
want = float(loss(weights, X))
assert abs(float(first(w, v)) - want) < 1e-3 * abs(want)
gradient = es.jit(jax.grad(loss), cost_model=WireBytes())
expected = np.asarray(jax.grad(loss)(weights, X))
for shard in gradient(w, v).addressable_shards:
    np.testing.assert_allclose(np.asarray(shard.data), expected[shard.index], rtol=1e-3, atol=1e-3)
assert ME == 0 or first.plan(w, v).search.seconds, "the plan of process 0"
text = first.plan(w, v).to_json()

# What the first process cannot plan, the others do not wait for.
class Broken:
    def seconds(self, step):
        raise RuntimeError("broken on purpose")
words = "broken on purpose" if ME == 0 else "process 0, which plans for all, broken on purpose"
refused(es.errors.CostModelError, words, lambda: es.jit(loss, cost_model=Broken())(w, v))

# What none of them can.
from jax.experimental import io_callback
def ordered(v):
    io_callback(lambda a: None, None, v.sum(), ordered=True)
    return v + 1
one = NamedSharding(Mesh(np.array(jax.devices()), "d"), P("d"))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        es.jit(ordered, in_shardings=one, out_shardings=one)(array(X, one))
    except Exception as error:  # JAX's own, which has no ordered effects on several devices
        assert not isinstance(error, es.EggshardError), error
assert any(issubclass(w.category, es.EggshardWarning) for w in caught)
import hashlib
report("plan", hashlib.sha256(text.encode()).hexdigest())
"""

CHOICE = PROGRAM + """
def step(w, v):
    g = jax.grad(lambda w: jnp.sum(jnp.tanh(v @ w) ** 2))(w)
    return w - 0.1 * g

# By another model, which stands for a search that the clock ends elsewhere, the second process would choose otherwise.
model = WireBytes() if ME else "tpu-v5e"
options = {"mesh": mesh, "carry": {0: 0}, "rewrites": [], "limits": es.Limits(proof=0.0)}
weights = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
planned = es.jit(step, in_shardings=es.AUTO, cost_model=model, **options)
chosen = planned.chosen(weights, X)
w, v = (array(a, s) for a, s in zip((weights, X), chosen.arguments))
want = np.asarray(step(weights, X))
for shard in planned(w, v).addressable_shards:
    np.testing.assert_allclose(np.asarray(shard.data), want[shard.index], rtol=1e-3, atol=1e-3)
report([s.spec for s in (*chosen.arguments, *chosen.results)], chosen.choice.bound, chosen.choice.left_out)
"""

EFFECTS = PROGRAM + """
from jax.experimental import io_callback
seen = []

def function(v):
    jax.debug.callback(lambda s: seen.append(float(s)), jnp.sum(v))
    io_callback(lambda a: seen.append(a.shape), None, v)
    return jax.pure_callback(lambda a: np.asarray(a) * 2, jax.ShapeDtypeStruct(v.shape, v.dtype), v)

jitted = jax.jit(function, in_shardings=A, out_shardings=B)
check(es.optimize(jitted.lower(TYPE)).to_jax()(array(X, A)), 2 * X)
jax.effects_barrier()
report("effects", len(seen), X.shape in seen)
"""

PLANS = PROGRAM + """
import time

def function(v):
    return 2 * v

def lowered(function, i=A):
    return jax.jit(function, in_shardings=i, out_shardings=B).lower(TYPE)

if ME == 0:
    text = es.optimize(lowered(function), cost_model=WireBytes()).to_json()
else:
    text = ""
from jax._src import distributed
client = distributed.global_state.client
client.key_value_set("test/plan", text) if ME == 0 else None
text = client.blocking_key_value_get("test/plan", 60_000)

plan = es.Plan.from_json(text, program=lowered(function), mesh=mesh).agreed()
check(plan.to_jax()(array(X, A)), 2 * X)
assert plan.to_jax().__name__ == "function"

# Found by each on its own, the same one.
es.optimize(lowered(function), cost_model=WireBytes()).agreed()

# Different plans on different processes.
other = es.optimize(lowered(lambda v: v * (3 if ME else 2)), cost_model=WireBytes())
refused(es.errors.EngineError, "another plan than process 0, program", lambda: other.agreed())
refused(es.errors.EngineError, "another plan than process 0", lambda: other.to_jax()(array(X, A)))
# A mesh in another order on one of them.
order = mesh if ME else Mesh(mesh.devices[::-1], ("x", "y"))
refused(es.errors.EngineError, "devices", lambda: plan.to_jax()(array(X, NamedSharding(mesh, P("y", None, "x")))
        if ME else array(X, NamedSharding(order, P("y", None, "x")))))
# Only one of them asks.
began = time.monotonic()
if ME == 0:
    refused(es.errors.EngineError, "process 1, did not say within 1 s", lambda: plan.agreed(timeout=1))
    assert time.monotonic() - began < 30
client.wait_at_barrier("end", 60_000)
report("done")
"""


@pytest.mark.slow
def test_arguments() -> None:
    assert run_processes(ARGUMENTS) == ["done\n"] * 2


@pytest.mark.slow
def test_jit() -> None:
    first, second = run_processes(JIT)
    assert first == second and first.startswith("plan ")


@pytest.mark.slow
def test_shardings_are_chosen_once() -> None:
    first, second = run_processes(CHOICE)
    assert first == second and first.startswith("[P(")


@pytest.mark.slow
def test_effects() -> None:
    """They happen in the process of the first device, once."""
    first, second = run_processes(EFFECTS)
    assert first == "effects 2 True\n" and second == "effects 0 False\n"


def test_plans_made_elsewhere() -> None:
    assert run_processes(PLANS) == ["done\n"] * 2
