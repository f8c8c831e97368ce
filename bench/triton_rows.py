"""One kernel for one target, up to three times: as Triton leaves it, planned after all of Triton's passes, and planned
in place of its removals of layout conversions."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from testing.kernel_interpreter import judge

from bench.programs.kernels import KernelProgram
from eggshard.errors import EggshardError, ProgramError, VerificationError
from eggshard.triton.alignment import check_layouts
from eggshard.triton.compiler.choosing import SAME, Code, cautious, choose, foreseen, room, variations
from eggshard.triton.compiler.compilation import compile_kernel
from eggshard.triton.compiler.counting import CodeCounts, count
from eggshard.triton.compiler.pipeline import Compilation
from eggshard.triton.compiler.replacement import WORTHWHILE
from eggshard.triton.compiler.replacing import replaced
from eggshard.triton.compiler.settled import Settled
from eggshard.triton.frontend import load
from eggshard.triton.frontend.libtriton import parse
from eggshard.triton.kernels.ir import Kernel
from eggshard.triton.kernels.text import write_generic
from eggshard.triton.layout_costs import default_costs
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.pricing import cost, scratch

WAYS = ("triton", "after", "replace")

#: Called with a kernel and a cost model as `eggshard.triton.planning.plan_layouts` is.
Planner = Callable[..., Any]


#: Planned in place of Triton's removals, other passes may cut a product's sum elsewhere: floats differ by this part.
TOLERANCE = 1e-3


@dataclass
class Figures:
    """Of one way. cost: modelled, in SM cycles per thread block. shared: bytes, scratch and buffers of loads together.

    resident: blocks that a multiprocessor holds at once. gap: the largest of the plans', relative; 0 is proved optimal
    among the candidates. capped: some plan left encodings out. Of planning, the kernel's text read and written:
    seconds: of all plans, longest: of one, processor: their processor time. judged: what the interpreter says of it
    against Triton's result on the same memory: ``equal``, ``close`` (floats within `TOLERANCE`), or why it did not run.
    chosen: what was taken for its code: the cheapest plan, ``variation``, ``Triton's`` kernel; and, of plans in place
    of removals, ``after`` where such were refused. assembled: how many plans were assembled to choose among them.
    """

    conversions: int
    shared: int
    code: dict[str, int]
    cost: float | None = None
    gap: float | None = None
    capped: bool = False
    plans: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    processor: float = 0.0
    judged: str = ""
    resident: int = 0
    chosen: str = ""
    assembled: int = 0

    def figure(self, name: str) -> float | None:
        """By name: a field, or a count of the code."""
        found: float | None = self.code[name] if name in self.code else getattr(self, name)
        return found


@dataclass
class Row:
    """figures, failures: by way. compile_seconds, compile_processor: Triton's own from the kernel's source to machine
    code, on the clock and of the processor."""

    kernel: str
    target: str
    figures: dict[str, Figures] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    compile_seconds: float = 0.0
    compile_processor: float = 0.0

    def json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, record: dict[str, Any]) -> Row:
        """Back from `json`."""
        figures = {way: Figures(**found) for way, found in record["figures"].items()}
        return cls(**{**record, "figures": figures})


class _Timed:
    """A context that tells how long it took: on the clock, and of the processor, ended child processes included."""

    def __enter__(self) -> _Timed:
        self._began = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds, self.processor = (a - b for a, b in zip(self._now(), self._began, strict=True))

    @staticmethod
    def _now() -> tuple[float, float]:
        used = os.times()
        return time.perf_counter(), used.user + used.system + used.children_user + used.children_system


def measure(program: KernelProgram, target: str, planner: Planner, ways: Collection[str] = WAYS) -> Row:
    """A row of these ways; ``triton`` is always among them. What goes wrong in one is noted and leaves the others."""
    run = _Run(Row(program.name, target), program, planner, Compilation.of(target, program.options))
    run.attempt("triton", run.theirs)
    for way, make in (("after", run.after), ("replace", run.replace)):
        if way in ways and "triton" not in run.row.failures:
            run.attempt(way, make)
    return run.row


@dataclass
class _Run:
    """source: without layouts; final: Triton's result, both as text. codes: of what is compiled already, by its text
    without locations. best: what was chosen after Triton's passes."""

    row: Row
    program: KernelProgram
    planner: Planner
    compilation: Compilation
    source: str = ""
    final: str = ""
    codes: dict[str, tuple[CodeCounts, Code]] = field(default_factory=dict)
    best: _Offer | None = None

    def attempt(self, way: str, make: Callable[[], None]) -> None:
        try:
            make()
        except EggshardError as error:
            self.row.failures[way] = str(error)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{last.filename.rsplit('/', 1)[-1]}:{last.lineno}"
            self.row.failures[way] = f"{type(error).__name__}: {error} ({where})"

    def theirs(self) -> None:
        with _Timed() as first:
            module = self.compilation.tensor_ir(self.program.source())
        self.source = str(module)
        with _Timed() as second:
            final = self.compilation.gpu_ir(module)
        self._compiling(first)
        self._compiling(second)
        self.final = str(final)
        self._figures("triton", self.final)

    def _compiling(self, timed: _Timed) -> None:
        self.row.compile_seconds += timed.seconds
        self.row.compile_processor += timed.processor

    def after(self) -> None:
        plans = _Plans(self.planner)
        given = load(self.final)
        model = default_costs(given.target)
        before = self.row.figures["triton"].cost = cost(given, model)
        most = room(self._code(self.final)[1], scratch(given), Machine.of(given))
        offers = []
        for other in cautious(model, most):
            kernel = plans.make(parse(self.final, self.compilation.context), other).kernel
            if cost(kernel, model) < (1 - WORTHWHILE) * before:
                offers = [_Offer(write_generic(kernel), cost(kernel, model), "plan")]
                break
        self.best = self._chosen("after", offers if offers and not foreseen(kernel, given) else [], plans)

    def _variations(self, plans: _Plans, first: Any, module: Any) -> Iterator[_Offer]:
        for model in variations(first.cost_model, scratch(first.given)):
            kernel = plans.make(module, model).kernel
            yield _Offer(write_generic(kernel), cost(kernel, first.cost_model, first.assumed), "variation")

    def replace(self) -> None:
        plans = _Plans(self.planner)
        context = self.compilation.context
        enough = min(f.cost for f in self.row.figures.values() if f.cost is not None) * (1 + SAME)

        def offers() -> Iterator[_Offer]:
            tried = 0
            for plan in replaced(
                    lambda tap: self.compilation.gpu_ir(parse(self.source, context), tap),
                    plans.make, lambda plan: parse(write_generic(plan.kernel), context)):
                tried += 1
                if plan.cost <= enough:
                    yield _Offer(write_generic(plan.kernel), plan.cost, f"from {tried}" if tried > 1 else "plan")
            if not tried:
                raise ProgramError("no removal of layout conversions in this version's pipeline")
            if self.best is not None:
                yield self.best._replace(name="after")
            theirs = parse(self.final, context)
            yield from self._variations(plans, plans.make(theirs), theirs)

        self._chosen("replace", offers(), plans)

    def _chosen(self, way: str, offers: Iterable[_Offer], plans: _Plans) -> _Offer | None:
        """The figures of what `install` would take."""
        theirs = self.row.figures["triton"].cost
        assert theirs is not None
        assembled = set()

        def code_of(offer: _Offer) -> Code:
            assembled.add(offer.text)
            return self._code(offer.text)[1]

        found = choose(offers, theirs, lambda: self._code(self.final)[1], code_of).plan
        taken = _Offer(self.final, theirs, "Triton's") if found is None else found
        self._figures(way, taken.text)
        figures = self.row.figures[way]
        figures.cost, figures.chosen, figures.assembled = taken.cost, taken.name, len(assembled)
        plans.into(figures)
        figures.judged = self._judged(way, load(taken.text))
        return found

    def _figures(self, way: str, text: str) -> None:
        counts, code = self._code(text, way == "triton")
        known = self._known(text)
        self.row.figures[way] = Figures(
            known.count("ttg.convert_layout"), code.shared, counts._asdict(), resident=code.resident)

    def _code(self, text: str, compiling: bool = False) -> tuple[CodeCounts, Code]:
        known = self._known(text)
        if known not in self.codes:
            with _Timed() as timed:
                compiled = compile_kernel(text, self.row.target, self.program.options)
            if compiling:
                self._compiling(timed)
            self.codes[known] = count(compiled), Code.of(compiled)
        return self.codes[known]

    def _known(self, text: str) -> str:
        return str(parse(text, self.compilation.context).str_nodebug())

    def _judged(self, way: str, kernel: Kernel) -> str:
        """Raises `VerificationError` for a kernel that computes something else, `ProgramError` for layouts that lie."""
        check_layouts(kernel)
        theirs = load(self.final)
        try:
            judge(theirs, kernel)
            return "equal"
        except ProgramError as error:
            return str(error)
        except VerificationError:
            if way == "after":
                raise
        judge(theirs, kernel, tolerance=TOLERANCE)
        return "close"


class _Offer(NamedTuple):
    """A planned kernel's text, its modelled cost, and what it is called."""

    text: str
    cost: float
    name: str


class _Plans:
    """Those of one way, as they are made; what is ``settled`` already takes no plan."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.settled = Settled()
        self.found: list[Any] = []
        self.timed: list[_Timed] = []

    def make(self, module: Any, model: Any = None) -> Any:
        """Of libtriton's module, under the planner's own model unless there is another."""
        with _Timed() as timed:
            kernel = load(module)
            plan = known = self.settled.find(kernel) if model is None else None
            if plan is None:
                plan = self.planner(kernel) if model is None else self.planner(kernel, model)
                if model is None:
                    self.settled.add(plan)
            write_generic(plan.kernel)
        self.timed.append(timed)
        if known is None:
            self.found.append(plan)
        return plan

    def into(self, figures: Figures) -> None:
        figures.gap = max((plan.search_gap for plan in self.found), default=0.0)
        figures.capped = any(plan.capped for plan in self.found)
        figures.plans = len(self.found)
        figures.seconds = sum(timed.seconds for timed in self.timed)
        figures.longest = max(timed.seconds for timed in self.timed)
        figures.processor = sum(timed.processor for timed in self.timed)
