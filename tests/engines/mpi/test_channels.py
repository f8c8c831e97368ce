"""Messages and datatypes: how many there are, and where they reach."""

from __future__ import annotations

from tests.engines.mpi.ranks import needs_mpi, run_script

pytestmark = needs_mpi


def test_all_for_one_neighbour_travels_together(tmp_path):
    done = run_script(tmp_path, """
import numpy as np
from mpi4py import MPI
from tests.emit.devices import plan_of
from eggshard.engines.mpi.program import RankProgram
from eggshard.steps.piece_steps import Exchange, Round
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType

comm = MPI.COMM_WORLD
start = ((0,),) * 4

def messages(*places):
    rounds = tuple(Round(tuple((d, (d + 1) % 4) for d in range(4)), start, ((at,),) * 4) for at in places)
    step = Exchange((2,), (8,), rounds, (), ("x",))
    program = RankProgram(plan_of(Mesh({"x": 4}), [TensorType((4,), "f32")], step), comm)
    (out,) = program(np.arange(4, dtype=np.float32) + 10 * comm.rank)
    want = np.full(8, np.nan)
    for at in places:
        want[at : at + 2] = 10 * ((comm.rank - 1) % 4) + np.arange(2)
    assert np.array_equal(out, want, equal_nan=True), out
    (channel,) = program._communicator._channels
    found = len(channel.sends), len(channel.receives)
    program.free()
    return found

assert messages(0, 3, 6) == (1, 1), messages(0, 3, 6)
assert messages(0, 3, 2) == (1, 1), messages(0, 3, 2)
""")
    assert done.returncode == 0, done.stderr


def test_places_beyond_two_gibibytes(tmp_path):
    """Without touching as much memory: of a large array only the last corner is sent."""
    done = run_script(tmp_path, """
import numpy as np
from mpi4py import MPI
from eggshard.engines.mpi.channels import Messages, swapping
from eggshard.engines.mpi.datatypes import Part, datatype
from eggshard.engines.mpi.memory import Pages

side, comm = 1 << 15, MPI.COMM_WORLD
pages = Pages(4 * side * side + 4096)
whole = Part(0, (side, side), 4, ((0, side), (0, side)))
each = datatype(whole)
assert each.size == 4 * side * side == each.extent, (each.size, each.extent)
each.Free()
corner = Part(0, (side, side), 4, ((side - 2, side), (side - 2, side)))
here = Part(4 * side * side, (2, 2), 4, ((0, 2), (0, 2)))
pages.array[corner.first : corner.first + 8].view("u4")[...] = (1, 2)
last = corner.first + 4 * side
pages.array[last : last + 8].view("u4")[...] = (3, 4)
messages = Messages(comm, pages.array, {0: [corner]}, {0: [here]}, [], lambda: None)
for _ in range(2):
    pages.array[here.first : here.first + 16] = 0
    messages.start()
    messages.finish()
    assert pages.array[here.first : here.first + 16].view("u4").tolist() == [1, 2, 3, 4]
messages.free()
pages.array[here.first : here.first + 16] = 0
swap = swapping(comm, pages.array, [[corner]], [[here]])
swap.start()
assert pages.array[here.first : here.first + 16].view("u4").tolist() == [1, 2, 3, 4]
swap.free()
assert pages.touched is None or pages.touched < 1 << 20, pages.touched
""", ranks=1)
    assert done.returncode == 0, done.stderr
