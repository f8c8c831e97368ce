"""Whole plans on processes: what the simulator computes, on every kind of data, in the memory that was planned."""

from __future__ import annotations

import json
import sys
from mmap import PAGESIZE as PAGE

import ml_dtypes
import numpy as np
import pytest
from tests.engines.processes.programs import PAIR, ROW, ROWS, choosing, shifting
from tests.engines.ranks.actions import ALONE, COMMUNICATING, random_action
from tests.slowness import some

import eggshard
from eggshard.engines.processes.launcher import Processes, run_on_processes
from eggshard.errors import LoweringError, ProgramError
from eggshard.plan.serialization import (
    DEVICE_PROGRAM,
    device_program_from_json,
    device_program_to_json,
    opened,
    sealed,
)
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType, mlir_dtype
from eggshard.simulate.device_arrays import same_bits
from eggshard.simulate.simulator import run
from eggshard.steps.steps import CollectivePermute, Step, StepPlan

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures pages of shared memory")
SHIFT_NONE = CollectivePermute((), ("x",))


def many(seed):
    """One random step of every kind that fits the mesh of the first: their program, and its inputs."""
    rng = np.random.default_rng(seed)
    mesh, drawn = None, []
    for kind in (*COMMUNICATING, *ALONE):
        for _ in range(200):
            found = random_action(rng, kind)
            if mesh in (None, found[0]):
                mesh = found[0]
                drawn.append(found[1:])
                break
    shards = [x for _, operands in drawn for x in operands]
    types = [TensorType(x.shape[1:], mlir_dtype(x.dtype)) for x in shards]
    count, steps, at = len(types), [], 0
    for action, operands in drawn:
        mine = tuple(range(at, at + len(operands)))
        at += len(operands)
        made = action.result(mesh, tuple(types[v] for v in mine))
        steps.append(Step(action, mine, tuple(range(len(types), len(types) + len(made)))))
        types += made
    program = StepPlan(mesh, tuple(range(count)), tuple(steps), tuple(range(len(types))), tuple(types))
    return program, shards


def test_all_kinds_of_steps_and_data():
    program, shards = many(13)
    assert len(program.steps) > 15 and len({t.dtype for t in program.types}) > 4
    with Processes(program, timeout=300, debug=True) as processes:
        for _ in range(2):
            for got, want in zip(processes.run(shards), run(program, shards), strict=True):
                assert got.dtype == want.dtype and same_bits(got, want).all()


def test_loops_and_branches_any_number_of_times():
    with Processes(shifting(5), timeout=300) as processes:
        for start in (0, 1):
            rows = [ROWS[0] + start]
            for got, want in zip(processes.run(rows), run(shifting(5), rows), strict=True):
                np.testing.assert_array_equal(got, want)
        assert processes.report.measured == -(-processes.report.planned // PAGE) * PAGE
        assert str(processes.report).endswith("bytes planned, 4096 touched (pages of 4096)")
    with Processes(choosing(), timeout=300) as processes:
        for selector in (0, 1, 7):
            inputs = [np.full(2, selector, np.int32), *ROWS]
            (got,), (want,) = processes.run(inputs), run(choosing(), inputs)
            np.testing.assert_array_equal(got, want)


def test_one_device_and_nothing_to_do():
    empty = TensorType((0, 3), "f32")
    alone = StepPlan(Mesh({"x": 1}), (0, 1), (Step(SHIFT_NONE, (0,), (2,)),), (2, 1, 1), (ROW, empty, ROW))
    shards = [ROWS[0][:1], np.zeros((1, 0, 3), np.float32)]
    with Processes(alone, timeout=300) as processes:
        for got, want in zip(processes.run(shards), run(alone, shards), strict=True):
            assert got.shape == want.shape and same_bits(got, want).all()


def test_the_memory_touched_is_what_was_planned():
    row = TensorType((50_000,), "f32")
    program = shifting(2)
    content = json.dumps(opened(DEVICE_PROGRAM, device_program_to_json(program)))
    wider = json.loads(content.replace(json.dumps([6]), json.dumps(list(row.shape))))
    program = device_program_from_json(sealed(DEVICE_PROGRAM, wider))
    with Processes(program, timeout=300) as processes:
        assert processes._open().touched <= PAGE * PAIR.size  # guards alone
        processes.run([np.ones((2, 50_000), np.float32)])
        report = processes.report
    assert report.planned > 2 * 4 * row.bytes
    assert abs(report.measured - report.planned) <= PAGE * (1 + 2 * PAIR.size)


def uneven(*dtypes):
    """A plan of uneven shards: the first five of six rows, combined with themselves, go from rows to columns."""
    rows, columns = '#sdy.sharding<@mesh, [{"x"}, {}]>', '#sdy.sharding<@mesh, [{}, {"x"}]>'
    takes, gives, ops = [], [], []
    for i, dtype in enumerate(dtypes):
        whole, part = f"tensor<6x8x{dtype}>", f"tensor<5x8x{dtype}>"
        takes.append(f"%{i}: {whole} {{sdy.sharding = {rows}}}")
        gives.append(f"{part} {{sdy.sharding = {columns}}}")
        ops += [
            f"%s{i} = stablehlo.slice %{i} [0:5, 0:8] : ({whole}) -> {part}",
            f"%c{i} = sdy.sharding_constraint %s{i} <@mesh, [{{\"x\"}}, {{}}]> : {part}",
            f"%r{i} = stablehlo.{'or' if dtype == 'i1' else 'add'} %c{i}, %c{i} : {part}",
        ]
    results = ", ".join(f"%r{i}" for i in range(len(dtypes)))
    return eggshard.optimize("\n".join([
        'sdy.mesh @mesh = <["x"=2]>', f"func.func @main({', '.join(takes)}) -> ({', '.join(gives)}) {{", *ops,
        f"return {results} : {', '.join(f'tensor<5x8x{dtype}>' for dtype in dtypes)}", "}",
    ]))


def test_uneven_plans_of_every_type():
    types = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "i1": np.bool_, "complex<f32>": np.complex64, "i8": np.int8}
    array = np.random.default_rng(1).standard_normal((6, 8))
    arrays = [(array > 0 if d == "i1" else 9 * array).astype(n) for d, n in types.items()]
    for special in (arrays[0], arrays[1], arrays[3]):
        special[2, 3], special[4, 6] = np.nan, np.inf
    plan = uneven(*types)
    assert sum(plan.collectives.values()) >= len(types)
    for got, want in zip(plan.run(*arrays, engine="processes", timeout=300), plan.run(*arrays), strict=True):
        assert got.dtype == want.dtype and same_bits(got, want).all()


def test_plans_say_what_they_took_and_are_verified():
    plan = uneven("f32")
    (got,), report = run_on_processes(plan, [np.ones((6, 8), np.float32)], timeout=300)
    np.testing.assert_array_equal(got, np.full((5, 8), 2, np.float32))
    assert report.planned == 2 * plan.workspace().stride + 2 * 64
    found = plan.verify(engines=("numpy", "processes"))
    assert set(found.differences) == {"numpy", "processes"} and not found.skipped
    with pytest.raises(LoweringError, match="no engine 'threads' runs plans here; there are numpy, processes and mpi"):
        plan.run(np.ones((6, 8), np.float32), engine="threads")
    with pytest.raises(LoweringError, match=r"input 0 \(arg0\) is float64"):
        plan.run(np.ones((6, 8)), engine="processes")


@pytest.mark.parametrize("devices", some([2, 3], 1))
def test_a_number_of_devices_chosen_at_launch(devices):
    """A periodic stencil: each device's rows stay what they are, and there are more or fewer of them."""
    plan = eggshard.optimize("""
      sdy.mesh @mesh = <["x"=4]>
      func.func @main(%0: tensor<16x3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
          -> (tensor<16x3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
        %1 = stablehlo.slice %0 [15:16, 0:3] : (tensor<16x3xf32>) -> tensor<1x3xf32>
        %2 = stablehlo.slice %0 [0:15, 0:3] : (tensor<16x3xf32>) -> tensor<15x3xf32>
        %3 = stablehlo.concatenate %1, %2, dim = 0 : (tensor<1x3xf32>, tensor<15x3xf32>) -> tensor<16x3xf32>
        %4 = stablehlo.add %0, %3 : tensor<16x3xf32>
        return %4 : tensor<16x3xf32>
      }""", cost_model="wire-bytes")
    assert plan.collectives == {"collective-permute": 1}
    rows = np.random.default_rng(devices).standard_normal((4 * devices, 3)).astype(np.float32)
    for engine in ("numpy", "processes"):
        (got,) = plan.run(rows, engine=engine, devices=devices, timeout=300)
        np.testing.assert_array_equal(got, rows + np.roll(rows, 1, 0))


def test_device_programs_as_json():
    for program in (shifting(3), choosing(), many(5)[0]):
        text = device_program_to_json(program)
        assert device_program_from_json(text) == program and "\n" not in text
    for wrong in ("", "[]", "{}", '{"eggshard device program": 0}', uneven("f32").to_json()):
        with pytest.raises(ProgramError, match="device program"):
            device_program_from_json(wrong)
    with pytest.raises(ProgramError, match="holds no device program"):
        device_program_from_json(sealed(DEVICE_PROGRAM, {"program": 5}))
    with pytest.raises(ProgramError, match="altered"):
        device_program_from_json(text.replace("4", "5", 1))
