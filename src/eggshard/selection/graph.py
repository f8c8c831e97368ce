"""The class graph of a problem: order, cycles, and the classes that every plan computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from eggshard.selection.levels import Levels
from eggshard.selection.problem import Problem


class Graph:
    """Operand relations between the classes of a problem, over the choices of finite cost."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        #: operands[c]: the classes that some choice of c needs.
        self.operands: list[tuple[int, ...]] = [
            tuple(dict.fromkeys(a for s in choices if s.cost < math.inf for a, _ in s.needs))
            for choices in problem.choices
        ]
        #: Strongly connected components, operands before consumers.
        self.components: list[list[int]] = strong_components(self.operands)
        self.component: list[int] = [0] * len(self.operands)
        for i, members in enumerate(self.components):
            for c in members:
                self.component[c] = i
        #: cyclic[c]: whether c can be computed from itself.
        self.cyclic: list[bool] = [
            len(self.components[self.component[c]]) > 1 or c in self.operands[c] for c in range(len(self.operands))
        ]
        self.has_cycles: bool = any(self.cyclic)

    @property
    def order(self) -> list[int]:
        """All classes, operands before consumers except inside cycles."""
        return [c for members in self.components for c in members]

    @cached_property
    def levels(self) -> Levels:
        """The problem, level by level."""
        return Levels(self.problem, self.components, self.operands)

    @cached_property
    def conversions(self) -> list[list[list[float]]]:
        """The problem's costs of conversions, as lists, of which classes share what they share there."""
        lists: dict[int, list[list[float]]] = {}
        for table in self.problem.conversions:
            if id(table) not in lists:
                lists[id(table)] = table.tolist()
        return [lists[id(table)] for table in self.problem.conversions]

    @cached_property
    def essential(self) -> list[int]:
        """The classes that every plan computes, sorted.

        must(c), the classes in every derivation of c, is the largest solution of
        must(c) = {c} + intersection over choices of (union over needs of must(operand)); bit sets.
        """
        everything = (1 << len(self.operands)) - 1
        must = [everything] * len(self.operands)
        alternatives = [
            list(dict.fromkeys(frozenset(a for a, _ in s.needs) for s in choices if s.cost < math.inf))
            for choices in self.problem.choices
        ]
        for members in self.components:
            changed = True
            while changed:
                changed = False
                for c in members:
                    common = everything
                    for operands in alternatives[c]:
                        union = 0
                        for a in operands:
                            union |= must[a]
                        common &= union
                    common |= 1 << c
                    if common != must[c]:
                        must[c] = common
                        changed = self.cyclic[c]
        found = 0
        for c, _ in self.problem.roots:
            found |= must[c]
        return [c for c in range(len(self.operands)) if found >> c & 1]


def strong_components(successors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Tarjan's algorithm without recursion: components of ``node -> successors``, successors' components first."""
    index = [-1] * len(successors)
    low = [0] * len(successors)
    on_stack = [False] * len(successors)
    stack: list[int] = []
    components: list[list[int]] = []
    counter = 0
    for start in range(len(successors)):
        if index[start] >= 0:
            continue
        work = [(start, 0)]
        while work:
            node, position = work.pop()
            if position == 0:
                index[node] = low[node] = counter
                counter += 1
                stack.append(node)
                on_stack[node] = True
            for i in range(position, len(successors[node])):
                child = successors[node][i]
                if index[child] < 0:
                    work.append((node, i + 1))
                    work.append((child, 0))
                    break
                if on_stack[child]:
                    low[node] = min(low[node], index[child])
            else:
                if low[node] == index[node]:
                    component: list[int] = []
                    while not component or component[-1] != node:
                        component.append(stack.pop())
                        on_stack[component[-1]] = False
                    components.append(sorted(component))
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
    return components
