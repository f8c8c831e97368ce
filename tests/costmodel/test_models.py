"""Cost models: formulas, limits, monotony, and what a bad model is told."""

import math

import pytest

from eggshard.costmodel import AlphaBeta, CostModel, Messages, StepInfo, WireBytes, preset, presets
from eggshard.costmodel.pricing import Pricer
from eggshard.errors import CostModelError
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.steps.steps import AllGather, AllReduce, AllToAll, CollectivePermute, ReduceScatter, Slice

MESH = Mesh({"x": 4, "y": 2})
LOCAL = TensorType((1024, 1024), "f32")
COLLECTIVES = [
    AllGather(((0, ("x",)),)), ReduceScatter(((0, ("x",)),), "add"), AllReduce(("x",), "add"),
    AllToAll(((1, ("x",)),), ((0, ("x",)),)), CollectivePermute(tuple((i, (i + 1) % 8) for i in range(8)), ("x", "y")),
]
MODELS = [WireBytes(), Messages(), AlphaBeta(), AlphaBeta("torus"), *map(preset, presets())]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: getattr(m, "name", type(m).__name__))
@pytest.mark.parametrize("action", COLLECTIVES, ids=lambda a: a.kind)
def test_more_bytes_never_cost_less(model: CostModel, action) -> None:
    price = Pricer(model, MESH)
    prices = [price(action, TensorType((n, 1024), "f32")) for n in (4, 64, 1024, 4096)]
    assert prices == sorted(prices)
    assert prices[0] > 0


@pytest.mark.parametrize("model", MODELS, ids=lambda m: getattr(m, "name", type(m).__name__))
def test_one_collective_is_not_dearer_than_its_two_halves(model: CostModel) -> None:
    price = Pricer(model, MESH)
    whole = price(AllReduce(("x",), "add"), LOCAL)
    parts = price(ReduceScatter(((0, ("x",)),), "add"), LOCAL) + price(
        AllGather(((0, ("x",)),)), TensorType((256, 1024), "f32"))
    assert whole <= parts * (1 + 1e-9)


def test_wire_bytes_puts_bytes_before_messages_before_compute() -> None:
    model = WireBytes()
    one_byte = model.seconds(StepInfo("all-gather", MESH, wire_bytes=1))
    assert one_byte > 100 * model.seconds(StepInfo("all-gather", MESH, messages=1))
    message = model.seconds(StepInfo("all-gather", MESH, messages=1))
    assert message > model.seconds(StepInfo("local", MESH, flops=1e6, memory_bytes=1e6))


def test_messages_counts_collectives_first() -> None:
    model = Messages()
    assert model.seconds(StepInfo("all-gather", MESH, messages=2, wire_bytes=1)) > model.seconds(
        StepInfo("all-gather", MESH, messages=1, wire_bytes=1e9))


def test_ring_all_gather_formula() -> None:
    model = AlphaBeta("ring", launch=0.0, latency=1e-6, bandwidth=1e9)
    step = StepInfo("all-gather", MESH, axes=("x",), group=4, wire_bytes=3e6, messages=1)
    assert model.seconds(step) == pytest.approx(3e-6 + 3e6 / 2e9)


def test_ring_all_to_all_is_a_quarter_of_the_all_gather() -> None:
    """Scaling-book, sharding chapter: V/(4 W) against V/W for large arrays on a bidirectional ring."""
    mesh = Mesh({"x": 16})
    model = AlphaBeta("ring", launch=0.0, latency=0.0, bandwidth=1e9)
    price = Pricer(model, mesh)
    local = TensorType((1024, 1024), "f32")
    gather, exchange = price(AllGather(((0, ("x",)),)), local), price(AllToAll(((1, ("x",)),), ((0, ("x",)),)), local)
    assert gather / exchange == pytest.approx(4 * 15 / 16)


def test_a_slice_costs_no_communication() -> None:
    price = Pricer(AlphaBeta(), MESH)
    assert price(Slice(((0, ("x",)),)), LOCAL) < price(AllGather(((0, ("x",)),)), LOCAL)


@pytest.mark.parametrize("answer", [math.nan, -1.0, math.inf, "dear"])
def test_a_model_with_an_impossible_answer_is_named(answer: object) -> None:
    class Odd:
        def seconds(self, step: StepInfo) -> object:
            return answer

    with pytest.raises(CostModelError, match="Odd"):
        Pricer(Odd(), MESH)(AllReduce(("x",), "add"), LOCAL)


def test_a_model_that_raises_is_named() -> None:
    class Broken:
        def seconds(self, step: StepInfo) -> float:
            raise KeyError("bandwidth")

    with pytest.raises(CostModelError, match="Broken raised KeyError"):
        Pricer(Broken(), MESH)(AllReduce(("x",), "add"), LOCAL)


def test_something_without_the_method_is_refused() -> None:
    with pytest.raises(CostModelError, match="seconds"):
        Pricer(object(), MESH)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"bandwidth": 0.0}, {"latency": -1.0}, {"topology": "mobius"}])
def test_bad_constants_are_refused(change: dict) -> None:
    with pytest.raises(CostModelError):
        AlphaBeta(**change)


def test_unknown_preset_lists_the_known() -> None:
    with pytest.raises(CostModelError, match="tpu-v5e"):
        AlphaBeta.preset("abacus")


def test_collectives_hold_the_links_of_their_axes() -> None:
    """One port into a switch; on rings and tori each axis has links of its own, its sub-axes the same ones."""
    mixed = AlphaBeta({"x": "ring", "y": "switch", "z": "switch"})
    assert mixed.channels(("x",)) == ("x",) and mixed.channels(("x:(1)2", "x:(2)2")) == ("x",)
    assert mixed.channels(("y", "z")) == ("switch",) and mixed.channels(("x", "z")) == ("x", "switch")


@pytest.mark.parametrize("model", MODELS, ids=lambda m: getattr(m, "name", type(m).__name__))
def test_steps_add_up_unless_a_model_says_otherwise(model: CostModel) -> None:
    assert Pricer(model, MESH).overlap == 0.0
    assert Pricer(AlphaBeta(overlap=True), MESH).overlap == 1.0
