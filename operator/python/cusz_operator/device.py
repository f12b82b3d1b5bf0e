"""Assignment of ranks to devices."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from typing import Any

import cusz_core

from .ranks import Caught, Ranks

__all__ = ["Binding", "bind_device", "device_map"]

#: Where launchers put a process's rank on its node, and the number of ranks there.
_NODE_RANK = (
    *("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "PALS_LOCAL_RANKID"),
    *("PMI_LOCAL_RANK", "SLURM_LOCALID"),
)
_NODE_SIZE = (
    *("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", "PALS_LOCAL_SIZE"),
    "PMI_LOCAL_SIZE",
)


@dataclasses.dataclass(frozen=True)
class Binding:
    """The device or cores that a rank uses.

    Attributes:
        rank: in the communicator; without one, the rank on the node.
        node: name of the machine.
        node_rank, node_size: rank on the node, and number of ranks there.
        device: number of the CUDA device among those that this process sees; None: the CPU.
        name: of the device, or of the processor.
        sharing: number of ranks of the node on the same device; 1 on the CPU.
        threads: CPU threads of this rank.
        cores: numbers of the cores that this process may use.
        visible: CUDA_VISIBLE_DEVICES of this process; None: not set.
    """

    rank: int
    node: str
    node_rank: int
    node_size: int
    device: int | None
    name: str
    sharing: int
    threads: int
    cores: tuple[int, ...]
    visible: str | None


def bind_device(comm: Any = None) -> Binding:
    """Gives each rank a CUDA device, by its rank on the node, or its share of the cores (collective).

    Ranks take the devices that they see (CUDA_VISIBLE_DEVICES) in turn; those that see the same ones share them evenly,
    with a notice on stderr if ranks outnumber devices. The device becomes CuPy's current one, if CuPy is installed.
    Without a device, the CPU compresses; OMP_NUM_THREADS is then set to the rank's share of the cores that the ranks of
    the node may use, unless it is already set.

    Args:
        comm: an mpi4py communicator; None: use the launcher's environment variables, and assume that every rank of the
            node sees the same devices.

    Raises:
        DeviceError: a device cannot be used (on this rank).
    """
    names: tuple[str, ...] = ()
    failed: cusz_core.CuszError | None = None
    try:
        names = next(backend.devices for backend in cusz_core.devices() if backend.name == "cuda")
    except cusz_core.CuszError as error:  # raised below, when the other ranks no longer wait for this one
        failed = error
    cores = tuple(sorted(os.sched_getaffinity(0)))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if comm is None:
        rank = node_rank = _from_environment(_NODE_RANK, 0)
        node_size = max(_from_environment(_NODE_SIZE, _tasks_of_slurm()), node_rank + 1)
        like_me, place = node_size, node_rank
        on_my_cores = node_size
    else:
        node_comm = comm.Split_type(_shared())
        rank, node_rank, node_size = comm.rank, node_comm.rank, node_comm.size
        seen = node_comm.allgather((visible, names, cores))
        node_comm.Free()
        alike = [i for i, other in enumerate(seen) if other[:2] == (visible, names)]
        like_me, place = len(alike), alike.index(node_rank)
        on_my_cores = sum(other[2] == cores for other in seen)
    if failed is not None:
        raise failed
    threads = max(len(cores) // on_my_cores, 1)
    node = os.uname().nodename
    if not names:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
        name = next(backend.device for backend in cusz_core.devices() if backend.name == "cpu")
        return Binding(rank, node, node_rank, node_size, None, name, 1, cusz_core.default_threads(), cores, visible)

    device = place % len(names)
    sharing = len(range(device, like_me, len(names)))
    if like_me > len(names) and place == 0:
        print(
            f"cusz_operator: {like_me} ranks on {node} share {len(names)} CUDA device{'s' * (len(names) > 1)}: up to "
            f"{-(-like_me // len(names))} ranks a device",
            file=sys.stderr,
            flush=True,
        )
    _make_current(device)
    return Binding(rank, node, node_rank, node_size, device, names[device], sharing, threads, cores, visible)


def device_map(comm: Any = None) -> list[Binding]:
    """Binds every rank, as bind_device does, and lists the bindings (collective).

    Args:
        comm: an mpi4py communicator; None: MPI.COMM_WORLD.

    Returns:
        The binding of each rank, in rank order, on rank 0; an empty list on the others.

    Raises:
        CuszError: a rank cannot be bound (the same error on every rank, which names that rank).
        ImportError: mpi4py is missing.
    """
    if comm is None:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    ranks = Ranks(comm)
    binding, caught = None, Caught()
    with caught:
        binding = bind_device(ranks.comm)
    try:
        ranks.agree(caught.error, "binding ranks to devices")
        return comm.gather(binding) or []  # None on ranks other than 0
    finally:
        ranks.free()


def _make_current(device: int) -> None:
    try:
        import cupy
    except ImportError:
        return  # arrays of other packages carry their device
    try:
        cupy.cuda.Device(device).use()
    except Exception as error:
        raise cusz_core.DeviceError(f"CUDA device {device} cannot be used: {error}") from error


def _tasks_of_slurm() -> int:
    """How many tasks this SLURM step has on this node, from a list such as "4(x2),3"; 1 if SLURM did not start it."""
    node = _from_environment(("SLURM_NODEID",), 0)
    for tasks, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ.get("SLURM_STEP_TASKS_PER_NODE", "")):
        node -= int(times or 1)
        if node < 0:
            return int(tasks)
    return 1


def _from_environment(names: tuple[str, ...], default: int) -> int:
    for name in names:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return default


def _shared() -> Any:
    from mpi4py import MPI

    return MPI.COMM_TYPE_SHARED
