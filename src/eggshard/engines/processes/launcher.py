"""The launcher, which starts a process per device, watches all of them, and cleans up after them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection, Pipe, wait
from typing import IO, TYPE_CHECKING, Any

import numpy as np

import eggshard.errors as errors
from eggshard.engines.processes.segment import GUARD, Segment
from eggshard.engines.processes.worker import Ends, identity
from eggshard.engines.ranks.communicator import Buffer
from eggshard.engines.ranks.runner import RunReport, stations
from eggshard.engines.workspace.steps import value_name, workspace_of
from eggshard.errors import EggshardError, EngineError
from eggshard.plan.serialization import device_program_to_json
from eggshard.program.types import TensorType, mlir_dtype
from eggshard.simulate.execution import gathered, scattered
from eggshard.steps.steps import StepPlan

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

#: Every process can write to every other, so descriptors grow with the square of this.
MAX_PROCESSES = 128
#: Seconds that other devices have to say what is wrong, once one has.
_GRACE = 0.25
#: One process per device leaves no processors for threads of libraries. No accelerator is wanted.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu",
}
_DROPPED = ("PYTHONSTARTUP", "PYTHONINSPECT")
#: The byte that fills slices before a debugging run.
_POISON = 0xFF
#: Bytes of what a process wrote that the message of its death repeats.
_LAST_WORDS = 2000


class Processes:
    """A device program with a process for each device, which may run any number of times. A context manager.

    Threads that share one take turns.

    EngineError where processes cannot be had, where one dies or never answers, where what they hold does not fit
    together, or where a device wrote outside its slice; the processes are gone then. LoweringError and
    VerificationError as `eggshard.simulate.simulator.run`.
    """

    def __init__(self, program: StepPlan, timeout: float | None = None, debug: bool = False):
        """timeout: seconds for the start, and for each run.

        debug: memory that holds nothing is filled with ones before every run, and guards are looked at after every
        step.
        """
        self._program, self._timeout, self._debug = program, timeout, debug
        self._devices = program.mesh.size
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: list[IO[bytes]] = []
        self._connections: list[Connection] = []
        self._segment: Segment | None = None
        self._turn = threading.RLock()
        self.report: RunReport | None = None
        self._layout = workspace_of(program, guard=GUARD).layout
        self._stations = stations(program)
        if os.name != "posix":
            raise EngineError("the engine of processes needs POSIX pipes; use engine='numpy'")
        if self._devices > MAX_PROCESSES:
            raise EngineError(
                f"{self._devices} devices would be as many processes, and at most {MAX_PROCESSES} are started; use "
                "engine='numpy', or several machines"
            )
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids, by device."""
        return tuple(p.pid for p in self._processes)

    def run(self, shards: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The program's outputs, each ``[devices, *local shape]``, from its inputs in the same form."""
        types = [self._program.types[v] for v in self._program.inputs]
        checked_shards(types, self._devices, shards)
        with self._turn:
            segment = self._open()
            try:
                return self._run(segment, shards)
            except BaseException:  # nothing of a run that was left in the middle may meet the next one
                self.close()
                raise

    def _run(self, segment: Segment, shards: Sequence[np.ndarray]) -> list[np.ndarray]:
        if self._debug:
            for device in range(self._devices):
                segment.slice(device)[:-GUARD] = _POISON
        for buffer, array in zip(self._buffers(self._program.inputs), shards, strict=True):
            for device in range(self._devices):
                buffer.view(segment.slice(device))[...] = array[device]
        for device, connection in enumerate(self._connections):
            try:
                connection.send("run")
            except OSError:
                raise self._death(device, "the run") from None
        answers = self._answers("the run")
        for device in range(-1, self._devices):
            segment.check(device)
        seconds = max(answer["seconds"] for answer in answers)
        self.report = RunReport(seconds, self._devices * segment.stride, segment.touched)
        return [
            np.stack([buffer.view(segment.slice(device)) for device in range(self._devices)])
            for buffer in self._buffers(self._program.outputs)
        ]

    def close(self) -> None:
        """End all processes, and with them a run in another thread; give the memory back. It may be called again."""
        for process in self._processes:
            process.kill()
        with self._turn:
            for process in self._processes:
                process.wait()
            for connection in self._connections:
                connection.close()
            for log in self._logs:
                log.close()
            self._processes, self._connections, self._logs = [], [], []
            if self._segment is not None:
                self._segment.close()
                self._segment = None

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> Segment:
        if self._segment is None:
            raise EngineError("these processes have ended; start others")
        return self._segment

    def _buffers(self, values: Sequence[int]) -> list[Buffer]:
        return [
            Buffer(self._layout.offset(value_name((), v)), self._program.types[v])
            for v in values
        ]

    def _start(self) -> None:
        if not sys.executable:
            raise EngineError("no Python executable is known (sys.executable is empty)")
        stride = self._layout.stride
        self._segment = Segment.created(self._devices, stride)
        given = {
            "devices": self._devices, "program": device_program_to_json(self._program),
            "layout": self._layout.to_json(), "stride": stride, "debug": self._debug,
        }
        with tempfile.TemporaryFile() as artifacts:
            artifacts.write(json.dumps(given).encode())
            artifacts.flush()
            self._spawn(artifacts.fileno(), self._segment.file)
            answers = self._answers("the start")
        for device, answer in enumerate(answers):
            theirs, mine = answer["ready"], identity()
            differ = [f"{what} {theirs.get(what)} instead of {value}" for what, value in mine.items()
                      if theirs.get(what) != value]
            if differ:
                raise EngineError(f"the process of device {device} is prepared for {', '.join(differ)}")

    def _spawn(self, artifacts: int, segment: int) -> None:
        """Start the processes. artifacts: the file in which they find what to run."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_DROPPED)} | _ENVIRONMENT
        try:
            with ExitStack() as ours:  # only the processes keep these, so that a pipe ends with the process it is for
                boxes = []
                for _ in range(self._devices):
                    boxes.append(os.pipe())
                    for end in boxes[-1]:
                        ours.callback(os.close, end)
                peers = tuple(write for _, write in boxes)
                for device, (box, _) in enumerate(boxes):
                    connection, theirs = Pipe()
                    ours.enter_context(theirs)
                    self._connections.append(connection)
                    self._logs.append(tempfile.TemporaryFile())  # noqa: SIM115
                    ends = Ends(device, os.getpid(), artifacts, segment, theirs.fileno(), box, peers)
                    code = (f"import sys; sys.path[:] = {sys.path!r}; "
                            f"from eggshard.engines.processes.worker import serve; serve{tuple(ends)!r}")
                    self._processes.append(subprocess.Popen(
                        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=self._logs[-1],
                        stderr=self._logs[-1], pass_fds=(artifacts, segment, theirs.fileno(), box, *peers), env=kept,
                    ))
        except OSError as error:
            raise EngineError(f"{self._devices} processes cannot be started: {error}") from None

    def _answers(self, during: str) -> list[dict[str, Any]]:
        """What each device answers; raises what is wrong if one dies, answers with an error, or does not answer."""
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        answers: dict[int, dict[str, Any]] = {}
        waiting = {connection: device for device, connection in enumerate(self._connections)}
        gone: set[int] = set()
        failed = False
        while waiting:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = wait(list(waiting), _GRACE if failed else left)
            if not ready and failed:
                break
            if not ready:
                raise self._silence(during, set(answers))
            for connection in ready:
                assert isinstance(connection, Connection)
                device = waiting.pop(connection)
                try:
                    answers[device] = connection.recv()
                except (EOFError, OSError):
                    gone.add(device)
                failed = failed or device in gone or "error" in answers[device]
        if gone:
            raise self._death(min(gone), during)
        wrong = {device: answer for device, answer in answers.items() if "error" in answer}
        if wrong:  # that a device misses another one is the consequence of something else
            worst = min(wrong, key=lambda d: (wrong[d]["error"] == "EngineError", d))
            raise self._error(worst, wrong[worst], during)
        return [answers[device] for device in range(self._devices)]

    def _death(self, device: int, during: str) -> EngineError:
        """Why a process ended, from its status, the step it was at, and the end of what it wrote."""
        process = self._processes[device]
        try:
            code = process.wait(5.0)
        except subprocess.TimeoutExpired:
            return EngineError(f"the process of device {device} closed its pipes during {during}{self._at(device)}")
        how = f"ended with status {code}" if code >= 0 else f"was ended by {_signal(-code)}"
        return EngineError(
            f"the process of device {device} {how} during {during}{self._at(device)}; all others were ended"
            f"{self._tail(device)}"
        )

    def _silence(self, during: str, answered: set[int]) -> EngineError:
        waiting = [f"device {d}{self._at(d)}" for d in range(self._devices) if d not in answered]
        return EngineError(
            f"{during} took more than {self._timeout:.3g} s: no answer from {', '.join(waiting[:8])}"
            f"{f' and {len(waiting) - 8} others' if len(waiting) > 8 else ''}; allow more time, or look for a deadlock"
        )

    def _error(self, device: int, answer: Mapping[str, str], during: str) -> EggshardError:
        kind = getattr(errors, answer["error"], None)
        if isinstance(kind, type) and issubclass(kind, EggshardError):
            return kind(answer["text"])
        return EngineError(
            f"device {device} failed during {during}{self._at(device)}: {answer['error']}: {answer['text']}"
        )

    def _at(self, device: int) -> str:
        number = self._segment.progress(device) if self._segment is not None else 0
        return f" at {self._stations[number - 1]}" if 0 < number <= len(self._stations) else ""

    def _tail(self, device: int) -> str:
        log = self._logs[device]
        log.seek(0, os.SEEK_END)
        log.seek(max(0, log.tell() - _LAST_WORDS))
        text = log.read().decode(errors="replace").strip()
        return f": {text}" if text else ""


def run_on_processes(
    plan: PlanRecord, arrays: Sequence[np.ndarray], timeout: float | None = None, debug: bool = False
) -> tuple[tuple[np.ndarray, ...], RunReport]:
    """One run of a plan, with processes of its own, and what it took. Errors: `Processes`, and as on the simulator."""
    shards = scattered(plan, arrays)
    with Processes(plan.device_program, timeout=timeout, debug=debug) as processes:
        results = processes.run(shards)
        assert processes.report is not None
        return gathered(plan, results), processes.report


def checked_shards(types: Sequence[TensorType], devices: int, shards: Sequence[np.ndarray]) -> None:
    """EngineError unless there is an array ``[devices, *local shape]`` of its element type for each type."""
    if len(shards) != len(types):
        raise EngineError(f"the program has {len(types)} inputs, but {len(shards)} were given")
    for i, (type_, array) in enumerate(zip(types, shards, strict=True)):
        if array.shape != (devices, *type_.shape) or mlir_dtype(array.dtype) != type_.dtype:
            raise EngineError(
                f"input {i} is {mlir_dtype(array.dtype)}{list(array.shape)}, but the program takes {type_} on each of "
                f"{devices} devices"
            )


def _signal(number: int) -> str:
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:
        return f"signal {number}"
