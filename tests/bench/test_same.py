"""The bench of equal plans: digests tell plans apart, and the same program gives the same one."""

from __future__ import annotations

from dataclasses import replace

from bench import same
from bench.programs import by_name, dense

import eggshard as es


def test_plans_of_one_process_are_the_same() -> None:
    name = "chain of 3, weights x -"
    found = same.plans(name, runs=2)
    assert not found["late"] and len(found["plans"][name]) == 2 and len(set(found["plans"][name])) == 1


def test_a_digest_is_of_the_plan_and_of_nothing_measured() -> None:
    plan = es.optimize(by_name(dense.PROGRAMS)["chain of 3, weights x -"].lower())
    slower = replace(plan, search=replace(plan.search, seconds={"read": 99.0}))
    assert same.digest(plan) == same.digest(slower) != same.digest(plan.baseline)


def test_all_programs_are_there() -> None:
    from bench.programs import reshard, stencil

    names = by_name([*dense.PROGRAMS, *reshard.PROGRAMS, *stencil.PROGRAMS])
    assert set(same.PROGRAMS) <= set(names)
