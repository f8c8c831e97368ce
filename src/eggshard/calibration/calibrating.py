"""Calibration (`eggshard calibrate`): a machine's constants from timings of steps on the devices present."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from eggshard.calibration.fitting import KindError, errors, fitted
from eggshard.calibration.measuring import measure, rounds
from eggshard.calibration.samples import HOST_SIZES, SIZES, samples
from eggshard.costmodel.detection import calibrated_file, preset_of
from eggshard.costmodel.machine import Machine
from eggshard.costmodel.machine_files import preset
from eggshard.costmodel.machine_text import to_toml
from eggshard.costmodel.table import Measured
from eggshard.errors import CostModelError
from eggshard.ops import registry
from eggshard.ops.base import Traits


@dataclass(frozen=True)
class Calibration:
    """A machine fitted to what was measured, and how well it agrees with it."""

    machine: Machine
    measured: tuple[Measured, ...]
    errors: tuple[KindError, ...]

    def save(self, path: Path) -> None:
        """Write the machine's file, with the errors of the fit; OSError where it cannot be written."""
        worst = "\n".join(f"{e.kind}: {e.steps} steps, median error {100 * e.median:.0f} %, p90 {100 * e.p90:.0f} %"
                          for e in self.errors)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(to_toml(self.machine, f"Fitted by eggshard calibrate, {date.today()}.\n{worst}"), "utf-8")


def calibrate(
    devices: Sequence[Any] | None = None, sizes: Sequence[int] = (), groups: Sequence[int] = (), repeats: int = 7,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Calibration:
    """Measure steps on devices (by default all of JAX's), and fit a machine to them.

    sizes: bytes per device (by default to 4 MiB on a CPU, to 256 MiB elsewhere). groups: devices per collective (by
    default all that divide their number). repeats: how often each case is timed. progress: called with what was run,
    and how many runs of how many are done.
    """
    if devices is None:
        import jax

        devices = jax.devices()
    if len(devices) < 2:
        raise CostModelError(
            "calibration takes two devices or more; on a CPU give JAX some, e.g. `eggshard calibrate --devices 8`")
    if repeats < 1:
        raise CostModelError(f"calibration repeats each case at least once, not {repeats} times")
    try:
        base = preset_of(devices)
    except CostModelError:
        base = preset("cpu-host")
    usual = HOST_SIZES if getattr(devices[0], "platform", "cpu") == "cpu" else SIZES
    found = samples(len(devices), sorted(sizes or usual), groups)
    done, total = 0, len(found) * rounds(repeats)

    def advance(what: str) -> None:
        nonlocal done
        done += 1
        progress(what, done, total)

    measured = measure(found, devices, repeats, advance)
    name = calibrated_file(devices).stem
    machine = _general(fitted(base, measured))
    source = f"eggshard calibrate, {date.today()}: {len(devices)} x {devices[0].device_kind}"
    kept = {k: v for k, v in base.sources.items() if not k.startswith(("compute", "protocols"))}
    machine = replace(machine, name=name, devices=(devices[0].device_kind,), disagreements=(),
                      sources={**kept, "compute": source, "protocols": source})
    return Calibration(machine, tuple(measured), tuple(errors(machine, measured)))


def _general(machine: Machine) -> Machine:
    """What was not measured: bytes cost as additions', flops as products', functions as tanh."""
    ops = dict(machine.compute.ops)
    add, product = ops.get("add"), ops.get("dot_general")
    compute = machine.compute
    if add is not None:
        compute = replace(add, flops=(product or compute).flops)
    functions = [op for op in registry.names() if Traits.FUNCTION in registry.get(op).traits and op != "tanh"]
    like = {**({op: "tanh" for op in functions} if "tanh" in ops else {}),
            **({"convolution": "dot_general"} if product is not None else {})}
    return replace(machine, compute=replace(compute, ops=ops, like=like))
