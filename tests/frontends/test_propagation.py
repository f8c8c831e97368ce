"""Propagated shardings are Shardy's own, on the program's values."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from eggshard.errors import EggshardWarning, ProgramError
from eggshard.frontends import load
from eggshard.frontends.builder import ProgramBuilder
from eggshard.frontends.propagation import propagate, propagate_program, propagated, propagated_shardings
from eggshard.ops.module_text import program_text, walk
from eggshard.program.mesh import Mesh
from eggshard.program.placement import is_even, replicated
from eggshard.program.sharding import Sharding

_spec = importlib.util.spec_from_file_location("jax_programs", Path(__file__).parent / "jax_programs.py")
assert _spec and _spec.loader
jax_programs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(jax_programs)
PROGRAMS, X, LAYER, sharded = (getattr(jax_programs, n) for n in ("PROGRAMS", "X", "LAYER", "sharded"))


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
    found = propagated_shardings(program)
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
    found = propagated_shardings(program)
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
        return jax.shard_map(
            lambda v: lax.psum(v, "y"), mesh=jax_programs.mesh(), in_specs=P("x", "y"), out_specs=P("x", None)
        )(y)

    program = load(jax.jit(f, in_shardings=(sharded("x"), None)).lower(X, jnp.ones((3, 16, 16))))
    found = propagate_program(program)
    by_name = {op.name: op for op in walk(found.region)}
    assert str(by_name["dot_general"].shardings[0]).startswith('[{"x"}')
    assert '[{"x"}, {' in str(by_name["while"].shardings[1]) + str(by_name["while"].shardings[2])
    assert str(by_name["manual_computation"].shardings[0]) == '[{"x"}, {}]'
    assert shown(list(found.output_shardings)) == ['[{"x"}, {}]']
    # A fully propagated program reads back as itself.
    again = load(program_text(found))
    assert again.input_shardings == found.input_shardings
    assert [op.shardings for op in again.region.ops] == [op.shardings for op in found.region.ops]


def test_sub_axes_from_reshapes() -> None:
    b = ProgramBuilder({"x": 4})
    x = b.input((8, 6), "f32", ("x", None))
    b.output(b.reshape(x, (2, 4, 6)))
    program = b.build()
    assert shown(propagated_shardings(program)) == ['[{"x"}, {}]', "[{}, {}, {}]"]
    found = propagate_program(program)
    assert found.mesh == Mesh({"x:(1)2": 2, "x:(2)2": 2})
    assert shown(list(found.region.ops[0].shardings)) == ['[{"x":(1)2}, {"x":(2)2}, {}]']


def test_text() -> None:
    text = jax.jit(lambda x: x * 2, in_shardings=sharded("x", "y")).lower(X).as_text()
    assert '#sdy.sharding_per_value<[<@mesh, [{"x"}, {"y"}]>]>' in propagate(text).replace(", ?", "")
    with pytest.raises(ProgramError, match="refuses the module"):
        propagate("module {")


def test_programs_without_anything_to_propagate() -> None:
    b = ProgramBuilder()
    b.output(b.tanh(b.input((4,))))
    program = b.build()
    assert propagated_shardings(program) == [None, None] and propagate_program(program) == program


def test_a_failure_leaves_the_stated_shardings() -> None:
    b = ProgramBuilder({"x": 4})
    x = b.input((8,), "f32", ("x",))
    b.output(b.constrain(b.tanh(x), "[{?}]"))
    program = b.build()
    with pytest.warns(EggshardWarning, match="propagation failed"):
        found = propagated_shardings(program, seconds=0.0)
    assert shown(found) == ['[{"x"}]', "None", "[{}]"]
