"""Text tables of a kernel's layouts: the conversions that remain, and their costs."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from eggshard.tables import render
from eggshard.triton.kernels.ir import Value
from eggshard.triton.layouts.encodings import Encoding, read
from eggshard.triton.pricing import Priced

_SHORT = {"ttg.blocked": "blocked", "ttg.slice": "slice", "ttg.linear": "linear", "ttg.nvidia_mma": "mma",
          "ttg.amd_mfma": "mfma", "ttg.dot_op": "dot_op"}


def conversions_table(priced: Iterable[Priced], total: float) -> str:
    """A kernel's conversions, dearest first, with their parts of its cost; empty without any."""
    table = Table(box=None, pad_edge=False)
    for name in ("tensor", "from", "to", "by", "times", "cost", "%"):
        table.add_column(name, justify="right" if name in ("times", "cost", "%") else "left")
    for found in sorted((p for p in priced if p.is_conversion), key=lambda p: -p.cost):
        table.add_row(*_row(found, total))
    return render(table) if table.row_count else ""


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
