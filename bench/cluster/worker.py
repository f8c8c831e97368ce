"""One JAX process of a cluster: versions of a program, compared, then run by turns.

These are XLA's program, plans of it and the one by hand; or a function whose shardings are chosen, and where they are
stated by hand.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bench.programs import BenchProgram, seconds, spec
from bench.programs.by_hand import by_hand
from bench.programs.choices import little
from bench.programs.choices.definition import make_mesh
from bench.run import compiled_seconds, figures
from bench.worker import serve

XLA, HAND = "XLA", "by hand"
"""Versions of a program that are not plans."""
CHOSEN = "AUTO"
"""The version of a function whose shardings are chosen."""
#: What is compiled, and its arguments.
Lowering = Callable[[], tuple[Any, Sequence[jax.Array]]]


class Member:
    """The process of one host: what it is asked to join, to prepare, and to run."""

    def __init__(self) -> None:
        self._barrier: Callable[[], None] = lambda: None
        self._calls: dict[str, Callable[[], Any]] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked; all members of the cluster are asked the same."""
        asked: dict[str, Callable[..., dict[str, Any]]] = {
            "join": self.join, "calibrate": self.calibrate, "prepare": self.prepare, "choose": self.choose,
            "run": self.run,
        }  # fmt: skip
        return asked[request.pop("do")](**request)

    def join(self, address: str, addresses: list[str], port: int, devices: int) -> dict[str, Any]:
        """Join the processes at these addresses, with so many devices in each."""
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", devices)
        if len(addresses) > 1:
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
            jax.distributed.initialize(f"{addresses[0]}:{port}", len(addresses), addresses.index(address))
        self._barrier = barrier()
        return {"devices": jax.device_count()}

    def calibrate(self, path: str, sizes: list[int], repeats: int) -> dict[str, Any]:
        """Calibrate the cluster as its users do; the first host writes the machine's file."""
        from eggshard.calibration.calibrating import calibrate

        found = calibrate(sizes=sizes, repeats=repeats)
        if jax.process_index() == 0:
            found.save(Path(path))
        return {"errors": [[e.kind, e.steps, e.median, e.p90] for e in found.errors], "noise": found.noise}

    def prepare(self, program: str, plans: Mapping[str, str]) -> dict[str, Any]:
        """Compile and run all versions once; of each what it took, what it does, and how far it is from XLA's.

        plans: files of plans by the names that their versions have.
        """
        bench = seconds.program(program)
        inputs = global_inputs(bench)
        lowered = bench.lower()
        hand = by_hand(bench)
        lowers: dict[str, Lowering] = {XLA: lambda: (lowered, inputs)}
        for name, path in plans.items():
            lowers[name] = lambda path=path: (_planned(path, lowered, bench).lower(*inputs), inputs)
        if hand is not None:
            lowers[HAND] = lambda: (jax.jit(hand).lower(*inputs), inputs)
        return self._prepared(lowers, lambda results: results)

    def choose(self, program: str, seed: int, model: str) -> dict[str, Any]:
        """Compile and run once a function where its shardings are chosen, and as they are stated by hand.

        model: of costs, by name or file; by default that of the devices.
        """
        import eggshard

        function = little(program, seed)
        mesh = make_mesh()
        types, arrays = function.arguments, function.inputs(seed)

        def lower(jitted: Any, where: Sequence[NamedSharding]) -> tuple[Any, Sequence[jax.Array]]:
            given = [jax.make_array_from_callback(a.shape, s, lambda at, a=a: a[at])
                     for a, s in zip(arrays, where, strict=True)]
            return jitted.lower(*given), given

        def chosen() -> tuple[Any, Sequence[jax.Array]]:
            jitted = eggshard.jit(function.function, in_shardings=eggshard.AUTO, mesh=mesh, carry=function.carry,
                                  cost_model=model or None)
            return lower(jitted, jitted.chosen(*types).arguments)

        lowers: dict[str, Lowering] = {CHOSEN: chosen}
        for way, specs in function.hand.items():
            ins, outs = function.shardings(specs, mesh)
            jitted = eggshard.jit(function.function, in_shardings=ins, out_shardings=outs, cost_model=model or None)
            lowers[way] = lambda jitted=jitted, ins=ins: lower(jitted, ins)
        whole = NamedSharding(mesh, PartitionSpec())
        return self._prepared(lowers, jax.jit(lambda results: results, out_shardings=whole))

    def _prepared(self, lowers: Mapping[str, Lowering], placed: Callable[[Any], Any]) -> dict[str, Any]:
        """Compile and run all versions once. placed: their results, where these can be compared with the first's."""
        self._calls = {}
        out = {}
        reference = None
        for name, lower in lowers.items():
            lowered, inputs = lower()
            compiled, took = compiled_seconds(lowered)
            self._calls[name] = lambda compiled=compiled, inputs=inputs: compiled(*inputs)
            self._barrier()
            began = time.perf_counter()
            results = jax.block_until_ready(compiled(*inputs))
            first = time.perf_counter() - began
            results = placed(results)
            reference = results if reference is None else reference
            out[name] = {
                "compile": took, "first": first, "figures": figures(compiled), "off": _off(results, reference),
                "program": hashlib.sha256(lowered.as_text().encode()).hexdigest(),
            }  # fmt: skip
        return {"versions": out}

    def run(self, turns: int) -> dict[str, Any]:
        """Seconds of every version in every turn, each from a barrier to its end on this process."""
        times: dict[str, list[float]] = {name: [] for name in self._calls}
        for turn in range(turns):
            # In another order each time, the same on all hosts: a version pays for what the one before it left.
            for name, call in random.Random(turn).sample([*self._calls.items()], len(self._calls)):
                self._barrier()
                began = time.perf_counter()
                jax.block_until_ready(call())
                times[name].append(time.perf_counter() - began)
        return {"times": times}


def barrier() -> Callable[[], None]:
    """What returns on a process when all have called it."""
    mesh = Mesh(np.array(jax.devices()), ("all",))
    ones = jax.make_array_from_callback((mesh.size,), NamedSharding(mesh, PartitionSpec("all")), lambda at: np.ones(1))
    add = jax.jit(lambda a: a.sum(), out_shardings=NamedSharding(mesh, PartitionSpec())).lower(ones).compile()
    return lambda: jax.block_until_ready(add(ones))


def global_inputs(program: BenchProgram) -> list[jax.Array]:
    """The program's arguments, each process holding its part."""
    return [
        jax.make_array_from_callback(
            array.shape, NamedSharding(program.mesh, spec(argument.sharding or "")), lambda at, array=array: array[at]
        )
        for array, argument in zip(program.inputs(), program.arguments, strict=True)
    ]


def _planned(path: str, lowered: Any, program: BenchProgram) -> Any:
    """The function of a plan that all processes hold."""
    import eggshard

    plan = eggshard.Plan.from_json(Path(path).read_text(), program=lowered, mesh=program.mesh).agreed()
    return jax.jit(plan.to_jax())


def _off(results: Any, reference: Any) -> list[tuple[float, float]]:
    """By array the largest difference from the reference and the largest value of that, in this process's shards."""
    out = []
    for ours, theirs in zip(jax.tree.leaves(results), jax.tree.leaves(reference), strict=True):
        there = {shard.device: shard for shard in theirs.addressable_shards}
        worst = most = 0.0
        for shard in ours.addressable_shards:
            if shard.index != there[shard.device].index:
                raise ValueError(f"results lie as {ours.sharding}, not as {theirs.sharding}")
            a, b = (np.asarray(s.data, np.float64) for s in (shard, there[shard.device]))
            worst, most = max(worst, float(np.abs(a - b).max())), max(most, float(np.abs(b).max()))
        out.append((worst, most))
    return out


if __name__ == "__main__":
    serve(Member().answer)
