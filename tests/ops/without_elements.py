"""Small instances of every op in which some size is zero."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tests.ops.samples import SAMPLES, Sample, types_of
from tests.ops.samples2 import SAMPLES2

from eggshard.ops import registry
from eggshard.ops.base import PASS, REDUCE, FactorRule, Types
from eggshard.program.types import numpy_dtype

TensorDims = tuple[tuple[int, ...], ...]


def without_elements(name: str, seed: int = 0) -> Iterator[Sample]:
    """An op's samples, of each shape one: those that have a size of zero, and, for every factor of which shards are
    parts, the op on shards of none of its indices."""
    seen = set()
    for sample in (SAMPLES | SAMPLES2)[name](np.random.default_rng(seed)):
        attrs, arrays, regions = sample
        operands = types_of(arrays)
        shapes = tuple(t.shape for t in operands), str(attrs)
        if shapes in seen:
            continue
        seen.add(shapes)
        results = registry.get(name).infer(attrs, operands, regions)
        if not all(t.elements for t in (*operands, *results)):
            yield sample
            continue
        rule = registry.get(name).factors(attrs, operands, results)
        for number, factor in enumerate(rule.factors):
            if factor.kind in (PASS, REDUCE) and not factor.positional and factor.size > 1:
                made = _without(name, sample, operands, results, rule, number)
                numbers = made[0]["dimension_numbers"] if name == "convolution" else {}
                window = [made[1][1].shape[d] for d in numbers.get("kernel_spatial_dimensions", ())]
                if not {made[0].get("feature_group_count"), made[0].get("batch_group_count"), *window} & {0}:
                    yield made  # a convolution has at least one group, and its window an element


def _without(name: str, sample: Sample, operands: Types, results: Types, rule: FactorRule, number: int) -> Sample:
    """The op where a factor has no indices."""
    attrs, arrays, regions = sample

    def emptied(types: Types, dims: tuple[TensorDims, ...]) -> Types:
        return tuple(t.with_shape(tuple(0 if number in parts else n for n, parts in zip(t.shape, d, strict=True)))
                     for t, d in zip(types, dims, strict=True))

    local = emptied(operands, rule.operands), emptied(results, rule.results)
    localized = registry.get(name).localize(attrs, operands, results, *local)
    given = [a if a.shape == t.shape else np.zeros(t.shape, numpy_dtype(t.dtype))
             for a, t in zip(arrays, local[0], strict=True)]
    return localized, given, regions
