"""Machine detection by the devices that JAX reports, and lookup of cost models by name."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from eggshard.costmodel.alpha_beta import AlphaBeta
from eggshard.costmodel.counting import Messages, WireBytes
from eggshard.costmodel.machines.machine import Machine
from eggshard.costmodel.machines.machine_files import load, preset, presets
from eggshard.costmodel.protocol import CostModel
from eggshard.errors import CostModelError
from eggshard.extras import named_extras
from eggshard.settings import config

#: Models that are no machines, by name.
_OTHERS: dict[str, type] = {"alpha-beta": AlphaBeta, "wire-bytes": WireBytes, "messages": Messages}
#: The presets that stand for devices of a kind that none has, by JAX's name of their platform.
_NEAREST = {"gpu": "h100-node", "tpu": "tpu-v5e"}
_HOST, _HOST_LEVEL = "cpu-host", "host"


def machines_folder() -> Path:
    """Where calibrated machines are kept: ``eggshard/machines`` in the user's data folder (XDG_DATA_HOME)."""
    given = os.environ.get("XDG_DATA_HOME", "")
    return (Path(given) if given else Path.home() / ".local" / "share") / "eggshard" / "machines"


def calibrated_file(devices: Sequence[Any]) -> Path:
    """The file of the machine that these devices are: by their kind and number, and of how many processes they are."""
    kind = re.sub(r"[^a-z0-9]+", "-", str(devices[0].device_kind).lower()).strip("-")
    processes = processes_of(devices)
    number = f"{processes}x{len(devices) // processes}" if processes > 1 else str(len(devices))
    return machines_folder() / f"{kind}-{number}.toml"


def processes_of(devices: Sequence[Any]) -> int:
    """How many processes the devices belong to."""
    return len({getattr(device, "process_index", 0) for device in devices})


@named_extras()
def detect(devices: Sequence[Any] | None = None) -> Machine:
    """The machine with these devices (by default all of JAX's): what `eggshard calibrate` saved, else the preset.

    Raises CostModelError where no preset has devices of this kind.
    """
    if devices is None:
        import jax

        devices = jax.devices()
    if not devices:
        raise CostModelError("there are no devices to detect a machine by")
    calibrated = calibrated_file(devices)
    return replace(load(calibrated), origin="calibrated") if calibrated.is_file() else preset_of(devices)


def at_hand(devices: Sequence[Any]) -> CostModel:
    """The cost model where none is given: `eggshard.config.cost_model`, or the machine at hand.

    devices: those that a program was lowered for. A program that names none is planned for those of JAX where JAX has
    made its devices, and else for the processors of this host. Devices of a kind that no preset has are priced as the
    nearest kind, and the machine's origin says so.
    """
    if config.cost_model is not None:
        return named(config.cost_model)
    made = _made_by_jax()
    devices = devices or made
    if not devices:
        return preset(_HOST)
    if made and not calibrated_file(devices).is_file() and calibrated_file(made).is_file():
        return detect(made)
    try:
        return detect(devices)
    except CostModelError:
        kind, nearest = devices[0].device_kind, preset(_NEAREST.get(devices[0].platform, _HOST))
        return replace(nearest, origin=f"{nearest.origin}, for want of one for {kind}")


def _made_by_jax() -> Sequence[Any]:
    """JAX's devices if it has made them; to ask JAX would make them, which takes seconds and the devices' memory."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return sys.modules["jax"].devices() if bridge is not None and bridge.backends_are_initialized() else ()


def preset_of(devices: Sequence[Any]) -> Machine:
    """The preset with these devices; CostModelError where none has any of this kind.

    Where the inner level is a host, it has as many of them as a process has.
    """
    kind = devices[0].device_kind
    nodes = processes_of(devices)
    fitting = [m for m in map(preset, presets()) if kind in m.devices]
    if not fitting:
        raise CostModelError(
            f"no preset has devices of kind {kind!r}; run `eggshard calibrate` on them, or load a machine file; there "
            f"are {', '.join(presets())}"
        )
    several = nodes > 1 or len(devices) > (fitting[0].levels[0].units or len(devices))
    found = max(fitting, key=lambda m: len(m.levels)) if several else min(fitting, key=lambda m: len(m.levels))
    inner, *outer = found.levels
    if inner.name == _HOST_LEVEL and outer:
        found = replace(found, levels=(replace(inner, units=max(1, len(devices) // nodes)), *outer))
    return found


def named(name: str) -> CostModel:
    """A model by what it is called on the command line.

    ``alpha-beta``, ``wire-bytes``, ``messages``; ``detected``: what `detect` finds; a preset's name; a machine's file.
    """
    if name in _OTHERS:
        model: CostModel = _OTHERS[name]()
        return model
    if name == "detected":
        return detect()
    if name in presets():
        return preset(name)
    if name.endswith(".toml") or os.sep in name:
        return load(name)
    known = [*_OTHERS, "detected", *presets()]
    spelled = {made.__name__.lower(): other for other, made in _OTHERS.items()} | {other: other for other in known}
    near = get_close_matches(name.lower(), spelled, n=1)
    meant = f"; did you mean {spelled[near[0]]!r}?" if near else "."
    raise CostModelError(f"there is no cost model {name!r}{meant} There are {', '.join(known)}, and files of machines "
                         "(.toml)")
