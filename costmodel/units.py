"""What the prices of a cost model are: seconds, or some of what it counts."""

from __future__ import annotations

from typing import Any, NamedTuple

from eggshard.errors import CostModelError
from eggshard.tables import duration, size


class Unit(NamedTuple):
    """What prices are, so that plans print them as that. name: in the plural. each: the price of one, in a model's own
    numbers; those of a model that counts in nanoseconds what is no time are 1e-9."""

    name: str = "seconds"
    each: float = 1.0

    @property
    def header(self) -> str:
        """What a column of prices is called."""
        return "seconds" if self == SECONDS else "cost"

    def text(self, price: float) -> str:
        """A price with its unit: ``252 KiB``, ``3 messages``, ``1.5 ms``."""
        if self == SECONDS:
            return duration(price)
        count = price / self.each
        if self.name == "bytes":
            return size(round(count, 1))
        return f"{count:.4g} {self.name.removesuffix('s') if count == 1 else self.name}"


SECONDS = Unit()


def unit_of(model: Any) -> Unit:
    """The unit that a model states, ``unit = Unit("joules")``; by default seconds. CostModelError for anything else."""
    unit = getattr(model, "unit", SECONDS)
    if not isinstance(unit, Unit):
        raise CostModelError(
            f"the unit of {type(model).__name__} is {unit!r}; state it as eggshard.costmodel.Unit('joules')")
    return unit
