"""Triton's removals replaced: all, all but the first, and so on, as far as they are asked for."""

from dataclasses import dataclass

from eggshard.triton.compiler.replacing import replaced


@dataclass
class Plan:
    cost: float
    given_cost: float
    of: tuple[str, ...]


def search(price, removals=3):
    """The plans, and the pipelines that were run so far; a step is priced by its number."""
    runs = []

    def run(tap):
        runs.append([])
        module: tuple[str, ...] = ()
        for position in range(removals):
            def remove(m, position=position):
                runs[-1].append(f"Triton {position}")
            module = tap(position, module, remove)
        return module

    def plan(module):
        return Plan(price(module), 10.0, module)

    return replaced(run, plan, lambda planned: (*planned.of, "ours")), runs


def test_removals_are_replaced_from_the_first_on_from_the_second_and_so_on():
    plans, runs = search(lambda module: float(len(module)))
    assert [plan.of for plan in plans] == [("ours",) * 3, ("ours",) * 2, ("ours",)]
    assert runs == [[], ["Triton 0"], ["Triton 0", "Triton 1"]]


def test_what_is_not_asked_for_is_not_run():
    plans, runs = search(lambda module: 1.0)
    next(plans)
    assert len(runs) == 1


def test_a_plan_that_gains_nothing_leaves_the_module():
    plans, _ = search(lambda module: 10.0)
    assert next(plans).of == ()


def test_a_pipeline_without_removals_has_none():
    assert list(search(lambda module: 0.0, removals=0)[0]) == []
