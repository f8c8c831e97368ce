"""Triton's pipeline run with a tap is Triton's pipeline; what a tap returns is what goes on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("triton")

from bench.programs.kernels import PROGRAMS, TARGETS, KernelProgram, variants  # noqa: E402

from eggshard.errors import ProgramError  # noqa: E402
from eggshard.triton.compiler.pipeline import Compilation, is_ours, tapped, target_of  # noqa: E402
from eggshard.triton.frontend import load  # noqa: E402
from eggshard.triton.frontend.libtriton import parse  # noqa: E402
from eggshard.triton.kernels.text import write_generic  # noqa: E402

QUICK = ("softmax", "gate", "broadcast_slices")
REMOVALS = 4


def program(name: str) -> KernelProgram:
    return next(p for p in PROGRAMS if p.name == name)


def final(of: KernelProgram, target: str, tap: Any = None) -> str:
    compilation = Compilation.of(target, of.options)
    return str(compilation.gpu_ir(compilation.tensor_ir(of.source()), tap))


def untapped(of: KernelProgram, target: str) -> str:
    """By the back end's own object, nothing of ours on the way but the options."""
    compilation = Compilation.of(target, of.options)
    module = compilation.tensor_ir(of.source())
    stages: dict[str, Any] = {}
    from triton.backends.compiler import Language

    compilation.backend.add_stages(stages, compilation.options, Language.TRITON)
    return str(stages["ttgir"](module, compilation.metadata))


def watch(positions: list[int]) -> Any:
    def tap(position: int, module: Any, remove: Any) -> Any:
        positions.append(position)
        remove(module)
        return module

    return tap


def assert_tapping_changes_nothing(of: KernelProgram, target: str) -> None:
    positions: list[int] = []
    assert final(of, target, watch(positions)) == untapped(of, target)
    assert positions == list(range(REMOVALS))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", QUICK)
def test_a_tap_that_only_watches_changes_nothing(name: str, target: str) -> None:
    assert_tapping_changes_nothing(program(name), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_tap_that_only_watches_changes_no_kernel(target: str) -> None:
    for of in [*PROGRAMS, *variants(1, 10)]:
        assert_tapping_changes_nothing(of, target)


def test_a_module_read_from_its_text_goes_on_in_place_of_the_given_one() -> None:
    def reread(position: int, module: Any, remove: Any) -> Any:
        text = write_generic(load(module))
        remove(module)
        again = parse(text, module.context)
        remove(again)
        return again

    assert final(program("gate"), "sm80", reread).count("convert_layout") == untapped(program("gate"), "sm80").count(
        "convert_layout")


def test_conversions_stay_where_the_tap_does_not_remove_them() -> None:
    kept = final(program("softmax"), "sm80", lambda position, module, remove: module)
    assert kept.count("convert_layout") > untapped(program("softmax"), "sm80").count("convert_layout")


def test_what_a_tap_raises_comes_out() -> None:
    def fail(position: int, module: Any, remove: Any) -> Any:
        raise ProgramError("no")

    with pytest.raises(ProgramError, match="no"):
        final(program("softmax"), "sm80", fail)


def test_compilations_at_once_do_not_meet() -> None:
    jobs = []
    for index in range(8):  # sources are parsed one by one: Python 3.11's parser is not safe in threads
        of = program(QUICK[index % 2])
        compilation = Compilation.of("sm80", of.options)
        jobs.append((index, compilation, compilation.tensor_ir(of.source())))

    def run(job: tuple[int, Compilation, Any]) -> tuple[str, list[int]]:
        index, compilation, module = job
        positions: list[int] = []
        return str(compilation.gpu_ir(module, watch(positions) if index % 3 else None)), positions

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(run, jobs))
    for index, (text, positions) in enumerate(found):
        assert text == untapped(program(QUICK[index % 2]), "sm80")
        assert positions == (list(range(REMOVALS)) if index % 3 else [])


def test_the_back_end_is_left_alone() -> None:
    backend = Compilation.of("sm80").backend
    ours = tapped(backend, watch([]))
    assert is_ours(ours) and not is_ours(backend)
    assert isinstance(ours, type(backend)) and ours.target == backend.target


def test_a_pipeline_of_another_design_runs_untapped() -> None:
    class Other:
        def make_ttgir(self, module: Any) -> str:
            return f"made {module}"

    positions: list[int] = []
    assert tapped(Other(), watch(positions)).make_ttgir("it") == "made it"
    assert positions == []


def test_targets_are_named() -> None:
    assert target_of("sm90").arch == 90
    assert target_of("gfx942").warp_size == 64
    assert target_of("gfx1100").warp_size == 32
    with pytest.raises(ProgramError, match="expected sm"):
        target_of("cuda")
