"""Where jaxlib's rules are wrong, or keep its pass from finishing, and what ours are instead."""

from __future__ import annotations

import pytest
from tests.shardy.peer import run_peer
from tests.shardy.rules.body import Body, Value, array, combiner, matrix, tensor

from eggshard import shardy

GROUPS = f"replica_groups = {matrix([[0, 1]])}, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"


def rules(text: str) -> list[str]:
    """The bodies of the rules stated in a module."""
    return [part.split(">}")[0].split(">,")[0] for part in text.split("#sdy.op_sharding_rule<")[1:]]


def ours(body: Body) -> list[str]:
    return rules(shardy.transform(body.module(), "populate-op-sharding-rules"))


def theirs(body: Body) -> list[str]:
    peer = run_peer(body.module(), "func.func(sdy-populate-op-sharding-rules)")
    assert not peer.failure, peer.failure
    return rules(peer.text)


def failure(body: Body) -> str:
    return run_peer(body.module(), "func.func(sdy-populate-op-sharding-rules)").failure


def test_a_sort_along_the_last_dimension_counted_from_the_end() -> None:
    """jaxlib lets the sorted dimension pass where its number is negative, as it is unless stated."""
    scalar = tensor([])
    compare = (f"{{^bb0(%l: {scalar}, %r: {scalar}):\n%c = stablehlo.compare LT, %l, %r : ({scalar}, {scalar}) -> "
               'tensor<i1>\n"stablehlo.return"(%c) : (tensor<i1>) -> ()}')
    for attributes in ("dimension = -1 : i64", ""):
        body = Body(0)
        body.op("stablehlo.sort", [body.argument([8, 4])], [tensor([8, 4])], attributes, compare)
        assert ours(body)[-1] == "([i, j])->([i, j]) {i=8, j=4} need_replication={j}"
        assert theirs(body)[-1] == "([i, j])->([i, j]) {i=8, j=4}"


def test_padding_that_shifts() -> None:
    """jaxlib takes a padded dimension of the same size for one that is left alone, though each element moves."""
    body = Body(0)
    body.op("stablehlo.pad", [body.argument([8, 4]), body.argument([])], [tensor([8, 4])],
            f"edge_padding_low = {array([1, 0])}, edge_padding_high = {array([-1, 0])}, "
            f"interior_padding = {array([0, 0])}")
    assert ours(body) == ["([i, j], [])->([i, j]) {i=8, j=4} permutation={i}"]
    assert theirs(body) == ["([i, j], [])->([i, j]) {i=8, j=4}"]


def test_windows_of_one_element_over_spread_out_operands() -> None:
    """jaxlib takes it for left alone, though the result is twice as large."""
    body = Body(0)
    body.op("stablehlo.reduce_window", [body.argument([8, 4]), body.argument([])], [tensor([15, 4])],
            f"window_dimensions = {array([1, 1])}, base_dilations = {array([2, 1])}", combiner("add"))
    assert ours(body)[-1] == "([i, j], [])->([i, j]) {i=15, j=4} permutation={i}"
    assert theirs(body)[-1] == "([i, j], [])->([i, j]) {i=15, j=4}"


def test_collectives_of_several_shapes() -> None:
    """jaxlib gives all operands the sizes of the first, and fails where another one has more dimensions."""
    body = Body(0)
    operands = [body.argument([8, 4]), body.argument([2, 8])]
    body.op("stablehlo.all_reduce", operands, [v.type for v in operands], GROUPS, combiner("add"))
    assert ours(body)[-1] == "([i, j], [k, l])->([i, j], [k, l]) {i=8, j=4, k=2, l=8}"
    assert theirs(body)[-1] == "([i, j], [i, j])->([i, j], [i, j]) {i=8, j=4}"
    body = Body(0)
    operands = [body.argument([4]), body.argument([2, 8])]
    body.op("stablehlo.all_gather", operands, [tensor([8]), tensor([4, 8])], f"all_gather_dim = 0 : i64, {GROUPS}")
    body.op("stablehlo.all_reduce", operands, [v.type for v in operands], GROUPS, combiner("add"))
    assert ours(body)[0] == "([i], [l, k])->([j], [m, k]) {i=4, j=8, k=8, l=2, m=4} need_replication={i, j, l, m}"
    assert failure(body)


@pytest.mark.parametrize(
    ("target", "operands", "result"),
    [("MoveToHost", ("tensor<8xf32>", "!stablehlo.token"), "tensor<8xf32>"), ("MoveToHost", (), "tensor<8xf32>"),
     ("MoveToHost", ("tensor<8x4xf32>",), "tensor<8xf32>"), ("mhlo.topk", ("tensor<8x4xf32>",), "tensor<8xf32>"),
     ("MoveToHost", ("tensor<?x4xf32>",), "tensor<?x4xf32>")])
def test_calls_of_known_names_that_are_not_what_the_name_says(
    target: str, operands: tuple[str, ...], result: str
) -> None:
    """jaxlib states rules that its verifier refuses; ours have none."""
    body = Body(0)
    given = [Value(f"%a{i}", type_) for i, type_ in enumerate(operands)]
    body.arguments += given
    body.op("stablehlo.custom_call", given, [result], f'call_target_name = "{target}"')
    assert ours(body) == []
    assert failure(body)
