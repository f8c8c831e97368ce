"""Installed in Triton's compiler: for which kernels, under which key, and until when."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton")

from tests.triton.compiler.installed import Plan, compiled, failing, last, program, same  # noqa: E402

import eggshard.triton as layouts  # noqa: E402
from eggshard.errors import ProgramError  # noqa: E402
from eggshard.triton.compiler.pipeline import target_of  # noqa: E402
from eggshard.triton.kernels.ir import Kernel  # noqa: E402

pytestmark = pytest.mark.usefixtures("own_cache")


def from_file(path: Path) -> str:
    """The final TritonGPU IR of a file's."""
    return triton.compile(str(path), target=target_of("sm80")).asm["ttgir"]


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
