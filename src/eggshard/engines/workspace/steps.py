"""The workspace of a device program: placement and lifetime of its values, loop states and scratch buffers.

All steps are on one timeline. A loop occupies the instants of its condition and of its body once: apart from the loop's
state, everything in both is dead between iterations. Branches follow one another on the timeline and share memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from eggshard.engines.workspace import tables
from eggshard.engines.workspace.layout import Layout, lay_out
from eggshard.engines.workspace.obligations import Apart, Proof, prove
from eggshard.engines.workspace.requests import Lifetime, Request
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import Step, StepPlan
from eggshard.tables import Shown

#: Where a program lies within another: () is the whole, (7, "body") the body of the loop at step 7, (9, "branch", 0)
#: the first branch of step 9; paths of programs within these go on.
Path: TypeAlias = tuple[int | str, ...]
#: What a step of an engine needs besides its operands and results, from its path, index and program: the number of each
#: scratch buffer, and its bytes.
Staging: TypeAlias = Callable[[Path, int, StepPlan], Iterable[tuple[int, int]]]


class Instant(NamedTuple):
    """A moment of the program: what a step does there, and the program that the step is of."""

    path: Path
    step: int
    doing: str

    def __str__(self) -> str:
        return f"{_prefix(self.path)}{self.step} {self.doing}" if self.step >= 0 else self.doing


def value_name(path: Path, value: int) -> str:
    """The request of a value of the program at a path. Inputs of nested programs have none: `PlanWorkspace.home`."""
    return f"{_prefix(path)}v{value}"


def state_name(path: Path, step: int, index: int) -> str:
    """The request of the loop's ``index``-th carried value; iteration k reads slot k % 2 and writes the other."""
    return f"{_prefix(path)}{step}.state.{index}"


def staging_name(path: Path, step: int, index: int) -> str:
    """The request of a step's ``index``-th scratch buffer."""
    return f"{_prefix(path)}{step}.staging.{index}"


@dataclass(frozen=True, repr=False)
class PlanWorkspace(Shown):
    """Where everything that a device program touches lies in a device's slice.

    homes: per program, and each of its values, the name of the request that holds it. Inputs of a loop's condition
    and body are the loop's state, inputs of a branch are the operands themselves. staging: what steps need besides.
    """

    program: StepPlan
    layout: Layout
    instants: tuple[Instant, ...]
    homes: Mapping[Path, Mapping[int, str]]
    staging: tuple[str, ...] = ()

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests, in the layout's canonical order."""
        return self.layout.requests

    def home(self, path: Path, value: int) -> str:
        """The request that holds a value of the program at a path."""
        return self.homes[path][value]

    @property
    def stride(self) -> int:
        """Bytes of one device's slice."""
        return self.layout.stride

    @property
    def peak_bytes(self) -> int:
        """Bytes of a slice that the program touches: to the end of the highest buffer."""
        return self.layout.extent

    @property
    def live_bytes(self) -> int:
        """The most bytes that are live at one instant, sizes aligned: no layout of these lifetimes takes fewer."""
        return self.layout.live_bytes

    @property
    def total_bytes(self) -> int:
        """Bytes of all slices."""
        return self.layout.total(self.program.mesh.size)

    def proof(self) -> Proof:
        """What must hold of this workspace, and how each of it holds."""
        homes = self.homes
        apart = []
        for path, plan in programs(self.program):
            for i, step in enumerate(plan.steps):
                if not isinstance(step.action, (Loop, Branch)):
                    apart += [
                        Apart(homes[path][r], homes[path][o], _site(path, i, step))
                        for r in step.results for o in dict.fromkeys(step.operands)
                    ]
        names = {name for values in homes.values() for name in values.values()}
        return prove(self.layout, used=names.union(self.staging), apart=apart, instants=[str(t) for t in self.instants])

    def picture(self, width: int = 96, height: int = 24) -> str:
        """Text: time from left to right, addresses upwards, a letter for each buffer."""
        return tables.picture(self.layout, len(self.instants), self.program.mesh.size, width, height)

    def svg(self) -> str:
        """The picture as SVG text, a rectangle for each buffer."""
        return tables.svg(self.layout, len(self.instants))

    def __str__(self) -> str:
        return tables.workspace_table(self.layout, self.program.mesh.size)


def nested(step: Step) -> list[tuple[Path, StepPlan]]:
    """The device programs within a step, with the ends of their paths."""
    match step.action:
        case Loop(condition, body):
            return [(("condition",), condition), (("body",), body)]
        case Branch(branches):
            return [(("branch", b), inner) for b, inner in enumerate(branches)]
    return []


def programs(plan: StepPlan, path: Path = ()) -> Iterator[tuple[Path, StepPlan]]:
    """The program and all within it, each with its path."""
    yield path, plan
    for i, step in enumerate(plan.steps):
        for part, inner in nested(step):
            yield from programs(inner, (*path, i, *part))


def workspace_of(program: StepPlan, guard: int = 0, staging: Staging | None = None) -> PlanWorkspace:
    """The workspace of a device program.

    Inputs and outputs live from start to end; a step's results never overlap its operands, which peers may read until
    the step ends. A loop copies its operands into its state first, and its state into its results last; a branch
    copies its outputs into the results. ``guard``: bytes at the end of a slice that no one may write. ``staging``: what
    else an engine's steps need while they run.
    """
    timeline = _Timeline(staging)
    timeline.whole(program)
    layout = lay_out([*timeline.requests.values(), *timeline.scratch], guard)
    staged = tuple(r.name for r in timeline.scratch)
    return PlanWorkspace(program, layout, tuple(timeline.instants), timeline.homes, staged)


class _Timeline:
    """Walks a device program and notes when each buffer is first and last touched."""

    def __init__(self, staging: Staging | None):
        self.staging = staging
        self.instants: list[Instant] = []
        self.homes: dict[Path, dict[int, str]] = {}
        self.requests: dict[str, Request] = {}
        self.scratch: list[Request] = []

    def whole(self, program: StepPlan) -> None:
        start = self.tick((), -1, "start")
        homes = {
            v: self.new(Request(value_name((), v), program.types[v].bytes, Lifetime(start, start), site=f"input {i}"))
            for i, v in enumerate(program.inputs)}
        self.visit(program, (), homes)
        self.touch((homes[v] for v in (*program.inputs, *program.outputs)), self.tick((), len(program.steps), "end"))

    def tick(self, path: Path, step: int, doing: str) -> int:
        self.instants.append(Instant(path, step, doing))
        return len(self.instants) - 1

    def new(self, request: Request) -> str:
        self.requests[request.name] = request
        return request.name

    def touch(self, names: Iterable[str], at: int) -> None:
        """Let these live until an instant, the last one so far."""
        for name in names:
            request = self.requests[name]
            self.requests[name] = replace(request, lifetime=request.lifetime._replace(last=at))

    def visit(self, plan: StepPlan, path: Path, homes: dict[int, str]) -> None:
        self.homes[path] = homes
        for i, step in enumerate(plan.steps):
            match step.action:
                case Loop():
                    self.loop(plan, path, i, step, step.action)
                case Branch():
                    self.branch(plan, path, i, step, step.action)
                case _:
                    at = self.tick(path, i, step.action.kind)
                    self.read(homes, step.operands, at)
                    self.results(plan, path, i, step, at)
                    if step.action.messages:
                        for name in {homes[v] for v in step.operands}:
                            self.requests[name] = replace(self.requests[name], sharing="shared-read")
                    if self.staging is not None:
                        for k, bytes in self.staging(path, i, plan):
                            name, site = staging_name(path, i, k), _site(path, i, step)
                            self.scratch.append(Request(name, bytes, Lifetime(at, at), site=site, what="staging"))

    def read(self, homes: Mapping[int, str], values: Iterable[int], at: int) -> None:
        self.touch((homes[v] for v in values), at)

    def results(self, plan: StepPlan, path: Path, i: int, step: Step, at: int) -> None:
        for v in step.results:
            self.homes[path][v] = self.new(Request(
                value_name(path, v), plan.types[v].bytes, Lifetime(at, at), site=_site(path, i, step)))

    def loop(self, plan: StepPlan, path: Path, i: int, step: Step, action: Loop) -> None:
        enter = self.tick(path, i, "enter")
        self.read(self.homes[path], step.operands, enter)
        state = [
            self.new(Request(state_name(path, i, k), plan.types[v].bytes, Lifetime(enter, enter), slots=2,
                             site=_site(path, i, step), what="state"))
            for k, v in enumerate(step.operands)
        ]
        for part, doing, inner in (("condition", "decide", action.condition), ("body", "carry", action.body)):
            homes = dict(zip(inner.inputs, state, strict=True))
            self.visit(inner, (*path, i, part), homes)
            self.read(homes, inner.outputs, self.tick(path, i, doing))
        leave = self.tick(path, i, "leave")
        self.touch(state, leave)
        self.results(plan, path, i, step, leave)

    def branch(self, plan: StepPlan, path: Path, i: int, step: Step, action: Branch) -> None:
        self.read(self.homes[path], step.operands, self.tick(path, i, "choose"))
        for b, inner in enumerate(action.branches):
            homes = {v: self.homes[path][o] for v, o in zip(inner.inputs, step.operands[1:], strict=True)}
            self.visit(inner, (*path, i, "branch", b), homes)
            done = self.tick(path, i, f"end of branch {b}")
            self.read(homes, inner.outputs, done)
            if b == 0:
                self.results(plan, path, i, step, done)
            self.read(self.homes[path], step.results, done)


def _prefix(path: Path) -> str:
    return "".join(f"{part}." for part in path)


def _site(path: Path, i: int, step: Step) -> str:
    return f"step {_prefix(path)}{i} ({step.action.kind})"
