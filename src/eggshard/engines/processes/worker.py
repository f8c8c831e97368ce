"""The process of one device: it reads its program, maps the workspace, and runs when it is told to."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

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
#: Seconds after which a process notices that its launcher is gone.
_LOOKS = 0.5


class Ends(NamedTuple):
    """What a worker is started with: its device, its launcher's process id, and descriptors.

    artifacts: a file, what to run as JSON. segment: the shared memory. launcher: a connection to it. mailbox: its own,
    to read. peers: by device the mailboxes of all, to write.
    """

    device: int
    parent: int
    artifacts: int
    segment: int
    launcher: int
    mailbox: int
    peers: tuple[int, ...]


def serve(*ends: Any) -> None:
    """The worker's main: prepare what `Ends` tells of, then run it once for every message of the launcher's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the launcher decides
    own = Ends(*ends)
    threading.Thread(target=_end_with_launcher, args=(own.parent,), daemon=True).start()
    faulthandler.enable()
    launcher = Connection(own.launcher)
    prepared: list[Callable[[], None]] = []

    def prepare() -> dict[str, Any]:
        given = json.loads(os.pread(own.artifacts, os.fstat(own.artifacts).st_size, 0))
        os.close(own.artifacts)
        prepared.append(_prepared(given, own))
        return {"ready": identity()}

    def run() -> dict[str, Any]:
        before = time.perf_counter()
        prepared[0]()
        return {"seconds": time.perf_counter() - before}

    launcher.send(_answer(prepare))
    try:
        while True:
            launcher.recv()
            launcher.send(_answer(run))
    except (EOFError, OSError):
        os._exit(0)  # the launcher closed its end


def identity() -> dict[str, str]:
    """What has to be the same in launcher and worker; all else they read from one file."""
    return {"eggshard": __version__, "numpy": np.__version__}


def _prepared(given: dict[str, Any], own: Ends) -> Callable[[], None]:
    program, layout = device_program_from_json(given["program"]), Layout.from_json(given["layout"])
    segment = Segment(own.segment, given["devices"], given["stride"])
    device = own.device
    mailboxes = Mailboxes(device, own.mailbox, own.peers)
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


def _end_with_launcher(launcher: int) -> None:
    """End this process when its parent is another: the launcher is gone, and may not have closed anything."""
    while os.getppid() == launcher:
        time.sleep(_LOOKS)
    os._exit(1)
