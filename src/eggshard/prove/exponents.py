"""Exponentials that turn sums into products, for programs that differ by that identity: softmaxes, online or shifted.

No function does so from a field to itself. But modulo p * q, where q divides p - 1, an element is a residue modulo
either prime, and g^(x mod q), with g of order q modulo p, turns sums modulo q into products modulo p (Mirage, Wu et
al., keeps the two residues apart). Modulo q an exponential is 1, which is such a function, too, and forgets its
argument. So an exponential of what depends on another exponential says little, and such programs are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eggshard.program.program import Op, Region
from eggshard.prove.field import Field
from eggshard.prove.residues import Residues, is_complex

#: The largest p = 2 * q + 1 with p * q below 2^26, both prime and 3 modulo 4.
PAIRS = ((11423, 5711), (11279, 5639), (10799, 5399), (10607, 5303), (10559, 5279), (10463, 5231))
#: Ops that are made of exponentials here.
_EXPONENTIALS = frozenset(("exponential", "exponential_minus_one", "logistic"))


class ExponentField(Field):
    """Residues modulo p * q, with exponentials that turn sums into products."""

    def __init__(self, pair: tuple[int, int], seed: int, loose: bool = False):
        p, q = pair
        super().__init__(Residues(p * q, (p, q)), seed, loose)
        # By the Chinese remainder theorem; 4 is a square, and so of order q modulo p = 2 * q + 1.
        once = p * pow(p, -1, q)
        self._exponents = q
        self._powers = np.array([(pow(4, k, p) * q * pow(q, -1, p) + once) % (p * q) for k in range(q)], np.float64)
        one = np.ones(())
        r = self.residues
        self.meanings |= {
            "exponential": self._pointwise(self._exponential),
            "exponential_minus_one": self._pointwise(lambda x: r.subtract(self._exponential(x), one)),
            "logistic": self._pointwise(lambda x: r.inverse(r.add(one, self._exponential(r.negate(x))))),
        }

    def _exponential(self, x: np.ndarray) -> np.ndarray:
        if is_complex(x):
            return self.hashes.complex_function("exponential", x)
        finite = np.isfinite(x)
        out = self._powers[np.where(finite, x, 0.0).astype(np.int64) % self._exponents]
        return np.where(finite, out, np.where(x < 0, 0.0, x))


def holds_exponentials(region: Region) -> bool:
    """Whether a region has exponentials, none of which depends on another."""
    found: list[bool] = []
    _follow(region, [False] * len(region.inputs), found)
    return bool(found) and not any(found)


def _follow(region: Region, inputs: Sequence[bool], found: list[bool]) -> list[bool]:
    """Which outputs depend on exponentials, if these inputs do; for each exponential whether it does."""
    depends = dict(zip(region.inputs, inputs, strict=True))
    for op in region.ops:
        operands = [depends[v] for v in op.operands]
        results = _of_op(op, operands, found)
        depends.update(zip(op.results, results, strict=True))
    return [depends[v] for v in region.outputs]


def _of_op(op: Op, operands: list[bool], found: list[bool]) -> list[bool]:
    if op.name == "while":
        carried = operands
        while True:
            _follow(op.regions[0], carried, found)
            after = [a or b for a, b in zip(carried, _follow(op.regions[1], carried, found), strict=True)]
            if after == carried:
                return after
            carried = after
    if op.name in ("if", "case"):
        ways = [_follow(region, operands[1:], found) for region in op.regions]
        return [any(same) or operands[0] for same in zip(*ways, strict=True)]
    if op.name == "manual_computation":
        return _follow(op.regions[0], operands, found)
    own: list[bool] = []
    if op.name in _EXPONENTIALS:
        own.append(any(operands))
    for region in op.regions:
        _follow(region, [any(operands)] * len(region.inputs), own)
    found += own
    return [bool(own) or any(operands)] * len(op.results)
