"""Replacement of one compilation's TritonGPU module: Triton's and ours are made, and ours is taken only if better."""

from __future__ import annotations

import importlib
import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from eggshard.collector import collector_paused
from eggshard.errors import ProgramError
from eggshard.triton.classes import CONVERT
from eggshard.triton.compiler.choosing import SAME, Code, cautious, choose, confining, foreseen, room, variations
from eggshard.triton.compiler.compilation import Compiled, lower
from eggshard.triton.compiler.outcomes import Outcome, Result, record
from eggshard.triton.compiler.pipeline import Compilation, Tap
from eggshard.triton.compiler.replacing import replaced
from eggshard.triton.compiler.settled import Settled
from eggshard.triton.kernels.ir import Kernel
from eggshard.triton.layout_costs import LayoutCostModel, default_costs
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.pricing import cost, scratch

#: How many planned kernels are remembered.
REMEMBERED = 512
#: The part of its cost that a kernel is to gain for one more to be assembled, where one plan is made.
WORTHWHILE = 5e-3
#: Seconds that a plan may take in place of Triton's removals, and where a kernel would not run without.
PATIENCE = 60.0


class Doubt(ProgramError):
    """Our kernel is not taken; the message says why."""


class Planned(NamedTuple):
    """A kernel's planned text, its modelled cost, and that of the kernel as it was given."""

    text: str
    cost: float
    given_cost: float


class Lowered(NamedTuple):
    """What the stages after TritonGPU IR made of the module that goes on, to be used again as they are asked for it."""

    module: Any
    compiled: Compiled


@dataclass
class Replacement:
    """How layouts are planned in one compilation: see `eggshard.triton.install`; and what was made on the way.

    until: when searches end, of `time.monotonic`.
    """

    mode: str
    cost_model: Any = None
    planner: Callable[..., Any] | None = None
    budget: float = math.inf
    settled: Settled = field(default_factory=Settled)
    lowered: Lowered | None = None
    until: float = math.inf

    @property
    def seconds(self) -> float:
        """What the next plan may take."""
        return min(PATIENCE, max(0.0, self.until - time.monotonic()))

    def plan(self, module: Any) -> Planned:
        """Plan libtriton's module, which is not changed; equal texts are planned once."""
        from eggshard.triton.frontend.libtriton import generic_text

        return _plan(self, generic_text(module))

    def variations(self, module: Any) -> Iterator[Planned]:
        """Other plans of a module, which avoid more of what code may be refused for."""
        return self._others(module, lambda model, given: variations(model, scratch(given)))

    def confined(self, module: Any, shared: int) -> Iterator[Planned]:
        """Plans of a module, whose code has too much shared memory, with ever less of it."""
        return self._others(
            module, lambda model, given: confining(model, shared, scratch(given), Machine.of(given)))

    def _others(
        self, module: Any, models: Callable[[LayoutCostModel, Kernel], Iterable[LayoutCostModel]]
    ) -> Iterator[Planned]:
        """Plans of a module under other models than the installed one, at the prices of that."""
        from eggshard.triton.frontend.libtriton import generic_text
        from eggshard.triton.kernels.text import read_generic

        text = generic_text(module)
        given = read_generic(text)
        model = default_costs(given.target) if self.cost_model is None else self.cost_model
        before = cost(given, model)
        for other in models(model, given):
            found = _plan(self, text, other)
            yield Planned(found.text, cost(read_generic(found.text), model), before)

    def refused(self, module: Any, planned: Planned) -> bool:
        """Whether a plan's code is likely to be refused (`choosing.foreseen`)."""
        from eggshard.triton.frontend.libtriton import generic_text
        from eggshard.triton.kernels.text import read_generic

        return foreseen(read_generic(planned.text), read_generic(generic_text(module)))

    def cautious(self, module: Any, own: Code) -> Planned:
        """A plan of a module, whose code is ``own``, that avoids what code is refused for, else the module as it is; a
        planner of one's own is asked for its plan."""
        from eggshard.triton.frontend.libtriton import generic_text

        if self.planner is not None:
            return self.plan(module)
        for found in self._others(
                module, lambda model, given: cautious(model, room(own, scratch(given), Machine.of(given)))):
            if found.cost < (1 - WORTHWHILE) * found.given_cost:
                return found
            if not self.seconds:
                break
        return Planned(generic_text(module), found.given_cost, found.given_cost)

    def stage(self, name: str, before: str, original: Callable[[Any, dict[str, Any]], Any]) -> Any:
        """A stage after TritonGPU IR, which follows the stage ``before``."""
        def run(given: Any, metadata: dict[str, Any]) -> Any:
            if self.lowered is not None:
                module, compiled = self.lowered
                if given is (module if before == "ttgir" else compiled.stages[before]):
                    metadata.update(compiled.noted[name])
                    return compiled.stages[name]
            return original(given, metadata)

        return run


#: The end of a module in generic form, with its attributes: what layouts depend on, and what later stages do with it.
_MODULE = re.compile(r"^\}\) (\{.*\}) : \(\) -> \(\)", re.MULTILINE)
_MACHINE = re.compile(r"(num-ctas|num-warps|target|threads-per-warp)\"? = (\S+)")

_planning = threading.Lock()
_remembered: OrderedDict[object, Planned] = OrderedDict()


def _plan(how: Replacement, text: str, model: LayoutCostModel | None = None) -> Planned:
    """The plan of a kernel's text under ``model``, by default the replacement's. Kernels that differ only in what later
    stages do with them, as some that an autotuner tries, have one plan, unless the clock ended its search."""
    planner = how.planner or importlib.import_module("eggshard.triton.planning").plan_layouts
    end = _MODULE.search(text)
    machine = () if end is None else tuple(sorted(_MACHINE.findall(end[1])))
    body = text if end is None else text[:end.start()] + text[end.end():]
    key = (body, machine, repr(how.cost_model if model is None else model), planner)
    with _planning:
        found = _remembered.get(key)
        if found is None:
            found, late = _planned(how, text, model, planner)
            if not late:
                _remembered[key] = found
                if len(_remembered) > REMEMBERED:
                    _remembered.popitem(last=False)
        else:
            _remembered.move_to_end(key)
    if end is None:
        return found
    return found._replace(text=_MODULE.sub(lambda _: end[0], found.text))


def _planned(
    how: Replacement, text: str, model: LayoutCostModel | None, planner: Callable[..., Any]
) -> tuple[Planned, bool]:
    """A new plan of a kernel's text, and whether the clock ended its search. Raises `Doubt` for one that does not hold
    together."""
    from eggshard.triton.alignment import check_layouts
    from eggshard.triton.kernels.text import read_generic, write_generic

    kernel = read_generic(text)
    found = how.settled.find(kernel) if model is None else None
    if found is None:
        limit = {"seconds": how.seconds} if how.planner is None else {}
        found = planner(kernel, how.cost_model if model is None else model, **limit)
        if model is None:
            how.settled.add(found)
    try:
        check_layouts(found.kernel)
    except ProgramError as error:
        raise Doubt(f"layouts do not line up: {error}") from error
    return Planned(write_generic(found.kernel), found.cost, found.given_cost), getattr(found, "late", False)


def improve(
    how: Replacement, backend: Any, options: Any, original: Callable[[Any, dict[str, Any]], Any], module: Any,
    metadata: dict[str, Any],
) -> Any:
    """Triton's stage ``original`` on a module without layouts, and what is better than its result if there is one."""
    source = str(module)
    kernel = str(module.get_entry_func_name())
    began = time.monotonic()
    theirs = original(module, metadata)
    made = time.monotonic()
    target = backend.get_target_name(options)
    if how.mode == "after" and CONVERT not in str(theirs):
        record(Outcome(kernel, target, "equal", "", None, None, time.monotonic() - made))
        return theirs
    work = _Work(how, backend, options, metadata, theirs)
    found: Any = None
    given_cost: float | None = None
    cost: float | None = None
    result: Result = "fallback"
    reason = ""
    try:
        with collector_paused():
            own = work.own()
            made = time.monotonic()
            if how.mode == "after":
                how.until = made + how.budget * (made - began)
            found, given_cost, cost = _better(how, work, source) if own.fits(work.machine) else _fitting(how, work)
        result = "equal" if found is None else "improved"
    except Exception as error:  # whatever it was, Triton's own module is still right
        reason = str(error) if isinstance(error, Doubt) else f"{type(error).__name__}: {error}"
    record(Outcome(kernel, target, result, reason, given_cost, cost, time.monotonic() - made))
    return theirs if found is None else found


@dataclass
class _Work:
    """What both modules are compiled by, in the context of Triton's own module. compiled, codes: by their texts."""

    how: Replacement
    backend: Any
    options: Any
    metadata: dict[str, Any]
    theirs: Any
    compiled: dict[str, Compiled] = field(default_factory=dict)
    codes: dict[str, Code] = field(default_factory=dict)

    def compilation(self) -> Compilation:
        return Compilation(self.backend, self.options, self.theirs.context, dict(self.metadata))

    def code(self, text: str) -> Code:
        """Assemble TritonGPU IR. Raises `Doubt` where it does not verify, `ProgramError` where a stage fails."""
        if text not in self.codes:
            self.compiled[text] = lower(self.compilation(), _verified(text, self.theirs.context))
            self.codes[text] = Code.of(self.compiled[text])
        return self.codes[text]

    @cached_property
    def own_text(self) -> str:
        return str(self.theirs)

    @property
    def machine(self) -> Machine:
        """What Triton's own code runs on."""
        return self.compiled[self.own_text].machine

    def own(self) -> Code:
        """Triton's own code, which is what the compilation ends with unless a plan is taken."""
        found = self.code(self.own_text)
        self.how.lowered = Lowered(self.theirs, self.compiled[self.own_text])
        return found


def _better(how: Replacement, work: _Work, source: str) -> tuple[Any, float, float]:
    """The module to be taken, None for Triton's; the modelled cost of Triton's and of what is taken.

    Raises `Doubt` where all that are cheaper than Triton's are refused.
    """
    theirs = work.theirs
    after = how.cautious(theirs, work.own()) if how.mode == "after" else how.plan(theirs)
    given_cost = after.given_cost
    margin = SAME * abs(given_cost)
    failed: list[str] = []

    def plans() -> Iterator[Planned]:
        as_good: list[Planned] = []
        if how.mode == "after":
            if after.cost < (1 - WORTHWHILE) * given_cost:
                if how.planner is None and how.refused(theirs, after):
                    raise Doubt("likely to be refused for barriers or shared memory")
                yield after
            return
        try:
            for plan in _replaced(how, work, source):
                if plan.cost < min(after.cost, given_cost) - margin:
                    yield plan
                elif plan.cost <= min(after.cost, given_cost) + margin:
                    as_good.append(plan)
                    break
        except Exception as error:  # whatever it was, what Triton leaves is planned already
            failed.append(f"{type(error).__name__}: {error}")
        if after.cost < given_cost - margin:
            yield after
            yield from as_good
            yield from (plan for plan in how.variations(theirs) if plan.cost < given_cost - margin)

    found = choose(plans(), given_cost, work.own, lambda plan: work.code(plan.text))
    if found.plan is None:
        if after.cost > given_cost + margin:
            raise Doubt(f"costs more: {after.cost:g}, Triton's {given_cost:g}")
        for refused in (*found.refused, *failed):
            raise Doubt(refused)
        return None, given_cost, given_cost
    return _taken(how, work, found.plan), given_cost, found.plan.cost


def _fitting(how: Replacement, work: _Work) -> tuple[Any, float, float]:
    """As `_better`, for a kernel that has more shared memory than a block may have, so that anything that has not is
    better. Raises `Doubt` where nothing has less."""
    shared, how.until = work.own().shared, math.inf
    for plan in how.confined(work.theirs, shared):
        if plan.text != work.own_text and work.code(plan.text).fits(work.machine):
            return _taken(how, work, plan), plan.given_cost, plan.cost
    raise Doubt(f"more shared memory than a block may have, whatever the layouts: {shared} bytes")


def _taken(how: Replacement, work: _Work, plan: Planned) -> Any:
    """The module of a plan that was assembled, which is not assembled again."""
    module = _verified(plan.text, work.theirs.context)
    how.lowered = Lowered(module, work.compiled[plan.text])
    return module


def _replaced(how: Replacement, work: _Work, source: str) -> Iterator[Planned]:
    """Yield the plans of Triton's pipeline with the planner in place of its layout removals, then of its result."""
    from eggshard.triton.frontend.libtriton import parse

    context = work.theirs.context

    def run(tap: Tap) -> Any:
        module = work.compilation().gpu_ir(parse(source, context), tap)
        if not module.verify():
            raise Doubt("does not verify")
        return module

    return replaced(run, how.plan, lambda planned: _verified(planned.text, context))


def _verified(text: str, context: Any) -> Any:
    from eggshard.triton.frontend.libtriton import parse

    try:
        module = parse(text, context)
    except ProgramError as error:
        raise Doubt(f"does not verify: {error}") from error
    if not module.verify():
        raise Doubt("does not verify")
    return module
