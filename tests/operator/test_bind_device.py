"""Which rank gets which device, if there are any."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cusz_core
import cusz_operator as cz
from cusz_core import cli
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


@pytest.mark.parametrize(("node", "size"), [(0, 7), (1, 7), (2, 6)])
def test_tasks_of_slurm_on_this_node(node: int, size: int, launched: pytest.MonkeyPatch) -> None:
    for name in ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"):
        launched.delenv(name)
    launched.setenv("SLURM_LOCALID", "1")
    launched.setenv("SLURM_NODEID", str(node))
    launched.setenv("SLURM_STEP_TASKS_PER_NODE", "7(x2),6")
    with_devices(launched)
    binding = cz.bind_device()
    assert (binding.node_rank, binding.node_size) == (1, size)


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


# ------------------------------------------------------------------------------------------ cusz devices --mpi

#: The command line, as if every rank saw two devices.
PRETEND = Path(__file__).parent / "ranks" / "two_devices.py"


def on_ranks(ranks: int, *words: str | Path) -> list[str | Path]:
    return ["mpirun", "-n", str(ranks), sys.executable, *words, "devices", "--mpi"]


@pytest.mark.quick(1)
@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 3])
def test_map_of_ranks(ranks: int, cuda: str, program: Callable) -> None:
    if cuda == "device":
        pytest.skip("this machine has a CUDA device: the ranks use that")
    without_threads = {"OMP_NUM_THREADS": None}
    command = on_ranks(ranks, "-m", "cusz_core")
    done = program(command, env=without_threads)
    assert done.stderr == ""
    node, share = os.uname().nodename, max(CORES // ranks, 1)
    heading, *lines = done.stdout.splitlines()
    assert heading.split() == ["rank", "node", "on", "node", "works", "with"]
    assert len(lines) == ranks
    for rank, line in enumerate(lines):
        assert line.split()[:5] == [str(rank), node, str(rank), "of", str(ranks)]
        assert f"CPU, {share} thread{'s' if share > 1 else ''} on cores " in line

    told = json.loads(program([*command, "--json"], env=without_threads).stdout)
    assert [binding["rank"] for binding in told] == list(range(ranks))
    for binding in told:
        assert (binding["node"], binding["node_size"], binding["device"]) == (node, ranks, None)
        assert (binding["threads"], binding["cores"]) == (share, sorted(os.sched_getaffinity(0)))


@pytest.mark.full
@pytest.mark.mpi
def test_map_of_ranks_with_devices(program: Callable) -> None:
    env = {"CUDA_VISIBLE_DEVICES": "2,5"}
    done = program(on_ranks(3, PRETEND), env=env)
    works_with = [line.partition(" of 3")[2].strip() for line in done.stdout.splitlines()[1:]]
    assert works_with == [
        "CUDA device 0 of CUDA_VISIBLE_DEVICES=2,5, shared by 2 ranks: GPU A",
        "CUDA device 1 of CUDA_VISIBLE_DEVICES=2,5: GPU B",
        "CUDA device 0 of CUDA_VISIBLE_DEVICES=2,5, shared by 2 ranks: GPU A",
    ]
    assert done.stderr.count("3 ranks on") == 1
    told = json.loads(program([*on_ranks(3, PRETEND), "--json"], env=env).stdout)
    assert [(b["device"], b["sharing"], b["visible"]) for b in told] == [(0, 2, "2,5"), (1, 1, "2,5"), (0, 2, "2,5")]


@pytest.mark.mpi
def test_a_rank_that_cannot_be_bound_is_named_by_all(program: Callable) -> None:
    done = program(on_ranks(3, PRETEND), env={"FAILING": "1"}, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "cusz: error: binding ranks to devices: rank 2: device 1 cannot be asked its name" in done.stderr


def test_map_of_ranks_without_mpi4py(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert cli.main(["devices", "--mpi"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("cusz: error: --mpi needs the Python package mpi4py, which cannot be imported")
