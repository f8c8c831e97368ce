"""The bench of a cluster: rates, rows and what is printed of them, and a network of two hosts where one can be made."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench import cluster
from bench.cluster import network, rows
from bench.cluster.job import Job, JobError
from bench.cluster.network import Network, NetworkError
from bench.cluster.rows import Row, Version
from bench.worker import ROOT
from rich.console import Console

_no_network = network.missing()
needs_network = pytest.mark.skipif(bool(_no_network), reason=_no_network)
_TEN = Version(10.0, 2.0, 4096.0, 0.0)


def row(**changed: Any) -> Row:
    return Row(**{"rate": "1gbit", "kind": "dense", "name": "product", "model": "default", "xla": _TEN,
                  "ours": Version(5.0, 3.0, 1024.0, 0.0), "hand": Version(20.0, 1.0, 0.0, 0.0), **changed})  # fmt: skip


@pytest.mark.parametrize("rate,bits", [("100mbit", 1e8), ("1gbit", 1e9), ("2.5gbit", 2.5e9), ("64kbit", 64e3)])
def test_rates(rate: str, bits: float) -> None:
    assert network.bits(rate) == bits


@pytest.mark.parametrize("rate", ["", "100", "mbit", "0mbit", "-1gbit", "1 gbit", "1gbit; reboot"])
def test_what_is_no_rate(rate: str) -> None:
    with pytest.raises(NetworkError, match="is no rate; write for example 100mbit"):
        network.bits(rate)


@pytest.mark.parametrize("changed,why", [
    ({}, []),
    ({"error": "no plan"}, ["no plan"]),
    ({"fallback": "no rules"}, ["fell back: no rules"]),
    ({"ours": Version(5.0, 3.0, 1.0, 0.1)}, ["differs by 1.0e-01"]),
    ({"ours": Version(5.0, 3.0, 1.0, float("nan"))}, ["differs by nan"]),
    ({"hand": Version(5.0, 3.0, 1.0, 0.1)}, ["differs by hand by 1.0e-01"]),
    ({"ours": Version(10.6, 3.0, 1.0, 0.0)}, ["slower than XLA"]),
    ({"hand": Version(4.0, 3.0, 1.0, 0.0)}, ["slower than by hand"]),
    ({"xla": None, "ours": None, "hand": None, "error": "hosts are silent"}, ["hosts are silent"]),
])
def test_what_fails(changed: dict[str, Any], why: list[str]) -> None:
    assert row(**changed).failures == why


def test_a_table_and_its_summary() -> None:
    found = [row(predicted=4.0), row(name="sum", ours=Version(20.0, 2.0, 0.0, 0.0), hand=None), row(error="none")]
    printed = Console(width=220, file=io.StringIO(), record=True)
    printed.print(rows.table("1gbit", 4, 2, found))
    shown = printed.export_text()
    assert "4 hosts of 2 devices, links of 1gbit" in shown and "slower than XLA" in shown
    lines = rows.summary(found[:2])
    assert lines[0].startswith("default, dense: ours over XLA: 2 programs, geometric mean 1.000, worst 2.00 (sum)")
    assert lines[1].startswith("default: ours over code by hand: 1 programs, geometric mean 0.250")
    assert lines[2] == "default: compiling over XLA's: median 1.25, worst 1.50"
    assert lines[3] == "default: predicted step off by 20 % of the measured one in the median"
    assert lines[4] == "FAILED sum (default): slower than XLA"


def test_how_often_a_model_chose_the_fastest_plan() -> None:
    other = Version(5.4, 3.0, 1024.0, 0.0)
    found = [row(), row(name="sum", ours=_TEN), row(model="wire-bytes", ours=other),
             row(name="sum", model="wire-bytes")]
    said = [line for line in rows.summary(found) if "fastest" in line]
    assert said == [
        "default: the fastest of 2 models' plans, or within 10 %, on 1 of 2 programs",
        "wire-bytes: the fastest of 2 models' plans, or within 10 %, on 2 of 2 programs",
    ]


def test_a_step_ends_with_the_last_host() -> None:
    said = {"compile": 1.0, "first": 1.0, "figures": {"bytes": 8.0}}
    prepared = [{"versions": {"XLA": {**said, "off": [off]}}} for off in ((1.0, 2.0), (0.5, 4.0))]
    found = rows.version("XLA", prepared, [{"times": {"XLA": [1.0, 5.0]}}, {"times": {"XLA": [3.0, 4.0]}}])
    assert found == Version(3.0, 1.0, 8.0, 0.25, noise=4 / 3)


@pytest.mark.parametrize("asked,said", [
    ({"rate": "fast"}, "'fast' is no rate"), ({"rate": ","}, "there is no rate"),
    ({"hosts": 3}, "the programs run on 8 devices, and 3 hosts of 2 have others"),
])
def test_what_cannot_be_measured_is_a_sentence(asked: dict[str, Any], said: str) -> None:
    printed = Console(width=200, file=io.StringIO())
    assert not cluster.run(printed, **asked)
    assert said in printed.file.getvalue()  # type: ignore[attr-defined]


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(network, "_path", lambda: str(Path(sys.executable).parent))
    assert network.missing() == "a network of namespaces takes iproute2, whose ip and tc is not here"
    monkeypatch.undo()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    if _no_network == "":
        with pytest.raises(NetworkError, match="can only be made by root"), Network(2, "1gbit"):
            pass


@needs_network
def test_a_program_on_two_hosts(tmp_path: Path) -> None:
    with Network(2, "1gbit") as net, Job(net, 4) as job:
        assert set(net.hosts) < set(network.present())
        plans = cluster.Plans(tmp_path, 4, 2)
        (found,) = cluster.measure(job, plans, "1gbit", "dense", "product, 2-D", {"wire-bytes": "wire-bytes"})
        assert found.error == "" and found.ours is not None and found.ours.bytes == 0 and found.hand is not None
        assert not [why for why in found.failures if "slower" not in why]
        with pytest.raises(JobError, match="KeyError"):
            job.ask(do="prepare", program="nothing of this name", plans={})
    assert not set(net.hosts) & set(network.present())


def test_a_second_signal_does_not_interrupt_what_is_removed() -> None:
    removed = []
    with pytest.raises(SystemExit), network.interrupted_by(signal.SIGUSR1):
        try:
            signal.raise_signal(signal.SIGUSR1)
        finally:
            signal.raise_signal(signal.SIGUSR1)
            removed.append("all")
    assert removed == ["all"] and signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


@pytest.mark.slow
@needs_network
def test_a_killed_process_leaves_nothing() -> None:
    script = ("import signal, time\nfrom bench.cluster.network import *\n"
              "signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs behind a shell ignores it\n"
              "with interrupted_by(signal.SIGTERM), Network(2, '1gbit') as net:\n"
              "    print(*net.hosts, flush=True)\n    time.sleep(60)\n")  # fmt: skip
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                                   stderr=subprocess.DEVNULL)  # fmt: skip
        assert process.stdout is not None
        made = set(process.stdout.readline().split())
        assert len(made) == 2
        process.send_signal(number)
        process.communicate()
        if number == signal.SIGKILL:
            assert made < set(network.present())
            network.sweep()
        assert not made & set(network.present())
