"""Every message that troubleshooting.md quotes exists in the sources, or is printed by the programs run here."""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import cusz_core
import cusz_operator
import support
from cusz_operator import plugin

adios2 = pytest.importorskip("adios2")

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/reference/troubleshooting.md").read_text(encoding="utf-8")
QUOTES = [line for block in re.findall(r"^```text\n(.*?)^```$", TEXT, re.M | re.S) for line in block.splitlines()]
#: What precedes a message: the class of an exception, or the program that prints it.
PREFIX = re.compile(r"\w+Error: |cusz: error: |cusz_operator: |PROBLEM +|\[ADIOS2 \w+\] ")
HDF5_TOOLS = (ROOT / "tests/hdf5/test_tools.py").read_text(encoding="utf-8")
#: Messages that other tests provoke.
ELSEWHERE = {
    "Span does not support Operations": "test_adios2_examples.py",
    **dict.fromkeys(re.findall(r'^    "(.*)": ', HDF5_TOOLS, re.M), "../hdf5/test_tools.py"),
    "ORTE has lost communication with a remote daemon.": "../nodes/test_runs.py",
}
GAP = "\0"  # placeholder for a value in a message


def occurs(quote: str, text: str) -> bool:
    """Whether a text contains the pieces of a quote, in order."""
    place = 0
    for piece in map(str.strip, quote.split("...")):
        found = text.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    return True


# ------------------------------------------------------------------------------------------------------- the sources


def python_texts(path: Path) -> Iterator[str]:
    """The strings of a Python file, joined, with a gap for every value that is not a string of `plugin`."""

    def value_of(part: ast.expr) -> str:
        if isinstance(part, ast.Constant):
            return str(part.value)
        assert isinstance(part, ast.FormattedValue)
        known = getattr(plugin, part.value.id, None) if isinstance(part.value, ast.Name) else None
        shown = repr(known) if part.conversion == ord("r") else known
        return shown if isinstance(known, str) and isinstance(shown, str) else GAP

    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(map(value_of, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def cpp_texts(path: Path) -> Iterator[str]:
    """The strings of every statement of a C++ file, with a gap between strings and where printf puts a value."""
    statement: list[str] = []
    joined = re.sub(r'(?<!\\)"\s*\n\s*"', "", path.read_text(encoding="utf-8"))
    for text, _ in re.findall(r'"((?:[^"\\\n]|\\.)*)"|(;)', joined):
        if text:
            statement.append(re.sub(r"%[-.0-9]*z?[a-z]", GAP, text.replace('\\"', '"')))
        else:
            yield GAP.join(statement)
            statement = []


@pytest.fixture(scope="module")
def texts() -> list[str]:
    in_python = [*(ROOT / "cusz_core/python").rglob("*.py"), *(ROOT / "operator/python").rglob("*.py")]
    in_python += Path(adios2.__file__).parent.glob("*.py")
    in_cpp = [
        path
        for folder in ("operator/plugin", "cusz_core/src", "cusz_core/hdf5")
        for path in (ROOT / folder).rglob("*.[ch]pp")
    ]
    return [text for path in in_python for text in python_texts(path)] + [
        text for path in in_cpp for text in cpp_texts(path)
    ]


# ------------------------------------------------------------------------------------------------ what programs print

#: Writes T, compressed; noise, with the given bound; z, of a type that the plugin does not take; and plain, without it.
WRITE = """
import sys
import adios2
import numpy as np
file, statistics, bound = sys.argv[1:]
io = adios2.Adios().declare_io("output")
io.set_parameters({"StatsLevel": statistics})
engine = io.open(file, adios2.Mode.Write)
engine.begin_step()
T, noise = np.linspace(0, 1, 5000), np.random.default_rng(0).random(5000)
for name, values in ("T", T), ("noise", noise), ("z", T * 1j), ("plain", T):
    variable = io.define_variable(name, values, values.shape, [0], values.shape)
    plugin = {"PluginName": "cusz", "PluginLibrary": "cusz_operator", "accuracy": bound if name == "noise" else "1e-3"}
    plugin["predictor"] = "lorenzo"
    if name != "plain":
        variable.add_operation_string("plugin", plugin)
    engine.put(variable, values, adios2.Mode.Sync)
engine.end_step()
engine.close()
"""

#: Operations that BP5 refuses at the second step: one of a single value, and two of an array.
REFUSED = """
import sys
import adios2
import numpy as np
io = adios2.Adios().declare_io("output")
size = [int(word) for word in sys.argv[2:]]
value = np.ones(size)
variable = io.define_variable("t", value, size, [0] * len(size), size)
for _ in range(int(sys.argv[1])):
    variable.add_operation_string("plugin", {"PluginName": "cusz", "PluginLibrary": "cusz_operator", "accuracy": "1"})
engine = io.open("refused.bp", adios2.Mode.Write)
for _ in range(2):
    engine.begin_step()
    engine.put(variable, value)
    engine.end_step()
"""

NO_VALUES = """
import cusz_operator
import numpy as np
with cusz_operator.Writer("nan.bp", eb=1e-3) as out, out.step():
    out.put("U", np.full(100, np.nan, np.float32))
"""

READ = "import sys, adios2\nwith adios2.FileReader(sys.argv[1]) as file: file.read('T')"

CONFIGURATION = f"""<adios-config><io name="output">
{
    "".join(
        f'<variable name="{name}"><operation type="plugin"><parameter key="PluginName" value="cusz"/>'
        '<parameter key="PluginLibrary" value="cusz_operator"/><parameter key="accuracy" value="1e-12"/>'
        "</operation></variable>"
        for name in ("noise", "plain")
    )
}</io></adios-config>"""


FIELD = np.linspace(0, 1, 5000)


@pytest.fixture(scope="module")
def printed(program: Callable, python: Callable, bpls: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What programs print when things go wrong, without ADIOS2's colours and times."""
    folder = tmp_path_factory.mktemp("troubles")
    outputs = []

    def run(command: list[str | Path], **environment: str | Path | None) -> None:
        env = {name: None if value is None else str(value) for name, value in environment.items()}
        done = program(command, env=env, cwd=folder, check=False)
        outputs.extend([done.stdout, done.stderr])

    def python_run(code: str, *arguments: str | Path, **environment: str | Path | None) -> None:
        run([sys.executable, "-c", code, *arguments], **environment)

    for name, statistics, bound in ("run.bp", "1", "1e-12"), ("without.bp", "0", "1e-3"):
        python_run(WRITE, folder / name, statistics, bound)
    python_run(REFUSED, "1")
    python_run(REFUSED, "2", "5")
    python_run(NO_VALUES)
    run([bpls, "-l", "nan.bp"])
    run([bpls, "-l", "without.bp"])

    empty, alone = folder / "empty", folder / "alone"
    for each in (empty, alone):
        each.mkdir()
    shutil.copy(cusz_operator.plugin_path() / "libcusz_operator.so", alone)
    (folder / "adios2.xml").write_text(CONFIGURATION, encoding="utf-8")
    check: list[str | Path] = [sys.executable, "-m", "cusz_core", "check"]
    for searched in (None, empty, alone):
        where = {"ADIOS2_PLUGIN_PATH": searched, "LD_LIBRARY_PATH": None}
        run([bpls, "-d", "run.bp", "T"], **where)
        run([*check, "adios2.xml"], **where)
        python_run(WRITE, folder / "never.bp", "1", "1e-3", **where)  # ADIOS2 ends the process
    run([*check, "run.bp", "adios2.xml"])
    misspelt = CONFIGURATION.replace('"cusz_operator"', '"cuszoperator"')
    (folder / "misspelt.xml").write_text(misspelt, encoding="utf-8")
    run([*check, "misspelt.xml"])
    run([sys.executable, "-I", "-S", "-c", "import cusz_core"])

    support.write_run(folder / "damaged.bp", {"T": FIELD}, eb=1e-3)
    support.damage(folder / "damaged.bp" / "md.0", -1)
    archive = cusz_core.compress(FIELD, 1e-3, predictor="lorenzo")
    calls: list[Callable[[], object]] = [
        lambda: cusz_operator.Reader(folder / "damaged.bp"),
        lambda: cusz_operator.Writer(folder / "never.bp", eb=1e-3, engine="HDF5"),  # type: ignore[arg-type]
        lambda: cusz_core.compress(FIELD.astype(np.int32), 1e-3),
        lambda: cusz_core.compress(FIELD.reshape(5, 10, 1, 10, 10), 1e-3),
        lambda: cusz_core.decompress(archive[:-1]),
        lambda: cusz_core.verify(FIELD + 1, archive),
    ]
    for call in calls:
        with pytest.raises(cusz_core.CuszError) as raised:
            call()
        outputs.append(f"{raised.type.__name__}: {raised.value}")

    data = folder / "run.bp" / "data.0"
    support.damage(data, 100, within=b"cuSZ")
    python_run(READ, folder / "run.bp")
    return re.sub(r"\x1b\[[0-9;]*m(?:\[[A-Z][a-z]{2} [^\]]*\])?", "", "\n".join(outputs))


# ------------------------------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize("quote", QUOTES)
def test_the_message_exists(quote: str, texts: list[str], printed: str) -> None:
    message = PREFIX.sub("", quote, count=1)
    if quote in ELSEWHERE:
        assert quote in (Path(__file__).parent / ELSEWHERE[quote]).read_text(encoding="utf-8")
        return
    in_sources = any(occurs(quote, text) or occurs(message, text) for text in texts)
    assert in_sources or any(occurs(quote, line) or occurs(message, line) for line in printed.splitlines())


def test_the_errors_exist() -> None:
    named = {found[1] for quote in QUOTES if (found := re.match(r"(\w+Error): ", quote))}
    assert named
    for name in named - {"ModuleNotFoundError", "RuntimeError"}:
        assert hasattr(cusz_operator if name == "PluginError" else cusz_core, name), name


def test_messages_that_do_not_exist_are_noticed(texts: list[str], printed: str) -> None:
    for quote in ("the CPU cannot eat its memory at ..., and ...", "is LOST ... the CPU cannot read its memory at"):
        assert not any(occurs(quote, text) for text in [*texts, *printed.splitlines()])
    assert occurs("a ... c", "xa b cx")
    assert not occurs("c ... a", "xa b cx")
