"""Which rank gets which device, where there are none and where there are some."""

from __future__ import annotations

import dataclasses
import os

import pytest

import cusz_core
import cusz_operator as cz
from cusz_operator import device

CORES = len(os.sched_getaffinity(0))


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Rank 5 of 6 on this node, by Open MPI's variables."""
    for name in (*device._NODE_RANK, *device._NODE_SIZE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "5")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "6")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return monkeypatch


def with_devices(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    found = [
        dataclasses.replace(backend, available=True, devices=names) if backend.name == "cuda" else backend
        for backend in cusz_core.devices()
    ]
    monkeypatch.setattr(cusz_core, "devices", lambda: found)
    monkeypatch.setattr(device, "_make_current", lambda number: None)


def test_a_share_of_the_cores(launched: pytest.MonkeyPatch) -> None:
    with_devices(launched)
    launched.delenv("OMP_NUM_THREADS")
    launched.setattr(os, "environ", os.environ.copy())
    binding = cz.bind_device()
    assert (binding.node_rank, binding.node_size, binding.device) == (5, 6, None)
    assert os.environ["OMP_NUM_THREADS"] == str(max(CORES // 6, 1))


@pytest.mark.parametrize(("devices", "number", "sharing"), [(1, 0, 6), (4, 1, 2), (5, 0, 2), (6, 5, 1), (8, 5, 1)])
def test_devices_are_shared_evenly(devices: int, number: int, sharing: int, launched: pytest.MonkeyPatch) -> None:
    with_devices(launched, *(f"GPU {i}" for i in range(devices)))
    binding = cz.bind_device()
    assert (binding.device, binding.name, binding.sharing) == (number, f"GPU {number}", sharing)


def test_a_notice_where_ranks_share(launched: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with_devices(launched, "one", "two")
    cz.bind_device()
    assert capsys.readouterr().err == "", "the first rank of the node says it"
    launched.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "0")
    cz.bind_device()
    assert "6 ranks on" in (said := capsys.readouterr().err)
    assert "share 2 CUDA devices: up to 3 ranks a device" in said
