"""Choice among several plans by statistics of each plan's assembled code.

A model of layouts knows neither how the assembler orders instructions nor what later passes make of a layout. A plan
that is cheaper under the model is taken only if its code is no worse than Triton's in what decides how a block runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from eggshard.errors import ProgramError
from eggshard.triton.compiler import amdgcn, sass
from eggshard.triton.compiler.compilation import Compiled
from eggshard.triton.compiler.counting import Usage, usage
from eggshard.triton.compiler.residency import most_shared, multiprocessor, resident_blocks
from eggshard.triton.compiler.timing import Timing, timing
from eggshard.triton.kernels.ir import Kernel
from eggshard.triton.layout_costs import LayoutCostModel, Surcharged, WithinScratch, default_costs
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.pricing import priced

#: Modelled costs closer than this part of one another are the same.
SAME = 1e-9
#: What a barrier costs besides for plans that are to be taken at once, cycles: with less, more of the kernels of
#: `python -m bench kernels` are planned with barriers that they are refused for, with more fewer are cheaper.
BARRIER = 200.0
#: Registers, and estimated cycles, may rise by these parts: assemblers' own variation.
RISE, LONGER = 0.05, 0.02
#: A plan that falls short is to gain this part of the cost; and one that does not is preferred where it keeps this part
#: of what the other gains.
WORTH, KEPT = 0.02, 0.5


class Code(NamedTuple):
    """Assembled code: what it takes, bytes of shared memory per block, blocks that are resident at once, and what time
    is estimated for one."""

    usage: Usage
    shared: int
    resident: int
    timing: Timing

    @classmethod
    def of(cls, compiled: Compiled) -> Code:
        used, machine = usage(compiled), compiled.machine
        if "cubin" in compiled.stages:
            text = sass.decode(compiled.cubin, machine.capability)
        else:
            text = amdgcn.decode(compiled.amdgcn, machine.threads_per_warp)
        return cls(used, compiled.shared, resident_blocks(machine, compiled.shared, used.registers),
                   timing(text, machine.num_warps))

    @property
    def cycles(self) -> float:
        """Cycles per block on a multiprocessor that is full."""
        return self.timing.cycles(self.resident)

    def fits(self, machine: Machine) -> bool:
        """Whether a block has no more shared memory than it may have."""
        return self.shared <= most_shared(machine)


def refusals(code: Code, other: Code) -> list[str]:
    """What speaks against code that is to displace another: each alone is reason enough."""
    ours, theirs = code.timing.executed, other.timing.executed
    found = [
        ("barriers", ours.barriers, theirs.barriers),
        ("shared memory instructions", ours.shared_memory, theirs.shared_memory),
        ("spilled bytes", code.usage.spills, other.usage.spills),
    ]
    reasons = [f"more {name}: {a:g}, Triton's {b:g}" for name, a, b in found if a > b]
    if code.resident < other.resident:
        reasons.append(
            f"fewer blocks at once: {code.resident}, Triton's {other.resident}, for {code.shared} bytes of shared "
            f"memory and {code.usage.registers} registers, Triton's {other.shared} and {other.usage.registers}")
    if code.cycles > (1 + LONGER) * other.cycles:
        reasons.append(f"longer as assembled: {code.cycles:.0f} cycles per block, Triton's {other.cycles:.0f}")
    return reasons


def falls_short(code: Code, other: Code) -> bool:
    """Whether code has more of something that, other things being equal, is better not to have more of."""
    ours, theirs = code.timing, other.timing
    return (ours.executed.shared_loads > theirs.executed.shared_loads
            or ours.executed.shared_stores > theirs.executed.shared_stores
            or code.usage.registers > (1 + RISE) * other.usage.registers
            or ours.latency > (1 + LONGER) * theirs.latency)


class Priced(Protocol):
    """A plan with its modelled cost, and that of the kernel as it was given."""

    @property
    def cost(self) -> float: ...

    @property
    def given_cost(self) -> float: ...


P = TypeVar("P", bound=Priced)


class Choice(NamedTuple, Generic[P]):
    """The plan to be taken, None for Triton's own kernel, and what spoke against the plans that were refused."""

    plan: P | None
    refused: list[str]


def choose(
    plans: Iterable[P], given_cost: float, own: Callable[[], Code], code_of: Callable[[P], Code]
) -> Choice[P]:
    """Choose the cheapest plan that costs no more than ``given_cost`` (Triton's) and whose code is not refused. A plan
    that falls short is taken only if it gains `WORTH`, and no other keeps `KEPT` of that.

    plans: made as they are asked for, the cheaper ones first. own: Triton's code, asked for where it is needed.
    code_of: assembles a plan; raises `ProgramError` where it cannot. The search ends at a plan without fault that keeps
    as much of the most that any plan gains.
    """
    good: P | None = None
    fair: P | None = None
    refused: list[str] = []
    most = 0.0
    for plan in plans:
        gain = given_cost - plan.cost
        if gain < -SAME * abs(given_cost) or good is not None and plan.cost >= good.cost:
            continue
        most = max(most, gain)
        try:
            code, theirs = code_of(plan), own()
        except ProgramError as error:
            refused.append(str(error))
            continue
        reasons = refusals(code, theirs)
        refused += reasons
        if not reasons and not falls_short(code, theirs):
            good = plan
        elif not reasons and gain >= WORTH * abs(given_cost) and (fair is None or plan.cost < fair.cost):
            fair = plan
        if good is not None and given_cost - good.cost >= KEPT * most:
            break
    if good is None or fair is not None and given_cost - good.cost < KEPT * (given_cost - fair.cost):
        good = fair
    return Choice(good, refused)


def foreseen(kernel: Kernel, other: Kernel) -> bool:
    """Whether the code of a kernel that is to displace another is likely to be refused, by what the model counts: fewer
    blocks fit for what one op holds of shared memory, whatever else limits them, or there are more barriers."""
    fit, barriers = [], []
    for one in (kernel, other):
        found = [(p.times, p.counts) for p in priced(one, default_costs(one.target))]
        fit.append(resident_blocks(Machine.of(one), max((counts.scratch for _, counts in found), default=0)))
        barriers.append(sum(times * (counts.barriers + counts.takeovers) for times, counts in found))
    return fit[0] < fit[1] or barriers[0] > barriers[1]


def room(own: Code, scratch: int, machine: Machine) -> int:
    """The bytes of shared memory that one op may have, of code of which one has ``scratch``, without fewer blocks being
    resident at once."""
    unit = multiprocessor(machine)
    return max(scratch, unit.shared // max(1, own.resident) - unit.reserved - (own.shared - scratch))


def cautious(model: LayoutCostModel, scratch: int) -> Iterator[LayoutCostModel]:
    """Models under which plans mostly avoid what is foreseen to be refused, the more cautious one first."""
    yield WithinScratch(Surcharged(model, barrier=BARRIER), scratch)
    yield WithinScratch(model, scratch)


def confining(model: LayoutCostModel, shared: int, scratch: int, machine: Machine) -> Iterator[LayoutCostModel]:
    """Models under which conversions take ever less shared memory, for a kernel that has too much of it: ``shared``
    bytes, of which one op takes ``scratch``."""
    left = max(0, most_shared(machine) - (shared - scratch))
    for part in (left, left // 2, 0):
        yield WithinScratch(model, part)


def variations(model: LayoutCostModel, scratch: int) -> Iterator[LayoutCostModel]:
    """Models under which plans avoid what code may be refused for: more shared memory than ``scratch`` in one op,
    barriers, values computed in several layouts, which all take registers, and shared memory instructions."""
    yield from cautious(model, scratch)
    yield Surcharged(model, arithmetic=4.0)
    yield Surcharged(model, shared=50.0)
