"""The laws of sharding rules: op on parts, recombined, is the op on the whole.

Everything here goes through factors alone: a part of a tensor along a factor is cut by viewing each of its dimensions
as the product of its factors, so factors in the middle of a dimension are checked too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tests.ops.oracles import assert_close
from tests.ops.samples import Sample, types_of

from eggshard.ops import registry
from eggshard.ops.base import PASS, REDUCE, FactorRule
from eggshard.ops.shard_program import PLACE, Shard, ShardProgram
from eggshard.program import monoids
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.program import Region
from eggshard.program.types import TensorType, is_float, mlir_dtype, numpy_dtype

Row = tuple[tuple[int, ...], ...]


def _view(array: np.ndarray, row: Row, sizes: dict[int, int]) -> np.ndarray:
    """One array dimension per factor (or factorless dimension)."""
    return array.reshape([sizes.get(f, 1) for dim in row for f in (dim or (-1,))])


def _part(array: np.ndarray, row: Row, rule: FactorRule, factor: int, start: int, stop: int) -> np.ndarray:
    """What of the array has factor index in [start, stop)."""
    where = [f for dim in row for f in (dim or (-1,))]
    if factor not in where:
        return array
    assert where.count(factor) == 1, "a factor occurs twice in a tensor"
    sizes = {i: f.size for i, f in enumerate(rule.factors)}
    index = [slice(None)] * len(where)
    index[where.index(factor)] = slice(start, stop)
    cut = _view(array, row, sizes)[tuple(index)]
    sizes[factor] = stop - start
    return cut.reshape(_shape(row, sizes))


def _shape(row: Row, sizes: dict[int, int]) -> tuple[int, ...]:
    return tuple(int(np.prod([sizes[f] for f in dim], dtype=int)) if dim else 1 for dim in row)


def _evaluate(name: str, sample: Sample) -> tuple[list[np.ndarray], tuple[TensorType, ...]]:
    attrs, arrays, regions = sample
    definition = registry.get(name)
    results = definition.infer(attrs, types_of(arrays), regions)
    return list(definition.evaluate(attrs, arrays, regions)), results


class _Device(ShardProgram):
    """Evaluates what is written for one device, whose shards all begin at one place of the factor that is cut."""

    def __init__(self, sample: Sample, local: Sequence[np.ndarray], results: Sequence[TensorType],
                 local_results: Sequence[TensorType], start: int):
        self._arrays, self._start = list(local), start
        tensors = zip((*types_of(sample[1]), *results), (*types_of(local), *local_results), strict=True)
        shards = tuple(
            Shard(i, t, part, frozenset(d for d, n in enumerate(t.shape) if part.shape[d] != n))
            for i, (t, part) in enumerate(tensors)
        )
        self.operands, self.results = shards[: len(local)], shards[len(local) :]
        self.values = tuple(range(len(local)))

    def array(self, value: int) -> np.ndarray:
        return self._arrays[value]

    def emit(
        self, name: str, operands: Sequence[int], attributes: Attributes, regions: tuple[Region, ...] = ()
    ) -> tuple[int, ...]:
        arrays = [self._arrays[v] for v in operands]
        expected = registry.get(name).infer(attributes, types_of(arrays), regions)
        made = registry.get(name).evaluate(attributes, arrays, regions)
        assert types_of(made) == expected, name
        self._arrays += made
        return tuple(range(len(self._arrays) - len(made), len(self._arrays)))

    def type_of(self, value: int) -> TensorType:
        return types_of([self._arrays[value]])[0]

    def start(self, shard: Shard, dim: int) -> int:
        start = self._start if shard.cut(dim) else 0
        return self.emit("constant", (), Attributes(value=Literal(np.array(start).astype(numpy_dtype(PLACE)))))[0]


def check_rule(name: str, sample: Sample) -> FactorRule:
    """The rule covers every dimension of every operand and result with factors of the right sizes."""
    attrs, arrays, regions = sample
    definition = registry.get(name)
    operands = types_of(arrays)
    results = definition.infer(attrs, operands, regions)
    rule = definition.factors(attrs, operands, results)
    assert len(rule.operands) == len(operands) and len(rule.results) == len(results), name
    sizes = {i: f.size for i, f in enumerate(rule.factors)}
    for type_, row in zip((*operands, *results), (*rule.operands, *rule.results), strict=True):
        assert len(row) == type_.rank, (name, type_, row)
        for n, dim in zip(type_.shape, row, strict=True):
            assert n == int(np.prod([sizes[f] for f in dim], dtype=int)), (name, attrs, type_, row)
    for factor in rule.factors:
        assert (factor.monoid != "") == (factor.kind == REDUCE), (name, factor)
        assert factor.kind == REDUCE or not factor.accumulators, (name, factor)
    for row in (*rule.operands, *rule.results):
        assert all(len(dim) == 1 for dim in row if any(rule.factors[f].positional for f in dim)), (name, row)
    for monoid, which in rule.linear:
        assert monoid in monoids.MONOIDS and which and set(which) <= set(range(len(operands))), (name, rule.linear)
    return rule


def check_factors(name: str, sample: Sample) -> int:
    """Every pass and reduce factor, cut in two unequal parts where it can be; returns how many were checked."""
    attrs, arrays, regions = sample
    definition, operands = registry.get(name), types_of(arrays)
    rule = check_rule(name, sample)
    whole, results = _evaluate(name, sample)
    checked = 0
    for f, factor in enumerate(rule.factors):
        if factor.kind not in (PASS, REDUCE) or factor.size < 2:
            continue
        checked += 1
        cut = (factor.size + 1) // 2
        parts = []
        for start, stop in ((0, cut), (cut, factor.size)):
            local = [_part(a, row, rule, f, start, stop) for a, row in zip(arrays, rule.operands, strict=True)]
            sizes = {i: g.size for i, g in enumerate(rule.factors)} | {f: stop - start}
            expected = tuple(
                t.with_shape(_shape(row, sizes)) if any(f in dim for dim in row) else t
                for t, row in zip(results, rule.results, strict=True)
            )
            if factor.positional:
                program = _Device(sample, local, results, expected, start)
                values = definition.on_shards(attrs, program, regions)
                parts.append(tuple(program.array(v) for v in values))
                assert types_of(parts[-1]) == expected, (name, attrs, expected)
                continue
            if start:
                for i in factor.accumulators:
                    local[i] = np.full_like(local[i], monoids.identity(factor.monoid, mlir_dtype(local[i].dtype)))
            local_attrs = definition.localize(attrs, operands, results, types_of(local), expected)
            inferred = definition.infer(local_attrs, types_of(local), regions)
            assert inferred == expected, (name, attrs, local_attrs, inferred, expected)
            parts.append(definition.evaluate(local_attrs, local, regions))
        for i, row in enumerate(rule.results):
            first, second = parts[0][i], parts[1][i]
            where = [g for dim in row for g in (dim or (-1,))]
            label = (name, attrs, operands, f"factor {f}")
            if f in where:
                views = []
                for part, size in ((first, cut), (second, factor.size - cut)):
                    sizes = {j: g.size for j, g in enumerate(rule.factors)} | {f: size}
                    views.append(_view(part, row, sizes))
                joined = np.concatenate(views, axis=where.index(f)).reshape(whole[i].shape)
                assert_close(joined, whole[i], label)
            elif factor.kind == REDUCE:
                with np.errstate(all="ignore"):
                    combined = monoids.monoid(factor.monoid).ufunc(first, second)
                assert_close(np.asarray(combined).astype(whole[i].dtype), whole[i], label)
            else:
                assert_close(first, second, label)
                assert_close(first, whole[i], label)
    return checked


def _partial_sums(rng: np.random.Generator, like: np.ndarray) -> np.ndarray:
    """Values on which every monoid is exact: small whole floats, integers of the whole range."""
    dtype = mlir_dtype(like.dtype)
    if dtype == "i1":
        return rng.random(like.shape) < 0.5
    if is_float(dtype):
        real = rng.integers(-4, 5, like.shape)
        return np.asarray(real + 1j * real[::-1] if dtype.startswith("complex") else real).astype(like.dtype)
    with np.errstate(all="ignore"):
        return rng.integers(-(2**62), 2**62, like.shape).astype(np.int64).astype(like.dtype)


def _finite(array: np.ndarray) -> np.ndarray:
    """Without zeros and non-finite floats: linearity is a law of real numbers, and 1/0 - 1/0 is none."""
    if not is_float(mlir_dtype(array.dtype)):
        return array
    wide = array.astype(np.complex128)
    return np.where(np.isfinite(wide) & (wide != 0), array, 2).astype(array.dtype)


def _combine(monoid: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    ufunc = monoids.monoid(monoid).ufunc
    with np.errstate(all="ignore"):
        if first.dtype.itemsize == 1 and first.dtype.kind == "V":  # sub-byte integers
            return np.asarray(ufunc(first.astype(np.int8), second.astype(np.int8))).astype(first.dtype)
        return np.asarray(ufunc(first, second)).astype(first.dtype)


def check_linear(name: str, sample: Sample, rng: np.random.Generator) -> int:
    """Every linear entry on two partial sums per operand; returns how many entries were checked."""
    attrs, arrays, regions = sample
    definition = registry.get(name)
    rule = check_rule(name, sample)
    for monoid, which in rule.linear:
        base = [_finite(a) for a in arrays]
        first, second, total = list(base), list(base), list(base)
        for i in which:
            first[i], second[i] = _partial_sums(rng, base[i]), _partial_sums(rng, base[i])
            total[i] = _combine(monoid, first[i], second[i])
        results = [definition.evaluate(attrs, operands, regions) for operands in (first, second, total)]
        for a, b, whole in zip(*results, strict=True):
            assert_close(_combine(monoid, a, b), whole, (name, attrs, types_of(arrays), monoid, which))
    return len(rule.linear)
