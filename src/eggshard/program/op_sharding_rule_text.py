"""Reading Shardy's text of op sharding rules; what is printed stands with `OpShardingRule`."""

from __future__ import annotations

import re
from collections.abc import Callable

from eggshard.errors import ShardingError
from eggshard.program.op_sharding_rule import (
    NEED_REPLICATION,
    PASS_THROUGH,
    PERMUTATION,
    REDUCTION,
    OpShardingRule,
    RuleFactor,
    TensorFactors,
    factor_symbol,
)

_TOKEN = re.compile(r"\s*(->|#sdy\.op_sharding_rule|[A-Za-z_][\w]*|\d+|\S)")
_SYMBOL = re.compile(r"z_([1-9]\d*)|([i-z])")


def read_rule(text: str) -> OpShardingRule:
    """The rule of ``#sdy.op_sharding_rule<([i, k], [k, j])->([i, j]) {i=8, j=16, k=8} reduction={k}, custom>``.

    ShardingError for other text, and for a rule that no op can have.
    """
    return _Reader(text).rule()


class _Reader:
    """A cursor over the tokens of a rule."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.at = text, _TOKEN.findall(text), 0

    @property
    def token(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def refused(self, wanted: str) -> ShardingError:
        place = f"at {self.token!r}" if self.token else "at its end"
        return ShardingError(f"malformed sharding rule {self.text!r}: {wanted} expected {place}")

    def take(self, token: str) -> bool:
        found = self.token == token
        self.at += found
        return found

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise self.refused(repr(token))

    def listed(self, opening: str, closing: str, item: Callable[[], None]) -> None:
        self.expect(opening)
        if self.take(closing):
            return
        item()
        while self.take(","):
            item()
        self.expect(closing)

    def symbols(self) -> tuple[int, ...]:
        """One or more factors, written together."""
        token, at = self.token, 0
        out: list[int] = []
        while at < len(token) or not out:
            match = _SYMBOL.match(token, at)
            if match is None or (match[2] == "z" and token.startswith("_", at + 1)):
                raise self.refused("a factor from i to z, or z_1 and so on,")
            out.append(17 + int(match[1]) if match[1] else ord(match[2]) - ord("i"))
            at = match.end()
        self.at += 1
        return tuple(out)

    def symbol(self) -> int:
        found = self.symbols()
        if len(found) > 1:
            self.at -= 1
            raise self.refused("one factor")
        return found[0]

    def tensors(self) -> tuple[TensorFactors, ...]:
        out: list[TensorFactors] = []

        def tensor() -> None:
            dims: list[tuple[int, ...]] = []
            self.listed("[", "]", lambda: dims.append(self.symbols()))
            out.append(tuple(dims))

        self.listed("(", ")", tensor)
        return tuple(out)

    def size(self, sizes: list[int]) -> None:
        wanted = factor_symbol(len(sizes))
        if self.token != wanted:
            raise self.refused(f"the size of factor {wanted}, in order,")
        self.at += 1
        self.expect("=")
        if not self.token.isdigit():
            raise self.refused("a size")
        sizes.append(int(self.token))
        self.at += 1

    def factors(self, name: str, count: int) -> list[int]:
        """The factors of ``name={i, k}``, in ascending order; none where it is not written."""
        if not self.take(name):
            return []
        self.expect("=")
        found: list[int] = []

        def one() -> None:
            factor = self.symbol()
            if factor >= count or (found and factor <= found[-1]):
                self.at -= 1
                raise self.refused("a factor with a size, later than the one before," if found
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
        if self.token == "{":
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
        if self.token:
            raise self.refused("nothing more")
        factors = tuple(
            RuleFactor(size, kinds.get(i, PASS_THROUGH), i in blocked) for i, size in enumerate(sizes))
        return OpShardingRule(factors, operands, results, custom)
