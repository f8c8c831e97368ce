"""Values as JSON: dataclasses, named tuples, meshes and arrays by tag. No pickle, nothing executed."""

from __future__ import annotations

import base64
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import eggshard.costmodel as costmodel
from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.protocol import StepInfo
from eggshard.costmodel.units import SECONDS, Unit, unit_of
from eggshard.errors import CostModelError, ProgramError
from eggshard.placement import slabs
from eggshard.plan import proof
from eggshard.plan.record import PlanRecord, Search
from eggshard.program import attributes, mesh, placement, program, sharding, types
from eggshard.program.axes import AxisRef
from eggshard.program.types import mlir_dtype, numpy_dtype
from eggshard.steps import exchange, held, piece_steps, steps
from eggshard.steps.authored_steps import DeviceNumber, GroupCollective, OnFirstDevice
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.handlers import Handlers
from eggshard.steps.piece_steps import Exchange
from eggshard.steps.window_steps import BoxSelect, Crop, EdgeFill, HaloExchange, JointExchange

_CLASSES: dict[str, type] = {
    c.__name__: c
    for c in (
        costmodel.AlphaBeta, costmodel.Messages, costmodel.WireBytes, costmodel.WeightedSum, costmodel.PerKind,
        costmodel.Machine, costmodel.Level, costmodel.Protocol, costmodel.Compute, costmodel.Ring, costmodel.Torus,
        costmodel.Switch, costmodel.FullMesh, costmodel.FatTree, StepInfo, placement.Dim, placement.Placement,
        sharding.DimSharding, sharding.Sharding, AxisRef, types.TensorType, program.Op, program.Region,
        program.Program, Search, proof.Proof, proof.Difference,
        steps.Step, steps.StepPlan, piece_steps.Round, exchange.Blocks, held.Origin,
        slabs.Slab,
    )
}
#: The fields of classes, by those that were written.
_NAMES: dict[type, list[str]] = {}
_actions: Handlers[dict[str, Any]] = Handlers("writing as JSON")


@_actions.handles(
    steps.Local, steps.Resize, steps.Slice, steps.AllGather, steps.AllToAll, steps.CollectivePermute, steps.AllReduce,
    steps.ReduceScatter, steps.KeepFirst, steps.Mask, Exchange, exchange.BoxExchange, Loop, Branch, DeviceNumber,
    GroupCollective, OnFirstDevice, Crop, HaloExchange, JointExchange, BoxSelect, EdgeFill,
)
def _tagged(value: Any) -> dict[str, Any]:
    """An object of a known class, its fields by name."""
    kind = type(value)
    if kind not in _NAMES:
        _NAMES[kind] = [f.name for f in fields(value)] if is_dataclass(value) else list(value._fields)
    made = {"@": kind.__name__}
    for name in _NAMES[kind]:
        field = getattr(value, name)
        made[name] = field if type(field) in _PLAIN else encode(field)
    return made


_CLASSES.update((kind.__name__, kind) for kind in _actions.kinds)


@dataclass(frozen=True)
class Recorded:
    """Stands in for a user's cost model, which JSON cannot carry: it knows the prices of the plan's own steps.

    overlap, links: what the model says of computing while communicating (`CostModel`), for the axes of these steps.
    stated: its unit.
    """

    name: str
    prices: tuple[tuple[StepInfo, float], ...]
    overlap: float = 0.0
    links: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    stated: tuple[str, float] = SECONDS

    @property
    def unit(self) -> Unit:
        """What the prices are."""
        return Unit(*self.stated)

    @classmethod
    def of(cls, plan: PlanRecord) -> Recorded:
        """The record of a plan's own model."""
        pricer = Pricer(plan.cost_model, plan.mesh)
        pricer.program(plan.device_program)
        over = dict.fromkeys([step.axes or tuple(plan.mesh.axes) for step in pricer.known if step.communicates])
        links = tuple((axes, pricer.channels(axes)) for axes in [*over, tuple(plan.mesh.axes)])
        return cls(type(plan.cost_model).__name__, tuple(pricer.known.items()), pricer.overlap, links,
                   unit_of(plan.cost_model))

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


def is_known(value: Any) -> bool:
    return _CLASSES.get(type(value).__name__) is type(value)


#: What JSON has itself.
_PLAIN = frozenset({type(None), bool, int, str})


def encode(value: Any) -> Any:
    if type(value) in (tuple, list):
        return [v if type(v) in _PLAIN else encode(v) for v in value]
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
        return {"@": "Attributes", "items": {k: encode(v) for k, v in value.items()}}
    if isinstance(value, steps.StepPlan) and value.held:
        return {**encode(replace(value, held=())), "held": _held(value.held)}
    if isinstance(value, steps.Action):
        return _actions(value)
    if is_known(value):
        return _tagged(value)
    if isinstance(value, (tuple, list)):
        return [encode(v) for v in value]
    if isinstance(value, dict):
        return {"@": "dict", "items": [[encode(k), encode(v)] for k, v in value.items()]}
    if isinstance(value, np.generic):
        return encode(value.item())
    raise ProgramError(f"cannot write {type(value).__name__} as JSON")


def _held(values: tuple[held.Held | None, ...]) -> Any:
    """What tensors a program's values are: the distinct types and placements, and three numbers for each value."""
    kinds: dict[tuple[object, ...], int] = {}
    rows = [h and [h.cls, h.value, kinds.setdefault((h.type, h.placement), len(kinds))] for h in values]
    return {"@": "held", "kinds": [encode(kind) for kind in kinds], "rows": rows}


def decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple([v if type(v) in _PLAIN else decode(v) for v in value])
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
        return attributes.Attributes({k: decode(v) for k, v in value["items"].items()})
    if tag == "held":
        kinds = [decode(kind) for kind in value["kinds"]]
        return tuple(row and held.Held(row[0], row[1], *kinds[row[2]]) for row in value["rows"])
    if tag == "dict":
        return {decode(k): decode(v) for k, v in value["items"]}
    if tag not in _CLASSES:
        raise ProgramError(f"plan JSON holds an unknown kind {tag!r}")
    return _CLASSES[tag](**{k: v if type(v) in _PLAIN else decode(v) for k, v in value.items() if k != "@"})
