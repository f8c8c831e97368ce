"""What goes wrong in processes is said, in time, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.engines.processes.programs import ENDLESS, PAIR, ROW, ROWS, alive, choosing, shifting
from tests.slowness import some

from eggshard.engines.processes import launcher, worker
from eggshard.engines.processes.launcher import Processes
from eggshard.errors import EngineError, LoweringError, VerificationError
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.simulate.simulator import run
from eggshard.steps.steps import Local, Step, StepPlan

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc and /dev/shm")


@pytest.fixture(autouse=True)
def nothing_left():
    """Fails where a test leaves a descriptor behind, and with it a segment, which has no name."""
    open_ = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= open_


@pytest.mark.parametrize("number", some([signal.SIGKILL, signal.SIGSEGV], 1))
def test_a_worker_dies_in_the_middle_of_a_run(number):
    with Processes(shifting(ENDLESS), timeout=300) as processes:
        pids = processes.pids
        threading.Timer(0.3, os.kill, (pids[1], number)).start()
        began = time.monotonic()
        with pytest.raises(EngineError, match="process of device 1") as found:
            processes.run(ROWS)
        assert time.monotonic() - began < 5
        text = str(found.value)
        assert f"was ended by signal {number.name} during the run at step 1." in text
        assert ("line 1 in <module>" in text) == (number == signal.SIGSEGV)  # the end of what it wrote
        assert not any(alive(pid) for pid in pids)
        with pytest.raises(EngineError, match="have ended; start others"):
            processes.run(ROWS)
    if number == signal.SIGSEGV:
        return
    with Processes(shifting(3), timeout=300) as processes:  # the next run works
        for got, want in zip(processes.run(ROWS), run(shifting(3), ROWS), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.slow
def test_a_worker_dies_between_runs():
    with Processes(shifting(2), timeout=300) as processes:
        processes.run(ROWS)
        os.kill(processes.pids[0], signal.SIGTERM)
        with pytest.raises(EngineError, match="process of device 0 was ended by signal SIGTERM during the run"):
            processes.run(ROWS)


def test_workers_of_another_version(monkeypatch):
    monkeypatch.setattr(worker, "__version__", "of the launcher")
    with pytest.raises(EngineError, match=r"device 0 is prepared for eggshard [\d.]+ instead of of the launcher$"):
        Processes(shifting(2), timeout=300)


def test_the_launcher_dies():
    code = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "from tests.engines.processes.programs import ENDLESS, ROWS, shifting\n"
        "from eggshard.engines.processes.launcher import Processes\n"
        "with Processes(shifting(ENDLESS)) as processes:\n"
        "    print(*processes.pids, flush=True)\n"
        "    processes.run(ROWS)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        pids = [int(number) for number in parent.stdout.readline().decode().split()]
        assert len(pids) == 2 and all(map(alive, pids))
        parent.kill()
    until = time.monotonic() + 5
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(alive, pids))


def test_what_takes_too_long():
    with Processes(shifting(ENDLESS), timeout=300) as processes:
        processes._timeout = 0.3
        with pytest.raises(EngineError, match=r"the run took more than 0.3 s: no answer from device 0 at step 1"):
            processes.run(ROWS)
    with pytest.raises(EngineError, match="the start took more than 0.001 s: no answer from device 0, device 1;"):
        Processes(shifting(1), timeout=0.001)


@pytest.mark.parametrize("device, debug", some([(-1, False), (0, True), (1, False)], 1, rows=True))
def test_a_guard_that_was_overwritten(device, debug):
    with Processes(shifting(2), timeout=300, debug=debug) as processes:
        processes.run(ROWS)
        processes._open()._guard(device)[5] ^= 1
        slice_ = f"behind the slice of device {device}" if device >= 0 else "before the slice of device 0"
        step = r"device \d, step 0 \(local constant\): " if debug else ""
        with pytest.raises(EngineError, match=f"^{step}the guard {slice_} was overwritten, 5 bytes from its start"):
            processes.run(ROWS)


def test_devices_that_do_not_agree():
    with Processes(choosing(), timeout=300) as processes:
        with pytest.raises(VerificationError, match=r"device 0, step 0 \(case\): the selector .*devices: \[0, 1\]"):
            processes.run([np.array([0, 1], np.int32), *ROWS])


@pytest.mark.slow
def test_ops_that_numpy_does_not_know():
    call = Local("custom_call", Attributes(call_target_name="theirs"), (ROW,))
    unknown = StepPlan(PAIR, (0,), (Step(call, (0,), (1,)),), (1,), (ROW, ROW))
    with Processes(unknown, timeout=300) as processes:
        with pytest.raises(LoweringError, match="device 0, step 0 .*does not know custom call 'theirs'"):
            processes.run(ROWS)


def test_what_does_not_fit_together_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr(launcher.subprocess, "Popen", None)
    with pytest.raises(EngineError, match="256 devices would be as many processes, and at most 128 are started"):
        Processes(StepPlan(Mesh({"x": 256}), (0,), (), (0,), (ROW,)))
    with pytest.raises(EngineError, match="does not fit into shared memory"):
        Processes(StepPlan(PAIR, (0,), (), (0,), (TensorType((1 << 50,), "f32"),)))


def test_inputs_that_do_not_fit():
    with Processes(shifting(1), timeout=300) as processes:
        with pytest.raises(EngineError, match="has 1 inputs, but 0 were given"):
            processes.run([])
        with pytest.raises(EngineError, match=r"input 0 is f64\[2, 6\], but the program takes tensor<6xf32> on each"):
            processes.run([np.zeros((2, 6))])
        processes.run(ROWS)  # a refusal costs nothing


@pytest.mark.slow
def test_threads_take_turns():
    """Each thread gets the results of its own inputs."""
    program = shifting(20)
    given = [[ROWS[0] + 100 * i] for i in range(4)]
    with Processes(program, timeout=300) as processes:
        def work(rows):
            return [processes.run(rows) for _ in range(8)]

        with ThreadPoolExecutor(len(given)) as pool:
            found = list(pool.map(work, given))
    for rows, runs in zip(given, found, strict=True):
        want = run(program, rows)
        for got in runs:
            for a, b in zip(got, want, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_another_thread_ends_a_run():
    with Processes(shifting(ENDLESS), timeout=300) as processes:
        threading.Timer(0.3, processes.close).start()
        with pytest.raises(EngineError, match="process of device . was ended by signal SIGKILL during the run"):
            processes.run(ROWS)
