"""Propagated shardings are Shardy's own, on the program's values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from tests.frontends.jax_programs import PROGRAMS, X, mesh, sharded

from eggshard.errors import EggshardWarning
from eggshard.frontends import load
from eggshard.frontends.builder import ProgramBuilder
from eggshard.planner.propagation.propagated import propagated
from eggshard.program.mesh import Mesh
from eggshard.program.placement import is_even, replicated
from eggshard.program.sharding import Sharding


def shown(shardings: list[Sharding | None]) -> list[str]:
    return [str(s) for s in shardings]


def test_values_of_a_built_program() -> None:
    b = ProgramBuilder({"x": 4, "y": 2})
    x = b.input((8, 16), "f32", ("x", None))
    w = b.input((16, 4), "f32", (None, "y"))
    free = b.input((8, 4))
    h = b.tanh(x @ w)
    b.output(b.sum(h * free, 1))
    program = b.build()
    found = propagated(program).values
    assert shown(found) == ['[{"x"}, {}]', '[{}, {"y"}]', *['[{"x"}, {"y"}]'] * 4, '[{"x"}]']
    assert len(found) == len(program.region.types)


def test_values_inside_loops_and_manual_computations() -> None:
    program = load("""sdy.mesh @mesh = <["x"=4, "y"=2]>
      func.func @main(%a: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y", "x"}, {}]>})
          -> tensor<16x8xf32> {
        %m = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"y", ?}, {?}]>]
          out_shardings=[<@mesh, [{"y", ?}, {?}]>] manual_axes={"y"} (%b: tensor<8x8xf32>) {
          %w = stablehlo.while(%c = %b) : tensor<8x8xf32>
            cond {
              %t = stablehlo.constant dense<true> : tensor<i1>
              stablehlo.return %t : tensor<i1>
            } do {
              %s = stablehlo.sine %c : tensor<8x8xf32>
              stablehlo.return %s : tensor<8x8xf32>
            }
          sdy.return %w : tensor<8x8xf32>
        } : (tensor<16x8xf32>) -> tensor<16x8xf32>
        return %m : tensor<16x8xf32>
      }""")
    found = propagated(program)
    outside, inside = '[{"y", "x"}, {}]', '[{"x"}, {}]'
    assert shown(found.values) == [outside] * 2
    assert [shown(end) for end in found.interfaces[0]] == [[outside]] * 2
    (body,) = found.regions[0]
    assert shown(body.values) == [inside] * 2
    condition, step = body.regions[0]
    assert shown(condition.values) == [inside, "None"] and shown(step.values) == [inside] * 2


@pytest.mark.parametrize("name", ["mlp", "attention", "layer_gradient", "embedding", "convolution", "moves"])
def test_outputs_are_where_xla_puts_them(name: str) -> None:
    function, arguments = PROGRAMS[name]
    shardings = jax.tree.map(lambda a: sharded("x") if a.ndim and a.shape[0] % 4 == 0 else sharded(), arguments)
    lowered = jax.jit(function, in_shardings=shardings).lower(*arguments)
    program = load(lowered)
    found = propagated(program).values
    compiled = jax.tree.leaves(lowered.compile().output_shardings)
    for v, jax_sharding in zip(program.region.outputs, compiled, strict=True):
        type_ = program.region.types[v]
        mesh = Mesh({"x": 4, "y": 2})
        want = Sharding.of(jax_sharding, type_.rank, mesh).to_placement(mesh, type_)
        own = replicated(type_.shape) if found[v] is None else found[v].to_placement(program.mesh, type_)
        # XLA's outputs lie evenly: it drops axes that do not divide.
        assert own == want or not is_even(type_.shape, own, mesh)


def test_loops_branches_and_manual_computations() -> None:
    def f(x: Any, ws: Any) -> Any:
        y, _ = lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, ws)
        y = lax.cond(y[0, 0] > 0, lambda v: v * 2, lambda v: v + 1, y)
        return jax.shard_map(lambda v: lax.psum(v, "y"), mesh=mesh(), in_specs=P("x", "y"), out_specs=P("x", None))(y)

    program = load(jax.jit(f, in_shardings=(sharded("x"), None)).lower(X, jnp.ones((3, 16, 16))))
    found = propagated(program)
    ops = program.region.ops
    (loop,) = (i for i, op in enumerate(ops) if op.name == "while")
    (manual,) = (i for i, op in enumerate(ops) if op.name == "manual_computation")
    (branch,) = (i for i, op in enumerate(ops) if op.name in ("case", "if"))
    state = next(v for v in ops[loop].results if program.region.types[v].shape == X.shape)
    assert str(found.values[state]).startswith('[{"x"}')
    body = found.regions[loop][1]
    for v, type_ in enumerate(ops[loop].regions[1].types):
        assert type_.shape != X.shape or str(body.values[v]).startswith('[{"x"}')
    assert all(str(part.values[0]).startswith('[{"x"}') for part in found.regions[branch])
    assert [shown(end) for end in found.interfaces[manual]] == [['[{"x"}, {"y"}]'], ['[{"x"}, {}]']]


def test_sub_axes_that_the_mesh_is_not_refined_for_are_dropped() -> None:
    b = ProgramBuilder({"x": 4})
    x = b.input((8, 6), "f32", ("x", None))
    b.output(b.reshape(x, (2, 4, 6)))
    assert shown(propagated(b.build()).values) == ['[{"x"}, {}]', "[{}, {}, {}]"]


def test_sub_axes_that_the_mesh_is_refined_for() -> None:
    b = ProgramBuilder({"x": 4})
    x = b.input((8, 6), "f32", ("x", None))
    y = b.input((8, 6), "f32", ("x:(1)2", None))
    b.output(b.reshape(x, (2, 4, 6)))
    b.output(y)
    assert shown(propagated(b.build()).values)[2] == '[{"x":(1)2}, {"x":(2)2}, {}]'


def test_programs_without_anything_to_propagate() -> None:
    b = ProgramBuilder()
    b.output(b.tanh(b.input((4,))))
    assert propagated(b.build()).values == [None, None]


def test_a_failure_leaves_the_stated_shardings() -> None:
    program = load("""sdy.mesh @mesh = <["x"=4]>
      func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<4xf32> {
        %b = stablehlo.slice %a [0:4] : (tensor<8xf32>) -> tensor<4xf32>
        sdy.sharding_group %a group_id=0 : tensor<8xf32>
        sdy.sharding_group %b group_id=0 : tensor<4xf32>
        return %b : tensor<4xf32>
      }""")
    with pytest.warns(EggshardWarning, match="propagation failed"):
        assert shown(propagated(program).values) == ['[{"x"}]', "None"]


def test_constants_are_sharded_as_their_users_are() -> None:
    program = load("""sdy.mesh @mesh = <["x"=4, "y"=2]>
      func.func @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                      %b: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>}) -> tensor<8x4xf32> {
        %0 = stablehlo.constant dense<1.0> : tensor<8x4xf32>
        %1 = stablehlo.add %a, %0 : tensor<8x4xf32>
        %2 = stablehlo.constant dense<2.0> : tensor<8x4xf32>
        %3 = stablehlo.multiply %b, %2 : tensor<8x4xf32>
        %4 = stablehlo.tanh %1 : tensor<8x4xf32>
        return %4 : tensor<8x4xf32>
      }""")
    constants = [op.results[0] for op in program.region.ops if op.name in ("constant", "broadcast_in_dim")]
    found = propagated(program).values
    assert '[{"x"}, {}]' in [str(found[v]) for v in constants]


def test_groups_are_sharded_alike() -> None:
    program = load("""sdy.mesh @mesh = <["x"=4, "y"=2]>
      func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}, %b: tensor<8x8xf32>)
          -> tensor<8x8xf32> {
        %c = stablehlo.tanh %b : tensor<8x8xf32>
        sdy.sharding_group %a group_id=3 : tensor<8x8xf32>
        sdy.sharding_group %c group_id=3 : tensor<8x8xf32>
        return %c : tensor<8x8xf32>
      }""")
    assert set(shown(propagated(program).values)) == {'[{"x"}, {"y"}]'}


def test_groups_of_stated_shardings_that_differ_are_left_apart() -> None:
    program = load("""sdy.mesh @mesh = <["x"=4, "y"=2]>
      func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                      %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>}) -> tensor<8x8xf32> {
        sdy.sharding_group %a group_id=3 : tensor<8x8xf32>
        sdy.sharding_group %b group_id=3 : tensor<8x8xf32>
        %c = stablehlo.add %a, %b : tensor<8x8xf32>
        return %c : tensor<8x8xf32>
      }""")
    with pytest.warns(EggshardWarning, match="different shardings"):
        assert shown(propagated(program).values)[:2] == ['[{"x"}, {}]', '[{"y"}, {}]']
