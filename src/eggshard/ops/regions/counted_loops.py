"""Analysis of counted while loops: which carried value is the counter, its step, and the bound it is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.attributes import Literal
from eggshard.program.program import Op, Region
from eggshard.program.types import integer_limits, numpy_dtype

_TURNED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}
#: Which way a counter goes to where its comparison ends the loop.
_ENDS_GOING = {"LT": 1, "LE": 1, "GT": -1, "GE": -1}


class Counter(NamedTuple):
    """Carried value ``position`` grows by ``step`` in every iteration; the loop runs while it is ``direction`` a limit.

    direction: LT, LE, GT, GE or NE, and nothing else ends the loop. limit: a constant, or None for a carried value
    that the body does not change.
    """

    position: int
    step: int
    direction: str
    limit: int | None

    def fits(self, dtype: str, times: int) -> bool:
        """Whether a counter of this type goes round at most once in so many iterations, so that it is seen."""
        least, most = integer_limits(dtype)
        return (times - 1) * abs(self.step) <= most - least

    def trips(self, start: int) -> int | None:
        """How often the loop runs from this value; None where the limit is no constant, or is never met."""
        if self.limit is None:
            return None
        end, by = self.limit, self.step
        match self.direction:
            case "LT" if by > 0:
                return max(0, -(-(end - start) // by))
            case "LE" if by > 0:
                return max(0, (end - start) // by + 1)
            case "GT" if by < 0:
                return max(0, -(-(start - end) // -by))
            case "GE" if by < 0:
                return max(0, (start - end) // -by + 1)
            case "NE" if by and (end - start) % by == 0 and (end - start) // by >= 0:
                return (end - start) // by
        return None


def find_counter(condition: Region, body: Region) -> Counter | None:
    """The counter of a loop; None for a loop that any other comparison ends."""
    conditions, steps = _definitions(condition), _definitions(body)
    compare = conditions.get(condition.outputs[0])
    if compare is None or compare.name != "compare":
        return None
    direction = compare.attributes["comparison_direction"]
    counter, limit = compare.operands
    if not _steps(condition, body, steps, counter):
        counter, limit = limit, counter
        direction = _TURNED.get(direction, direction)
    step = _steps(condition, body, steps, counter)
    if not step:
        return None
    position = condition.inputs.index(counter)
    if _ENDS_GOING.get(direction, step) * step < 0:
        return None  # what ends the loop is that the counter overflows
    if limit in condition.inputs:
        carried = condition.inputs.index(limit)
        return Counter(position, step, direction, None) if body.outputs[carried] == body.inputs[carried] else None
    end = integer(conditions.get(limit))
    return None if end is None else Counter(position, step, direction, end)


def grows_by(condition: Region, body: Region, position: int) -> int | None:
    """The constant by which a carried value grows in every iteration, 0 where it stays; None where there is none."""
    if body.outputs[position] == body.inputs[position]:
        return 0
    return _steps(condition, body, _definitions(body), condition.inputs[position])


def condition_of_rows(condition: Region, counter: Counter, times: int) -> Region:
    """The condition under which ``times`` more iterations run.

    The original condition must hold for the counter of the last iteration of the row, and the counter must not overflow
    before it. For LT, LE, GT and GE alone: there it then holds for the whole row. ValueError for NE, and for rows that
    are too long for the counter's type (`Counter.fits`).
    """
    if counter.direction not in _TURNED:
        raise ValueError(f"a loop that runs while its counter is {counter.direction} its limit runs in no rows")
    types = [condition.types[v] for v in condition.inputs]
    number = types[counter.position]
    if not counter.fits(number.dtype, times):
        raise ValueError(f"a counter of type {number.dtype} does not count {times} steps of {counter.step}")
    kind = "UNSIGNED" if number.dtype.startswith("ui") else "SIGNED"
    ahead = RegionBuilder(types)

    def constant(value: int) -> int:
        wrapped = np.array(value % 2**64, np.uint64).astype(numpy_dtype(number.dtype))
        return ahead.constant(wrapped)

    def compare(x: int, direction: str, y: int) -> int:
        return ahead.op("compare", x, y, comparison_direction=direction, compare_type=kind)

    last = ahead.op("add", counter.position, constant((times - 1) * counter.step))
    values = list(ahead.inputs)
    values[counter.position] = last
    (holds,) = _append(ahead, condition, values)
    grows = compare(last, "GE" if counter.step > 0 else "LE", counter.position)
    return ahead.build([ahead.op("and", holds, grows)])


def _append(builder: RegionBuilder, region: Region, inputs: Sequence[int]) -> list[int]:
    """Append a region's ops on these values; returns its outputs."""
    values = dict(zip(region.inputs, inputs, strict=True))
    for op in region.ops:
        builder.copy(op, region.types, values)
    return [values[v] for v in region.outputs]


def _definitions(region: Region) -> dict[int, Op]:
    return {v: op for op in region.ops for v in op.results}


def _steps(condition: Region, body: Region, steps: dict[int, Op], value: int) -> int | None:
    """Return the constant by which a carried value grows in every iteration, or None if there is none."""
    if value not in condition.inputs:
        return None
    position = condition.inputs.index(value)
    here, step = body.inputs[position], steps.get(body.outputs[position])
    if step is None or step.name not in ("add", "subtract") or here not in step.operands:
        return None
    if step.name == "subtract" and step.operands[0] != here:
        return None
    by = integer(steps.get(step.operands[1] if step.operands[0] == here else step.operands[0]))
    return -by if by is not None and step.name == "subtract" else by


def integer(op: Op | None) -> int | None:
    """The value of a constant op that makes one integer."""
    return scalar(op.attributes["value"]) if op is not None and op.name == "constant" else None


def scalar(literal: Literal | None) -> int | None:
    """The one integer of a literal."""
    if literal is None or literal.array.size != 1 or literal.array.dtype.kind not in "iu":
        return None
    return int(literal.array.reshape(-1)[0])
