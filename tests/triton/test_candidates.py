"""Which encodings tensors may have: what anchors want, followed through the ops, and what is there."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.triton.planned import checked, kernel_of, ops, vector

from eggshard.triton import candidates
from eggshard.triton.candidates import Candidates, encoding_of, find_candidates
from eggshard.triton.classes import Classes, find_classes
from eggshard.triton.kernels.ir import Kernel


def found_of(kernel: Kernel) -> tuple[Classes, Candidates]:
    classes = find_classes(kernel)
    return classes, find_candidates(kernel, classes)


def chain(length: int) -> str:
    """A load at one layout, ops at another, a store at a third."""
    text = f"""{vector("one")}{vector("four", "4")}
      %x0 = tt.load %at : tensor<256x!tt.ptr<f32>, #one>
      %c0 = ttg.convert_layout %x0 : tensor<256xf32, #one> -> tensor<256xf32, #two>\n"""
    for i in range(length):
        text += f"%c{i + 1} = math.absf %c{i} : tensor<256xf32, #two>\n"
    return text + f"""
      %y = ttg.convert_layout %c{length} : tensor<256xf32, #two> -> tensor<256xf32, #four>
      tt.store %at4, %y : tensor<256x!tt.ptr<f32>, #four>"""


def test_anchors_are_followed_and_what_is_there_stays_possible() -> None:
    kernel = kernel_of(chain(3))
    classes, found = found_of(kernel)
    ends = [encoding_of(ops(kernel, "tt.load")[0].results[0]), encoding_of(ops(kernel, "tt.store")[0].operands[1])]
    for op in ops(kernel, "math.absf"):
        here = found.encodings[classes.of[op.results[0]]]
        assert set(here) == {*ends, encoding_of(op.results[0])} and not found.capped
    (load,) = ops(kernel, "tt.load")
    assert {option.results[0] for option in found.options[load]} == {ends[0]}


def test_spellings_of_a_layout_share_its_number() -> None:
    kernel = kernel_of(f"""{vector("one")}
      %x = tt.load %at : tensor<256x!tt.ptr<f32>, #one>
      %l = ttg.convert_layout %x : tensor<256xf32, #one> -> tensor<256xf32, #ttg.linear<{{register = [[128]],
        lane = [[1], [2], [4], [8], [16]], warp = [[32], [64]], block = []}}>>
      %y = ttg.convert_layout %l : tensor<256xf32, #ttg.linear<{{register = [[128]],
        lane = [[1], [2], [4], [8], [16]], warp = [[32], [64]], block = []}}>> -> tensor<256xf32, #one>
      tt.store %at, %y : tensor<256x!tt.ptr<f32>, #one>""")
    classes, found = found_of(kernel)
    c = classes.of[ops(kernel, "tt.load")[0].results[0]]
    assert len(found.encodings[c]) == 2 and set(found.encodings[c].values()) == {0}
    assert len(found.layouts(c)) == 1


def test_a_cap_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(chain(2))
    assert not checked(kernel).capped
    monkeypatch.setattr(candidates, "LAYOUTS", 1)
    plan = checked(kernel)
    assert plan.capped and "kept" in plan.certificate and plan.gap is None and plan.search_gap >= 0


def test_what_a_repeated_op_is_given_is_an_option_of_the_first() -> None:
    kernel = kernel_of(f"""{vector("one")}
      %x = tt.load %at : tensor<256x!tt.ptr<f32>, #one>
      %e = math.exp2 %x : tensor<256xf32, #one>
      %t = ttg.convert_layout %x : tensor<256xf32, #one> -> tensor<256xf32, #two>
      %f = math.exp2 %t : tensor<256xf32, #two>
      tt.store %at, %e : tensor<256x!tt.ptr<f32>, #one>""")
    classes, found = found_of(kernel)
    first, second = ops(kernel, "math.exp2")
    assert classes.same == {second: first}
    assert {option.results[0] for option in found.options[first]} == {
        encoding_of(first.results[0]), encoding_of(second.results[0])}


def test_without_anchors_what_is_there_is_followed() -> None:
    """A sum of numbers: nothing asks for a layout, and none must be converted to."""
    plan = checked(kernel_of("""
      %r = tt.make_range {start = 0 : i32, end = 256 : i32} : tensor<256xi32, #one>
      %t = ttg.convert_layout %r : tensor<256xi32, #one> -> tensor<256xi32, #two>
      %s = "tt.reduce"(%t) <{axis = 0 : i32}> ({
      ^bb0(%a: i32, %b: i32):
        %x = arith.addi %a, %b : i32
        tt.reduce.return %x : i32
      }) : (tensor<256xi32, #two>) -> i32
      tt.store %o, %s : !tt.ptr<i32>""", "%o: !tt.ptr<i32>"))
    assert plan.given_conversions == 1 and plan.conversions == 0


def test_what_varies_by_itself_is_mixed() -> None:
    """A table that one anchor wants somewhere, and indices that another wants elsewhere: neither is converted."""
    plan = checked(kernel_of(f"""{vector("one")}{vector("four", "4", "%q")}
      %x = tt.load %at : tensor<256x!tt.ptr<f32>, #one>
      %e = arith.constant dense<3> : tensor<256xi32, #two>
      %t = ttg.convert_layout %x : tensor<256xf32, #one> -> tensor<256xf32, #two>
      %g = tt.gather %t[%e] {{axis = 0 : i32}} : (tensor<256xf32, #two>, tensor<256xi32, #two>) -> tensor<256xf32, #two>
      %u = ttg.convert_layout %g : tensor<256xf32, #two> -> tensor<256xf32, #four>
      tt.store %at4, %u : tensor<256x!tt.ptr<f32>, #four>"""))
    (op,) = ops(plan.kernel, "tt.gather")
    assert plan.conversions == 0
    assert op.operands[0].type == ops(plan.kernel, "tt.load")[0].results[0].type
    assert encoding_of(op.results[0]) == encoding_of(ops(plan.kernel, "tt.store")[0].operands[1])
