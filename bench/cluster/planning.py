"""One program's plan, made in a process of its own and written to a file, as the first host of a cluster does."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import eggshard
from bench.programs import seconds
from eggshard.costmodel import Messages, WireBytes, at_hand

DEFAULT, CALIBRATED = "default", "calibrated"
"""The names here of the model that users get without asking for one, and of what is calibrated on the cluster."""


def plan(name: str, model: str, path: str, hosts: str, devices: str) -> dict[str, Any]:
    """Plan a program under a model and write the plan; of a model that counts nothing is predicted.

    The default is that of a job with a process of so many devices on each host.
    """
    job = [SimpleNamespace(device_kind="cpu", platform="cpu", process_index=host)
           for host in range(int(hosts)) for _ in range(int(devices))]  # fmt: skip
    lowered = seconds.program(name).lower()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eggshard.EggshardWarning)
        began = time.perf_counter()
        found = eggshard.optimize(lowered, cost_model=at_hand(job) if model == DEFAULT else model)
        took = time.perf_counter() - began
    Path(path).write_text(found.to_json())
    counts = isinstance(found.cost_model, WireBytes | Messages)
    return {
        "path": path, "seconds": took, "fallback": found.search.fallback, "collectives": found.collectives,
        "predicted": None if counts else found.cost.total,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(plan(*sys.argv[1:])))
