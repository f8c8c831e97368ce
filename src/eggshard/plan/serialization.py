"""Plans as JSON text, and back: dataclasses, named tuples, meshes and arrays by tag. No pickle, nothing executed."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from eggshard import costmodel
from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.protocol import StepInfo
from eggshard.errors import CostModelError, EggshardError, ProgramError
from eggshard.placement import slabs
from eggshard.plan.identity import device_order, require, require_versions, versions
from eggshard.plan.plan import Plan, Search
from eggshard.plan.reasons import Reasons, packed, unpacked
from eggshard.program import attributes, mesh, placement, program, sharding, types
from eggshard.program.axes import AxisRef
from eggshard.program.types import mlir_dtype, numpy_dtype
from eggshard.steps import authored_steps, control_steps, exchange, held, piece_steps, steps, window_steps

FORMAT = 2
_CLASSES: dict[str, type] = {
    c.__name__: c
    for c in (
        costmodel.AlphaBeta, costmodel.Messages, costmodel.WireBytes, costmodel.WeightedSum, costmodel.PerKind,
        costmodel.Machine, costmodel.Level, costmodel.Protocol, costmodel.Compute, costmodel.Ring, costmodel.Torus,
        costmodel.Switch, costmodel.FullMesh, costmodel.FatTree, StepInfo, placement.Dim, placement.Placement,
        sharding.DimSharding, sharding.Sharding, AxisRef, types.TensorType, program.Op, program.Region,
        program.Program, Search,
        steps.Local, steps.Resize, steps.Slice, steps.AllGather, steps.AllToAll, steps.CollectivePermute,
        steps.AllReduce, steps.ReduceScatter, steps.KeepFirst, steps.Mask, steps.Step, steps.StepPlan,
        piece_steps.Round, piece_steps.Exchange, exchange.Blocks, exchange.BoxExchange, held.Origin,
        control_steps.Loop, control_steps.Branch, authored_steps.DeviceNumber, authored_steps.GroupCollective,
        authored_steps.OnFirstDevice, slabs.Slab, window_steps.Crop, window_steps.HaloExchange,
        window_steps.JointExchange, window_steps.BoxSelect, window_steps.EdgeFill,
    )
}


@dataclass(frozen=True)
class Recorded:
    """Stands in for a user's cost model, which JSON cannot carry: it knows the prices of the plan's own steps.

    overlap, links: what the model says of computing while communicating (`CostModel`), for the axes of these steps.
    """

    name: str
    prices: tuple[tuple[StepInfo, float], ...]
    overlap: float = 0.0
    links: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, plan: Plan) -> Recorded:
        """The record of a plan's own model."""
        pricer = Pricer(plan.cost_model, plan.mesh)
        pricer.program(plan.device_program)
        over = dict.fromkeys([step.axes or tuple(plan.mesh.axes) for step in pricer.known if step.communicates])
        links = tuple((axes, pricer.channels(axes)) for axes in [*over, tuple(plan.mesh.axes)])
        return cls(type(plan.cost_model).__name__, tuple(pricer.known.items()), pricer.overlap, links)

    @cached_property
    def _seconds(self) -> dict[StepInfo, float]:
        return dict(self.prices)

    def channels(self, axes: tuple[str, ...], mesh: mesh.Mesh) -> tuple[str, ...]:
        """The recorded links."""
        return dict(self.links).get(axes, ("network",))

    def seconds(self, step: StepInfo) -> float:
        """The recorded price; CostModelError for a step that the plan does not have."""
        try:
            return self._seconds[step]
        except KeyError:
            raise CostModelError(
                f"the plan was priced by {self.name}, of which its JSON holds the prices of its own steps only, not of "
                f"another {step.op or step.kind}; give the model to Plan.from_json as cost_model"
            ) from None


_CLASSES[Recorded.__name__] = Recorded


def _is_known(value: Any) -> bool:
    return _CLASSES.get(type(value).__name__) is type(value)


def _encode(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"@": "float", "value": repr(value)}
    if isinstance(value, mesh.Mesh):
        return {"@": "Mesh", "axes": list(value.axes.items()), "device_ids": value.device_ids}
    if isinstance(value, attributes.Literal):
        array = value.array.reshape(-1)[:1] if value.splat else value.array
        data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
        return {"@": "Literal", "shape": list(value.array.shape), "dtype": mlir_dtype(value.array.dtype),
                "splat": value.splat, "data": data}
    if isinstance(value, attributes.Attributes):
        return {"@": "Attributes", "items": {k: _encode(v) for k, v in value.items()}}
    if isinstance(value, steps.StepPlan) and value.held:
        return {**_encode(replace(value, held=())), "held": _held(value.held)}
    if _is_known(value):
        names = [f.name for f in fields(value)] if is_dataclass(value) else list(value._fields)
        return {"@": type(value).__name__, **{n: _encode(getattr(value, n)) for n in names}}
    if isinstance(value, (tuple, list)):
        return [_encode(v) for v in value]
    if isinstance(value, dict):
        return {"@": "dict", "items": [[_encode(k), _encode(v)] for k, v in value.items()]}
    if isinstance(value, np.generic):
        return _encode(value.item())
    raise ProgramError(f"cannot write {type(value).__name__} as JSON")


def _held(values: tuple[held.Held | None, ...]) -> Any:
    """What tensors a program's values are: the distinct types and placements, and three numbers for each value."""
    kinds: dict[tuple[object, ...], int] = {}
    rows = [h and [h.cls, h.value, kinds.setdefault((h.type, h.placement), len(kinds))] for h in values]
    return {"@": "held", "kinds": [_encode(kind) for kind in kinds], "rows": rows}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(v) for v in value)
    if not isinstance(value, dict):
        return value
    tag = value.get("@")
    if tag == "float":
        return float(value["value"])
    if tag == "Mesh":
        return mesh.Mesh([(n, s) for n, s in value["axes"]], value["device_ids"])
    if tag == "Literal":
        flat = np.frombuffer(base64.b64decode(value["data"]), numpy_dtype(value["dtype"]))
        shape = tuple(value["shape"])
        return attributes.Literal(np.broadcast_to(flat.reshape(()), shape) if value["splat"] else flat.reshape(shape))
    if tag == "Attributes":
        return attributes.Attributes({k: _decode(v) for k, v in value["items"].items()})
    if tag == "held":
        kinds = [_decode(kind) for kind in value["kinds"]]
        return tuple(row and held.Held(row[0], row[1], *kinds[row[2]]) for row in value["rows"])
    if tag == "dict":
        return {_decode(k): _decode(v) for k, v in value["items"]}
    if tag not in _CLASSES:
        raise ProgramError(f"plan JSON holds an unknown kind {tag!r}")
    return _CLASSES[tag](**{k: _decode(v) for k, v in value.items() if k != "@"})


def encoded(value: Any) -> Any:
    """A program, a device program or a part of one as JSON can hold it."""
    return _encode(value)


def to_json(plan: Plan, reasons: bool = True) -> str:
    """The plan as JSON text (without its baseline), with the versions that it depends on, and its reasons or not."""
    body = {f: _encode(getattr(plan, f)) for f in
            ("program", "device_program", "input_placements", "output_placements", "search")}
    try:
        model = _encode(plan.cost_model) if _is_known(plan.cost_model) else None
    except ProgramError:  # a user's own model among those that it is made of
        model = None
    if model is None:
        model = _encode(Recorded.of(plan))
    body["cost_model"] = model
    if reasons:
        body["reasons"] = packed(plan.reasons)
    facts = {"versions": versions(plan.program), "device_order": device_order(plan)}
    return json.dumps({"eggshard plan": FORMAT, **facts, **body})


def from_json(
    text: str, program: Any = None, mesh: Any = None, cost_model: costmodel.CostModel | str | None = None
) -> Plan:
    """A plan from its JSON text; ProgramError if it is none, or written by other versions. See `Plan.from_json`."""
    try:
        data = json.loads(text)
    except (ValueError, TypeError) as error:
        raise ProgramError(f"not JSON: {error}") from None
    found = data.pop("eggshard plan", None) if isinstance(data, dict) else None
    if found != FORMAT:
        other = f"is of format {found!r}, and this is" if isinstance(found, int) else "is no plan of eggshard, of"
        raise ProgramError(f"the text {other} format {FORMAT}; write the plan with Plan.to_json of this version")
    try:
        require_versions(data.pop("versions"))
        recorded = data.pop("reasons", None)
        without = Reasons(note="the JSON was written without reasons")
        reasons = without if recorded is None else unpacked(recorded)
        plan = Plan(**{k: _decode(v) for k, v in data.items()}, reasons_factory=reasons)
    except EggshardError:
        raise
    except Exception as error:
        raise ProgramError(f"damaged plan JSON: {error!r}; write it again with Plan.to_json") from None
    require(plan, program, mesh)
    if cost_model is not None:
        plan = _under(plan, costmodel.named(cost_model) if isinstance(cost_model, str) else cost_model)
    return plan if program is None else replace(plan, calling_convention=_convention(program))


def _under(plan: Plan, model: costmodel.CostModel) -> Plan:
    """The plan with the model that it was made under; CostModelError for one that prices it otherwise."""
    given = replace(plan, cost_model=model)
    for i, (then, now) in enumerate(zip(plan.prices, given.prices, strict=True)):
        if not math.isclose(then, now, rel_tol=1e-6, abs_tol=1e-15):
            raise CostModelError(
                f"step {i} ({plan.steps[i].action.kind}) takes {now:g} s under the cost model given, and took {then:g} "
                f"when the plan was made: give the model that it was made under, or plan again"
            )
    return given


def _convention(program: Any) -> Any:
    """How a lowered function is called: its plan from JSON is called like that."""
    from eggshard.frontends.jax import is_lowered

    if not is_lowered(program):
        return None
    from eggshard.frontends.calling_convention import CallingConvention

    return CallingConvention.of(program)


def device_program_to_json(program: steps.StepPlan) -> str:
    """A device program alone as JSON text, on one line."""
    return json.dumps({"eggshard device program": FORMAT, "program": _encode(program)})


def device_program_from_json(text: str) -> steps.StepPlan:
    """A device program from its JSON text; ProgramError if it is none, or of another format version."""
    try:
        data = json.loads(text)
        if data["eggshard device program"] != FORMAT:
            raise ProgramError(f"not a device program of format {FORMAT}")
        program = _decode(data["program"])
    except EggshardError:
        raise
    except Exception as error:
        raise ProgramError(f"damaged JSON of a device program: {error!r}") from None
    if not isinstance(program, steps.StepPlan):
        raise ProgramError("the JSON text holds no device program")
    return program
