"""A tap on Triton's pipeline from tensor IR to final TritonGPU IR, which hands over each removal of layout conversions.

A back end writes its pipeline as Python: it makes pass managers, adds passes, runs them. That function is run as it is,
on globals of its own in which pass managers note what is added to them. When one is to run, the passes run in real
pass managers, cut where layout conversions are removed. Nothing of Triton's modules is changed, so any number of
compilations may run at once, tapped or not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType, ModuleType
from typing import Any, Protocol

from eggshard.errors import ProgramError

REMOVAL = "add_remove_layout_conversions"


class Tap(Protocol):
    """What is called where the pipeline removes layout conversions.

    position: counts the removals of a compilation from 0. module: libtriton's, before the removal. remove: runs
    Triton's own pass on a module in place. The pipeline goes on with the module that is returned, of the same context.
    """

    def __call__(self, position: int, module: Any, remove: Callable[[Any], None]) -> Any: ...


def target_of(name: str) -> Any:
    """Triton's target of ``sm90``, ``gfx942``. Raises `ProgramError` for other names."""
    from triton.backends.compiler import GPUTarget

    if name.startswith("sm") and name[2:].isdigit():
        return GPUTarget("cuda", int(name[2:]), 32)
    if name.startswith("gfx"):
        return GPUTarget("hip", name, 64 if name.startswith("gfx9") else 32)
    raise ProgramError(f"target {name!r}: expected sm or gfx and what follows, e.g. sm90, gfx942")


@dataclass(frozen=True)
class Compilation:
    """A back end and the options of one compilation; metadata fills as stages run."""

    backend: Any
    options: Any
    context: Any
    metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, target: str | Any, options: dict[str, Any] | None = None) -> Compilation:
        """Make a compilation for a target (a name or Triton's own) with Triton's options (``num_warps``, ...)."""
        from triton._C.libtriton import ir
        from triton.compiler.compiler import make_backend

        backend = make_backend(target_of(target) if isinstance(target, str) else target)
        parsed = backend.parse_options(dict(options or {}))
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        return cls(backend, parsed, context, dict(parsed.__dict__))

    def stages(self, tap: Tap | None = None) -> dict[str, Callable[[Any, dict[str, Any]], Any]]:
        """Triton's stages by name; the one that makes TritonGPU IR with a tap."""
        from triton.backends.compiler import Language

        found: dict[str, Callable[[Any, dict[str, Any]], Any]] = {}
        tapped(self.backend, tap).add_stages(found, self.options, Language.TRITON)
        return found

    def tensor_ir(self, source: Any) -> Any:
        """The module of an ``ASTSource`` after Triton's passes on tensors without layouts."""
        backend = self.backend
        module = source.make_ir(
            backend.target, self.options, backend.get_codegen_implementation(self.options), backend.get_module_map(),
            self.context)
        return self.stages()["ttir"](module, self.metadata)

    def gpu_ir(self, module: Any, tap: Tap | None = None) -> Any:
        """The final TritonGPU module of one without layouts, which is used up."""
        return self.stages(tap)["ttgir"](module, self.metadata)


def tapped(backend: Any, tap: Tap | None) -> Any:
    """A copy of a back end whose TritonGPU pipeline calls a tap; without one, or of another design than is known here,
    it does what the original does. Hooks on stages can tell it from Triton's own by `is_ours`.
    """
    original = type(backend)
    members: dict[str, Any] = {"_eggshard": True}
    pipeline = original.__dict__.get("make_ttgir")
    function = pipeline.__func__ if isinstance(pipeline, staticmethod) else None
    if tap is not None and isinstance(function, FunctionType) and function.__closure__ is None:
        members["make_ttgir"] = staticmethod(partial(_run_tapped, function, tap))
    found = copy.copy(backend)
    found.__class__ = type(original.__name__, (original,), members)
    return found


def is_ours(backend: Any) -> bool:
    return hasattr(type(backend), "_eggshard")


def _run_tapped(function: FunctionType, tap: Tap, module: Any, *arguments: Any, **options: Any) -> Any:
    run = _Run(tap)
    own = {
        name: _Namespace(value, run) if isinstance(value, ModuleType) and _adds_passes(value) else value
        for name, value in function.__globals__.items()
    }
    pipeline = FunctionType(function.__code__, own, function.__name__, function.__defaults__, None)
    pipeline.__kwdefaults__ = function.__kwdefaults__
    return _plain(pipeline(_Module(module), *arguments, **options))


def _adds_passes(module: ModuleType) -> bool:
    return module.__name__.startswith("triton._C")


@dataclass
class _Run:
    """One run of a pipeline. removals: how many so far."""

    tap: Tap
    removals: int = 0


class _Module:
    """Stands for a module that may be replaced while the pipeline's function holds it."""

    def __init__(self, current: Any) -> None:
        self.__dict__["current"] = current

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.current, name, value)

    def __str__(self) -> str:
        return str(self.current)


def _plain(value: Any) -> Any:
    return value.current if isinstance(value, _Module) else value


class _Manager:
    """Notes what is done to a pass manager until it is to run."""

    def __init__(self, run: _Run, make: Callable[[], Any]) -> None:
        self._run = run
        self._make = make
        self._before: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self._passes: list[tuple[str, Callable[[Any], Any]]] = []

    def __getattr__(self, name: str) -> Any:
        """A method that sets the manager up (``enable_debug``): done at once for its answer, and again on each cut."""
        def call(*arguments: Any, **options: Any) -> Any:
            self._before.append((name, arguments, options))
            return getattr(self._make(), name)(*arguments, **options)

        return call

    def add(self, name: str, adder: Callable[[Any], Any]) -> None:
        self._passes.append((name, adder))

    def run(self, module: Any, *arguments: Any) -> None:
        def go(passes: list[Callable[[Any], Any]], on: Any) -> None:
            real = self._make()
            for name, given, options in self._before:
                getattr(real, name)(*given, **options)
            for adder in passes:
                adder(real)
            real.run(_plain(on), *arguments)

        waiting: list[Callable[[Any], Any]] = []
        for name, adder in self._passes:
            if name != REMOVAL:
                waiting.append(adder)
                continue
            if waiting:
                go(waiting, module)
            waiting = []
            position, self._run.removals = self._run.removals, self._run.removals + 1
            found = self._run.tap(position, _plain(module), partial(go, [adder]))
            if isinstance(module, _Module):
                module.__dict__["current"] = found
            elif found is not module:
                raise ProgramError("this version's pipeline holds its module where it cannot be replaced")
        if waiting:
            go(waiting, module)


class _Namespace:
    """A module of bindings in which functions that take a pass manager first are noted on it."""

    def __init__(self, real: Any, run: _Run) -> None:
        self._real = real
        self._of = run

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if isinstance(found, ModuleType):
            return _Namespace(found, self._of)
        if name == "pass_manager":
            return lambda *arguments: _Manager(self._of, lambda: found(*map(_plain, arguments)))
        if isinstance(found, type) or not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            plain = tuple(map(_plain, arguments))
            if plain and isinstance(plain[0], _Manager):
                plain[0].add(name, lambda real: found(real, *plain[1:], **options))
                return None
            return found(*plain, **options)

        return call
