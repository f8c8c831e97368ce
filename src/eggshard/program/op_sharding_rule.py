"""Shardy's op sharding rules as values: factors, and the factors that make up each dimension.

Text, as Shardy prints it: ``#sdy.op_sharding_rule<([i, k], [k, j])->([i, j]) {i=8, j=16, k=8} reduction={k}>``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from eggshard.errors import ShardingError
from eggshard.program.cursor import Cursor

_TOKEN = re.compile(r"->|#sdy\.op_sharding_rule|[A-Za-z_]\w*|\d+|\S")
_SYMBOL = re.compile(r"z_([1-9]\d*)|([i-z])")
_SYMBOLS = r"(?:z_[1-9]\d*|[i-y]|z(?!_))+(?!\w)"

#: What sharding a factor takes: none, an all-reduce of the results, replication, or an exchange between neighbours.
PASS_THROUGH, REDUCTION, NEED_REPLICATION, PERMUTATION = "pass-through", "reduction", "need-replication", "permutation"


@dataclass(frozen=True, slots=True)
class RuleFactor:
    """An index of the op. blocked: shardings do not propagate along it."""

    size: int
    kind: str = PASS_THROUGH
    blocked: bool = False


#: The factors of each dimension of a tensor, major to minor.
TensorFactors = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class OpShardingRule:
    """factors: numbered in any order. custom: stated by the user, not derived from the op, and so never dropped.

    ShardingError for what Shardy's verifier refuses: a dimension without factors, a factor that is not there, used
    twice by one tensor or by none, one of size 1 beside others in a dimension, and a reduction factor in a result.
    """

    factors: tuple[RuleFactor, ...]
    operands: tuple[TensorFactors, ...]
    results: tuple[TensorFactors, ...]
    custom: bool = False

    def __post_init__(self) -> None:
        for side, tensors in (("operand", self.operands), ("result", self.results)):
            if not tensors:
                raise self._refused(f"there must be at least one {side}")
            for number, tensor in enumerate(tensors):
                self._check_tensor(f"{side} {number}", tensor)
        used = {factor for tensor in self.tensors for dim in tensor for factor in dim}
        for factor in range(len(self.factors)):
            if factor not in used:
                raise self._refused(f"no operand or result uses factor {factor_symbol(factor)}")
            if self.factors[factor].kind == REDUCTION and any(factor in dim for t in self.results for dim in t):
                raise self._refused(f"factor {factor_symbol(factor)} is reduced, so no result can have it")

    def _check_tensor(self, name: str, tensor: TensorFactors) -> None:
        seen: set[int] = set()
        for number, dim in enumerate(tensor):
            where = f"dimension {number} of {name}"
            if not dim:
                raise self._refused(f"{where} has no factor")
            for factor in dim:
                if not 0 <= factor < len(self.factors):
                    raise self._refused(f"{where} uses factor {factor_symbol(factor)}, which has no size")
                if factor in seen:
                    raise self._refused(f"{name} uses factor {factor_symbol(factor)} twice")
                if self.factors[factor].size == 1 and len(dim) > 1:
                    raise self._refused(f"{where} has a factor of size 1, {factor_symbol(factor)}, beside others")
                seen.add(factor)

    def _refused(self, why: str) -> ShardingError:
        return ShardingError(f"invalid sharding rule {self}: {why}")

    @classmethod
    def parse(cls, text: str) -> OpShardingRule:
        """The rule that Shardy's text spells. ShardingError for malformed text, naming what was expected where."""
        return _parse(text)

    @property
    def tensors(self) -> tuple[TensorFactors, ...]:
        """The operands, then the results."""
        return self.operands + self.results

    def of_kind(self, kind: str) -> tuple[int, ...]:
        """The factors of a kind, in order."""
        return tuple(i for i, factor in enumerate(self.factors) if factor.kind == kind)

    @cached_property
    def blocked(self) -> tuple[int, ...]:
        """The factors along which nothing propagates, in order."""
        return tuple(i for i, factor in enumerate(self.factors) if factor.blocked)

    @cached_property
    def batching(self) -> tuple[int, ...]:
        """The pass-through factors of all tensors that have dimensions, in order."""
        ranked = [tensor for tensor in self.tensors if tensor]
        return tuple(i for i in self.of_kind(PASS_THROUGH) if all(any(i in dim for dim in t) for t in ranked))

    def check_shapes(self, operands: Sequence[Sequence[int]], results: Sequence[Sequence[int]], where: str) -> None:
        """ShardingError, naming the op, unless there are as many tensors, of the same ranks."""
        for side, tensors, shapes in (("operand", self.operands, operands), ("result", self.results, results)):
            if len(tensors) != len(shapes):
                raise ShardingError(f"{where}: sharding rule {self} is for {len(tensors)} {side}s, not {len(shapes)}")
            for number, (tensor, shape) in enumerate(zip(tensors, shapes, strict=True)):
                if len(tensor) != len(shape):
                    raise ShardingError(
                        f"{where}: {side} {number} has shape {tuple(shape)}, but {len(tensor)} dimensions in sharding "
                        f"rule {self}")

    def __str__(self) -> str:
        sizes = ", ".join(f"{factor_symbol(i)}={factor.size}" for i, factor in enumerate(self.factors))
        lists = [
            (name, self.of_kind(kind))
            for name, kind in (
                ("reduction", REDUCTION), ("need_replication", NEED_REPLICATION), ("permutation", PERMUTATION))
        ]
        lists.append(("blocked_propagation", self.blocked))
        shown = "".join(f" {name}={{{', '.join(map(factor_symbol, found))}}}" for name, found in lists if found)
        return (
            f"#sdy.op_sharding_rule<({_tensors_text(self.operands)})->({_tensors_text(self.results)})"
            f"{f' {{{sizes}}}' if sizes else ''}{shown}{', custom' if self.custom else ''}>"
        )


def factor_symbol(factor: int) -> str:
    """``i`` to ``z``, then ``z_1``, ``z_2`` and so on."""
    return chr(ord("i") + factor) if factor < 18 else f"z_{factor - 17}"


def _tensors_text(tensors: Iterable[TensorFactors]) -> str:
    return ", ".join(f"[{', '.join(''.join(map(factor_symbol, dim)) for dim in tensor)}]" for tensor in tensors)


@lru_cache(maxsize=65536)
def _parse(text: str) -> OpShardingRule:
    return _Reader(text).rule()


class _Reader(Cursor):
    """A cursor over the text of a rule."""

    def fail(self, wanted: str) -> ShardingError:
        token = _TOKEN.match(self.text, self.at)
        place = f"at {token[0]!r}" if token else "at its end"
        return ShardingError(f"malformed sharding rule {self.text!r}: {wanted} expected {place}")

    def symbols(self) -> tuple[int, ...]:
        """One or more factors, written together."""
        found = _SYMBOL.findall(self.match(_SYMBOLS, "a factor from i to z, or z_1 and so on,"))
        return tuple(17 + int(number) if number else ord(letter) - ord("i") for number, letter in found)

    def symbol(self) -> int:
        start, found = self.at, self.symbols()
        if len(found) > 1:
            self.at = start
            raise self.fail("one factor")
        return found[0]

    def tensor(self) -> TensorFactors:
        return tuple(self.listed("[", "]", self.symbols))

    def tensors(self) -> tuple[TensorFactors, ...]:
        return tuple(self.listed("(", ")", self.tensor))

    def size(self, sizes: list[int]) -> None:
        wanted = factor_symbol(len(sizes))
        self.match(rf"{wanted}(?!\w)", f"the size of factor {wanted}, in order,")
        self.expect("=")
        sizes.append(int(self.match(r"\d+", "a size")))

    def factors(self, name: str, count: int) -> list[int]:
        """The factors of ``name={i, k}``, in ascending order; none where it is not written."""
        if not self.take(name):
            return []
        self.expect("=")
        found: list[int] = []

        def one() -> None:
            start, factor = self.at, self.symbol()
            if factor >= count or (found and factor <= found[-1]):
                self.at = start
                raise self.fail("a factor with a size, later than the one before," if found
                                else "a factor with a size")
            found.append(factor)

        self.listed("{", "}", one)
        return found

    def rule(self) -> OpShardingRule:
        self.expect("#sdy.op_sharding_rule")
        self.expect("<")
        operands = self.tensors()
        self.expect("->")
        results = self.tensors()
        sizes: list[int] = []
        if self.peek("{"):
            self.listed("{", "}", lambda: self.size(sizes))
        kinds: dict[int, str] = {}
        for name, kind in (
            ("reduction", REDUCTION), ("need_replication", NEED_REPLICATION), ("permutation", PERMUTATION)):
            for factor in self.factors(name, len(sizes)):
                if factor in kinds:
                    raise ShardingError(
                        f"invalid sharding rule {self.text!r}: factor {factor_symbol(factor)} is both {kinds[factor]} "
                        f"and {kind}")
                kinds[factor] = kind
        blocked = self.factors("blocked_propagation", len(sizes))
        custom = self.take(",")
        if custom:
            self.expect("custom")
        self.expect(">")
        self.end()
        factors = tuple(
            RuleFactor(size, kinds.get(i, PASS_THROUGH), i in blocked) for i, size in enumerate(sizes))
        return OpShardingRule(factors, operands, results, custom)
