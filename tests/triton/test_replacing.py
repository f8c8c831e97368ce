"""Which of Triton's removals are replaced: decided by what comes out at the end."""

from dataclasses import dataclass

from eggshard.triton.replacing import replaced


@dataclass
class Plan:
    cost: float
    of: tuple[str, ...]


def search(costs, enough, removals=3):
    """What is found where replacing from removal k on ends at ``costs[k]``; and the pipelines that were run."""
    runs = []

    def run(tap):
        module: tuple[str, ...] = ()
        for position in range(removals):
            def remove(m, position=position):
                runs[-1].append(f"Triton {position}")
            if not position:
                runs.append([])
            module = tap(position, module, remove)
        return module

    def plan(module):
        ours = sum(step == "ours" for step in module)
        return Plan(costs[removals - ours] if len(runs) and ours <= removals else 0.0, module)

    found = replaced(run, plan, lambda planned: (*planned.of, "ours"), enough)
    return found, runs


def test_all_are_replaced_where_that_is_good_enough():
    found, runs = search([5.0, 1.0, 1.0, 9.0], 5.0)
    assert found.cost == 5 and runs == [[]]


def test_else_later_ones_alone_and_the_cheapest_is_taken():
    found, runs = search([9.0, 7.0, 8.0, 9.0], 5.0)
    assert found.cost == 7 and found.of == ("ours", "ours")
    assert runs == [[], ["Triton 0"], ["Triton 0", "Triton 1"]]


def test_a_pipeline_without_removals_has_none():
    assert replaced(lambda tap: (), lambda module: Plan(0.0, module), lambda plan: plan.of, 0.0) is None
