"""Device programs on XLA's CPU devices: text compiled as it is, shards in and out by logical device id."""

import numpy as np

from eggshard.emit.stablehlo import module_text
from eggshard.program.placement import place
from eggshard.steps.steps import Step, StepPlan


def plan_of(mesh, types, *actions):
    """Actions one after the other; the first takes all inputs."""
    types, steps, operands = list(types), [], tuple(range(len(types)))
    count = len(types)
    for action in actions:
        results = action.result(mesh, tuple(types[v] for v in operands))
        names = tuple(range(len(types), len(types) + len(results)))
        types += results
        steps.append(Step(action, operands, names))
        operands = names
    return StepPlan(mesh, tuple(range(count)), tuple(steps), operands, tuple(types))


def stacked(plan, values):
    """The global types and placements under which each device's local value is one block along dimension 0."""
    mesh = plan.mesh
    types = [t.with_shape((mesh.size * t.shape[0], *t.shape[1:])) for t in (plan.types[v] for v in values)]
    return types, [place(mesh, t.shape, (tuple(mesh.axes), *[()] * (t.rank - 1))) for t in types]


def compile_text(text, devices):
    import jax
    from jax.extend import backend
    from jax.interpreters import mlir
    from jaxlib import _jax
    from jaxlib.mlir import ir

    options = backend.get_compile_options(
        num_replicas=1, num_partitions=devices, device_assignment=np.arange(devices).reshape(1, devices)
    )
    options.executable_build_options.use_spmd_partitioning = True
    options.executable_build_options.use_shardy_partitioner = True
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        chosen = _jax.DeviceList(tuple(jax.devices()[:devices]))
        return backend.get_backend().compile_and_load(module, chosen, options)


def run_on_xla(plan, shards, platform="", processes=1):
    """([devices, ...] per output, the compiled HLO text); shards are indexed by logical device id.

    platform, processes: those that the text is written for."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    text = module_text(plan, *stacked(plan, plan.inputs), *stacked(plan, plan.outputs),
                       platform=platform, processes=processes)
    executable = compile_text(text, plan.mesh.size)
    flat = jax.sharding.Mesh(np.array(jax.devices()[: plan.mesh.size]), ("all",))
    rows = NamedSharding(flat, PartitionSpec("all"))
    arrays = [jax.device_put(s.reshape(s.shape[0] * s.shape[1], *s.shape[2:]), rows) for s in shards]
    results = executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
    return [np.stack([np.asarray(a) for a in r]) for r in results], executable.hlo_modules()[0].to_string()
