"""Hosts on one machine: network namespaces joined by a bridge, each link shaped in both directions.

Everything made lies in namespaces whose names begin with ``PREFIX`` and the id of the process that made them, the
bridge in one of its own, so that addresses and links are seen nowhere else and removing the namespaces removes all.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

PREFIX = "eggshard-bench-"
#: Where `ip netns exec` takes the files from that a namespace has in place of those in /etc.
_ETC = Path("/etc/netns")
#: Where programs of the system's administrator lie, which a user's path may lack.
_SYSTEM = "/usr/sbin:/sbin"
#: What a link passes at once before its rate holds, in seconds at that rate, and in bytes at least: messages of tens of
#: kilobytes are to take as long as on a link that is as slow.
_BURST, _LEAST_BURST = 0.5e-3, 1 << 14
_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


class NetworkError(Exception):
    """A network cannot be made here."""


def bits(rate: str) -> float:
    """Bits per second of a rate as `tc` takes them: ``100mbit``, ``2.5gbit``. NetworkError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]bit)", rate)
    if not match or not float(match[1]):
        raise NetworkError(f"{rate!r} is no rate; write for example 100mbit or 1gbit")
    return float(match[1]) * _UNITS[match[2]]


def missing() -> str:
    """What this machine lacks for a network, in a sentence; empty if nothing."""
    absent = [program for program in ("ip", "tc") if shutil.which(program, path=_path()) is None]
    if absent:
        return f"a network of namespaces takes iproute2, whose {' and '.join(absent)} is not here"
    return "" if os.geteuid() == 0 else "a network of namespaces can only be made by root"


class Network:
    """So many hosts, each with a link of this rate to one bridge. A context: what was made is removed at its end."""

    def __init__(self, hosts: int, rate: str) -> None:
        if hosts < 2:
            raise NetworkError(f"a network joins two hosts or more, not {hosts}")
        bits(rate)
        self.rate = rate
        self._bridge = f"{PREFIX}{os.getpid()}-bridge"
        self.hosts = tuple(f"{PREFIX}{os.getpid()}-{i}" for i in range(hosts))
        self.addresses = tuple(f"10.0.{i // 250}.{i % 250 + 1}" for i in range(hosts))

    def __enter__(self) -> Network:
        if why := missing():
            raise NetworkError(why)
        sweep()
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in (*self.hosts, self._bridge):
            _remove(name)

    def command(self, host: int) -> tuple[str, ...]:
        """The beginning of a command line that runs on a host."""
        return (_found("ip"), "netns", "exec", self.hosts[host])

    def _make(self) -> None:
        _run("ip", "netns", "add", self._bridge)
        _run("ip", "-n", self._bridge, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self._bridge, "link", "set", "bridge", "up")
        for i, (name, address) in enumerate(zip(self.hosts, self.addresses, strict=True)):
            folder = _ETC / name
            folder.mkdir(parents=True, exist_ok=True)
            # Processes look up the machine's own name to tell others where they listen.
            (folder / "hosts").write_text(f"127.0.0.1 localhost\n{address} {socket.gethostname()}\n")
            _run("ip", "netns", "add", name)
            port = f"port{i}"
            _run("ip", "link", "add", "eth0", "netns", name, "type", "veth",
                 "peer", "name", port, "netns", self._bridge)  # fmt: skip
            _run("ip", "-n", self._bridge, "link", "set", port, "master", "bridge", "up")
            _run("ip", "-n", name, "address", "add", f"{address}/16", "dev", "eth0")
            for device in ("lo", "eth0"):
                _run("ip", "-n", name, "link", "set", device, "up")
            burst = int(max(_LEAST_BURST, _BURST * bits(self.rate) / 8))
            for at, device in ((name, "eth0"), (self._bridge, port)):
                _run("tc", "-n", at, "qdisc", "add", "dev", device, "root", "tbf",
                     "rate", self.rate, "burst", str(burst), "latency", "400ms")  # fmt: skip


class OneHost:
    """This machine as the only host, which needs no links."""

    hosts, addresses = ("here",), ("127.0.0.1",)

    def __enter__(self) -> OneHost:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def command(self, host: int) -> tuple[str, ...]:
        """The beginning of a command line that runs here."""
        return ()


def sweep() -> None:
    """Remove what processes that have ended since left behind."""
    for name in present():
        owner = re.fullmatch(rf"{PREFIX}(\d+)-\w+", name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            _remove(name)


def present() -> list[str]:
    """The names of all namespaces made here that are there now, also those of other processes."""
    listed = (line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line.strip())
    folders = (path.name for path in _ETC.glob(f"{PREFIX}*"))
    return sorted({name for name in (*listed, *folders) if name.startswith(PREFIX)})


def _remove(name: str) -> None:
    """Remove a namespace with the processes in it, if it is there."""
    with contextlib.suppress(NetworkError):
        for process in _run("ip", "netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
    with contextlib.suppress(NetworkError):
        _run("ip", "netns", "delete", name)
    shutil.rmtree(_ETC / name, ignore_errors=True)


def _run(*command: str) -> str:
    """What a command prints; NetworkError where it fails."""
    done = subprocess.run([_found(command[0]), *command[1:]], capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip() or f"exit status {done.returncode}"
        raise NetworkError(f"a network of namespaces cannot be made here: {' '.join(command)}: {said}")
    return done.stdout


def _found(program: str) -> str:
    return shutil.which(program, path=_path()) or program


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:{_SYSTEM}"


@contextlib.contextmanager
def interrupted_by(*signals: signal.Signals) -> Iterator[None]:
    """A context in which the first of these signals raises SystemExit, so that contexts within it are left.

    Those that follow are ignored: they would interrupt what is removed then.
    """

    def leave(number: int, _: object) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
