"""Plans that tests of reports share: small ones that are planned, and a long one that is put together."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, cast

import eggshard
from eggshard.api import Plan
from eggshard.costmodel import WireBytes
from eggshard.frontends.builder import ProgramBuilder
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.placement import place
from eggshard.program.program import Program
from eggshard.program.types import TensorType
from eggshard.report.propagation import Propagation
from eggshard.steps.held import Held
from eggshard.steps.steps import Local, Step, StepPlan

#: Two products and what is between them: the plan keeps partial sums for the end, and has an all-reduce there.
MLP = """
sdy.mesh @mesh = <["x"=4, "y"=2]>
func.func @mlp(%a: tensor<512x1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
               %b: tensor<1024x4096xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>},
               %c: tensor<4096x1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
    -> (tensor<512x1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<512x1024xf32>, tensor<1024x4096xf32>) -> tensor<512x4096xf32>
  %1 = stablehlo.tanh %0 : tensor<512x4096xf32>
  %2 = stablehlo.dot_general %1, %c, contracting_dims = [1] x [0]
      : (tensor<512x4096xf32>, tensor<4096x1024xf32>) -> tensor<512x1024xf32>
  return %2 : tensor<512x1024xf32>
}
"""

#: A chain of products that the algebra reorders: rules are in the plan's reasons.
CHAIN = """
sdy.mesh @mesh = <["x"=4, "y"=2]>
func.func @chain(%a: tensor<256x4096xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>},
                 %b: tensor<4096x4096xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>},
                 %c: tensor<4096x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
    -> (tensor<256x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<256x4096xf32>, tensor<4096x4096xf32>) -> tensor<256x4096xf32>
  %1 = stablehlo.dot_general %0, %c, contracting_dims = [1] x [0]
      : (tensor<256x4096xf32>, tensor<4096x64xf32>) -> tensor<256x64xf32>
  return %1 : tensor<256x64xf32>
}
"""


@cache
def propagation() -> Propagation:
    """A network of which a weight is sharded along the axis of the batch, and the result not as a constraint is."""
    import jax
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def sharded(*axes: str | None) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*axes))

    def network(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
        hidden = jax.nn.relu(x @ w)
        hidden = jax.lax.with_sharding_constraint(hidden, sharded("data", "model"))
        return hidden @ v

    shapes = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((512, 256), (256, 1024), (1024, 256))]
    placed = jax.jit(network, in_shardings=(sharded("data"), sharded(None, "data"), sharded("model")),
                     out_shardings=sharded(None, "data"))
    return cast(Propagation, eggshard.explain_propagation(placed.lower(*shapes)))


@cache
def mlp() -> Plan:
    return eggshard.optimize(MLP, cost_model="alpha-beta")


@cache
def chain() -> Plan:
    return eggshard.optimize(CHAIN, cost_model="alpha-beta")


@cache
def baseline() -> Plan:
    """What users get where the search came to nothing."""
    plan = mlp().baseline
    return replace(plan, search=replace(plan.search, fallback="the search found nothing cheaper than the baseline"))


@cache
def alone() -> Plan:
    """A plan without collectives."""
    builder = ProgramBuilder({"x": 4})
    value = builder.input((64, 64), "f32", ("x", None))
    builder.output(builder.tanh(value + value), ("x", None))
    return eggshard.optimize(builder.build(), cost_model="alpha-beta")


@cache
def scopes() -> Plan:
    """Two layers in scopes of their own, each with a chain of element-wise ops."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:4])

    def given(*axes: str | None) -> Any:
        return jax.ShapeDtypeStruct((256, 256), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*axes)))

    def apply(x: Any, *weights: Any) -> Any:
        for n, w in enumerate(weights):
            with jax.named_scope(f"layer{n}"):
                x = jax.nn.gelu(x @ w) * 0.5 + x
        return x

    out = NamedSharding(mesh, PartitionSpec("x", None))
    lowered = jax.jit(apply, out_shardings=out).lower(given("x", None), given(None, "x"), given("x", None))
    return eggshard.optimize(lowered, cost_model="alpha-beta")


@cache
def loops() -> Plan:
    return eggshard.optimize(scan(), cost_model="tpu-v5e")


def scan() -> Any:
    """A scan over stacked weights, with a product that is the same in every iteration, and a loop with branches."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    devices = jax.devices()[:8]
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2, devices=devices)

    def given(shape: tuple[int, ...], *axes: str | None) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*axes)))

    def apply(a: Any, weights: Any, b: Any) -> Any:
        def layer(c: Any, w: Any) -> Any:
            return jnp.tanh(c @ w) @ w.T + b @ b.T, None

        a, _ = jax.lax.scan(layer, a, weights)

        def turn(i: Any, c: Any) -> Any:
            return jax.lax.cond(i % 2 == 0, lambda c: jnp.tanh(c @ weights[0] @ weights[1].T), lambda c: c * 2, c)

        return jax.lax.fori_loop(0, 6, turn, a)

    out = NamedSharding(mesh, PartitionSpec("x", None))
    return jax.jit(apply, out_shardings=out).lower(
        given((512, 512), "x", None), given((6, 512, 2048), None, None, "y"), given((512, 512), "y", None))


def long_plan(steps: int = 8000) -> Plan:
    """One op after the other, as many as asked."""
    mesh, type_ = Mesh({"x": 4}), TensorType((64, 64), "f32")
    builder = RegionBuilder([type_])
    value = 0
    for i in range(steps):
        (value,) = builder.add("tanh" if i % 3 else "sine", (value,))
    program = Program(mesh, builder.build([value]), (None,), (None,), "long")
    placement = place(mesh, type_.shape, (("x",), ()))
    local = placement.local_type(type_)
    made = tuple(
        Step(Local("tanh" if i % 3 else "sine", Attributes(), (local,)), (i,), (i + 1,)) for i in range(steps))
    held = tuple(Held(-1, i, type_, placement) for i in range(steps + 1))
    device_program = StepPlan(mesh, (0,), made, (steps,), (local,) * (steps + 1), held)
    return Plan(program, device_program, (placement,), (placement,), WireBytes())
