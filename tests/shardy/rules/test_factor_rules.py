"""The planner's own factors and Shardy's say the same of dimensions that both let pass, or both reduce."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import pytest
from tests.shardy.rules.body import Body
from tests.shardy.rules.test_random_ops import FAMILIES

import eggshard as es
from eggshard.ops import base
from eggshard.program.op_sharding_rule import PASS_THROUGH, REDUCTION
from eggshard.program.program import Op, Region
from eggshard.shardy.module import parsed, shape
from eggshard.shardy.rules import rule_of

KINDS = {PASS_THROUGH: base.PASS, REDUCTION: base.REDUCE}
Tensors = Sequence[Sequence[Sequence[int]]]
#: A factor by where it is: (operand or result, its number, dimension, what is minor to it there), and its kind.
Places = dict[frozenset[tuple[str, int, int, int]], str]


def places(factors: Sequence[tuple[int, str]], operands: Tensors, results: Tensors) -> Places:
    """The factors larger than 1 that pass or are reduced, given as (size, kind)."""
    found: dict[int, set[tuple[str, int, int, int]]] = {}
    for side, tensors in (("operand", operands), ("result", results)):
        for number, tensor in enumerate(tensors):
            for dim, row in enumerate(tensor):
                minor = 1
                for factor in reversed(row):
                    found.setdefault(factor, set()).add((side, number, dim, minor))
                    minor *= factors[factor][0]
    return {
        frozenset(where): factors[factor][1] for factor, where in found.items()
        if factors[factor][0] > 1 and factors[factor][1] in (base.PASS, base.REDUCE)
    }


def compare(op: Any, mine: Op, region: Region) -> int:
    """How many factors the two rules share; an error if one of ours overlaps another one of Shardy's."""
    shardy = rule_of(op)
    if shardy is None or not base.known(mine.name):
        return 0
    operands, results = (tuple(region.types[i] for i in values) for values in (mine.operands, mine.results))
    own = base.get(mine.name).factors(mine.attributes, operands, results)
    sizes = [(f.size, KINDS.get(f.kind, f.kind)) for f in shardy.factors]
    # Initial values, and the second of several operands that go together, are ops of their own here.
    theirs = places(sizes, shardy.operands[: len(operands)], shardy.results)
    apart = len(shardy.tensors) != len((*operands, *results)) or mine.name.startswith("all_")
    shared = 0
    for where, kind in places([(f.size, f.kind) for f in own.factors], own.operands, own.results).items():
        for other, other_kind in theirs.items():
            if where & other:
                same = where <= other if apart else where == other
                assert same and kind == other_kind, f"{mine}: {shardy} and {own}"
                shared += 1
    return shared


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"batch_norm", "rng_bit_generator", "custom_calls"}))
def test_factors_that_both_let_pass_are_the_same(family: str) -> None:
    body, shared = Body(3), 0
    for _ in range(30):
        FAMILIES[family](body)
    region = es.load(body.module()).region
    with parsed(body.module()) as module:
        ops = [op for op in module.functions[0].regions[0].blocks[0].operations if op.operation.name != "func.return"]
        names = [(op.operation.name.partition(".")[2], *map(shape, (*op.operands, *op.results)[:1])) for op in ops]
        mine = [(op.name, *(region.types[i].shape for i in (*op.operands, *op.results)[:1])) for op in region.ops]
        for tag, a, b, c, _ in difflib.SequenceMatcher(None, names, mine, autojunk=False).get_opcodes():
            if tag == "equal":
                shared += sum(compare(ops[i], region.ops[i - a + c], region) for i in range(a, b))
    assert shared
