"""The runner on every device, with threads for processes: the simulator's results, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emit.devices import plan_of
from tests.engines.ranks.actions import ALONE, COMMUNICATING, random_action
from tests.engines.ranks.threads import run_on_threads
from tests.engines.workspace.programs import LINE, ROW, SCALAR, branching, swapping_loop

from eggshard.engines.processes import shared_memory
from eggshard.engines.ranks.runner import communicates, stations
from eggshard.errors import LoweringError, VerificationError
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.types import TensorType, mlir_dtype
from eggshard.simulate.device_arrays import same_bits
from eggshard.simulate.simulator import run
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import AllReduce, CollectivePermute, Local, Step, StepPlan


def assert_agreement(program, shards):
    others = [np.roll(array, 1, 0) for array in shards]
    got, want = run_on_threads(program, shards, before=others), run(program, shards)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype and same_bits(g, w).all()
    return got


@pytest.mark.parametrize("kind", [*COMMUNICATING, *ALONE])
def test_every_step_as_on_the_simulator(kind, monkeypatch):
    for seed in range(6):
        monkeypatch.setattr(shared_memory, "SHARED_REDUCTION", 1 if seed % 2 else 1 << 15)
        mesh, action, operands = random_action(np.random.default_rng([seed, 3]), kind)
        types = [TensorType(x.shape[1:], mlir_dtype(x.dtype)) for x in operands]
        assert_agreement(plan_of(mesh, types, action), operands)


def rows(seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((4, 6)).astype(np.float32)


def test_a_loop_that_swaps_what_it_carries():
    assert_agreement(swapping_loop(), [rows(0), rows(1)])


@pytest.mark.parametrize("chosen", [0, 1, -1, 5])
def test_branches(chosen):
    assert_agreement(branching(), [np.full(4, chosen, np.int32), rows(2)])


def test_devices_that_do_not_agree_say_so():
    with pytest.raises(VerificationError, match="selector of a branch that communicates differs between devices"):
        run_on_threads(branching(), [np.array([0, 0, 1, 0], np.int32), rows(2)])


def constant(value, type_, result):
    return Step(Local("constant", Attributes(value=Literal(np.full(type_.shape, value, np.int32))), (type_,)), (),
                (result,))


def counting(limit, body_steps, types):
    """A loop over (counter, row) that ends when the counter reaches the limit; the body leaves its row at value 9."""
    flag = TensorType((), "i1")
    compare = Step(Local("compare", Attributes(comparison_direction="LT"), (flag,)), (0, 2), (3,))
    condition = StepPlan(LINE, (0, 1), (constant(limit, SCALAR, 2), compare), (3,), (SCALAR, ROW, SCALAR, flag))
    add = Step(Local("add", Attributes(), (SCALAR,)), (0, 2), (3,))
    steps, types = (constant(1, SCALAR, 2), add, *body_steps), (SCALAR, ROW, SCALAR, SCALAR, *types)
    return Loop(condition, StepPlan(LINE, (0, 1), steps, (3, 9), types))


def test_devices_whose_loops_do_not_communicate_run_them_as_often_as_their_data_say():
    double = Step(Local("add", Attributes(), (ROW,)), (1, 1), (9,))
    loop = counting(5, (double,), [ROW] * 6)
    program = StepPlan(LINE, (0, 1), (Step(loop, (0, 1), (2, 3)),), (3, 2), (SCALAR, ROW, SCALAR, ROW))
    assert_agreement(program, [np.array([0, 3, 5, 9], np.int32), rows(3)])


def test_loops_within_loops_and_branches():
    """Of both parities: the inner loop's inputs lie in either slot of the outer one."""
    shift = CollectivePermute(tuple((i, (i + 1) % 4) for i in range(4)), ("x",))
    inner = counting(3, (Step(shift, (1,), (4,)), Step(AllReduce(("x",), "max"), (4,), (5,)),
                         Step(Local("add", Attributes(), (ROW,)), (5, 1), (9,))), [ROW] * 6)
    through = StepPlan(LINE, (0, 1), (Step(inner, (0, 1), (2, 3)),), (3,), (SCALAR, ROW, SCALAR, ROW))
    idle = StepPlan(LINE, (0, 1), (), (1,), (SCALAR, ROW))
    outer = counting(4, (
        constant(0, SCALAR, 4), Step(Branch((idle, through), False), (2, 4, 1), (5,)),
        Step(Branch((idle, through), False), (0, 2, 5), (9,)),
    ), [SCALAR, ROW, ROW, ROW, ROW, ROW])
    program = StepPlan(LINE, (0, 1), (Step(outer, (0, 1), (2, 3)),), (3, 2, 1), (SCALAR, ROW, SCALAR, ROW))
    assert communicates(program.steps[0])
    texts = [str(s) for s in stations(program)]
    assert texts[0] == "step 0 (while)" and "step 0.body.3.branch.1.0.body.2 (collective-permute)" in texts
    assert_agreement(program, [np.zeros(4, np.int32), rows(4)])


def test_results_of_other_types_than_stated_are_refused():
    other = Step(Local("convert", Attributes(dtype="f16"), (TensorType((6,), "f16"),)), (0,), (1,))
    program = StepPlan(LINE, (0,), (other,), (1,), (ROW, ROW))
    with pytest.raises(LoweringError, match=r"device \d, step 0 \(local convert\): its result is tensor<6xf16>, but"):
        run_on_threads(program, [rows(0)])


def test_who_watches_is_told_of_every_step():
    reached, passed = [], []
    run_on_threads(swapping_loop(), [rows(0), rows(1)], reached=reached.append, passed=lambda: passed.append(1))
    texts = [str(s) for s in stations(swapping_loop())]
    assert {texts[n] for n in reached} == set(texts)
    assert len(reached) == 4 * (3 + 4 * 2 + 3 * 4) and len(passed) == len(reached) - 4
