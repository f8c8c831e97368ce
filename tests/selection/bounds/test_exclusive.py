"""Uses that no plan makes together."""

import numpy as np

from eggshard.selection.bounds.dual import Dual
from eggshard.selection.bounds.exclusive import contexts, exclude, groups, within
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Choice, Problem

ONE = np.zeros((1, 1))


def alternatives(roots: list[tuple[int, int]], conversion: float = 10.0) -> Problem:
    """Class 0 by way of class 1 or of class 2, which both need class 3 where it is not made."""
    return Problem(
        [
            [Choice(0, 1.0, ((1, 0),)), Choice(0, 1.0, ((2, 0),))],
            [Choice(0, 1.0, ((3, 1),))],
            [Choice(0, 1.0, ((3, 1),))],
            [Choice(0, 1.0, ())],
        ],
        [ONE, ONE, ONE, np.array([[0.0, conversion], [conversion, 0.0]])],
        roots,
    )


def test_alternatives_exclude_each_other():
    known = contexts(Graph(alternatives([(0, 0)])))
    assert known[0] == {} and known[1] == {0: 0b01} and known[2] == {0: 0b10}
    uses = [within(known[c], c, 1) for c in (1, 2)]
    assert exclude(*uses) and groups(uses) == [[0, 1]]


def test_what_a_root_asks_for_excludes_nothing():
    known = contexts(Graph(alternatives([(0, 0), (1, 0)])))
    assert known[1] == {}
    assert groups([within(known[c], c, 1) for c in (1, 2)]) == [[0], [1]]


def test_a_user_of_both_alternatives_excludes_nothing():
    problem = alternatives([(0, 0)])
    problem.choices[0].append(Choice(0, 1.0, ((1, 0), (2, 0))))
    known = contexts(Graph(problem))
    assert known[1] == {0: 0b101} and known[2] == {0: 0b110}
    assert not exclude(within(known[1], 1, 1), within(known[2], 2, 1))


def test_an_operand_of_alternatives_is_paid_whole():
    """Halves of two alternatives would share half a conversion."""
    dual = Dual(Graph(alternatives([(0, 0)])), 13.0)
    assert max(dual.ascend()) > 0.999
