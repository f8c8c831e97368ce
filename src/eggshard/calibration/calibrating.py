"""Calibration (`eggshard calibrate`): a machine's constants from timings of steps on the devices present."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from eggshard.calibration.fitting import KindError, errors, fitted
from eggshard.calibration.measuring import measure, rounds
from eggshard.calibration.samples import HOST_SIZES, SIZES, samples
from eggshard.costmodel.detection import calibrated_file, preset_of, processes_of
from eggshard.costmodel.machines.machine import Level, Machine
from eggshard.costmodel.machines.machine_files import parse, preset
from eggshard.costmodel.machines.machine_text import to_toml
from eggshard.costmodel.table import Measured
from eggshard.errors import CostModelError, EggshardWarning
from eggshard.ops import registry
from eggshard.ops.base import Traits

#: The noise (`measuring.Timings`) above which other load moves prices by more than fits err.
NOISY = 1.3


@dataclass(frozen=True)
class Calibration:
    """A machine fitted to what was measured, and how well it agrees with it.

    noise: a case's median time over its least one, in the median over all cases.
    """

    machine: Machine
    measured: tuple[Measured, ...]
    errors: tuple[KindError, ...]
    noise: float = 1.0

    def save(self, path: Path) -> None:
        """Write the machine's file, with the errors of the fit; OSError where it cannot be written."""
        worst = "\n".join(f"{e.kind}: {e.steps} steps, median error {100 * e.median:.0f} %, p90 {100 * e.p90:.0f} %"
                          for e in self.errors)
        path.parent.mkdir(parents=True, exist_ok=True)
        fitted_on = f"Fitted by eggshard calibrate, {date.today()}, noise {self.noise:.2f}."
        path.write_text(to_toml(self.machine, f"{fitted_on}\n{worst}"), "utf-8")


def calibrate(
    devices: Sequence[Any] | None = None, sizes: Sequence[int] = (), groups: Sequence[int] = (), repeats: int = 7,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Calibration:
    """Measure steps on devices (by default all of JAX's), and fit a machine to them.

    sizes: bytes per device (by default to 2 MiB on a CPU, where collectives on whole pieces of memory and local ops
    other than products are timed at four times the largest, too; to 256 MiB elsewhere). groups: devices per collective
    (by default all that divide their number). repeats: how often each case is timed. progress: called with what was
    run, and how many runs of how many are done. Warns where other load made timings differ by more than fits err.

    Devices of several processes are all that these have, as many in each, in their order: all processes call this, and
    get the same machine, whose inner level is what joins the devices of one.
    """
    if devices is None:
        import jax

        devices = jax.devices()
    if len(devices) < 2:
        raise CostModelError(
            "calibration takes two devices or more; on a CPU give JAX some, e.g. `eggshard calibrate --devices 8`")
    if repeats < 1:
        raise CostModelError(f"calibration repeats each case at least once, not {repeats} times")
    own = _per_process(devices)
    try:
        base = preset_of(devices)
    except CostModelError:
        base = preset("cpu-host")
    if 1 < own < len(devices) and len(base.levels) == 1:
        base = _of_hosts(base, own)
    host = getattr(devices[0], "platform", "cpu") == "cpu"
    found = samples(len(devices), sorted(sizes or (HOST_SIZES if host else SIZES)), groups, own, large=host)
    done, total = 0, len(found) * rounds(repeats)

    def advance(what: str) -> None:
        nonlocal done
        done += 1
        progress(what, done, total)

    measured, noise = measure(found, devices, repeats, advance)
    if noise > NOISY:
        warnings.warn(f"timings of one step take {noise:.2f} times the least in the median: the devices or their "
                      "links did other work, and prices are less certain; calibrate again while nothing else runs, or "
                      "with more repeats", EggshardWarning, stacklevel=2)
    name = calibrated_file(devices).stem
    machine = _of_all(_general(fitted(base, measured)))
    source = f"eggshard calibrate, {date.today()}: {len(devices)} x {devices[0].device_kind}"
    kept = {k: v for k, v in base.sources.items() if not k.startswith(("compute", "protocols"))}
    machine = replace(machine, name=name, devices=(devices[0].device_kind,), disagreements=(),
                      sources={**kept, "compute": source, "protocols": source})
    return Calibration(machine, tuple(measured), tuple(errors(machine, measured)), noise)


def _per_process(devices: Sequence[Any]) -> int:
    """Devices of each process; CostModelError where they are not all that the processes have, in order."""
    processes = processes_of(devices)
    own = len(devices) // processes
    if processes > 1:
        import jax

        order = [device.process_index for device in devices]
        if list(devices) != jax.devices() or order != [i for i in range(processes) for _ in range(own)]:
            raise CostModelError(
                f"calibration of {processes} processes takes all of their devices, as many of each, in the order of "
                "jax.devices(); to calibrate one host run it in a program of one process")
    return own


def _of_all(machine: Machine) -> Machine:
    """The machine as the first of several processes fitted it: seconds are the same on all, rounding may differ."""
    import jax

    if jax.process_count() == 1:
        return machine
    from jax.experimental.multihost_utils import broadcast_one_to_all

    text = np.frombuffer(to_toml(machine).encode(), np.uint8)
    padded = np.zeros(int(broadcast_one_to_all(np.int32(len(text)))), np.uint8)
    padded[: len(text)] = text[: len(padded)]
    return parse(bytes(np.asarray(broadcast_one_to_all(padded))).decode(), "the first process's machine")


def _of_hosts(machine: Machine, devices: int) -> Machine:
    """A machine of one level as a host of so many devices, and hosts joined by a network that is to be fitted.

    Each level has one algorithm, so that what a collective needs of either can be told apart.
    """
    (host,) = machine.levels
    one = ("ring", "direct")
    network = replace(host.fabric, bandwidth=host.fabric.bandwidth / 10, latency=10 * host.fabric.latency)
    return replace(machine, levels=(replace(host, units=devices, algorithms=one),
                                    Level("network", network, algorithms=one, shared=True)))


#: Ops that, as a wrap-around, copy a value and put some of its elements beside it.
TURNING = ("extend", "rotate")


def _general(machine: Machine) -> Machine:
    """What was not measured: bytes cost as additions', flops as products', functions as tanh, rotations as
    wrap-arounds."""
    ops = dict(machine.compute.ops)
    add, product = ops.get("add"), ops.get("dot_general")
    compute = machine.compute
    if add is not None:
        compute = replace(add, flops=(product or compute).flops)
    functions = [op for op in registry.names() if Traits.FUNCTION in registry.get(op).traits and op != "tanh"]
    like = {**({op: "tanh" for op in functions} if "tanh" in ops else {}),
            **(dict.fromkeys(TURNING, "wrap") if "wrap" in ops else {}),
            **({"convolution": "dot_general"} if product is not None else {})}
    return replace(machine, compute=replace(compute, ops=ops, like=like))
