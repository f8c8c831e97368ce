"""Test files of Triton's kind, cut into modules and judged."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton")

from bench import triton_lit
from rich.console import Console

from eggshard.errors import ProgramError

LAYOUTS = """
#one = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#two = #ttg.blocked<{sizePerThread = [2], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
"""
FILE = f"""// RUN: tool %s
{LAYOUTS}
module attributes {{"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, "ttg.threads-per-warp" = 32 : i32}} {{
  tt.func @kept(%a: tensor<256xf32, #one>) -> tensor<256xf32, #two> {{
    %b = ttg.convert_layout %a : tensor<256xf32, #one> -> tensor<256xf32, #two>
    tt.return %b : tensor<256xf32, #two>
  }}
}}
// -----
module attributes {{"ttg.num-warps" = 4 : i32}} {{
  tt.func @nothing(%n: i32) {{
    tt.return
  }}
}}
// -----
module {{ no module }}
"""


def test_modules_are_judged(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "some.mlir").write_text(FILE)
    good, records = triton_lit.run(Console(quiet=True), tmp_path)
    assert good and [r["name"] for r in records] == [f"some.mlir:{i}" for i in range(3)]
    assert [r["outcome"] for r in records] == ["equal", "no layouts", "unread"]
    assert records[0]["ours"] == records[0]["triton"] == records[0]["given"] > 0


def test_what_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="no checkout of Triton's repository"):
        triton_lit.run(Console(quiet=True), tmp_path)
