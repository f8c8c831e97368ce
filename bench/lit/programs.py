"""The cases of test files as whole programs: planned, and partitioned both ways, beside what XLA makes of them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from tests.shardy.running import Boundary, inputs_of, meaning_of, run_simulated

import eggshard
from bench import enzyme
from bench.lit.cases import Case
from bench.lit.comparing import SECONDS, assert_rounded
from bench.lit.judging import Verdict, parses
from eggshard.costmodel import WireBytes
from eggshard.errors import EggshardError
from eggshard.limits import Limits
from eggshard.ops.evaluate import evaluate_region
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import mesh_text
from eggshard.shardy.module import COLLECTIVES, parsed
from eggshard.shardy.partitioning import Partitioned

WAYS = ("optimize", "shardy", "global")

_PARTITIONED = re.compile(rf"({'|'.join(COLLECTIVES)})\b|unreduced=|device_ids ?= ?\[\d+\]")


@dataclass
class Whole:
    """A program: bytes of the busiest device by each way and by XLA, and what is wrong with a way."""

    name: str
    wire: dict[str, float] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def judge(self) -> None:
        """What each way is, once all bytes are known: right, dearer than XLA, or than `shardy`."""
        for way in WAYS:
            peers = {"XLA": self.wire.get("XLA")} | ({"shardy": self.wire.get("shardy")} if way == "global" else {})
            more = [f"{amount:.0f} by {who}" for who, amount in peers.items()
                    if amount is not None and way in self.wire and self.wire[way] > amount + 0.5]
            if more and way != "shardy" and way not in self.verdicts:
                self.verdicts[way] = Verdict("dearer", f"{self.wire[way]:.0f} bytes, {', '.join(more)}")


def programs(cases: Iterator[Case]) -> Iterator[tuple[str, str]]:
    """Names and texts of the cases that are programs: each once, run as ``main``, with shardings, and none of Shardy's
    collectives, nor values on single devices or partial sums at its ends, with which a partitioner ends."""
    seen = set()
    for case in cases:
        text = re.sub(rf"@{re.escape(case.function)}\b", "@main", case.code)
        key = re.sub(r"\s+", " ", text)
        whole = "sdy.sharding" in text and not _PARTITIONED.search(text) and "expected-error" not in case.text
        if key not in seen and whole and parses(text):
            seen.add(key)
            yield case.name, text


def run(name: str, text: str) -> Whole:
    """Plan, partition and compile one program, and run what comes of it on simulated devices."""
    whole = Whole(name)
    devices = devices_of(text)
    by_xla = enzyme.plain(partitioned(text, devices)).wire_bytes if 1 < devices <= enzyme.DEVICES else None
    if by_xla is not None:
        whole.wire["XLA"] = by_xla
    program, wanted = None, None
    try:
        program = meaning_of(text)
        arrays = inputs_of(program, 0, nans=False)
        wanted = evaluate_region(program.region, arrays)
    except EggshardError:  # an op without a meaning on whole tensors: what is sent can still be compared
        arrays = []
    for way in WAYS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                whole.wire[way] = _checked(way, text, arrays, wanted)
        except EggshardError as error:
            whole.verdicts[way] = Verdict("refused", str(error))
        except AssertionError as error:
            whole.verdicts[way] = Verdict("wrong", str(error).strip().partition("\n")[0])
        except Exception as error:
            whole.verdicts[way] = Verdict("failed", f"{type(error).__name__}: {error}")
    whole.judge()
    return whole


def _signature(local: Partitioned) -> str:
    """A declaration of a partitioned program: whole arguments and results, and how they are sharded."""
    ends = [[f"{end.type} {{sdy.sharding = #sdy.sharding<@mesh, {end.sharding}>}}" if local.mesh.axes else str(end.type)
             for end in side] for side in (local.inputs, local.outputs)]
    mesh = f"sdy.mesh @mesh = {mesh_text(local.mesh)}" if local.mesh.axes else ""
    return f"{mesh}\nfunc.func private @main({', '.join(ends[0])}) -> ({', '.join(ends[1])})"


def devices_of(text: str) -> int:
    """The devices of a module's largest mesh."""
    with parsed(text) as module:
        return max((mesh.size for mesh in module.meshes.values() if isinstance(mesh, Mesh)), default=1)


def partitioned(text: str, devices: int) -> str:
    """The module for as many partitions."""
    body = re.sub(r"^\s*module\b[^{]*(?:attributes \{[^}]*\} )?\{(.*)\}\s*$", r"\1", text, flags=re.DOTALL)
    return f"module attributes {{mhlo.num_partitions = {devices} : i32, mhlo.num_replicas = 1 : i32}} {{\n{body}\n}}"


def _checked(way: str, text: str, arrays: Sequence[np.ndarray], wanted: Sequence[np.ndarray] | None) -> float:
    """The bytes of a way; AssertionError where its results are others than the wanted ones, if these are known."""
    if way == "optimize":
        plan = eggshard.optimize(text, cost_model=WireBytes(), limits=Limits(seconds=SECONDS))
        made, amount = plan.run(*arrays) if wanted is not None else (), float(plan.wire_bytes)
    else:
        options = {"cost_model": WireBytes()} if way == "global" else {}
        local = eggshard.partition(text, mode=way, **options)
        made = run_simulated(local.annotated, Boundary(_signature(local)), arrays) if wanted is not None else ()
        amount = local.bytes.busiest
    for i, (a, b) in enumerate(zip(made, wanted or (), strict=True)):
        assert_rounded(np.asarray(a), b, f"result {i}")
    return amount
