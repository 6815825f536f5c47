"""Searches as tasks of a Ray cluster, which queues them and knows what its nodes have."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from typing import Any

from aceglt.errors import ConfigError
from aceglt.sweeps.engines import Ended, Need, cores
from aceglt.sweeps.worker import Job, work


class RayEngine:
    """Tasks of the cluster at an address; without one, of a cluster on this machine that ends with the sweep."""

    def __init__(self, need: Need, address: str | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise ConfigError("the engine ray needs the package ray: pip install 'aceglt[ray]'") from None
        self._ray: Any = ray
        self._running: dict[Any, Job] = {}
        self._mine = not ray.is_initialized()
        if self._mine:
            _connect(ray, address)
        try:
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            share = need.on(int(sum(node.get("GPU", 0) for node in nodes)))
            check_fit({"CPU": need.cpus, "GPU": share, "memory": need.memory}, nodes)
        except BaseException:
            self.close()
            raise
        self.device = "cuda" if share else "cpu"
        self._task = ray.remote(
            num_cpus=need.cpus, num_gpus=share, memory=need.memory,
            max_calls=1,  # a process for each search: nothing of one is left for the next
            max_retries=0,  # the sweep counts
        )(work)  # fmt: skip

    def has_room(self) -> bool:
        return True

    def start(self, job: Job) -> None:
        self._running[self._task.remote(job)] = job

    def wait(self, seconds: float) -> list[Ended]:
        over, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        return [self._end(task) for task in over]

    def _end(self, task: Any) -> Ended:
        job = self._running.pop(task)
        try:
            problem = self._ray.get(task)
        except self._ray.exceptions.RayTaskError as failure:
            return Ended(job, f"{type(failure.cause).__name__}: {failure.cause}")
        except self._ray.exceptions.RayError as failure:  # the worker or its node is gone
            return Ended(job, str(failure).splitlines()[0])
        return Ended(job, problem, hopeless=problem is not None)

    def close(self) -> None:
        for task in self._running:
            self._ray.cancel(task, force=True)
        self._running.clear()
        if self._mine:
            self._ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    """Connect without taking over signals, which Ray does otherwise."""
    here = {} if address else {"num_cpus": cores(), "include_dashboard": False}
    before = signal.getsignal(signal.SIGTERM)
    try:
        host, _, port = (address or "").rpartition("://")[2].rpartition(":")
        if host and port.isdigit():  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **here)
    except (OSError, RuntimeError, ValueError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise ConfigError(f"no Ray cluster at '{address or 'local'}' ({reason}); is it started?") from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def check_fit(wanted: dict[str, float], nodes: list[dict[str, float]]) -> None:
    """A task that fits no node would wait for ever."""
    if not any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
        asked = f"{wanted['CPU']:g} CPUs, {wanted['GPU']:g} GPUs and {wanted['memory'] / 2**30:.1f} GiB"
        raise ConfigError(f"no node of the cluster has the {asked} that one search asks for; ask for less")
