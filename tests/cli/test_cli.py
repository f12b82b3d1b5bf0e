"""The command `cusz`, end to end: what it writes, prints and returns."""

import io
import json
import os
import pty
import re
import resource
import select
import shutil
import stat
import subprocess
import sys
from importlib.metadata import EntryPoint
from xml.etree import ElementTree

import numpy as np
import pytest

import cusz_core as cusz
import support
from cusz_core import _native, cli, command_line, extensions
from cusz_core.parameters import TABLE
from cusz_operator import PluginError, commands
from support import fails

X = support.smooth((20, 30, 40), support.F32)


def test_npy_there_and_back(run, folder):
    code, out, err = run("compress", "x.npy", "--eb", "1e-3", "--mode", "rel")
    assert (code, err) == (0, "")
    archive = (folder / "x.npy.cusz").read_bytes()
    assert archive == cusz.compress(X, 1e-3, "rel")
    assert re.fullmatch(r"x.npy.cusz: 96 kB -> .*, ratio \d+\.\d\d, .* bits per value, bound .*, .* s, .* GB/s\n", out)

    assert run("decompress", "x.npy.cusz", "-o", "y.npy")[0] == 0
    assert support.same_bits(np.load("y.npy"), cusz.decompress(archive))
    assert run("decompress", "x.npy.cusz", "-o", "y.raw")[0] == 0
    assert (folder / "y.raw").read_bytes() == cusz.decompress(archive).tobytes()
    assert run("decompress", "x.npy.cusz", "--force")[0] == 0
    assert support.same_bits(np.load("x.npy"), cusz.decompress(archive))

    code, out, err = run("verify", "x.raw", "x.npy.cusz")
    assert (code, err) == (0, "")
    assert "bound     holds" in out


def test_a_field_of_more_than_max_bytes_is_refused(run, folder):
    run("compress", "x.npy", "--eb", "1e-3")
    assert fails(
        run("decompress", "x.npy.cusz", "-o", "y.npy", "--max-bytes", X.nbytes - 1), 2, "more than max_bytes = 95999"
    )
    assert not (folder / "y.npy").exists()
    assert run("decompress", "x.npy.cusz", "-o", "y.npy", "--max-bytes", X.nbytes)[0] == 0


def test_levels(run, folder):
    run("compress", "x.npy", "--eb", "1e-3", "--predictor", "spline")
    archive = (folder / "x.npy.cusz").read_bytes()
    levels, whole = cusz.levels(archive), cusz.decompress(archive)
    listed = json.loads(run("inspect", "x.npy.cusz", "--json")[1])["levels"]
    assert [(tuple(each["shape"]), each["needed_bytes"]) for each in listed] == [
        (level.shape, level.needed_bytes) for level in levels
    ]
    described = run("inspect", "x.npy.cusz")[1]
    assert re.search(r"level 1 +10x15x20, needs the first .* kB\n", described)
    assert not re.search(r"level 0", described)
    code, out, _ = run("decompress", "x.npy.cusz", "--level", 1, "-o", "half.npy")
    assert code == 0
    assert out.startswith("half.npy: float32 10x15x20, 12 kB, ")
    assert support.same_bits(np.load("half.npy"), np.ascontiguousarray(whole[::2, ::2, ::2]))
    # The bytes behind the level do not matter.
    (folder / "damaged.cusz").write_bytes(archive[:-1] + bytes([archive[-1] ^ 255]))
    assert run("decompress", "damaged.cusz", "--level", 1, "-o", "again.npy")[0] == 0
    assert support.same_bits(np.load("half.npy"), np.load("again.npy"))
    assert fails(run("decompress", "damaged.cusz", "-o", "whole.npy"), 1, "checksum")
    for level in (-1, len(levels)):
        assert fails(run("decompress", "x.npy.cusz", "--level", level, "-o", "none.npy"), 2, f"level is {level}; ")


def test_raw_there_and_back(run, folder):
    assert run("compress", "d.raw", "--shape", "20x30x40", "--dtype", "f64", "--eb", 0.01)[0] == 0
    assert (folder / "d.raw.cusz").read_bytes() == cusz.compress(X.astype(np.float64), 0.01)
    (folder / "d.raw").rename(folder / "original")
    assert run("decompress", "d.raw.cusz")[0] == 0
    assert (folder / "d.raw").stat().st_size == 8 * X.size
    assert run("verify", "original", "d.raw.cusz")[0] == 0
    assert run("verify", "original", "d.raw.cusz", "--shape", "20,30,40", "--dtype", "f64")[0] == 0


def test_directories_have_other_commands(run, folder):
    (folder / "run.bp").mkdir()
    verify, decompress = ["verify", "d.raw", "run.bp"], ["decompress", "run.bp", "-o", "x.npy"]
    for command in (["tune", "run.bp"], ["compress", "run.bp", "--eb", 1], verify, decompress):
        code, _, err = run(*command)
        assert code == 2
        assert "run.bp is a directory, not one field: cusz --help lists commands for those" in err


def test_options_reach_the_library(run, folder):
    x = X.copy()
    x[0, 0, 0] = 1e20
    np.save("f.npy", x)
    options = ("--eb=0.01", "--bins=256", "--backend=cpu", "--threads=2", "--fill=1e20", "--lossless=none")
    assert run("compress", "f.npy", *options, "-o", "f.cusz")[0] == 0
    assert (folder / "f.cusz").read_bytes() == cusz.compress(x, 0.01, bins=256, fill=1e20)
    assert run("compress", "f.npy", "--eb", 0.01, "--fill", "1e20", "--predictor", "spline", "-o", "s.cusz")[0] == 0
    assert (folder / "s.cusz").read_bytes() == cusz.compress(x, 0.01, fill=1e20, predictor="spline")


def test_fortran_order_is_kept_right(run, folder):
    np.save("f.npy", np.asfortranarray(X))
    assert run("compress", "f.npy", "--eb", 0)[0] == 0
    assert support.same_bits(cusz.decompress((folder / "f.npy.cusz").read_bytes()), X)


def test_empty_fields(run, folder):
    np.save("e.npy", np.zeros((0, 3), np.float32))
    assert run("compress", "e.npy", "--eb", 1)[0] == 0
    assert run("decompress", "e.npy.cusz", "-o", "e.raw")[0] == 0
    assert (folder / "e.raw").read_bytes() == b""
    assert run("compress", "e.raw", "--shape", "0x3", "--dtype", "f32", "--eb", 1)[0] == 0
    assert run("inspect", "e.raw.cusz")[0] == 0
    assert run("verify", "e.npy", "e.raw.cusz")[0] == 0


def test_json(run):
    code, out, _ = run("compress", "x.npy", "--eb", "1e-2", "--json")
    assert code == 0
    made = json.loads(out)
    assert made["output"] == "x.npy.cusz"
    assert made["ratio"] == made["raw_bytes"] / made["archive_bytes"]
    info = json.loads(run("inspect", "x.npy.cusz", "--json")[1])
    assert info["shape"] == [20, 30, 40]
    assert len(info.pop("levels")) == 7
    assert {key: made[key] for key in info} == info
    result = json.loads(run("verify", "x.npy", "x.npy.cusz", "--json")[1])
    assert result["max_error"] <= result["eb_abs"] == 1e-2
    backends = json.loads(run("devices", "--json")[1])["backends"]
    assert [b["name"] for b in backends] == ["cpu", "cuda"]
    for backend in backends:
        assert set(backend) == {"name", "available", "device", "threads", "devices"}
        assert backend["available"] == (len(backend["devices"]) > 0)
        assert backend["device"] == (backend["devices"] or [backend["device"]])[0] != ""


def test_inspect(run):
    run("compress", "x.npy", "--eb", "1e-3", "--mode", "rel", "--fill", "5")
    code, out, err = run("inspect", "x.npy.cusz", "--check")
    assert (code, err) == (0, "")
    for words in ("float32 20x30x40", "ratio", "0.001 of the value range", "fill      5.0", "(verified)"):
        assert words in out
    run("compress", "x.npy", "--eb", "1e-3", "--predictor", "lorenzo", "-o", "lorenzo.cusz")
    out = run("inspect", "lorenzo.cusz", "--check")[1]
    for words in ("tiled, format version 1\n", "coding    lorenzo, huffman, ", "tiles     12 of 8x16x32", "(verified)"):
        assert words in out
    run("compress", "x.npy", "--eb", "1e-3", "--predictor", "spline", "-o", "spline.cusz")
    out = run("inspect", "spline.cusz", "--check")[1]
    for words in ("tiled, format version 2\n", "coding    spline, rans, ", "(verified)"):
        assert words in out
    run("compress", "x.npy", "--eb", "0", "-o", "raw.cusz")
    assert "every value is exact" in run("inspect", "raw.cusz")[1]


def test_devices(run):
    code, out, err = run("devices")
    assert (code, err) == (0, "")
    assert re.search(r"^cpu +.*threads? by default$", out, re.MULTILINE)
    assert re.search(r"^cuda +\w", out, re.MULTILINE)


def test_several_devices(run, monkeypatch):
    monkeypatch.setattr(_native, "has_backend", lambda backend: True)
    monkeypatch.setattr(_native, "device_count", lambda: (2, ""))
    monkeypatch.setattr(_native, "device_name", lambda number: f"GPU {number}")
    assert "cuda      device 0: GPU 0\ncuda      device 1: GPU 1\n" in run("devices")[1]
    monkeypatch.setattr(_native, "device_count", lambda: (0, "there is no CUDA driver"))
    assert "cuda      there is no CUDA driver\n" in run("devices")[1]


def test_backends(run):
    run("compress", "x.npy", "--eb", "1e-3")
    assert run("decompress", "x.npy.cusz", "-o", "y.npy", "--backend", "cpu")[0] == 0
    assert run("verify", "x.npy", "x.npy.cusz", "--backend", "cpu")[0] == 0
    assert fails(run("decompress", "x.npy.cusz", "-o", "z.npy", "--backend", "gpu"), 2, "invalid choice: 'gpu'")
    if "cuda" not in support.BACKENDS:
        assert fails(run("decompress", "x.npy.cusz", "-o", "z.npy", "--backend", "cuda"), 1, "CUDA")
        assert fails(run("verify", "x.npy", "x.npy.cusz", "--backend", "cuda"), 1, "CUDA")


@pytest.mark.parametrize("command", ["compress", "config"])
def test_every_parameter_is_an_option(command, capsys):
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    told = capsys.readouterr().out
    for key in TABLE:
        assert re.search(rf"^  --{key} ", told, re.MULTILINE)


def test_usage_errors(run):
    assert fails(run(), 2, "COMMAND")
    assert fails(run("frobnicate"), 2, "invalid choice: 'frobnicate'")
    assert fails(run("compress", "x.npy"), 2, "--eb")
    assert fails(run("compress", "x.npy", "--eb", "small"), 2, "'small' is not a number")
    assert fails(run("compress", "x.npy", "--eb", "1", "--frobnicate"), 2, "--frobnicate")
    assert fails(run("compress", "x.raw", "--eb", "1"), 2, "give --shape .* and --dtype")
    assert fails(run("compress", "x.raw", "--eb", "1", "--shape", "20x30x40"), 2, "--dtype")
    assert fails(run("compress", "x.raw", "--eb", "1", "--shape", "20*30", "--dtype", "f32"), 2, "not a shape such as")
    assert fails(
        run("compress", "x.raw", "--eb", "1", "--shape", "5", "--dtype", "f32"), 2, "96000 bytes; f32 of shape 5 has 20"
    )
    assert fails(run("compress", "x.npy", "--eb", "1", "--dtype", "f32"), 2, "for raw files")
    assert fails(run("compress", "x.npy", "--eb", "1", "--mode", "most"), 2, "invalid choice: 'most'")
    assert fails(run("decompress", "x.raw"), 2, "does not end in .cusz: name the output with -o")


def test_parameter_errors(run, folder):
    assert fails(run("compress", "x.npy", "--eb", "-1"), 2, "eb is -1.0; it must be finite and >= 0")
    assert fails(run("compress", "x.npy", "--eb", "nan"), 2, "eb is nan")
    assert fails(run("compress", "x.npy", "--eb", "1", "--bins", "100"), 2, "power of two")
    assert fails(run("compress", "x.npy", "--eb", "1", "--threads", "0"), 2, "threads is 0")
    np.save("i.npy", np.arange(5))
    assert fails(run("compress", "i.npy", "--eb", "1"), 2, "int64.*accepted are float32 and float64")
    np.save("big.npy", X.astype(">f4"))
    assert fails(run("compress", "big.npy", "--eb", "1"), 2, "native byte order")
    assert not list(folder.glob("*.cusz"))


def test_failures(run, folder):
    run("compress", "x.npy", "--eb", "1e-3")
    assert fails(run("compress", "missing.npy", "--eb", "1"), 1, "No such file or directory: missing.npy")
    assert fails(run("inspect", "missing"), 1, "No such file or directory: missing")
    assert fails(run("inspect", "x.npy"), 1, "not a cuSZ archive")
    assert fails(run("decompress", "x.raw", "-o", "y"), 1, "not a cuSZ archive")
    (folder / "empty").write_bytes(b"")
    assert fails(run("inspect", "empty"), 1, "not a cuSZ archive")
    assert fails(run("compress", "x.npy", "--eb", "1", "-o", "nowhere/x.cusz"), 1, "No such file")
    zipped = io.BytesIO()
    np.savez(zipped, X)
    for name, content in {
        "bad.npy": b"not numpy",
        "none.npy": b"",
        "cut.npy": (folder / "x.npy").read_bytes()[:-5],
        "several.npy": zipped.getvalue(),
        "cut_zip.npy": zipped.getvalue()[:100],
        "bracket.npy": (folder / "x.npy").read_bytes().replace(b"40)", b"40("),
        "large.npy": (folder / "x.npy").read_bytes().replace(b"(20, 30, 40), }" + 18 * b" ", b"(" + 29 * b"9" + b",)}"),
        "text.npy": (folder / "x.npy").read_bytes().replace(b"(20, 30", b"(20,'30"),
    }.items():
        (folder / name).write_bytes(content)
        for words in (("compress", name, "--eb", 1), ("tune", name), ("bench", name)):
            assert fails(run(*words), 1, f"{name} is not a readable .npy file: ")
    np.save("pickle.npy", np.array([None]), allow_pickle=True)
    assert fails(run("compress", "pickle.npy", "--eb", "1"), 1, "not a readable .npy file")

    support.damage(shutil.copy(folder / "x.npy.cusz", folder / "bad.cusz"), -1)
    assert fails(run("decompress", "bad.cusz", "-o", "y.npy"), 1, "corrupt")
    assert run("inspect", "bad.cusz")[0] == 0
    assert fails(run("inspect", "bad.cusz", "--check"), 1, "corrupt")
    assert fails(run("verify", "x.npy", "bad.cusz"), 1, "corrupt")
    assert not (folder / "y.npy").exists()
    if "cuda" not in support.BACKENDS:
        assert fails(run("compress", "x.npy", "--eb", "1", "--backend", "cuda", "-o", "c.cusz"), 1, "CUDA")


def test_a_broken_bound(run):
    run("compress", "x.npy", "--eb", "1e-3")
    other = X.copy()
    other[1, 2, 3] += 1
    np.save("other.npy", other)
    assert fails(run("verify", "other.npy", "x.npy.cusz"), 1, r"1 of 24000 values break the bound.*\(1, 2, 3\)")
    np.save("other.npy", X[1:])
    assert fails(run("verify", "other.npy", "x.npy.cusz"), 2, "not of the same field")


def test_nothing_is_overwritten_unasked(run, folder):
    run("compress", "x.npy", "--eb", "1e-3")
    before = (folder / "x.npy.cusz").read_bytes()
    assert fails(run("compress", "x.npy", "--eb", "1"), 2, "x.npy.cusz exists: use --force to overwrite it")
    assert fails(run("decompress", "x.npy.cusz"), 2, "x.npy exists")
    assert (folder / "x.npy.cusz").read_bytes() == before
    assert run("compress", "x.npy", "--eb", "1", "--force")[0] == 0
    assert (folder / "x.npy.cusz").read_bytes() != before
    assert fails(run("compress", "x.npy", "--eb", "1", "-o", "x.npy", "-f"), 2, "is the input itself")
    assert fails(run("compress", "x.npy", "--eb", "1", "-o", folder, "-f"), 2, "is a directory")


def test_output_is_complete_or_absent(run, folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert fails(run("compress", "x.npy", "--eb", "1e-3"), 1, "No space left on device")
    assert sorted(p.name for p in folder.iterdir()) == ["d.raw", "x.npy", "x.raw"]


@pytest.mark.parametrize("name", ["y.npy", "y.raw"])
def test_why_a_file_could_not_be_written_is_told(run, folder, name):
    run("compress", "x.npy", "--eb", "1e-3")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (X.nbytes // 2, before[1]))
    try:
        said = run("decompress", "x.npy.cusz", "-o", name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert fails(said, 1, "File too large")
    assert not (folder / name).exists()


def test_output_has_ordinary_permissions(run, folder):
    mask = os.umask(0o027)
    try:
        run("compress", "x.npy", "--eb", "1e-3")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((folder / "x.npy.cusz").stat().st_mode) == 0o640


@pytest.mark.parametrize("command", ["compress", "decompress"])
def test_a_pipe_as_output_stays_one(run, folder, command):
    """So does a device. Otherwise root could replace /dev/null by a file that takes everybody's output."""
    run("compress", "x.npy", "--eb", "1e-3")
    archive = (folder / "x.npy.cusz").read_bytes()
    os.mkfifo(folder / "pipe")
    words = ("compress", "x.npy", "--eb", "1e-3") if command == "compress" else ("decompress", "x.npy.cusz")
    assert fails(run(*words, "-o", "pipe"), 2, "pipe exists: use --force to overwrite it")
    reader = subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE, cwd=folder)
    try:
        assert run(*words, "-o", "pipe", "--force")[0] == 0
        written = reader.communicate(timeout=30)[0]
    finally:
        reader.kill()
        reader.wait()
    assert written == (archive if command == "compress" else cusz.decompress(archive).tobytes())
    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)


@pytest.mark.parametrize("command", [("compress", "x.npy", "--eb", "1e-3"), ("decompress", "x.cusz")], ids=" ".join)
def test_standard_output_as_output_has_nothing_else(run, folder, command):
    run("compress", "x.npy", "--eb", "1e-3", "-o", "x.cusz")
    archive = (folder / "x.cusz").read_bytes()
    words = [sys.executable, "-m", "cusz_core", *command, "-o", "/dev/stdout", "--force"]
    done = subprocess.run(words, cwd=folder, capture_output=True, check=True)
    assert done.stdout == (archive if command[0] == "compress" else cusz.decompress(archive).tobytes())
    assert done.stderr.startswith(b"/dev/stdout: ")


def test_a_link_as_output_stays_one(run, folder):
    """The link's target, perhaps on a larger disk, is written, whether it exists yet or not."""
    (folder / "elsewhere").mkdir()
    (folder / "x.cusz").symlink_to("elsewhere/x.cusz")
    for eb in (1e-3, 1e-2):
        assert run("compress", "x.npy", "--eb", eb, "-o", "x.cusz", "--force")[0] == 0
        assert (folder / "x.cusz").is_symlink()
        assert (folder / "elsewhere/x.cusz").read_bytes() == cusz.compress(X, eb)
    assert [path.name for path in (folder / "elsewhere").iterdir()] == ["x.cusz"]


def test_output_may_have_the_longest_name(run, folder):
    name = "x" * 250 + ".cusz"
    assert run("compress", "x.npy", "--eb", "1e-3", "-o", name)[0] == 0
    assert (folder / name).read_bytes() == cusz.compress(X, 1e-3)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_standard_stream_that_is_closed(folder, closed):
    """As in programs started by a daemon."""
    command = f"{sys.executable} -m cusz_core compress x.npy --eb 1e-3 {closed}"
    assert support.run(["sh", "-c", command], cwd=folder).stderr == ""
    assert (folder / "x.npy.cusz").read_bytes() == cusz.compress(X, 1e-3)
    failed = support.run(["sh", "-c", f"{sys.executable} -m cusz_core inspect missing {closed}"], cwd=folder, status=1)
    assert failed.stderr in ("", "cusz: error: No such file or directory: missing\n")


def test_names_that_standard_output_cannot_say(folder):
    """Bytes that are not UTF-8, which Linux allows, and letters that a locale lacks."""
    name = os.fsdecode(b"\xff\xc3\xa9.npy")
    shutil.copy(folder / "x.npy", name)
    for encoding in ("utf-8", "ascii"):
        command = [sys.executable, "-m", "cusz_core", "compress", name, "--eb", "1e-3", "--force"]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert b".npy.cusz: 96 kB -> " in done.stdout


def test_an_archive_from_a_pipe_is_checked(folder):
    archive = cusz.compress(X, 1e-3)
    for end, code in ((archive[-1], 0), (archive[-1] ^ 1, 1)):
        done = subprocess.run(
            [sys.executable, "-m", "cusz_core", "inspect", "--check", "/dev/stdin"],
            input=archive[:-1] + bytes([end]),
            capture_output=True,
            check=False,
        )
        assert done.returncode == code
        assert (b"(verified)" in done.stdout) == (code == 0)
        assert (b"corrupt archive: " in done.stderr) == (code == 1)


@pytest.fixture
def operator_package(monkeypatch):
    """The operator's commands, on a fake operator that does not need ADIOS2."""
    monkeypatch.setattr(commands, "plugin_path", lambda: "/opt/my plugins")
    monkeypatch.setattr(
        commands,
        "inspect_bp",
        lambda path, **_: iter(
            [
                {"step": 0, "variable": "U", "start": [0, 4], "ratio": 5.123456789, "path": path},
                {"step": 1, "variable": "U", "start": [0, 8], "ratio": float("inf"), "path": path, "more": np.int64(3)},
            ]
        ),
    )


@pytest.fixture
def without_the_operator(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("cusz_operator.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cusz_operator", None)


@pytest.mark.usefixtures("operator_package")
def test_config(run):
    variables = ("--variable", "U", "--eb", "1e-3", "--variable", "V", "--eb", "0.1", "--mode", "rel")
    code, out, err = run("config", *variables, "--engine", "SST", "--bins", 1024, "--fill", "1e20", "--format", "xml")
    assert (code, err) == (0, "")
    assert "export ADIOS2_PLUGIN_PATH='/opt/my plugins'${ADIOS2_PLUGIN_PATH:+:$ADIOS2_PLUGIN_PATH}" in out
    root = ElementTree.fromstring(out)
    assert root.find("io/engine").get("type") == "SST"
    got = [[p.get("value") for p in v.findall("operation/parameter")] for v in root.findall("io/variable")]
    assert got == [["cusz", "cusz_operator", eb, "rel", "1024", "1e+20"] for eb in ("0.001", "0.1")]
    code, out, err = run("config", *variables)
    assert (code, err) == (0, "")
    assert out.startswith("# environment\nexport ADIOS2_PLUGIN_PATH='/opt/my plugins'${")
    assert "<adios-config>" in out
    assert '- IO: "SimulationOutput"' in out
    assert fails(run("config", *variables, "--eb", "1"), 2, "3 of --eb for 2 of --variable")
    assert fails(run("config", "--variable", "U", "--eb", "-1"), 2, "eb is -1.0")
    assert fails(run("config", "--variable", "U", "--eb", "1", "--bins", "3"), 2, "power of two")
    assert fails(run("config", "--eb", "1"), 2, "--variable")


@pytest.mark.usefixtures("operator_package")
def test_config_of_the_environment_alone_and_of_fortran(run):
    code, out, err = run("config", "--environment")
    assert (code, err) == (0, "")
    assert out.startswith("export ADIOS2_PLUGIN_PATH=")
    assert len(out.splitlines()) == 1
    code, out, err = run("config", "--variable", "U", "--eb", "1", "--order", "column", "--format", "xml")
    assert 'key="order" value="column"' in out


@pytest.mark.usefixtures("operator_package")
def test_config_refuses_engines_that_do_not_work_with_an_operator(run):
    variable = ("--variable", "U", "--eb", "1")
    for engine in ("HDF5", "hdf5", "Inline", "DataMan", "SSC", "BP3", "BP6", ""):
        refused = run("config", *variable, "--engine", engine)
        assert fails(refused, 2, f"engine '{engine}' does not work with the operator: .* Use one of BP5, BP4, SST")
    for engine in ("BP5", "bp5", "BP4", "SST", "BPFile", "FileStream"):
        code, out, err = run("config", *variable, "--engine", engine, "--format", "xml")
        assert (code, err) == (0, "")
        assert ElementTree.fromstring(out).find("io/engine").get("type") == engine


NEEDED = "the package cusz_operator is needed for 'cusz {}' and cannot be imported .* install what is missing"


@pytest.mark.usefixtures("without_the_operator")
def test_without_the_operator(run, folder, capsys):
    """Its commands say what is missing, and everything else works."""
    (folder / "run.bp").mkdir()
    assert fails(run("config", "--variable", "U", "--eb", "1"), 1, NEEDED.format("config"))
    assert fails(run("config", "--environment"), 1, NEEDED.format("config"))
    assert fails(run("check", "run.bp"), 1, NEEDED.format("check"))
    assert fails(run("inspect", "run.bp"), 1, NEEDED.format("inspect directory"))
    assert fails(run("devices", "--mpi"), 1, NEEDED.format("devices mpi"))
    assert run("devices")[0] == 0
    with pytest.raises(SystemExit) as raised:
        run("--help")
    assert raised.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"check not available: the package cusz_operator is needed", said)


GREETING = """
from cusz_core.command_line import Command, UsageError, add_json, print_json

def greet(options):
    if options.name == "nobody":
        raise UsageError("nobody is here")
    print_json({"hello": options.name}) if options.json else print("hello", options.name)
    return 3

def add_options(parser):
    parser.add_argument("name")
    add_json(parser)

GREET = Command("says 100% hello", greet, add_options)
"""


def test_a_command_of_another_package(run, folder, monkeypatch, capsys):
    """It is added, unless its name is taken."""
    (folder / "greeting.py").write_text(GREETING)
    monkeypatch.syspath_prepend(folder)
    entries = {name: EntryPoint(name, "greeting:GREET", command_line.GROUP) for name in ("greet", "compress")}
    monkeypatch.setattr(extensions, "of_group", lambda group: entries if group == command_line.GROUP else {})
    assert run("greet", "you") == (3, "hello you\n", "")
    assert json.loads(run("greet", "you", "--json")[1]) == {"hello": "you"}
    assert fails(run("greet", "nobody"), 2, "nobody is here")
    assert fails(run("greet"), 2, "required: name")
    with pytest.raises(SystemExit):
        run("--help")
    assert re.search(r"greet +says 100% hello", capsys.readouterr().out)
    assert fails(run("compress"), 2, "required: input")


@pytest.mark.usefixtures("folder")
def test_commands_of_a_package_that_is_not_installed(run, folder, monkeypatch):
    monkeypatch.setattr(extensions, "of_group", lambda _: {})
    (folder / "run.bp").mkdir()
    assert fails(run("check", "run.bp"), 2, "invalid choice: 'check'")
    assert fails(run("inspect", "run.bp"), 1, "no installed package provides 'cusz inspect directory'")


def test_without_adios2_and_mpi4py(run, folder, monkeypatch, capsys):
    """Commands that need them say so, and the rest works."""
    monkeypatch.setitem(sys.modules, "adios2", None)
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    (folder / "run.bp").mkdir()
    for words in (["check", "run.bp"], ["inspect", "run.bp"]):
        assert fails(run(*words), 1, "Python's adios2 cannot be imported")
    assert fails(run("devices", "--mpi"), 1, "--mpi needs the Python package mpi4py, which cannot be imported")
    assert run("config", "--variable", "U", "--eb", "1", "--format", "xml")[0] == 0
    with pytest.raises(SystemExit) as raised:
        run("--help")
    assert raised.value.code == 0
    assert "not available" not in capsys.readouterr().out


def test_other_packages_are_imported_for_their_commands_only(folder):
    support.printed(
        "import sys; from cusz_core import cli; cli.main(['devices']); assert 'cusz_operator' not in sys.modules"
    )


@pytest.mark.usefixtures("operator_package")
def test_config_without_the_plugin(run, monkeypatch):
    """A shell evaluates what --environment prints, so it prints nothing without the plugin; other forms only warn."""

    def plugin_path():
        raise PluginError("there is no plugin: build it")

    monkeypatch.setattr(commands, "plugin_path", plugin_path)
    assert fails(run("config", "--environment"), 1, "there is no plugin: build it")
    for form in ([], ["--format", "xml"], ["--format", "yaml"]):
        code, out, err = run("config", "--variable", "U", "--eb", "1", *form)
        assert (code, err) == (0, "cusz: warning: there is no plugin: build it\n")
        assert "PATH" not in out
        assert "environment" not in out
        assert "PluginName" in out


@pytest.mark.usefixtures("operator_package")
def test_inspect_of_a_bp_directory(run, folder):
    (folder / "run.bp").mkdir()
    code, out, err = run("inspect", "run.bp", "--blocks")
    assert (code, err) == (0, "")
    said, empty, *lines = out.splitlines()
    assert (said, empty) == ("the same for all blocks: path run.bp", "")
    assert lines[0].split() == ["variable", "step", "block", "start", "ratio", "more"]
    assert lines[1].split() == ["U", "0", "0x4", "5.12346"]
    rows = json.loads(run("inspect", "run.bp", "--blocks", "--json")[1])
    assert [row["step"] for row in rows] == [0, 1]
    assert rows[1]["more"] == 3
    assert rows[1]["ratio"] == "inf"


@pytest.mark.usefixtures("operator_package")
def test_inspect_of_a_damaged_bp_directory(run, folder, monkeypatch):
    def broken(path, **_):
        yield {"step": 0}
        raise RuntimeError("\033[1;36mno known\nformat\033[0m")

    monkeypatch.setattr(commands, "inspect_bp", broken)
    monkeypatch.setattr(commands, "inspect_variables", lambda path, **_: list(broken(path)))
    (folder / "run.bp").mkdir()
    for form in ([], ["--blocks"]):
        assert fails(run("inspect", "run.bp", *form), 1, "^cusz: error: run.bp cannot be read: no known format$")


def test_options_for_directories_are_refused_for_files(run):
    run("compress", "x.npy", "--eb", "1e-3")
    for words in (["--blocks"], ["--variable", "U"], ["--step", "0"], ["--step", "-1", "--json"]):
        refused = run("inspect", "x.npy.cusz", *words)
        assert fails(refused, 2, f"{words[0]} is for directories, and x.npy.cusz is a file$")
        assert fails(run("inspect", "nothing.bp", *words), 1, "No such file or directory: nothing.bp$")
    assert fails(run("inspect", "x.npy.cusz", "--step", "one"), 2, "invalid int value: 'one'")


def test_help_and_version(run):
    for arguments in (["--help"], ["compress", "--help"], ["config", "--help"], ["--version"]):
        with pytest.raises(SystemExit) as raised:
            run(*arguments)
        assert raised.value.code == 0


def command(*arguments):
    return [sys.executable, "-m", "cusz_core", *arguments]


@pytest.mark.usefixtures("folder")
def test_a_process_of_its_own():
    assert support.run(command("compress", "x.npy", "--eb", "1e-3")).stderr == ""
    failed = support.run(command("inspect", "x.npy"), status=1)
    assert failed.stdout == ""
    assert failed.stderr.startswith("cusz: error: ")
    assert "Traceback" not in failed.stderr
    pipe = f"{' '.join(command('inspect', 'x.npy.cusz', '--json'))} | true"
    assert support.run(["sh", "-c", pipe]).stderr == ""


def test_progress_on_a_terminal_only():
    """Slow work shows progress on a terminal, and leaves no trace there."""
    shown = shown_on_a_terminal("with progress('compressing'): time.sleep(1.5)")
    assert b"compressing ... 1." in shown
    assert shown.endswith(b"\r\x1b[K")


@pytest.mark.full
def test_a_bar_shows_the_part_that_is_done():
    shown = shown_on_a_terminal(
        "with progress('reading') as tell: tell(0.5); time.sleep(1.1); tell(1.0); time.sleep(0.4)"
    )
    assert b"reading [##########          ]  50%  1." in shown
    assert b"reading [####################] 100%  1." in shown
    assert shown.endswith(b"\r\x1b[K")


def shown_on_a_terminal(work):
    """What Python code prints on a terminal; without one it must print nothing."""
    code = f"import time\nfrom cusz_core.command_line import progress\n{work}\n"
    main, terminal = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        while process.poll() is None or select.select([main], [], [], 0)[0]:
            if select.select([main], [], [], 0.1)[0]:
                try:
                    shown += os.read(main, 1000)
                except OSError:
                    break
    os.close(main)
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (piped.stdout, piped.stderr) == (b"", b"")
    return shown


def test_sizes_in_words():
    sizes = {999: "999 bytes", 999_499: "999 kB", 999_600: "1 MB", 10**12: "1 TB", 2 * 10**15: "2 PB"}
    assert {n: command_line.size(n) for n in sizes} == sizes


def test_an_output_without_a_folder_is_refused_before_the_work(run, tmp_path):
    np.save(tmp_path / "x.npy", np.ones(10, np.float32))
    (tmp_path / "bad.npy").write_bytes(b"no array")
    for name in ("x", "bad"):
        words = ("compress", tmp_path / f"{name}.npy", "--eb", "1", "-o", tmp_path / "none/x.cusz")
        assert fails(run(*words), 1, f"No such file or directory: {tmp_path / 'none'}")
