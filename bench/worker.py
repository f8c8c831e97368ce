"""A process that answers requests: one JSON value per line, one JSON object per line back.

Compilers and passes may end their process instead of raising; in a process of its own that is an answer like others.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent


class Worker:
    """``python -m MODULE`` as a server, started on first use and again whenever a request ended it.

    environment: variables that it has beside those of this process. prefix: a command that runs others, elsewhere.
    """

    def __init__(
        self,
        module: str,
        timeout: float,
        environment: Mapping[str, str] = MappingProxyType({}),
        prefix: Sequence[str] = (),
    ) -> None:
        self.module, self.timeout, self.environment, self.prefix = module, timeout, environment, prefix
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def ask(self, request: Any) -> dict[str, Any]:
        """The answer, or ``{"error": reason}`` where the process ended or took too long."""
        line, reason = self._ask(json.dumps(request).encode() + b"\n")
        answer: dict[str, Any] = json.loads(line) if line else {"error": reason}
        return answer

    def kill(self) -> None:
        """End the process from another thread: a request that waits for its answer has this for one."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process; a later request starts a new one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: bytes) -> tuple[bytes, str]:
        """One line of answer, or nothing and the reason."""
        process = self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(request)
            process.stdin.flush()
        except BrokenPipeError:
            return b"", self._why_ended(process)
        deadline = time.monotonic() + self.timeout
        answer = b""
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.close()
                return b"", f"took more than {self.timeout:g} s"
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                return b"", self._why_ended(process)
            answer += piece
        return answer, ""

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._log = tempfile.TemporaryFile()
            environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                           **self.environment}  # fmt: skip
            self._process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", self.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                cwd=ROOT,
                env=environment,
            )
        return self._process

    def _why_ended(self, process: subprocess.Popen[bytes]) -> str:
        code = process.wait()
        assert self._log is not None
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").split("*** Check failure stack trace")[0].splitlines()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        self.close()
        return f"the request ended the process ({how}): {last[:300]}"


def serve(answer: Callable[[Any], dict[str, Any]]) -> None:
    """Answer requests until there are none. What goes wrong with one is its answer.

    Compilers print to the standard output; answers go out on a copy of it that nothing else knows.
    """
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        channel.write(json.dumps(reply) + "\n")
        channel.flush()


def in_own_process(module: str, *arguments: str, timeout: float) -> dict[str, Any]:
    """What ``python -m module`` prints last, as JSON; ``{"error": ...}`` where it fails or takes too long."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=True
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    except subprocess.TimeoutExpired:
        return {"error": f"no plan within {timeout:g} s"}
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip().splitlines()[-1:] or [f"exit status {error.returncode}"]
        return {"error": last[0][:200]}
