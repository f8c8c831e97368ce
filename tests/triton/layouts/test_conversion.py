"""Conversions: predicted category and counts agree with the code that Triton compiles."""

from __future__ import annotations

import pytest
from tests.triton.layouts.assembled import Assembled, assemble, conversion_kernel, width_of
from tests.triton.layouts.random_encodings import Draw

from eggshard.errors import ProgramError
from eggshard.triton.layouts.conversion import Conversion, conversion
from eggshard.triton.layouts.counts import NOTHING
from eggshard.triton.layouts.encodings import read
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.linear import LinearLayout
from eggshard.triton.layouts.machine import Machine

pytest.importorskip("triton")

ELEMENTS = ("i1", "i8", "f16", "f16", "f32", "f32", "i64", "!tt.ptr<f32>")


def category(code: Assembled) -> str:
    if code.shared_loads:
        return "shared"
    return "shuffles" if code.shuffles else "none"


def seen(found: Conversion, machine: Machine) -> tuple[object, ...]:
    """A prediction as it shows in the code of one warp."""
    counts, warps = found.counts, machine.num_warps
    return (
        found.category if found.category != "registers" else "none", counts.shuffles / warps,
        counts.shared_stores / warps, counts.shared_loads / warps, counts.barriers, counts.warp_barriers / warps,
        counts.scratch)


def disagreements(seed: int, count: int, vendors: tuple[str, ...]) -> list[str]:
    """Random conversions that are not compiled as they are predicted."""
    draw, found, compared = Draw(seed), [], 0
    while compared < count:
        machine, shape = draw.machine(vendors), draw.shape()
        element = draw.random.choice(ELEMENTS)
        source, target = (draw.encoding(len(shape), machine, linear=True) for _ in range(2))
        layouts = [linear_layout(read(text), shape) for text in (source, target)]
        if layouts[0] is None or layouts[1] is None or layouts[0] == layouts[1]:
            continue
        if max(layout.elements_per_thread for layout in layouts if layout is not None) > 256:
            continue
        try:
            code = assemble(conversion_kernel(shape, element, source, target, machine), machine)
        except (ProgramError, RuntimeError):
            continue  # not types: libtriton refuses them
        compared += 1
        predicted = seen(conversion(layouts[0], layouts[1], width_of(element), machine), machine)
        if predicted != (category(code), *code[:6]):
            found.append(f"{shape} {element} {machine} {source} -> {target}: {predicted}, compiled {code[:6]}")
    return found


def test_random_conversions_are_compiled_as_predicted() -> None:
    assert disagreements(1, 24, ("cuda", "cuda", "hip")) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_many_random_conversions_are_compiled_as_predicted(seed: int) -> None:
    assert disagreements(seed, 300, ("cuda", "cuda", "hip")) == []


ROWS = "#ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>"
COLUMNS = "#ttg.blocked<{sizePerThread = [4, 1], threadsPerWarp = [8, 4], warpsPerCTA = [1, 4], order = [0, 1]}>"
FRAGMENT = "#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], instrShape = [16, 8]}>"


def layout(encoding: str, shape: tuple[int, ...]) -> LinearLayout:
    found = linear_layout(read(encoding), shape)
    assert found is not None
    return found


def test_a_layout_converts_to_itself_for_nothing() -> None:
    rows = layout(ROWS, (64, 64))
    assert conversion(rows, rows, 16, Machine("cuda:80")) == Conversion("none", NOTHING)


def test_a_conversion_with_fewer_repetitions_needs_more_memory() -> None:
    fragment = layout(FRAGMENT, (64, 64))
    for machine in (Machine("cuda:80"), Machine("cuda:90")):
        for other in (layout(ROWS, (64, 64)), layout(COLUMNS, (64, 64))):
            for bits in (8, 16, 32):
                found = conversion(fragment, other, bits, machine)
                assert found.category == "shared"
                assert found.counts.scratch * found.repetitions == 64 * 64 * bits // 8
                assert found.counts.barriers == 2 * found.repetitions - 1


def test_wavefronts_are_at_least_the_bytes_that_move() -> None:
    rows, columns = layout(ROWS, (64, 64)), layout(COLUMNS, (64, 64))
    for bits in (8, 16, 32):
        counts = conversion(rows, columns, bits, Machine("cuda:80")).counts
        least = 64 * 64 * bits / 8 / 128
        assert counts.shared_store_wavefronts >= least and counts.shared_load_wavefronts >= least


def test_registers_that_change_places_cost_nothing_unless_parts_of_words_move() -> None:
    rows = layout(ROWS, (64, 64))
    swapped = rows._replace(register=rows.register[::-1])
    assert conversion(rows, swapped, 32, Machine("cuda:80")) == Conversion("registers", NOTHING)
    assert conversion(rows, swapped, 16, Machine("cuda:80")).counts.moves > 0
