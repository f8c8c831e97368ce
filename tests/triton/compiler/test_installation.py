"""Installed in Triton's compiler: what it takes, what it refuses, and that Triton goes on whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton")

from bench.programs.kernels import PROGRAMS, KernelProgram  # noqa: E402
from triton.experimental import gluon  # noqa: E402
from triton.experimental.gluon import language as gl  # noqa: E402
from triton.experimental.gluon._runtime import GluonASTSource  # noqa: E402

import eggshard.triton as layouts  # noqa: E402
from eggshard.errors import ProgramError  # noqa: E402
from eggshard.triton.compiler import choosing, replacement  # noqa: E402
from eggshard.triton.compiler.compilation import Compiled, lower  # noqa: E402
from eggshard.triton.compiler.pipeline import target_of  # noqa: E402
from eggshard.triton.compiler.replacement import _remembered  # noqa: E402
from eggshard.triton.kernels.ir import Kernel  # noqa: E402


@dataclass
class Plan:
    kernel: Kernel
    cost: float
    given_cost: float


def same(kernel: Kernel, cost_model: Any) -> Plan:
    """A planner that finds nothing."""
    return Plan(kernel, 1.0, 1.0)


def conversions(kernel: Kernel) -> float:
    return float(sum(op.name == "ttg.convert_layout" for op in kernel.walk()))


def praising(kernel: Kernel, cost_model: Any) -> Plan:
    """A planner that says of the same kernel that it costs less."""
    return Plan(kernel, conversions(kernel) - 0.5, conversions(kernel))


def failing(kernel: Kernel, cost_model: Any) -> Plan:
    raise RuntimeError("no plan")


def broken(kernel: Kernel, cost_model: Any) -> Plan:
    """A planner whose result does not verify: it holds ops that there are not."""
    for op in kernel.walk():
        if op.name == "arith.addf":
            op.name = "arith.add_somehow"
    return Plan(kernel, 0.0, 1.0)


def lying(kernel: Kernel, cost_model: Any) -> Plan:
    """A planner that changes results' encodings and nothing else."""
    for op in kernel.walk():
        for value in op.results:
            if value.tensor is not None and op.name == "arith.addf":
                other = "#ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"
                value.type = value.tensor._replace(encoding=other)
    return Plan(kernel, 0.0, 1.0)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    yield
    layouts.uninstall()
    assert triton.knobs.runtime.add_stages_inspection_hook is None
    _remembered.clear()


def program(name: str) -> KernelProgram:
    return next(p for p in PROGRAMS if p.name == name)


def compiled(name: str = "layer_norm", target: str = "sm80") -> Any:
    of = program(name)
    return triton.compile(of.source(), target=target_of(target), options=of.options)


def from_file(path: Path) -> str:
    """The final TritonGPU IR of a file's."""
    return triton.compile(str(path), target=target_of("sm80")).asm["ttgir"]


def last() -> layouts.Outcome:
    return layouts.statistics().outcomes[-1]


def test_keys_of_the_cache_differ_and_nothing_else() -> None:
    plain = compiled()
    before = layouts.statistics().compilations
    with layouts.install(mode="after", planner=same):
        ours = compiled()
        assert layouts.statistics().compilations == before + 1
        assert compiled().hash == ours.hash
        assert layouts.statistics().compilations == before + 1, "the second comes from Triton's cache"
    with layouts.install(mode="replace", planner=same):
        third = compiled()
    assert len({plain.hash, ours.hash, third.hash}) == 3
    assert plain.asm["ttgir"] == ours.asm["ttgir"] == third.asm["ttgir"]
    assert plain.asm["cubin"] == ours.asm["cubin"]
    assert compiled().hash == plain.hash


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


def test_only_the_named_kernels_are_planned() -> None:
    before = layouts.statistics().compilations
    with layouts.install([program("softmax").function], mode="after", planner=same):
        compiled("broadcast_slices")
        assert layouts.statistics().compilations == before
        compiled("softmax")
        assert layouts.statistics().compilations == before + 1


def test_a_text_is_planned_once() -> None:
    calls = []

    def counted(kernel: Kernel, cost_model: Any) -> Plan:
        calls.append(kernel)
        return same(kernel, cost_model)

    with layouts.install(mode="after", planner=counted):
        compiled()
        triton.knobs.compilation.always_compile = True
        try:
            compiled()
        finally:
            triton.knobs.compilation.always_compile = False
    assert len(calls) == 1


def test_the_last_installation_is_in_force_and_the_one_before_it_after() -> None:
    with layouts.install(mode="after", planner=failing):
        with layouts.install(mode="after", planner=same):
            compiled()
            assert last().result == "equal"
        compiled()
        assert last().result == "fallback"


def test_a_hook_that_was_there_is_kept() -> None:
    seen = []

    def theirs(backend: Any = None, *rest: Any) -> Any:
        if backend is None:
            return "theirs", "theirs"
        seen.append(backend)
        return None

    triton.knobs.runtime.add_stages_inspection_hook = theirs
    try:
        plain = compiled("softmax")
        with layouts.install(mode="after", planner=same) as installed:
            assert installed()[0].startswith("theirseggshard")
            assert compiled("softmax").hash != plain.hash
        assert triton.knobs.runtime.add_stages_inspection_hook is theirs
        assert len(seen) == 2
    finally:
        triton.knobs.runtime.add_stages_inspection_hook = None


def test_a_hook_set_on_top_keeps_working_after_the_end() -> None:
    installed = layouts.install(mode="after", planner=failing)

    def on_top(*arguments: Any) -> Any:
        return installed(*arguments)

    triton.knobs.runtime.add_stages_inspection_hook = on_top
    try:
        layouts.uninstall()
        before = layouts.statistics().compilations
        compiled("softmax")
        with layouts.install(mode="after", planner=same):
            compiled("softmax")
        assert triton.knobs.runtime.add_stages_inspection_hook is on_top
        assert layouts.statistics().compilations == before + 1 and last().result == "equal"
    finally:
        triton.knobs.runtime.add_stages_inspection_hook = None


def test_the_key_says_what_is_planned_with_what() -> None:
    keys = []
    different = (
        {}, {"kernels": ["softmax"]}, {"mode": "replace"}, {"cost_model": (1, 2)}, {"planner": same},
        {"budget": 1.0})
    for options in different:
        with layouts.install(**options) as installed:
            keys.append(installed()[0])
    assert len(set(keys)) == len(keys)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ProgramError, match="expected one of"):
        layouts.install(mode="before")
    with pytest.raises(ProgramError, match="repr"):
        layouts.install(cost_model=object())
    with pytest.raises(ProgramError, match="budget -1"):
        layouts.install(budget=-1)
    with pytest.raises(ProgramError, match="several names"):
        layouts.install("softmax")
    with pytest.raises(ProgramError, match="expected a name"):
        layouts.install([3])
    layouts.uninstall()


class NoDevice:
    """A driver of a device that is not there: kernels are compiled and not run."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        return target_of("sm80")


def test_kernels_launched_before_are_not_taken_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime.driver import driver
    from triton.runtime.jit import MockTensor

    monkeypatch.setattr(driver, "_active", NoDevice())
    pointer = MockTensor(triton.language.float16)
    of = program("softmax").function

    def launched() -> Any:
        return of.warmup(pointer, pointer, 1000, 1024, B=1024, grid=(1,))

    plain = launched()
    with layouts.install(mode="after", planner=same):
        ours = launched()
        assert ours is launched()
    assert launched() is plain is not ours
    assert last().result == "equal" and last().kernel == "softmax"


def test_threads_compile_at_once_as_one_after_the_other(tmp_path: Path) -> None:
    names = ("softmax", "broadcast_slices", "layer_norm", "used_after_loop")
    plain = {}
    for name in names:  # from files: Python 3.11's parser is not safe in threads
        (tmp_path / f"{name}.ttir").write_text(compiled(name).asm["ttir"])
        plain[name] = from_file(tmp_path / f"{name}.ttir")
    threads = set()

    def watched(kernel: Kernel, cost_model: Any) -> Plan:
        threads.add(threading.get_ident())
        return same(kernel, cost_model)

    with layouts.install(mode="replace", planner=watched), ThreadPoolExecutor(4) as pool:
        texts = pool.map(lambda name: from_file(tmp_path / f"{name}.ttir"), names)
        found = dict(zip(names, texts, strict=True))
    assert found == plain
    assert threads
