"""Ops kept word for word."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.ops.laws import check_factors
from tests.ops.oracles import assert_close, function_text, parse, run_xla

from eggshard.errors import LoweringError, ProgramError
from eggshard.ops import registry
from eggshard.ops.calls.opaque import rule_of_text
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.attributes import Attributes
from eggshard.program.codec import decode_attributes
from eggshard.program.types import TensorType

F32 = TensorType((4,), "f32")


def emitted_calls(function: object, *arguments: object) -> list[tuple[Attributes, tuple[TensorType, ...]]]:
    """(attributes, operand types) of the custom calls in what JAX lowers a function to."""
    module = jax.jit(function).lower(*arguments).compiler_ir()  # type: ignore[arg-type]
    definition, out = registry.get("custom_call"), []

    def visit(op: object) -> object:
        if op.name == "stablehlo.custom_call":  # type: ignore[attr-defined]
            texts = {key: str(op.attributes[key]) for key in op.attributes}  # type: ignore[attr-defined]
            operands, results = (
                tuple(TensorType(tuple(v.type.shape), str(v.type.element_type)) for v in values)
                for values in (op.operands, op.results)  # type: ignore[attr-defined]
            )
            attrs = definition.from_mlir(decode_attributes(definition.attributes, texts), operands, results)
            out.append((Attributes(attrs), operands))
        return ir.WalkResult.ADVANCE

    from jaxlib.mlir import ir

    with module.context:
        module.operation.walk(visit)
    return out


def positive(*batch: int) -> np.ndarray:
    a = np.random.default_rng(0).normal(size=(*batch, 4, 4)).astype(np.float32)
    return np.asarray(a @ np.swapaxes(a, -1, -2) + 4 * np.eye(4, dtype=np.float32))


@pytest.mark.parametrize("batch", [(), (3,)])
def test_lapack_calls_mean_and_print_what_jax_emits(batch: tuple[int, ...]) -> None:
    a, b = positive(*batch), np.random.default_rng(1).normal(size=(*batch, 4, 3)).astype(np.float32)
    definition = registry.get("custom_call")
    solve = lambda x, y: jax.lax.linalg.triangular_solve(x, y, left_side=True, lower=True, transpose_a=True)  # noqa: E731
    for function, arrays in ((jnp.linalg.cholesky, [a]), (solve, [a, b])):
        ((attrs, operands),) = emitted_calls(function, *arrays)
        assert attrs["call_target_name"].startswith("lapack_")
        builder = RegionBuilder(operands)
        region = builder.build(builder.add("custom_call", range(len(operands)), attrs))
        got, want = definition.evaluate(attrs, arrays), run_xla(function_text(region), arrays)
        for mine, theirs in zip(got, want, strict=True):
            assert_close(mine, theirs, attrs["call_target_name"])
        # The batch dimension is independent by the call's own rule.
        assert check_factors("custom_call", (attrs, list(arrays), ())) == len(batch)


def test_a_sharding_rule_passes_only_what_every_result_has() -> None:
    text = ("#sdy.op_sharding_rule<([i, j], [i, k])->([i, jk], [i]) {i=2, j=4, k=3} permutation={k}, custom>")
    operands, results = (TensorType((2, 4), "f32"), TensorType((2, 3), "f32")), (TensorType((2, 12), "f32"),) * 1
    rule = rule_of_text(text, operands, (*results, TensorType((2,), "f32")))
    assert [f.kind for f in rule.factors] == ["pass", "replicate", "replicate"]
    assert rule.operands == (((0,), (1,)), ((0,), (2,))) and rule.results == (((0,), (1, 2)), ((0,),))
    blocked = rule_of_text(text.replace("permutation={k}", "need_replication={i} blocked_propagation={i, j}"), operands,
                           (*results, TensorType((2,), "f32")))
    assert [f.kind for f in blocked.factors] == ["replicate", "replicate", "replicate"]
    blocked = rule_of_text(text.replace("permutation={k}", "blocked_propagation={i, j}"), operands,
                           (*results, TensorType((2,), "f32")))
    assert [f.kind for f in blocked.factors] == ["pass", "replicate", "replicate"]
    with pytest.raises(ProgramError, match="malformed sharding rule"):
        rule_of_text("dense<1>", operands, results)


def test_effects_and_the_partitioning_callback_are_never_sharded() -> None:
    text = "#sdy.op_sharding_rule<([i])->([i]) {i=4}, custom>"
    for name, target, kind in (("custom_call", "f", "pass"), ("custom_call_effectful", "f", "replicate"),
                               ("custom_call", "CustomSPMDPartitioning", "replicate")):
        attrs = Attributes({"call_target_name": target, "result_types": (F32,), "sdy.sharding_rule": text})
        rule = registry.get(name).factors(attrs, (F32,), (F32,))
        assert {f.kind for f in rule.factors} == {kind}
    assert registry.get("custom_call").pure and not registry.get("custom_call_effectful").pure
    assert registry.get("opaque").pure and not registry.get("opaque_effectful").pure


def test_unknown_ops_print_as_read_with_new_names() -> None:
    text = '({\n^bb0(%arg0: tensor<f32>, %arg1: tensor<f32>):\n  %0 = "stablehlo.add"(%arg0, %arg1) ' \
           ': (tensor<f32>, tensor<f32>) -> tensor<f32>\n  "stablehlo.return"(%0) : (tensor<f32>) -> ()\n})'
    attrs = Attributes(mlir_name="stablehlo.all_reduce", region_text=text, result_types=(F32,),
                       attribute_text="{replica_groups = dense<0> : tensor<1x1xi64>}")
    builder = RegionBuilder((F32,))
    (once,) = builder.add("opaque", (0,), attrs)
    region = builder.build(builder.add("opaque", (once,), attrs))
    assert str(parse(function_text(region))).count("all_reduce") == 2


def test_the_simulator_names_what_it_does_not_know() -> None:
    with pytest.raises(LoweringError, match="stablehlo.infeed"):
        registry.get("opaque_effectful").evaluate(Attributes(mlir_name="stablehlo.infeed", result_types=()), [])
    with pytest.raises(LoweringError, match="my_kernel"):
        registry.get("custom_call").evaluate(Attributes(call_target_name="my_kernel", result_types=()), [])
