"""Installation of the planner into Triton's own compiler: ``eggshard.triton.install()``.

Triton calls a hook when it lists the stages of a compilation. Ours lets the stage that makes TritonGPU IR run as ever,
then plans layouts anew. The result is taken only if it verifies, its layouts line up, its modelled cost is lower, and
its assembled code is no worse (`choosing`). Otherwise, and whenever something goes wrong, Triton's own module goes on.
What was assembled for the comparison is not assembled again, whichever is taken.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, get_args

import eggshard.version as version
from eggshard.errors import ProgramError
from eggshard.extras import named_extras
from eggshard.triton.compiler.outcomes import Outcome, record
from eggshard.triton.compiler.replacement import Replacement, improve

Mode = Literal["replace", "after"]


class Installation:
    """What is planned, and how: the hook that Triton calls, and a context manager that ends itself. See `install`."""

    def __init__(
        self, kernels: frozenset[str] | None, mode: Mode, cost_model: Any, planner: Callable[..., Any] | None,
        budget: float, earlier: Any,
    ) -> None:
        self.kernels, self.mode, self.cost_model, self.planner = kernels, mode, cost_model, planner
        self.budget = budget
        self.earlier = earlier
        self.active = True
        self._in_thread = threading.local()
        name = None if planner is None else f"{planner.__module__}.{planner.__qualname__}"
        names = None if kernels is None else sorted(kernels)
        self.key = f"eggshard:{source_digest()}:{names}:{mode}:{cost_model!r}:{name}:{budget}"
        self.hash = hashlib.sha256(self.key.encode()).hexdigest()

    def __enter__(self) -> Installation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        uninstall(self)

    def covers(self, kernel: str) -> bool:
        return self.kernels is None or kernel in self.kernels

    def below(self) -> Any:
        """The hook that is not ours under this and earlier installations; None without one."""
        found = self.earlier
        while isinstance(found, Installation):
            found = found.earlier
        return found

    def __call__(
        self, backend: Any = None, stages: Any = None, options: Any = None, language: Any = None,
        capability: Any = None,
    ) -> tuple[str, str] | None:
        """Without arguments, return the key and hash under which a compilation is cached; otherwise change its stages.

        The change is the one that the key announced, even if another thread ends the installation in between.
        """
        other = self.below()
        if backend is None:
            on = self._in_thread.on = self.active
            key, digest = ("", "") if other is None else other()
            return (key + self.key, str(digest) + self.hash) if on else (key, digest)
        if other is not None:
            other(backend, stages, options, language, capability)
        if getattr(self._in_thread, "on", self.active):
            _change(self, backend, stages, options, language)
        return None


_lock = threading.Lock()
_installed: list[Installation] = []
"""Those in force, the last on top."""


@named_extras()
def install(
    kernels: Iterable[str | Any] | None = None, mode: Mode = "after", *, cost_model: Any = None,
    planner: Callable[..., Any] | None = None, budget: float = 0.5,
) -> Installation:
    """Plan the layouts of kernels that Triton compiles from here on, until `uninstall` or the end of a ``with``.

    kernels: names or functions under ``triton.jit``; by default all. mode: ``after`` plans what Triton's pipeline
    leaves, of kernels that then convert layouts still, and assembles at most one kernel more; ``replace`` also runs the
    pipeline again with the planner in place of Triton's removals of layout conversions (of all, of all but the first,
    and so on), and takes the cheapest of all plans, for several times the compilation time. cost_model: of layouts; its
    ``repr`` becomes part of Triton's cache key and must say all that it is. planner: called with a `Kernel` and the
    cost model, and returns what has a ``kernel``, a ``cost`` and a ``given_cost``; by default
    `eggshard.triton.planning.plan_layouts`. budget: under ``after``, the part (or multiple) of the time of Triton's own
    compilation after which the search for a plan ends, with the best so far.

    Of several installations the last is in force. Those that Triton cached under the same key are taken from its cache.
    Raises `DependencyError` without Triton, `ProgramError` for an unknown mode, a negative budget, and a cost model
    whose ``repr`` is an address.
    """
    from triton import knobs

    if mode not in get_args(Mode):
        raise ProgramError(f"mode {mode!r}: expected one of {', '.join(get_args(Mode))}")
    if not budget >= 0:
        raise ProgramError(f"budget {budget!r}: expected a number of times Triton's own compilation, 0 or more")
    if cost_model is not None and " at 0x" in repr(cost_model):
        raise ProgramError(
            f"cost model {cost_model!r} is counted in Triton's cache key by its repr: give it one that says what it is")
    if isinstance(kernels, str):
        raise ProgramError(f"kernels={kernels!r}: expected several names, e.g. [{kernels!r}]")
    names = None if kernels is None else frozenset(map(_name, kernels))
    with _lock:
        found = Installation(names, mode, cost_model, planner, budget, knobs.runtime.add_stages_inspection_hook)
        knobs.runtime.add_stages_inspection_hook = found
        _installed.append(found)
    return found


def uninstall(installation: Installation | None = None) -> None:
    """End an installation, by default the last; the one before it is in force again. Nothing without any.

    Triton gets back the hook that it had, unless another was set on top in the meantime.
    """
    from triton import knobs

    with _lock:
        found = installation if installation is not None else (_installed[-1] if _installed else None)
        if found not in _installed:
            return
        _installed.remove(found)
        found.active = False
        top = knobs.runtime.add_stages_inspection_hook
        while isinstance(top, Installation) and not top.active:
            top = top.earlier
        knobs.runtime.add_stages_inspection_hook = top


def _name(kernel: Any) -> str:
    name = kernel if isinstance(kernel, str) else getattr(kernel, "__name__", None)
    if not isinstance(name, str):
        raise ProgramError(f"kernel {kernel!r}: expected a name, or a function under triton.jit")
    return name


def _change(installation: Installation, backend: Any, stages: Any, options: Any, language: Any) -> None:
    from triton.backends.compiler import Language

    from eggshard.triton.compiler.pipeline import is_ours

    if is_ours(backend) or "ttgir" not in stages:
        return
    original = stages["ttgir"]
    left = ""
    if language != Language.TRITON:
        left = "written in Gluon: its layouts are its author's"
    elif getattr(options, "instrumentation_mode", ""):
        left = "instrumented: what is watched stays as it is"
    replacement = Replacement(
        installation.mode, installation.cost_model, installation.planner, installation.budget)

    def stage(module: Any, metadata: dict[str, Any]) -> Any:
        name = str(module.get_entry_func_name())
        if not installation.covers(name):
            return original(module, metadata)
        if left:
            record(Outcome(name, backend.get_target_name(options), "equal", left, None, None, 0.0))
            return original(module, metadata)
        return improve(replacement, backend, options, original, module, metadata)

    names = list(stages)
    stages["ttgir"] = stage
    for before, name in pairwise(names[names.index("ttgir"):]):
        stages[name] = replacement.stage(name, before, stages[name])


@functools.cache
def source_digest() -> str:
    """Return a digest of eggshard's source, so that Triton's cache never serves what another version planned."""
    digest = hashlib.sha256()
    root = Path(version.__file__).parent
    for folder, below, files in os.walk(root, followlinks=True):
        below.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                digest.update((Path(folder) / name).read_bytes())
    return digest.hexdigest()
