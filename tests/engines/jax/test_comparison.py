"""A plan beside XLA's own program: what is compiled, how it is counted and priced, and how it prints."""

from dataclasses import replace

import numpy as np
import pytest
from tests.emit.devices import plan_of, run_on_xla

jax = pytest.importorskip("jax")

from jax import numpy as jnp  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P  # noqa: E402

import eggshard as es  # noqa: E402
from eggshard.costmodel import AlphaBeta, Messages, WireBytes  # noqa: E402
from eggshard.costmodel.pricing import Pricer  # noqa: E402
from eggshard.engines.jax.comparison import Comparison, CompiledFigures  # noqa: E402
from eggshard.hlo.collectives import count_collectives  # noqa: E402
from eggshard.hlo.kernels import Kernel, Part, count_kernels  # noqa: E402
from eggshard.hlo.pricing import communication_seconds, compute_seconds  # noqa: E402
from eggshard.program.mesh import Mesh  # noqa: E402
from eggshard.program.types import TensorType  # noqa: E402
from eggshard.steps.steps import AllGather, AllReduce, AllToAll, CollectivePermute, ReduceScatter  # noqa: E402

MESH = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def struct(shape, *spec, dtype=np.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*spec)))


# Sub-axes, device ids out of order, 64-bit numbers. XLA all-reduces, then gathers; the plan reduces into place.
TEXT = """module {
sdy.mesh @mesh = <["x"=4, "y"=2], device_ids=[3,1,0,2,7,6,4,5]>
func.func public @main(
    %a: tensor<64x64xf64> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
    %b: tensor<64x64xf64> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
    -> (tensor<64x64xf64> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2}, {}]>}) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<64x64xf64>, tensor<64x64xf64>) -> tensor<64x64xf64>
  return %0 : tensor<64x64xf64>
}
}"""


@pytest.mark.parametrize("model", [WireBytes(), AlphaBeta("torus")], ids=["bytes", "torus"])
def test_text_with_sub_axes_and_permuted_devices(model):
    plan = es.optimize(TEXT, cost_model=model)
    found = plan.compare_with_xla()
    assert found.plan.wire_bytes == found.predicted_bytes == plan.serial_bytes
    assert found.plan.collectives == plan.collectives
    assert found.plan.communication == pytest.approx(plan.cost.communication)
    assert found.plan.wire_bytes < found.xla.wire_bytes and not found.plan_is_worse
    assert found.xla.flops >= 2 * 64**3 / 8 and found.xla.temporary_bytes > 0 and found.xla.compile_seconds > 0


def test_program_of_jax_is_what_jax_compiles():
    def step(w, x):
        def body(carry, _):
            return jnp.tanh(carry @ w), carry.sum()

        return jax.lax.scan(body, x, None, length=3)

    lowered = jax.jit(step).lower(struct((64, 64), "x"), struct((64, 64), ("x", "y")))
    plan = es.optimize(lowered, rewrites=[])
    found = plan.compare_with_xla()
    compiled = lowered.compile()
    want = count_collectives(compiled.as_text())
    assert (found.xla.wire_bytes, found.xla.collectives) == (want.wire_bytes, want.by_kind)
    assert found.xla.temporary_bytes == compiled.memory_analysis().temp_size_in_bytes
    assert found.name == "step"
    # Three trips of a product of 8 rows, on each of the devices.
    assert found.xla.flops == pytest.approx(3 * 2 * 8 * 64 * 64, rel=0.05)


def test_program_built_by_hand_and_from_json():
    builder = es.ProgramBuilder({"x": 4, "y": 2}, name="product")
    a = builder.input((64, 64), sharding=("x", None))
    builder.output(builder.dot(a, builder.input((64, 64), sharding=(None, "x"))))
    plan = es.optimize(builder.build())
    found = plan.compare_with_xla()
    assert found.plan.wire_bytes == plan.serial_bytes == found.xla.wire_bytes > 0
    again = es.Plan.from_json(plan.to_json()).compare_with_xla()
    assert replace(again.plan, compile_seconds=0) == replace(found.plan, compile_seconds=0)


def test_callbacks_and_keys():
    def noisy(x, key):
        doubled = jax.pure_callback(lambda a: np.asarray(a) * 2, jax.ShapeDtypeStruct((8,), jnp.float32), x.sum(0))
        return doubled + jax.random.normal(key, (8,))

    lowered = jax.jit(noisy).lower(struct((16, 8), "x"), jax.ShapeDtypeStruct((), jax.random.key(0).dtype))
    assert es.optimize(lowered, rewrites=[]).compare_with_xla().xla.wire_bytes > 0


def test_loops_of_unknown_length_count_as_in_plans():
    def until(w, x):
        return jax.lax.while_loop(lambda c: c.sum() < 100, lambda c: jnp.tanh(c @ w) + 1, x)

    plan = es.optimize(jax.jit(until).lower(struct((8, 8), "x"), struct((64, 8), "x")), cost_model=WireBytes())
    found = plan.compare_with_xla()
    assert found.plan.wire_bytes == plan.serial_bytes


def test_missing_devices():
    builder = es.ProgramBuilder({"x": 64})
    a = builder.input((64, 64), sharding=("x", None))
    builder.output(a * 2.0, sharding=(None, None))
    with pytest.raises(es.errors.LoweringError, match="64 devices"):
        es.optimize(builder.build()).compare_with_xla()


def test_what_xla_refuses():
    plan = es.optimize(TEXT)
    broken = replace(plan, program=replace(plan.program, text=TEXT.replace("stablehlo.dot_general", "no.such_op")))
    with pytest.raises(es.errors.LoweringError, match="XLA does not compile main as its author wrote it"):
        broken.compare_with_xla()


def test_prints_as_a_table():
    text = str(es.optimize(TEXT).compare_with_xla())
    for what in ("wire bytes", "all-reduce", "modelled time", "temporaries", "compile time", "plan / XLA"):
        assert what in text
    assert max(map(len, text.splitlines())) <= 118


def test_both_programs_are_shown_step_by_step():
    found = es.optimize(TEXT).compare_with_xla()
    for figures in (found.plan, found.xla):
        assert sum(s.times * s.wire_bytes for s in figures.steps) == figures.wire_bytes > 0
        assert sum(s.times * s.seconds for s in figures.steps) == pytest.approx(figures.communication)
    assert any("planned" in s.origin for s in found.plan.steps)
    text = found.step_by_step()
    assert text.startswith("the plan\n") and "\nXLA\n" in text and "made of" in text


def test_an_entry_may_have_another_name():
    """XLA compiles functions called main alone."""
    named, other = (es.optimize(TEXT.replace("@main", f"@{name}")).compare_with_xla() for name in ("main", "layer"))
    assert named.xla.wire_bytes == other.xla.wire_bytes > 0


def test_worse_is_worse_by_the_models_objective():
    xla = CompiledFigures(64, 64, {"all-gather": 1}, 1e-5, 1e-6, 10, 80, 16, 96, 0.1)
    more, longer, slightly = {"wire_bytes": 72}, {"communication": 2e-5}, {"communication": 1.01e-5}
    plans = [replace(xla, **changed) for changed in (
        {}, more, longer, {**more, **longer}, slightly, {**more, **slightly})]
    assert [Comparison("f", p, xla, 0, 0).plan_is_worse for p in plans] == [False, False, True, True, False, True]


@pytest.mark.parametrize("figure", ["flops", "peak_bytes"])
def test_flops_and_memory_have_caps_unless_time_pays_for_them(figure):
    xla = CompiledFigures(64, 64, {"all-gather": 1}, 1e-5, 1e-6, 1000, 80, 160, 1000, 0.1)
    within, beyond = replace(xla, **{figure: 1100}), replace(xla, **{figure: 1101})
    paid, unpaid = replace(beyond, communication=8.8e-6), replace(beyond, communication=9.1e-6)
    assert [Comparison("f", p, xla, 0, 0).plan_is_worse for p in (within, beyond, paid, unpaid)] == [
        False, True, False, True]
    comparison = Comparison("f", beyond, xla, 0, 0)
    assert not comparison.excesses(es.Guard(flops=2, memory=2))
    (said,) = comparison.excesses(es.Guard())
    assert "XLA's" in said


def test_a_guard_is_made_of_factors():
    for wrong in ("2", None, True, float("nan"), -1):
        with pytest.raises(es.errors.LimitError, match="Guard: flops"):
            es.Guard(flops=wrong)
    with pytest.raises(es.errors.LimitError, match="neither a bool nor an eggshard.Guard"):
        es.jit(lambda x: x, guard=1.02)


CUBE = Mesh({"x": 2, "y": 2, "z": 2})
ACTIONS = {
    "gather": AllGather(((1, ("z", "x")),)),
    "all-reduce": AllReduce(("y",), "add"),
    "reduce-scatter": ReduceScatter(((0, ("x", "y", "z")),), "add"),
    "all-to-all": AllToAll(((1, ("x", "y")),), ((0, ("y", "x")),)),
    "permute": CollectivePermute(tuple((i, i ^ 1) for i in range(8)), ("z",)),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_compiled_collectives_cost_what_steps_cost(name):
    plan = plan_of(CUBE, [TensorType((8, 2), "f32")], ACTIONS[name])
    _, hlo = run_on_xla(plan, [np.ones((8, 8, 2), np.float32)])
    for model in (AlphaBeta(), AlphaBeta("torus"), WireBytes(), Messages()):
        pricer = Pricer(model, CUBE)
        found = communication_seconds(count_collectives(hlo), pricer)
        assert found == pytest.approx(pricer.program(plan), rel=1e-9)


ROWS, COLUMNS = TensorType((256, 512), "f32"), TensorType((256, 64), "f32")
INNER = {
    "gather": (AllGather(((1, ("x",)),)), COLUMNS),
    "reduce-scatter": (ReduceScatter(((1, ("x",)),), "add"), ROWS),
    "all-to-all of rows": (AllToAll(((0, ("x",)),), ((1, ("x",)),)), ROWS),
    "all-to-all of columns": (AllToAll(((1, ("x",)),), ((0, ("x",)),)), ROWS),
}


@pytest.mark.parametrize("name", INNER)
def test_collectives_along_inner_dimensions_cost_what_steps_cost(name):
    """What is laid out anew for them is copied as their steps say."""
    action, type_ = INNER[name]
    mesh = Mesh({"x": 8})
    plan = plan_of(mesh, [type_], action)
    _, hlo = run_on_xla(plan, [np.ones((8, *type_.shape), np.float32)])
    pricer = Pricer(es.costmodel.named("cpu-host"), mesh)
    found = compute_seconds(count_kernels(hlo), pricer) + communication_seconds(count_collectives(hlo), pricer)
    assert found == pytest.approx(pricer.program(plan), rel=0.05)


def test_dear_ops_within_fusions_cost_what_steps_cost():
    """And where only slices of them are taken, as much as of these."""
    def kernels(function):
        return count_kernels(jax.jit(function).lower(np.ones((512, 512), np.float32)).compile().as_text())

    pricer = Pricer(es.costmodel.named("cpu-host"), Mesh({}))
    tanh = pricer.compute("tanh", 512 * 512, 2 * 4 * 512 * 512, "f32")
    assert compute_seconds(kernels(lambda x: 2 * jnp.tanh(x + 1)), pricer) == pytest.approx(tanh, rel=0.05)
    assert compute_seconds(kernels(lambda x: 1 + jnp.tanh(x)[:64]), pricer) == pytest.approx(tanh / 8, rel=0.2)


HLO = """HloModule m, num_partitions=8

%fused (p: f32[4,8], q: f32[8,16], i: s32[]) -> f32[1,16] {
  %p = f32[4,8]{1,0} parameter(0)
  %q = f32[8,16]{1,0} parameter(1)
  %i = s32[] parameter(2)
  %dot.1 = f32[4,16]{1,0} dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %slice.1 = f32[1,16]{1,0} slice(%dot.1), slice={[0:1], [0:16]}
}

%update (a: f32[100,16], u: f32[1,16], i.1: s32[]) -> f32[100,16] {
  %a = f32[100,16]{1,0} parameter(0)
  %u = f32[1,16]{1,0} parameter(1)
  %i.1 = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %dus = f32[100,16]{1,0} dynamic-update-slice(%a, %u, %i.1, %zero)
}

%body (s: (s32[], f32[4,8], f32[8,16], f32[100,16])) -> (s32[], f32[4,8], f32[8,16], f32[100,16]) {
  %s = (s32[], f32[4,8]{1,0}, f32[8,16]{1,0}, f32[100,16]{1,0}) parameter(0)
  %n = s32[] get-tuple-element(%s), index=0
  %g = f32[4,8]{1,0} get-tuple-element(%s), index=1
  %h = f32[8,16]{1,0} get-tuple-element(%s), index=2
  %k = f32[100,16]{1,0} get-tuple-element(%s), index=3
  %row = f32[1,16]{1,0} fusion(%g, %h, %n), kind=kLoop, calls=%fused
  %all = f32[100,16]{1,0} fusion(%k, %row, %n), kind=kLoop, calls=%update
  ROOT %t = (s32[], f32[4,8]{1,0}, f32[8,16]{1,0}, f32[100,16]{1,0}) tuple(%n, %g, %h, %all)
}

%condition (s.1: (s32[], f32[4,8], f32[8,16], f32[100,16])) -> pred[] {
  %s.1 = (s32[], f32[4,8]{1,0}, f32[8,16]{1,0}, f32[100,16]{1,0}) parameter(0)
  %n.1 = s32[] get-tuple-element(%s.1), index=0
  %five = s32[] constant(5)
  ROOT %less = pred[] compare(%n.1, %five), direction=LT
}

ENTRY %main (x: (s32[], f32[4,8], f32[8,16], f32[100,16])) -> (s32[], f32[4,8], f32[8,16], f32[100,16]) {
  %x = (s32[], f32[4,8]{1,0}, f32[8,16]{1,0}, f32[100,16]{1,0}) parameter(0)
  ROOT %w = (s32[], f32[4,8]{1,0}, f32[8,16]{1,0}, f32[100,16]{1,0}) while(%x), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
}
"""  # noqa: E501


def test_kernels_of_a_loop():
    row, update, compare = count_kernels(HLO)
    # Inputs and the row of the product; then only the row that is updated, and its number.
    product = Part("dot_general", "f32", 2 * 4 * 8 * 16, 4 * (32 + 128 + 64))
    assert row == Kernel("fusion", "f32", 2 * 4 * 8 * 16, 4 * (32 + 128 + 16), 5, (product,))
    assert update == Kernel("fusion", "f32", 0, 4 * (16 + 16 + 1), 5)
    assert compare == Kernel("compare", "pred", 0, 4 + 4 + 1, 6)
    unknown = HLO.replace("known_trip_count", "unheard_of")
    assert [k.trip_count for k in count_kernels(unknown, unknown_trips=3)] == [3, 3, 4]
    model = AlphaBeta(flops=1, memory=1e30)
    assert compute_seconds(count_kernels(HLO), Pricer(model, Mesh({}))) == 5 * 1024


def test_choosing_and_counting_are_no_arithmetic():
    """A plan is not refused for flops where it picks elements by the device's number."""
    (picked, number, product) = count_kernels("""HloModule m

ENTRY %main (a: f32[8], b: f32[8], i: s32[]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %b = f32[8]{0} parameter(1)
  %i = s32[] parameter(2)
  %p = pred[8]{0} constant({...})
  %picked = f32[8]{0} select(%p, %a, %b)
  %number = s32[] add(%i, %i)
  ROOT %product = f32[8]{0} multiply(%picked, %b)
}
""")
    assert (picked.flops, number.flops, product.flops) == (0, 0, 8)
