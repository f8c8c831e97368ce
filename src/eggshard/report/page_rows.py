"""A plan's steps as rows of the report's page; the steps of a loop or branch follow the loop's or branch's own row."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eggshard.report.explanation import Context
from eggshard.steps.nested import Place
from eggshard.steps.peak_memory import alive_bytes
from eggshard.steps.steps import Step

if TYPE_CHECKING:
    from eggshard.costmodel.schedule import Schedule
    from eggshard.plan.record import PlanRecord


class Room(NamedTuple):
    """A device program, where its rows and values begin among those of the page, and when it runs.

    start, stretch: its times are drawn from there, so many times as long as in one run: all runs one after the other.
    spare: bytes that its outer programs hold meanwhile besides its own inputs.
    """

    context: Context
    schedule: Schedule
    alive: list[int]
    first_value: int
    start: float
    stretch: float
    spare: int

    @property
    def place(self) -> Place:
        """The place of this program among the nested ones."""
        return self.context.place


class Row(NamedTuple):
    """A step: in which program, its number there, the row of the step that it is in (-1: of the plan itself), and the
    plan's own step that it is in the end."""

    room: Room
    number: int
    parent: int
    root: int

    @property
    def step(self) -> Step:
        """The step itself."""
        return self.room.place.program.steps[self.number]

    @property
    def address(self) -> str:
        """The step's address as `Plan.explain` takes it."""
        return self.room.place.address_of(self.number)

    @property
    def start(self) -> float:
        """When it starts, in seconds since the plan does."""
        return self.room.start + self.room.stretch * self.room.schedule.starts[self.number]

    @property
    def seconds(self) -> float:
        """What it takes in all its runs."""
        return self.room.place.times * self.room.schedule.work[self.number].seconds

    @property
    def hidden(self) -> float:
        """Seconds of the step, over all its runs, that are hidden behind the computation of other steps."""
        return self.room.place.times * self.room.schedule.hidden[self.number]

    @property
    def received(self) -> int:
        """Bytes that the busiest device receives in all its runs."""
        return round(self.room.place.times * float(self.room.place.program.received(self.step).max()))

    @property
    def end(self) -> float:
        """When its last run ends, if all are one after the other."""
        return self.start + self.room.stretch * self.room.schedule.work[self.number].seconds

    @property
    def alive(self) -> int:
        """Bytes of shards on a device while it runs."""
        return self.room.spare + self.room.alive[self.number]

    @property
    def values(self) -> tuple[list[int], list[int]]:
        """The numbers of the step's operands and results among the values of the page."""
        first = self.room.first_value
        return [first + v for v in self.step.operands], [first + v for v in self.step.results]


class Inside(NamedTuple):
    """A device program in a step: its address, its rows (the first, how many), how often it runs, its inputs."""

    address: str
    first: int
    size: int
    times: int
    inputs: list[int]


class Rows:
    """All rows of a plan, and per row of a loop or branch what is inside it."""

    def __init__(self, plan: PlanRecord):
        self.plan = plan
        self.rooms: list[Room] = []
        self.rows: list[Row] = []
        self.inside: dict[int, list[Inside]] = {}
        self._values = 0
        self._enter(Place(plan.device_program), plan.schedule, 0.0, 1.0, 0, -1, -1)

    def _enter(self, place: Place, schedule: Schedule, start: float, stretch: float, spare: int, parent: int,
               root: int) -> None:
        program = place.program
        room = Room(Context(self.plan, place), schedule, alive_bytes(program), self._values, start, stretch, spare)
        self.rooms.append(room)
        self._values += len(program.types)
        for i, step in enumerate(program.steps):
            row = len(self.rows)
            self.rows.append(Row(room, i, parent, i if root < 0 else root))
            inner = place.within(i)
            if not inner:
                continue
            at = self.rows[row].start
            held = spare + room.alive[i] - sum(program.types[v].bytes for v in (*step.operands, *step.results))
            for there in inner:
                times = there.times // place.times
                first, known = len(self.rows), self.plan._price.schedule(there.program)
                room_there = len(self.rooms)
                self._enter(there, known, at, stretch * times, held, row, self.rows[row].root)
                inputs = [self.rooms[room_there].first_value + v for v in there.program.inputs]
                self.inside.setdefault(row, []).append(
                    Inside(there.address, first, len(self.rows) - first, there.times, inputs))
                if there.name in ("condition", "body"):  # a loop's run one after the other, branches instead
                    at += stretch * times * known.makespan

    @property
    def alive(self) -> list[int]:
        """Per row the bytes of shards on a device while it runs; of a loop or branch the most inside it."""
        found = [row.alive for row in self.rows]
        for row in sorted(self.inside, reverse=True):
            inner = [found[i] for there in self.inside[row] for i in range(there.first, there.first + there.size)]
            found[row] = max(inner, default=found[row])
        return found
