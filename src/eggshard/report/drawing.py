"""Drawings of shardings: a tensor as a grid of blocks, and in each the devices that hold it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from eggshard.errors import EggshardError
from eggshard.plan.naming import output_names, value_names
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement
from eggshard.program.types import TensorType
from eggshard.tables import render

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

#: Blocks along a dimension that are drawn at most; of more, the first ones.
_MOST = 32


@dataclass(frozen=True)
class Drawing:
    """A placed tensor. It prints as a grid: rows and columns are its indices along two dimensions, in cells are the
    numbers of the devices in the order of the mesh."""

    name: str
    type: TensorType
    placement: Placement
    mesh: Mesh

    @property
    def drawn(self) -> tuple[int | None, int | None]:
        """The dimensions that are rows and columns: the first two that are split, else the first two; None: no such."""
        dims = self.placement.dims
        split = sorted(range(len(dims)), key=lambda i: (not dims[i].axes, i))[:2]
        rows, columns = [*sorted(split), None, None][:2]
        return rows, columns

    @property
    def title(self) -> str:
        """Name, type, placement and mesh, and the dimensions that are split and not drawn."""
        hidden = [str(i) for i, d in enumerate(self.placement.dims) if d.axes and i not in self.drawn]
        more = f"; dimension {', '.join(hidden)} is split, too" if hidden else ""
        return f"{self.name}: {self.type} at {self.placement} on {dict(self.mesh.axes)}{more}"

    def grid(self) -> tuple[list[str], list[str], list[list[str]]]:
        """The headers of rows and columns, and the cells."""
        positions, headers = [], []
        for i in self.drawn:
            dim = None if i is None else self.placement.dims[i]
            positions.append(np.zeros(self.mesh.size, int) if dim is None else self.mesh.index(dim.axes))
            headers.append([""] if i is None or dim is None else _ranges(dim, self.type.shape[i], self.mesh))
        held = [[np.flatnonzero((positions[0] == r) & (positions[1] == c)) for c in range(len(headers[1][:_MOST]))]
                for r in range(len(headers[0][:_MOST]))]
        cells = [[_numbers(devices) for devices in row] for row in held]
        return headers[0][:_MOST], headers[1][:_MOST], cells

    def __str__(self) -> str:
        rows, columns, cells = self.grid()
        table = Table(show_lines=True, pad_edge=True)
        for header in ("", *columns):
            table.add_column(header, justify="center")
        for header, row in zip(rows, cells, strict=True):
            table.add_row(header, *row)
        return f"{self.title}\n{render(table)}"

    def _repr_html_(self) -> str:
        rows, columns, cells = self.grid()
        head = "".join(f"<th>{escape(header)}</th>" for header in ("", *columns))
        body = "".join(
            f"<tr><th>{escape(header)}</th>" + "".join(
                f'<td style="text-align: center; background: hsl({_hue(r, c, len(row))} 60% 80%); color: black">'
                f"{escape(cell)}</td>" for c, cell in enumerate(row)) + "</tr>"
            for r, (header, row) in enumerate(zip(rows, cells, strict=True)))
        return f"<p>{escape(self.title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Drawings(tuple[Drawing, ...]):
    """Several drawings, printed one below the other."""

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))

    def _repr_html_(self) -> str:
        return "".join(drawing._repr_html_() for drawing in self)


def drawings(plan: PlanRecord, name: str | None = None) -> Drawings:
    """The inputs and outputs of a plan, or one value by the name that the plan's table has for it.

    EggshardError where there is none of that name.
    """
    program = plan.program
    names = value_names(plan)
    inputs = [Drawing(names[v], t, p, plan.mesh) for v, t, p in zip(
        plan.device_program.inputs, program.input_types, plan.input_placements, strict=True)]
    outputs = [Drawing(n, t, p, plan.mesh) for n, t, p in zip(
        output_names(plan), program.output_types, plan.output_placements, strict=True)]
    if name is None:
        return Drawings([*inputs, *outputs])
    between = [Drawing(names[v], h.type, h.placement, plan.mesh) for v, h in enumerate(plan.device_program.held)
               if h is not None]
    found = [d for d in (*inputs, *outputs, *between) if d.name == name]
    if not found:
        known = ", ".join(dict.fromkeys(d.name for d in (*inputs, *outputs, *between)))
        raise EggshardError(f"the plan has no value {name!r} whose sharding it knows; it knows those of {known}")
    return Drawings(found[:1])


def _ranges(dim: Dim, n: int, mesh: Mesh) -> list[str]:
    """The indices that each position along a dimension holds."""
    first, last = dim.specified(n)
    out = []
    for position in range(mesh.count(dim.axes)):
        start, stop = position * dim.tile + dim.low, (position + 1) * dim.tile + dim.high
        start, stop = max(start, first), min(stop, last)
        out.append(f"{start}:{stop}" if start < stop else "nothing")
    return out


def _numbers(devices: np.ndarray) -> str:
    """``0-3, 8``: numbers, runs of three and more as their ends."""
    runs = np.split(devices, np.flatnonzero(np.diff(devices) != 1) + 1)
    return ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs if len(run))


def _hue(row: int, column: int, columns: int) -> int:
    """A colour that is another than the neighbours'."""
    return (row * columns + column) * 137 % 360
