"""Progress display of long work: the current stage, on a terminal, once two seconds have passed.

Nothing is drawn where stderr is no terminal (in tests, in pipes, under a job scheduler), and the display is erased at
the end. Work reports by what it does anyway: `timed` adds the seconds of a part to a clock, and a `Clock` tells others.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

#: The stages of planning, in order.
STAGES = ("read", "saturate", "select", "lower")
#: Seconds before anything is drawn.
WAIT = 2.0
#: Which stage the parts are of that a clock has seconds for.
_STAGE = {
    "read": "read", "layers": "read", "saturate": "saturate", "propagate": "saturate", "price": "saturate",
    "encode": "select", "select": "select", "bodies": "select", "decode": "lower", "schedule": "lower",
    "baseline": "lower",
}
#: None: a bar where stderr is a terminal. True, False: a bar, or none. Else called once with every stage, in order, as
#: it begins, and the seconds since the work began.
Progress = bool | Callable[[str, float], None] | None
T = TypeVar("T")


class Clock(dict[str, float]):
    """Seconds by part, told to a watcher as each begins."""

    def __init__(self, watch: Callable[[str], None]):
        super().__init__()
        self._watch = watch

    def begin(self, part: str) -> None:
        """A part begins."""
        self._watch(_STAGE.get(part, part))

    def __reduce__(self) -> tuple[type, tuple[dict[str, float]]]:
        return dict, (dict(self),)


class Bar:
    """A bar on stderr, drawn once the work has taken `WAIT` seconds, and removed at its end; or a caller's own."""

    def __init__(self, progress: Progress = None, stages: Sequence[str] = STAGES, title: str = "planning",
                 console: Console | None = None):
        self.stages, self.title, self._console = tuple(stages), title, console
        self._call = progress if callable(progress) else None
        self.drawn = sys.stderr.isatty() if progress is None else progress is True
        self._began = time.monotonic()
        self._now, self._done, self._total = self.stages[0] if self.stages else "", 0.0, 0.0
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._bar: object | None = None
        self._heard = -1
        self._ended = False

    def __enter__(self) -> Bar:
        if self.drawn:
            self._timer = threading.Timer(WAIT, self._draw)
            self._timer.daemon = True
            self._timer.start()
        return self

    def stage(self, name: str) -> None:
        """A stage begins, or comes again: planning at several prices selects and lowers more than once.

        A bar shows what is worked at. A caller's function hears of a stage once, and in order: never of an earlier one.
        """
        self._now, self._done, self._total = name, 0.0, 0.0
        place = self.stages.index(name) if name in self.stages else -1
        if self._call is not None and place > self._heard:
            self._heard = place
            self._call(name, time.monotonic() - self._began)
        self._update()

    def part(self, done: float, total: float) -> None:
        """Report that ``done`` of ``total`` units of the current stage are finished."""
        self._done, self._total = done, total
        self._update()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._ended = True
            if self._timer is not None:
                self._timer.cancel()
            if self._bar is not None:
                self._bar.stop()  # type: ignore[attr-defined]

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress as RichProgress, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._ended:
                return
            bar = RichProgress(
                TextColumn("{task.fields[title]}"), BarColumn(24), TextColumn("{task.description}"),
                TimeElapsedColumn(), console=self._console or Console(stderr=True), transient=True,
                refresh_per_second=5)
            bar.add_task(self._now, total=None, title=self.title)
            bar.start()
            self._bar = bar
        self._update()

    def _update(self) -> None:
        bar = self._bar
        if bar is None:
            return
        known = self._total or (len(self.stages) if len(self.stages) > 1 and self._now in self.stages else None)
        done = self._done if self._total else self.stages.index(self._now) if known else 0
        bar.update(0, description=self._now, completed=done, total=known)  # type: ignore[attr-defined]


def tracked(items: Sequence[T], name: str, progress: Progress = None) -> Iterator[T]:
    """The items one after the other, with a bar of how many are done."""
    with Bar(progress, (name,), "eggshard") as bar:
        for i, item in enumerate(items):
            bar.part(i, len(items))
            yield item


def timed(clock: dict[str, float], part: str, work: Callable[[], T]) -> T:
    """What the work returns, its seconds added to the clock, whose watcher, if it has one, hears that it begins."""
    if isinstance(clock, Clock):
        clock.begin(part)
    began = time.perf_counter()
    result = work()
    clock[part] = clock.get(part, 0.0) + time.perf_counter() - began
    return result
