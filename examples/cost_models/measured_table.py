"""A measured table as a cost model: one's own CSV, or XLA's table of collectives where its path is given.

Usage: measured_table.py [default_collective_perf_table.txtpb]
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence

import program

from eggshard.calibration.xla_table import read_xla_table
from eggshard.costmodel import Measured, StepInfo, Table, preset
from eggshard.program.mesh import Mesh

#: kind, devices of a group, bytes that a device receives, microseconds: made up, with a dear all-to-all.
CSV = """\
all-gather,2,65536,20
all-gather,2,16777216,90
all-gather,4,65536,25
all-gather,4,16777216,95
reduce-scatter,2,65536,20
reduce-scatter,4,16777216,90
all-to-all,2,65536,300
all-to-all,4,16777216,4000
"""


def rows(text: str) -> list[Measured]:
    """The lines of a table as steps with seconds."""
    found = []
    for kind, group, size, micros in csv.reader(io.StringIO(text)):
        n = int(group)
        step = StepInfo(kind, Mesh({"group": n}), axes=("group",), group=n, wire_bytes=float(size), messages=1)
        found.append((step, 1e-6 * float(micros)))
    return found


def main(argv: Sequence[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    machine = preset("h100-node")  # prices all that the table does not have
    if argv:
        tables = read_xla_table(argv[0])
        device = next(name for name in tables if name.startswith("sm_90"))
        table = Table.of(tables[device], machine)
    else:
        table = Table.of(rows(CSV), machine)
    print(f"{len(table.curves)} curves")
    program.compare(table, "by the table")


if __name__ == "__main__":
    main()
