"""A plan on another number of devices computes what the program means at the sizes that it then has, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from tests.plan.scalable import Scalable  # noqa: E402
from tests.random_stencils import Argument, lowered, placed  # noqa: E402

import eggshard as es  # noqa: E402
from eggshard.costmodel import WireBytes  # noqa: E402
from eggshard.errors import LoweringError, MeshError, VerificationError  # noqa: E402
from eggshard.plan.retargeting import on_mesh, retargeted  # noqa: E402
from eggshard.program.attributes import Attributes  # noqa: E402
from eggshard.program.mesh import Mesh  # noqa: E402
from eggshard.steps.authored_steps import DeviceNumber, GroupCollective  # noqa: E402
from eggshard.steps.piece_steps import Exchange, Round  # noqa: E402
from eggshard.steps.steps import CollectivePermute  # noqa: E402


def check_random(seed: int) -> bool:
    """Whether the plan could go there; where it can it is what a plan for the sizes there is, bit for bit."""
    program = Scalable(seed)
    argument, bigger = program.at(program.new)
    try:
        plan = program.plan(program.old).on(program.new, bigger)
    except LoweringError as error:
        assert "step" in str(error)
        return False
    inputs = argument.draw(np.random.default_rng(seed), False)
    for got, want in zip(plan.run(inputs), program.plan(program.new).run(inputs), strict=True):
        np.testing.assert_array_equal(got, want)
    plan.verify(engines=("numpy",))
    return True


@pytest.mark.parametrize(("count", "least"), [(6, 4), pytest.param(20, 15, marks=pytest.mark.slow)])
def test_random_programs(count: int, least: int) -> None:
    assert sum(map(check_random, range(count))) >= least


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1400, 50))
def test_more_random_programs(first: int) -> None:
    assert sum(map(check_random, range(first, first + 50))) >= 35


def lower(function: Callable[..., Any], mesh: dict[str, int], *arguments: tuple[tuple[int, ...], Any], out: Any = None
          ) -> jax.stages.Lowered:
    given = [Argument(shape, "float32", spec) for shape, spec in arguments]
    return lowered(function, mesh, given, None if out is None else placed(mesh, out))


def step(w: Any, x: Any, y: Any) -> Any:
    """One of gradient descent; the loss is a sum, whose gradient knows no number of examples."""
    def loss(w: Any) -> Any:
        return jnp.sum((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2)

    return jax.tree.map(lambda p, g: p - 0.01 * g, w, jax.grad(loss)(w))


def training(devices: int) -> jax.stages.Lowered:
    shapes = [((8, 16), ((), ())), ((16, 4), ((), ())), ((64 * devices, 8), (("x",), ())),
              ((64 * devices, 4), (("x",), ()))]
    return lower(lambda a, b, x, y: step((a, b), x, y), {"x": devices}, *shapes, out=((), ()))


def test_data_parallel_training_goes_to_any_number() -> None:
    plan = es.optimize(training(4), cost_model=WireBytes())
    assert plan.collectives.get("all-reduce")
    for devices in (2, 3, 8):
        there = plan.on(devices, training(devices))
        assert there.collectives == plan.collectives and there.mesh.size == devices
        print(there.verify(engines=("numpy", "jax") if devices == 3 else ("numpy",)))
    assert plan.on({"x": 4}) is plan


def heat(u: Any) -> Any:
    v = u.at[1:-1].add(u[:-2] + u[2:])
    return lax.fori_loop(0, 4, lambda _, v: v.at[1:-1].set(0.25 * (v[:-2] + v[2:]) + 0.5 * v[1:-1]), v)


def test_without_a_program_there_is_nothing_to_compare_with() -> None:
    plan = es.optimize(lower(heat, {"x": 4}, ((32, 3), (("x",), ())), out=(("x",), ())), cost_model=WireBytes())
    there = plan.on({"x": 6})
    assert there.program.input_types[0].shape == (48, 3) and there.program.output_types[0].shape == (48, 3)
    u = np.random.default_rng(0).standard_normal((48, 3)).astype(np.float32)
    want = np.asarray(jax.jit(heat)(u))
    np.testing.assert_allclose(there.run(u)[0], want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(there.to_jax()(u)), want, rtol=1e-5, atol=1e-6)
    with pytest.raises(VerificationError, match=r"give it to Plan\.on"):
        there.verify()
    again = es.Plan.from_json(there.to_json())
    assert again.device_program == there.device_program and again.program == there.program
    assert "put on" in there.explain()
    assert there.on(4).device_program == plan.device_program


def test_numbers_that_a_program_makes_of_its_sizes_are_found() -> None:
    def program(devices: int) -> jax.stages.Lowered:
        return lower(lambda x: x - jnp.mean(x, 0), {"x": devices}, ((2 * devices, 3), (("x",), ())), out=(("x",), ()))

    plan = es.optimize(program(4), cost_model=WireBytes())
    with pytest.raises(LoweringError, match=r"constant.*16\.0.*8\.0.*depends on the sizes"):
        plan.on(8, program(8))
    with pytest.raises(LoweringError, match="another one than was planned"):
        plan.on(8, lower(lambda x: x * 2, {"x": 8}, ((16, 3), (("x",), ())), out=(("x",), ())))
    with pytest.raises(LoweringError, match=r"inputs.*tensor<32x3xf32>.*tensor<16x3xf32>"):
        plan.on(8, lower(lambda x: x * 2, {"x": 8}, ((32, 3), (("x",), ())), out=(("x",), ())))
    with pytest.raises(LoweringError, match="is on Mesh"):
        plan.on(8, program(4))


def test_sizes_that_depend_on_the_number_of_devices_are_refused() -> None:
    def product(x: Any, w: Any) -> Any:
        return x @ w

    plan = es.optimize(lower(product, {"x": 4}, ((64, 8), (("x",), ())), ((8, 4), (("x",), ())), out=(("x",), ())),
                       cost_model=WireBytes())
    with pytest.raises(LoweringError, match=r"step 0 all-gather.* tensor<16x4xf32> instead of tensor<8x4xf32>"):
        plan.on(8)


def test_axes() -> None:
    plan = es.optimize(lower(lambda x: x + 1, {"x": 2, "y": 2}, ((4, 4), (("x",), ("y",)))), cost_model=WireBytes())
    assert plan.on({"y": 4}).program.input_types[0].shape == (4, 8)
    for devices, why in ((8, "along which axis"), ({"z": 2}, "no axis 'z'"), ({"x": 0}, "positive integer")):
        with pytest.raises(MeshError, match=why):
            plan.on(devices)
    with pytest.raises(MeshError, match="same axes"):
        on_mesh(plan.device_program, Mesh({"y": 2, "x": 2}))
    cut = es.optimize(lower(lambda x: jnp.sum(x.reshape(2, 8), 0), {"x": 4}, ((16,), (("x",),)), out=((),)),
                      cost_model=WireBytes())
    if cut.mesh.axes != {"x": 4}:
        with pytest.raises(LoweringError, match="parts of axis 'x'"):
            cut.on(8)


OLD, NEW = Mesh({"x": 3, "y": 2}), Mesh({"x": 4, "y": 2}, device_ids=[7, 6, 5, 4, 3, 2, 1, 0])


def test_numbers_of_devices_are_found_by_their_places() -> None:
    across = CollectivePermute(tuple((d, d ^ 1) for d in range(6)))
    assert set(retargeted(across, OLD, NEW, ()).pairs) == {(d, d ^ 1) for d in range(8)}
    up = retargeted(CollectivePermute(tuple((d, (d + 2) % 6) for d in range(6)), ("x",)), OLD, NEW, ())
    assert set(up.pairs) == {(d, (d - 2) % 8) for d in range(8)}
    with pytest.raises(LoweringError, match="from place to place"):
        retargeted(CollectivePermute(((0, 1), (1, 0), (2, 2), (3, 3), (4, 4), (5, 5))), OLD, NEW, ())
    grid = np.arange(4).repeat(2) * 5
    numbers = retargeted(DeviceNumber((0, 0, 5, 5, 10, 10)), OLD, NEW, ()).numbers
    assert numbers == tuple(grid[::-1].tolist())
    assert retargeted(DeviceNumber((0, 1) * 3), OLD, NEW, ()).numbers == (1, 0) * 4
    assert retargeted(DeviceNumber(tuple(range(6))), OLD, NEW, ()).numbers == tuple(range(8))[::-1]
    asked = DeviceNumber(tuple(range(6)), authored=True)
    with pytest.raises(LoweringError, match="how many there are"):
        retargeted(asked, OLD, NEW, ())
    turned = Mesh({"x": 3, "y": 2}, device_ids=range(5, -1, -1))
    assert retargeted(asked, OLD, turned, ()).numbers == tuple(range(6))[::-1]


def test_groups_and_pieces() -> None:
    pairs = Attributes(use_global_device_ids=True, replica_groups=((1, 0), (3, 2), (5, 4)))
    there = retargeted(GroupCollective("all_gather", pairs, ()), OLD, NEW, ())
    assert sorted(there.attributes["replica_groups"]) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    with pytest.raises(LoweringError, match="replicas"):
        retargeted(GroupCollective("all_gather", pairs.updated(use_global_device_ids=False), ()), OLD, NEW, ())
    swap = tuple((d, d ^ 1) for d in range(6))
    rows = ((0,), (2,)) * 3
    exchange = retargeted(Exchange((2,), (4,), (Round(swap, rows, rows),)), OLD, NEW, ())
    (there_round,) = exchange.rounds
    assert set(there_round.pairs) == {(d, d ^ 1) for d in range(8)}
    assert there_round.source_starts == ((2,), (0,)) * 4
    with pytest.raises(LoweringError, match="from place to place"):
        retargeted(Exchange((2,), (4,), (Round(swap, rows, ((0,), (1,)) * 2 + ((2,), (3,))),)), OLD, NEW, ())


def test_a_mesh_in_another_order() -> None:
    """The same numbers of devices, numbered otherwise."""
    plan = es.optimize(lower(lambda u: u + jnp.roll(u, 1, 0), {"x": 4}, ((8,), (("x",),)), out=(("x",),)),
                       cost_model=WireBytes())
    there = on_mesh(plan.device_program, Mesh({"x": 4}, device_ids=[2, 0, 3, 1]))
    from eggshard.simulate.simulator import gather_from_devices, run, scatter_to_devices

    u = np.arange(8, dtype=np.float32)
    (made,) = run(there, [scatter_to_devices(there.mesh, u, plan.input_placements[0])])
    np.testing.assert_array_equal(
        gather_from_devices(there.mesh, made, (8,), plan.output_placements[0]), u + np.roll(u, 1)
    )


def lookup(table: Any, rows: Any) -> Any:
    return table.at[rows.astype("int32")].get(mode="clip")


def test_sizes_in_constants() -> None:
    """Where rows of a sharded table are looked up, indices are clamped by its size: more rows, another program."""
    arguments = (64, 4), (("x",), ())
    plan = es.optimize(lower(lookup, {"x": 2, "y": 2}, arguments, ((32,), (("y",),)), out=(("y",), ())),
                       cost_model=WireBytes())
    assert not plan.collectives.get("all-gather"), "the rows are looked up where they lie"
    with pytest.raises(LoweringError, match="by the size of all of it, which is sharded over x"):
        plan.on({"x": 4})
    more = lower(lookup, {"x": 2, "y": 4}, arguments, ((64,), (("y",),)), out=(("y",), ()))
    there = plan.on({"y": 4}, more)
    rng = np.random.default_rng(0)
    there.verify(engines=("numpy",), inputs=[
        rng.standard_normal((64, 4)).astype(np.float32), rng.integers(-3, 70, 64).astype(np.float32),
    ])


def authored(devices: int, numbered: bool = False) -> jax.stages.Lowered:
    mesh = placed({"x": devices}, (("x",),)).mesh

    def body(x: Any) -> Any:
        passed = lax.ppermute(x, "x", [(d, (d + 1) % devices) for d in range(devices)])
        return passed - lax.pmax(x, "x") + (lax.axis_index("x") if numbered else 0)

    function = jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    return lower(function, {"x": devices}, ((2 * devices,), (("x",),)))


def test_authored_programs() -> None:
    """What is written per device: permutes and reductions over an axis, but not the number of an axis's position."""
    there = es.optimize(authored(4), cost_model=WireBytes()).on(6)
    x = np.random.default_rng(0).standard_normal(12).astype(np.float32)
    want = np.roll(x, 2) - np.tile(x.reshape(6, 2).max(0), 6)
    np.testing.assert_allclose(there.run(x)[0], want, rtol=1e-6)
    with pytest.raises(LoweringError, match="how many there are"):
        es.optimize(authored(4, numbered=True), cost_model=WireBytes()).on(6)
