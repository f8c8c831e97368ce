"""The exhaustive search over exchange schedules: what is known of its optima."""

import itertools
import math

import pytest

pytest.importorskip("jax")

from bench.exchange_search import Chain, best_schedule, exchanges  # noqa: E402

from eggshard.costmodel import AlphaBeta, Messages, WireBytes  # noqa: E402
from eggshard.program.mesh import Mesh  # noqa: E402

ROWS = Chain(Mesh({"x": 8}), (32,), (8,), 64, 1, 6, 4)


def model(latency: float) -> AlphaBeta:
    return AlphaBeta(launch=0.0, latency=latency, bandwidth=1e11, flops=1e12, memory=1e30)


def test_free_messages_mean_an_exchange_per_step() -> None:
    best = best_schedule(ROWS, model(0.0))
    assert (best.messages, best.widths, best.gathered) == (12, (1,) * 6, False)


def test_dear_messages_mean_one_exchange() -> None:
    best = best_schedule(ROWS, model(1e-6))
    assert (best.messages, exchanges(best)) == (2, [6])
    assert best_schedule(ROWS, Messages()).gathered  # one collective is less than two


def test_bytes_do_not_depend_on_widths_in_one_dimension() -> None:
    best = best_schedule(ROWS, WireBytes())
    assert math.isclose(best.seconds, 1e-9 * 6 * 2 * 64 * 4, rel_tol=1e-3)


def test_corners_cost_bytes_in_two_dimensions() -> None:
    plane = Chain(Mesh({"x": 4, "y": 2}), (8, 8), (4, 2), 1, 1, 3, 4, wrapped=True)
    best = best_schedule(plane, model(1e-5))
    assert (best.messages, exchanges(best)) == (4, [3])
    assert best_schedule(plane, WireBytes()).messages == 12


@pytest.mark.parametrize("latency", [0.0, 1e-9, 1e-8, 1e-7])
def test_against_all_partitions_of_the_steps(latency: float) -> None:
    """In one dimension the best schedule splits the steps into runs, each with one exchange as wide as the run."""
    costs = []
    for cuts in itertools.chain.from_iterable(itertools.combinations(range(1, 6), k) for k in range(6)):
        seconds = 0.0
        for start, stop in itertools.pairwise((0, *cuts, 6)):
            u = stop - start
            seconds += 2 * latency + 2 * u * 64 * 4 / 1e11
            seconds += sum((32 + 2 * (u - i)) * 64 * 4 / 1e12 for i in range(1, u + 1))
        costs.append(seconds)
    assert math.isclose(best_schedule(ROWS, model(latency)).seconds, min(costs), rel_tol=1e-9)
