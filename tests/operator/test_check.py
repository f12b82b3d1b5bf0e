"""`cusz check`: what is wrong with a configuration, and with a file that was written with it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_core
import cusz_operator
import support
from cusz_core import cli
from cusz_core.errors import CuszError, ParameterError, UnsupportedError
from cusz_operator.configuring import files as configuration

pytest.importorskip("adios2")
import adios2
from other_program import Program

pytestmark = pytest.mark.usefixtures("plugin_is_found")

PLUGIN = '<parameter key="PluginName" value="cusz"/><parameter key="PluginLibrary" value="cusz_operator"/>'
BOUND = '<parameter key="accuracy" value="1e-3"/>'
OPERATION = f'<operation type="plugin">{PLUGIN}{BOUND}</operation>'


def compressed(name: str) -> str:
    return f'<variable name="{name}">{OPERATION}</variable>'


VARIABLE = compressed("T")


def config(inside: str) -> str:
    return f'<adios-config><io name="simulation">{inside}</io></adios-config>'


def checked(xml: str, folder: Path) -> cusz_operator.Report:
    (folder / "adios2.xml").write_text(xml, encoding="utf-8")
    return cusz_operator.check(configuration=folder / "adios2.xml")


# ------------------------------------------------------------------------------------------------------- the plugin

WHAT_ADIOS2_LOADS = """
import adios2
parameters = {"PluginName": "cusz", "PluginLibrary": "cusz_operator", "accuracy": "1"}
try:
    adios2.Adios().define_operator("x", "plugin", parameters)
except Exception:
    pass
lines = (line.split(maxsplit=5) for line in open("/proc/self/maps"))
print("\\nloaded", *{line[5].strip() for line in lines if len(line) == 6 and "cusz_operator" in line[5]})
"""


def test_the_plugin_is_the_one_that_adios2_loads(tmp_path: Path, python: Callable, monkeypatch: Any) -> None:
    ours = cusz_operator.plugin_path()
    copy, broken, empty = tmp_path / "copy" / "cusz_operator", tmp_path / "broken", tmp_path / "empty"
    for folder in (copy, broken, empty, tmp_path / "copy" / "cusz_core"):
        folder.mkdir(parents=True)
    shutil.copy(ours / "libcusz_operator.so", copy)
    shutil.copy(Path(cusz_core.__file__).parent / "libcusz_core.so.0", tmp_path / "copy" / "cusz_core")
    (broken / "libcusz_operator.so").write_text("no library")
    spaced, link = tmp_path / "with a space", tmp_path / "link"  # ADIOS2 puts a backslash before a space
    spaced.symlink_to(ours)
    link.symlink_to(ours)
    for folders, path in [
        ([ours], ours),
        ([empty, copy, ours], copy),
        ([broken, ours], ours),
        ([ours, copy], ours),
        ([broken], None),
        ([spaced], None),
        ([spaced, link], ours),
        ([], None),
    ]:
        searched = os.pathsep.join(map(str, folders))
        loaded = python(WHAT_ADIOS2_LOADS, env={"ADIOS2_PLUGIN_PATH": searched}).stdout
        (loaded,) = (line[7:] for line in loaded.splitlines() if line.startswith("loaded"))
        assert loaded == (f"{path}/libcusz_operator.so" if path else "")
        monkeypatch.setattr("cusz_operator.plugin._SEARCHED_BY_OTHERS", searched)
        report = cusz_operator.check()
        assert report.plugin == ({"path": loaded, "version": cusz_core.__version__} if path else None)
        problems = [problem.split(":")[1].strip() for problem in report.problems]
        expected = ["a library cannot be loaded"] if {broken, spaced} & {*folders} else []
        where = f"ADIOS2_PLUGIN_PATH is {searched!r}" if searched else "ADIOS2_PLUGIN_PATH is not set"
        expected += [] if path else [f"ADIOS2 does not find cusz_operator ({where})"]
        assert problems == expected


def test_an_installation_in_a_path_with_a_space_is_told(tmp_path: Path, python: Callable) -> None:
    packages = tmp_path / "with a space"
    for package in (cusz_core, cusz_operator):
        shutil.copytree(Path(package.__file__).parent, packages / package.__name__)
    code = "import adios2, cusz_operator; cusz_operator.define_operator(adios2.Adios(), eb=1)"
    refused = python(code, env={"PYTHONPATH": str(packages), "ADIOS2_PLUGIN_PATH": None}, check=False).stderr
    assert f"from {packages}/cusz_operator: ADIOS2 loads no plugin from a path with a space" in refused
    (tmp_path / "link").symlink_to(packages / "cusz_operator")
    python(code, env={"PYTHONPATH": str(packages), "ADIOS2_PLUGIN_PATH": str(tmp_path / "link")})


def test_a_plugin_of_somebody_else_is_told(tmp_path: Path, program: Callable, monkeypatch: Any) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (Debian: gcc)")
    source = tmp_path / "other.c"
    source.write_text("void OperatorCreate(void) {}\n")
    program(["cc", "-shared", "-fPIC", source, "-o", tmp_path / "libcusz_operator.so"])
    monkeypatch.setattr("cusz_operator.plugin._SEARCHED_BY_OTHERS", str(tmp_path))
    (problem,) = cusz_operator.check().problems
    assert "libcusz_operator.so is not this project's" in problem
    source.write_text("#include <stdlib.h>\n__attribute__((constructor)) static void end(void) { abort(); }\n")
    program(["cc", "-shared", "-fPIC", source, "-o", tmp_path / "libcusz_operator.so"])
    (problem,) = cusz_operator.check().problems
    assert "ends the process that loads it" in problem


def test_the_environment_is_that_of_the_shell(program: Callable) -> None:
    """It is not the one that importing cusz_operator changes."""
    command = [sys.executable, "-m", "cusz_core", "check", Path(__file__).parents[2] / "apps" / "heat_xml.xml"]
    assert "no problems found" in program(command).stdout
    done = program(command, env={"ADIOS2_PLUGIN_PATH": None}, check=False)
    assert done.returncode == 1
    assert "ADIOS2_PLUGIN_PATH is not set" in done.stdout


# ------------------------------------------------------------------------------------------------ the configuration


@pytest.mark.parametrize("engine", [*configuration.ENGINES, *configuration.ALIASES, "filestream"])
def test_what_config_writes_is_right(engine: str, tmp_path: Path) -> None:
    variables = [configuration.OperatedVariable("T", {"accuracy": 1e-3, "mode": "rel", "fill": 1e20, "bins": 128})]
    report = checked(configuration.xml("simulation", engine, variables), tmp_path)
    assert report.problems == []
    of_memory_selections = [f"{engine} ignores memory selections" in note for note in report.notes]
    assert of_memory_selections == [True] * (configuration.real_name(engine) == "BP4")
    (io,) = report.ios
    assert (io.name, io.engine, io.variables) == ("simulation", engine, {"T": 1e-3})
    report = checked(configuration.xml("simulation", engine, variables, statistics=False), tmp_path)
    assert report.problems == []
    assert "bpls -l will show 0 / 0" in report.notes[-1]


def test_an_operator_that_is_defined_once(tmp_path: Path) -> None:
    operator = f'<operator name="small" type="Plugin">{PLUGIN}{BOUND}</operator>'
    tighter = '<operation operator="small"><parameter key="Accuracy" value="1e-5"/></operation>'
    io = f'<io name="simulation">{VARIABLE}<variable name="U">{tighter}</variable></io>'
    report = checked(f"<adios-config>{operator}{io}</adios-config>", tmp_path)
    assert report.problems == []
    assert report.ios[0].variables == {"T": 1e-3, "U": 1e-5}


def test_an_operator_that_the_program_adds(tmp_path: Path) -> None:
    for io in ("", '<io name="simulation"/>'):
        report = checked(f"<adios-config>{OPERATOR}{io}</adios-config>", tmp_path)
        assert report.problems == []
        (note,) = report.notes
        assert note.endswith("no variable has an operation: only a program that adds the <operator> itself compresses")


def write_numbered(path: Path, configuration: Path, dtype: str, n: int = 5000) -> None:
    """A program with a configuration file writes T, alone and in levels."""
    with Program(path, None, io="simulation", configuration=configuration) as out, out.step():
        for name in ("T", "level0/T", "level2/T", "T/level"):
            out.put(name, np.linspace(0, 1, n).astype(dtype))


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_an_operation_without_a_bound_is_for_integers(dtype: str, tmp_path: Path) -> None:
    text = config(VARIABLE.replace(BOUND, ""))
    alone = checked(text, tmp_path)
    assert alone.problems == []
    assert (
        "no error bound is given (parameter 'accuracy'): blocks are stored raw, unless they are of" in alone.notes[-1]
    )
    write_numbered(tmp_path / "run.bp", tmp_path / "adios2.xml", dtype)
    report = cusz_operator.check(tmp_path / "run.bp", tmp_path / "adios2.xml")
    assert ["no error bound is given" in problem for problem in report.problems] == [True] * (dtype == "float64")
    assert (report.variables[0].compressed == 1) == (dtype == "int32")


def test_variables_like_those_of_the_configuration(tmp_path: Path) -> None:
    """Levels may appear only later in a run; ADIOS2 accepts no wildcards."""
    text = config(VARIABLE.replace('"T"', '"level0/T"'))
    checked(text, tmp_path)
    write_numbered(tmp_path / "run.bp", tmp_path / "adios2.xml", "float64")
    report = cusz_operator.check(tmp_path / "run.bp", tmp_path / "adios2.xml")
    assert report.problems == []
    assert report.notes == []
    warnings = [warning.removeprefix(f"{tmp_path / 'run.bp'}: variable ") for warning in report.warnings]
    assert [warning.split(" is not compressed")[0] for warning in warnings] == [
        "'T' of double",
        "'T/level' of double",
        "'level2/T'",
    ]
    assert "; level0/T is." in warnings[2]
    assert "the configuration has no operation for it" in warnings[0]
    text = config(
        VARIABLE.replace('"T"', '"level2/T"') + VARIABLE.replace('"T"', '"level3/T"') + compressed("levels/T")
    )
    checked(text, tmp_path)
    report = cusz_operator.check(tmp_path / "run.bp", tmp_path / "adios2.xml")
    # level0/T resembles level3/T and is not in the configuration, so the latter may be a misspelling.
    assert [problem.split("'")[1] for problem in report.problems] == ["level3/T", "levels/T", "level2/T"]
    checked(config("".join(compressed(f"level{level}/T") for level in (0, 2, 3))), tmp_path)
    report = cusz_operator.check(tmp_path / "run.bp", tmp_path / "adios2.xml")
    assert any("no variable 'level3/T', as of a level that this run does not have" in note for note in report.notes)
    assert not any("level3/T" in problem for problem in report.problems)


def test_what_is_not_compressed_beside_what_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """There is no warning about integers, small variables, or a configuration without operations."""

    def found(inside: str, name: str, dtype: str = "float32", n: int = 5000) -> cusz_operator.Report:
        checked(config(inside), tmp_path)
        write_numbered(tmp_path / name, tmp_path / "adios2.xml", dtype, n)
        return cusz_operator.check(tmp_path / name, tmp_path / "adios2.xml")

    assert found(VARIABLE, "small.bp", n=1023).warnings == []
    assert found("", "plain.bp").warnings == []
    report = found(compressed("level0/T"), "integers.bp", "int64")
    assert report.warnings == []
    assert ["variable 'level2/T' is not compressed" in note for note in report.notes] == [True]
    assert len(found(VARIABLE, "run.bp").warnings) == 3
    command = ["check", str(tmp_path / "run.bp"), str(tmp_path / "adios2.xml")]
    assert [cli.main(command), cli.main([*command, "--strict"])] == [0, 1]
    warning = f"warning   {tmp_path / 'run.bp'}: variable 'T/level' of float is not compressed: "
    assert capsys.readouterr().out.count(warning) == 2


APPLICATION = """
import sys
import adios2
import numpy as np
import adios2
from other_program import Program

with Program(sys.argv[2], None, io="simulation", configuration=sys.argv[1]) as out, out.step():
    out.how = adios2.Mode.Deferred  # for the engine Inline
    out.put("T", np.linspace(0, 1, 5000))
"""

# A configuration, what check says about it, and what ADIOS2 makes of it in the application above: it refuses it with an
# exception, ends the process, or ignores the mistake (T is not compressed as intended).
MISTAKES = {
    "not_xml": ("<adios-config>", "not well-formed XML: no element found", "refused"),
    "root": ("<adios></adios>", "ADIOS2 reads only <adios-config>", "ignored"),
    "root_in_capitals": (
        config(VARIABLE).replace("adios-config", "Adios-Config"),
        "ADIOS2 reads only <adios-config>",
        "ignored",
    ),
    "no_io": ("<adios-config/>", "there is no <io>", "ignored"),
    "io_without_a_name": (f"<adios-config><io>{VARIABLE}</io></adios-config>", "<io> has no name", "ignored"),
    "variable_without_a_name": (config(f"<variable>{OPERATION}</variable>"), "<variable> has no name", "ignored"),
    "variable_in_capitals": (
        config(VARIABLE.replace("variable", "Variable")),
        "ignores <Variable> within <io>",
        "ignored",
    ),
    "variable_outside": (
        f'<adios-config>{VARIABLE}<io name="simulation"/></adios-config>',
        "ignores <variable>",
        "ignored",
    ),
    "no_operation": (config('<variable name="T"/>'), "no variable has an operation", "ignored"),
    "no_type": (
        config(VARIABLE.replace(' type="plugin"', "")),
        "needs either a type or the name of an operator",
        "refused",
    ),
    "no_operator": (config(VARIABLE.replace("type=", "operator=")), "there is no <operator> 'plugin'", "refused"),
    "no_plugin_name": (config(VARIABLE.replace("PluginName", "Plugin")), "no parameter PluginName", "ended"),
    "no_library": (config(VARIABLE.replace("PluginLibrary", "Library")), "no parameter PluginLibrary", "ended"),
    "library": (config(VARIABLE.replace("cusz_operator", "cusz")), "PluginLibrary is 'cusz'; it must be", "ended"),
    "parameter_without_value": (config(VARIABLE.replace(' value="1e-3"', "")), "<parameter> has no value", "ignored"),
    "malformed_bound": (
        config(VARIABLE.replace("1e-3", "1e-3 K")),
        "'accuracy' = '1e-3 K' is not an error bound",
        "ignored",
    ),
    "unknown_parameter": (
        config(VARIABLE.replace("accuracy", "acuracy")),
        "parameter 'acuracy' is not known",
        "ignored",
    ),
    "two_engines": (config(f'<engine type="BP5"/><engine type="BP4"/>{VARIABLE}'), "has 2 <engine>", "refused"),
    "engine": (config(f'<engine type="HDF5"/>{VARIABLE}'), "the engine 'HDF5' does not work", "refused"),
    "inline": (config(f'<engine type="Inline"/>{VARIABLE}'), "the engine 'Inline' does not work", "ignored"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_a_configuration(name: str, tmp_path: Path, program: Callable) -> None:
    xml, words, outcome = MISTAKES[name]
    problems = checked(xml, tmp_path).problems
    assert any(words in problem for problem in problems), problems

    output = tmp_path / "out.bp"
    done = program([sys.executable, "-c", APPLICATION, tmp_path / "adios2.xml", output], check=False)
    assert outcome == ("ended" if done.returncode < 0 else "refused" if done.returncode else "ignored"), done.stderr
    if outcome == "ignored" and name != "inline":  # Inline writes no file
        (block,) = cusz_operator.inspect_bp(output)
        assert block.get("eb", 0) == 0


@pytest.mark.parametrize(
    ("xml", "words"),
    [
        (config(VARIABLE.replace('"cusz"', '"cuSZ"')), "PluginName is 'cuSZ'; it must be 'cusz'"),
        (config(VARIABLE.replace('"cusz_operator"', '"libcusz_operator.so"')), "it must be 'cusz_operator'"),
        (config(VARIABLE + VARIABLE), "2 <variable> elements with the name 'T'"),
        (
            config(f'<variable name="T">{OPERATION}{OPERATION}</variable>'),
            "has 2 operations: of several operations BP5 refuses the second step",
        ),
        (
            config(VARIABLE.replace(BOUND, BOUND + BOUND.replace("accuracy", "Accuracy"))),
            "parameter 'accuracy' is given twice",
        ),
        (
            config(f'<engine type="SST"><parameter key="marshalMethod" value="FFS"/></engine>{VARIABLE}'),
            "MarshalMethod is FFS, which ignores operators",
        ),
        (
            config(f'<engine type="BP4"><parameter key="FlushStepsCount" value="2"/></engine>{VARIABLE}'),
            "FlushStepsCount is 2: of steps that are flushed together, BP4 damages all but the last",
        ),
        (
            config(f'<engine type="BP4"><parameter key="CollectiveMetadata" value="false"/></engine>{VARIABLE}'),
            "CollectiveMetadata is off: BP4 writes no metadata then",
        ),
        (
            config(f'<engine><parameter key="burstBufferPath" value="/b"/></engine>{VARIABLE}'),
            "BurstBufferPath: if several ranks write, BP5 loses what it copies from there",
        ),
        (
            config(
                '<engine><parameter key="AggregationType" value="DataSizeBased"/>'
                f'<parameter key="AsyncWrite" value="Guided"/></engine>{VARIABLE}'
            ),
            "AggregationType is DataSizeBased, and AsyncWrite Guided: BP5 writes ranks' data over each other",
        ),
        (config(VARIABLE).replace("<adios-config>", "<!DOCTYPE adios-config><adios-config>"), "there is a DOCTYPE"),
        (
            config(VARIABLE).replace("</adios", '<io name="simulation"/></adios'),
            "2 <io> elements with the name 'simulation'",
        ),
    ],
)
def test_what_works_and_should_not_be_so(xml: str, words: str, tmp_path: Path) -> None:
    problems = checked(xml, tmp_path).problems
    assert any(words in problem for problem in problems), problems


OPERATOR = f'<operator name="own" type="plugin">{PLUGIN}{BOUND}</operator>'


def used(xml: str, tmp_path: Path, program: Callable, steps: int = 1) -> tuple[int, set[float]]:
    """The exit status of a program with this configuration, and the bounds of what it wrote."""
    (tmp_path / "adios2.xml").write_text(xml, encoding="utf-8")
    code = APPLICATION.replace("as out, out.step():", f"as out:\n  for _ in range({steps}):\n   with out.step():")
    done = program([sys.executable, "-c", code, tmp_path / "adios2.xml", tmp_path / "out.bp"], check=False)
    is_there = (tmp_path / "out.bp").exists()
    return done.returncode, {
        block["eb"] for block in cusz_operator.inspect_bp(tmp_path / "out.bp")
    } if is_there else set()


@pytest.mark.parametrize("engine_type", ["BP5", "BP4"])
@pytest.mark.parametrize("in_one_variable", [True, False])
def test_several_operations_for_one_variable(
    in_one_variable: bool, engine_type: str, tmp_path: Path, program: Callable
) -> None:
    both = VARIABLE + VARIABLE.replace("1e-3", "1e-5")
    if in_one_variable:
        both = both.replace('</variable><variable name="T">', "")
    xml = config(f'<engine type="{engine_type}"/>{both}')
    report = checked(xml, tmp_path)
    assert any("of several operations BP5 refuses the second step, and BP4" in problem for problem in report.problems)
    assert report.ios[0].variables == {"T": 1e-3}
    status, bounds = used(xml, tmp_path, program, steps=2)
    assert bounds == {1e-3}
    assert (status != 0) == (engine_type == "BP5")


def test_an_operator_that_is_defined_twice(tmp_path: Path, program: Callable) -> None:
    xml = config('<variable name="T"><operation operator="own"/></variable>').replace("<io", f"{OPERATOR * 2}<io")
    words = "there are 2 <operator> elements with the name 'own': ADIOS2 refuses the whole file"
    assert any(words in problem for problem in checked(xml, tmp_path).problems)
    assert used(xml, tmp_path, program) == (1, set())


@pytest.mark.parametrize(
    ("of_operator", "of_operation", "counts"),
    [("accuracy", "accuracy", True), ("accuracy", "aCCuracy", True), ("Accuracy", "accuracy", False)],
)
def test_an_operation_says_otherwise_than_its_operator(
    of_operator: str, of_operation: str, counts: bool, tmp_path: Path, program: Callable
) -> None:
    own = OPERATOR.replace("accuracy", of_operator)
    other = BOUND.replace("accuracy", of_operation).replace("1e-3", "1e-5")
    xml = config(f'<variable name="T"><operation operator="own">{other}</operation></variable>')
    xml = xml.replace("<io", f"{own}<io")
    report = checked(xml, tmp_path)
    assert ["'accuracy' = '1e-5' has no effect" in problem for problem in report.problems] == [True] * (not counts)
    assert report.ios[0].variables == {"T": 1e-5 if counts else 1e-3}
    assert used(xml, tmp_path, program) == (0, {1e-5 if counts else 1e-3})


@pytest.mark.parametrize("keys", [("accuracy", "Accuracy"), ("Accuracy", "accuracy"), ("accuracy", "accuracy")])
def test_a_parameter_that_is_given_twice(keys: tuple[str, str], tmp_path: Path, program: Callable) -> None:
    bounds = "".join(
        BOUND.replace("accuracy", key).replace("1e-3", eb) for key, eb in zip(keys, ("1e-3", "1e-5"), strict=True)
    )
    xml = config(VARIABLE.replace(BOUND, bounds))
    report = checked(xml, tmp_path)
    assert any("'accuracy' is given twice" in problem for problem in report.problems)
    assert used(xml, tmp_path, program) == (0, set(report.ios[0].variables.values()))


def test_an_engine_without_a_name_is_bp5(tmp_path: Path, program: Callable) -> None:
    xml = config(f'<engine type=""/>{VARIABLE}')
    assert checked(xml, tmp_path).problems == []
    assert used(xml, tmp_path, program) == (0, {1e-3})


@pytest.mark.parametrize("encoding", ["shift_jis", "utf-7", "no_such", "idna", "hex"])
def test_encodings_that_cannot_be_read(encoding: str, tmp_path: Path) -> None:
    xml = f'<?xml version="1.0" encoding="{encoding}"?>{config(VARIABLE)}'
    assert any("its encoding cannot be read" in problem for problem in checked(xml, tmp_path).problems)


def test_other_operators_are_no_mistake(tmp_path: Path) -> None:
    other = '<variable name="V"><operation type="zfp"><parameter key="accuracy" value="1"/></operation></variable>'
    report = checked(config(f"{VARIABLE}{other}"), tmp_path)
    assert report.problems == []
    assert report.ios[0].variables == {"T": 1e-3}
    assert "the operation is 'zfp', not this operator" in report.notes[0]


def test_a_name_that_adios2_does_not_read(tmp_path: Path) -> None:
    path = tmp_path / "adios2.conf"
    path.write_text(config(VARIABLE), encoding="utf-8")
    (problem,) = cusz_operator.check(configuration=path).problems
    assert "only if its name ends in .xml" in problem
    with pytest.raises(UnsupportedError, match="only XML can be checked"):
        cusz_operator.check(configuration=tmp_path / "adios2.yaml")
    with pytest.raises(FileNotFoundError):
        cusz_operator.check(configuration=tmp_path / "none.xml")


# -------------------------------------------------------------------------------------------------------- the file

FIELD = support.smooth((40, 50), support.F32)


def write(path: Path, config_file: Path | None, engine: str | None = None) -> None:
    """A program writes T, U and noise as floats, n as integers, a single value and an empty array, at two steps."""
    noise = 1e6 * np.random.default_rng(0).standard_normal(500).astype(np.float32)
    arrays = {"T": FIELD, "U": FIELD.astype(np.float64), "noise": noise, "n": np.arange(30), "nothing": FIELD[:0]}
    with Program(path, engine, io="simulation", configuration=config_file) as out:
        for _ in range(2):
            with out.step():
                for name, array in (arrays | {"time": 1.0}).items():
                    out.put(name, array)


def test_a_run_that_is_as_it_should_be(engine: str, tmp_path: Path) -> None:
    xml = tmp_path / "adios2.xml"
    xml.write_text(config(f'<engine type="{engine}"/>{VARIABLE}'), encoding="utf-8")
    write(tmp_path / "run.bp", xml)
    report = cusz_operator.check(tmp_path / "run.bp", xml)
    assert report.problems == []
    assert len(report.notes) == (engine == "BP4")
    by_name = {variable.name: variable for variable in report.variables}
    assert {name: (v.type, v.blocks, v.compressed) for name, v in by_name.items()} == {
        "T": ("float", 2, 2),
        "U": ("double", 2, 0),
        "n": ("int64_t", 2, 0),
        "noise": ("float", 2, 0),
        "nothing": ("float", 0, 0),
        "time": ("double", 2, 0),
    }
    assert by_name["T"].ratio > 2  # type: ignore[operator]
    assert {name: v.remarks for name, v in by_name.items()} == {
        "T": "",
        "U": "the configuration has no operation for it",
        "n": "the configuration has no operation for it",
        "noise": "the configuration has no operation for it",
        "nothing": "no values",
        "time": "a single value, which no operator compresses",
    }
    remarks = {v.name: v.remarks for v in cusz_operator.check(tmp_path / "run.bp").variables}
    assert remarks["U"] == "written without this operator"


def test_what_a_configuration_asks_for_in_vain(engine: str, tmp_path: Path) -> None:
    """Names that are nearly right, and values that cannot be compressed."""
    xml, run = tmp_path / "adios2.xml", tmp_path / "run.bp"
    names = ["t", "U ", "noise", "n", "T"]
    variables = "".join(map(compressed, names))
    xml.write_text(config(f'<engine type="{engine}"/>{variables}'), encoding="utf-8")
    write(run, xml)
    problems = cusz_operator.check(run, xml).problems
    missing = "ADIOS2 silently ignores what the configuration says about it"
    assert problems == [
        f"{run}: there is no variable 't' (there is 'T'): {missing}",
        f"{run}: there is no variable 'U ' (there is 'U'): {missing}",
        f"{run}: variable 'noise': 2 of 2 blocks are stored raw: too small, incompressible within the bound, or with "
        "bound 0: none of the variable is compressed",
    ]


def test_an_operation_for_one_value_of_each_rank(engine: str, tmp_path: Path) -> None:
    """ADIOS2 reads it as a global array with one block of one value per rank."""
    xml, run = tmp_path / "adios2.xml", tmp_path / "run.bp"
    xml.write_text(config(f'<engine type="{engine}"/>' + compressed("own")), encoding="utf-8")
    with Program(run, None, io="simulation", configuration=xml) as out, out.step():
        value = out.io.define_variable("own", np.zeros(1), [adios2.LocalValueDim], [], [])
        out.engine.put(value, np.ones(1), adios2.Mode.Sync)
    (problem,) = cusz_operator.check(run, xml).problems
    assert "1 of 1 blocks are not compressed" in problem
    assert "LocalValueDim" in problem or "a single value, which no operator compresses" in problem


def test_an_operation_for_a_single_value(engine: str, tmp_path: Path) -> None:
    xml, run = tmp_path / "adios2.xml", tmp_path / "run.bp"
    xml.write_text(config(f'<engine type="{engine}"/>' + compressed("time")), encoding="utf-8")
    if engine == "BP5":
        with pytest.raises(RuntimeError, match="does not support adding operators"):
            write(run, xml)
        return
    write(run, xml)
    (problem,) = cusz_operator.check(run, xml).problems
    assert "variable 'time': 2 of 2 blocks are not compressed: a single value, which no operator" in problem


def test_a_run_without_the_configuration_that_is_shown(tmp_path: Path) -> None:
    """The program passes a name to DeclareIO that is not in the configuration."""
    xml, run = tmp_path / "adios2.xml", tmp_path / "run.bp"
    xml.write_text(config(VARIABLE).replace("simulation", "Simulation"), encoding="utf-8")
    write(run, xml)
    (problem,) = cusz_operator.check(run, xml).problems
    assert "variable 'T': 2 of 2 blocks are not compressed: they were written without this configuration, or" in problem
    (problem,) = cusz_operator.check(run, xml, "simulation").problems
    assert "there is no IO 'simulation' (there is 'Simulation')" in problem


@pytest.mark.parametrize("engine_type", ["BP5", "BP4"])
def test_a_file_that_a_run_with_another_configuration_appends_to(engine_type: str, tmp_path: Path) -> None:
    """In BP5, readers crash or wait for ever if a variable has an operation in only some of the steps."""
    before, xml, run = tmp_path / "before.xml", tmp_path / "adios2.xml", tmp_path / "run.bp"
    engine = f'<engine type="{engine_type}"/>'
    integers = VARIABLE.replace('"T"', '"n"').replace(BOUND, "")
    before.write_text(config(engine + VARIABLE + integers + compressed("noise")), encoding="utf-8")
    write(run, before)
    assert not any("append" in warning for warning in cusz_operator.check(run, before).warnings)

    of_another = '<variable name="noise"><operation type="zfp"/></variable>'
    xml.write_text(config(engine + compressed("T") + compressed("U") + of_another), encoding="utf-8")
    now_without, now_with = (
        f"{run}: if a run with this configuration appends to it, readers crash, hang or get wrong values: {what}"
        for what in (
            "n is compressed in it, and the configuration has no operation for it",
            "U is not compressed in it, and the configuration has an operation for it",
        )
    )
    found = [warning for warning in cusz_operator.check(run, xml).warnings if "append" in warning]
    assert found == ([now_without, now_with] if engine_type == "BP5" else [])

    xml.write_text(config(f'{engine}<variable name="T"/>'), encoding="utf-8")  # compression is switched off
    warnings = cusz_operator.check(run, xml).warnings
    all_without = now_without.replace("n is compressed", "T, n, noise are compressed").replace("for it", "for them")
    assert warnings == ([all_without] if engine_type == "BP5" else [])


@pytest.mark.parametrize("engine_type", ["BP5", "BP4"])
def test_a_file_that_another_engine_would_append_to(engine_type: str, tmp_path: Path) -> None:
    """BP4 makes a BP5 file unreadable; BP5 refuses, but leaves a file behind that makes a BP4 file look like BP5."""
    xml, run, other = tmp_path / "adios2.xml", tmp_path / "run.bp", {"BP5": "BP4", "BP4": "BP5"}[engine_type]
    write(run, None, engine_type)
    xml.write_text(config(f'<engine type="{other.lower()}"/>{VARIABLE}'), encoding="utf-8")
    assert [w for w in cusz_operator.check(run, xml).warnings if "engine" in w] == [
        f"{run}: if a run with this configuration appends to it, the file cannot be read any more: it is of the engine "
        f"{engine_type}, and the configuration has {other.lower()}"
    ]
    for engine in (f'<engine type="{engine_type}"/>', '<engine type="SST"/>', ""):
        xml.write_text(config(f"{engine}{VARIABLE}"), encoding="utf-8")
        assert not any("engine" in warning for warning in cusz_operator.check(run, xml).warnings)
    io = adios2.Adios().declare_io("simulation")
    io.set_engine(other)
    with contextlib.suppress(RuntimeError):
        io.open(str(run), adios2.Mode.Append).close()
    with pytest.raises(CuszError, match="cannot open"):
        cusz_operator.check(run)
    if engine_type == "BP4":
        (run / "mmd.0").unlink()
        assert cusz_operator.check(run).variables[0].name == "T"


@pytest.mark.parametrize("level", ["0", "1"])
def test_a_file_that_is_appended_to_with_another_statslevel(level: str, tmp_path: Path) -> None:
    xml, run = tmp_path / "adios2.xml", tmp_path / "run.bp"

    def configured(parameters: str) -> None:
        xml.write_text(config(f'<engine type="BP5">{parameters}</engine>{VARIABLE}'), encoding="utf-8")

    configured(f'<parameter key="StatsLevel" value="{level}"/>')
    write(run, xml)
    assert not any("StatsLevel" in warning for warning in cusz_operator.check(run, xml).warnings)
    configured(f'<parameter key="statslevel" value="{1 - int(level)}"/>')
    (warning,) = (warning for warning in cusz_operator.check(run, xml).warnings if "StatsLevel" in warning)
    has = "no " * (level == "0")
    assert warning == (
        f"{run}: if a run with this configuration appends to it, readers crash: it has {has}statistics, and the "
        f"configuration has StatsLevel {1 - int(level)}"
    )
    configured("")  # the program may set it
    assert not any("StatsLevel" in warning for warning in cusz_operator.check(run, xml).warnings)


@pytest.mark.parametrize("shape", [(40, 90), ()])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_packed_integers_of_8_bits(dtype: str, shape: tuple[int, ...], engine: str, tmp_path: Path) -> None:
    """ADIOS2's Python interface cannot list the blocks if their values are not valid characters."""
    xml = tmp_path / "adios2.xml"
    xml.write_text(config(f'<engine type="{engine}"/>' + compressed("mask").replace(BOUND, "")), encoding="utf-8")
    mask = (200 + np.arange(40 * 30).reshape(40, 30) // 300).astype(dtype)
    with Program(tmp_path / "run.bp", engine, io="simulation", configuration=xml) as out:
        for _ in range(2):
            with out.step():
                for first in range(0, 90, 30):
                    out.put("mask", mask, shape, (0, first) if shape else None)
                out.put("mask", mask[:, :0], shape, (0, 0) if shape else None)
                out.put("other", mask, shape, (0, 0) if shape else None)
    report = cusz_operator.check(tmp_path / "run.bp", xml)
    assert report.problems == []
    assert report.warnings == []
    found = {variable.name: (variable.blocks, variable.compressed) for variable in report.variables}
    assert found == {"mask": (6, 6), "other": (2, 0)}
    xml.write_text(xml.read_text(encoding="utf-8").replace('"mask"', '"other"'), encoding="utf-8")
    warnings = cusz_operator.check(tmp_path / "run.bp", xml).warnings
    assert ["mask is compressed in it" in warning for warning in warnings] == ([True, False] if engine == "BP5" else [])
    for block in cusz_operator.inspect_bp(tmp_path / "run.bp", variables=["mask"]):
        assert (block["count"], block.get("raw_bytes")) in [((40, 30), 1200), ((40, 0), None), ((0,), None)]


def test_one_of_several_ios(tmp_path: Path) -> None:
    xml, run = tmp_path / "adios2.xml", tmp_path / "run.bp"
    other = '<io name="checkpoint">' + compressed("P") + "</io>"
    xml.write_text(config(VARIABLE).replace("</adios", f"{other}</adios"), encoding="utf-8")
    write(run, xml)
    assert cusz_operator.check(configuration=xml).problems == []
    with pytest.raises(
        ParameterError, match=r"use --io to say which of them wrote the file \(simulation, checkpoint\)"
    ):
        cusz_operator.check(run, xml)
    assert cusz_operator.check(run, xml, "simulation").problems == []
    (problem,) = cusz_operator.check(run, xml, "checkpoint").problems
    assert "there is no variable 'P'" in problem


def test_blocks_that_were_lost(tmp_path: Path) -> None:
    with Program(tmp_path / "run.bp", StatsLevel="0") as out, out.step():
        out.put("T", np.zeros(1000), eb=1e-3, address=4096)  # where nothing lies
    (problem,) = cusz_operator.check(tmp_path / "run.bp").problems
    assert "variable 'T': block 0 of step 0: lost when it was written" in problem


def test_damaged_runs(tmp_path: Path) -> None:
    write(tmp_path / "run.bp", None)
    (tmp_path / "run.bp" / "md.idx").write_bytes(b"")
    (problem,) = cusz_operator.check(tmp_path / "run.bp").problems
    assert "there is no complete step in it" in problem
    (tmp_path / "run.bp" / "md.idx").unlink()
    with pytest.raises(CuszError):
        cusz_operator.check(tmp_path / "run.bp")


# ------------------------------------------------------------------------------------------------- the command line


def test_the_command(tmp_path: Path, cusz_cli: Callable) -> None:
    xml, run = tmp_path / "adios2.xml", tmp_path / "run.bp"
    xml.write_text(config(VARIABLE), encoding="utf-8")
    write(run, xml)
    for paths in ([run, xml], [xml, run], [run], [xml]):
        code, out, err = cusz_cli("check", *paths)
        assert "no problems found" in out
        assert f"plugin    {cusz_operator.plugin_path()}/libcusz_operator.so, version" in out
        assert ("T         float    2       2 " in out) == (run in paths)
        assert ("IO        simulation, engine chosen by the program: T (0.001)" in out) == (xml in paths)
        assert (code, err) == (0, "")
    relative = VARIABLE.replace("<parameter", '<parameter key="mode" value="pw_rel"/><parameter', 1)
    xml.write_text(config(relative), encoding="utf-8")
    assert ": T (0.001 pw_rel)\n" in cusz_cli("check", xml)[1]
    xml.write_text(config(VARIABLE.replace('"T"', '"temperature"')), encoding="utf-8")
    code, out, _ = cusz_cli("check", run, xml)
    assert code == 1
    assert f"PROBLEM   {run}: there is no variable 'temperature'" in out
    code, out, _ = cusz_cli("check", run, xml, "--json")
    assert code == 1
    assert json.loads(out) == cusz_operator.check(run, xml).to_dict()
    for wrong, words in [
        ([run, run], "one .bp directory"),
        ([xml, xml], "one .bp directory"),
        ([tmp_path / "adios2.yaml"], "only XML can be checked"),
    ]:
        code, out, err = cusz_cli("check", *wrong)
        assert (code, out) == (2, "")
        assert words in err
    code, out, _ = cusz_cli("check", tmp_path / "none.bp")
    assert code == 1
    assert out.startswith("plugin    ")
    assert f"PROBLEM   {tmp_path / 'none.bp'} does not exist: if the program has ended early" in out


def test_many_variables_that_are_alike_share_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    xml, run = tmp_path / "adios2.xml", tmp_path / "run.bp"
    names = [f"level{level}/{name}" for level in range(12) for name in ("rho", "u")]
    asked = [*names[:20], *(f"part{n}/x" for n in range(30))]
    xml.write_text(config("".join(map(compressed, asked))), encoding="utf-8")
    with Program(run, None, io="simulation", configuration=xml) as out, out.step():
        for name in names:
            out.put(name, FIELD)
    assert cli.main(["check", str(run), str(xml)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith(": level{0..9}/rho (0.001), level{0..9}/u (0.001), part{0..29}/x (0.001)")
    table = [line.split(maxsplit=5) for line in lines if line.startswith("level")]
    assert [(row[0], row[2], row[3]) for row in table] == [
        ("level{0..9}/rho", "10", "10"),
        ("level{0..9}/u", "10", "10"),
        ("level{10..11}/rho", "2", "0"),
        ("level{10..11}/u", "2", "0"),
    ]
    assert table[0][5] == "10 variables"
    (problem,) = (line for line in lines if line.startswith("PROBLEM"))
    assert "there is no variable 'part{0..29}/x'" in problem
    assert cli.main(["check", str(run), str(xml), "--all"]) == 1
    every = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in every if line.startswith("level")] == sorted(names)
    assert sum(line.startswith("PROBLEM") for line in every) == 30
