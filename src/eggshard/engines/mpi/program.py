"""A plan as a program of MPI ranks: rank r is the plan's logical device r, with its workspace in its own memory.

An error that one rank finds before the first step is raised on all of them, and so is one that all ranks find during
the steps. A rank that fails alone during a step, while others may be waiting for it, reports why and aborts them all:
MPI has no other way to reach them.
"""

from __future__ import annotations

import hashlib
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from mpi4py import MPI

from eggshard.engines.mpi.communicator import MpiCommunicator
from eggshard.engines.mpi.memory import Pages
from eggshard.engines.mpi.reductions import staging
from eggshard.engines.ranks.runner import Runner, RunReport, stations
from eggshard.engines.ranks.view import DeviceView
from eggshard.engines.workspace.steps import PlanWorkspace, staging_name, workspace_of
from eggshard.errors import EggshardError, EngineError, LoweringError
from eggshard.plan.identity import device_program_fingerprint, plan_fingerprint
from eggshard.program.types import numpy_dtype
from eggshard.simulate.execution import checked
from eggshard.simulate.simulator import gather_from_devices, scatter_to_devices
from eggshard.steps.steps import StepPlan

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

T = TypeVar("T")
#: Seconds that a rank which failed waits for the others to fail as well.
PATIENCE = 2.0


class RankProgram:
    """A device program on the ranks of a communicator, all of which make it, call it and free it together.

    EngineError on all ranks if the communicator is of another size than the mesh, or ranks hold different programs.
    identity: what tells programs apart; by default, what devices do.
    """

    def __init__(self, program: StepPlan, comm: MPI.Intracomm | None = None, name: str = "program", identity: str = ""):
        given = MPI.COMM_WORLD if comm is None else comm
        _compare(program, identity or device_program_fingerprint(program), given)
        self.device_program, self.name = program, name
        self.comm, self._failing = given.Dup(), given.Dup()
        self.workspace: PlanWorkspace = together(self.comm, partial(workspace_of, program, staging=staging))
        layout = self.workspace.layout
        self._pages = Pages(layout.stride)
        places = {str(s): (s.path, s[1]) for s in stations(program)}

        def staged(name: str, number: int) -> int:
            return layout.offset(staging_name(*places[name], number))

        self._seconds = 0.0
        self._communicator = MpiCommunicator(self.comm, self._pages.array, staged)
        self._runner = Runner(program, layout.offset, self._pages.array, self._communicator)
        # At the latest before MPI itself ends, which Python does after this. Ranks forget programs at times of their
        # own, so communicators, which all free together, are left to the end then.
        self._free = weakref.finalize(self, _freed, self._communicator)

    @property
    def device(self) -> int:
        """The logical device that this rank is."""
        return self.comm.rank

    @property
    def report(self) -> RunReport:
        """What the last run on this rank took."""
        return RunReport(self._seconds, self.workspace.stride, self._pages.touched)

    def __call__(self, *shards: np.ndarray) -> tuple[np.ndarray, ...]:
        """This rank's shards of the outputs, from its shards of the inputs; all in the program's local types.

        What lies outside the tensors in a shard may hold anything. EngineError on all ranks if shards on some rank are
        of other types; VerificationError on all of them where they must take one way and do not.
        """
        self._alive()
        arrays = together(self.comm, partial(self._checked, shards))
        for array, buffer in zip(arrays, self._runner.inputs, strict=True):
            buffer.view(self._pages.array)[...] = array
        began = time.perf_counter()
        try:
            self._runner.run()
        except BaseException as error:
            if self._all_failed():
                raise
            kind = "" if isinstance(error, EggshardError) else f"{type(error).__name__}: "
            text = f"eggshard: rank {self.device} of {self.comm.size} failed: {kind}{error}"
            print(text, file=sys.stderr, flush=True)
            self.comm.Abort(1)
        self._seconds = time.perf_counter() - began
        return tuple(buffer.view(self._pages.array).copy() for buffer in self._runner.outputs)

    def free(self) -> None:
        """Give back what MPI holds for this program; the last call of it. Otherwise that happens at exit."""
        if self._free.alive:
            self._free()
            self._communicator.free_groups()
            self._failing.Free()
            self.comm.Free()

    def _all_failed(self) -> bool:
        """Whether all ranks come here before long, so that none of them waits for another."""
        request, last = self._failing.Ibarrier(), time.monotonic() + PATIENCE
        while not request.Test():
            if time.monotonic() > last:
                return False
            time.sleep(0.01)
        return True

    def _alive(self) -> None:
        if not self._free.alive:
            raise EngineError(f"{self.name} was freed; make another with Plan.to_mpi")

    def _checked(self, shards: Sequence[np.ndarray]) -> list[np.ndarray]:
        inputs = self._runner.inputs
        if len(shards) != len(inputs):
            raise LoweringError(f"{self.name} takes {len(inputs)} shards, got {len(shards)}")
        return [checked(a, b.type, f"shard {i}") for i, (a, b) in enumerate(zip(shards, inputs, strict=True))]


class MpiProgram(RankProgram):
    """A plan on the ranks of a communicator: a `RankProgram` that also takes and makes global arrays."""

    def __init__(self, plan: PlanRecord, comm: MPI.Intracomm | None = None):
        self.plan = plan
        types = (*plan.program.input_types, *plan.program.output_types)
        identity = " ".join([plan_fingerprint(plan), *map(str, types)])
        super().__init__(plan.device_program, comm, plan.program.name, identity)

    def run_global(self, *arrays: np.ndarray, root: int | None = None) -> tuple[np.ndarray, ...]:
        """Global arrays in, global arrays out, as `Plan.run`.

        root: the rank that holds the arrays and gets the results; other ranks give and get none. Without it all ranks
        give the arrays, which must be equal, and get the results.
        """
        self._alive()
        if root is not None and not 0 <= root < self.comm.size:
            raise EngineError(f"there is no rank {root}; there are {self.comm.size}, from 0")
        holds = root is None or self.device == root
        given = together(self.comm, partial(self._global, arrays, holds))
        gathered = [self._gathered(shard, root) for shard in self(*self._scattered(given, root))]
        return together(self.comm, partial(self._whole, gathered) if holds else tuple)

    def _global(self, arrays: Sequence[np.ndarray], holds: bool) -> list[np.ndarray]:
        types = self.plan.program.input_types if holds else ()
        if len(arrays) != len(types):
            taken = f"takes {len(types)} arrays" if holds else "takes no arrays on this rank, which is not the root"
            raise LoweringError(f"{self.plan.program.name} {taken}, got {len(arrays)}")
        return [checked(a, t, f"input {i}") for i, (a, t) in enumerate(zip(arrays, types, strict=True))]

    def _scattered(self, arrays: Sequence[np.ndarray], root: int | None) -> list[np.ndarray]:
        """This rank's shards of global arrays that the root, or every rank, holds."""
        mesh, placements = self.plan.mesh, self.plan.input_placements

        def shards(device: int) -> list[np.ndarray]:
            view = DeviceView(mesh, device)
            return [scatter_to_devices(view, a, p)[0] for a, p in zip(arrays, placements, strict=True)]

        if root is None or self.comm.size == 1:
            return shards(self.device)
        if self.device == root:
            for device in range(mesh.size):
                for shard in shards(device) if device != root else ():
                    self.comm.Send([_bytes_of(np.ascontiguousarray(shard)), MPI.BYTE], device)
            return shards(root)
        out = [np.empty(b.type.shape, numpy_dtype(b.type.dtype)) for b in self._runner.inputs]
        for shard in out:
            self.comm.Recv([_bytes_of(shard), MPI.BYTE], root)
        return out

    def _gathered(self, shard: np.ndarray, root: int | None) -> np.ndarray:
        """All ranks' shards ``[ranks, *local shape]``, on the root or on all; of other ranks nothing."""
        holds = root is None or self.device == root
        out = np.empty((self.comm.size if holds else 0, *shard.shape), shard.dtype)
        send, receive = [_bytes_of(shard), MPI.BYTE], [_bytes_of(out), MPI.BYTE]
        if root is None:
            self.comm.Allgather(send, receive)
        else:
            self.comm.Gather(send, receive if holds else None, root)
        return out

    def _whole(self, gathered: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        plan = self.plan
        return tuple(
            gather_from_devices(plan.mesh, shards, type_.shape, placement)
            for shards, type_, placement in zip(
                gathered, plan.program.output_types, plan.output_placements, strict=True
            )
        )


def together(comm: MPI.Intracomm, function: Callable[[], T]) -> T:
    """The function's value; where it raises on some rank, that error there and an EngineError on all others."""
    failure: Exception | None = None
    try:
        value = function()
    except Exception as error:
        failure = error
    failed = np.array([failure is not None], np.int8)
    comm.Allreduce(MPI.IN_PLACE, failed, MPI.MAX)
    if not failed[0]:
        return value
    failures = comm.allgather("" if failure is None else str(failure) or type(failure).__name__)
    if failure is not None:
        raise failure
    rank, text = next((rank, text) for rank, text in enumerate(failures) if text)
    raise EngineError(f"rank {rank} of {comm.size} failed: {text}")


def _compare(program: StepPlan, identity: str, comm: MPI.Intracomm) -> None:
    """EngineError on all ranks unless all of them hold one program, which is for so many of them."""
    own = hashlib.sha256(identity.encode()).hexdigest()[:12]
    held = comm.allgather((own, program.mesh.size))
    if len(set(held)) > 1:
        commonest = Counter(held).most_common(1)[0][0]
        others = [f"{each[0]} on rank {rank}" for rank, each in enumerate(held) if each != commonest]
        raise EngineError(
            f"ranks hold different plans: {commonest[0]} on {held.count(commonest)} of {comm.size}, but "
            f"{', '.join(others[:8])}; write the plan as JSON once, and read it on every rank"
        )
    if program.mesh.size != comm.size:
        raise EngineError(
            f"the plan is for {program.mesh.size} devices, {program.mesh}, but the communicator has {comm.size} ranks; "
            f"start mpiexec -n {program.mesh.size}, or split the communicator"
        )


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _freed(communicator: MpiCommunicator) -> None:
    if not MPI.Is_finalized():
        communicator.free_channels()
