"""The worker process: what goes wrong in it is reported, and the next call works."""

import os
import subprocess
import sys
import threading

import pytest

from eggshard.worker import Worker, WorkerFailure, call


@pytest.fixture(scope="module")
def worker():
    worker = Worker()
    yield worker
    worker.close()


@pytest.mark.parametrize(
    ("function", "args", "options", "reason"),
    [
        ("time:sleep", (30,), {"seconds": 0.3}, "time"),
        ("builtins:len", ((),), {"seconds": 0.0}, "time"),  # however fast it would be
        ("os:abort", (), {"seconds": 10}, "memory"),
        ("os:_exit", (3,), {"seconds": 10}, "crash"),
        ("sys:exit", (0,), {"seconds": 10}, "crash"),
        ("faulthandler:_sigsegv", (), {"seconds": 10}, "stack"),
        ("builtins:bytearray", (1 << 33,), {"seconds": 10, "memory_mib": 1024}, "memory"),
    ],
)
def test_a_failure_names_its_reason_and_the_next_call_works(worker, function, args, options, reason):
    with pytest.raises(WorkerFailure) as failure:
        worker.call(function, *args, **options)
    assert failure.value.reason == reason
    assert worker.call("builtins:sum", [1, 2, 3], seconds=10) == 6


def test_an_exception_of_the_function_is_raised_here(worker):
    before = worker.call("os:getpid", seconds=10)
    with pytest.raises(ValueError, match="invalid literal"):
        worker.call("builtins:int", "x", seconds=10)
    with pytest.raises(ModuleNotFoundError):
        worker.call("no_such_module:f", seconds=10)
    assert worker.call("os:getpid", seconds=10) == before


def test_a_worker_may_be_started_before_it_is_asked():
    worker = Worker()
    assert worker.unasked
    worker.start()
    started = worker.pid
    assert started is not None and worker.unasked
    assert worker.call("os:getpid", seconds=10) == started
    assert not worker.unasked
    worker.close()
    assert worker.unasked


def test_no_files_are_left_behind(worker):
    directory = worker.call("eggshard.worker:scratch_directory", seconds=10)
    assert os.path.isdir(directory)
    with pytest.raises(WorkerFailure):
        worker.call("os:_exit", 1, seconds=10)
    assert not os.path.exists(directory)


def test_prints_do_not_disturb_the_protocol(worker, capfd):
    assert worker.call("builtins:print", "to stdout", seconds=10) is None
    assert worker.call("builtins:len", "abc", seconds=10) == 3
    assert capfd.readouterr().out == ""


def test_keywords_and_large_payloads_travel(worker):
    assert worker.call("builtins:sorted", [1, 3, 2], reverse=True, seconds=10) == [3, 2, 1]
    data = bytes(range(256)) * 40_000
    assert worker.call("builtins:bytes", data, seconds=10) == data


def test_the_environment_claims_no_accelerator(worker, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    worker.close()
    assert worker.call("os:getenv", "XLA_FLAGS", seconds=10) is None
    assert worker.call("os:getenv", "JAX_PLATFORMS", seconds=10) == "cpu"
    assert worker.call("os:getenv", "RAYON_NUM_THREADS", seconds=10) == "1"


def test_threads_take_turns(worker):
    results = []
    threads = [
        threading.Thread(target=lambda i=i: results.append(worker.call("builtins:abs", -i, seconds=10)))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(8))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_its_own_worker():
    script = (
        "import os\n"
        "from eggshard.worker import call\n"
        "first = call('os:getpid', seconds=10)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if call('os:getpid', seconds=10) != first else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert call('os:getpid', seconds=10) == first\n"
    )
    subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_importing_the_package_loads_no_heavy_module():
    script = "import sys, eggshard; print([m for m in ('jax', 'egglog', 'highspy') if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert out.stdout.strip() == "[]"


def test_the_shared_worker_is_used_by_call():
    assert call("os:getpid", seconds=10) == call("os:getpid", seconds=10)


def test_the_engine_is_loaded_alone_and_in_the_worker_only():
    """The rest of its package takes ten times as long to import, and this process has no use for either."""
    script = (
        "import sys\n"
        "from eggshard.egraph.saturate import saturate\n"
        "from eggshard.worker import call\n"
        "from eggshard.ops.region_builder import RegionBuilder\n"
        "from eggshard.program.types import TensorType\n"
        "from eggshard.rewrites import default_rules\n"
        "builder = RegionBuilder([TensorType((4,), 'f32')])\n"
        "saturate(builder.build(builder.add('abs', builder.inputs)), default_rules())\n"
        "loaded = \"[m for m in __import__('sys').modules if m.split('.')[0] == 'egglog']\"\n"
        "print(call('builtins:eval', loaded, seconds=60), eval(loaded))\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert out.stdout.strip() == "['egglog.bindings'] []"
