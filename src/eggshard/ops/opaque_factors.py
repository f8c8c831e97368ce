"""The factors of what is opaque to programs and known to Shardy: custom calls of some targets, and a few ops."""

from __future__ import annotations

from collections.abc import Callable

from eggshard.ops.base import PASS, REPLICATE, Factor, FactorRule, OpDef, Types
from eggshard.ops.elementwise.pointwise import pointwise_rule
from eggshard.ops.factor_table import FactorTable
from eggshard.program import codec
from eggshard.program.attributes import Attributes

Target = Callable[[Types, Types], FactorRule | None]

#: Marks of where a value is placed, which every device does to what it holds. They claim an effect only so that none is
#: removed.
PLACEMENTS = ("annotate_device_placement", "MoveToDevice", "MoveToHost")
#: Targets all of whose tensors correspond index by index: markers, and ops between neighbours, which move what they
#: have along the dimension that they are about.
_POINTWISE = (
    *PLACEMENTS, "Cholesky", "CompactWyHelper", "InspectSharding", "InvertDiagBlocksLowerTriangular",
    "InvertDiagBlocksUpperTriangular", "LayoutConstraint", "mhlo.erf", "X64Combine", "X64SplitHigh", "X64SplitLow",
    "xla.megascale.provide_metadata", "_SPMDInternalOp_MultiPad", "_SPMDInternalOp_MultiRotate",
    "_SPMDInternalOp_MultiSlice", "_SPMDInternalOp_RotateRight", "_SPMDInternalOp_Wrap",
)


def known_factors(target: str, operands: Types, results: Types) -> FactorRule | None:
    """None for targets that are not known, and for calls that do not look as theirs do."""
    found = _TARGETS.get(target)
    return found(operands, results) if found else None


def _pointwise(operands: Types, results: Types) -> FactorRule | None:
    """A factor per dimension of the first result; tensors of fewer dimensions have the first ones."""
    rows = [[tuple((d,) for d in range(t.rank)) for t in types] for types in (operands, results)]
    if not results or any(t.rank > results[0].rank for t in (*operands, *results)):
        return None
    return FactorRule(tuple(Factor(n) for n in results[0].shape), tuple(rows[0]), tuple(rows[1]))


def _matrices(spelled: str, kind: str) -> Target:
    """Ops on the last dimensions of batches, spelled ``ij->ij,j``; ``kind`` is that of the dimensions spelled."""
    sides = [side.split(",") for side in spelled.split("->")]
    names = [*sides[0], *sides[1]]

    def factors(operands: Types, results: Types) -> FactorRule | None:
        tensors, table = (*operands, *results), FactorTable()
        batch = operands[0].rank - len(names[0]) if operands else -1
        counts = len(operands), len(results)
        if batch < 0 or counts != (len(sides[0]), len(sides[1])) or any(
            t.rank != batch + len(letters) for t, letters in zip(tensors, names, strict=True)
        ):
            return None
        passing = tuple(table.new(n) for n in operands[0].shape[:batch])
        sizes = {name: n for t, letters in zip(tensors, names, strict=True)
                 for name, n in zip(letters, t.shape[batch:], strict=True)}
        found = {name: table.new(sizes[name], kind) for name in sorted(sizes)}
        rows = [(*passing, *(found[name] for name in letters)) for letters in names]
        return table.rule(rows[: counts[0]], rows[counts[0] :])

    return factors


def _top_k(operands: Types, results: Types) -> FactorRule | None:
    """The largest elements along a dimension, and where they are."""
    if not operands or len({t.rank for t in (*operands, *results)}) != 1 or not results:
        return None
    sizes = zip(operands[0].shape, results[0].shape, strict=True)
    factors = tuple(Factor(n, PASS if n == found else REPLICATE) for n, found in sizes)
    row = tuple((d,) for d in range(len(factors)))
    return FactorRule(factors, (row,) * len(operands), (row,) * len(results))


def _approximate_top_k(operands: Types, results: Types) -> FactorRule | None:
    """The largest of values and their places, sought in every shard of the dimension; what is found stays whole."""
    ranks = [t.rank for t in (*operands, *results)]
    if len(operands) != 4 or len(results) != 2 or ranks != [ranks[0], ranks[0], 0, 0, ranks[0], ranks[0]]:
        return None
    table = FactorTable()
    row, out = [], []
    for n, found in zip(operands[0].shape, results[0].shape, strict=True):
        row.append(table.new(n))
        out.append(row[-1] if n == found else table.new(found, REPLICATE))
    return table.rule((tuple(row), tuple(row), (), ()), (tuple(out), tuple(out)))


_TARGETS: dict[str, Target] = {
    **dict.fromkeys(_POINTWISE, _pointwise),
    "Eigh": _matrices("ij->ij,j", PASS),
    "Qr": _matrices("ij->ij,k", REPLICATE),
    "QrDecompositionBlock": _matrices("ij->ij,k", REPLICATE),
    "ProductOfElementaryHouseholderReflectors": _matrices("ij,k->ij", REPLICATE),
    "mhlo.topk": _top_k,
    "ApproxTopK": _approximate_top_k,
    "PartialReduce": _approximate_top_k,
}


class _Whole(OpDef):
    """A collective of whole tensors."""

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        return pointwise_rule(operands, results[0].shape)


class _BatchNormInference(OpDef):
    """Scale, offset, mean and variance have the feature dimension alone."""

    attributes = {"feature_index": codec.Integer()}

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        whole = pointwise_rule(operands[:1], results[0].shape)
        feature = ((attrs["feature_index"],),)
        return FactorRule(whole.factors, (*whole.operands, *(feature for _ in operands[1:])), whole.results)


#: Ops that have rules, though to programs they are opaque.
UNREGISTERED: dict[str, OpDef] = {
    "batch_norm_inference": _BatchNormInference(), "collective_broadcast": _Whole(), "cross-replica-sum": _Whole(),
}
