"""The catalogue of passes: importing it registers all of them."""

from __future__ import annotations

from eggshard.shardy.clean_up import (
    closing,
    constants,
    constraints,
    debug_info,
    edges,
    interface,
    meshes,
    unreduced,
)
from eggshard.shardy.local import global_to_local, legalization, single_device
from eggshard.shardy.local.padding import passes as padding
from eggshard.shardy.local.permutation import factors as permutation_factors
from eggshard.shardy.passes import PASSES as PASSES, read_steps as read_steps
from eggshard.shardy.propagation import (
    call_graph,
    calls,
    constants as constant_splitter,
    constraints as applied_constraints,
    data_flow,
    explicit_batching,
    groups,
    manual_axes,
    strategies,
)
from eggshard.shardy.reshards import canonical_reshards, explicit, planned
from eggshard.shardy.reshards.collectives import canonical, conversion, matmul
from eggshard.shardy.rules import stating

#: The modules that register passes.
MODULES = (
    applied_constraints, call_graph, calls, canonical, canonical_reshards, closing, constant_splitter, constants,
    constraints, conversion, data_flow, debug_info, edges, explicit, explicit_batching, global_to_local, groups,
    interface, legalization, manual_axes, matmul, meshes, padding, permutation_factors, planned, single_device, stating,
    strategies, unreduced,
)
