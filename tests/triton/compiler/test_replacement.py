"""Plans in place of Triton's removals: what is taken, what is refused, and that Triton goes on whatever happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton")

from tests.triton.compiler.installed import (  # noqa: E402
    Plan,
    broken,
    compiled,
    conversions,
    failing,
    last,
    lying,
    praising,
    program,
    same,
)
from triton.experimental import gluon  # noqa: E402
from triton.experimental.gluon import language as gl  # noqa: E402
from triton.experimental.gluon._runtime import GluonASTSource  # noqa: E402

import eggshard.triton as layouts  # noqa: E402
from eggshard.triton.compiler import choosing, replacement  # noqa: E402
from eggshard.triton.compiler.compilation import Compiled, lower  # noqa: E402
from eggshard.triton.compiler.pipeline import target_of  # noqa: E402
from eggshard.triton.kernels.ir import Kernel  # noqa: E402

pytestmark = pytest.mark.usefixtures("own_cache")


def test_an_equal_plan_leaves_tritons_module() -> None:
    with layouts.install(mode="after", planner=same):
        compiled()
    assert last().result == "equal" and last().kernel == "layer_norm" and last().target == "cuda:80"


def test_a_cheaper_plan_is_taken() -> None:
    with layouts.install(mode="after", planner=praising):
        compiled()
    assert last().result == "improved"
    assert last().cost is not None and last().given_cost is not None and last().cost < last().given_cost


def test_pipelines_without_removal_cost_more_and_are_not_taken() -> None:
    plain = compiled()
    with layouts.install(mode="replace", planner=lambda kernel, model: Plan(kernel, conversions(kernel), 0.5)):
        ours = compiled()
    assert last().result == "fallback" and last().reason.startswith("costs more")
    assert ours.asm["ttgir"] == plain.asm["ttgir"]


def test_code_with_more_barriers_is_not_taken() -> None:
    def liking_many(kernel: Kernel, cost_model: Any) -> Plan:
        return Plan(kernel, 0.0 if conversions(kernel) > 10 else 1.0, 1.0)

    plain = compiled()
    with layouts.install(mode="replace", planner=liking_many):
        ours = compiled()
    assert last().result == "fallback" and last().reason.startswith("more ")
    assert all(ours.asm[stage] == plain.asm[stage] for stage in ("ttgir", "ptx", "cubin"))
    code = [[line for line in one.asm["llir"].splitlines() if not line.startswith("!")] for one in (ours, plain)]
    assert code[0] == code[1], "what says where code comes from in the source may differ"


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[Compiled]:
    """What is assembled to be compared."""
    found: list[Compiled] = []
    monkeypatch.setattr(replacement, "lower", lambda *given: found.append(lower(*given)) or found[-1])
    return found


@pytest.mark.parametrize("target", ["sm80", "gfx942"])
def test_what_was_assembled_to_compare_is_what_a_compilation_ends_with(target: str, lowered: list[Compiled]) -> None:
    """A kernel that is planned, and the same text put through Triton's stages alone."""
    with layouts.install(mode="after", budget=100.0):
        ours = compiled("add_transposed", target)
    assert last().result == "improved" and len(lowered) == 2, "Triton's and ours"
    (tmp := Path(triton.knobs.cache.dir) / "planned.ttgir").write_text(ours.asm["ttgir"])
    alone = triton.compile(str(tmp), target=target_of(target), options=program("add_transposed").options)
    for stage in ("ptx",) if target == "sm80" else ("amdgcn",):
        assert without_lines(alone.asm[stage]) == without_lines(ours.asm[stage])
    assert alone.metadata.shared == ours.metadata.shared and alone.metadata.name == ours.metadata.name
    only = set(ours.metadata._fields) ^ set(alone.metadata._fields)
    assert only <= {"tensordesc_meta"}, "of the stage that makes TritonGPU IR"


def without_lines(text: str) -> list[str]:
    """Code without what says where it comes from in the source."""
    return [line.strip() for line in text.splitlines() if line.startswith("\t") and line[1:2].isalpha()]


@pytest.mark.slow
def test_of_plans_that_are_as_good_under_the_model_all_may_be_taken() -> None:
    """The cheapest plan after Triton's passes needs more shared memory; in place of its removals it does not."""
    with layouts.install(mode="after", budget=100.0):
        compiled("gate")
        after = last()
    with layouts.install(mode="replace"):
        compiled("gate")
    assert after.result == last().result == "improved"
    assert after.cost is not None and last().cost is not None and last().cost < after.cost < last().given_cost


def test_kernels_without_conversions_are_not_planned_after() -> None:
    with layouts.install(planner=failing):
        compiled("softmax")
    assert last().result == "equal" and last().seconds < 0.1


def test_what_gains_little_is_not_assembled(lowered: list[Compiled]) -> None:
    plain = compiled()
    with layouts.install(planner=lambda kernel, model: Plan(kernel, 0.998, 1.0)):
        ours = compiled()
    assert last().result == "equal" and len(lowered) == 1, "Triton's own, which the compilation ends with"
    assert ours.asm["cubin"] == plain.asm["cubin"] == lowered[0].stages["cubin"]


@gluon.jit
def own_layouts(x):  # type: ignore[no-untyped-def]
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    offsets = gl.arange(0, 128, layout)
    gl.store(x + offsets, gl.load(x + offsets) + 1.0)


def test_kernels_whose_layouts_are_their_authors_are_left() -> None:
    source = GluonASTSource(own_layouts, {"x": "*fp32"}, {})
    with layouts.install():
        triton.compile(source, target=target_of("sm80"))
    assert last().result == "equal" and last().reason.startswith("written in Gluon")


def test_a_budget_ends_the_search() -> None:
    with layouts.install(budget=0.0):
        compiled("add_transposed")
    assert last().result == "equal", "there is no time for a plan"
    with layouts.install(budget=100.0):
        compiled("add_transposed")
    assert last().result == "improved"


def test_what_does_not_fit_is_planned_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a block might have just less shared memory than Triton's kernel takes."""
    plain = compiled("broadcast_slices")
    limit = plain.metadata.shared - 1
    monkeypatch.setattr(choosing, "most_shared", lambda machine: limit)
    with layouts.install():
        ours = compiled("broadcast_slices")
    assert last().result == "improved" and ours.metadata.shared <= limit
    monkeypatch.setattr(choosing, "most_shared", lambda machine: -1)
    with layouts.install(budget=2.0):  # another key of Triton's cache
        ours = compiled("broadcast_slices")
    assert last().result == "fallback" and last().reason.startswith("more shared memory than a block may have")
    assert ours.asm["cubin"] == plain.asm["cubin"]


def test_configurations_with_the_same_kernel_share_a_plan() -> None:
    """Of those that an autotuner tries, some differ in what later stages do alone."""
    planned = []

    def counting(kernel: Kernel, cost_model: Any) -> Plan:
        planned.append(kernel)
        return same(kernel, cost_model)

    of = program("layer_norm")
    with layouts.install(planner=counting):
        for registers in (None, 64, 96):
            triton.compile(of.source(), target=target_of("sm80"), options={**of.options, "maxnreg": registers})
    assert len(planned) == 1


def test_what_triton_leaves_is_planned_where_replacing_fails() -> None:
    calls = []

    def once(kernel: Kernel, cost_model: Any) -> Plan:
        calls.append(kernel)
        return praising(kernel, cost_model) if len(calls) == 1 else failing(kernel, cost_model)

    with layouts.install(mode="replace", planner=once):
        compiled()
    assert last().result == "improved" and len(calls) > 1


FAILING = [(failing, "RuntimeError"), (broken, "does not verify"), (lying, "layouts do not line up")]


@pytest.mark.parametrize("mode", ["after", "replace"])
@pytest.mark.parametrize(("planner", "reason"), FAILING)
def test_what_goes_wrong_is_counted_and_triton_goes_on(planner: Any, reason: str, mode: Any) -> None:
    plain = compiled()
    before = layouts.statistics().fallbacks.get(reason, 0)
    with layouts.install(mode=mode, planner=planner):
        ours = compiled()
    assert ours.asm["ttgir"] == plain.asm["ttgir"]
    assert last().result == "fallback" and last().reason.startswith(reason)
    assert layouts.statistics().fallbacks[reason] == before + 1
