"""What goes wrong on ranks is said on all of them, and nobody waits for who does not come."""

from __future__ import annotations

import time

import pytest
from tests.engines.mpi.ranks import needs_mpi, run_script
from tests.slowness import some

pytestmark = needs_mpi

HEAD = """
import os, sys
import numpy as np
from mpi4py import MPI
from tests.emit.devices import plan_of
from tests.engines.workspace.programs import LINE, ROW, SCALAR, branching, swapping_loop
from eggshard.errors import EggshardError
from eggshard.engines.mpi.program import RankProgram
from eggshard.steps.steps import AllReduce, Local
from eggshard.program.program import Attributes

comm = MPI.COMM_WORLD
rank = comm.rank
row = np.arange(6, dtype=np.float32) + rank

def told(call):
    try:
        call()
        said = "nothing"
    except EggshardError as error:
        said = f"{type(error).__name__}: {error}"
    for r, text in enumerate(comm.allgather(said)):
        if rank == 0:
            print(f"{r}| {text}")
    sys.stdout.flush()
"""


def said(folder, text, ranks=4):
    """What each rank was told, a list per `told`."""
    done = run_script(folder, HEAD + text, ranks)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "freeing inactive" not in done.stderr
    lines = [line.partition("| ")[2] for line in done.stdout.splitlines() if "| " in line]
    return [lines[i : i + ranks] for i in range(0, len(lines), ranks)]


def test_errors_before_the_first_step_are_on_all_ranks(tmp_path):
    size, plans, shards, number, gone, twice, after = said(tmp_path, """
told(lambda: RankProgram(plan_of(LINE, [ROW], AllReduce(("x",), "add")), comm.Split(rank // 2)))
told(lambda: RankProgram(plan_of(LINE, [ROW], AllReduce(("x",), "max" if rank == 2 else "add")), comm))
program = RankProgram(plan_of(LINE, [ROW], AllReduce(("x",), "add")), comm)
told(lambda: program(row if rank != 1 else row.astype(np.float64)))
told(lambda: program(row, row) if rank == 3 else program(row))
other = RankProgram(plan_of(LINE, [ROW], AllReduce(("x",), "add")), comm)
other.free()
told(lambda: other(row))
told(other.free)
assert (program(row)[0] == 4 * np.arange(6) + 6).all()
told(lambda: None)
""")
    assert all("the plan is for 4 devices" in s and "has 2 ranks; start mpiexec -n 4" in s for s in size)
    assert all("ranks hold different plans" in s and "on rank 2;" in s for s in plans) and len(set(plans)) == 1
    assert shards[1].startswith("LoweringError: shard 0 is float64[6], the program takes tensor<6xf32>")
    assert all(s.startswith("EngineError: rank 1 of 4 failed: shard 0 is float64") for s in (shards[0], *shards[2:]))
    assert number[3].startswith("LoweringError: program takes 1 shards, got 2") and "rank 3" in number[0]
    assert all("was freed" in s for s in gone)
    assert twice == after == ["nothing"] * 4


def test_ranks_that_must_take_one_way_and_do_not(tmp_path):
    differ, after = said(tmp_path, """
program = RankProgram(branching(), comm)
told(lambda: program(np.array(rank % 2, np.int32), row))
same = program(np.array(1, np.int32), row)
assert (same[0] == 2 * row).all()
told(lambda: None)
""")
    assert all(s.startswith(f"VerificationError: device {r}, step 0 (case): ") for r, s in enumerate(differ))
    assert all("differs between devices: [0, 1, 0, 1]" in s for s in differ)
    assert after == ["nothing"] * 4


def test_what_all_ranks_run_into_is_an_error_on_all(tmp_path):
    unknown, after = said(tmp_path, """
local = Local("custom_call", Attributes(call_target_name="unheard_of"), (ROW,))
program = RankProgram(plan_of(LINE, [ROW], AllReduce(("x",), "add"), local), comm)
told(lambda: program(row))
told(lambda: None)
""")
    assert all(s.startswith(f"LoweringError: device {r}, step 1 (local custom_call)") for r, s in enumerate(unknown))
    assert after == ["nothing"] * 4


@pytest.mark.parametrize("how, words", some([
    ("raise ValueError('no more')", "eggshard: rank 2 of 4 failed: ValueError: no more"),
    ("raise LoweringError('what is this?')",
     "eggshard: rank 2 of 4 failed: device 2, step 1.body.3 (local add): what is this?"),
    ("os.kill(os.getpid(), 9)", ""),
], 2, rows=True))
def test_a_rank_that_fails_or_dies_in_the_middle_ends_all(tmp_path, how, words):
    began = time.monotonic()
    done = run_script(tmp_path, HEAD + f"""
from eggshard.errors import LoweringError
from eggshard.ops import registry

add, calls = registry.get("add"), []

def failing(*given):
    calls.append(1)
    if rank == 2 and len(calls) == 4:
        {how}
    return type(add).evaluate(add, *given)

object.__setattr__(add, "evaluate", failing)
program = RankProgram(swapping_loop(), comm)
program(row, row)
print("done")
""")
    assert done.returncode != 0 and "done" not in done.stdout
    assert words in done.stderr
    assert time.monotonic() - began < 30
