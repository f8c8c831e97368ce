"""Real JAX programs are read with their meaning, their shardings and their names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.shard_alike import shard_alike
from jax.sharding import AxisType, PartitionSpec as P
from tests.frontends.jax_programs import PROGRAMS, X, mesh, sharded
from tests.frontends.stablehlo.module_texts import HEADER, identity, on_mesh

import eggshard
from eggshard.errors import ProgramError, ShardingError
from eggshard.frontends import load
from eggshard.ops import registry
from eggshard.ops.evaluate import evaluate_program
from eggshard.ops.module_text import program_text
from eggshard.program.mesh import Mesh
from eggshard.program.program import Program, Region


def lower(function: Callable[..., Any], *arguments: Any, **options: Any) -> Program:
    """The program that JAX traces from a function."""
    return load(jax.jit(function, **options).lower(*arguments))


def close(got: np.ndarray, want: Any) -> None:
    want = np.asarray(want)
    assert got.shape == want.shape and got.dtype == want.dtype
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
    else:
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        tolerance = 2e-2 if want.dtype.itemsize < 4 else 3e-5
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance)


def check_types(region: Region) -> None:
    """The registry's shape rules agree with the types that the module states."""
    for op in region.ops:
        types = tuple(region.types[v] for v in op.operands)
        assert registry.get(op.name).infer(op.attributes, types, op.regions) == tuple(
            region.types[v] for v in op.results
        ), op
        for inner in op.regions:
            check_types(inner)


@pytest.mark.parametrize("name", PROGRAMS)
def test_meaning_and_round_trip(name: str) -> None:
    function, arguments = PROGRAMS[name]
    lowered = jax.jit(function).lower(*arguments)
    program = load(lowered)
    check_types(program.region)
    inputs = [np.asarray(a) for a in jax.tree.leaves(arguments)]
    outputs = evaluate_program(program, inputs)
    for got, want in zip(outputs, jax.tree.leaves(jax.jit(function)(*arguments)), strict=True):
        close(got, want)

    again = load(program_text(program))
    assert (again.mesh, again.input_shardings, again.output_shardings) == (
        program.mesh, program.input_shardings, program.output_shardings
    )  # fmt: skip
    assert (again.input_names, again.output_names) == (program.input_names, program.output_names)
    assert unplaced(again.region) == unplaced(program.region)

    from_text = load(lowered.as_text())
    assert unplaced(from_text.region) == unplaced(program.region)
    generic = lowered.compiler_ir("stablehlo").operation.get_asm(print_generic_op_form=True)
    assert unplaced(load(generic).region) == unplaced(program.region)


def unplaced(region: Region) -> Any:
    """A region without locations."""
    ops = tuple((o.name, o.operands, o.results, o.attributes, tuple(map(unplaced, o.regions)), o.shardings)
                for o in region.ops)  # fmt: skip
    return region.inputs, ops, region.outputs, region.types


@pytest.mark.filterwarnings("ignore:Some donated buffers")
def test_shardings_and_names() -> None:
    def f(x: Any, w: Any) -> Any:
        y = lax.with_sharding_constraint(x @ w["first"], sharded(P.UNCONSTRAINED, "y"))
        return {"out": y * 2}

    program = lower(f, X, {"first": jnp.ones((16, 8))}, in_shardings=(sharded("x"), None),
                    out_shardings=sharded("x", "y"), donate_argnums=0)  # fmt: skip
    assert program.mesh == Mesh({"x": 4, "y": 2})
    assert list(map(str, program.input_shardings)) == ['[{"x"}, {}]', "None"]
    assert list(map(str, program.output_shardings)) == ['[{"x"}, {"y"}]']
    assert program.input_names == ("x", "w['first']") and program.output_names == ("result['out']",)
    (constraint,) = (op for op in program.region.ops if op.name == "sharding_constraint")
    assert str(constraint.attributes["sharding"]) == '[{?}, {"y"}]'
    assert program.region.ops[0].location.startswith("jit(f)/dot_general at test_reading.py:")


def test_unreduced_constraints() -> None:
    explicit = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(explicit):
        def f(x: Any, w: Any) -> Any:
            partial_sums = jnp.einsum("ij,jk->ik", x, w, out_sharding=P("x", None, unreduced={"y"}))
            return jax.sharding.reshard(partial_sums, P("x", None))

        x, w = jnp.ones((8, 16), out_sharding=P("x", "y")), jnp.ones((16, 4), out_sharding=P("y", None))
        program = load(jax.jit(f).lower(x, w))
    found = [str(op.attributes["sharding"]) for op in program.region.ops if op.name == "sharding_constraint"]
    assert found == ['[{"x"}, {}], unreduced={"y"}', '[{"x"}, {}]']


def only(program: Program, name: str) -> Any:
    (op,) = (op for op in program.region.ops if op.name == name)
    return op


def test_trip_counts() -> None:
    assert only(load(jax.jit(PROGRAMS["scan"][0]).lower(*PROGRAMS["scan"][1])), "while").attributes["trip_count"] == 3
    conditional = load(jax.jit(PROGRAMS["while"][0]).lower(*PROGRAMS["while"][1]))
    assert only(conditional, "while").attributes["trip_count"] is None
    for start, limit, step in ((0, 10, 3), (2, 10, 4), (5, 5, 1), (9, 3, 1)):
        loop = lower(lambda x, a=start, b=limit, s=step: lax.while_loop(
            lambda c: c[0] < b, lambda c: (c[0] + s, c[1] * 2), (a, x)), X)  # fmt: skip
        trips = [op.attributes["trip_count"] for op in loop.region.ops if op.name == "while"]
        assert trips == ([len(range(start, limit, step))] if start < limit else [])


def test_captured_values_become_operands() -> None:
    program = load(jax.jit(PROGRAMS["while"][0]).lower(*PROGRAMS["while"][1]))
    loop = only(program, "while")
    condition, body = loop.regions
    assert len(loop.operands) == len(condition.inputs) == len(body.inputs) == len(body.outputs)
    text = """
      func.func @main(%x: tensor<4xf32>, %p: tensor<i1>) -> tensor<4xf32> {
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %ten = stablehlo.constant dense<10> : tensor<i32>
        %one = stablehlo.constant dense<1> : tensor<i32>
        %0:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<4xf32>
          cond { %c = stablehlo.compare LT, %i, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
                 stablehlo.return %c : tensor<i1> }
          do { %j = stablehlo.add %i, %one : tensor<i32>
               %z = stablehlo.add %y, %x : tensor<4xf32>
               stablehlo.return %j, %z : tensor<i32>, tensor<4xf32> }
        %r = "stablehlo.if"(%p) ({ stablehlo.return %0#1 : tensor<4xf32> }, { stablehlo.return %x : tensor<4xf32> })
             : (tensor<i1>) -> tensor<4xf32>
        return %r : tensor<4xf32> }"""
    program = load(text)
    assert only(program, "while").attributes["trip_count"] == 10
    x = np.arange(4, dtype=np.float32)
    for flag, times in ((True, 11), (False, 1)):
        (got,) = evaluate_program(program, [x, np.array(flag)])
        np.testing.assert_array_equal(got, x * times)
        (again,) = evaluate_program(load(program_text(program)), [x, np.array(flag)])
        np.testing.assert_array_equal(again, got)


def test_manual_computation_with_collectives() -> None:
    function = jax.shard_map(lambda v: lax.psum(v, "x"), mesh=mesh(), in_specs=P("x", "y"), out_specs=P(None, "y"))
    program = load(jax.jit(function).lower(X))
    op = only(program, "manual_computation")
    assert op.attributes["manual_axes"] == ("x", "y")
    assert [str(s) for s in op.attributes["out_shardings"]] == ['[{}, {"y"}]']
    assert op.regions[0].types[0].shape == (2, 8)
    assert only(load(program_text(program)), "manual_computation").attributes == op.attributes


def test_effects_are_kept() -> None:
    def f(x: Any) -> Any:
        jax.debug.callback(lambda v: None, x[0, 0])
        return x + 1

    program = load(jax.jit(f).lower(X))
    assert any(op.name == "custom_call_effectful" for op in program.region.ops)


def test_sharding_groups_and_what_they_speak_of_are_read() -> None:
    def f(x: Any) -> Any:
        a = lax.with_sharding_constraint(x * 2, sharded("x", None))
        _, b = shard_alike(a, jnp.tanh(x))
        return b + 1

    program = load(jax.jit(f).lower(X))
    groups = [op for op in program.region.ops if op.name == "sharding_group"]
    assert [op.operands for op in groups] == [only(program, n).results for n in ("sharding_constraint", "tanh")]
    again = load(program_text(program))
    assert [(op.name, op.operands) for op in again.region.ops] == [(op.name, op.operands) for op in program.region.ops]


@pytest.mark.parametrize(
    ("error", "message", "text"),
    [
        (ProgramError, "malformed MLIR: expected ':'.*line 2: return %b",
         "func.func @main(%a: tensor<f32>) -> tensor<f32> {\nreturn %b\n}"),
        (ProgramError, "dynamic shape; eggshard needs static", identity(type_="tensor<?x8xf32>", header="")),
        (ProgramError, "no function @main and 0 public", "func.func private @f(%a: tensor<f32>)"),
        (ProgramError, "two different meshes", identity(header=HEADER + 'sdy.mesh @n = <["z"=8]>\n')),
        (ShardingError, "unknown mesh: @nowhere", identity("sdy.sharding = #sdy.sharding<@nowhere, [{}, {}]>")),
        (ShardingError, 'arg 0 - unknown axis name: "z".*line 2: func.func @main', on_mesh('[{"z"}, {}]')),
        (ShardingError, 'duplicate axis ref: "x"', on_mesh('[{"x"}, {"x"}]')),
        (ShardingError, "doesn't match tensor rank: 1 != 2", on_mesh('[{"x"}]')),
        (ShardingError, "both sub-axis and full-axis", on_mesh('[{"x":(1)2}, {"x"}]')),
        (ShardingError, "doesn't divide the size of the full axis 4", on_mesh('[{"x":(1)3}, {}]')),
        (ProgramError, "over 4 devices", identity('mhlo.sharding = "{devices=[4,1]<=[4]}"')),
        (ProgramError, "of a tensor of 2 dim", identity('mhlo.sharding = "{devices=[2,2,2]<=[8]}"')),
        (ProgramError, "lower the program with Shardy", identity('mhlo.sharding = "{manual}"')),
        (ProgramError, "is not supported",
         identity('mhlo.sharding = "{devices=[4,1,2]<=[8] last_tile_dims={unreduced}}"')),
    ],
)
def test_errors_name_the_place_and_the_remedy(error: type[Exception], message: str, text: str) -> None:
    with pytest.raises(error, match="(?s)" + message):
        load(text)


def test_dynamic_shapes_name_the_op() -> None:
    text = """func.func @main(%a: tensor<4xf32>, %n: tensor<1xi32>) -> tensor<4xf32> {
      %0 = stablehlo.dynamic_reshape %a, %n : (tensor<4xf32>, tensor<1xi32>) -> tensor<?xf32>
      return %a : tensor<4xf32> }"""
    with pytest.raises(ProgramError, match=r"stablehlo.dynamic_reshape.*tensor<\?xf32>, a dynamic shape"):
        load(text)


def test_a_program_has_the_name_of_the_function_that_it_was_traced_from() -> None:
    def step(x: Any) -> Any:
        return x + 1

    lowered = jax.jit(step).lower(jnp.ones(4))
    plan = eggshard.optimize(lowered)
    assert load(lowered).name == load(lowered.as_text()).name == "step"
    assert str(plan).startswith("plan of step on {} for cpu-host ") and load(plan.to_stablehlo()).name == "step"
    function = "func.func @main(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }"
    assert load(function).name == load(f"module {{ {function} }}").name == "main"
    assert load(f"module @jit_ {{ {function} }}").name == "main"
    assert load(f"module @heat {{ {function} }}").name == "heat"
    assert load(f"module @heat {{ {function.replace('main', 'other')} }}").name == "other"


def test_the_only_public_function_is_read(tmp_path: Path) -> None:
    text = "func.func @step(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }"
    path = tmp_path / "step.mlir"
    path.write_text(text)
    assert load(text).name == load(path).name == load(str(path)).name == load(text.encode()).name == "step"
    with pytest.raises(ProgramError, match="cannot read"):
        load(str(tmp_path / "missing.mlir"))


def test_unknown_ops_are_kept_word_for_word() -> None:
    text = """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "stablehlo.reduce_precision"(%a) {exponent_bits = 5 : i32, mantissa_bits = 10 : i32} : (tensor<4xf32>) -> tensor<4xf32>
      %1 = "mhlo.map"(%0) ({ ^bb0(%x: tensor<f32>): "mhlo.return"(%x) : (tensor<f32>) -> () })
           {dimensions = dense<0> : tensor<1xi64>} : (tensor<4xf32>) -> tensor<4xf32>
      return %1 : tensor<4xf32> }"""  # noqa: E501
    program = load(text)
    assert any(op.name.startswith("opaque") for op in program.region.ops)
    again = load(program_text(program))
    assert [op.name for op in again.region.ops] == [op.name for op in program.region.ops]


def test_shardy_s_own_ops() -> None:
    text = HEADER + """func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<8x8xf32> {
      %0 = sdy.all_gather [{"x"}, {}] %a out_sharding=<@mesh, [{}, {}]> : tensor<8x8xf32>
      %1 = sdy.named_computation<"block">(%0) (%b: tensor<8x8xf32>) {
        %c = stablehlo.tanh %b : tensor<8x8xf32>
        sdy.return %c : tensor<8x8xf32>
      } : (tensor<8x8xf32>) -> tensor<8x8xf32>
      %2 = sdy.propagation_barrier %1 allowed_direction=BACKWARD : tensor<8x8xf32>
      %b2 = stablehlo.abs %2 : tensor<8x8xf32>
      %3 = sdy.data_flow_edge %b2 sharding=<@mesh, [{"x"}, {?}]> : tensor<8x8xf32>
      %4 = sdy.reshard %3 <@mesh, [{}, {"y"}]> : tensor<8x8xf32>
      return %4 : tensor<8x8xf32> }"""  # noqa: E501
    ops = load(text).region.ops
    assert [op.name for op in ops] == ["sharding_constraint", "tanh", "abs", "sharding_constraint"]
    assert [str(op.attributes["sharding"]) for op in ops[::3]] == ["[{}, {}]", '[{}, {"y"}]']


def test_composites_and_calls_are_read_in_place() -> None:
    @partial(lax.composite, name="own.norm")
    def norm(x: Any) -> Any:
        return x / jnp.sqrt((x * x).sum())

    program = load(jax.jit(lambda x: norm(jax.jit(jnp.sin)(x)) + norm(x)).lower(X))
    names = [op.name for op in program.region.ops]
    assert names.count("sqrt") == 2 and "sine" in names and not {"call", "composite"} & set(names)


def test_portable_artifacts() -> None:
    from jaxlib.mlir.dialects import stablehlo

    lowered = jax.jit(lambda x: jnp.tanh(x) @ x.T).lower(X)
    module, want = lowered.compiler_ir("stablehlo"), load(lowered)
    with module.context:
        data = stablehlo.serialize_portable_artifact(module, stablehlo.get_minimum_version(), True)
    assert [op.name for op in load(data).region.ops] == [op.name for op in want.region.ops]


def test_partly_manual_computations() -> None:
    function = jax.shard_map(lambda v: v * lax.axis_index("y"), mesh=mesh(), in_specs=P(None, "y"),
                             out_specs=P(None, "y"), axis_names={"y"})  # fmt: skip
    op = only(load(jax.jit(function).lower(X)), "manual_computation")
    assert op.attributes["manual_axes"] == ("y",) and str(op.attributes["in_shardings"][0]) == '[{?}, {"y", ?}]'
    assert op.regions[0].types[0].shape == (8, 8)


def test_functions_of_many_blocks_are_refused() -> None:
    with pytest.raises(ProgramError, match="@main branches between blocks"):
        load("""func.func @main(%a: tensor<f32>) -> tensor<f32> {
          cf.br ^end(%a : tensor<f32>)
        ^end(%b: tensor<f32>):
          return %b : tensor<f32> }""")


def test_splats_take_no_memory() -> None:
    program = load("""func.func @main() -> tensor<4096x4096xbf16> {
      %0 = stablehlo.constant dense<1.5> : tensor<4096x4096xbf16>
      return %0 : tensor<4096x4096xbf16> }""")
    literal = program.region.ops[0].attributes["value"]
    assert literal.splat and literal.array.strides == (0, 0)


def test_complex_constants_with_other_attributes():
    text = """func.func @main() -> tensor<2xcomplex<f32>> {
      %0 = stablehlo.constant {mhlo.frontend_attributes = {a = "}> : ()"}} dense<(1.0, -2.0)> : tensor<2xcomplex<f32>>
      return %0 : tensor<2xcomplex<f32>>
    }"""
    (op,) = load(text).region.ops
    assert op.attributes["value"].array.tolist() == [1 - 2j, 1 - 2j]