"""The job scripts of scripts/slurm, run by a real SLURM: jobs complete, and what they write is correct.

Expected fields are computed again by one rank without SLURM, because apps/gray_scott.py gives the same bits for any
number of ranks.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_operator
import support

pytestmark = [pytest.mark.slurm, pytest.mark.mpi]

ROOT = Path(__file__).resolve().parents[2]
SIZE, STEPS, INTERVAL, EB = "24x20x16", 20, 5, 1e-4
NUMBERS = [5, 10, 15, 20]
SMALL = {"CUSZ_SIZE": SIZE, "CUSZ_STEPS": STEPS, "CUSZ_INTERVAL": INTERVAL, "CUSZ_EB": EB}
LAUNCHERS = ("srun", "mpirun")

Fields = dict[tuple[int, str], np.ndarray]  # by step number and variable


@pytest.fixture(scope="session")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int], Fields]:
    """truth(steps, interval): the fields without compression."""
    import adios2

    def compute(steps: int, interval: int) -> Fields:
        folder = tmp_path_factory.mktemp("truth")
        options = f"--size {SIZE} --steps {steps} --interval {interval} --output gs.bp --reference reference.bp".split()
        command = [sys.executable, str(ROOT / "apps" / "gray_scott.py"), *options]
        subprocess.run(command, check=True, timeout=60, capture_output=True, cwd=folder)
        file: Any
        with adios2.FileReader(str(folder / "reference.bp")) as file:
            numbers = range(interval, steps + 1, interval)
            assert file.num_steps() == len(numbers)
            return {
                (number, name): file.read(name, step_selection=[step, 1]).reshape(file.inquire_variable(name).shape(0))
                for step, number in enumerate(numbers)
                for name in ("U", "V")
            }

    return compute


@pytest.fixture(scope="session")
def small(truth: Callable[[int, int], Fields]) -> Fields:
    """The fields of a job with SMALL."""
    return truth(STEPS, INTERVAL)


def check_fields(path: Path, wanted: Fields, eb: float) -> int:
    """Checks every value of a run against the true ones; returns how many blocks U has."""
    with cusz_operator.Reader(path) as run:
        numbers = [int(step.read("step")[0]) for step in run]
        assert numbers == sorted({number for number, _ in wanted})
        for step, number in zip(run, numbers, strict=True):
            for name in ("U", "V"):
                assert support.violations(wanted[number, name], step.read(name), eb) == []
        return len(run[0].blocks("U"))


@pytest.mark.quick(1)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_one_node(cluster: Any, small: Fields, tmp_path: Path, launcher: str) -> None:
    job = cluster.submit("one_node", tmp_path / "run", "--ntasks=4", CUSZ_LAUNCH=launcher, **SMALL)
    cluster.wait(job)
    assert check_fields(job.folder / "gs.bp", small, EB) == 4
    values = 2 * len(NUMBERS) * 24 * 20 * 16
    assert f"3 ranks read {values} values: all keep |d - d'| <= 0.0001\n" in job.output


@pytest.mark.full
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_several_nodes(cluster: Any, small: Fields, tmp_path: Path, launcher: str) -> None:
    job = cluster.submit("several_nodes", tmp_path / "run", "--ntasks-per-node=2", CUSZ_LAUNCH=launcher, **SMALL)
    cluster.wait(job)
    assert check_fields(job.folder / "gs.bp", small, EB) == 4
    found = re.findall(r"^rank (\d): node (\w+), (\d) of 2 there, CPU, 1 threads", job.output, flags=re.MULTILINE)
    assert found == [("0", "one", "0"), ("1", "one", "1"), ("2", "two", "0"), ("3", "two", "1")]
    assert "gs.bp: 4 steps, all as asked for, " in job.output


@pytest.mark.full
def test_stopped_job_continues(cluster: Any, truth: Callable[[int, int], Fields], tmp_path: Path) -> None:
    """When it is requeued or submitted again, with the same bits as a run that was never stopped."""
    interval = 20
    values = {**SMALL, "CUSZ_INTERVAL": interval, "CUSZ_EB": 0}
    long = {**values, "CUSZ_STEPS": 20000}
    job = cluster.submit("several_nodes", tmp_path / "run", "--ntasks-per-node=1", **long)
    cluster.wait_for_output(job, "step 40 of")
    cluster.requeue(job)
    cluster.wait_for_output(job, "rank 0: .*step .*rank 0: .*step .* written")
    cluster.control("scancel", str(job.number))
    cluster.wait(job, "CANCELLED")
    with cusz_operator.Reader(job.folder / "gs.bp") as run:
        last = int(run[-1].read("step")[0])

    written = [int(number) for number in re.findall(r"^step (\d+) of", job.output, re.MULTILINE)]
    assert written[:2] == [20, 40]
    assert written == sorted(set(written))  # it did not start over
    job = cluster.submit(
        "several_nodes", job.folder, "--ntasks-per-node=1", **{**values, "CUSZ_STEPS": last + interval}
    )
    cluster.wait(job)
    check_fields(job.folder / "gs.bp", truth(last + interval, interval), 0)


@pytest.mark.full
def test_gpus(cluster: Any, small: Fields, tmp_path: Path) -> None:
    """Both ranks see both GPUs of the node, and know which rank of the node they are."""
    options = ("--ntasks-per-node=2", "--gpus-per-node=2", "--cpus-per-task=2")
    job = cluster.submit("gpus", tmp_path / "run", *options, CUSZ_ARRAY="numpy", **SMALL)
    cluster.wait(job)
    check_fields(job.folder / "gs.bp", small, EB)
    found = re.findall(
        r"^rank (\d): node one, (\d) of 2 there, (?:CPU, 2 threads|CUDA .*); CUDA_VISIBLE_DEVICES=(\S+)$",
        job.output,
        re.MULTILINE,
    )
    assert found == [("0", "0", "0,1"), ("1", "1", "0,1")]


@pytest.mark.full
def test_array_over_bounds(cluster: Any, small: Fields, tmp_path: Path) -> None:
    bounds = ("1e-2", "1e-5")
    options, values = ("--array=0-1", "--ntasks=2"), {**SMALL, "CUSZ_BOUNDS": " ".join(bounds)}
    job = cluster.submit("bounds", tmp_path / "run", *options, **values)
    cluster.wait(job)
    sizes = []
    for eb in bounds:
        folder = job.folder / f"eb_{eb}"
        check_fields(folder / "gs.bp", small, float(eb))
        found = json.loads((folder / "check.json").read_text())["variables"]
        assert {name: (found[name]["steps"], found[name]["violations"]) for name in found} == {"U": (4, 0), "V": (4, 0)}
        with cusz_operator.Reader(folder / "gs.bp") as run:
            steps = list(zip(run, NUMBERS, strict=True))
            sizes.append(sum(int(step.blocks("U")["archive_bytes"].sum()) for step, _ in steps))
            errors = [np.abs(step.read("U").astype(float) - small[number, "U"]).max() for step, number in steps]
        assert found["U"]["max_error"] == max(errors)
    assert sizes[0] < sizes[1]


@pytest.mark.full
@pytest.mark.parametrize(("launcher", "nodes"), [("srun", 2), ("mpirun", 1)])
def test_coupled(cluster: Any, small: Fields, tmp_path: Path, launcher: str, nodes: int) -> None:
    """The monitor's figures match the true fields to within the bound."""
    numbers = (10, 20)
    values = {**SMALL, "CUSZ_INTERVAL": 10, "CUSZ_MONITOR_RANKS": 2, "CUSZ_LAUNCH": launcher}
    job = cluster.submit("coupled", tmp_path / "run", f"--nodes={nodes}", "--ntasks=4", **values)
    cluster.wait(job)
    with (job.folder / "monitor" / "statistics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["step"], row["variable"]) for row in rows] == [(str(step), name) for step in range(2) for name in "UV"]
    for row in rows:
        field = small[numbers[int(row["step"])], row["variable"]].astype(float)
        assert (int(row["values"]), float(row["error_bound"])) == (field.size, EB)
        for kind in ("min", "max"):
            true = Fraction(float(getattr(field, kind)()))
            assert abs(Fraction(float(row[kind])) - true) <= Fraction(EB)


@pytest.mark.full
def test_coupled_job_fails_where_one_side_does(cluster: Any, tmp_path: Path) -> None:
    """It does not wait for ever: here the simulation refuses its options, while the monitor waits for its stream."""
    job = cluster.submit("coupled", tmp_path / "run", "--ntasks=2", CUSZ_MONITOR_RANKS=1, **{**SMALL, "CUSZ_EB": -1})
    cluster.wait(job, "FAILED")
    assert "gray_scott: argument --eb" in job.output


@pytest.mark.quick(1)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_program_with_a_configuration_file(cluster: Any, tmp_path: Path, launcher: str) -> None:
    """The job of the README, with a C++ program that does not know the operator."""
    program = ROOT / "build" / "release" / "apps" / "heat_xml"
    if not program.is_file():
        pytest.skip(f"{program} is missing: scripts/setup compiles it")
    launch = {"srun": "srun --mpi=pmix", "mpirun": "mpirun --bind-to none"}[launcher]
    (tmp_path / "job.sh").write_text(f"""#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=2
set -e
. "$CUSZ_VENV/bin/activate"
eval "$(cusz config --environment)"
export SLURM_PMIX_FENCE=ring
{launch} {program} {tmp_path}/small.bp {ROOT}/apps/heat_xml.xml
""")
    cluster.wait(cluster.submit(tmp_path / "job.sh", tmp_path / "run"))
    blocks = list(cusz_operator.inspect_bp(tmp_path / "small.bp"))
    kinds = {(block["kind"], block["eb"]) for block in blocks if block["operator"] == "cusz"}
    assert kinds == {("tiled", 1e-3)}
    assert {block["block"] for block in blocks if block["operator"] == "cusz"} == {0, 1, 2, 3}


@pytest.mark.full
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_no_rank_leaves_mpi_init_before_all_are_in_it(cluster: Any, tmp_path: Path, launcher: str) -> None:
    """If one leaves early and sends, Open MPI crashes in a rank that is late, as srun over several nodes can cause."""
    late = support.library_of(Path(__file__).parent / "late.c", tmp_path)
    program = r"""
import mpi4py.MPI, sys, time
sys.stdout.write(f"out {time.monotonic_ns()}\n")  # at once: lines of other ranks do not get into it
"""
    (tmp_path / "out.py").write_text(program)
    (tmp_path / "job.sh").write_text(f"""#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=2
set -euo pipefail
source "$CUSZ_ROOT/scripts/slurm/environment.sh"
launch 4 env LD_PRELOAD={late} python {tmp_path}/out.py
""")
    job = cluster.submit(tmp_path / "job.sh", tmp_path / "run", CUSZ_LAUNCH=launcher)
    cluster.wait(job)
    late_in = re.search(r"late in (\d+)", job.output)
    if late_in is None:
        pytest.skip("this MPI does not call the system's PMIx_Fence_nb, which alone can be made to wait")
    out = [int(time) for time in re.findall(r"out (\d+)", job.output)]
    assert len(out) == 4
    assert min(out) > int(late_in[1])


@pytest.mark.full
def test_ranks_get_what_a_job_sets(cluster: Any, tmp_path: Path) -> None:
    """Even if the job is not given the environment of its submission."""
    (tmp_path / "job.sh").write_text("""#!/bin/bash
#SBATCH --ntasks=2 --cpus-per-task=2
set -euo pipefail
source "$CUSZ_ROOT/scripts/slurm/environment.sh"
launch 2 env
""")
    job = cluster.submit(tmp_path / "job.sh", tmp_path / "run", "--export=CUSZ_ROOT,CUSZ_VENV,CUSZ_OUT,PATH,HOME")
    cluster.wait(job)
    assert job.output.count("OMP_NUM_THREADS=2\n") == 2


def test_launcher_that_does_not_fit_the_mpi(cluster: Any, tmp_path: Path) -> None:
    job = cluster.submit("one_node", tmp_path / "run", "--ntasks=2", CUSZ_SRUN_MPI="none", **SMALL)
    cluster.wait(job, "FAILED")
    assert not (job.folder / "gs.bp").exists()


# ------------------------------------------------------------------------------------------ without SLURM


def script(name: str, *options: object) -> subprocess.CompletedProcess[str]:
    """Runs a program of scripts/slurm on a single rank."""
    return support.run([sys.executable, ROOT / "scripts" / "slurm" / name, *options], status=None)


def load(name: str) -> Any:
    """Imports a program of scripts/slurm as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "slurm" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_environment_of_jobs(tmp_path: Path) -> None:
    """When a site or user submits with --export=NONE; SLURM sets SLURM_NTASKS only if --ntasks was given."""
    job = {"SLURM_JOB_NUM_NODES": "3", "SLURM_NTASKS_PER_NODE": "4", "SLURM_EXPORT_ENV": "NONE"}
    own = {"CUSZ_ROOT": str(ROOT), "CUSZ_VENV": sys.prefix, "CUSZ_OUT": str(tmp_path / "out")}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    command = "set -euo pipefail; source $CUSZ_ROOT/scripts/slurm/environment.sh; echo $SLURM_NTASKS; env"
    for given, ranks in (({}, "12"), ({"SLURM_NTASKS": "5"}, "5")):
        done = support.run(["bash", "-c", command], env={**environment, **job, **own, **given})
        lines = done.stdout.splitlines()
        assert lines[0] == ranks
        assert "SLURM_EXPORT_ENV=ALL" in lines


def test_ranks_that_are_not_what_was_asked_for() -> None:
    assert script("ranks.py", 1, "--nodes", 1).returncode == 0
    done = script("ranks.py", 8, "--nodes", 2)
    assert done.returncode == 1
    assert "ranks: the launcher gave 1 rank, not 8" in done.stderr
    assert "ranks: the ranks are on 1 nodes, not 2" in done.stderr


@pytest.mark.parametrize(("device", "sharing", "status"), [(0, 1, 0), (1, 2, 1), (None, 1, 1)])
def test_ranks_that_want_a_gpu_each(
    monkeypatch: pytest.MonkeyPatch, device: int | None, sharing: int, status: int
) -> None:
    binding = cusz_operator.Binding(0, "n", 0, 1, device, "name", sharing, 1, (0,), None)
    monkeypatch.setattr(cusz_operator, "device_map", lambda comm: [binding])
    monkeypatch.setattr(sys, "argv", ["ranks.py", "1", "--gpus"])
    assert load("ranks").main() == status


def test_check_finds_what_is_wrong(tmp_path: Path) -> None:
    module = load("check")
    field = np.linspace(0, 1, 4096, dtype=np.float32)

    def write(name: str, numbers: Sequence[int], values: np.ndarray) -> Path:
        steps = ({"U": values, "step": np.array([number], float)} for number in numbers)
        exact = {"step": {"eb": 0}}
        return support.write_run(tmp_path / name, *steps, eb=EB, predictor="lorenzo", variables=exact)

    def problems(path: Path, eb: float = EB) -> list[str]:
        with cusz_operator.Reader(path) as run:
            found: list[str] = module.problems(run, [10, 20], eb)
            return found

    good = write("good.bp", (10, 20), field)
    assert problems(good) == []
    assert "step 10, U: the bound is 0.0001, not 1e-05" in problems(good, EB / 10)
    assert problems(write("short.bp", (10,), field)) == ["it holds the steps [10], not [10, 20]"]
    assert problems(write("twice.bp", (10, 10, 20), field)) == ["it holds the steps [10, 10, 20], not [10, 20]"]
    with_nan = field.copy()
    with_nan[1000] = np.nan
    found = problems(write("nan.bp", (10, 20), with_nan))
    assert [line.split(",")[0] for line in found] == ["step 10", "step 20"]
    assert all("values are not finite" in line for line in found)

    assert problems(write("gap.bp", (10, 15), field)) == ["it holds the steps [10, 15], not [10, 20]"]
    assert problems(write("extended.bp", (10, 12, 20), field)) == []  # 12: the last step before the run was extended
    with cusz_operator.Reader(tmp_path / "nan.bp") as run:
        assert module.problems(run, [10, 20], EB, allow_nan=True) == []

    options = (good, "--steps", 20, "--interval", 10, "--eb", EB)
    assert script("check.py", *options).stdout.startswith(f"{good}: 2 steps, all as asked for, ")
    support.damage(good / "data.0", 1000, within=b"cuSZ")
    done = script("check.py", *options)
    assert done.returncode == 1
    assert f"check: {good}: rank 0: " in done.stderr


def test_check_wants_an_absolute_bound(tmp_path: Path) -> None:
    """For a bound relative to every value, it says that it cannot tell, rather than nothing."""
    fields = {"U": np.linspace(1, 2, 4096, dtype=np.float32), "step": 10}
    support.write_run(tmp_path / "run.bp", fields, eb=0.5, mode="pw_rel")
    done = script("check.py", tmp_path / "run.bp", "--steps", 10, "--interval", 10, "--eb", EB)
    assert done.returncode == 1
    assert "step 10, U: no absolute bound is known (its mode is pw_rel" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_check_takes_what_programs_write(tmp_path: Path) -> None:
    """Single values, texts, integers and complex numbers."""
    field = np.linspace(0, 1, 4096, dtype=np.float32)
    fields = {"title": "a run", "U": field, "of_integers": np.arange(100), "wave": np.exp(1j * field)}
    steps = ({"step": number, "time": 0.1 * number, **fields} for number in (10, 20))
    support.write_run(tmp_path / "run.bp", *steps, eb=EB)
    done = script("check.py", tmp_path / "run.bp", "--steps", 20, "--interval", 10, "--eb", EB)
    assert done.returncode == 0, done.stderr
    assert "2 steps, all as asked for, " in done.stdout
