"""Nested device programs: the bodies of loops and branches, their addresses, and how often they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from eggshard.errors import EggshardError
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import Action, StepPlan


class Nested(NamedTuple):
    """A device program in a step of another one: its name there, and how often it runs each time that the step does."""

    name: str
    program: StepPlan
    times: int


class Place(NamedTuple):
    """A device program where it stands: how often it runs in all, and in what; None for the outermost one.

    step, name: the step of ``outer`` that it is in, and its name there.
    """

    program: StepPlan
    times: int = 1
    outer: Place | None = None
    step: int = -1
    name: str = ""

    @property
    def address(self) -> str:
        """The program's address: "" for the outermost one, "3.body" for the body of the loop that is its step 3."""
        return "" if self.outer is None else f"{self.outer.address_of(self.step)}.{self.name}"

    def address_of(self, step: int) -> str:
        """The address of a step: "3.body.5"; its number in the outermost program."""
        return f"{self.address}.{step}" if self.outer else str(step)

    @property
    def problem(self) -> int:
        """The number of the problem that the program is the plan of (`Origin.problem`)."""
        return next((step.origins[-1].problem for step in self.program.steps if step.origins), -1 if self.outer else 0)

    def within(self, step: int) -> list[Place]:
        """The device programs in one of its steps."""
        return [Place(inner.program, self.times * inner.times, self, step, inner.name)
                for inner in nested(self.program.steps[step].action)]


def nested(action: Action) -> tuple[Nested, ...]:
    """The device programs in a loop or branch; none in any other action."""
    if isinstance(action, Loop):
        times = action.trips
        return Nested("condition", action.condition, times + 1), Nested("body", action.body, times)
    if isinstance(action, Branch):
        return tuple(Nested(f"branch{i}", branch, 1) for i, branch in enumerate(action.branches))
    return ()


def with_nested(action: Action, change: Callable[[StepPlan], StepPlan]) -> Action:
    """The action with the device programs in it changed; the action itself where they stay as they are."""
    programs = [inner.program for inner in nested(action)]
    made = [change(program) for program in programs]
    if all(new is old for new, old in zip(made, programs, strict=True)):
        return action
    if isinstance(action, Loop):
        condition, body = made
        return replace(action, condition=condition, body=body)
    assert isinstance(action, Branch)
    return replace(action, branches=tuple(made))


def steps_within(place: Place) -> Iterator[tuple[Place, int]]:
    """The steps of a program and of those in it, as they come in print: where each is, and its number there."""
    for i in range(len(place.program.steps)):
        yield place, i
        for inner in place.within(i):
            yield from steps_within(inner)


def places(program: StepPlan) -> Iterator[Place]:
    """A device program and all within it, each before those within it."""
    stack = [Place(program)]
    while stack:
        place = stack.pop()
        yield place
        stack += [inner for i in reversed(range(len(place.program.steps))) for inner in reversed(place.within(i))]


def located(program: StepPlan, address: int | str) -> tuple[Place, int]:
    """The device program in which the step with this address is, and its number there.

    EggshardError for an address that no step has, naming those that there are.
    """
    place = Place(program)
    number, *inner = [address] if isinstance(address, int) else str(address).split(".")
    while True:
        step = _number(place, number, address)
        if not inner:
            return place, step
        found = {there.name: there for there in place.within(step)}
        if inner[0] not in found or len(inner) == 1:
            has = " and ".join(f"{place.address_of(step)}.{name}" for name in found)
            raise EggshardError(f"step {address!r}: " + (
                f"the steps in {place.address_of(step)} are those of {has}, such as {place.address_of(step)}."
                f"{next(iter(found))}.0" if found else f"{place.address_of(step)} has no steps in it"))
        place = found[inner[0]]
        number, *inner = inner[1:]


def _number(place: Place, number: object, address: object) -> int:
    count, where = len(place.program.steps), place.address or "this plan"
    try:
        step = -1 if isinstance(number, bool) else int(str(number))
    except ValueError:
        step = -1
    if not 0 <= step < count:
        has = f"steps 0 to {count - 1}" if count else "no steps"
        lists = "print(plan)" if place.outer is None else f"plan.explain('{place.outer.address_of(place.step)}')"
        raise EggshardError(f"step {address!r}: {where} has {has}; {lists} lists them")
    return step


def runs_of_problems(program: StepPlan) -> dict[int, int]:
    """How often the programs of bodies run in all, by the numbers of their problems (`Origin.problem`).

    A body of which all was taken out of its loops runs as often as what it was taken to. A branch counts as if it
    always ran, as its price is that of its case where it is the dearest.
    """
    own: dict[int, int] = {}
    moved: dict[int, int] = {}
    for place in places(program):
        origins = [step.origins for step in place.program.steps if step.origins]
        for number in {chain[-1].problem for chain in origins}:
            own[number] = own.get(number, 0) + place.times
        # Of manual computations each has a chain of its own; what was taken out of one loop is of one.
        for number, _ in {(origin.problem, chain[k + 1 :]) for chain in origins for k, origin in enumerate(chain[:-1])}:
            moved[number] = moved.get(number, 0) + place.times
    return {number: times for number, times in {**moved, **own}.items() if number > 0}


def names_in_bodies(program: StepPlan) -> dict[int, dict[int, str]]:
    """What the values that hold the classes of bodies are called, by the numbers of their problems and by class."""
    found: dict[int, dict[int, str]] = {}
    for place in places(program):
        number = place.problem
        for v, tensor in enumerate(place.program.held if number > 0 else ()):
            if tensor is not None:
                found.setdefault(number, {}).setdefault(tensor.cls, f"%{v}")
    for place in places(program):  # what was taken out of loops, or is of a manual computation
        for i, step in enumerate(place.program.steps):
            for origin in step.origins[:-1]:
                there = f"what step {place.address_of(i)} makes"
                found.setdefault(origin.problem, {}).setdefault(origin.cls, there)
    return found
