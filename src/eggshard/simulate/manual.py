"""The meaning of manual computations on whole arrays: the author's per-device body, run on simulated devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eggshard.ops.regions.manual import ManualComputation
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.program import Region
from eggshard.program.sharding import gather_cuts
from eggshard.simulate.simulator import gather_from_devices, run, scatter_to_devices
from eggshard.spmd.manual import Types, free_mesh, manual_program, manual_strategies, stated_shardings


def evaluate_manual(attributes: Attributes, region: Region, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The results on whole arrays, by the simulator. LoweringError for what the simulator does not run."""
    whole: Mesh = attributes["mesh"]
    mesh = whole.refined(gather_cuts(stated_shardings(attributes, region), whole))
    given = tuple(region.types[v].with_shape(a.shape) for v, a in zip(region.inputs, arrays, strict=True))
    results: Types = attributes["result_types"]
    strategy = manual_strategies(mesh, attributes, region, given, results)[0]
    shards = [scatter_to_devices(mesh, a, p) for a, p in zip(arrays, strategy.operands, strict=True)]
    made = run(manual_program(mesh, region, free_mesh(mesh, attributes)), shards)
    return tuple(
        gather_from_devices(mesh, m, t.shape, p) for m, t, p in zip(made, results, strategy.results, strict=True)
    )


ManualComputation.meaning = evaluate_manual
