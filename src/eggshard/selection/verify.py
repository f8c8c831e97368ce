"""The exact checker of selections: validity, price, and the cheapest conversions for given choices.

Every search method's answer passes through here, so that none has to be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from eggshard.selection.problem import Choice, Problem, Selection

Need = tuple[int, int]


def price(problem: Problem, selection: Selection) -> float:
    """The DAG cost of a selection: every chosen choice and every listed conversion, once each."""
    computed = [problem.choices[c][s].cost for c, chosen in selection.chosen.items() for s in set(chosen)]
    converted = [float(problem.conversions[c][p, q]) for c, p, q in set(selection.conversions)]
    return math.fsum(computed) + math.fsum(converted)


def check(problem: Problem, selection: Selection) -> list[str]:
    """The reasons why a selection is no plan; empty for a valid one.

    A choice is ready once all its needs are; a need (class, q) is there once a ready choice of the class has out q,
    or a ready out p with a listed conversion p -> q. Every chosen choice must become ready: what never does needs
    itself, or something that is not chosen. A placement is computed or converted to, not both. Classes of which the
    problem says so have one chosen choice at most.
    """
    reasons = []
    made: dict[Need, list[int]] = {}
    for c, chosen in selection.chosen.items():
        for s in chosen:
            if not (0 <= c < len(problem.choices) and 0 <= s < len(problem.choices[c])):
                return [f"class {c} has no choice {s}"]
            if not math.isfinite(problem.choices[c][s].cost):
                reasons.append(f"choice {s} of class {c} has no finite cost")
            made.setdefault((c, problem.choices[c][s].out), []).append(s)
        if c in problem.single and len(set(chosen)) > 1:
            reasons.append(f"class {c} is computed {len(set(chosen))} times, and may be once")
    sources: dict[Need, list[Need]] = {shard: [shard] for shard in made}
    for c, p, q in selection.conversions:
        if (c, p) not in made:
            reasons.append(f"conversion {p} -> {q} of class {c} starts at a placement that is not computed")
        elif not math.isfinite(problem.conversions[c][p, q]):
            reasons.append(f"class {c} cannot be converted from {p} to {q}")
        elif (c, q) in made:
            reasons.append(f"class {c} is both computed at placement {q} and converted to it")
        else:
            sources.setdefault((c, q), []).append((c, p))
    for need in problem.roots:
        if need not in sources:
            reasons.append(f"root class {need[0]} is not delivered at placement {need[1]}")
    for c, chosen in selection.chosen.items():
        for s in chosen:
            for need in problem.choices[c][s].needs:
                if need not in sources:
                    reasons.append(f"choice {s} of class {c} needs class {need[0]} at placement {need[1]}")
    if not reasons:
        stuck = _never_ready(problem, selection.chosen, sources)
        reasons += [f"choice {s} of class {c} needs itself" for c, s in stuck]
    return reasons


def complete(problem: Problem, chosen: Mapping[int, Iterable[int]]) -> Selection | None:
    """The selection that converts from the cheapest chosen source and drops the choices that nothing needs.

    None if these choices make no valid plan, as where a class that may be computed once is needed from two of its
    choices. Where the cheapest sources run in a cycle, sources are taken in the
    order in which the choices become ready instead.
    """
    for find_sources in (_cheapest_sources, _ready_sources):
        selection = _from_sources(problem, chosen, find_sources(problem, chosen))
        if selection is not None and not check(problem, selection):
            selection.cost = price(problem, selection)
            return selection
    return None


def _from_sources(
    problem: Problem, chosen: Mapping[int, Iterable[int]], sources: Mapping[Need, int]
) -> Selection | None:
    """Walk from the roots through the sources; ``sources[class, q]`` is the out that serves need q."""
    by_out = _by_out(problem, chosen)
    used: dict[int, list[int]] = {}
    conversions: list[tuple[int, int, int]] = []
    seen: set[Need] = set()
    computed: set[Need] = set()
    stack = list(reversed(problem.roots))
    while stack:
        need = stack.pop()
        if need in seen:
            continue
        seen.add(need)
        c, q = need
        p = sources.get(need)
        if p is None:
            return None
        if p != q:
            conversions.append((c, p, q))
        if (c, p) not in computed:
            computed.add((c, p))
            used.setdefault(c, []).append(by_out[c][p])
            stack.extend(reversed(problem.choices[c][by_out[c][p]].needs))
    return Selection({c: tuple(sorted(used[c])) for c in sorted(used)}, tuple(sorted(conversions)), 0.0)


def _by_out(problem: Problem, chosen: Mapping[int, Iterable[int]]) -> dict[int, dict[int, int]]:
    """{class: {out: the cheapest chosen choice with that out}}."""
    by_out: dict[int, dict[int, int]] = {}
    for c, some in chosen.items():
        outs = by_out.setdefault(c, {})
        for s in some:
            choice = problem.choices[c][s]
            if choice.out not in outs or choice.cost < problem.choices[c][outs[choice.out]].cost:
                outs[choice.out] = s
    return by_out


def _cheapest_sources(problem: Problem, chosen: Mapping[int, Iterable[int]]) -> dict[Need, int]:
    by_out = _by_out(problem, chosen)
    sources: dict[Need, int] = {}
    for need in _needs(problem, by_out):
        c, q = need
        costs = problem.conversions[c]
        options = [p for p in by_out.get(c, ()) if math.isfinite(costs[p, q])]
        if options:
            sources[need] = q if q in options else min(options, key=lambda p: (costs[p, q], p))
    return sources


def _ready_sources(problem: Problem, chosen: Mapping[int, Iterable[int]]) -> dict[Need, int]:
    """As `_cheapest_sources`, from what is ready when the need first arises; the sources cannot run in a cycle."""
    by_out = _by_out(problem, chosen)
    waiting = [(c, s) for c, outs in by_out.items() for s in outs.values()]
    ready: dict[int, list[int]] = {}
    sources: dict[Need, int] = {}

    def source(need: Need) -> int | None:
        c, q = need
        costs = problem.conversions[c]
        options = [p for p in ready.get(c, ()) if math.isfinite(costs[p, q])]
        return min(options, key=lambda p: (p != q, costs[p, q], p)) if options else None

    while waiting:
        later = []
        for c, s in waiting:
            choice = problem.choices[c][s]
            if sources.get((c, choice.out), choice.out) != choice.out:
                continue  # this placement is converted to; computing it too would leave two of it
            found = {need: source(need) for need in choice.needs if need not in sources}
            if any(p is None for p in found.values()):
                later.append((c, s))
                continue
            sources.update({need: p for need, p in found.items() if p is not None})
            ready.setdefault(c, []).append(choice.out)
        if len(later) == len(waiting):
            break
        waiting = later
    for need in problem.roots:
        p = source(need) if need not in sources else None
        if p is not None:
            sources[need] = p
    return sources


def _needs(problem: Problem, by_out: Mapping[int, Mapping[int, int]]) -> list[Need]:
    needs = list(problem.roots)
    for c, outs in by_out.items():
        for s in outs.values():
            needs.extend(problem.choices[c][s].needs)
    return needs


def _never_ready(
    problem: Problem, chosen: Mapping[int, Iterable[int]], sources: Mapping[Need, list[Need]]
) -> list[tuple[int, int]]:
    """The chosen choices that cannot be computed in any order."""
    serves: dict[Need, list[Need]] = {}  # out -> the needs that it serves
    for need, shards in sources.items():
        for shard in shards:
            serves.setdefault(shard, []).append(need)
    waits: dict[Need, list[tuple[int, int]]] = {}  # need -> choices that wait for it
    missing: dict[tuple[int, int], int] = {}
    queue = []
    for c, some in chosen.items():
        for s in set(some):
            choice: Choice = problem.choices[c][s]
            missing[c, s] = len(set(choice.needs))
            for need in set(choice.needs):
                waits.setdefault(need, []).append((c, s))
            if not choice.needs:
                queue.append((c, s))
    there: set[Need] = set()
    while queue:
        c, s = queue.pop()
        for need in serves.get((c, problem.choices[c][s].out), ()):
            if need not in there:
                there.add(need)
                for waiting in waits.get(need, ()):
                    missing[waiting] -= 1
                    if not missing[waiting]:
                        queue.append(waiting)
    return sorted(node for node, count in missing.items() if count)
