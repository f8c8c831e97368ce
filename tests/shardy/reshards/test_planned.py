"""Reshards planned for the whole program, beside those that jaxlib's pass decides on op by op."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from tests.shardy.reshards.generated import Module
from tests.shardy.reshards.odd import MODULES, TWO_MESHES
from tests.shardy.reshards.realised import FULL, NotInPlace, passed, realised
from tests.shardy.reshards.written import BRANCH, COMPARED, LOOP, PRODUCT
from tests.slowness import some

from eggshard import shardy
from eggshard.api import Plan
from eggshard.costmodel import Messages, WireBytes
from eggshard.costmodel.protocol import StepInfo
from eggshard.errors import EggshardError, EggshardWarning, ProgramError
from eggshard.limits import Limits
from eggshard.shardy.module import ShardyModule, create, parsed
from eggshard.shardy.passes import PASSES, Pass
from eggshard.shardy.reshards import planned as reshards
from eggshard.shardy.reshards.search.context import Context
from eggshard.shardy.reshards.search.op_by_op import keep_the_cheaper

PASS = "plan-explicit-reshards{cost-model=wire-bytes}"
KINDS: tuple[tuple[int, dict[str, Any]], ...] = (
    *((seed, {}) for seed in range(12)),
    *((seed, {"looks": True}) for seed in range(500, 512)),
    *((seed, {"nests": True}) for seed in range(700, 710)),
    *((seed, {"sub_axes": True}) for seed in range(100, 106)),
    *((seed, {"ops": 16}) for seed in range(200, 204)),
    *((seed, {"sizes": (5, 6, 8, 12)}) for seed in range(300, 308)),
    *((seed, {"sizes": (6, 12, 18), "meshes": ({"x": 2, "y": 3}, {"x": 6})}) for seed in range(400, 408)),
)


def planned(text: str) -> Plan:
    """Our plan, checked."""
    ours = shardy.transform(text, PASS)
    plan = realised(text, ours, planned=True)
    plan.verify(engines=("numpy",))
    assert passed(ours, FULL).count("sdy.reshard") == ours.count("sdy.reshard"), "jaxlib's pass would reshard more"
    return plan


def compared(text: str) -> tuple[Plan, Plan]:
    """Our plan and the peer's."""
    return planned(text), realised(text, passed(text, FULL))


@pytest.mark.parametrize("name", [name for name in COMPARED if name != "branch"])
def test_modules_by_hand_send_no_more_than_the_peers(name: str) -> None:
    text = COMPARED[name] if name == "unreduced" else passed(COMPARED[name], "sdy-propagation-pipeline")
    ours, theirs = compared(text)
    assert ours.wire_bytes <= theirs.wire_bytes


def assert_no_more(kinds: Sequence[tuple[int, dict[str, Any]]]) -> None:
    """Of nearly all: the peer leaves some uneven reshapes, and more shards than elements, for later passes."""
    read = 0
    for seed, kind in kinds:
        text = passed(Module(seed, **kind).text, "sdy-propagation-pipeline")
        ours = planned(text)
        try:
            theirs = realised(text, passed(text, FULL))
        except NotInPlace:
            continue
        read += 1
        assert ours.wire_bytes <= theirs.wire_bytes, f"{seed} {kind}\n{text}"
    assert read >= 0.9 * len(kinds)


@pytest.mark.parametrize("part", some(range(6), 1))
def test_random_modules_send_no_more_than_the_peers(part: int) -> None:
    assert_no_more(KINDS[part::6])


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 1300, 50))
def test_many_random_modules_send_no_more_than_the_peers(start: int) -> None:
    assert_no_more([(seed, KINDS[seed % len(KINDS)][1]) for seed in range(start, start + 50)])


@pytest.mark.parametrize(
    ("name", "bytes_", "peers"),
    [("sum", 458_752, 917_504), ("product", 1_605_632, 2_752_512), ("products", 7_340_032, 14_680_064)],
)
def test_bytes_of_the_compiled_program(name: str, bytes_: int, peers: int) -> None:
    text = passed(COMPARED[name], "sdy-propagation-pipeline")
    ours, theirs = compared(text)
    assert ours.compare_with_xla().plan.wire_bytes == bytes_
    assert theirs.wire_bytes == peers
    ours.verify()


def test_a_loop_takes_what_it_gathers_of_outer_values_gathered() -> None:
    text = passed(LOOP, "sdy-propagation-pipeline")
    ours, theirs = compared(text)
    assert (ours.collectives, theirs.collectives) == ({"all-gather": 1}, {"all-gather": 4})


def test_branches_return_what_their_op_is_stated_to_return() -> None:
    text = passed(BRANCH, "sdy-propagation-pipeline")
    realised(text, shardy.transform(text, PASS), planned=True).verify(engines=("numpy",))
    with pytest.raises(AssertionError, match="results lie at"):  # jaxlib returns rows where columns are stated
        realised(text, passed(text, FULL))


@pytest.mark.parametrize("name", list(MODULES))
def test_modules_of_all_kinds_go_through(name: str) -> None:
    text = shardy.transform(MODULES[name], PASS)
    assert shardy.transform(text, PASS) == text, "planned again, a plan stays as it is"


def test_partial_sums_of_calls_results_and_outer_shardings_stay_as_stated() -> None:
    text = shardy.transform(MODULES["calls"], PASS)
    assert text.count("sdy.reshard") == 3
    assert "sdy" not in shardy.transform(MODULES["no mesh"], PASS)


def test_what_has_no_placements_on_one_mesh_is_refused_or_left_to_the_peers_decision() -> None:
    if "insert-explicit-reshards" not in PASSES:
        with pytest.raises(EggshardError, match="two different meshes"):
            shardy.transform(TWO_MESHES, PASS)
    with pytest.raises(EggshardError, match="there is no cost model 'weight'"):
        shardy.transform(LOOP, PASS.replace("wire-bytes", "weight"))


def test_the_decision_for_each_op_stands_in_where_it_sends_less_and_is_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    def decided(module: ShardyModule, **_: Any) -> None:  # gathers one operand; the other reshards nothing at all
        for op in module.walk("stablehlo.dot_general"):
            if sound:
                reshard(op, 1)
            module.set_sharding(op.results[0], module.sharding(op.operands[0]))

    def reshard(op: Any, number: int) -> None:
        whole = {"sharding": "#sdy.sharding<@mesh, [{}, {}]>"}
        operand = op.operands[number]
        op.operands[number] = create("sdy.reshard", [operand], [operand.type], whole, op).results[0]

    monkeypatch.setitem(PASSES, "insert-explicit-reshards", Pass("insert-explicit-reshards", decided, "func.func"))
    for sound in (True, False):
        with parsed(PRODUCT) as module:
            context, original = Context(module, WireBytes(), Limits()), module.text()
            (dot,) = module.walk("stablehlo.dot_general")
            reshard(dot, 0)
            reshard(dot, 1)
            keep_the_cheaper(module, original, context)
            assert module.text().count("sdy.reshard") == (1 if sound else 2)
    assert "decided on op by op" in _warning(TWO_MESHES)


@pytest.mark.parametrize("axes", range(2, 8))
def test_what_needs_no_reshard_has_none_on_whatever_mesh(axes: int) -> None:
    names, cut = ", ".join(f'"{a}"=2' for a in "abcdefg"[:axes]), '<@mesh, [{"b"}, {"a"}]>'
    text = f"""sdy.mesh @mesh = <[{names}]>
      func.func @main(%x: tensor<32x32xf32> {{sdy.sharding = #sdy.sharding{cut}}}) -> (
          tensor<32x32xf32> {{sdy.sharding = #sdy.sharding{cut}}}) {{
        %0 = stablehlo.add %x, %x {{sdy.sharding = #sdy.sharding_per_value<[{cut}]>}} : tensor<32x32xf32>
        return %0 : tensor<32x32xf32>
      }}"""
    assert "sdy.reshard" not in shardy.transform(text, PASS)


def test_the_clock_only_ends_a_search_and_a_warning_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = shardy.transform(PRODUCT, PASS)
    real, began = time.monotonic, time.monotonic()
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: began + 5 * (real() - began))
        assert shardy.transform(PRODUCT, PASS) == usual
    monkeypatch.setattr(reshards, "Limits", lambda: Limits(seconds=0))
    assert "the clock ended" in _warning(PRODUCT)


def _warning(text: str) -> str:
    with pytest.warns(EggshardWarning) as caught:
        shardy.transform(text, PASS)
    return str(caught[0].message)


def test_cost_models_by_name() -> None:
    text = passed(COMPARED["product"], "sdy-propagation-pipeline")
    assert shardy.transform(text, PASS.replace("wire-bytes", "messages")).count("sdy.reshard") == 1


@dataclass(frozen=True)
class PerCollective:
    """Every collective costs as much as another."""

    def seconds(self, step: StepInfo) -> float:
        return 1.0 if step.wire_bytes else 0.0


def test_cost_models_from_python() -> None:
    """As objects or by name, of the pass that plans and of the mode."""
    text = passed(COMPARED["product"], "sdy-propagation-pipeline")
    by_name = shardy.transform(text, PASS.replace("wire-bytes", "messages"))
    for model in ("messages", Messages()):
        for program in (
            shardy.plan_explicit_reshards(text, cost_model=model),
            shardy.insert_explicit_reshards(text, mode="global", cost_model=model),
        ):
            assert program.text == by_name
    assert shardy.plan_explicit_reshards(text, cost_model=PerCollective()).text.count("sdy.reshard") == 1


def test_what_is_no_cost_model_and_modes_without_one_are_refused() -> None:
    text = passed(COMPARED["product"], "sdy-propagation-pipeline")
    for model in ("bytes", 1.5):
        with pytest.raises(ProgramError, match="there is no cost model"):
            shardy.insert_explicit_reshards(text, mode="global", cost_model=model)
    with pytest.raises(ProgramError, match="give one with mode=global"):
        shardy.insert_explicit_reshards(text, cost_model=Messages())
    with pytest.raises(ProgramError, match="option enable-full-version of pass insert-explicit-reshards is bool"):
        shardy.insert_explicit_reshards(text, enable_full_version=Messages())
    with pytest.raises(ProgramError, match="has no option 'model'"):
        shardy.insert_explicit_reshards(text, model=Messages())
