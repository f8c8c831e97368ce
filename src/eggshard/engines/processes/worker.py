"""The process of one device: it reads its program, attaches the workspace, and runs when it is told to."""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable
from typing import IO, Any, NamedTuple

import numpy as np

from eggshard.engines.processes.mailboxes import Mailboxes
from eggshard.engines.processes.segment import Segment
from eggshard.engines.processes.shared_memory import SharedMemoryCommunicator
from eggshard.engines.ranks.runner import Runner
from eggshard.engines.workspace.layout import Layout
from eggshard.errors import EggshardError
from eggshard.plan.serialization import device_program_from_json
from eggshard.version import __version__

#: Characters of an unforeseen exception's traceback that the launcher gets.
_TRACE = 2000


class Ends(NamedTuple):
    """What a worker is started with: its device, and descriptors.

    artifacts: a file, what to run as JSON. lifeline: closed when the launcher is gone. mailbox: its own, to read.
    report: to the launcher. peers: by device the mailboxes of all, to write.
    """

    device: int
    artifacts: int
    lifeline: int
    mailbox: int
    report: int
    peers: tuple[int, ...]


def serve(*ends: Any) -> None:
    """The worker's main: prepare what `Ends` tells of, then run it once for every line of stdin."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the launcher decides
    own = Ends(*ends)
    threading.Thread(target=_end_with_launcher, args=(own.lifeline, os.getppid()), daemon=True).start()
    faulthandler.enable()
    answers = os.fdopen(own.report, "w")
    os.dup2(2, 1)  # stray prints go to the log
    prepared: list[Callable[[], None]] = []

    def prepare() -> dict[str, Any]:
        given = json.loads(os.pread(own.artifacts, os.fstat(own.artifacts).st_size, 0))
        os.close(own.artifacts)
        prepared.append(_prepared(given, Mailboxes(own.device, own.mailbox, own.peers)))
        return {"ready": identity(given, own.device)}

    def run() -> dict[str, Any]:
        before = time.perf_counter()
        prepared[0]()
        return {"seconds": time.perf_counter() - before}

    _tell(answers, _answer(prepare))
    for _ in os.fdopen(os.dup(0), "rb"):
        _tell(answers, _answer(run))
    os._exit(0)  # without closing memory that arrays still look at


def identity(given: dict[str, Any], device: int) -> dict[str, Any]:
    """What has to be the same in launcher and worker."""
    return {
        "device": device, "devices": given["devices"],
        "program": hashlib.sha256(given["program"].encode()).hexdigest()[:12],
        "layout": Layout.from_json(given["layout"]).version, "stride": given["stride"],
        "eggshard": __version__, "numpy": np.__version__,
    }


def _prepared(given: dict[str, Any], mailboxes: Mailboxes) -> Callable[[], None]:
    program, layout = device_program_from_json(given["program"]), Layout.from_json(given["layout"])
    segment = Segment.attached(given["segment"], given["devices"], given["stride"])
    device = mailboxes.device
    communicator = SharedMemoryCommunicator(segment.workspace, segment.stride, mailboxes)

    def check() -> None:
        segment.check(device - 1)
        segment.check(device)

    def reached(number: int) -> None:
        segment.tell(device, number + 1)

    runner = Runner(
        program, layout.offset, segment.slice(device), communicator, reached=reached,
        passed=check if given["debug"] else None,
    )

    def run() -> None:
        runner.run()
        segment.tell(device, 0)

    return run


def _answer(job: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The job's answer, or what went wrong with it."""
    try:
        return job()
    except EggshardError as error:
        return {"error": type(error).__name__, "text": str(error)}
    except Exception as error:
        return {"error": type(error).__name__, "text": f"{error}\n{traceback.format_exc()[-_TRACE:]}"}


def _tell(answers: IO[str], message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _end_with_launcher(lifeline: int, launcher: int) -> None:
    """No one writes to the lifeline: it ends when the launcher's end is closed. A fork of the launcher may hold that
    end too, so the launcher itself is looked for now and then."""
    while os.getppid() == launcher and not select.select([lifeline], [], [], 1.0)[0]:
        pass
    os._exit(1)
