#!/usr/bin/env python3
"""Prints where the ranks of a launch run and which devices they use, and fails if that is not as requested.

    srun --mpi=pmix --ntasks=8 python scripts/slurm/ranks.py 8 --nodes 2 --gpus

A launcher that does not match the MPI starts many programs of one rank each, which would all write the same file. So
jobs run this check first.
"""

from __future__ import annotations

import argparse
import os
import sys

from mpi4py import MPI

import cusz_operator


def main() -> int:
    """Exit status 0, or 1 after a message."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("ranks", type=int, help="how many ranks there should be")
    parser.add_argument("--nodes", type=int, help="how many nodes they should be on")
    parser.add_argument("--gpus", action="store_true", help="each rank should have its own CUDA device")
    options = parser.parse_args()

    comm = MPI.COMM_WORLD
    bindings = cusz_operator.device_map(comm)
    nodes = comm.gather(os.environ.get("SLURMD_NODENAME", os.uname().nodename))
    wrong = []
    if comm.size != options.ranks:
        wrong.append(
            f"the launcher gave {comm.size} rank{'s' * (comm.size > 1)}, not {options.ranks}: does it match the MPI "
            f"({MPI.get_vendor()[0]})? See docs/guides/slurm.md."
        )
    if nodes is not None:
        for bound, node in zip(bindings, nodes, strict=True):
            what = f"CPU, {bound.threads} threads"
            if bound.device is not None:
                what = f"CUDA device {bound.device}, {bound.name}"
            place = f"node {node}, {bound.node_rank} of {bound.node_size} there"
            print(f"rank {bound.rank}: {place}, {what}; CUDA_VISIBLE_DEVICES={bound.visible or ''}")
        if options.nodes is not None and len(set(nodes)) != options.nodes:
            wrong.append(f"the ranks are on {len(set(nodes))} nodes, not {options.nodes}")
        if options.gpus:
            without = [bound.rank for bound in bindings if bound.device is None or bound.sharing > 1]
            if without:
                wrong.append(f"ranks {without} have no CUDA device of their own")
    if comm.rank == 0:
        for line in wrong:
            print(f"ranks: {line}", file=sys.stderr, flush=True)
    return 1 if comm.bcast(len(wrong)) else 0


if __name__ == "__main__":
    sys.exit(main())
