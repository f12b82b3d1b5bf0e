"""Clusters of nodes on this machine; tests are skipped, with the reason, where it does not permit them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `import cluster`

import cusz_operator
from cluster import Cluster, NoNodesError

TESTS = Path(__file__).resolve().parents[1]
Start = Callable[..., Cluster]


@pytest.fixture
def start() -> Iterator[Start]:
    """start(4): a cluster of four nodes that ends with the test."""
    started: list[Cluster] = []

    def start_cluster(n: int, **options: Any) -> Cluster:
        python = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {"ADIOS2_PLUGIN_PATH": str(cusz_operator.plugin_path()), "PYTHONPATH": os.pathsep.join(python)}
        try:
            started.append(Cluster(n, env, **options))
        except NoNodesError as error:
            pytest.skip(f"no nodes of our own here: {error}")
        return started[-1]

    yield start_cluster
    for cluster in started:
        cluster.close()
