from __future__ import annotations

import random

import pytest
from jax.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir

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
from eggshard.shardy.module import RULE, parsed
from eggshard.shardy.rules import rule_of

TEXTS = (
    "([i, k], [k, j])->([i, j]) {i=8, j=16, k=8} reduction={k}",
    "([ij, k], [])->([i, kj]) {i=8, j=16, k=3}, custom",
    "([])->([])",
    "([i], [])->([i], [j]) {i=0, j=1}",
    "([i, j, k])->([i, j, l]) {i=2, j=3, k=4, l=5} reduction={k} need_replication={i} permutation={j} "
    "blocked_propagation={i, l}, custom",
    "([i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, z_1, z_2z_3])->([z_2]) {"
    + ", ".join(f"{factor_symbol(i)}={i + 2}" for i in range(21)) + "}",
)
#: Text and a part of its error.
MALFORMED = {
    "([i, k)->([i]) {i=8, k=8}": "']' expected at ')'",
    "([i])->([i]) {j=8}": "the size of factor i, in order, expected at 'j'",
    "([a])->([a]) {a=8}": "a factor from i to z",
    "([z_0])->([i]) {i=8}": "a factor from i to z",
    "([z_])->([i]) {i=8}": "a factor from i to z",
    "([i])->([i]) {i=x}": "a size expected at 'x'",
    "([i])->([i]) {i=8} permutation={i} reduction={i}": "'>' expected at 'reduction'",
    "([i])->([i]) {i=8} need_replication={j}": "a factor with a size expected at 'j'",
    "([i, j])->([i]) {i=8, j=8} need_replication={j, i}": "later than the one before",
    "([i, j])->([i]) {i=8, j=8} need_replication={ij}": "one factor expected",
    "([i])->([i]) {i=8} need_replication={i} permutation={i}": "factor i is both need-replication and permutation",
    "([i])->([i]) {i=8}, own": "'custom' expected",
    "()->([i]) {i=8}": "at least one operand",
    "([i])->([j]) {i=8}": "uses factor j, which has no size",
    "([i])->([i]) {i=8, j=8}": "no operand or result uses factor j",
    "([i, i])->([i]) {i=8}": "operand 0 uses factor i twice",
    "([ij])->([i]) {i=8, j=1}": "a factor of size 1, j, beside others",
    "([i])->([i]) {i=8} reduction={i}": "factor i is reduced, so no result can have it",
}


@pytest.mark.parametrize("body", TEXTS)
def test_text_reads_back_and_is_what_jaxlib_prints(body: str) -> None:
    text = f"#sdy.op_sharding_rule<{body}>"
    rule = OpShardingRule.parse(text)
    assert str(rule) == text and OpShardingRule.parse(str(rule)) == rule
    with jax_mlir.make_ir_context():
        assert str(ir.Attribute.parse(text)) == text


def test_layout_is_free() -> None:
    rule = OpShardingRule.parse("#sdy.op_sharding_rule< ( [ i,k ],[k,j])->([i,j]) {i = 8,j=16,\n k=8}reduction={ k } >")
    assert str(rule) == "#sdy.op_sharding_rule<([i, k], [k, j])->([i, j]) {i=8, j=16, k=8} reduction={k}>"


def test_what_a_rule_says() -> None:
    text = "([i, k], [k, i], [j], [])->([i]) {i=8, j=3, k=4} reduction={k} need_replication={j}"
    rule = OpShardingRule.parse(f"#sdy.op_sharding_rule<{text}>")
    assert rule.factors == (RuleFactor(8), RuleFactor(3, NEED_REPLICATION), RuleFactor(4, REDUCTION))
    assert rule.of_kind(REDUCTION) == (2,) and rule.batching == ()


@pytest.mark.parametrize("body", MALFORMED)
def test_malformed_rules_are_refused(body: str) -> None:
    with pytest.raises(ShardingError) as caught:
        OpShardingRule.parse(f"#sdy.op_sharding_rule<{body}>")
    assert MALFORMED[body] in str(caught.value)


def random_rule(rng: random.Random) -> OpShardingRule:
    """Any rule that an op can have: factors in any order and of any kind, some of them together in one dimension."""
    sizes = [rng.choice((0, 1, 2, 3, 4, 16)) for _ in range(rng.choice((0, 1, 3, 5, 25)))]

    def tensor(allowed: list[int]) -> TensorFactors:
        dims: list[list[int]] = []
        for factor in rng.sample(allowed, rng.randint(0, len(allowed))):
            beside = dims and sizes[factor] != 1 and all(sizes[f] != 1 for f in dims[-1])
            if beside and rng.random() < 0.3:
                dims[-1].append(factor)
            else:
                dims.append([factor])
        return tuple(map(tuple, dims))

    everything = list(range(len(sizes)))
    summed = rng.sample(everything, len(sizes) // 3)
    operands = [tensor(everything) for _ in range(rng.randint(1, 3))]
    results = [tensor([f for f in everything if f not in summed]) for _ in range(rng.randint(1, 3))]
    unused = set(everything) - {f for t in (*operands, *results) for dim in t for f in dim}
    operands.append(tuple((f,) for f in sorted(unused)))
    others = (PASS_THROUGH, NEED_REPLICATION, PERMUTATION)
    factors = [RuleFactor(size, REDUCTION if f in summed else rng.choice(others), rng.random() < 0.3)
               for f, size in enumerate(sizes)]
    return OpShardingRule(tuple(factors), tuple(operands), tuple(results), custom=rng.random() < 0.8)


def types(rule: OpShardingRule, tensors: tuple[TensorFactors, ...]) -> list[str]:
    return [f"tensor<{''.join(f'{max(1, len(dim))}x' for dim in tensor)}f32>" for tensor in tensors]


def test_random_rules_go_through_jaxlib_and_back() -> None:
    rng = random.Random(5)
    rules = [random_rule(rng) for _ in range(120)]
    lines = []
    for rule in rules:
        operands = ", ".join(types(rule, rule.operands))
        results = ", ".join(types(rule, rule.results))
        given = [f'"stablehlo.constant"() {{value = dense<1.0> : {t}}} : () -> {t}' for t in types(rule, rule.operands)]
        names = [f"%c{len(lines)}_{i}" for i in range(len(given))]
        lines += [f"{name} = {op}" for name, op in zip(names, given, strict=True)]
        lines.append(f'%r{len(lines)}:{len(rule.results)} = "stablehlo.custom_call"({", ".join(names)}) '
                     f'{{call_target_name = "own", {RULE} = {rule}}} : ({operands}) -> ({results})')
    with parsed("\n".join(["func.func @main() {", *lines, "return", "}"])) as module:
        ops = module.walk("stablehlo.custom_call")
        assert [rule_of(op) for op in ops] == rules
        assert [str(op.attributes[RULE]) for op in ops] == [str(rule) for rule in rules]
