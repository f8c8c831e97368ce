"""The catalogue of passes: importing it registers all of them."""

from __future__ import annotations

from eggshard.shardy.clean_up import (
    closing as closing,
    constants as constants,
    constraints as constraints,
    debug_info as debug_info,
    edges as edges,
    interface as interface,
    meshes as meshes,
    unreduced as unreduced,
)
from eggshard.shardy.local import (
    global_to_local as global_to_local,
    legalization as legalization,
    single_device as single_device,
)
from eggshard.shardy.passes import PASSES as PASSES, read_steps as read_steps
from eggshard.shardy.propagation import (  # noqa: F401
    call_graph as call_graph,
    calls as calls,
    constants as constant_splitter,
    constraints as applied_constraints,
    data_flow as data_flow,
    explicit_batching as explicit_batching,
    groups as groups,
    manual_axes as manual_axes,
    strategies as strategies,
)
from eggshard.shardy.reshards import (
    canonical_reshards as canonical_reshards,
    explicit as explicit,
    planned as planned,
)
from eggshard.shardy.rules import stating as stating
