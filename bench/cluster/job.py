"""The processes of a cluster, one on each host of a network, which are all asked the same."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from bench.cluster.network import Network, OneHost
from bench.worker import Worker

#: Seconds that one request takes at most, and that others have to answer after one has failed.
_PATIENCE, _GRACE = 1200.0, 10.0
_PORT = 12355


class JobError(Exception):
    """A process of the cluster failed, or took too long; the next request starts all of them anew."""


class Job:
    """One process per host of a network, with so many devices in each; started by the first request."""

    def __init__(self, network: Network | OneHost, devices: int) -> None:
        self._network, self._devices = network, devices
        self._workers = [
            Worker("bench.cluster.worker", _PATIENCE, {"XLA_FLAGS": ""}, network.command(host))
            for host in range(len(network.hosts))
        ]
        self._joined = False

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def ask(self, **request: Any) -> list[dict[str, Any]]:
        """The answers to a request, by host. JobError with the first reason where one has none."""
        if not self._joined:
            addresses = list(self._network.addresses)
            joining = {"do": "join", "addresses": addresses, "port": _PORT, "devices": self._devices}
            self._ask([{**joining, "address": address} for address in addresses])
            self._joined = True
        return self._ask([request] * len(self._workers))

    def _ask(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        with ThreadPoolExecutor(len(self._workers)) as pool:
            futures = [pool.submit(w.ask, request) for w, request in zip(self._workers, requests, strict=True)]
            try:
                failed = _first_failure(futures)
            except BaseException:
                self._kill()
                raise
            if failed:
                self._kill()
        if failed:
            self._close()
            raise JobError(failed)
        return [future.result() for future in futures]

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()

    def _close(self) -> None:
        for worker in self._workers:
            worker.close()
        self._joined = False


def _first_failure(futures: list[Future[dict[str, Any]]]) -> str:
    """Wait for all answers, or after the first failure for a little while; that failure, or nothing."""
    pending, failed = set(futures), ""
    while pending:
        done, pending = wait(pending, _GRACE if failed else None, FIRST_COMPLETED)
        if not done:
            break
        failed = failed or next((e for future in done if (e := future.result().get("error", ""))), "")
    return failed
