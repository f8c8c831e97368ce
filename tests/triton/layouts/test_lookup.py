"""Look-ups and histograms: predicted counts agree with the code that Triton compiles."""

from __future__ import annotations

import re

import pytest
from tests.triton.layouts.assembled import assemble, consumed_values, kernel_text, opaque_values, width_of
from tests.triton.layouts.random_encodings import Draw

from eggshard.errors import ProgramError
from eggshard.triton.layouts.encodings import read
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.linear import LinearLayout
from eggshard.triton.layouts.lookup import gather, histogram
from eggshard.triton.layouts.machine import Machine

pytest.importorskip("triton")


def gather_kernel(
    shape: tuple[int, ...], wanted: tuple[int, ...], element: str, source: str, target: str, axis: int,
    machine: Machine,
) -> str:
    dims, outer = ("".join(f"{n}x" for n in sizes) for sizes in (shape, wanted))
    result = f"tensor<{outer}{element}, {target}>"
    return kernel_text([
        *opaque_values(dims, element, source, "in", machine)[1],
        *opaque_values(outer, "i32", target, "at", machine)[1],
        f'%out = "tt.gather"(%in, %at) <{{axis = {axis} : i32}}> : (tensor<{dims}{element}, {source}>, '
        f"tensor<{outer}i32, {target}>) -> {result}",
        *consumed_values(outer, element, target, "out", machine),
    ], machine)


def disagreements(seed: int, count: int) -> list[str]:
    draw, found, compared = Draw(seed), [], 0
    while compared < count:
        machine, shape = draw.machine(("cuda",)), draw.shape((8, 6, 4))
        axis = draw.random.randrange(len(shape))
        wanted = tuple(draw.power(0, 6) if d == axis else n for d, n in enumerate(shape))
        element = draw.random.choice(["i8", "f16", "f32", "i64"])
        source, target = draw.encoding(len(shape), machine), draw.encoding(len(shape), machine)
        target = source if draw.random.random() < 0.5 else target
        layouts = linear_layout(read(source), shape), linear_layout(read(target), wanted)
        if layouts[0] is None or layouts[1] is None or any(n is None or n.elements_per_thread > 64 for n in layouts):
            continue
        try:
            code = assemble(gather_kernel(shape, wanted, element, source, target, axis, machine), machine)
        except (ProgramError, RuntimeError):
            continue
        compared += 1
        counts, warps = gather(layouts[0], layouts[1], axis, width_of(element), machine), machine.num_warps
        predicted = (counts.shuffles / warps, counts.shared_stores / warps, counts.shared_loads / warps,
                     counts.barriers, counts.warp_barriers / warps, counts.scratch)
        if predicted != code[:6]:
            found.append(f"{shape} {wanted} axis {axis} {element} {machine} {source} {target}: "
                         f"{predicted}, compiled {code[:6]}")
    return found


def test_random_lookups_are_compiled_as_predicted() -> None:
    assert disagreements(1, 16) == []


@pytest.mark.slow
def test_many_random_lookups_are_compiled_as_predicted() -> None:
    assert disagreements(2, 150) == []


def test_a_lookup_within_warps_needs_no_shared_memory() -> None:
    table = LinearLayout.of((128, 4), [(1, 0)], [(2 << i, 0) for i in range(5)], [(64, 0), (0, 0)])
    within = LinearLayout.of((64, 4), [(1, 0)], [(2 << i, 0) for i in range(5)], [(0, 1), (0, 2)])
    assert gather(table, table, 0, 32, Machine("cuda:80")).shared_loads > 0
    assert gather(within, within, 0, 32, Machine("cuda:80")).shared_loads == 0


def test_a_histogram_clears_adds_and_reads() -> None:
    machine = Machine("cuda:80")
    encoding = "#ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"
    layouts = [linear_layout(read(encoding), (n,)) for n in (1024, 256)]
    assert layouts[0] is not None and layouts[1] is not None
    counts = histogram(layouts[0], layouts[1], 32, machine)
    code = assemble(kernel_text([
        *opaque_values("1024x", "i32", encoding, "in", machine)[1],
        f"%out = tt.histogram %in : tensor<1024xi32, {encoding}> -> tensor<256xi32, {encoding}>",
        *consumed_values("256x", "i32", encoding, "out", machine),
    ], machine), machine)
    atomics = len(re.findall(r"\b(?:atom|red)\.\S*shared", code.text))
    assert counts.shared_stores / 4 == code.shared_stores + atomics
    assert (counts.shared_loads / 4, counts.barriers, counts.scratch) == (
        code.shared_loads, code.barriers, code.scratch)
