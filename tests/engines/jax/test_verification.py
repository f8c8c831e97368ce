"""What verification takes for rounding, and what for a wrong plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import eggshard as es
from eggshard.costmodel import WireBytes
from eggshard.engines.jax.judgement import FACTOR, UNITS, Errors, Reference, epsilon, errors, judged, neighbour
from eggshard.engines.jax.verification import random_array, tolerance
from eggshard.errors import VerificationError
from eggshard.frontends.builder import ProgramBuilder, Tensor
from eggshard.ops.evaluate import evaluate_program
from eggshard.ops.widening import evaluation_bytes, widened
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.program import Program
from eggshard.program.types import TensorType
from eggshard.steps.control_steps import Loop
from eggshard.steps.steps import AllGather, AllReduce, CollectivePermute, Local, ReduceScatter, StepPlan
from eggshard.steps.window_steps import HaloExchange

F32 = float(np.finfo(np.float32).eps)


def layers(count: int, gain: float = 1.0, dtype: str = "f32") -> Program:
    """Layers with sharded weights; with standard normals, each magnifies rounding some four times."""
    b = ProgramBuilder(mesh={"x": 8})
    h = b.input((256, 64), dtype, ("x", None))
    for _ in range(count):
        h = h @ b.input((64, 64), dtype, ("x", None))
        h = b.tanh(h if gain == 1 else h * gain)
    b.output(h, ("x", None))
    return b.build()


def product() -> Program:
    b = ProgramBuilder(mesh={"x": 4, "y": 2})
    x, w = b.input((64, 128), "f32", ("y", "x")), b.input((128, 32), "f32", ("x", None))
    b.output((x @ w) * 0.125 - b.input((64, 32), "f32", ("y", None)), ("y", None))
    return b.build()


def softmax() -> Program:
    b = ProgramBuilder(mesh={"x": 4})
    x = b.input((16, 64), "f32", (None, "x"))
    e = b.op("exponential", x - b.broadcast(b.max(x, 1), x.shape, (0,)))
    b.output(e / b.broadcast(b.sum(e, 1), x.shape, (0,)), (None, "x"))
    return b.build()


def stencil() -> Program:
    b = ProgramBuilder(mesh={"x": 4})
    u = b.input((64, 8), "f32", ("x", None))
    inner = b.slice(u, (1, 0), (63, 8)) * 0.5 + (b.slice(u, (0, 0), (62, 8)) - b.slice(u, (2, 0), (64, 8))) * 0.25
    b.output(b.pad(inner, (1, 0), (1, 0)), ("x", None))
    return b.build()


def loop(trips: int = 8) -> Any:
    jax = pytest.importorskip("jax")
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

    mesh = jax.sharding.AbstractMesh((8,), ("x",), axis_types=(AxisType.Auto,))

    def struct(shape: tuple[int, ...]) -> Any:
        return jax.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P("x")))

    def f(w: Any, a: Any) -> Any:
        return jax.lax.fori_loop(0, trips, lambda i, y: jax.numpy.tanh(y @ w), a)

    return jax.jit(f).trace(struct((64, 64)), struct((512, 64))).lower(lowering_platforms=("cpu",))


def altered(steps: StepPlan, i: int, action: Any = None, operands: Any = None) -> StepPlan:
    step = steps.steps[i]
    changed = replace(step, action=action or step.action, operands=operands or step.operands)
    return replace(steps, steps=(*steps.steps[:i], changed, *steps.steps[i + 1:]))


def dropped(steps: StepPlan, i: int) -> StepPlan:
    """Its first operand in place of a step's result."""
    step = steps.steps[i]
    instead = {step.results[0]: step.operands[0]}
    kept = [replace(s, operands=tuple(instead.get(v, v) for v in s.operands)) for s in steps.steps if s is not step]
    return replace(steps, steps=tuple(kept), outputs=tuple(instead.get(v, v) for v in steps.outputs))


def crossed(pairs: Any) -> Any:
    """The last device's message to the first one's neighbour, and the other way round."""
    first, *between, last = pairs
    return ((first[0], last[1]), *between, (last[0], first[1]))


def mutants(steps: StepPlan) -> Iterator[tuple[str, StepPlan]]:
    """Wrong device programs of the same types."""
    for i, step in enumerate(steps.steps):
        action, types = step.action, [steps.types[v] for v in step.operands]
        match action:
            case AllReduce(monoid="add"):
                yield "all-reduce missing", dropped(steps, i)
                yield "wrong monoid", altered(steps, i, replace(action, monoid="max"))
            case ReduceScatter(monoid="add"):
                yield "wrong monoid", altered(steps, i, replace(action, monoid="max"))
            case CollectivePermute(pairs=pairs) if len(pairs) > 1:
                yield "shards swapped", altered(steps, i, replace(action, pairs=crossed(pairs)))
            case HaloExchange(rounds=rounds):
                for k, slab in enumerate(rounds):
                    wrong = slab._replace(pairs=crossed(slab.pairs)) if len(slab.pairs) > 1 else None
                    for what, put in (("wrong neighbour", wrong), ("slab missing", None)):
                        left = (*rounds[:k], *((put,) if put else ()), *rounds[k + 1:])
                        yield what, altered(steps, i, replace(action, rounds=left))
            case Local(name="multiply" | "divide"):
                yield "scale missing", dropped(steps, i)
            case Local(name="subtract") if types[0] == types[1]:
                yield "operands swapped", altered(steps, i, operands=step.operands[::-1])
            case Local(name="add") if types[0].dtype == "f32":
                yield "term missing", dropped(steps, i)
            case Local(name="dot_general") if len(set(types)) == 1:
                yield "operands swapped", altered(steps, i, operands=step.operands[::-1])
            case Local(name="tanh"):
                yield "op missing", dropped(steps, i)
            case Local(name="constant") if types == [] and steps.types[step.results[0]].dtype == "f32":
                value = action.attributes["value"].array
                off = Literal(value * np.float32(1 + 1e-4))
                if np.isfinite(value).all() and value.any():
                    yield "constant off", altered(steps, i, replace(action, attributes=action.attributes.updated(
                        value=off)))
            case Loop(body=body):
                for name, inner in mutants(body):
                    yield f"{name} in a loop", altered(steps, i, replace(action, body=inner))
            case AllGather(moves=((dim, _),)):
                whole = steps.types[step.results[0]]
                results = (len(steps.types),)
                turned = replace(step, action=Local("reverse", Attributes(dimensions=(dim,)), (whole,)),
                                 operands=step.results, results=results)
                rest = [replace(s, operands=tuple(results[0] if v == step.results[0] else v for v in s.operands))
                        for s in steps.steps[i + 1:]]
                yield "shards in another order", replace(
                    steps, steps=(*steps.steps[:i + 1], turned, *rest), types=(*steps.types, whole),
                    outputs=tuple(results[0] if v == step.results[0] else v for v in steps.outputs))


PROGRAMS = {
    "product": product, "softmax": softmax, "stencil": stencil, "layers": lambda: layers(2, 0.125),
    "layers that magnify rounding": lambda: layers(8), "loop": loop,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_right_plans_pass_and_wrong_ones_do_not(name: str) -> None:
    plan = es.optimize(PROGRAMS[name](), cost_model=WireBytes())
    (found,) = plan.verify(engines=("numpy",)).judgements["numpy"]
    assert found.exact and found.telling
    if name not in ("layers that magnify rounding", "loop"):
        assert found.allowed.largest < tolerance("f32") / 4
    else:
        assert found.program.largest > tolerance("f32")
    wrong = list(mutants(plan.device_program))
    assert wrong
    for what, steps in wrong:
        with pytest.raises(VerificationError):
            replace(plan, device_program=steps).verify(engines=("numpy",), limit=None)
            pytest.fail(what)


def test_an_error_says_what_was_compared_and_what_allowed() -> None:
    plan = es.optimize(product(), cost_model=WireBytes())
    steps = dict(mutants(plan.device_program))["scale missing"]
    words = (r"output 0 \(tensor<64x32xf32>\) on numpy .* by 6\.\d+e\+00 .* the plan by 6\.\de\+00 \(mean .*\), .*"
             r"program by \d\.\de-07 .*; up to \d\.\de-0[67] ")
    with pytest.raises(VerificationError, match=words):
        replace(plan, device_program=steps).verify(engines=("numpy",))


def test_a_report_says_per_engine_what_was_allowed() -> None:
    report = es.optimize(layers(8), cost_model=WireBytes()).verify(engines=("numpy",))
    assert str(report).startswith("numpy: equal to the unsharded program")
    (found,) = report.judgements["numpy"]
    assert found.allowed.largest == FACTOR * found.program.largest + UNITS * F32


def test_xla_is_judged_by_its_own_run_of_the_program() -> None:
    pytest.importorskip("jax")
    report = es.optimize(loop(3), cost_model=WireBytes()).verify()
    assert set(report.judgements) == {"numpy", "jax"}
    assert all(found.exact for found, in report.judgements.values())


def one(make: Any, *inputs: TensorType) -> Program:
    b = ProgramBuilder(mesh={"x": 2})
    b.output(make(b, *(b.input(t.shape, t.dtype) for t in inputs)))
    return b.build()


VECTOR = TensorType((64,), "f32")


def through(dtype: str) -> Any:
    return lambda b, x: b.convert(b.convert(b.tanh(x), dtype), "f32") * 3.0


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f8E4M3FN"])
def test_stated_roundings_are_part_of_the_program(dtype: str) -> None:
    """A round trip through a narrow type is not the rounding that plans are forgiven; but it may go either way."""
    (found,) = es.optimize(one(through(dtype), VECTOR)).verify(engines=("numpy",)).judgements["numpy"]
    assert found.exact and found.program.largest < F32 and found.allowed.largest == tolerance("f32")


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_arithmetic_in_narrow_types_rounds(dtype: str) -> None:
    """Partial sums of a product are rounded before they are summed, where the program rounds once."""
    b = ProgramBuilder(mesh={"x": 8})
    y = b.input((32, 256), dtype, (None, "x")) @ b.input((256, 32), dtype, ("x", None))
    b.output(b.convert(y, "f32") * 0.5)
    plan = es.optimize(b.build(), cost_model=WireBytes())
    (found,) = plan.verify(engines=("numpy",)).judgements["numpy"]
    assert found.exact and found.program.largest < epsilon(dtype) and found.allowed.largest < 12 * epsilon(dtype)
    wrong = list(mutants(plan.device_program))
    assert any("all-reduce" in what or "monoid" in what for what, _ in wrong)
    for what, steps in wrong:
        if what != "constant off":  # by less than what is rounding here
            with pytest.raises(VerificationError):
                replace(plan, device_program=steps).verify(engines=("numpy",))


def bits(b: ProgramBuilder, x: Tensor) -> Tensor:
    """Random numbers made of bits, and a float's own bits."""
    i = b.op("bitcast_convert", x, dtype="i32", shape=(64,))
    sign = b.convert(b.op("shift_right_logical", i, b.constant(31, "i32", (64,))), "f32")
    mantissa = b.op("or", b.op("and", i, b.constant(0x7FFFFF, "i32", (64,))), b.constant(0x3F800000, "i32", (64,)))
    return b.op("bitcast_convert", mantissa, dtype="f32", shape=(64,)) * sign


def test_the_unsharded_program_counts_against_the_limit() -> None:
    program = one(lambda b, x: b.tanh(x) * x, VECTOR)
    region = widened(program).region
    assert evaluation_bytes(region) == 3 * 64 * 8
    plan = es.optimize(program)
    assert plan.mesh.size * plan.peak_bytes <= 3 * 64 * 8
    plan.verify(engines=("numpy",), limit=3 * 64 * 8)
    with pytest.raises(VerificationError, match="double precision .* more than the limit"):
        plan.verify(engines=("numpy",), limit=3 * 64 * 8 - 1)


def test_bits_of_floats_are_those_of_the_stated_type() -> None:
    (found,) = es.optimize(one(bits, VECTOR)).verify(engines=("numpy",)).judgements["numpy"]
    assert found.exact and found.program.largest == 0


def test_double_precision_is_judged_without_a_better_one() -> None:
    report = es.optimize(one(lambda b, x: b.tanh(x) * b.sum(x), TensorType((64,), "f64"))).verify(engines=("numpy",))
    (found,) = report.judgements["numpy"]
    assert not found.exact and found.allowed.largest == tolerance("f64") and "f64 itself" in report.fixed


def test_what_magnifies_rounding_in_double_precision_is_told_by_inputs_one_rounding_away() -> None:
    program, rng = layers(8, dtype="f64"), np.random.default_rng(7)
    inputs = [random_array(t, rng) for t in program.input_types]
    run = partial(evaluate_program, program)
    measure, got = Reference(inputs, run(inputs), None, run, False), run([neighbour(a, rng) for a in inputs])
    (found,) = judged("numpy", got, program.output_types, measure)
    assert tolerance("f64") < found.difference < found.allowed.largest < 1e-8 and not found.exact
    with pytest.raises(VerificationError, match="is rounding"):
        judged("numpy", [got[0][::-1]], program.output_types, measure)


def test_loops_end_on_what_the_program_could_tell_apart() -> None:
    """Newton's iteration until nothing changes: in double precision it would go on, or go to and fro."""
    jax = pytest.importorskip("jax")

    def root(x: Any) -> Any:
        def step(state: Any) -> Any:
            return 0.5 * (state[0] + x / state[0]), state[0]

        return jax.lax.while_loop(lambda s: jax.numpy.any(abs(s[0] - s[1]) > 1e-6), step, (x, x + 1))[0]

    plan = es.optimize(jax.jit(root).lower(jax.ShapeDtypeStruct((32,), np.float32)))
    x = np.linspace(1, 2, 32, dtype=np.float32)
    (found,) = plan.verify(engines=("numpy",), inputs=[x]).judgements["numpy"]
    assert found.exact and found.program.largest < 1e-6


def reference(want: np.ndarray, exact: np.ndarray, rerun: Any = None) -> Reference:
    return Reference([], [want], [exact], rerun or (lambda inputs: [want]), False)


def judge(got: Any, want: Any, exact: Any) -> Any:
    got, want = (np.array(a, np.float32) for a in (got, want))
    return judged("numpy", [got], [TensorType(got.shape, "f32")], reference(want, np.array(exact, np.float64)))[0]


def test_overflow_is_where_the_program_overflows() -> None:
    inf, nan = np.inf, np.nan
    judge([1, inf, nan], [1, inf, nan], [1, 1e300, nan])
    judge([1, inf], [1, inf], [1, inf])
    judge([1, 2], [1, inf], [1, 2])  # the plan does not overflow on the way
    judge([1, 2], [1, 2], [1, nan])
    for wrong in ([1, 5, nan], [1, -inf, nan], [1, inf, 0], [inf, inf, nan], [nan, inf, nan]):
        with pytest.raises(VerificationError):
            judge(wrong, [1, inf, nan], [1, 1e300, nan])
    with pytest.raises(VerificationError):
        judge([1, inf], [1, 2], [1, 2])


def test_a_few_elements_far_off_do_not_excuse_many() -> None:
    exact = np.ones(1000)
    want = exact.copy()
    want[3] = 1.05
    judge(np.where(np.arange(1000) == 7, 0.95, exact), want, exact)
    with pytest.raises(VerificationError):
        judge(exact * 1.01, want, exact)


def test_integers_are_exact() -> None:
    type_ = TensorType((2,), "i32")
    want, off = np.array([1, 2], np.int32), np.array([1, 3], np.int32)
    judged("numpy", [want], [type_], reference(want, want))
    with pytest.raises(VerificationError):
        judged("numpy", [off], [type_], reference(want, want))


def test_lucky_programs_are_run_again_one_rounding_away() -> None:
    """One number that happens to be exact tells nothing of what rounding does to it."""
    want, got = np.float32(1.0), np.float32(1.001)
    type_ = TensorType((), "f32")
    with pytest.raises(VerificationError):
        judged("numpy", [got], [type_], reference(want, np.float64(1.0)))
    (found,) = judged("numpy", [got], [type_], reference(want, np.float64(1.0), lambda inputs: [np.float32(1.0005)]))
    assert found.program.largest == pytest.approx(5e-4, rel=1e-3)


def test_outputs_that_rounding_alone_makes_say_nothing() -> None:
    want, noise = np.array([1e-9], np.float32), np.array([-2e-9], np.float32)
    both = Reference([], [want, np.ones(1, np.float32)], [np.zeros(1), np.ones(1)], lambda inputs: [], False)
    one_type = TensorType((1,), "f32")
    found = judged("numpy", [noise, np.ones(1, np.float32)], [one_type] * 2, both)
    assert [j.telling for j in found] == [False, True]
    with pytest.raises(VerificationError, match="tell nothing"):
        judged("numpy", [noise], [one_type], reference(want, np.array([1e-12])))


def test_neighbours_are_one_rounding_away_and_leave_what_is_meant() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal(100), [0, 1, -3, 0.25, 255, np.inf, np.nan]]).astype(np.float32)
    near = neighbour(x, rng)
    np.testing.assert_array_equal(near[100:], x[100:])
    assert (near[:100] != x[:100]).sum() > 90 and (abs(near[:100] / x[:100] - 1) < 2 * F32).all()
    z = (x[:4] + 1j * x[4:8]).reshape(2, 2)
    assert neighbour(z, rng).shape == (2, 2) and neighbour(z, rng).dtype == np.complex64
    for kept in (np.arange(4), x.astype(ml_dtypes.bfloat16)):
        assert neighbour(kept, rng) is kept


def test_errors_are_relative_to_the_largest_magnitude() -> None:
    found = errors(np.array([1, 4.5], np.float32), np.array([1, 4], np.float32), np.array([1.25, 4]))
    assert found == Errors(0.125, (0.25 + 0.5) / 2 / 4)
