"""The guard of `eggshard.jit`, which compares a plan with XLA's own program and caches the verdict in the process."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax

from eggshard.emit.stablehlo import plan_text
from eggshard.engines.jax.comparison import Comparison, compare_with_xla
from eggshard.ops.module_text import program_text

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

#: The number of latest verdicts that are kept.
KEPT = 1024

_verdicts: OrderedDict[Any, tuple[Any, Comparison]] = OrderedDict()


def compared(plan: PlanRecord) -> Comparison:
    """`Plan.compare_with_xla`, made once per program, plan and cost model.

    Programs and plans are told apart by their text; a cost model that does not hash is only equal to itself.
    """
    digest = hashlib.sha256()
    for text in (plan.program.text or program_text(plan.program), plan_text(plan)):
        digest.update(text.encode() + b"\0")
    model = plan.cost_model
    key = (digest.digest(), model if _hashes(model) else id(model), jax.default_backend())
    if key in _verdicts:
        _verdicts.move_to_end(key)
        return _verdicts[key][1]
    found = compare_with_xla(plan)
    _verdicts[key] = (model, found)  # the model is kept, so that its id stays its own
    while len(_verdicts) > KEPT:
        _verdicts.popitem(last=False)
    return found


def reason(name: str, comparison: Comparison, excesses: Sequence[str]) -> str:
    """Why a function runs XLA's program, in one line of a warning. excesses: in what its plan is worse."""
    from eggshard.tables import duration, size

    plan, xla, price = comparison.plan, comparison.xla, comparison.unit.text
    return (
        f"{name} runs XLA's own program: it receives {size(xla.wire_bytes)} per device and takes "
        f"{price(xla.modelled_seconds)} under the cost model, its plan {size(plan.wire_bytes)} and "
        f"{price(plan.modelled_seconds)}, which is worse in {' and '.join(excesses)}; to find out, XLA compiled its "
        f"own program in {duration(xla.compile_seconds)} and the plan in {duration(plan.compile_seconds)}"
    )


def _hashes(model: Any) -> bool:
    try:
        hash(model)
    except TypeError:
        return False
    return True
