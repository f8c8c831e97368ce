"""Composite cost models: weighted sums of models, and different models for different kinds of steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from eggshard.costmodel.columns import StepColumns, seconds_many
from eggshard.costmodel.protocol import CostModel, StepInfo
from eggshard.costmodel.units import SECONDS, Unit, unit_of
from eggshard.errors import CostModelError
from eggshard.program.mesh import Mesh


class Combinable:
    """Gives a model operators: ``0.7 * time + 0.3 * energy``, ``time.with_kinds({"all-to-all": other})``.

    All models here have them. To a user's model give them by deriving from this class, or write
    ``WeightedSum(((0.7, time), (0.3, energy)))``; one of the two operands of ``+`` is enough.
    """

    def __mul__(self, factor: float) -> WeightedSum:
        if not isinstance(factor, (int, float)):
            return NotImplemented
        return WeightedSum(((float(factor), self),))  # type: ignore[arg-type]

    __rmul__ = __mul__

    def __add__(self, other: CostModel) -> WeightedSum:
        if not callable(getattr(other, "seconds", None)):
            return NotImplemented
        return WeightedSum((*_terms(self), *_terms(other)))

    def __radd__(self, other: CostModel) -> WeightedSum:
        if not callable(getattr(other, "seconds", None)):
            return NotImplemented
        return WeightedSum((*_terms(other), *_terms(self)))

    def with_kinds(self, models: Mapping[str, CostModel]) -> PerKind:
        """This model, but for steps of these kinds, or local ops of these names, others."""
        return PerKind(self, models)  # type: ignore[arg-type]


@dataclass(frozen=True)
class WeightedSum(Combinable):
    """The sum of models' prices, each times its weight, not negative.

    Of a collective's time that part can be hidden which all models with a weight say; it holds the links of all.
    """

    terms: tuple[tuple[float, CostModel], ...]

    def __post_init__(self) -> None:
        for weight, model in self.terms:
            if not (weight >= 0 and math.isfinite(weight)):
                raise CostModelError(f"weight {weight} of {type(model).__name__} is not finite and at least 0")
            if not callable(getattr(model, "seconds", None)):
                raise CostModelError(f"{model!r} has no method seconds(step), so it has no place in a weighted sum")

    def __mul__(self, factor: float) -> WeightedSum:
        if not isinstance(factor, (int, float)):
            return NotImplemented
        return WeightedSum(tuple((weight * factor, model) for weight, model in self.terms))

    __rmul__ = __mul__

    def seconds(self, step: StepInfo) -> float:
        return sum((weight * model.seconds(step) for weight, model in self.terms), 0.0)

    def seconds_many(self, steps: StepColumns) -> np.ndarray:
        return sum((weight * seconds_many(model, steps) for weight, model in self.terms), np.zeros(len(steps)))

    @property
    def unit(self) -> Unit:
        """That of all terms, whatever their weights; else the sum is a number without one."""
        return _unit([model for weight, model in self.terms if weight])

    @property
    def overlap(self) -> float:
        return min((getattr(model, "overlap", 0.0) for weight, model in self.terms if weight), default=0.0)

    def channels(self, axes: tuple[str, ...], mesh: Mesh) -> tuple[str, ...]:
        return _links([model for weight, model in self.terms if weight], axes, mesh)


@dataclass(frozen=True)
class PerKind(Combinable):
    """Another model for some steps. kinds: by the kind of a step, or the name of a local op, which goes first."""

    model: CostModel
    kinds: Mapping[str, CostModel] = field(hash=False)

    def _of(self, step: StepInfo) -> CostModel:
        return self.kinds.get(step.op) or self.kinds.get(step.kind) or self.model

    def seconds(self, step: StepInfo) -> float:
        return self._of(step).seconds(step)

    def seconds_many(self, steps: StepColumns) -> np.ndarray:
        models = [self._of(step) for step in steps.heads]
        distinct = {id(model): model for model in models}
        which = np.array([list(distinct).index(id(model)) for model in models])[steps.head]
        out = np.zeros(len(steps))
        for i, model in enumerate(distinct.values()):
            rows = np.flatnonzero(which == i)
            out[rows] = seconds_many(model, steps.taken(rows))
        return out

    @property
    def unit(self) -> Unit:
        """That of all models; else prices are numbers without one."""
        return _unit([self.model, *self.kinds.values()])

    @property
    def overlap(self) -> float:
        return float(getattr(self.model, "overlap", 0.0))

    def channels(self, axes: tuple[str, ...], mesh: Mesh) -> tuple[str, ...]:
        return _links([self.model], axes, mesh)


def _unit(models: Sequence[CostModel]) -> Unit:
    """The unit of all models; where they have several, their prices are numbers without one."""
    units = {unit_of(model) for model in models} or {SECONDS}
    return units.pop() if len(units) == 1 else Unit("units")


def _terms(model: object) -> tuple[tuple[float, CostModel], ...]:
    return model.terms if isinstance(model, WeightedSum) else ((1.0, model),)  # type: ignore[return-value]


def _links(models: list[CostModel], axes: tuple[str, ...], mesh: Mesh) -> tuple[str, ...]:
    """The links of all models that name any; one for all collectives where none does."""
    asked = [m.channels for m in models if hasattr(m, "channels")]
    return tuple(dict.fromkeys(link for channels in asked for link in channels(axes, mesh))) or ("network",)
