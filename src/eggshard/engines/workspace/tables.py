"""Workspaces for display: tables of buffers and of obligations, and pictures over time."""

from __future__ import annotations

import string
from html import escape

import numpy as np
from rich.table import Table

from eggshard.engines.workspace.layout import Layout
from eggshard.engines.workspace.requests import Request
from eggshard.tables import LONG, render, size

_LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits
#: Instants and bytes in pixels of the picture's plane.
_PLANE = (960, 480)
#: What a picture's axes are.
_AXES = "addresses upwards, time to the right: one instant at either end, one per step, more of a loop"
_COLOURS = ("#8dd3c7", "#ffffb3", "#bebada", "#fb8072", "#80b1d3", "#fdb462", "#b3de69", "#fccde5", "#d9d9d9")


def workspace_table(layout: Layout, devices: int) -> str:
    """What lies where in a device's slice, and for how long; of very many buffers the largest."""
    table = Table(title="workspace of one device")
    for column in ("buffer", "bytes", "slots", "offset", "instants", "made at"):
        table.add_column(column, justify="right" if column in ("bytes", "slots", "offset") else "left")
    shown = sorted(layout.requests, key=lambda r: -r.footprint)[:LONG]
    kept = {r.name for r in shown}
    for r in layout.requests:
        if r.name in kept:
            table.add_row(r.name, str(r.bytes), str(r.slots), str(layout.offset(r.name)), _life(r), r.site)
    more = len(layout.requests) - len(shown)
    return "\n".join((render(table), *([f"{more} smaller buffers are not shown"] if more else ()),
                      _summary(layout, devices)))


def _summary(layout: Layout, devices: int) -> str:
    live = layout.live_bytes
    above = f", {layout.extent / live - 1:.1%} above" if live and layout.extent > live else ""
    guard = f", {layout.guard} of them guard" if layout.guard else ""
    total = layout.total(devices)
    return "\n".join((
        f"live at once: {live} bytes ({size(live)}); laid out in {layout.extent}{above}",
        f"stride: {layout.stride} bytes{guard}; devices: {devices}; in all {total} bytes ({size(total)})",
        f"version {layout.version}",
    ))


def picture(layout: Layout, instants: int, devices: int, width: int, height: int) -> str:
    """Text: a letter per buffer where it lies, addresses upwards, time from left to right; dots are free."""
    columns, extent = max(1, min(width, instants)), max(1, layout.extent)
    rows = max(1, min(height, extent))
    grid = np.full((rows, columns), -1)
    filled = np.zeros((rows, columns))
    shown = [r for r in layout.requests if r.footprint]
    for i, r in enumerate(shown):
        first, last = r.lifetime
        low, high = (at * rows / extent for at in (layout.offset(r.name), layout.end(r.name)))
        for row in range(int(low), min(rows, int(np.ceil(high)))):
            part = min(high, row + 1) - max(low, row)
            cells = slice(first * columns // instants, last * columns // instants + 1)
            better = part > filled[row, cells]
            grid[row, cells][better], filled[row, cells][better] = i, part
    labels = [size(extent * (row + 1) / rows).rjust(10) if row % 4 == 3 or row == rows - 1 else " " * 10
              for row in range(rows)]
    lines = [
        f"{labels[row]} |" + "".join("." if i < 0 else _LETTERS[i % len(_LETTERS)] for i in grid[row])
        for row in reversed(range(rows))
    ]
    seen = [i for i in dict.fromkeys(grid[::-1].T.reshape(-1).tolist()) if i >= 0]
    legend = [f"{_LETTERS[i % len(_LETTERS)]} {shown[i].name}: {shown[i].footprint} bytes at "
              f"{layout.offset(shown[i].name)}, {_life(shown[i])}, {shown[i].site}" for i in sorted(seen)]
    axis = " " * 11 + "+" + "-" * columns
    time = " " * 12 + f"instants 0 to {instants - 1}"
    key = (_AXES, "letters are buffers, a dot is free; vN holds value N of the plan, by default %N in print(plan)")
    return "\n".join((*lines, axis, time, *key, *legend, _summary(layout, devices)))


def svg(layout: Layout, instants: int) -> str:
    """An SVG image of the same; every buffer says on hovering what it is."""
    width, height = _PLANE
    extent = max(1, layout.extent)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-80 -10 {width + 90} {height + 66}" '
           'font-family="sans-serif" font-size="11">',
           f'<rect width="{width}" height="{height}" fill="#f7f7f7" stroke="#444"/>']
    for i, r in enumerate(layout.requests):
        first, last = r.lifetime
        if not r.footprint:
            continue
        x, y = width * first / instants, height * (1 - layout.end(r.name) / extent)
        w, h = width * (last - first + 1) / instants, height * r.footprint / extent
        about = escape(f"{r.name}: {r.footprint} bytes at {layout.offset(r.name)}, {_life(r)}, {r.site}")
        out.append(f'<rect x="{x:.2f}" y="{y:.2f}" width="{w:.2f}" height="{h:.2f}" stroke="#444" stroke-width="0.5" '
                   f'fill="{_COLOURS[i % len(_COLOURS)]}"><title>{about}</title></rect>')
        if h >= 12 and w >= 7 * len(r.name):
            out.append(f'<text x="{x + 3:.2f}" y="{y + h / 2 + 4:.2f}">{escape(r.name)}</text>')
    out += [f'<text x="-6" y="{height * (1 - k / 4) + 4:.0f}" text-anchor="end">{size(extent * k / 4)}</text>'
            for k in range(5)]
    out.append(f'<text x="0" y="{height + 18}">instants 0 to {instants - 1}; '
               f"version {layout.version}</text>"
               f'<text x="0" y="{height + 34}">{_AXES}; rectangles are buffers</text></svg>')
    return "\n".join(out)


def _life(request: Request) -> str:
    return f"{request.lifetime.first} to {request.lifetime.last}"
