"""Gathers and scatters written by hand, and as JAX writes them, with how many of each module are to become batched."""

from __future__ import annotations

from collections.abc import Mapping

MESH = 'sdy.mesh @mesh = <["x"=4, "y"=2]>\n'
POSITIONS = """
  %rows = stablehlo.iota dim = 0 : tensor<4x1xi32>
  %indices = stablehlo.concatenate %rows, %i, dim = 1 : (tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x2xi32>"""
VECTOR = """
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %iota = stablehlo.iota dim = 0 : tensor<4xi32>"""
CONCATENATED = """
  %rows = stablehlo.broadcast_in_dim %index, dims = [0] : (tensor<4xi32>) -> tensor<4x1xi32>
  %indices = stablehlo.concatenate %rows, %i, dim = 1 : (tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x2xi32>"""


def gather(
    indices: str, *, type_: str = "4x2", table: str = "4x8", offsets: str = "", collapsed: str = "[0, 1]",
    mapped: str = "[0, 1]", along: int = 1, sizes: str = "1, 1", result: str = "4", attributes: str = "",
) -> str:  # fmt: skip
    """A module that looks up ``%indices`` of a table, with further arguments ``%i`` and ``%j``."""
    return f"""{MESH}func.func @main(%table: tensor<{table}xf32>, %i: tensor<4x1xi32>, %j: tensor<4x1xi32>)
    -> tensor<{result}xf32> {{{indices}
  %result = "stablehlo.gather"(%table, %indices) {{dimension_numbers = #stablehlo.gather<{offsets}
      collapsed_slice_dims = {collapsed}, start_index_map = {mapped}, index_vector_dim = {along}>,
      slice_sizes = array<i64: {sizes}>{attributes}}}
    : (tensor<{table}xf32>, tensor<{type_}xi32>) -> tensor<{result}xf32>
  return %result : tensor<{result}xf32>
}}"""


def scatter(
    indices: str, *, inserted: str = "[0, 1]", windows: str = "", updates: str = "4", attributes: str = ""
) -> str:
    """A module that adds to what ``%indices`` point at."""
    return f"""{MESH}func.func @main(%table: tensor<4x8xf32>, %i: tensor<4x1xi32>, %updates: tensor<{updates}xf32>)
    -> tensor<4x8xf32> {{{indices}
  %result = "stablehlo.scatter"(%table, %indices, %updates) ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }}) {{scatter_dimension_numbers = #stablehlo.scatter<{windows} inserted_window_dims = {inserted},
      scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>{attributes}}}
    : (tensor<4x8xf32>, tensor<4x2xi32>, tensor<{updates}xf32>) -> tensor<4x8xf32>
  return %result : tensor<4x8xf32>
}}"""


def indexed(index: str) -> str:
    """The indices of columns ``%i``, in the rows that a vector ``%index`` of an iota says."""
    return VECTOR + index + CONCATENATED


def wrapped(direction: str, bound: int, base: str = "%iota") -> str:
    """An index that is the iota where it does not compare with a number, and four more where it does."""
    return f"""
  %bound = stablehlo.constant dense<{bound}> : tensor<4xi32>
  %negative = stablehlo.compare {direction}, %iota, %bound : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
  %size = stablehlo.constant dense<4> : tensor<4xi32>
  %more = stablehlo.add %iota, %size : tensor<4xi32>
  %index = stablehlo.select %negative, %more, {base} : tensor<4xi1>, tensor<4xi32>"""


ATTRIBUTES = ', sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x", ?}]>]>, frontend = "kept"'
SHARED = gather(POSITIONS).replace(
    "  return %result", "  %other = stablehlo.negate %indices : tensor<4x2xi32>\n  return %result")
CONSTANTS = gather(POSITIONS).replace(
    "  return %result : tensor<4xf32>", """
  %one = stablehlo.constant dense<1.0> : tensor<4xf32>
  %two = stablehlo.constant dense<2.0> : tensor<4xf32>
  %again = stablehlo.constant dense<1.0> : tensor<4xf32>
  %unused = stablehlo.add %one, %two : tensor<4xf32>
  %sum = stablehlo.add %result, %again : tensor<4xf32>
  %product = stablehlo.multiply %sum, %two : tensor<4xf32>
  return %product : tensor<4xf32>""")
#: Modules that jaxlib's pass takes as ours does, and how many gathers and scatters become batched.
WRITTEN: Mapping[str, tuple[str, int]] = {
    "an element of each row": (gather(POSITIONS), 1),
    "attributes": (gather(POSITIONS, attributes=ATTRIBUTES), 1),
    "indices of another use": (SHARED, 1),
    "constants": (CONSTANTS, 1),
    "windows in front": (gather(
        POSITIONS, offsets="offset_dims = [0],", collapsed="[0]", sizes="1, 3", result="3x4"), 1),
    "rows last": (gather("""
  %rows = stablehlo.iota dim = 0 : tensor<4x1xi32>
  %indices = stablehlo.concatenate %i, %j, %rows, dim = 1
    : (tensor<4x1xi32>, tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x3xi32>""",
        type_="4x3", table="4x8x6", collapsed="[0, 1, 2]", mapped="[2, 1, 0]", sizes="1, 1, 1"), 1),
    "an iota of whole vectors": (gather(
        "\n  %indices = stablehlo.iota dim = 0 : tensor<4x3xi32>", type_="4x3", table="4x8x6",
        collapsed="[0, 1, 2]", mapped="[1, 0, 2]", sizes="1, 1, 1"), 1),
    "vectors in the middle": (gather("""
  %rows = stablehlo.iota dim = 0 : tensor<4x1x5xi32>
  %columns = stablehlo.broadcast_in_dim %i, dims = [0, 1] : (tensor<4x1xi32>) -> tensor<4x1x5xi32>
  %indices = stablehlo.concatenate %rows, %columns, dim = 1
    : (tensor<4x1x5xi32>, tensor<4x1x5xi32>) -> tensor<4x2x5xi32>""", type_="4x2x5", result="4x5"), 1),
    "what is not negative": (gather(indexed(wrapped("LT", 0))), 1),
    "within bounds": (gather(indexed("""
  %last = stablehlo.constant dense<3> : tensor<i32>
  %index = stablehlo.clamp %zero, %iota, %last : (tensor<i32>, tensor<4xi32>, tensor<i32>) -> tensor<4xi32>""")), 1),
    "one row": (gather("""
  %rows = stablehlo.iota dim = 0 : tensor<1xi32>
  %row = stablehlo.reshape %rows : (tensor<1xi32>) -> tensor<1x1xi32>
  %column = stablehlo.slice %i [0:1, 0:1] : (tensor<4x1xi32>) -> tensor<1x1xi32>
  %indices = stablehlo.concatenate %row, %column, dim = 1 : (tensor<1x1xi32>, tensor<1x1xi32>) -> tensor<1x2xi32>""",
        type_="1x2", table="1x8", result="1"), 1),
    "a scatter": (scatter(POSITIONS), 1),
    "a scatter of unique indices": (scatter(POSITIONS, attributes=", unique_indices = true"), 1),
    "a scatter of windows": (scatter(
        POSITIONS, inserted="[0]", windows="update_window_dims = [1],", updates="4x3"), 1),
    "a scatter that keeps rows": (scatter(
        POSITIONS, inserted="[1]", windows="update_window_dims = [1],", updates="4x2"), 0),
    "rows that are kept": (gather(
        POSITIONS, offsets="offset_dims = [1],", collapsed="[1]", result="4x1"), 0),
    "rows looked up": (gather(POSITIONS.replace("%rows, %i,", "%j, %i,")), 0),
    "more rows in the table": (gather(POSITIONS, table="6x8"), 0),
    "a constant of other rows": (gather(POSITIONS.replace(
        "iota dim = 0 : tensor<4x1xi32>", "constant dense<[[0], [2], [1], [3]]> : tensor<4x1xi32>")), 0),
    "rows alone": (gather(
        "\n  %indices = stablehlo.iota dim = 0 : tensor<4x1xi32>", type_="4x1", mapped="[0]"), 0),
    "an iota of columns": (gather("\n  %indices = stablehlo.iota dim = 1 : tensor<4x2xi32>"), 0),
    "batched already": (gather(POSITIONS, table="4x4x8", mapped="[0, 2]", collapsed=(
        "[0, 2], operand_batching_dims = [1], start_indices_batching_dims = [0]"), sizes="1, 1, 1"), 0),
}
SORTED = ", indices_are_sorted = true"
SQUARE = """
  %columns = stablehlo.iota dim = 0 : tensor<4x4x1xi32>
  %indices = stablehlo.concatenate %rows, %columns, dim = 2
    : (tensor<4x4x1xi32>, tensor<4x4x1xi32>) -> tensor<4x4x2xi32>"""
STATED = """
  %one = stablehlo.constant {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>} dense<1.0> : tensor<4xf32>
  %two = stablehlo.constant {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}]>]>} dense<1.0> : tensor<4xf32>
  %sum = stablehlo.add %one, %two : tensor<4xf32>
  return %sum : tensor<4xf32>"""
RULED = (", sdy.sharding_rule = #sdy.op_sharding_rule<([j, k], [i, l])->([i]) {i=4, j=4, k=8, l=2} reduction={j, k} "
         "need_replication={l}>")
#: Modules that jaxlib's pass takes otherwise, and how many become batched here. wrong: it changes what is computed.
DIFFERING: Mapping[str, tuple[str, int]] = {
    "wrong: positions along another dimension": (gather(VECTOR + """
  %rows = stablehlo.broadcast_in_dim %iota, dims = [1] : (tensor<4xi32>) -> tensor<4x4x1xi32>""" + SQUARE,
        type_="4x4x2", along=2, result="4x4"), 0),
    "wrong: positions in a flat tensor": (gather("""
  %flat = stablehlo.iota dim = 0 : tensor<16xi32>
  %rows = stablehlo.reshape %flat : (tensor<16xi32>) -> tensor<4x4x1xi32>""" + SQUARE,
        type_="4x4x2", along=2, result="4x4"), 0),
    "wrong: clamped to fewer rows": (gather(indexed("""
  %last = stablehlo.constant dense<1> : tensor<i32>
  %index = stablehlo.clamp %zero, %iota, %last : (tensor<i32>, tensor<4xi32>, tensor<i32>) -> tensor<4xi32>""")), 0),
    "wrong: selected only in some rows": (gather(indexed(wrapped("GT", 2).replace("add %iota", "subtract %iota"))), 0),
    "wrong: a component of two": (gather("""
  %rows = stablehlo.iota dim = 0 : tensor<4x1xi32>
  %two = stablehlo.concatenate %i, %j, dim = 1 : (tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x2xi32>
  %half = stablehlo.reshape %two : (tensor<4x2xi32>) -> tensor<4x2xi32>
  %indices = stablehlo.concatenate %half, %rows, dim = 1 : (tensor<4x2xi32>, tensor<4x1xi32>) -> tensor<4x3xi32>""",
        type_="4x3", table="4x8x6", collapsed="[0, 1, 2]", mapped="[1, 0, 2]", sizes="1, 1, 1"), 0),
    "vectors in front": (gather("\n  %indices = stablehlo.iota dim = 0 : tensor<2x4xi32>", type_="2x4", table="2x8",
                                along=0), 0),
    "sorted by rows": (gather(POSITIONS, attributes=SORTED), 1),
    "a scatter sorted by rows": (scatter(POSITIONS, attributes=SORTED), 1),
    "shardings of constants": (gather(POSITIONS).replace("  return %result : tensor<4xf32>", STATED), 0),
    "of another integer type": (gather(POSITIONS.replace("%rows =", "%wide =").replace(
        "iota dim = 0 : tensor<4x1xi32>", """iota dim = 0 : tensor<4x1xi64>
  %rows = stablehlo.convert %wide : (tensor<4x1xi64>) -> tensor<4x1xi32>""")), 1),
    "a stated rule": (gather(POSITIONS, attributes=RULED), 0),
    "positions as a constant": (gather(POSITIONS.replace(
        "iota dim = 0 : tensor<4x1xi32>", "constant dense<[[0], [1], [2], [3]]> : tensor<4x1xi32>")), 1),
    "selected behind a broadcast": (gather("""
  %iota = stablehlo.iota dim = 0 : tensor<4xi32>""" + wrapped("LT", 0, "%copy").replace(
      "\n  %bound", "\n  %copy = stablehlo.broadcast_in_dim %iota, dims = [0] : (tensor<4xi32>) -> tensor<4xi32>"
      "\n  %bound", 1) + CONCATENATED), 1),
    "rows behind a wide part": (gather("""
  %rows = stablehlo.iota dim = 0 : tensor<4x1xi32>
  %two = stablehlo.concatenate %i, %j, dim = 1 : (tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x2xi32>
  %half = stablehlo.reshape %two : (tensor<4x2xi32>) -> tensor<4x2xi32>
  %indices = stablehlo.concatenate %half, %rows, dim = 1 : (tensor<4x2xi32>, tensor<4x1xi32>) -> tensor<4x3xi32>""",
        type_="4x3", table="4x8x6", collapsed="[0, 1, 2]", mapped="[1, 2, 0]", sizes="1, 1, 1"), 1),
}  # fmt: skip


def jax_programs() -> dict[str, str]:
    """What JAX writes for lookups and updates of a ``4x8`` table by rows, as text."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    constant = np.arange(4)
    vector, matrix = jnp.ones(4, jnp.int32), jnp.ones((4, 3), jnp.int32)
    table = jnp.ones((4, 8), jnp.float32)
    programs = {
        "x[constant, i]": (lambda x, i: x[constant, i], vector),
        "x[rows, i]": (lambda x, i: x[jnp.arange(4), i], vector),
        "x[rows[:, None], i]": (lambda x, i: x[jnp.arange(4)[:, None], i], matrix),
        "x.at[rows, i].set": (lambda x, i: x.at[jnp.arange(4), i].set(1.0), vector),
        "x.at[rows[:, None], i].add": (lambda x, i: x.at[jnp.arange(4)[:, None], i].add(2.0), matrix),
    }
    return {name: jax.jit(program).lower(table, indices).as_text() for name, (program, indices) in programs.items()}
