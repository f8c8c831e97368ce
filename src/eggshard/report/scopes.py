"""Named scopes of a program's ops (`jax.named_scope`, modules of Flax), runs of steps that are of one scope, and
element-wise steps that compilers fuse."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from eggshard.ops import registry
from eggshard.steps.steps import Local, Step

#: The least number of steps that are shown as one fused kernel.
LEAST_FUSED = 3
#: What compilers fuse besides element-wise ops.
_FUSED_TOO = ("broadcast_in_dim", "reshape")
#: The least number of steps of a run; a shorter one joins its neighbour.
LEAST_RUN = 6
#: Names that JAX writes for control flow and for calls, which are nobody's scopes.
_CALLS = re.compile(
    r"while|body|cond|scan|branch_\d+_fun|closed_call|checkpoint|remat\d*|custom_(?:jvp|vjp)_call\w*|\w*pjit")
_WRAPPED = re.compile(r"(\w+)\((.*)\)")

Scope = tuple[str, ...]


def scope_of(location: str) -> Scope | None:
    """The scopes of an op, from the outermost on, by its location; None where it tells none.

    >>> scope_of("jit(step)/transpose(jvp(layer0))/attention/dot_general at train.py:9")
    ('layer0, gradient', 'attention')
    """
    parts = _split(location.partition(" at ")[0])
    if len(parts) < 2:
        return None
    names, backward = [], False
    for part in parts[:-1]:  # the last is the op
        while wrapped := _WRAPPED.fullmatch(part):
            backward |= wrapped[1] == "transpose"
            part = "" if wrapped[1] in ("jit", "pjit") else wrapped[2]
        if part and not _CALLS.fullmatch(part):
            names.append(part)
    if backward:
        names[:1] = [f"{names[0]}, gradient" if names else "gradient"]
    return tuple(names)


def _split(path: str) -> list[str]:
    """A path at slashes outside parentheses."""
    parts, depth = [""], 0
    for char in path:
        depth += (char == "(") - (char == ")")
        if char == "/" and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts


class Run(NamedTuple):
    """Steps in a row of one scope: the first, how many, and the runs of inner scopes in it (none where it has one)."""

    name: str
    start: int
    size: int
    within: tuple[Run, ...] = ()


def runs_of(scopes: Sequence[Scope], start: int = 0, depth: int = 0) -> tuple[Run, ...]:
    """The runs of the outermost scopes, each with those within; parts of one scope are numbered."""
    found = []
    for name, first, count in merged([scope[depth] if len(scope) > depth else "" for scope in scopes]):
        inside = [scope if scope[depth : depth + 1] == (name,) else () for scope in scopes[first : first + count]]
        within = runs_of(inside, start + first, depth + 1) if any(len(scope) > depth + 1 for scope in inside) else ()
        found.append(Run(str(name), start + first, count, within if len(within) > 1 else ()))
    total: dict[str, int] = {}
    for run in found:
        total[run.name] = total.get(run.name, 0) + 1
    seen: dict[str, int] = {}
    named = []
    for run in found:
        seen[run.name] = part = seen.get(run.name, 0) + 1
        name = (run.name or "outside any scope") + (f", part {part}" if total[run.name] > 1 else "")
        named.append(run._replace(name=name))
    return tuple(named)


def merged(labels: Sequence[Hashable]) -> list[tuple[Hashable, int, int]]:
    """Runs of equal labels: label, first, how many; short ones joined to the one before."""
    runs: list[tuple[Hashable, int, int]] = []
    first = 0
    for label, some in groupby(labels):
        count = len(list(some))
        if runs and (runs[-1][0] == label or count < LEAST_RUN):
            runs[-1] = (runs[-1][0], runs[-1][1], runs[-1][2] + count)
        else:
            runs.append((label, first, count))
        first += count
    if len(runs) > 1 and runs[0][2] < LEAST_RUN:
        (_, _, short), second = runs.pop(0), runs[0]
        runs[0] = (second[0], 0, second[2] + short)
    return runs


def fused(steps: Sequence[Step]) -> list[int]:
    """Per step the number of its chain, -1 outside of any: element-wise steps in a row, each of which reads what one
    before it makes, as compilers make one kernel of."""
    found, chains = [-1] * len(steps), 0
    for chain in _chains(steps):
        if len(chain) >= LEAST_FUSED:
            found[chain.start : chain.stop] = [chains] * len(chain)
            chains += 1
    return found


def _chains(steps: Sequence[Step]) -> Iterator[range]:
    first = 0
    while first < len(steps):
        end, made = first + 1, set(steps[first].results)
        while _fusible(steps[first]) and end < len(steps) and _fusible(steps[end]) and made & {*steps[end].operands}:
            made.update(steps[end].results)
            end += 1
        yield range(first, end)
        first = end


def _fusible(step: Step) -> bool:
    action = step.action
    return isinstance(action, Local) and registry.known(action.name) and (
        registry.get(action.name).pointwise or action.name in _FUSED_TOO)
