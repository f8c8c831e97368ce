"""Modules with ops of the dialect enzymexla mean what the same slices, pads and concatenations mean."""

import numpy as np
import pytest

pytest.importorskip("jax")

from eggshard.errors import ProgramError  # noqa: E402
from eggshard.frontends import load  # noqa: E402
from eggshard.ops.evaluate import evaluate_program  # noqa: E402

X = np.arange(32, dtype=np.float32).reshape(4, 8)


def module(body, results, arguments="%x: tensor<4x8xf32>", shardings=""):
    types = ", ".join(results)
    return f"""sdy.mesh @mesh = <["x"=2, "y"=2]>
    func.func @main({arguments}) -> ({types}) {{
      {body}
      return {", ".join(f"%r#{i}" if len(results) > 1 else "%r" for i in range(len(results)))} : {types}
    }}"""


def run(text, *arrays):
    return evaluate_program(load(text), arrays)


def one(op, properties, result, operands="%x", types="tensor<4x8xf32>", **more):
    return module(f'%r = "enzymexla.{op}"({operands}) <{{{properties}}}> : ({types}) -> {result}', [result], **more)


def several(op, properties, result, count, operands="%x", types="tensor<4x8xf32>", **more):
    results = [result] * count
    text = f'%r:{count} = "enzymexla.{op}"({operands}) <{{{properties}}}> : ({types}) -> ({", ".join(results)})'
    return module(text, results, **more)


@pytest.mark.parametrize("width", ["si32", "i32", "i64"])
@pytest.mark.parametrize("amount", [0, 1, 5, 7, 8, -2])
def test_rotate_is_to_the_left(amount, width):
    text = one("rotate", f"amount = {amount} : {width}, dimension = 1 : {width}", "tensor<4x8xf32>")
    (got,) = run(text, X)
    np.testing.assert_array_equal(got, np.concatenate([X[:, amount % 8:], X[:, : amount % 8]], 1))


@pytest.mark.parametrize("lhs, rhs", [(0, 0), (1, 2), (4, 0), (3, 4)])
def test_wrap(lhs, rhs):
    properties = f"lhs = {lhs} : i64, rhs = {rhs} : i64, dimension = 0 : i64"
    (got,) = run(one("wrap", properties, f"tensor<{4 + lhs + rhs}x8xf32>"), X)
    np.testing.assert_array_equal(got, np.pad(X, ((lhs, rhs), (0, 0)), mode="wrap"))


@pytest.mark.parametrize("lhs, rhs", [(0, 0), (1, 0), (1, 1), (2, 0), (0, 3), (2, 1), (4, 4)])
def test_extend_copies_the_first_and_last_elements_in_their_order(lhs, rhs):
    properties = f"lhs = {lhs} : i64, rhs = {rhs} : i64, dimension = 0 : i64"
    (got,) = run(one("extend", properties, f"tensor<{4 + lhs + rhs}x8xf32>"), X)
    np.testing.assert_array_equal(got, np.concatenate([X[:lhs], X, X[4 - rhs:]]))


def test_extend_by_one_repeats_the_edge():
    text = one("extend", "lhs = 1 : i64, rhs = 1 : i64, dimension = 0 : i64", "tensor<6x8xf32>")
    assert [op.name for op in load(text).region.ops] == ["extend"]


@pytest.mark.parametrize("left, right", [(0, 0), (2, 0), (1, 3)])
def test_multi_rotate(left, right):
    properties = f"left_amount = {left} : si32, right_amount = {right} : si32, dimension = 1 : si32"
    count = left + right + 1
    make = one if count == 1 else several
    rest = ("tensor<4x8xf32>",) if count == 1 else ("tensor<4x8xf32>", count)
    for j, got in enumerate(run(make("multi_rotate", properties, *rest), X)):
        np.testing.assert_array_equal(got, np.roll(X, j - left, 1))


def test_multi_slice():
    properties = ("start_indices = array<i64: 1, 0>, limit_indices = array<i64: 3, 5>, strides = array<i64: 1, 2>, "
                  "dimension = 1 : i32, amount = 2 : i32")
    got = run(several("multi_slice", properties, "tensor<2x3xf32>", 3), X)
    for j in range(3):
        np.testing.assert_array_equal(got[j], X[1:3, j: 5 + j: 2])


def test_older_multi_slice_counts_from_its_centre():
    properties = ("start_indices = array<i64: 0, 2>, limit_indices = array<i64: 4, 5>, strides = array<i64: 1, 1>, "
                  "dimension = 1 : si32, left_amount = 1 : si32, right_amount = 1 : si32")
    got = run(several("multi_slice", properties, "tensor<4x3xf32>", 3), X)
    for j in range(3):
        np.testing.assert_array_equal(got[j], X[:, 1 + j: 4 + j])


def test_multi_pad_pads_before_first():
    arguments = "%x: tensor<4x8xf32>, %v: tensor<f32>"
    text = several("multi_pad", "amount = 2 : i64, dimension = 0 : i32", "tensor<6x8xf32>", 3, "%x, %v",
                   "tensor<4x8xf32>, tensor<f32>", arguments=arguments)
    got = run(text, X, np.float32(7))
    for j in range(3):
        np.testing.assert_array_equal(got[j], np.pad(X, ((2 - j, j), (0, 0)), constant_values=7))


@pytest.mark.parametrize("x, y", [((1, 3), (2, 7)), ((0, 4), (1, 2)), ((1, 1), (2, 3)), ((2, 9), (0, 1))])
def test_update_without_corners(x, y):
    properties = (f"dimensionX = 0 : i64, x1 = {x[0]} : i64, x2 = {x[1]} : i64, dimensionY = 1 : i64, "
                  f"y1 = {y[0]} : i64, y2 = {y[1]} : i64")
    text = one("update_without_corners", properties, "tensor<4x8xf32>", "%x, %u", "tensor<4x8xf32>, tensor<4x8xf32>",
               arguments="%x: tensor<4x8xf32>, %u: tensor<4x8xf32>")
    (got,) = run(text, X, -X)
    i, j = np.indices(X.shape)
    corners = ((i < x[0]) | (i >= x[1])) & ((j < y[0]) | (j >= y[1]))
    np.testing.assert_array_equal(got, np.where(corners, X, -X))


def test_shardings_are_read_on_every_result():
    stated = ('sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>, <@mesh, [{}, {"y"}]>, '
              '<@mesh, [{"x"}, {"y"}]>]>')
    text = module(
        f'%r:3 = "enzymexla.multi_rotate"(%x) <{{left_amount = 2 : si32, right_amount = 0 : si32, dimension = 1 : '
        f'si32}}> {{{stated}}} : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)',
        ["tensor<4x8xf32>"] * 3,
        arguments='%x: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>, '
                  'enzymexla.memory_effects = []}',
    )
    program = load(text)
    assert program.mesh.size == 4
    assert [str(op.shardings[0]) for op in program.region.ops] == ["[{\"x\"}, {}]", "[{}, {\"y\"}]"]


@pytest.mark.parametrize("op, properties, message", [
    ("rotate", "amount = 1 : i32", "attribute dimension is missing"),
    ("rotate", "amount = 1 : i32, dimension = 2 : i32", "dimension 2 does not exist"),
    ("wrap", "lhs = -1 : i64, rhs = 0 : i64, dimension = 0 : i64", "must not be negative"),
    ("wrap", "lhs = 5 : i64, rhs = 0 : i64, dimension = 0 : i64", "lhs 5 and rhs 0 must not exceed the size 4"),
    ("extend", "lhs = 5 : i64, rhs = 0 : i64, dimension = 0 : i64", "must not exceed the size 4"),
    ("extend", "lhs = 1 : i64, rhs = 0 : i64, dimension = 0 : i64", "it states"),
    ("unheard_of", "lhs = 1 : i64", "not registered"),
])
def test_bad_ops_are_refused_by_name(op, properties, message):
    with pytest.raises(ProgramError, match=f"enzymexla.{op}.*{message}" if not message.startswith("wrap") else message):
        load(one(op, properties, "tensor<4x8xf32>"))
