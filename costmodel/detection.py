"""Machine detection by the devices that JAX reports, and lookup of cost models by name."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eggshard.costmodel.alpha_beta import AlphaBeta
from eggshard.costmodel.counting import Messages, WireBytes
from eggshard.costmodel.machine import Machine
from eggshard.costmodel.machine_files import load, preset, presets
from eggshard.costmodel.protocol import CostModel
from eggshard.errors import CostModelError

#: Models that are no machines, by name.
_OTHERS: dict[str, type] = {"alpha-beta": AlphaBeta, "wire-bytes": WireBytes, "messages": Messages}


def machines_folder() -> Path:
    """Where calibrated machines are kept: ``eggshard/machines`` in the user's data folder (XDG_DATA_HOME)."""
    given = os.environ.get("XDG_DATA_HOME", "")
    return (Path(given) if given else Path.home() / ".local" / "share") / "eggshard" / "machines"


def calibrated_file(devices: Sequence[Any]) -> Path:
    """The file of the machine that these devices are: by their kind and number."""
    kind = re.sub(r"[^a-z0-9]+", "-", str(devices[0].device_kind).lower()).strip("-")
    return machines_folder() / f"{kind}-{len(devices)}.toml"


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
    return load(calibrated) if calibrated.is_file() else preset_of(devices)


def preset_of(devices: Sequence[Any]) -> Machine:
    """The preset with these devices; CostModelError where none has any of this kind."""
    kind = devices[0].device_kind
    nodes = len({getattr(d, "process_index", 0) for d in devices})
    fitting = [m for m in map(preset, presets()) if kind in m.devices]
    if not fitting:
        raise CostModelError(
            f"no preset has devices of kind {kind!r}; run `eggshard calibrate` on them, or load a machine file; there "
            f"are {', '.join(presets())}"
        )
    several = nodes > 1 or len(devices) > (fitting[0].levels[0].units or len(devices))
    return max(fitting, key=lambda m: len(m.levels)) if several else min(fitting, key=lambda m: len(m.levels))


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
    raise CostModelError(
        f"there is no cost model {name!r}; there are {', '.join(_OTHERS)}, detected, {', '.join(presets())}, and files "
        "of machines (.toml)"
    )
