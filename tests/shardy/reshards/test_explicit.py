from __future__ import annotations

import pytest
from tests.shardy.differential import assert_agrees
from tests.shardy.peer import run_peer

from eggshard import shardy
from eggshard.errors import ProgramError, ShardingError

FULL, SOME = "insert-explicit-reshards{enable-full-version=true}", "insert-explicit-reshards"
MESHES = """
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  sdy.mesh @other = <["x"=4, "y"=2], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]>
  sdy.mesh @one = <[], device_ids=[3]>
  sdy.mesh @odd = <["a"=2, "b"=3, "c"=2]>
"""


def on(sharding: str, mesh: str = "mesh") -> str:
    return f"#sdy.sharding<@{mesh}, {sharding}>"


def per(*shardings: str, mesh: str = "mesh") -> str:
    return f"{{sdy.sharding = #sdy.sharding_per_value<[{', '.join(f'<@{mesh}, {s}>' for s in shardings)}]>}}"


def main(arguments: str, results: str, body: str, more: str = "") -> str:
    """A module with a main function, meshes, and what else it calls."""
    return f"module {{{MESHES}{more}\n  func.func @main({arguments}) -> ({results}) {{\n{body}\n  }}\n}}"


def arg(name: str, type_: str, sharding: str = "", mesh: str = "mesh") -> str:
    return f"%{name}: tensor<{type_}>" + (f" {{sdy.sharding = {on(sharding, mesh)}}}" if sharding else "")


def res(type_: str, sharding: str = "", mesh: str = "mesh") -> str:
    return f"tensor<{type_}>" + (f" {{sdy.sharding = {on(sharding, mesh)}}}" if sharding else "")


DOT = "stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] {} : (tensor<{}>, tensor<{}>) -> tensor<{}>"


def dot(lhs: str, rhs: str, out: str, lhs_type: str, rhs_type: str, type_: str) -> str:
    """One product and what it returns."""
    line = DOT.format(per(out) if out else "", lhs_type, rhs_type, type_)
    return main(f"{arg('a', lhs_type, lhs)}, {arg('b', rhs_type, rhs)}", res(type_, out),
                f"    %0 = {line}\n    return %0 : tensor<{type_}>")


REGION = ("({ ^bb0(%l: tensor<f32>, %r: tensor<f32>): %s = stablehlo.add %l, %r : tensor<f32> "
          "stablehlo.return %s : tensor<f32> })")

PROGRAMS = {
    "rows outvote the contraction": dot(
        '[{"x"}, {}]', '[{"x"}, {}]', '[{"x"}, {}]', "512x1024xf32", "1024x768xf32", "512x768xf32"),
    "contraction sharded alike is reduced": dot(
        '[{}, {"x"}]', '[{"x"}, {"y"}]', '[{}, {"y"}]', "8x16xf32", "16x8xf32", "8x8xf32"),
    "contraction is kept unreduced": dot(
        '[{}, {"x"}]', '[{"x"}, {"y"}]', '[{}, {"y"}], unreduced={"x"}', "8x16xf32", "16x8xf32", "8x8xf32"),
    "some of the contraction is kept unreduced": dot(
        '[{}, {"x", "y"}]', '[{"x", "y"}, {}]', '[{}, {}], unreduced={"y"}', "8x16xf32", "16x8xf32", "8x8xf32"),
    "the result of a small product": dot(
        '[{}, {"x"}]', '[{"x"}, {"y"}]', '[{}, {"x"}]', "4x32xf32", "32x8xf32", "4x8xf32"),
    "the result of a large product": dot(
        '[{}, {"x"}]', '[{"x"}, {"y"}]', '[{}, {"x"}]', "64x32xf32", "32x8xf32", "64x8xf32"),
    "a product without a stated result": dot(
        '[{"y"}, {"x"}]', '[{"x"}, {}]', "", "8x16xf32", "16x8xf32", "8x8xf32"),
    "sums go back and forth": main(
        f"""{arg("a", "1024x1024xf32", '[{"x"}, {}]')}, {arg("b", "1024x1024xf32", '[{}, {"x"}]')},"""
        f"""{arg("e", "1024x1024xf32", '[{}, {"x"}]')}""", res("1024x1024xf32", '[{}, {"x"}]'), f"""
    %0 = stablehlo.add %a, %b {per('[{"x"}, {}]')} : tensor<1024x1024xf32>
    %1 = stablehlo.add %0, %e {per('[{}, {"x"}]')} : tensor<1024x1024xf32>
    return %1 : tensor<1024x1024xf32>"""),
    "partial sums are made of what is replicated, sharded and unreduced": main(
        f"""{arg("a", "8x8xf32", '[{"x"}, {}]')}, {arg("b", "8x8xf32", '[{"y", "x"}, {}]')},"""
        f"""{arg("c", "8x8xf32", '[{}, {}], unreduced={"x"}')}, {arg("d", "8x8xf32", '[{}, {"x"}]')}""",
        ", ".join(res("8x8xf32", s) for s in (
            '[{}, {}], unreduced={"x"}', '[{"y"}, {}], unreduced={"x"}', '[{"y"}, {}], unreduced={"x"}',
            '[{"x"}, {}], unreduced={"y"}', '[{}, {}], unreduced={"x", "y"}')), """
    %0 = sdy.reshard %d <@mesh, [{}, {}], unreduced={"x", "y"}> : tensor<8x8xf32>
    return %a, %b, %c, %d, %0 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
    """),
    "parts of axes become partial sums": main(
        arg("a", "8x8xf32", '[{"x"}, {}]'),
        ", ".join(res("8x8xf32", s) for s in (
            '[{"x":(1)2}, {}], unreduced={"x":(2)2}', '[{}, {"y"}], unreduced={"x":(1)2}')),
        "    return %a, %a : tensor<8x8xf32>, tensor<8x8xf32>"),
    "partial sums are summed where they are used": main(
        arg("a", "8x8xf32", '[{}, {"y"}], unreduced={"x"}'), res("8x8xf32"), f"""
    %0 = stablehlo.negate %a {per('[{}, {"y"}], unreduced={"x"}')} : tensor<8x8xf32>
    %1 = stablehlo.abs %0 {per('[{"x"}, {"y"}]')} : tensor<8x8xf32>
    %2 = stablehlo.add %0, %1 : tensor<8x8xf32>
    return %0 : tensor<8x8xf32>"""),
    "a loop carries what it was told": main(
        f"""{arg("a", "8x8xf32", '[{"x"}, {}]')}, {arg("n", "i32")}""", res("8x8xf32", '[{"y"}, {}]'), f"""
    %0:2 = stablehlo.while(%i = %a, %k = %n) : tensor<8x8xf32>, tensor<i32> attributes {per('[{}, {"x"}]', '[]')}
    cond {{
      %c = stablehlo.compare LT, %k, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %1 = stablehlo.negate %i {per('[{"x"}, {}]')} : tensor<8x8xf32>
      stablehlo.return %1, %k : tensor<8x8xf32>, tensor<i32>
    }}
    return %0#0 : tensor<8x8xf32>"""),
    "branches return alike": main(
        f"""{arg("a", "8x8xf32", '[{"x"}, {}]')}, {arg("n", "i32")}""", res("8x8xf32"), f"""
    %0 = "stablehlo.case"(%n) ({{ stablehlo.return %a : tensor<8x8xf32> }}, {{
      %1 = stablehlo.negate %a {per('[{"x"}, {"y"}]')} : tensor<8x8xf32>
      stablehlo.return %1 : tensor<8x8xf32> }}) {per('[{}, {"y"}]')} : (tensor<i32>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>"""),
    "a manual computation's free axes": main(
        f"""{arg("a", "8x8xf32", '[{}, {"y"}]')}""", res("8x8xf32", '[{}, {"x"}]'), """
    %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x", "y"}, {}]>] out_shardings=[<@mesh, [{"x"}, {"y"}]>]
        manual_axes={"x"} (%b: tensor<2x8xf32>) {
      %1 = stablehlo.add %b, %b {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}, {}]>]>} : tensor<2x8xf32>
      sdy.return %1 : tensor<2x8xf32>
    } : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>"""),
    "barriers": main(
        f"""{arg("a", "8x8xf32", '[{"x"}, {}]')}""", res("8x8xf32", '[{}, {"y"}]'), f"""
    %0 = stablehlo.optimization_barrier {per('[{}, {"x"}]')} %a : tensor<8x8xf32>
    %1 = sdy.propagation_barrier %0 allowed_direction=BACKWARD : tensor<8x8xf32>
    %2 = stablehlo.negate %1 {per('[{"y"}, {}]')} : tensor<8x8xf32>
    return %2 : tensor<8x8xf32>"""),
    "calls": main(
        f"""{arg("a", "8x8xf32", '[{"x"}, {}]')}, {arg("b", "8xf32", '[{"y"}]')}""", res("8x8xf32"), f"""
    %0 = func.call @some(%a, %b) {per('[{}, {}]')} : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
    %1 = func.call @none(%0, %b) : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
    %2 = func.call @none(%1, %b) : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
    return %2 : tensor<8x8xf32>""", f"""
  func.func private @some(%a: tensor<8x8xf32>, {arg("b", "8xf32", '[{"x"}]')}) -> tensor<8x8xf32> {{
    return %a : tensor<8x8xf32>
  }}
  func.func private @none(%a: tensor<8x8xf32>, %b: tensor<8xf32>) -> tensor<8x8xf32> {{
    return %a : tensor<8x8xf32>
  }}"""),
    "devices in two orders": main(
        f"""{arg("a", "8x8xf32", '[{"x"}, {}]')}, {arg("b", "8x8xf32", '[{"x"}, {}]', "other")}""",
        res("8x8xf32", '[{"x"}, {}]', "other"), f"""
    %0 = stablehlo.add %a, %b {per('[{"x"}, {}]', mesh="other")} : tensor<8x8xf32>
    %1 = stablehlo.multiply %a, %0 {per('[{"x"}, {}]')} : tensor<8x8xf32>
    %2 = stablehlo.add %a, %b {per('[{}, {}]', mesh="odd")} : tensor<8x8xf32>
    return %1 : tensor<8x8xf32>"""),
    "axes that overflow a factor": main(
        f"""{arg("a", "6x4xf32", '[{"c"}, {"b"}]', "odd")}, {arg("b", "24xf32", '[{"a", "b", "c"}]', "odd")}""",
        res("24xf32"), f"""
    %0 = stablehlo.reshape %a {per('[{"b", "a"}]', mesh="odd")} : (tensor<6x4xf32>) -> tensor<24xf32>
    %1 = stablehlo.reshape %b {per('[{"c"}, {}, {"b"}]', mesh="odd")} : (tensor<24xf32>) -> tensor<4x2x3xf32>
    %2 = stablehlo.reshape %b : (tensor<24xf32>) -> tensor<2x4x3xf32>
    return %0 : tensor<24xf32>"""),
    "parts of axes": main(
        arg("a", "4x8xf32", '[{"y", "x"}, {}]'), res("8x4xf32"), f"""
    %0 = stablehlo.reshape %a {per('[{"y"}, {"x"}]')} : (tensor<4x8xf32>) -> tensor<8x4xf32>
    %1 = stablehlo.reshape %a {per('[{"y", "x":(1)2}, {}, {}]')} : (tensor<4x8xf32>) -> tensor<4x4x2xf32>
    return %0 : tensor<8x4xf32>"""),
    "a custom rule is left alone": main(
        arg("a", "8x8xf32", '[{"x"}, {}]'), res("8x8xf32"), """
    %0 = stablehlo.custom_call @f(%a) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}, {}]>]>,
      sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i, j]) {i=8, j=8}, custom>}
      : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %1 = stablehlo.custom_call @unknown(%a) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}, {}]>]>}
      : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>"""),
    "what must be replicated goes to batching dimensions": main(
        f"""{arg("a", "8x4x4xf32", '[{}, {"x"}, {"y"}]')}, {arg("b", "8x4x2xf32", '[{"y"}, {"x"}, {}]')}""",
        f'{res("8x4x4xf32")}, {res("8x4x2xf32")}', f"""
    %0 = stablehlo.cholesky %a, lower = true {per('[{}, {"x"}, {"y"}]')} : tensor<8x4x4xf32>
    %1 = "stablehlo.triangular_solve"(%0, %b) {{left_side = true, lower = true, unit_diagonal = false,
      transpose_a = #stablehlo<transpose NO_TRANSPOSE>}} : (tensor<8x4x4xf32>, tensor<8x4x2xf32>) -> tensor<8x4x2xf32>
    return %0, %1 : tensor<8x4x4xf32>, tensor<8x4x2xf32>"""),
    "windows, scatters and transforms": main(
        f"""{arg("a", "8x16xf32", '[{"x"}, {"y"}]')}, {arg("i", "4x1xi32")}, {arg("u", "4x16xf32", '[{"y"}, {}]')},"""
        f"""{arg("z", "4x8xcomplex<f32>", '[{}, {"x"}]')}, {arg("k", "3xf32", '[{}]')}""", res("8x16xf32"), f"""
    %c = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = "stablehlo.reduce_window"(%a, %c) {REGION} {{window_dimensions = array<i64: 1, 3>,
      padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>, {per('[{}, {"x"}]')[1:-1]}}}
      : (tensor<8x16xf32>, tensor<f32>) -> tensor<8x16xf32>
    %1 = "stablehlo.scatter"(%0, %i, %u) {REGION} {{scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>,
      {per('[{"y"}, {"x"}]')[1:-1]}}} : (tensor<8x16xf32>, tensor<4x1xi32>, tensor<4x16xf32>) -> tensor<8x16xf32>
    %2 = stablehlo.fft %z, type = FFT, length = [8] {per('[{"y"}, {"x"}]')}
      : (tensor<4x8xcomplex<f32>>) -> tensor<4x8xcomplex<f32>>
    %3 = stablehlo.reduce(%1 init: %c) applies stablehlo.add across dimensions = [1] {per('[{"x"}]')}
      : (tensor<8x16xf32>, tensor<f32>) -> tensor<8xf32>
    return %1 : tensor<8x16xf32>"""),
    "tokens, scalars, empty dimensions and single devices": main(
        f"""%t: !stablehlo.token, {arg("s", "f32", "[]")}, {arg("e", "0x8xf32", '[{}, {"x"}]')}, {arg("a", "8xf32")}""",
        res("0x8xf32", '[{}, {"y"}]'), f"""
    %0 = stablehlo.after_all %t, %t : !stablehlo.token
    %1 = stablehlo.negate %s {per("[]")} : tensor<f32>
    %2 = stablehlo.add %e, %e {per('[{}, {}]')} : tensor<0x8xf32>
    %3 = stablehlo.negate %a {per("[]", mesh="one")} : tensor<8xf32>
    %4 = stablehlo.add %3, %a : tensor<8xf32>
    %5 = stablehlo.reshape %2 {per('[{"x"}]')} : (tensor<0x8xf32>) -> tensor<0xf32>
    %6:2 = stablehlo.custom_call @two(%1) : (tensor<f32>) -> (tensor<f32>, !stablehlo.token)
    return %2 : tensor<0x8xf32>"""),
    "no function has the name main": """module {
  sdy.mesh @mesh = <["x"=2]>
  func.func @f(%a: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<4x4xf32> {
    %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
  func.func @g() { return }
}""",
}


@pytest.mark.parametrize("passes", (FULL, SOME))
@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_jaxlib(name: str, passes: str) -> None:
    assert_agrees(PROGRAMS[name], passes)


@pytest.mark.parametrize("passes", ("temp-explicit-reshards-for-optimizations", SOME, SOME + "{mode=shardy}"))
def test_the_older_name_is_the_pass_without_options(passes: str) -> None:
    name = "the result of a small product"
    assert shardy.transform(PROGRAMS[name], passes) == run_peer(PROGRAMS[name], f"func.func(sdy-{SOME})").text


# -- where jaxlib fails, or leaves what it should not ------------------------------------------------------------------


def test_functions_that_are_only_declared_stay_so() -> None:
    """jaxlib's pass reads a body that is not there, which mostly ends its process."""
    text = "module { func.func private @declared(tensor<4x4xf32>) -> tensor<4x4xf32> }"
    assert "@declared" in shardy.transform(text, FULL)


def test_meshes_written_in_full() -> None:
    row, column = ('#sdy.sharding<mesh<["x"=4]>, ' + dims for dims in ('[{"x"}, {}]>', '[{}, {"x"}]>'))
    text = f"""module {{
      func.func @main(%a: tensor<8x8xf32> {{sdy.sharding = {row}}}) -> (tensor<8x8xf32> {{sdy.sharding = {column}}}) {{
        %0 = stablehlo.negate %a : tensor<8x8xf32>
        return %0 : tensor<8x8xf32> }} }}"""
    assert run_peer(text, f"func.func(sdy-{FULL})").failure
    lines = shardy.transform(text, FULL).splitlines()
    assert [line.split(" = ")[1].split(" ")[0] for line in lines if "%" in line and " = " in line][1:] == [
        "stablehlo.negate", "sdy.reshard", "sdy.reshard"]


def test_a_second_time_nothing_is_reduced_again() -> None:
    """jaxlib sums again what has been summed: the second run counts every partial sum once per device."""
    text = PROGRAMS["contraction sharded alike is reduced"]
    once = shardy.transform(text, FULL)
    assert shardy.transform(once, FULL) == once and once.count("sdy.all_reduce") == 1
    assert run_peer(once, f"func.func(sdy-{FULL})").text.count("sdy.all_reduce") == 2


ARGMAX = """
    %0:2 = stablehlo.reduce(%a init: %c), (%b init: %n) across dimensions = [0]
      : (tensor<8x8xf32>, tensor<8x8xi32>, tensor<f32>, tensor<i32>) -> (tensor<8xf32>, tensor<8xi32>)
      reducer(%p: tensor<f32>, %q: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {
        %g = stablehlo.compare GT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %v = stablehlo.select %g, %p, %q : tensor<i1>, tensor<f32>
        %k = stablehlo.select %g, %i, %j : tensor<i1>, tensor<i32>
        stablehlo.return %v, %k : tensor<f32>, tensor<i32>
      }"""
MOST = """
    %0 = stablehlo.reduce(%a init: %c) applies stablehlo.maximum across dimensions = [0]
      : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>"""


@pytest.mark.parametrize(("reduction", "sums"), ((ARGMAX, 0), (MOST, 1)))
def test_reductions_that_no_collective_repeats_are_not_sharded(reduction: str, sums: int) -> None:
    """jaxlib would sum each device's largest value, and its place, as if they were partial sums."""
    text = main(
        f"""{arg("a", "8x8xf32", '[{"x"}, {}]')}, {arg("b", "8x8xi32", '[{"x"}, {}]')}, {arg("c", "f32")},"""
        f"""{arg("n", "i32")}""", "", f"{reduction}\n    return")
    ours = shardy.transform(text, FULL)
    assert ours.count("sdy.all_reduce") == sums and ours.count("sdy.reshard") == 2 * (not sums)
    assert run_peer(text, f"func.func(sdy-{FULL})").text.count("sdy.all_reduce") == (1 if sums else 2)


def test_partial_sums_of_open_dimensions_are_made() -> None:
    text = main(arg("a", "8x8xf32", '[{"x", ?}, {?}]'), res("8x8xf32", '[{"x"}, {}], unreduced={"y"}'),
                "    return %a : tensor<8x8xf32>")
    assert run_peer(text, f"func.func(sdy-{FULL})").failure
    assert shardy.transform(text, FULL).count("sdy.replicated_to_unreduced") == 1


def test_custom_rules_are_followed_on_request() -> None:
    text = PROGRAMS["a custom rule is left alone"]
    asked = FULL.replace("}", " custom-rules=true}")
    assert [shardy.transform(text, passes).count("sdy.reshard") for passes in (FULL, asked)] == [1, 2]


def test_branches_of_an_if_return_alike() -> None:
    """jaxlib has no data flow through ``stablehlo.if``: its branches go on returning different shards."""
    text = main(f"""{arg("a", "8x8xf32", '[{"x"}, {}]')}, {arg("n", "i1")}""", res("8x8xf32", '[{}, {"y"}]'), f"""
    %0 = "stablehlo.if"(%n) ({{ stablehlo.return %a : tensor<8x8xf32> }}, {{
      %1 = stablehlo.negate %a {per('[{}, {"y"}]')} : tensor<8x8xf32>
      stablehlo.return %1 : tensor<8x8xf32> }}) {per('[{}, {"y"}]')} : (tensor<i1>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>""")
    theirs, ours = run_peer(text, f"func.func(sdy-{FULL})").text, shardy.transform(text, FULL)
    assert theirs.count("sdy.reshard") == 1 and ours.count("sdy.reshard") == 2
    assert "%1 = sdy.reshard %arg0" not in theirs and 'sdy.reshard %arg0 <@mesh, [{}, {"y"}]>' in ours


PARTIAL_SUMS = arg("a", "8xf32", '[{}], unreduced={"x"}')
INVALID = {
    "partial sums and shards along one axis": (
        f"""{PARTIAL_SUMS}, {arg("b", "8xf32", '[{"x"}]')}""",
        f"""%0 = stablehlo.add %a, %b {per('[{}], unreduced={"x"}')} : tensor<8xf32>""", "make those unreduced"),
    "results unreduced along different axes": (
        arg("a", "8xf32"), f"""%0:2 = stablehlo.custom_call @two(%a) {per('[{}], unreduced={"x"}', "[{}]")}
        : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)""", "same axes"),
    "partial sums on devices in another order": (
        PARTIAL_SUMS, f"""%0 = stablehlo.negate %a {per("[{}]", mesh="other")} : tensor<8xf32>""",
        "stay on their mesh"),
    "partial sums traded for others": (
        PARTIAL_SUMS, """%0 = sdy.reshard %a <@mesh, [{}], unreduced={"y"}> : tensor<8xf32>""", "two steps"),
}


@pytest.mark.parametrize("name", INVALID)
def test_shardings_that_cannot_be_computed_on_are_errors(name: str) -> None:
    arguments, body, message = INVALID[name]
    text = main(arguments, "", f"    {body}\n    return")
    assert run_peer(text, f"func.func(sdy-{FULL})").failure
    with pytest.raises(ShardingError, match=message):
        shardy.transform(text, FULL)


def test_ops_without_results_take_sums() -> None:
    """jaxlib aborts at partial sums that an op without results uses."""
    text = main(PARTIAL_SUMS, "", """    sdy.sharding_group %a group_id=0 : tensor<8xf32>
    stablehlo.custom_call @see(%a) {has_side_effect = true} : (tensor<8xf32>) -> ()
    return""")
    assert run_peer(text, f"func.func(sdy-{FULL})").failure
    assert shardy.transform(text, FULL).count("sdy.all_reduce") == 1


def test_unknown_modes_are_errors() -> None:
    with pytest.raises(ProgramError, match="shardy, global"):
        shardy.transform("module {}", SOME + "{mode=local}")
