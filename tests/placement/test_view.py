"""Which strategies are kept where there are too many: those in view, whatever the number of axes and the limit."""

import random

import pytest

from eggshard.ops.base import REDUCE, Factor, FactorRule
from eggshard.placement.transfer import enumerated
from eggshard.placement.view import View
from eggshard.program.mesh import Mesh

DOT = FactorRule(
    (Factor(1024), Factor(1024), Factor(1024, REDUCE, "add")),
    (((0,), (2,)), ((2,), (1,))), (((0,), (1,)),), (("add", (0,)), ("add", (1,))),
)
TENSORS = (*DOT.operands, *DOT.results)


def mesh(axes: int) -> Mesh:
    return Mesh({name: 2 for name in "abcdefgh"[:axes]})


def spread_of(tensor, roles):
    return tuple(tuple(a for a, role in roles.items() if role in dim) for dim in tensor)


@pytest.mark.parametrize("axes", [4, 6, 8])
@pytest.mark.parametrize("seed", range(8))
def test_what_the_program_says_of_an_op_is_never_cut(axes: int, seed: int) -> None:
    rng = random.Random(seed)
    roles = {a: rng.choice([-1, 0, 1, 2]) for a in "abcdefgh"[:axes]}
    spreads = tuple(spread_of(t, roles) for t in TENSORS)
    view = View(frozenset(roles), tuple((s,) for s in spreads), (spreads,))
    found = enumerated(mesh(axes), DOT, limit=16, view=lambda: view).found
    assert any(tuple(tuple(d.axes for d in p.dims) for p in (*s.operands, *s.results)) == spreads for s in found)
    # Each tensor alone, too: the others follow it.
    for i, spread in enumerate(spreads):
        assert any(tuple(d.axes for d in (*s.operands, *s.results)[i].dims) == spread for s in found)


@pytest.mark.parametrize("axes", [5, 7])
def test_axes_in_use_come_before_others(axes: int) -> None:
    view = View(frozenset("ab"), ((), (), ()))
    found = enumerated(mesh(axes), DOT, limit=100, view=lambda: view)
    assert found.cut and len(found.found) == 100
    known = {s for s in enumerated(Mesh({"a": 2, "b": 2}), DOT).found}
    named = [s for s in found.found if all(set(p.used_axes) <= {"a", "b"} for p in (*s.operands, *s.results))]
    assert len(named) == len(known)
    # Of the others, those come first in which unused axes play one role.
    rest = [s for s in found.found if s not in named]
    assert rest and all(set(p.used_axes) - {"a", "b"} in (set(), set("cdefgh"[: axes - 2])) for s in rest[:10]
                        for p in (*s.operands, *s.results))


def test_nothing_is_reordered_where_nothing_is_cut() -> None:
    def never() -> View:
        raise AssertionError("asked for a view")

    small = Mesh({"x": 4, "y": 2})
    assert enumerated(small, DOT, view=never).found == enumerated(small, DOT).found
    assert not enumerated(small, DOT).cut


def test_everything_is_enumerated_in_the_end() -> None:
    view = View(frozenset("ab"), ((), (), ()))
    all_of_them = enumerated(mesh(4), DOT).found
    some = enumerated(mesh(4), DOT, limit=len(all_of_them) - 1, view=lambda: view)
    assert some.cut and set(some.found) < set(all_of_them) and len(some.found) == len(all_of_them) - 1
