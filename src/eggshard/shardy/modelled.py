"""What a module comes to on one device, priced by a cost model."""

from __future__ import annotations

from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.protocol import CostModel
from eggshard.frontends.stablehlo.reading import parse_module, read
from eggshard.program.mesh import Mesh
from eggshard.shardy.local.wrapping import boundary_mesh
from eggshard.shardy.module import ShardyModule
from eggshard.shardy.passes import read_steps
from eggshard.spmd.manual import manual_program

#: What is left to do for a module with explicit reshards.
FINISH = ("resolve-permutation-factors,reshard-to-collectives{mode=global},canonicalize-collectives,"
          "pad-for-divisibility,resolve-single-device-sharding,convert-global-to-local")


def modelled_seconds(module: ShardyModule, model: CostModel) -> float:
    """Seconds of one run of ``@main`` on a device, of a module whose reshards are explicit; it stays as it is.

    ProgramError or ShardingError for a module that cannot be brought to shards, or has no ``@main``.
    """
    copy = ShardyModule(parse_module(module.text()))
    for step in read_steps(FINISH):
        step.run(copy)
    return local_seconds(copy, model)


def local_seconds(module: ShardyModule, model: CostModel) -> float:
    """Seconds of one run on a device of a module of local shapes, whose shardings are still stated."""
    mesh = boundary_mesh(module)
    copy = ShardyModule(parse_module(module.text()))
    for step in read_steps("drop-sharding-and-mesh"):
        step.run(copy)
    return Pricer(model, mesh).program(manual_program(mesh, read(copy.text()).region, Mesh({})))
