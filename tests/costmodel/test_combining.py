"""Models of models, prices of many steps at once, and what both say of a machine."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from eggshard.costmodel import (
    AlphaBeta,
    Combinable,
    CostModel,
    Messages,
    PerKind,
    StepColumns,
    StepInfo,
    WeightedSum,
    WireBytes,
    preset,
    presets,
    seconds_many,
)
from eggshard.costmodel.machines.machine import Protocol
from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.table import Table
from eggshard.errors import CostModelError
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.steps.steps import AllGather, AllToAll, CollectivePermute, ReduceScatter, Slice

MESH = Mesh({"x": 4, "y": 2})
TABLE = Table((("all-gather", 4, (1e3, 1e6), (1e-5, 1e-3)), ("all-gather", 8, (1e3,), (2e-5,))), AlphaBeta())
MODELS: list[CostModel] = [
    AlphaBeta(), AlphaBeta("torus"), AlphaBeta({"x": "ring"}), WireBytes(), Messages(), TABLE,
    0.7 * AlphaBeta() + 0.3 * WireBytes(), PerKind(AlphaBeta(), {"all-gather": WireBytes(), "dot_general": Messages()}),
    *map(preset, presets()),
    replace(preset("cpu-host"), protocols=(Protocol(memory=2e9, run=5e-9),)),
]


class Plain:
    """A user's model, without operators."""

    def seconds(self, step: StepInfo) -> float:
        return 2.0 + step.wire_bytes


@st.composite
def steps(draw) -> StepInfo:
    kind = draw(st.sampled_from(["local", "slice", "all-gather", "reduce-scatter", "all-reduce", "all-to-all",
                                 "collective-permute", "exchange", "halo-exchange"]))
    memory = draw(st.sampled_from([0.0, 1e2, 1e8]))
    if kind in ("local", "slice"):
        return StepInfo(kind, MESH, op=draw(st.sampled_from(["add", "dot_general"])) if kind == "local" else "",
                        flops=draw(st.sampled_from([0.0, 1e6])), memory_bytes=memory)
    axes = draw(st.sampled_from([("x",), ("y",), ("x", "y")]))
    copied = draw(st.sampled_from([(0.0, 0.0), (1e6, 1e2), (1e6, 1e5)]))
    messages = draw(st.integers(1, 5)) if kind in ("exchange", "halo-exchange") else 1
    return StepInfo(kind, MESH, axes=axes, group=MESH.count(axes), wire_bytes=draw(st.floats(1.0, 1e9)),
                    messages=messages, memory_bytes=memory,
                    hops=draw(st.sampled_from([0, messages, 3 * messages])) if kind == "halo-exchange" else 0,
                    copied_bytes=copied[0], runs=copied[1])


@given(st.sampled_from(MODELS), st.lists(steps(), min_size=1, max_size=12))
def test_many_prices_at_once_are_those_of_the_steps(model: CostModel, found: list[StepInfo]) -> None:
    columns = StepColumns.of(found)
    assert list(columns) == found
    np.testing.assert_allclose(seconds_many(model, columns), [model.seconds(s) for s in found], rtol=1e-12)
    np.testing.assert_array_equal(Pricer(model, MESH).many(columns), seconds_many(model, columns))


def test_models_add_up_with_their_weights() -> None:
    step = StepInfo("all-gather", MESH, axes=("x",), group=4, wire_bytes=10.0, messages=1)
    plain, time = Plain(), AlphaBeta()
    for model in (0.5 * time + plain, plain + time * 0.5, WeightedSum(((0.5, time), (1.0, plain)))):
        assert model.seconds(step) == pytest.approx(12.0 + 0.5 * time.seconds(step))
    assert (2 * (0.5 * time + plain)).seconds(step) == pytest.approx(24.0 + time.seconds(step))

    class Own(Combinable, Plain):
        pass

    assert (0.5 * Own()).seconds(step) == 6.0


def test_other_models_for_some_steps() -> None:
    model = PerKind(AlphaBeta(), {"all-gather": Plain(), "add": WireBytes()})
    assert model.seconds(StepInfo("all-gather", MESH, axes=("x",), group=4, wire_bytes=1.0, messages=1)) == 3.0
    add, other = (StepInfo("local", MESH, op=op, memory_bytes=1e9) for op in ("add", "multiply"))
    assert model.seconds(add) == WireBytes().seconds(add)
    assert model.seconds(other) == AlphaBeta().seconds(other)


def test_a_sum_hides_what_all_its_models_hide_and_holds_the_links_of_all() -> None:
    both = 0.5 * AlphaBeta(overlap=1.0) + AlphaBeta("ring", overlap=0.25)
    assert Pricer(both, MESH).overlap == 0.25
    assert Pricer(both, MESH).channels(("x",)) == ("switch", "x")
    assert Pricer(0.5 * AlphaBeta(overlap=1.0) + Plain(), MESH).overlap == 0.0
    assert Pricer(WeightedSum(((1.0, Plain()),)), MESH).channels(("x",)) == ("network",)


@pytest.mark.parametrize("make", [
    lambda: -1.0 * AlphaBeta(), lambda: float("nan") * AlphaBeta(), lambda: WeightedSum(((1.0, object()),)),
])
def test_impossible_sums_are_refused(make) -> None:
    with pytest.raises(CostModelError):
        make()
    with pytest.raises(TypeError):
        AlphaBeta() + 1  # type: ignore[operator]


@pytest.mark.parametrize(("answer", "message"), [
    (np.zeros(3), "shape"), (np.array([0.0, np.nan]), "finite"), (np.array([-1.0, 0.0]), "finite"), (None, "raised"),
])
def test_a_model_with_impossible_answers_is_named(answer: object, message: str) -> None:
    class Odd(Plain):
        def seconds_many(self, steps: StepColumns) -> object:
            if answer is None:
                raise KeyError("bandwidth")
            return answer

    pair = StepColumns.alike(StepInfo("local", MESH), memory_bytes=np.array([1.0, 2.0]))
    with pytest.raises(CostModelError, match=f"Odd.*{message}"):
        Pricer(Odd(), MESH).many(pair)


@pytest.mark.parametrize("model", [AlphaBeta(), AlphaBeta("torus"), *map(preset, presets())],
                         ids=lambda m: getattr(m, "name", ""))
@pytest.mark.parametrize("rows", [8, 64, 4096])
def test_no_way_round_is_cheaper_than_one_collective(model: CostModel, rows: int) -> None:
    """The triangle inequality, for what moves an axis from one dimension to another and what drops one."""
    price = Pricer(model, MESH)
    for axis, n in (("x", 4), ("y", 2)):
        local = TensorType((rows, rows), "f32")
        whole = TensorType((rows * n, rows), "f32")
        gather, moved = AllGather(((0, (axis,)),)), AllToAll(((1, (axis,)),), ((0, (axis,)),))
        direct = price(moved, local)
        through = price(AllGather(((1, (axis,)),)), local) + price(Slice(((0, (axis,)),)), local)
        assert direct <= through * (1 + 1e-9)
        scattered = price(ReduceScatter(((0, (axis,)),), "add"), whole)
        assert scattered <= price(gather, local) + scattered
    both, parts = AllGather(((0, ("x", "y")),)), [AllGather(((0, ("y",)),)), AllGather(((0, ("x",)),))]
    local = TensorType((rows, 64), "f32")
    grown = TensorType((2 * rows, 64), "f32")
    assert price(both, local) <= (price(parts[0], local) + price(parts[1], grown)) * (1 + 1e-9)
    shift = tuple((i, (i + 1) % 8) for i in range(8))
    twice = tuple((i, (i + 2) % 8) for i in range(8))
    assert price(CollectivePermute(twice, ("x", "y")), local) <= 2 * price(
        CollectivePermute(shift, ("x", "y")), local) * (1 + 1e-9)
