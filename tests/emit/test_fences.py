"""Values that compilers are kept from computing again: which ones, in which form, and what it is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from tests.planner.test_stencils import X8, argument, planned  # noqa: E402

import eggshard as es  # noqa: E402
from eggshard.costmodel import AlphaBeta  # noqa: E402
from eggshard.emit.fences import fenced  # noqa: E402
from eggshard.emit.stablehlo import plan_text  # noqa: E402
from eggshard.hlo.kernels import count_kernels  # noqa: E402
from eggshard.program.attributes import Attributes  # noqa: E402
from eggshard.program.mesh import Mesh  # noqa: E402
from eggshard.program.placement import Dim  # noqa: E402
from eggshard.program.types import TensorType  # noqa: E402
from eggshard.steps.assemble import Assembler  # noqa: E402
from eggshard.steps.steps import Local  # noqa: E402
from eggshard.steps.window_steps import BoxSelect, Crop  # noqa: E402

ROW = TensorType((8,), "f32")
PART = TensorType((6,), "f32")


def cut(assembler: Assembler, value: int, start: int) -> int:
    attributes = Attributes(start_indices=(start,), limit_indices=(start + 6,), strides=(1,))
    return assembler.emit(Local("slice", attributes, (PART,)), (value,))[0]


def pointwise(assembler: Assembler, name: str, *values: int) -> int:
    return assembler.emit(Local(name, Attributes(), (assembler.types[values[0]],)), values)[0]


def test_which_values_are_kept() -> None:
    """What is computed and read at several places; neither what is only cut, nor what is read where it is made."""
    a = Assembler(Mesh({"x": 2}))
    x = a.input(ROW)
    level = pointwise(a, "tanh", x)
    left, right = cut(a, level, 0), cut(a, level, 2)
    added = pointwise(a, "add", left, right)
    once = pointwise(a, "negate", added)
    out = pointwise(a, "multiply", once, added)
    plan = a.build([out])
    (kept,) = fenced(plan)
    (maker,) = [step for step in plan.steps if kept in step.results]
    assert maker.action == Local("tanh", Attributes(), (ROW,))


def test_what_a_broadcast_repeats() -> None:
    """A function of few elements is computed once, arithmetic as often as it is read."""
    a = Assembler(Mesh({"x": 2}))
    x, table = a.input(ROW), TensorType((16, 8), "f32")
    slow, quick = pointwise(a, "negate", pointwise(a, "cosine", x)), pointwise(a, "abs", x)
    wide = [a.emit(Local("broadcast_in_dim", Attributes(broadcast_dimensions=(1,)), (table,)), (v,))[0]
            for v in (slow, quick)]
    plan = a.build([pointwise(a, "add", *wide), pointwise(a, "multiply", wide[0], a.input(table))])
    (kept,) = fenced(plan)
    (maker,) = [step for step in plan.steps if kept in step.results]
    assert maker.action == Local("negate", Attributes(), (ROW,))


def quarter(assembler: Assembler, value: int, start: int) -> int:
    attributes = Attributes(start_indices=(start,), limit_indices=(start + 2,), strides=(1,))
    return assembler.emit(Local("slice", attributes, (TensorType((2,), "f32"),)), (value,))[0]


@pytest.mark.parametrize("joined", [False, True])
def test_parts_that_do_not_overlap_are_read_once(joined: bool) -> None:
    """As those of a recurrent cell's gates; put together in another order each element is tested for its place."""
    a = Assembler(Mesh({"x": 2}))
    level = pointwise(a, "tanh", a.input(ROW))
    parts = [quarter(a, level, start) for start in (2, 4, 6, 0)]
    if joined:
        (out,) = a.emit(Local("concatenate", Attributes(dimension=0), (ROW,)), tuple(parts))
    else:
        out = pointwise(a, "add", pointwise(a, "add", *parts[:2]), pointwise(a, "multiply", *parts[2:]))
    assert bool(fenced(a.build([out]))) == joined


def test_a_value_with_one_reader_is_fused_with_it() -> None:
    a = Assembler(Mesh({"x": 2}))
    plan = a.build([cut(a, pointwise(a, "tanh", a.input(ROW)), 1)])
    assert not fenced(plan)


def test_cuts_are_read_for_all_their_users() -> None:
    """A level that one slice reads, of which there are two more slices, has two users."""
    a = Assembler(Mesh({"x": 2}))
    level = pointwise(a, "tanh", a.input(ROW))
    (inner,) = a.emit(Crop(0, ("x",), 7, (-1, -1)), (level,))
    plan = a.build([pointwise(a, "add", cut(a, inner, 0), cut(a, inner, 1))])
    assert fenced(plan) == {plan.steps[0].results[0]}


def test_a_level_that_is_padded_once_is_fused_with_it() -> None:
    """A padding reads a level once if it lies at one place on all devices; a level chosen from two is kept."""
    a = Assembler(Mesh({"x": 2}))
    x = a.input(ROW)
    level = pointwise(a, "tanh", x)
    plan = a.build(a.emit(Crop(0, ("x",), 10, (1, 1)), (level,)))
    assert not fenced(plan)

    (chosen,) = a.emit(BoxSelect(((0, Dim(("x",), 8, 0, 16), 1, 15),)), (level, x))
    plan = a.build(a.emit(Crop(0, ("x",), 10, (1, 1)), (chosen,)))
    kept = {step.action.kind for step in plan.steps if fenced(plan) & set(step.results)}
    assert "select" in kept


@pytest.mark.parametrize("contracted,platform,kept", [(0, "cpu", True), (1, "cpu", False), (0, "gpu", False)])
def test_what_is_transposed_for_a_product_is_computed_before(contracted: int, platform: str, kept: bool) -> None:
    """XLA:CPU computes it again where it transposes it, and reads all that it is computed from across rows."""
    a = Assembler(Mesh({"x": 2}))
    square = TensorType((8, 8), "f32")
    level = a.emit(Local("tanh", Attributes(), (square,)), (a.input(square),))[0]
    numbers = Attributes(lhs_batching_dimensions=(), rhs_batching_dimensions=(),
                         lhs_contracting_dimensions=(contracted,), rhs_contracting_dimensions=(0,))
    dot = Local("dot_general", Attributes(dot_dimension_numbers=numbers, dtype="f32"), (square,))
    product, other = a.emit(dot, (level, a.input(square)))[0], pointwise(a, "negate", level)
    assert bool(fenced(a.build([product, other]), platform)) == kept


@pytest.mark.parametrize("start,kept", [(0, False), (2, False), (1, True)])
def test_a_part_of_a_concatenation_is_no_other_place(start: int, kept: bool) -> None:
    """Compilers cut the operand of a concatenation in whose rows a slice lies, unless it takes rows of two."""
    a = Assembler(Mesh({"x": 2}))
    parts = tuple(a.input(TensorType((2, 8), "f32")) for _ in range(2))
    (joint,) = a.emit(Local("concatenate", Attributes(dimension=0), (TensorType((4, 8), "f32"),)), parts)
    box = Attributes(start_indices=(start, 0), limit_indices=(start + 2, 8), strides=(1, 1))
    (part,) = a.emit(Local("slice", box, (TensorType((2, 8), "f32"),)), (joint,))
    plan = a.build([part, joint, pointwise(a, "tanh", joint)])
    assert bool(fenced(plan)) == kept


def smooth(u: Any) -> Any:
    q = jnp.pad(u, 1)
    return 0.2 * (u + q[:-2, 1:-1] + q[2:, 1:-1] + q[1:-1, :-2] + q[1:-1, 2:])


def test_forms_by_platform() -> None:
    """Text for people has no fences; a call fences on CPUs, where barriers do not, and on CPUs alone."""
    plan = planned(lambda u: smooth(smooth(u)), X8, argument((64, 64), "x -"), results="same")
    assert not any(form in plan_text(plan) for form in ("optimization_barrier", "func.call"))
    assert "optimization_barrier" in plan_text(plan, "gpu") and "func.call" not in plan_text(plan, "gpu")
    assert "func.call" in plan_text(plan, "cpu")


@pytest.mark.parametrize("count,loops", [(4, False), (24, True)])
def test_levels_are_computed_once(count: int, loops: bool) -> None:
    """The compiled program has at most 1.3 times the operations of its levels, each of 10 per element."""

    def run(u: Any) -> Any:
        if loops:
            return lax.fori_loop(0, count, lambda _, v: smooth(v), u)
        for _ in range(count):
            u = smooth(u)
        return u

    model = AlphaBeta(memory=2e10)  # where computing everything on every device does not pay
    plan = planned(run, X8, argument((512, 64), "x -", np.float32), results="same", cost_model=model)
    mesh = jax.make_mesh((8,), ("x",))
    u = jax.device_put(np.ones((512, 64), np.float32), jax.sharding.NamedSharding(mesh, jax.P("x")))
    compiled = jax.jit(plan.to_jax()).lower(u).compile()
    flops = sum(k.flops * k.trip_count for k in count_kernels(compiled.as_text()))
    widened = (64 + 2 * 8) / 64  # eight rows of halos at most are computed twice
    assert flops < 1.3 * widened * 10 * count * 64 * 64
    np.testing.assert_allclose(compiled(u), run(jnp.ones((512, 64))), rtol=1e-5)


@pytest.mark.parametrize("after", [lambda a: a, lambda a: 2 * a, jnp.fft.fft])
def test_transforms_are_in_row_major_order(after: Callable[[Any], Any]) -> None:
    """What is gathered along an inner dimension is not."""
    mesh = jax.make_mesh((2, 4), ("x", "y"))
    rows, everywhere = (jax.sharding.NamedSharding(mesh, jax.P(*spec)) for spec in ((None, "x", None), ()))
    a = np.random.default_rng(0).standard_normal((16, 4, 8)).astype(np.complex64)
    run = lambda a: after(jnp.fft.fft(a))  # noqa: E731
    plan = es.optimize(jax.jit(run, in_shardings=rows, out_shardings=everywhere).lower(a))
    assert plan.collectives == {"all-gather": 1}
    np.testing.assert_allclose(plan.to_jax()(a), run(a), rtol=1e-5, atol=1e-5)


def test_one_device_is_fenced_alike() -> None:
    """A single device has no partition id, and needs none."""
    plan = planned(lambda u: smooth(smooth(u)), {"x": 1}, argument((16, 16), "x -", np.float32), results="same")
    text = plan_text(plan, "cpu")
    assert "partition_id" not in text and 1 <= text.count("func.func private") <= text.count("func.call")
    u = np.ones((16, 16), np.float32)
    np.testing.assert_allclose(jax.jit(plan.to_jax())(u), smooth(smooth(u)), rtol=1e-6)
    assert isinstance(plan, es.Plan)
