"""Searches as tasks of a Ray cluster, of which a node is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sweep_samples import Watches, grid, merged, tickets

import aceglt
from aceglt.errors import ConfigError
from aceglt.sweeps.cluster import RayEngine, check_fit
from aceglt.sweeps.engines import Need


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'aceglt\[ray\]'"):
        RayEngine(Need(1, 2**20))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere"])
def test_a_cluster_that_is_not_there_is_refused_at_once(address: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(ConfigError, match=f"no Ray cluster at '{address}'"):
        RayEngine(Need(1, 2**20), address)


@pytest.mark.parametrize("wanted", [{"CPU": 4}, {"GPU": 0.5}, {"CPU": 2, "memory": 9}])
def test_what_no_node_has_is_refused_instead_of_waited_for(wanted: dict[str, float]) -> None:
    nodes = [{"CPU": 2.0, "memory": 8.0}, {"CPU": 1.0, "memory": 16.0}]
    check_fit({"CPU": 1, "GPU": 0, "memory": 16}, nodes)
    with pytest.raises(ConfigError, match="no node of the cluster has"):
        check_fit({"CPU": 1, "GPU": 0, "memory": 1, **wanted}, nodes)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes of one CPU each."""
    utils = pytest.importorskip("ray.cluster_utils")
    made = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.add_node(num_cpus=1)
    yield made
    made.shutdown()


@pytest.mark.slow
def test_a_sweep_outlives_the_loss_of_a_node_and_finds_what_the_local_engine_does(cluster: Any, tmp_path: Path) -> None:
    wanted = grid(tmp_path, methods=["random", "ugs"], axes=["model", "joint"], epochs=100, levels=3)
    lost: list[set[str]] = []

    def lose(levels: Mapping[str, int]) -> None:
        busy = {name for name, level in levels.items() if level >= 1}
        if len(busy) == 2 and not lost:  # both nodes are at it
            lost.append(busy)
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

    watches = Watches(lose)
    result = aceglt.sweep(
        wanted, tmp_path / "ray", engine="ray", address=cluster.address, device="cpu", observer=watches
    )
    assert [(name in lost[0], again) for name, _, again in watches.failures] == [(True, True)]
    assert result.failed == []
    assert sorted(watches.ended) == sorted(cell["name"] for cell in result.cells)
    assert len({cell["name"] for cell in merged(tmp_path / "ray")}) == 4
    aceglt.sweep(wanted, tmp_path / "local", device="cpu")
    assert merged(tmp_path / "ray") == merged(tmp_path / "local")
    assert tickets(tmp_path / "ray") == tickets(tmp_path / "local") != {}
