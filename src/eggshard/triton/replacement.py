"""One compilation's TritonGPU module, Triton's or ours: both are made, ours must be better where that can be told."""

from __future__ import annotations

import importlib
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from eggshard.costmodel.layouts import WithinScratch, default_costs
from eggshard.errors import ProgramError
from eggshard.layouts.machine import Machine
from eggshard.triton.outcomes import Outcome, record
from eggshard.triton.pipeline import Compilation, Tap
from eggshard.triton.replacing import replaced
from eggshard.triton.residency import resident_blocks

#: Modelled costs closer than this part of one another are the same.
SAME = 1e-9
#: How many planned kernels are remembered.
REMEMBERED = 512

_BARRIER = re.compile(r"call void @llvm\.(?:nvvm\.barrier|amdgcn\.s\.barrier)")


class Doubt(Exception):
    """Our kernel is not taken; the message says why."""


class Planned(NamedTuple):
    """A kernel's planned text, its modelled cost, and that of the kernel as it was given."""

    text: str
    cost: float
    given_cost: float


@dataclass(frozen=True)
class Replacement:
    """How layouts are planned: see `eggshard.triton.install`."""

    mode: str
    cost_model: Any = None
    planner: Callable[..., Any] | None = None

    def plan(self, module: Any, within: bool = False) -> Planned:
        """Of libtriton's module, which stays as it is. The same text is planned once. ``within``: no op may hold more
        shared memory than the module's ops do."""
        from eggshard.frontends.triton.libtriton import generic_text

        return _plan(self, generic_text(module), within)


_planning = threading.Lock()
_remembered: OrderedDict[tuple[str, Any, Any, bool], Planned] = OrderedDict()


def _plan(how: Replacement, text: str, within: bool) -> Planned:
    from eggshard.kernels.interpreter import check_layouts
    from eggshard.kernels.text import read_generic, write_generic
    from eggshard.triton.pricing import scratch

    planner = how.planner or importlib.import_module("eggshard.triton.planning").plan_layouts
    key = (text, repr(how.cost_model), planner, within)
    with _planning:
        if key not in _remembered:
            kernel, model = read_generic(text), how.cost_model
            if within:
                model = WithinScratch(default_costs(kernel.target) if model is None else model, scratch(kernel))
            found = planner(kernel, model)
            try:
                check_layouts(found.kernel)
            except ProgramError as error:
                raise Doubt(f"layouts do not line up: {error}") from error
            _remembered[key] = Planned(write_generic(found.kernel), found.cost, found.given_cost)
            if len(_remembered) > REMEMBERED:
                _remembered.popitem(last=False)
        _remembered.move_to_end(key)
        return _remembered[key]


def improve(
    how: Replacement, backend: Any, options: Any, original: Callable[[Any, dict[str, Any]], Any], module: Any,
    metadata: dict[str, Any],
) -> Any:
    """Triton's stage ``original`` on a module without layouts, and what is better than its result if there is one."""
    source = str(module)
    kernel = str(module.get_entry_func_name())
    theirs = original(module, metadata)
    began = time.monotonic()
    target = backend.get_target_name(options)
    try:
        found, given_cost, cost = _better(how, _Work(backend, options, metadata), source, theirs)
    except Doubt as doubt:
        record(Outcome(kernel, target, "fallback", str(doubt), None, None, time.monotonic() - began))
        return theirs
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        record(Outcome(kernel, target, "fallback", reason, None, None, time.monotonic() - began))
        return theirs
    seconds = time.monotonic() - began
    if found is None:
        record(Outcome(kernel, target, "equal", "", given_cost, cost, seconds))
        return theirs
    record(Outcome(kernel, target, "improved", "", given_cost, cost, seconds))
    return found


@dataclass
class _Work:
    """What both modules are compiled by, in the context of Triton's own module."""

    backend: Any
    options: Any
    metadata: dict[str, Any]

    def compilation(self, context: Any) -> Compilation:
        return Compilation(self.backend, self.options, context, dict(self.metadata))

    def code(self, text: str, context: Any) -> tuple[int, int]:
        """Bytes of shared memory, and barriers in the code, of TritonGPU IR."""
        from eggshard.frontends.triton.libtriton import parse

        compilation = self.compilation(context)
        lowered = compilation.stages()["llir"](parse(text, context), compilation.metadata)
        return int(compilation.metadata["shared"] or 0), len(_BARRIER.findall(lowered))


def _better(how: Replacement, work: _Work, source: str, theirs: Any) -> tuple[Any, float, float]:
    """The module to be taken, None for Triton's; the modelled cost of Triton's and of what is taken.

    The cheapest is tried first. Raises `Doubt` where all that are cheaper than Triton's are refused.
    """
    context = theirs.context
    after = how.plan(theirs)
    given_cost = after.given_cost
    found = [(after.cost, after.text)]
    if how.mode == "replace":
        found.append(_replaced(how, work, source, context, after.cost))
    margin = SAME * abs(given_cost)
    cheaper = sorted((c for c in found if c[0] < given_cost - margin), key=lambda c: c[0])
    if not cheaper:
        if all(cost > given_cost + margin for cost, _ in found):
            raise Doubt(f"costs more: {found[0][0]:g}, Triton's {given_cost:g}")
        return None, given_cost, given_cost
    own = work.code(str(theirs), context)
    doubts = []
    for cost, text in cheaper:
        try:
            return _checked(work, text, own, context), given_cost, cost
        except Doubt as doubt:
            doubts.append(doubt)
    small = how.plan(theirs, within=True)
    if small.cost < given_cost - margin:
        return _checked(work, small.text, own, context), given_cost, small.cost
    raise doubts[0]


def _checked(work: _Work, text: str, own: tuple[int, int], context: Any) -> Any:
    """The module of a text that is no worse than Triton's, ``own``, in barriers, and in blocks that are resident at
    once for the shared memory that they hold; else a `Doubt`."""
    from eggshard.frontends.triton.libtriton import load

    module = _verified(text, context)
    (held, barriers), (others_held, others) = work.code(text, context), own
    if barriers > others:
        raise Doubt(f"more barriers: {barriers}, Triton's {others}")
    machine = Machine.of(load(module))
    if resident_blocks(machine, held) < resident_blocks(machine, others_held):
        raise Doubt(f"more shared memory: {held} bytes, Triton's {others_held}, so that fewer blocks run at once")
    return module


def _replaced(how: Replacement, work: _Work, source: str, context: Any, enough: float) -> tuple[float, str]:
    """Of Triton's pipeline with the planner in place of removals, and once more on what that leaves."""
    from eggshard.frontends.triton.libtriton import parse

    def run(tap: Tap) -> Any:
        module = work.compilation(context).gpu_ir(parse(source, context), tap)
        if not module.verify():
            raise Doubt("does not verify")
        return module

    found = replaced(run, how.plan, lambda planned: _verified(planned.text, context), enough)
    if found is None:
        raise Doubt("no removal of layout conversions in this version's pipeline")
    return found.cost, found.text


def _verified(text: str, context: Any) -> Any:
    from eggshard.frontends.triton.libtriton import parse

    try:
        module = parse(text, context)
    except ProgramError as error:
        raise Doubt(f"does not verify: {error}") from error
    if not module.verify():
        raise Doubt("does not verify")
    return module
