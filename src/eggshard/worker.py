"""A warm worker process for native code that may abort, overflow the stack, or hang: egglog, MLIR passes.

Ordinary inputs of such code end in signals, which Python cannot catch, and a running native call ends early only with
its process. So it runs in a process of its own, which is killed at the time limit and started again.

The worker reads requests from its stdin and answers on its stdout; both are moved to private descriptors at the start,
so stray prints of libraries land on stderr, which is kept for messages.
"""

from __future__ import annotations

import atexit
import importlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO, Any, TypeVar

import eggshard.scratch as scratch
from eggshard.errors import EggshardError
from eggshard.extras import UNTRIED

T = TypeVar("T")

#: What the shared worker imports while idle, so that the first call finds it warm.
PRELOAD = ("eggshard.egraph.adapter",)
#: The default memory limit of a worker process, in MiB.
DEFAULT_MEMORY_MIB = 8192

#: Seconds by which a worker may be killed late: waking the guard costs every call more than this is worth.
_LATE = 0.05

_SIGSEGV, _SIGABRT, _SIGKILL, _SIGBUS = 11, 6, 9, 7
#: One thread makes egglog's row order reproducible. The worker must not claim accelerators or inherit XLA's flags.
#: JAX's version was checked here already.
_ENVIRONMENT = {"RAYON_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "RUST_BACKTRACE": "0", "JAX_PLATFORMS": "cpu",
                UNTRIED: "1"}
_DROPPED = ("JAX_", "XLA_", "LIBTPU_", "TPU_", "PYTHONSTARTUP", "PYTHONINSPECT")


def begun(work: Callable[[], T]) -> Callable[[], T]:
    """Begin work that mostly waits for another process, in a thread; what waits for its result."""
    executor = ThreadPoolExecutor(1)
    future = executor.submit(work)
    executor.shutdown(wait=False)
    return future.result


class WorkerFailure(EggshardError):
    """The worker process did not answer.

    reason: ``time`` (killed at the limit), ``memory`` (an allocation failed), ``stack`` (a recursion in native code),
    or ``crash`` (anything else, including a panic of native code).
    """

    def __init__(self, reason: str, message: str):
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return (WorkerFailure, (self.reason, str(self)))


class Worker:
    """One worker process, started when first needed and again after every failure. Safe to share between threads."""

    def __init__(self, preload: tuple[str, ...] = PRELOAD) -> None:
        """preload: modules that the process imports while idle."""
        self._preload = preload
        self._lock = threading.RLock()
        self._forget()

    def _forget(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._directory = ""
        self._asked = False
        self._deadline: float | None = None
        self._expired = False
        #: When the guard looks at the deadline next.
        self._looks = 0.0
        self._watch = threading.Condition()
        self._owner = os.getpid()

    @property
    def lock(self) -> threading.RLock:
        """Held for several calls in a row, it keeps other threads' calls from coming between them."""
        return self._lock

    @property
    def pid(self) -> int | None:
        """The process id of the running worker."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def unasked(self) -> bool:
        """Whether the running worker has had no call yet, or there is none."""
        return self.pid is None or not self._asked

    def call(
        self, function: str, *args: Any, seconds: float, memory_mib: int = DEFAULT_MEMORY_MIB, **keywords: Any
    ) -> Any:
        """The result of ``function`` (``"module:name"``) in the worker.

        seconds: after these the worker is killed; with none left it is not asked. memory_mib: its address space,
        where the platform can limit it.
        Arguments and results are pickled. Raises `WorkerFailure` when no answer comes; an exception of the function
        itself is raised here as it is.
        """
        if seconds <= 0:
            raise WorkerFailure("time", f"no time was left for {function}")
        request = pickle.dumps((function, args, keywords, memory_mib), protocol=5)
        with self._lock:
            process = self._start()
            self._asked = True
            assert process.stdin is not None and process.stdout is not None
            self._arm(time.monotonic() + seconds)
            try:
                _send(process.stdin, request)
                answer = pickle.load(process.stdout)
            except (BrokenPipeError, EOFError, ConnectionError, pickle.UnpicklingError):
                raise self._failure(function, seconds) from None
            except BaseException:  # the answer to this request must not meet the next one
                self._kill()
                raise
            finally:
                self._arm(None)
        ok, value = pickle.loads(answer)
        if ok:
            return value
        if isinstance(value, WorkerFailure):
            self.close()  # native code that panicked may have left its state inconsistent
        raise value

    def start(self) -> None:
        """Start the process, so that the first call need not wait for it; where that fails, the call says so."""
        with suppress(WorkerFailure, OSError), self._lock:
            self._start()

    def close(self) -> None:
        """End the process. The next call starts another."""
        with self._lock:
            self._kill()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():
            self._abandon()
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._kill()
        if not sys.executable:
            raise WorkerFailure("crash", "no Python executable is known (sys.executable is empty)")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_DROPPED)}
        self._directory, self._asked = scratch.new_directory(), False
        code = (f"import sys; sys.path[:] = {[p for p in sys.path]!r}; "
                f"from eggshard.worker import serve; serve({self._directory!r}, {self._preload!r})")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            env=kept | _ENVIRONMENT,
        )
        threading.Thread(target=self._guard, args=(self._process, self._watch), daemon=True).start()
        return self._process

    def _arm(self, deadline: float | None) -> None:
        with self._watch:
            self._deadline = deadline
            if deadline is not None:
                self._expired = False
                if deadline < self._looks - _LATE:  # else the guard looks soon enough by itself
                    self._watch.notify()

    def _guard(self, process: subprocess.Popen[bytes], watch: threading.Condition) -> None:
        """Kill the process when a deadline passes; one such thread lives as long as its process."""
        with watch:
            while process is self._process:
                now = time.monotonic()
                self._looks = now + 60.0 if self._deadline is None else self._deadline
                if self._looks > now:
                    watch.wait(self._looks - now)
                    continue
                self._expired, self._deadline = True, None
                process.kill()

    def _failure(self, function: str, seconds: float) -> WorkerFailure:
        """Why the worker went silent, from its exit status and the end of what it wrote."""
        assert self._process is not None
        try:
            code = self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            code = 0
        tail = self._tail()
        expired = self._expired
        self._kill()
        if expired:
            return WorkerFailure("time", f"{function} took more than {seconds:.3g} s in the worker process")
        if code in (-_SIGSEGV, -_SIGBUS) or (code == -_SIGABRT and "stack overflow" in tail):
            return WorkerFailure("stack", f"{function} overflowed the worker's stack{tail}")
        if code in (-_SIGKILL, -_SIGABRT):
            return WorkerFailure("memory", f"the worker was aborted in {function}, as a failed allocation does{tail}")
        return WorkerFailure("crash", f"the worker process ended with status {code} during {function}{tail}")

    def _tail(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 500))
        text = self._log.read().decode(errors="replace").strip()
        return f": {text}" if text else ""

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                try:
                    if pipe is not None:
                        pipe.close()
                except OSError:
                    pass
            process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = ""
        with self._watch:
            self._watch.notify()

    def _abandon(self) -> None:
        """Forget the worker in a forked child, since the process and its pipes belong to the parent."""
        process = self._process
        self._forget()
        self._lock = threading.RLock()
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    os.close(pipe.fileno())
            process.returncode = 0  # not ours to wait for
            process.stdin = process.stdout = None


def shared_worker(preload: tuple[str, ...]) -> Worker:
    """A worker that lives as long as this process, and is left to it by forked children."""
    made = Worker(preload)
    atexit.register(made.close)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=made._abandon)
    return made


_WORKER = shared_worker(PRELOAD)


def worker() -> Worker:
    """The worker that all calls of this process share."""
    return _WORKER


def call(function: str, *args: Any, seconds: float, memory_mib: int = DEFAULT_MEMORY_MIB, **keywords: Any) -> Any:
    """`Worker.call` of the shared worker."""
    return _WORKER.call(function, *args, seconds=seconds, memory_mib=memory_mib, **keywords)


# The worker's side.

_idle: list[Callable[[], None]] = []
_scratch = ""


def scratch_directory() -> str:
    """In the worker: a directory for its files, which goes when the worker goes."""
    return _scratch or tempfile.gettempdir()


def when_idle(job: Callable[[], None]) -> None:
    """In the worker: run ``job`` once the answer of the current call is on its way."""
    _idle.append(job)


def serve(directory: str, preload: tuple[str, ...] = ()) -> None:
    """The worker's main loop: answer requests until stdin closes."""
    global _scratch
    _scratch = directory
    scratch.hold(directory)
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the parent decides
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    threading.Thread(target=_end_with_parent, args=(os.getppid(), directory), daemon=True).start()
    for module in preload:
        try:
            importlib.import_module(module)
        except ImportError:
            pass  # a call that needs it will say so
    limit = 0
    while True:
        try:
            function, args, keywords, memory_mib = pickle.loads(pickle.load(requests))
            if memory_mib != limit:
                _limit_memory(memory_mib)
                limit = memory_mib
        except EOFError:
            scratch.remove(directory)
            return
        except BaseException as error:  # arguments that do not unpickle here
            _send(answers, _answer_of_error(error))
            continue
        _send(answers, _run(function, args, keywords))
        while _idle:
            _idle.pop(0)()


def _run(function: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> bytes:
    try:
        module, _, name = function.partition(":")
        return pickle.dumps((True, getattr(importlib.import_module(module), name)(*args, **keywords)), protocol=5)
    except BaseException as error:  # a panic of native code is no Exception
        return _answer_of_error(error)


def _answer_of_error(error: BaseException) -> bytes:
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError):
        return pickle.dumps((False, WorkerFailure("memory", text)))
    if isinstance(error, RecursionError):
        return pickle.dumps((False, WorkerFailure("stack", text)))
    if isinstance(error, Exception):
        try:
            answer = pickle.dumps((False, error), protocol=5)
            pickle.loads(answer)
            return answer
        except Exception as unsent:  # it holds something that cannot travel: its text can
            text = f"{text} (sent as text: {type(unsent).__name__})"
    return pickle.dumps((False, WorkerFailure("crash", text[:4000])))


def _limit_memory(mib: int) -> None:
    try:
        import resource
    except ImportError:
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    wanted = mib << 20
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _end_with_parent(parent: int, directory: str) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    scratch.remove(directory)
    os._exit(0)


def _send(pipe: IO[bytes], payload: bytes) -> None:
    """Write bytes that `pickle.load` reads back: pickled once more, they tell where they end."""
    pickle.dump(payload, pipe, protocol=5)
    pipe.flush()
