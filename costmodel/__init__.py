"""Cost models, which price steps in seconds. A user's own is any class with ``seconds(step)`` (`protocol`).

In: a step with its local types. Out: seconds, alone (`pricing`) or in a schedule of a machine that computes while it
communicates (`schedule`). Shipped are latency and bandwidth (`AlphaBeta`), machines with links and topologies
(`Machine`, presets as TOML), plain counts (`WireBytes`, `Messages`) and sums of models.

Constants are measured by `calibration`, which stands above.

`python -m bench costmodel` shows what a change of its constants does.
"""

from eggshard.costmodel.alpha_beta import AlphaBeta
from eggshard.costmodel.columns import StepColumns, seconds_many
from eggshard.costmodel.combining import Combinable, PerKind, WeightedSum
from eggshard.costmodel.compute import Compute
from eggshard.costmodel.counting import Messages, WireBytes
from eggshard.costmodel.detection import at_hand, detect, named
from eggshard.costmodel.machines.machine import Level, Machine, Protocol
from eggshard.costmodel.machines.machine_files import load, preset, presets
from eggshard.costmodel.machines.topologies import FatTree, FullMesh, Ring, Switch, Torus
from eggshard.costmodel.protocol import CostModel, StepInfo
from eggshard.costmodel.table import Measured, Table
from eggshard.costmodel.units import Unit

__all__ = [
    "AlphaBeta", "Combinable", "Compute", "CostModel", "FatTree", "FullMesh", "Level", "Machine", "Measured",
    "Messages", "PerKind", "Protocol", "Ring", "StepColumns", "StepInfo", "Switch", "Table", "Torus", "Unit",
    "WeightedSum", "WireBytes", "at_hand", "detect", "load", "named", "preset", "presets", "seconds_many",
]
