"""eggshard: the cheapest explicit-collectives plan for a sharded tensor program, by equality saturation."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from eggshard import errors as errors
from eggshard.errors import (
    EggshardError as EggshardError,
    EggshardWarning as EggshardWarning,
    Interrupted as Interrupted,
)
from eggshard.extras import check_jax as _check_jax, named_extras as _named_extras
from eggshard.limits import Guard as Guard, Limits as Limits
from eggshard.settings import config as config
from eggshard.version import __version__ as __version__

if TYPE_CHECKING:
    from eggshard import costmodel as costmodel, shardy as shardy, tactics as tactics, triton as triton
    from eggshard.api import Plan as Plan
    from eggshard.autosharding import auto as auto
    from eggshard.frontends import load as load
    from eggshard.frontends.builder import ProgramBuilder as ProgramBuilder
    from eggshard.jitting import jit as jit
    from eggshard.planning import (
        equivalent as equivalent,
        optimize as optimize,
        pareto as pareto,
        plan_reshard as plan_reshard,
    )
    from eggshard.program.mesh import Mesh as Mesh
    from eggshard.program.program import Program as Program
    from eggshard.program.sharding import AUTO as AUTO, Sharding as Sharding
    from eggshard.report.propagation import explain_propagation as explain_propagation
    from eggshard.shardy.partitioning import partition as partition

#: Names that are imported when first asked for, so that ``import eggshard`` stays fast.
_LAZY = {
    "optimize": "eggshard.planning",
    "plan_reshard": "eggshard.planning",
    "pareto": "eggshard.planning",
    "equivalent": "eggshard.planning",
    "partition": "eggshard.shardy.partitioning",
    "explain_propagation": "eggshard.report.propagation",
    "jit": "eggshard.jitting",
    "auto": "eggshard.autosharding",
    "AUTO": "eggshard.program.sharding",
    "load": "eggshard.frontends",
    "Mesh": "eggshard.program.mesh",
    "Plan": "eggshard.api",
    "Program": "eggshard.program.program",
    "ProgramBuilder": "eggshard.frontends.builder",
    "Sharding": "eggshard.program.sharding",
    "costmodel": "",
    "rewrites": "",
    "shardy": "",
    "tactics": "",
    "triton": "",
}


_check_jax()


@_named_extras()
def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'eggshard' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name) if _LAZY[name] else importlib.import_module(
        f"eggshard.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What is public; modules that are not among these names, and their contents, may change in any version."""
    return sorted({
        "EggshardError", "EggshardWarning", "Guard", "Limits", "__version__", "config", "errors", *_LAZY})
