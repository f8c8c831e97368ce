"""Prices beside times that others measured: which of two ways is faster, and in which cases by how much more.

No GPU is needed: figures are quoted from where they were published.
"""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from eggshard.triton.frontend import load  # noqa: E402
from eggshard.triton.layout_costs import SM75, default_costs  # noqa: E402
from eggshard.triton.layouts.conversion import conversion  # noqa: E402
from eggshard.triton.layouts.counts import Counts  # noqa: E402
from eggshard.triton.layouts.encodings import read  # noqa: E402
from eggshard.triton.layouts.families import linear_layout  # noqa: E402
from eggshard.triton.layouts.machine import Machine  # noqa: E402
from eggshard.triton.layouts.reduction import Combination, reduction  # noqa: E402
from eggshard.triton.pricing import priced  # noqa: E402

#: triton-lang/triton#10360, comment of 2026-05-30, NVIDIA T4: conversions inside a warp that exchange so many register
#: bits with lane bits, of so many registers of 32 bits; by shuffles and through shared memory, ns.
EXCHANGES = [
    (1, 4, 0.197, 0.573), (1, 8, 0.152, 0.618), (1, 16, 0.318, 1.118), (1, 32, 0.645, 2.138), (1, 64, 1.509, 4.299),
    (2, 4, 0.183, 0.357), (2, 8, 0.339, 0.611), (2, 16, 0.678, 1.122),
]


def by_shuffles(exchanges: int, registers: int) -> Counts:
    """As Triton does it where one bit is exchanged, and would where two are (triton-lang/triton#7558)."""
    if exchanges == 1:
        return Counts(moves=1.5 * registers, shuffles=0.5 * registers)
    return Counts(moves=2 * exchanges * registers, shuffles=(1 - 0.5**exchanges) * registers)


def through_shared(registers: int) -> Counts:
    """Four registers at a time, one turn of the banks for each, and nothing but the warp to wait for."""
    return Counts(shared_stores=registers / 4, shared_loads=registers / 4, shared_store_wavefronts=registers,
                  shared_load_wavefronts=registers, warp_barriers=1)


@pytest.mark.parametrize("exchanges", [1, 2])
def test_those_are_the_counts_of_conversions(exchanges: int) -> None:
    """32 x 32 values of 32 bits on one warp: a thread has a column, and exchanges bits of the row for bits of it."""
    rows, columns = ([[n, 0] for n in (1, 2, 4, 8, 16)], [[0, n] for n in (1, 2, 4, 8, 16)])
    swapped = [rows[exchanges:] + columns[:exchanges], rows[:exchanges] + columns[exchanges:]]
    source, target = (
        linear_layout(read(f"#ttg.linear<{{register = {registers}, lane = {lanes}, warp = [], block = []}}>"), (32, 32))
        for registers, lanes in ((rows, columns), swapped))
    assert source is not None and target is not None
    counts = conversion(source, target, 32, Machine("cuda:75", 1)).counts
    if exchanges == 1:
        assert counts == by_shuffles(1, 32)
    else:
        assert counts._replace(scratch=0, takeovers=0, warp_barriers=1) == through_shared(32)


@pytest.mark.parametrize(("exchanges", "registers", "shuffles", "shared"), EXCHANGES)
def test_shuffles_beside_shared_memory(exchanges: int, registers: int, shuffles: float, shared: float) -> None:
    prices = [SM75.price(by_shuffles(exchanges, registers)), SM75.price(through_shared(registers))]
    assert prices[0] < prices[1]
    assert prices[0] / prices[1] == pytest.approx(shuffles / shared, rel=0.4)


def test_two_exchanges_gain_less_than_one() -> None:
    modelled = {(m, n): SM75.price(by_shuffles(m, n)) / SM75.price(through_shared(n)) for m, n, _, _ in EXCHANGES}
    assert all(modelled[1, n] < modelled[2, k] for m, n in modelled for _, k in modelled if (1, n) in modelled
               and (2, k) in modelled)


COLUMNS = """
#blocked = #ttg.blocked<{BLOCKED}>
#reduced = #ttg.blocked<{REDUCED}>
#row = #ttg.slice<{dim = 0, parent = #blocked}>
#column = #ttg.slice<{dim = 1, parent = #blocked}>
#sum = #ttg.slice<{dim = 0, parent = #reduced}>
module attributes {
    "ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:100", "ttg.threads-per-warp" = 32 : i32} {
  tt.func public @columns(%x: !tt.ptr<f32>, %out: !tt.ptr<f32>) {
    %width = arith.constant dense<32> : tensor<256x1xi32, #blocked>
    %m = tt.make_range {end = 256 : i32, start = 0 : i32} : tensor<256xi32, #column>
    %rows = tt.expand_dims %m {axis = 1 : i32} : tensor<256xi32, #column> -> tensor<256x1xi32, #blocked>
    %n = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32, #row>
    %columns = tt.expand_dims %n {axis = 0 : i32} : tensor<32xi32, #row> -> tensor<1x32xi32, #blocked>
    %starts = arith.muli %rows, %width : tensor<256x1xi32, #blocked>
    %s = tt.broadcast %starts : tensor<256x1xi32, #blocked> -> tensor<256x32xi32, #blocked>
    %c = tt.broadcast %columns : tensor<1x32xi32, #blocked> -> tensor<256x32xi32, #blocked>
    %offsets = arith.addi %s, %c : tensor<256x32xi32, #blocked>
    %base = tt.splat %x : !tt.ptr<f32> -> tensor<256x32x!tt.ptr<f32>, #blocked>
    %pointers = tt.addptr %base, %offsets : tensor<256x32x!tt.ptr<f32>, #blocked>, tensor<256x32xi32, #blocked>
    %given = tt.load %pointers : tensor<256x32x!tt.ptr<f32>, #blocked>
    %values = ttg.convert_layout %given : tensor<256x32xf32, #blocked> -> tensor<256x32xf32, #reduced>
    %sum = "tt.reduce"(%values) <{axis = 0 : i32}> ({
    ^bb0(%a: f32, %b: f32):
      %add = arith.addf %a, %b : f32
      tt.reduce.return %add : f32
    }) : (tensor<256x32xf32, #reduced>) -> tensor<32xf32, #sum>
    %to = tt.splat %out : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>, #sum>
    %at = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32, #sum>
    %p = tt.addptr %to, %at : tensor<32x!tt.ptr<f32>, #sum>, tensor<32xi32, #sum>
    tt.store %p, %sum : tensor<32x!tt.ptr<f32>, #sum>
    tt.return
  }
}
"""
#: As Triton loads it; and one column to a warp's lanes, as its sum is taken without shared memory.
LOADED = "{sizePerThread = [1, 4], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}"
COLUMN = "{sizePerThread = [8, 1], threadsPerWarp = [32, 1], warpsPerCTA = [1, 4], order = [1, 0]}"


def prices_of(loaded: str, reduced: str) -> dict[str, float]:
    """The modelled cycles of the load, the conversion and the sum of 256 rows of 32 numbers, by op."""
    kernel = load(COLUMNS.replace("{BLOCKED}", loaded).replace("{REDUCED}", reduced))
    model = default_costs("cuda:100")
    wanted = ("tt.load", "ttg.convert_layout", "tt.reduce")
    return {found.op.name: found.cost for found in priced(kernel, model) if found.op.name in wanted}


def test_a_conversion_is_cheaper_than_a_load_across_rows() -> None:
    """facebookexperimental/triton, bitequiv/experiments/m2_convert_removal, GB300: 2.65 times as fast."""
    converted, loaded = prices_of(LOADED, COLUMN), prices_of(COLUMN, COLUMN)
    assert sum(converted.values()) < sum(loaded.values())


def test_a_conversion_before_a_sum_in_a_fixed_order() -> None:
    """The same experiment: 1.74 times as fast as without, where the order of the sum is fixed (``inner_tree``). Then a
    thread may not add first what it has of a column, and each number is exchanged between lanes and warps. Sums whose
    order is free, which are all that the planner sees, are cheaper without the conversion."""
    converted, free = prices_of(LOADED, COLUMN), prices_of(LOADED, LOADED)
    # Per thread 64 numbers, exchanged with the 4 lanes of a column; then 16 partial sums of each of 32 columns, for
    # each of 4 warps, through shared memory; a fourth of them for each warp, exchanged with 4 lanes; and the results.
    fixed = Counts(
        (("float", 4 * (64 * 2 + 16 * 2 + 15)),), shuffles=4 * (64 * 2 + 16 * 2), shared_stores=4 * (16 + 4),
        shared_loads=4 * (16 + 16), shared_store_wavefronts=4 * (16 + 4), shared_load_wavefronts=4 * (16 + 16),
        barriers=3)
    ordered = default_costs("cuda:100").price(fixed)
    both = converted["ttg.convert_layout"] + converted["tt.reduce"]
    assert free["tt.reduce"] < both < ordered
    assert ordered / both == pytest.approx(1.74, rel=0.4)


#: triton-lang/triton#10853, RTX 5090: columns' maxima of a tile of 16-bit numbers as 32-bit ones, four warps; threads,
#: warps of rows where each thread loads 8 or 2 neighbours. By how much the second is faster, of 2048 x 2048.
MAXIMA = [
    ((16, 128), ((2, 16), (4, 1)), ((1, 32), (2, 2)), 0.349),
    ((32, 128), ((2, 16), (4, 1)), ((1, 32), (2, 2)), 0.155),
    ((64, 128), ((2, 16), (4, 1)), ((1, 32), (2, 2)), 0.062),
    ((32, 64), ((4, 8), (4, 1)), ((1, 32), (4, 1)), 0.277),
]


def maxima_of(shape: tuple[int, int], wide: int, threads: tuple[int, int], warps: tuple[int, int]) -> float:
    """The modelled cycles of loading a tile, so many neighbours to a thread, and of the maxima of its columns."""
    layout = linear_layout(read(
        f"#ttg.blocked<{{sizePerThread = [1, {wide}], threadsPerWarp = {list(threads)}, warpsPerCTA = {list(warps)}, "
        "order = [1, 0]}>"), shape)
    assert layout is not None
    loads = shape[0] * shape[1] / (32 * wide)
    loaded = Counts(global_loads=loads, global_lines=loads * max(1, 32 * wide * 2 // 128))
    reduced = reduction(layout, 0, Combination((32,)), Machine("cuda:120"))
    return default_costs("cuda:120").price(loaded.plus(reduced))


def test_narrower_loads_before_maxima_of_columns() -> None:
    gains = {shape: (maxima_of(shape, 8, *wide) - maxima_of(shape, 2, *narrow)) / (shape[0] * shape[1])
             for shape, wide, narrow, _ in MAXIMA}
    assert all(gain > 0 for gain in gains.values())
    assert gains[16, 128] > gains[32, 128] > gains[64, 128], "cycles per number, as measured"
