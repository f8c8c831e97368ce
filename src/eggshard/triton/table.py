"""Text tables of a kernel's layouts: the conversions that remain, and their costs."""

from __future__ import annotations

from typing import Protocol

from rich.table import Table

from eggshard.tables import render
from eggshard.triton.kernels.ir import Kernel, Value
from eggshard.triton.layouts.encodings import Encoding, read
from eggshard.triton.pricing import Priced

_SHORT = {"ttg.blocked": "blocked", "ttg.slice": "slice", "ttg.linear": "linear", "ttg.nvidia_mma": "mma",
          "ttg.amd_mfma": "mfma", "ttg.dot_op": "dot_op"}


class Planned(Protocol):
    """What the table shows of a plan of layouts (`planning.LayoutPlan`)."""

    @property
    def name(self) -> str: ...

    @property
    def kernel(self) -> Kernel: ...

    @property
    def cost(self) -> float: ...

    @property
    def given_cost(self) -> float: ...

    @property
    def conversions(self) -> int: ...

    @property
    def given_conversions(self) -> int: ...

    @property
    def certificate(self) -> str: ...

    def priced(self) -> list[Priced]: ...


def plan_table(plan: Planned) -> str:
    """The plan's conversions, dearest first, and its cost beside that of the kernel as it came."""
    table = Table(box=None, pad_edge=False)
    for name in ("tensor", "from", "to", "by", "times", "cost", "%"):
        table.add_column(name, justify="right" if name in ("times", "cost", "%") else "left")
    conversions = sorted((p for p in plan.priced() if p.is_conversion), key=lambda p: -p.cost)
    for found in conversions:
        table.add_row(*_row(found, plan.cost))
    saved = 1 - plan.cost / plan.given_cost if plan.given_cost > 0 else 0.0
    lines = [
        f"layouts of {plan.name or 'a kernel'} for {plan.kernel.target or 'an unknown target'}: "
        f"{plan.given_conversions} -> {plan.conversions} conversions, cost {plan.given_cost:.6g} -> {plan.cost:.6g} "
        f"cycles per block ({-100 * saved:+.1f} %)",
        plan.certificate,
    ]
    return "\n".join([*lines, *([render(table)] if conversions else [])])


def _row(found: Priced, total: float) -> tuple[str, ...]:
    source, target = found.op.operands[0], found.op.results[0]
    tensor = source.tensor
    assert tensor is not None
    by: str = found.conversion.category if found.conversion is not None else "not understood"
    if found.conversion is not None and found.conversion.counts.scratch:
        by += f", {found.conversion.counts.scratch} B"
    share = 100 * found.cost / total if total > 0 else 0.0
    return (f"{'x'.join(map(str, tensor.shape))}x{tensor.element}", _encoding(source), _encoding(target), by,
            f"{found.times:g}", f"{found.cost:.6g}", f"{share:.1f}")


def _encoding(value: Value) -> str:
    assert value.tensor is not None and value.tensor.encoding is not None
    return short(read(value.tensor.encoding))


def short(encoding: Encoding) -> str:
    """An encoding in a few words: ``blocked[1,8|4,8|4,1]`` (per thread, warp and block), ``slice(1, mma[2,2])``."""
    name = _SHORT.get(encoding.kind, encoding.kind)
    if encoding.opaque is not None:
        return name
    if encoding.kind == "ttg.slice":
        return f"slice({encoding.integer('dim')}, {short(encoding.parent)})"
    if encoding.kind == "ttg.dot_op":
        return f"dot_op({encoding.integer('opIdx')}, {short(encoding.parent)})"
    if encoding.kind == "ttg.blocked":
        parts = [encoding.ints(field) for field in ("sizePerThread", "threadsPerWarp", "warpsPerCTA")]
        return f"{name}[{'|'.join(','.join(map(str, part)) for part in parts)}]"
    warps = encoding.ints("warpsPerCTA")
    return f"{name}[{','.join(map(str, warps))}]" if warps else name
