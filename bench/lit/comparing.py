"""A program's plan beside what peers make of it: the bytes of the busiest device, and whether its values are right."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from rich.markup import escape
from rich.table import Table
from tests.ops.oracles import assert_close
from tests.shardy.running import inputs_of, meaning_of

import eggshard
from eggshard.costmodel import WireBytes
from eggshard.errors import EggshardError
from eggshard.limits import Limits
from eggshard.ops.evaluate import evaluate_region

OUTCOMES = ("better", "equal", "worse", "wrong", "refused", "failed", "no peer")
FAILURES = ("worse", "wrong", "refused", "failed")
#: Seconds that the search of one program may take.
SECONDS = 10.0
#: Bytes of all a program's tensors up to which its plan is run; the plans of larger programs are proved.
MOST_BYTES = 2**28
#: How far floats of results may be apart, of the largest.
ROUNDING = 1e-4
#: How often a sum in another order may be rounded otherwise.
_SUMS = 4


@dataclass(frozen=True)
class Compared:
    """A program. wire: bytes of the busiest device by each peer; ours: by the plan, None where there is none.

    checked: whether the plan was run, or proved, or neither (``""``); why: what is wrong, or why there is no peer.
    """

    name: str
    outcome: str
    ours: float | None = None
    wire: Mapping[str, float] = field(default_factory=dict)
    checked: str = ""
    why: str = ""

    @property
    def least(self) -> tuple[float, str] | None:
        """The fewest bytes of a peer, and whose these are."""
        return min(((amount, who) for who, amount in self.wire.items()), default=None)


def compared(
    name: str, text: str, wire: Mapping[str, float], why: str = "", *, rounding: float = ROUNDING,
    most_bytes: int = MOST_BYTES,
) -> Compared:
    """Plan a program, check the plan, and hold its bytes against the peers'. why: the reason where there are none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan = eggshard.optimize(text, cost_model=WireBytes(), limits=Limits(seconds=SECONDS))
        how = _checked(text, plan, rounding, most_bytes)
    except EggshardError as error:
        return Compared(name, "refused", None, wire, "", str(error))
    except AssertionError as error:
        return Compared(name, "wrong", None, wire, "", str(error).strip().partition("\n")[0])
    except Exception as error:
        return Compared(name, "failed", None, wire, "", f"{type(error).__name__}: {error}")
    ours = float(plan.wire_bytes)
    result = Compared(name, "no peer", ours, wire, how, why)
    if result.least is None:
        return result
    least, who = result.least
    outcome = "worse" if ours > least + 0.5 else "better" if ours < least - 0.5 else "equal"
    return Compared(name, outcome, ours, wire, how, f"{ours:.0f} bytes, {least:.0f} by {who}")


def _checked(text: str, plan: eggshard.Plan, rounding: float, most_bytes: int) -> str:
    """How a plan was checked; AssertionError where its results are others than the program's."""
    program = meaning_of(text)
    proved = "proved" if plan.proved is not None and plan.proved.equal else ""
    if sum(type_.bytes for type_ in program.region.types) > most_bytes:
        return proved
    arrays = inputs_of(program, 0, nans=False)
    try:
        results = evaluate_region(program.region, arrays)
    except EggshardError:  # an op without a meaning on whole arrays, as one whose numbers are random
        return proved
    for i, (made, wanted) in enumerate(zip(plan.run(*arrays), results, strict=True)):
        assert_rounded(np.asarray(made), wanted, f"result {i}", rounding)
    return "run"


def assert_rounded(made: np.ndarray, wanted: np.ndarray, what: str, rounding: float = ROUNDING) -> None:
    """AssertionError where floats differ by more than sums in another order do, or anything else at all."""
    eps = _epsilon(wanted.dtype)
    if eps is None or made.shape != wanted.shape or made.dtype != wanted.dtype:
        assert_close(made, wanted, what)
        return
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    a, b = made.astype(wide), wanted.astype(wide)
    finite = np.isfinite(b)
    assert_close(np.where(finite, 0, a), np.where(finite, 0, b), what)
    if finite.any():
        largest, apart = float(np.abs(b[finite]).max()), float(np.abs(a[finite] - b[finite]).max())
        if not apart <= max(rounding, _SUMS * eps) * max(largest, 1.0):
            raise AssertionError(f"{what} differs by {apart}, its largest element is {largest}")


def _epsilon(dtype: np.dtype) -> float | None:
    """The distance from 1 to the next number of a type of floats, also of those that NumPy itself does not know."""
    try:
        return float(ml_dtypes.finfo(dtype).eps)
    except ValueError:
        return None


def totals(
    found: Mapping[str, Sequence[Compared]], title: str, caption: str, outcomes: Sequence[str] = OUTCOMES,
) -> Table:
    """A row for each group of programs: how many there are of each outcome, and how they were checked."""
    failures = ", ".join(FAILURES)
    out = Table(
        title=title, pad_edge=False, caption=f"{caption}. run: on simulated devices, against the program on whole "
        f"arrays; proved: of programs too large for that. {failures} are to be 0",
    )
    for name in ("programs", "of", *outcomes, "run", "proved"):
        out.add_column(name, justify="left" if name == "of" else "right")
    for group, programs in found.items():
        counts = Counter(program.outcome for program in programs) + Counter(program.checked for program in programs)
        out.add_row(str(len(programs)), escape(group), *(str(counts[o]) for o in (*outcomes, "run", "proved")))
    return out
