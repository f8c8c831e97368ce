"""Control flow, whose regions capture nothing, and the optimization barrier.

As an op, control flow is replicated; what is inside is planned region by region.
"""

from __future__ import annotations

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops.arithmetic import current
from eggshard.ops.base import Arrays, FactorRule, OpDef, Printed, Printer, Regions, Results, Types, Values, register
from eggshard.ops.evaluate import evaluate_region
from eggshard.ops.factor_table import labelled_rule
from eggshard.ops.signatures import output_types, require_regions, require_signature
from eggshard.program.attributes import Attributes
from eggshard.program.monoids import of_dtype
from eggshard.program.types import TensorType

#: Ops that run their regions for some of their operands; devices agree on which, and how often.
CONTROL_FLOW = ("while", "case", "if")

_PREDICATE = TensorType((), "i1")


class _While(OpDef):
    """Carried values, mapped by the second region as long as the first says so of them.

    Values that the regions read from outside are carried unchanged. ``trip_count`` is the number of iterations where
    it is known, None else.
    """

    name = "while"

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_regions(regions, 2)
        condition, body = regions
        require_signature(condition, tuple(operands), (_PREDICATE,), "the condition")
        require_signature(body, tuple(operands), tuple(operands), "the body")
        return tuple(operands)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        condition, body = regions
        carried, turns = tuple(arrays), 0
        while current().truths(evaluate_region(condition, carried)[0]):
            carried, turns = evaluate_region(body, carried), turns + 1
            current().looped(turns, attrs.get("trip_count") is not None)
        return carried


class _Branches(OpDef):
    """Base of ops that run one of their regions, chosen by operand 0, on the other operands."""

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        if not operands or operands[0] != self.selector:
            raise ProgramError(f"operand 0 selects the branch and is {self.selector}")
        if not regions:
            raise ProgramError("takes at least one branch")
        results = output_types(regions[0])
        for i, region in enumerate(regions):
            require_signature(region, tuple(operands[1:]), results, f"branch {i}")
        return results

    @property
    def selector(self) -> TensorType:
        """The type of operand 0."""
        raise NotImplementedError(self.name)

    def branch(self, selector: np.ndarray, count: int) -> int:
        """The number of the region that runs."""
        raise NotImplementedError(self.name)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        return evaluate_region(regions[self.branch(arrays[0], len(regions))], arrays[1:])

    def emit(self, attrs: Attributes, operands: Values, results: Types, regions: Regions, printer: Printer) -> Printed:
        """StableHLO's branches take no arguments: they use the operands by name."""
        given = [name for name, _ in operands[1:]]
        texts = [printer.region(region, given) for region in regions]
        return printer.operation(self.spelling, [], operands[:1], results, texts)


class _Case(_Branches):
    """Branch number operand 0; the last one for a number that is out of range."""

    name = "case"
    selector = TensorType((), "i32")

    def branch(self, selector: np.ndarray, count: int) -> int:
        return int(selector) if 0 <= selector < count else count - 1


class _If(_Branches):
    """The first branch where operand 0 holds, else the second."""

    name = "if"
    selector = _PREDICATE

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_regions(regions, 2)
        return super().infer(attrs, operands, regions)

    def branch(self, selector: np.ndarray, count: int) -> int:
        return 0 if current().truths(selector) else 1


class _OptimizationBarrier(OpDef):
    """Return the operands unchanged; no op is moved or merged across the barrier."""

    name = "optimization_barrier"
    computes = False

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        return tuple(operands)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        labels = [[(i, d) for d in range(t.rank)] for i, t in enumerate(operands)]
        linear = tuple((monoid, (0,)) for monoid in of_dtype(operands[0].dtype)) if len(operands) == 1 else ()
        return labelled_rule(operands, results, (*labels, *labels), linear=linear)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        return tuple(arrays)


for _definition in (_While(), _Case(), _If(), _OptimizationBarrier()):
    register(_definition)
