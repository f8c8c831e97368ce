"""The catalogue of passes: importing it registers all of them."""

from __future__ import annotations

import eggshard.shardy.by_jaxlib as by_jaxlib  # as attributes of the package these would be looked up as passes
import eggshard.shardy.rules as rules
from eggshard.shardy.clean_up import closing, constants, edges, interface, meshes, unreduced
from eggshard.shardy.local import global_to_local, single_device
from eggshard.shardy.local.padding import passes as padding
from eggshard.shardy.local.permutation import factors as permutation_factors, folding
from eggshard.shardy.passes import PASSES as PASSES, read_steps as read_steps
from eggshard.shardy.propagation import calls, constraints, data_flow, explicit_batching, manual_axes, strategies
from eggshard.shardy.reshards import explicit, planned, reducers
from eggshard.shardy.reshards.collectives import canonical, conversion, matmul

#: The modules that register passes.
MODULES = (
    by_jaxlib, calls, canonical, closing, constants, constraints, conversion, data_flow, edges,
    explicit, explicit_batching, folding, global_to_local, interface, manual_axes, matmul, meshes, padding,
    permutation_factors, planned, reducers, rules, single_device, strategies, unreduced,
)
