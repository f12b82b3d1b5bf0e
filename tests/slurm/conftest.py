"""A SLURM for the tests: munged, slurmctld and two slurmd, one per virtual node, on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NODES = ("one", "two")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "mpirun")
SEARCH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
PENDING = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED"}

#: A user's environment on this machine: mpirun as root, ranks that share cores.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl": "tcp,self",  # both nodes are this machine, where names of shared memory would clash
    "OPENBLAS_NUM_THREADS": "1",
}

CONFIGURATION = """
ClusterName=test
FirstJobId={first}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=500
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=5
GresTypes=gpu
SchedulerParameters=sched_interval=1,sched_min_interval=1000,batch_sched_delay=0,bf_interval=1
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=8000 Gres=gpu:2
NodeName=two NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=8000 Gres=gpu:2
PartitionName=test Nodes=one,two Default=YES MaxTime=INFINITE State=UP
"""

#: Devices that always exist stand in for GPUs: SLURM hands out their numbers.
GPUS = "Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n"


class NoSlurmError(Exception):
    """SLURM cannot be run here; the message says why."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A job that was submitted.

    Attributes:
        number: its ID in SLURM.
        folder: where its files go (CUSZ_OUT).
    """

    number: int
    folder: Path

    @property
    def output(self) -> str:
        """What its scripts have printed so far, in all tasks of an array."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.out")))


class Cluster:
    """Two nodes with four CPUs and two "GPUs" each, which exist only in SLURM's configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.logs: list[Path] = []
        outside = {
            name: value
            for name, value in os.environ.items()
            if not re.match("S(LURM|BATCH|RUN)_|OMP_NUM_THREADS$", name)
        }
        self.environment = {**outside, **ENVIRONMENT, "PATH": SEARCH, "SLURM_CONF": str(folder / "slurm.conf")}
        self.environment |= {"CUSZ_ROOT": str(ROOT), "CUSZ_VENV": sys.prefix, "TMPDIR": str(folder / "tmp")}

    def start(self) -> None:
        """Starts the daemons. Raises NoSlurmError if one ends by itself or the nodes do not come up."""
        import pwd

        for name in ("state", "tmp", *(f"{kind}-{node}" for kind in ("spool", "tmp") for node in NODES)):
            (self.folder / name).mkdir()
        (self.folder / "munge.key").write_bytes(secrets.token_bytes(1024))
        (self.folder / "munge.key").chmod(0o400)
        self.folder.chmod(0o755)  # munged's clients need access to its socket
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
            for free in sockets:
                free.bind(("127.0.0.1", 0))
            ports = [free.getsockname()[1] for free in sockets]
        host = os.uname().nodename.split(".")[0]
        user = pwd.getpwuid(os.geteuid()).pw_name
        # Open MPI names shared memory after the job ID, and another such cluster may run on this machine.
        first = 1 + secrets.randbelow(60_000_000)
        text = CONFIGURATION.format(host=host, ports=ports, user=user, folder=self.folder, first=first)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text(GPUS)

        files = {name: str(self.folder / f"munge.{name}") for name in ("key", "socket", "pid", "log", "seed")}
        self._start(
            "munged", "--foreground", f"--key-file={files['key']}", f"--socket={files['socket']}",
            f"--pid-file={files['pid']}", f"--log-file={files['log']}", f"--seed-file={files['seed']}"
        )  # fmt: skip
        self._wait(lambda: Path(files["socket"]).exists(), 10, "munged makes no socket")
        self._start("slurmctld", "-D", "-f", self.folder / "slurm.conf")
        for node in NODES:
            self._start("slurmd", "-D", "-f", self.folder / "slurm.conf", "-N", node)
        self._wait(self._is_idle, 20, "the nodes do not come up")

    def submit(self, script: str | Path, folder: Path, *options: str, **variables: object) -> Job:
        """Submits a script, given by its name in scripts/slurm or its path, with additional environment variables."""
        folder.mkdir(exist_ok=True)
        values = {name: str(value) for name, value in {"CUSZ_OUT": folder, **variables}.items()}
        path = ROOT / "scripts" / "slurm" / f"{script}.sbatch" if isinstance(script, str) else script
        command = ("sbatch", "--parsable", f"--output={folder}/%A_%a.out", *options, str(path))
        done = self._command(*command, values=values, folder=folder)
        assert done.returncode == 0, done.stderr
        return Job(int(done.stdout.split(";")[0]), folder)

    def states(self, job: Job) -> list[str]:
        """The state of the job, or of every task of an array."""
        done = self._command("scontrol", "--oneliner", "show", "job", str(job.number))
        assert done.returncode == 0, done.stderr
        return re.findall(r"\bJobState=(\w+)", done.stdout)

    def wait(self, job: Job, state: str = "COMPLETED", timeout: float = 120) -> None:
        """Waits until the job has ended in this state; fails the test if it ends in another, or not in time."""
        until = time.monotonic() + timeout
        while not PENDING.isdisjoint(states := self.states(job)):
            if time.monotonic() > until:
                self.control("scancel", str(job.number))
                pytest.fail(f"job {job.number} is {states} after {timeout} s:\n{job.output}")
            time.sleep(0.1)
        if set(states) != {state}:
            pytest.fail(f"job {job.number} is {states}, not {state}:\n{job.output[-5000:]}")

    def wait_for_output(self, job: Job, pattern: str, timeout: float = 120) -> None:
        """Waits until a running job has printed a match of this regular expression, in which "." matches newlines."""
        until = time.monotonic() + timeout
        while re.search(pattern, job.output, re.DOTALL) is None:
            if time.monotonic() > until or not set(self.states(job)) <= PENDING:
                self.control("scancel", str(job.number))
                pytest.fail(f"job {job.number} is {self.states(job)} without {pattern!r}:\n{job.output[-5000:]}")
            time.sleep(0.02)

    def requeue(self, job: Job) -> None:
        """Stops a running job and starts it again after seconds instead of SLURM's two minutes.

        (Not at once, because within a second slurmd takes the new job's credential for the revoked one.)
        """
        self.control("scontrol", "requeue", str(job.number))
        until = time.monotonic() + 30
        while self.states(job) != ["PENDING"] and time.monotonic() < until:
            time.sleep(0.1)
        self.control("scontrol", "update", f"JobId={job.number}", "StartTime=now+2")

    def control(self, *words: str) -> None:
        """Runs scontrol or scancel."""
        done = self._command(*words)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"

    def stop(self) -> None:
        """Ends everything that was started, jobs included, and waits for it."""
        if len(self.daemons) > 1:
            self._command("scancel", "--signal=KILL", "--full", "--state=RUNNING")
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        # slurmd does not end its children. All have the path of this configuration in their environment.
        for _ in range(100):
            left = self._processes()
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            if not left:
                return
            time.sleep(0.1)
        raise AssertionError(f"these processes do not end: {left}")

    # ------------------------------------------------------------------------------------------------- inside

    def _start(self, *command: object) -> None:
        words = [str(word) for word in command]
        self.logs.append(self.folder / f"{words[0]}-{len(self.daemons)}.out")
        if shutil.which("setpriv", path=SEARCH) is not None:  # so that daemons end if pytest is killed
            words[:0] = ["setpriv", "--pdeathsig", "TERM"]
        with self.logs[-1].open("wb") as out:
            daemon = subprocess.Popen(
                words, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder
            )
        self.daemons.append(daemon)

    def _command(
        self, *words: str, values: dict[str, str] | None = None, folder: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env={**self.environment, **(values or {})}, cwd=folder or self.folder, timeout=30,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def _wait(self, condition: Callable[[], bool], timeout: float, otherwise: str) -> None:
        until = time.monotonic() + timeout
        while not condition():
            ended = [i for i, daemon in enumerate(self.daemons) if daemon.poll() is not None]
            if ended or time.monotonic() > until:
                which = ended[0] if ended else -1
                what = f"{self.logs[which].stem} ends by itself" if ended else otherwise
                lines = self.logs[which].read_text(errors="replace").strip().splitlines()
                errors = [line for line in lines if re.search("error|fatal", line, re.IGNORECASE)] or lines
                raise NoSlurmError(f"{what}: {'; '.join(errors[-3:]) or 'without a message'}")
            time.sleep(0.05)

    def _is_idle(self) -> bool:
        return self._command("sinfo", "--noheader", "--format=%T").stdout.split() == ["idle"]

    def _processes(self) -> list[int]:
        mark = f"SLURM_CONF={self.folder / 'slurm.conf'}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdecimal() and mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A private SLURM, which ends with the tests."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=SEARCH) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (scripts/setup --with-slurm)")
    folder = Path(tempfile.mkdtemp(prefix="cusz-slurm-", dir="/tmp"))  # short, because socket paths are limited
    cluster = Cluster(folder)
    try:
        try:
            cluster.start()
        except NoSlurmError as reason:
            pytest.skip(f"SLURM cannot be run here: {reason}")
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder)
