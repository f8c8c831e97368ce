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
from eggshard.frontends.jaxlib_passes import after_passes
from eggshard.frontends.propagation import PIPELINE, propagated
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
        return jax.shard_map(
            lambda v: lax.psum(v, "y"), mesh=jax_programs.mesh(), in_specs=P("x", "y"), out_specs=P("x", None)
        )(y)

    program = load(jax.jit(f, in_shardings=(sharded("x"), None)).lower(X, jnp.ones((3, 16, 16))))
    found = propagated(program)
    ops = program.region.ops
    where = {op.name: i for i, op in enumerate(ops)}
    (loop, manual), body = (where[name] for name in ("while", "manual_computation")), found.regions[where["while"]][1]
    (product,) = (op for op in ops[loop].regions[1].ops if op.name == "dot_general")
    assert str(body.values[product.results[0]]).startswith('[{"x"}')
    assert any(str(found.values[v]).startswith('[{"x"}, {') for v in ops[loop].results)
    assert shown([found.values[v] for v in ops[manual].results]) == ['[{"x"}, {}]']
    assert shown([found.values[v] for v in program.region.outputs]) == ['[{"x"}, {}]']


def test_sub_axes_from_reshapes() -> None:
    b = ProgramBuilder({"x": 4})
    x = b.input((8, 6), "f32", ("x", None))
    b.output(b.reshape(x, (2, 4, 6)))
    program = b.build()
    assert shown(propagated(program).values) == ['[{"x"}, {}]', "[{}, {}, {}]"]


def test_malformed_text_is_refused() -> None:
    with pytest.raises(ProgramError, match="refuses the module"):
        after_passes("module {", PIPELINE, str)


def test_programs_without_anything_to_propagate() -> None:
    b = ProgramBuilder()
    b.output(b.tanh(b.input((4,))))
    program = b.build()
    assert propagated(program).values == [None, None]


def test_a_failure_leaves_the_stated_shardings() -> None:
    b = ProgramBuilder({"x": 4})
    x = b.input((8,), "f32", ("x",))
    b.output(b.constrain(b.tanh(x), "[{?}]"))
    program = b.build()
    with pytest.warns(EggshardWarning, match="propagation failed"):
        found = propagated(program, seconds=0.0).values
    assert shown(found) == ['[{"x"}]', "None", "[{}]"]
