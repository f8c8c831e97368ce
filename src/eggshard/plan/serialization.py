"""Serialization of plans as JSON text."""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import eggshard.costmodel as costmodel
from eggshard.errors import CostModelError, EggshardError, ProgramError
from eggshard.frontends import frontend_of
from eggshard.plan.identity import device_order, require, require_versions, versions
from eggshard.plan.json_values import Recorded, decode, encode, is_known
from eggshard.plan.reasons import Reasons, packed, unpacked
from eggshard.plan.record import PlanRecord
from eggshard.steps import steps

#: The version of the JSON format of plans and device programs. Until 2 they held no digest.
FORMAT = 3
#: The first entry of each kind of text, whose value is its format.
PLAN, DEVICE_PROGRAM = "eggshard plan", "eggshard device program"


def to_json(plan: PlanRecord, reasons: bool = True) -> str:
    """The plan as JSON text (without its baseline), with the versions that it depends on, and its reasons or not."""
    body = {f: encode(getattr(plan, f)) for f in
            ("program", "device_program", "input_placements", "output_placements", "search")}
    try:
        model = encode(plan.cost_model) if is_known(plan.cost_model) else None
    except ProgramError:  # a user's own model among those that it is made of
        model = None
    if model is None:
        model = encode(Recorded.of(plan))
    body["cost_model"] = model
    if reasons:
        body["reasons"] = packed(plan.reasons)
    facts = {"versions": versions(plan.program), "device_order": device_order(plan)}
    return sealed(PLAN, {**facts, **body})


def from_json(
    text: str | os.PathLike[str], program: Any = None, mesh: Any = None,
    cost_model: costmodel.CostModel | str | None = None,
) -> PlanRecord:
    """A plan from its JSON text; ProgramError if it is none, or written by other versions. See `Plan.from_json`."""
    data = opened(PLAN, Path(text).read_text(encoding="utf-8") if isinstance(text, os.PathLike) else text)
    try:
        require_versions(data.pop("versions"))
        recorded = data.pop("reasons", None)
        without = Reasons(note="the JSON was written without reasons")
        reasons = without if recorded is None else unpacked(recorded)
        plan = PlanRecord(**{k: decode(v) for k, v in data.items()}, reasons_factory=reasons)
    except EggshardError:
        raise
    except Exception as error:
        raise ProgramError(f"damaged plan JSON: {error!r}; write it again with Plan.to_json") from None
    require(plan, program, mesh)
    if cost_model is not None:
        plan = _under(plan, costmodel.named(cost_model) if isinstance(cost_model, str) else cost_model)
    if program is None:
        return plan
    return replace(plan, calling_convention=frontend_of(program).calling_convention(program))


def _under(plan: PlanRecord, model: costmodel.CostModel) -> PlanRecord:
    """The plan with the model that it was made under; CostModelError for one that prices it otherwise."""
    given = replace(plan, cost_model=model)
    for i, (then, now) in enumerate(zip(plan.prices, given.prices, strict=True)):
        if not math.isclose(then, now, rel_tol=1e-6, abs_tol=1e-15):
            raise CostModelError(
                f"step {i} ({plan.steps[i].action.kind}) takes {now:g} s under the cost model given, and took {then:g} "
                f"when the plan was made: give the model that it was made under, or plan again"
            )
    return given


def device_program_to_json(program: steps.StepPlan) -> str:
    """A device program alone as JSON text, on one line."""
    return sealed(DEVICE_PROGRAM, {"program": encode(program)})


def device_program_from_json(text: str) -> steps.StepPlan:
    """A device program from its JSON text; ProgramError if it is none, of another format version, or altered."""
    data = opened(DEVICE_PROGRAM, text)
    try:
        program = decode(data["program"])
    except EggshardError:
        raise
    except Exception as error:
        raise ProgramError(f"damaged JSON of a device program: {error!r}") from None
    if not isinstance(program, steps.StepPlan):
        raise ProgramError("the JSON text holds no device program")
    return program


def sealed(kind: str, content: dict[str, Any]) -> str:
    """Content as JSON text with its kind, format and digest."""
    try:
        return json.dumps({kind: FORMAT, "digest": _digest(content), **content})
    except RecursionError:
        raise ProgramError("the plan is nested too deeply to be written as JSON") from None


def opened(kind: str, text: str) -> dict[str, Any]:
    """The content of JSON text that `sealed` wrote.

    ProgramError for text of another kind or format, or whose content is not the one that was written. Text may be laid
    out anew, with its entries in another order: the digest is of what they say.
    """
    what = kind.removeprefix("eggshard ")
    try:
        data = json.loads(text)
        found = data.pop(kind, None) if isinstance(data, dict) else None
        if found != FORMAT:
            known = isinstance(found, int)
            other = f"is of format {found!r}, and this is" if known else f"is no {what} of eggshard, of"
            raise ProgramError(f"the text {other} format {FORMAT}; write the {what} with this version's to_json")
        written = data.pop("digest", None)
        if written != _digest(data):
            raise ProgramError(
                f"the {what} was altered after it was written: its content has another digest; write it again with "
                "to_json, and change programs instead of plans"
            )
    except RecursionError:
        raise ProgramError(f"the text is nested too deeply to be a {what} of eggshard") from None
    except (ValueError, TypeError) as error:
        raise ProgramError(f"not JSON, as a {what} is: {error}") from None
    content: dict[str, Any] = data
    return content


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
