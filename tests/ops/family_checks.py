"""What every op is checked for, given samples of it: meaning, spelling and sharding laws."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from tests.ops.laws import check_factors, check_linear
from tests.ops.oracles import assert_close, function_text, parse, run_interpreter, run_xla
from tests.ops.samples import Sample, one_op_region, types_of
from tests.ops.samples2 import SAMPLES2

from eggshard.ops import registry
from eggshard.ops.evaluate import evaluate_region
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.codec import decode_attributes


def samples_of(name: str) -> list[Sample]:
    return SAMPLES2[name](np.random.default_rng(sum(map(ord, name))))


def check_laws(name: str) -> int:
    """The sharding laws on every sample; returns how many factors were cut."""
    for sample in samples_of(name):
        check_linear(name, sample, np.random.default_rng(5))
    return sum(check_factors(name, sample) for sample in samples_of(name))


def check_xla(name: str, samples: Iterable[Sample] | None = None) -> None:
    """All samples in one module, compiled once."""
    samples = list(samples_of(name) if samples is None else samples)
    builder = RegionBuilder([t for _, arrays, _ in samples for t in types_of(arrays)])
    outputs: list[int] = []
    inputs: list[np.ndarray] = []
    for attrs, arrays, regions in samples:
        operands = range(len(inputs), len(inputs) + len(arrays))
        inputs += arrays
        outputs += builder.add(name, operands, attrs, regions)
    region = builder.build(outputs)
    got, want = evaluate_region(region, inputs), run_xla(function_text(region), inputs)
    for i, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        assert_close(mine, theirs, (name, i))


def check_interpreter(name: str, samples: Iterable[Sample] | None = None) -> None:
    """Sample by sample against the reference interpreter."""
    for attrs, arrays, regions in samples_of(name) if samples is None else samples:
        region = one_op_region(name, attrs, types_of(arrays), regions)
        got, want = evaluate_region(region, arrays), run_interpreter(function_text(region), arrays)
        for mine, theirs in zip(got, want, strict=True):
            assert_close(mine, theirs, (name, attrs, types_of(arrays)))


def check_spelling(name: str) -> None:
    """MLIR accepts the text, infers our result types, and prints attributes that decode to the same ones."""
    definition = registry.get(name)
    for attrs, arrays, regions in samples_of(name):
        region = one_op_region(name, attrs, types_of(arrays), regions)
        module = parse(function_text(region))
        function = module.body.operations[0]
        with module.context:
            body = function.regions[0].blocks[0].operations
            found = next(op for op in body if op.operation.name == definition.spelling)
            texts = {key: str(found.attributes[key]) for key in found.attributes}
            assert [str(r.type) for r in found.results] == [str(region.types[v]) for v in region.outputs]
        decoded = definition.from_mlir(
            decode_attributes(definition.attributes, texts), types_of(arrays),
            tuple(region.types[v] for v in region.outputs),
        )
        stated = {k: v for k, v in attrs.items() if k in decoded}
        assert {k: decoded[k] for k in stated} == stated, (name, attrs, decoded)
        again = definition.infer(attrs.updated(**decoded), types_of(arrays), regions)
        assert again == tuple(region.types[v] for v in region.outputs)
