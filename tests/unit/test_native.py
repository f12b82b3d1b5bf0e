"""The binding: threads, scratch memory, forks, memory, overhead."""

import ctypes
import gc
import os
import sys
import sysconfig
import threading
import time

import numpy as np
import pytest

import cusz_core as cusz
import support
from support import printed

X = support.smooth((40, 50, 60), support.F32)


def has_gil():
    return getattr(sys, "_is_gil_enabled", lambda: True)()


@pytest.mark.parametrize("name", ["compress", "decompress", "check", "value_range"])
def test_the_interpreter_is_free_while_the_library_works(name):
    x = np.tile(X, (64, 1, 1))
    archive = cusz.compress(x, 1e-3, threads=1)
    call = {
        "compress": lambda: cusz.compress(x, 1e-3, threads=1),
        "decompress": lambda: cusz.decompress(archive, threads=1),
        "check": lambda: cusz.check(archive, threads=1),
        "value_range": lambda: cusz.value_range(x, threads=1),
    }[name]
    assert is_interpreter_free_during(call)


def is_interpreter_free_during(call, seconds=30):
    """Whether this thread can run while another is inside the call, however busy the machine is.

    If the call holds the interpreter lock, this thread has at most one turn per call: after the call has returned.
    """
    turns, enough = [], threading.Event()

    def work():
        while not enough.is_set():
            turns.append(0)
            call()

    thread = threading.Thread(target=work)
    thread.start()
    end = time.monotonic() + seconds
    while sum(n > 3 for n in turns) < 20 and time.monotonic() < end:
        if turns:
            turns[-1] += 1
        time.sleep(1e-5)
    enough.set()
    thread.join()
    return sum(n > 3 for n in turns) >= 20


def test_who_keeps_the_interpreter_is_found_out():
    assert is_interpreter_free_during(lambda: ctypes.CDLL(None).usleep(2000))
    assert is_interpreter_free_during(lambda: ctypes.PyDLL(None).usleep(2000), seconds=1) != has_gil()


@pytest.mark.parametrize(("options", "calls"), [({"predictor": "lorenzo"}, 1), ({"threads": 1}, 2)], ids=str)
def test_scratch_is_kept_and_released(options, calls):
    """The spline codec has all it needs after two calls. With several threads, each has what was needed by the largest
    part that it happened to take."""
    cusz.release_scratch()
    assert cusz.scratch_bytes() == 0
    for _ in range(calls):
        cusz.compress(X, 1e-3, **options)
    kept = cusz.scratch_bytes()
    assert kept > 0
    for _ in range(3):
        cusz.compress(X, 1e-3, **options)
        assert cusz.scratch_bytes() == kept
    cusz.release_scratch()
    assert cusz.scratch_bytes() == 0


def test_memory_is_not_lost():
    x = np.tile(X, (4, 1, 1))
    archive = cusz.compress(x, 1e-3)

    def work():
        for _ in range(30):
            cusz.compress(x, 1e-3)
            cusz.decompress(archive)
            cusz.inspect(archive)
            with pytest.raises(cusz.CorruptArchiveError):
                cusz.decompress(archive[:-4])
            with pytest.raises(cusz.ParameterError):
                cusz.compress(x, 1e-3, threads=10**6)

    work()
    gc.collect()
    before = support.resident_bytes()
    work()
    gc.collect()
    assert support.resident_bytes() - before < 4 * x.nbytes


def test_objects_are_not_held():
    x = X.copy()
    references = sys.getrefcount(x)
    archive = cusz.compress(x, 1e-3)
    out = bytearray(len(archive))
    cusz.compress(x, 1e-3, out=out)
    out.append(0)  # resizing fails while a buffer is exported
    holder = bytearray(archive)
    cusz.decompress(holder)
    holder.append(0)
    with pytest.raises(cusz.CorruptArchiveError):
        cusz.decompress(holder)
    holder.append(0)
    assert sys.getrefcount(x) == references


FORK = """
import os, signal
import numpy as np
import cusz_core as cusz
x = (np.arange(300000) % 1000).astype("f4")
archive = cusz.compress(x, 1e-3, threads=4)
child = os.fork()
if child == 0:
    signal.alarm(60)
    for _ in range(3):
        assert cusz.compress(x, 1e-3, threads=4) == archive
        cusz.verify(x, archive, threads=4)
    cusz.release_scratch()
    grandchild = os.fork()
    if grandchild == 0:
        signal.alarm(60)
        assert cusz.compress(x, 1e-3, threads=4) == archive
        os._exit(0)
    os._exit(os.waitpid(grandchild, 0)[1])
status = os.waitpid(child, 0)[1]
assert status == 0, status
assert cusz.compress(x, 1e-3, threads=4) == archive
print("done")
"""


def test_a_forked_child_works_on():
    assert printed(FORK) == "done"


FORK_AMONG_THREADS = """
import os, signal, threading, warnings
import numpy as np
import cusz_core as cusz
warnings.simplefilter("ignore")  # Python warns of forks among threads
x = (np.arange(64) % 10).astype("f4")
archive = cusz.compress(x, 1e-3, threads=1)
is_over = False
def work():
    while not is_over:
        cusz.compress(x, 1e-3, threads=1)
        cusz.scratch_bytes()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
statuses = set()
for _ in range(40):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        for _ in range(3):
            assert cusz.compress(x, 1e-3, threads=1) == archive
        cusz.release_scratch()
        os._exit(0)
    statuses.add(os.waitpid(child, 0)[1])
is_over = True
for thread in threads:
    thread.join()
assert statuses == {0}, statuses
print("done")
"""


def test_a_child_forked_while_threads_compress_works_on():
    if not has_gil():
        pytest.skip("without a GIL, a fork may leave Python's own locks of dictionaries and arrays taken")
    assert printed(FORK_AMONG_THREADS) == "done"


DAEMONS = """
import threading
import numpy as np
import cusz_core as cusz
x = np.random.default_rng(0).random((64, 64, 64))
archive = cusz.compress(x, 1e-3)
def work(begun):
    while True:
        cusz.decompress(archive)
        cusz.verify(x, archive)
        cusz.compress(x, 1e-3)
        begun.set()
for begun in [threading.Event() for _ in range(4)]:
    threading.Thread(target=work, args=(begun,), daemon=True).start()
    begun.wait()
print("done")
"""


def test_a_program_can_end_while_daemon_threads_work():
    assert printed(DAEMONS) == "done"


def test_a_python_without_a_gil_stays_without():
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("this Python has a GIL")
    code = "import sys, cusz_core; print(cusz_core.compress and sys._is_gil_enabled())"
    assert printed(code, PYTHON_GIL="") == "False"


NO_THREADS = """
import resource
import numpy as np
import cusz_core as cusz
x = (np.arange(300000) % 1000).astype("f4")
archive = cusz.compress(x, 1e-3, threads=1)
out, back = bytearray(x.nbytes + 48), np.zeros_like(x)
cusz.compress(x, 1e-3, threads=1, out=out)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (7 << 20)  # less than the stack of one thread
resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, 8 << 20))
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
assert bytes(cusz.compress(x, 1e-3, threads=4, out=out)) == archive
cusz.decompress(archive, threads=4, out=back)
assert cusz.compress(back, 0) == cusz.compress(cusz.decompress(archive, threads=1), 0)
print("done")
"""


def test_where_no_thread_can_be_started_the_caller_does_the_work():
    assert printed(NO_THREADS) == "done"


NO_MEMORY = """
import resource
import threading
import numpy as np
import cusz_core as cusz
x = np.random.default_rng(0).standard_normal((100, 100, 60)).cumsum(0).astype("f4")
cusz.compress(x, 1e-2, threads=1)
refused = 0
def work():
    global refused
    try:
        cusz.compress(x, 1e-2, threads=threads)
    except MemoryError:
        refused += 1
for threads in (1, 2):
    cusz.release_scratch()
    in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    for more in range(8_500_000, 12_000_000, 20_000):
        resource.setrlimit(resource.RLIMIT_AS, (in_use + more, resource.RLIM_INFINITY))
        try:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        except (RuntimeError, MemoryError):  # Python's, which cannot start it
            continue
        cusz.release_scratch()
assert refused > 0
print("done")
"""


def test_memory_that_runs_out_in_a_new_thread_is_an_error():
    """The C++ runtime allocates memory for a thread's first throw, and ends the process if it gets none."""
    assert printed(NO_MEMORY) == "done"


def test_threads_by_default():
    code = "import cusz_core; print(cusz_core.default_threads())"
    assert printed(code, OMP_NUM_THREADS="3") == "3"
    clean = {name: "" for name in os.environ if name.startswith(("OMPI_", "SLURM_", "PMI_", "PALS_", "MPI_"))}
    cores = len(os.sched_getaffinity(0))
    assert printed(code, OMP_NUM_THREADS="", **clean) == str(cores)
    launchers = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", "PALS_LOCAL_SIZE")
    for name in (*launchers, "PMI_LOCAL_SIZE"):
        assert printed(code, OMP_NUM_THREADS="", **clean | {name: "4"}) == "1", name
    for node, threads in ((0, 1), (1, 1), (2, cores), (3, 1)):
        slurm = {"SLURM_STEP_TASKS_PER_NODE": "7(x2),1,3", "SLURM_NODEID": str(node)}
        assert printed(code, OMP_NUM_THREADS="", **clean | slurm) == str(threads)
    pinned = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}}); {code}"
    assert printed(pinned, OMP_NUM_THREADS="", **clean) == "1"


def test_errors_in_a_fresh_interpreter():
    code = """
import pickle
import cusz_core
try:
    cusz_core.inspect(b"")
except cusz_core.CuszError as error:
    print(type(pickle.loads(pickle.dumps(error))))
"""
    assert printed(code) == "<class 'cusz_core.errors.CorruptArchiveError'>"


def test_importing_is_light():
    code = "import sys, cusz_core; print(any(m.split('.')[0] in ('adios2', 'mpi4py', 'cupy') for m in sys.modules))"
    assert printed(code) == "False"
    # Importing a submodule must not look up entry points: every rank would read a file of every installed package.
    code = "import sys; from cusz_core import embedding; print('importlib.metadata' in sys.modules)"
    assert printed(code) == "False"


def test_overhead_of_a_call():
    """At most 30 microseconds in all; the library's own work is negligible for a few values."""
    x = np.zeros(8, np.float32)
    archive = cusz.compress(x, 0.0)
    calls = {
        "compress": lambda: cusz.compress(x, 0.0, threads=1),
        "decompress": lambda: cusz.decompress(archive, threads=1),
        "inspect": lambda: cusz.inspect(archive),
    }
    for name, call in calls.items():
        best = min(_seconds_per_call(call) for _ in range(20))
        assert best < 30e-6, f"{name}: {best * 1e6:.1f} us"


def _seconds_per_call(call):
    started = time.perf_counter()
    for _ in range(200):
        call()
    return (time.perf_counter() - started) / 200


def test_a_field_that_cannot_be_allocated():
    """The header of a field larger than memory, made by hand: the decoder gets no further than the header."""
    with pytest.raises((cusz.OutOfMemoryError, cusz.CorruptArchiveError)):
        cusz.decompress(b"cuSZ\1\0\1\1" + (2**60).to_bytes(8, "little") + bytes(32))
