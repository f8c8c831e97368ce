"""A plan cut at values that its steps are said to hold: many short proofs in place of a long one.

A device program notes which of the program's values its own are (`StepPlan.held`). Where each of these values, as a
function of those before it, is what the program makes of the same ones, whatever they are, plan and program agree: by
induction over the steps. So such values become inputs, of random elements, and outputs, to be compared. Nothing is
taken from the notes on trust: a wrong one makes a difference. Layers need no longer be followed from the first to the
last, so that expressions are short and few places suffice for them (`places`). And what is computed by equal ops, and
equal steps, from values of equal types and placements is the same lemma, in every layer: it is proved once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from eggshard.limits import Deadline
from eggshard.ops import registry
from eggshard.program.placement import Placement, is_even
from eggshard.program.program import Op, Region
from eggshard.program.types import is_float
from eggshard.prove.choices import compares, has_few_values
from eggshard.prove.sizes.classes import Container, items
from eggshard.steps.steps import Action, AllReduce, Step, StepPlan
from eggshard.steps.window_steps import JointExchange

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

#: Ops besides pointwise ones whose results are cut at: what only moves is part of what takes it.
_MAKING = frozenset(("convolution", "dot", "dot_general", "reduce", "while"))


class _Lemma(NamedTuple):
    """A value of the program and one of the plan that is said to hold it. output: it is one, and not cut at."""

    value: int
    held: int
    placement: Placement
    output: bool = False


class Lemmas(NamedTuple):
    """What a plan is cut into.

    parts: plans, with a lemma as each output. number: of all lemmas, equal ones too. used: per output of each part the
    program's values, cut at, that it and its equals are computed of. plan: what was cut, at no value of ``uncut``.
    """

    parts: list[PlanRecord]
    number: int
    plan: PlanRecord
    used: list[list[frozenset[int]]]
    uncut: frozenset[int] = frozenset()

    def coarser(self, part: int, output: int, deadline: Deadline | None = None) -> Lemmas | None:
        """The plan cut at fewer values: at none that an output is computed of; None if that is computed of inputs, or
        no lemma is left. TimeoutError once the deadline has passed."""
        used = self.used[part][output] if output >= 0 else frozenset()
        return cut_at_lemmas(self.plan, deadline, self.uncut | used) if used else None


def cut_at_lemmas(
    plan: PlanRecord, deadline: Deadline | None = None, uncut: frozenset[int] = frozenset()
) -> Lemmas | None:
    """The plan of its lemmas, each as an output of values of which it is computed; None without any.

    Lemmas on which integers or comparisons have a say are a plan by themselves: they take many more runs.
    uncut: values of the program that are not cut at. TimeoutError once the deadline has passed.
    """
    region, device_program = plan.program.region, _separated(plan.device_program)
    mine, its = _Slices(region, _equal_values(region)), _Slices(device_program)
    cuts = {v: lemma for v, lemma in _noted(plan, mine.same).items() if v not in uncut}
    outputs = [
        _Lemma(mine.same[v], w, placement, True)
        for v, w, placement in zip(region.outputs, device_program.outputs, plan.output_placements, strict=True)
    ]

    def timely(found: Iterable[_Lemma]) -> Iterator[_Lemma]:
        for one in found:
            if deadline is not None and deadline.passed:
                raise TimeoutError
            yield one

    while True:
        there = {lemma.held: v for v, lemma in cuts.items()} | {w: w for w in device_program.inputs}
        here = {*cuts, *region.inputs}
        made = {lemma: (mine.of(lemma.value, here, lemma.output)[1],
                        {there[w] for w in its.of(lemma.held, there, lemma.output)[1]})
                for lemma in timely((*cuts.values(), *outputs))}
        below = {v: made[lemma][0] for v, lemma in cuts.items()}
        apart = {v for both in made.values() for v in _apart(*both, below)}
        if not apart.intersection(cuts):
            break
        cuts = {v: lemma for v, lemma in cuts.items() if v not in apart}
    if not cuts:
        return None
    # Variables: inputs, which have the same numbers in both, and cuts.
    count = len(region.inputs)
    names = {v: v for v in region.inputs} | {v: count + k for k, v in enumerate(cuts)}
    names_there = {w: w for w in device_program.inputs} | {w: names[v] for w, v in there.items()}
    placements = (*plan.input_placements, *(lemma.placement for lemma in cuts.values()))
    forms: dict[object, _Lemma] = {}
    used_by: dict[_Lemma, set[int]] = {}
    for lemma in timely((*cuts.values(), *outputs)):
        order: dict[int, int] = {}
        sides = [slices.form(value, named, lemma.output, order)
                 for slices, value, named in ((mine, lemma.value, names), (its, lemma.held, names_there))]
        used = tuple(placements[k] for k in order)
        first = forms.setdefault((*sides, used, lemma.placement), lemma)
        used_by.setdefault(first, set()).update(mine.of(lemma.value, cuts, lemma.output)[1])
    groups: dict[object, list[_Lemma]] = {}
    for lemma in forms.values():
        groups.setdefault(mine.decided_by(lemma.value, cuts, lemma.output), []).append(lemma)

    def made_of(lemmas: Sequence[_Lemma]) -> PlanRecord:
        ends, ends_there = [(one.value, one.output) for one in lemmas], [(one.held, one.output) for one in lemmas]
        needed = sorted({
            named[v] for slices, which, named in ((mine, ends, names), (its, ends_there, names_there))
            for value, output in which for v in slices.of(value, named, output)[1]
        })
        made = replace(
            plan.program, region=mine.restricted(ends, names, needed), text=None, input_names=(), output_names=(),
            input_shardings=(None,) * len(needed), output_shardings=(None,) * len(lemmas),
        )
        return replace(
            plan, program=made, device_program=its.restricted(ends_there, names_there, needed),
            input_placements=tuple(placements[k] for k in needed),
            output_placements=tuple(lemma.placement for lemma in lemmas),
        )

    return Lemmas([made_of(lemmas) for lemmas in groups.values()], len(cuts), plan,
                  [[frozenset(used_by[lemma]) for lemma in lemmas] for lemmas in groups.values()], uncut)


def _apart(mine: set[int], its: set[int], below: Mapping[int, set[int]]) -> set[int]:
    """Where a lemma of these variables in the program, and of those in the plan, can't be cut; ``below``: what each cut
    is made of.

    What one side uses besides, the other has in a cut that is made of it, which the first makes once more: there
    neither is cut. Without such a cut, they are not cut at what is used besides.
    """
    found: set[int] = set()
    for one, other in ((mine, its), (its, mine)):
        more = one - other
        again = {v for v in other if more.intersection(below.get(v, ()))} if more else set()
        found |= again or more
    return found


def _separated(device_program: StepPlan) -> StepPlan:
    """Values that travel together, each by a collective of its own: they depend on no more than they are made of."""
    def separated(step: Step) -> Iterable[Step]:
        if isinstance(step.action, AllReduce):
            actions: Sequence[Action] = [step.action] * len(step.operands)
        elif isinstance(step.action, JointExchange):
            actions = step.action.parts
        else:
            return [step]
        return [replace(step, action=action, operands=(v,), results=(w,))
                for action, v, w in zip(actions, step.operands, step.results, strict=True)]

    return replace(device_program, steps=tuple(one for step in device_program.steps for one in separated(step)))


def _equal_values(region: Region) -> list[int]:
    """For every value the first that is computed in the same way."""
    same = list(range(len(region.types)))
    first: dict[object, Op] = {}
    for op in region.ops:
        key = op.name, op.attributes, tuple(same[v] for v in op.operands), op.regions
        found = first.setdefault(key, op)
        for v, w in zip(op.results, found.results, strict=True):
            same[v] = w
    return same


def _noted(plan: PlanRecord, same: Sequence[int]) -> dict[int, _Lemma]:
    """Values of the program, in the order of the steps, that a value of the plan is said to be, evenly cut or whole."""
    region, device_program = plan.program.region, plan.device_program
    made = {v: op.name for op in region.ops for v in op.results}
    made_there = {w for step in device_program.steps for w in step.results}
    varies = {*region.inputs}
    for op in region.ops:
        if varies.intersection(op.operands):
            varies.update(op.results)
    out: dict[int, _Lemma] = {}
    for w, held in enumerate(device_program.held):
        if held is None or not 0 <= held.value < len(same) or w not in made_there:
            continue
        v, placement = same[held.value], held.placement
        name = made.get(v, "")
        worth = name in _MAKING or bool(name) and registry.get(name).pointwise
        fits = region.types[v] == held.type and placement.local_type(held.type) == device_program.types[w]
        plain = not (placement.partial or placement.windowed) and is_even(held.type.shape, placement, plan.mesh)
        if v in varies and worth and fits and plain and is_float(held.type.dtype):
            out.setdefault(v, _Lemma(v, w, placement))
    return out


class _Slices:
    """What a region or device program computes its values from; of equal ones the first."""

    def __init__(self, container: Container, same: Sequence[int] = ()):
        self._container = container
        self.same = same or range(len(container.types))
        self._items: Sequence[Op | Step] = items(container)
        self._made = {v: number for number, item in enumerate(self._items) for v in item.results}

    def of(self, value: int, variables: Collection[int], output: bool) -> tuple[list[int], set[int]]:
        """The numbers of the ops or steps that make a value of variables, and those variables.

        output: where the value is a variable itself, it is made of that.
        """
        if output and value in variables:
            return [], {value}
        found: set[int] = set()
        numbers: set[int] = set()
        waiting = [self._made[value]] if value in self._made else []
        while waiting:
            number = waiting.pop()
            if number in numbers:
                continue
            numbers.add(number)
            for v in (self.same[v] for v in self._items[number].operands):
                if v in variables:
                    found.add(v)
                elif v in self._made:
                    waiting.append(self._made[v])
        return sorted(numbers), found

    def decided_by(self, value: int, variables: Collection[int], output: bool) -> tuple[bool, bool]:
        """Whether integers decide a value that a region makes of variables, and whether comparisons do."""
        region = self._container
        assert isinstance(region, Region)
        numbers, found = self.of(value, variables, output)
        inputs = found.union(v for n in numbers for v in region.ops[n].operands if v in region.inputs)
        return (any(has_few_values(region.types[v]) for v in inputs),
                any(compares(region.ops[n], region) for n in numbers))

    def form(self, value: int, variables: Mapping[int, int], output: bool, order: dict[int, int]) -> object:
        """How a value is made of variables, equal for others that are made alike; variables are in order of use."""
        types = self._container.types
        tokens: dict[int, object] = {}

        def token(v: int) -> object:
            if v not in variables:
                return tokens[v]
            return types[v], order.setdefault(variables[v], len(order))

        entries = []
        for number in self.of(value, variables, output)[0]:
            item = self._items[number]
            does = (item.name, item.attributes, item.regions) if isinstance(item, Op) else item.action
            operands = tuple(token(self.same[v]) for v in item.operands)
            entries.append((does, operands, tuple(types[v] for v in item.results)))
            tokens.update((v, (len(entries), k)) for k, v in enumerate(item.results))
        return tuple(entries), tokens[value] if value in tokens else token(value)

    def restricted(
        self, ends: Sequence[tuple[int, bool]], variables: Mapping[int, int], inputs: Sequence[int]
    ) -> Any:
        """What makes some values, of these variables as inputs."""
        place = {name: k for k, name in enumerate(inputs)}
        use = {v: place[name] for v, name in variables.items() if name in place}
        kept = [self._items[n] for n in sorted({n for end in ends for n in self.of(end[0], variables, end[1])[0]})]
        results = [v for item in kept for v in item.results]
        made = {v: len(inputs) + k for k, v in enumerate(results)}
        values = {k: v for v, k in use.items()}

        def moved(item: Op | Step) -> Op | Step:
            operands = (self.same[v] for v in item.operands)
            return replace(item, results=tuple(made[v] for v in item.results),
                           operands=tuple(use[v] if v in use else made[v] for v in operands))

        changed = tuple(map(moved, kept))
        part: Any = {"ops" if isinstance(self._container, Region) else "steps": changed}
        return replace(
            self._container, inputs=tuple(range(len(inputs))), **part,
            outputs=tuple(use[v] if output and v in use else made[v] for v, output in ends),
            types=tuple(self._container.types[v] for v in (*(values[k] for k in range(len(inputs))), *results)),
        )
