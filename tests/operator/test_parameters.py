"""The operator's parameters: the plugin can only warn about wrong ones, Python refuses them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cusz_operator
from cusz_core.backends import lossless_stages
from cusz_core.errors import ParameterError
from cusz_core.parameters import TABLE
from cusz_operator.parameters import bound_of, parameter_problems

WRITE = """
import json, sys
import adios2
import numpy as np
import support

file, engine_type, sets = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
plugin = {"PluginName": "cusz", "PluginLibrary": "cusz_operator"}
io = adios2.Adios().declare_io("output")
io.set_engine(engine_type)
field = support.smooth((60, 70), support.F32)
variables = []
for name, parameters in sets.items():
    for copy in "ab":  # the same mistake twice is reported once
        variables.append(io.define_variable(name + copy, field, field.shape, [0, 0], field.shape))
        variables[-1].add_operation_string("plugin", {**plugin, **parameters})
engine = io.open(file, adios2.Mode.Write)
for _ in range(2):
    engine.begin_step()
    for variable in variables:
        engine.put(variable, field)
    engine.end_step()
engine.close()

with adios2.FileReader(file) as run:
    for name in sets:
        got = run.read(name + "a").reshape(field.shape)
        print(name, "exact" if support.same_bits(field, got) else float(np.abs(field - got).max()))
"""

# name: parameters, text that the message must contain (None: no message), whether blocks are compressed
MISTAKES: dict[str, tuple[dict[str, str], str | None, bool]] = {
    "no_bound": ({}, "no error bound is given (parameter 'accuracy')", False),
    "word": ({"accuracy": "high"}, "'accuracy' = 'high' is not an error bound", False),
    "negative": ({"eb": "-1e-3"}, "'eb' = '-1e-3' is not an error bound", False),
    "nan": ({"tolerance": "nan"}, "'tolerance' = 'nan' is not an error bound", False),
    "infinite": ({"accuracy": "inf"}, "'accuracy' = 'inf' is not an error bound", False),
    "empty": ({"accuracy": ""}, "'accuracy' = '' is not an error bound", False),
    "comma": ({"accuracy": "0,001"}, "'accuracy' = '0,001' is not an error bound", False),
    "huge": ({"accuracy": "1e999"}, "'accuracy' = '1e999' is not an error bound", False),
    "rubbish_behind": ({"accuracy": "1e-3x"}, "'accuracy' = '1e-3x' is not an error bound", False),
    "mode": (
        {"accuracy": "1e-3", "mode": "relative"},
        "'mode' = 'relative' is not 'abs', 'rel', 'pw_rel', 'psnr' or",
        False,
    ),
    "fill": ({"accuracy": "1e-3", "fill": "none"}, "'fill' = 'none' is not a number", False),
    "bins": ({"accuracy": "1e-3", "bins": "1000"}, "'bins' = '1000' is not a power of two", True),
    "few_bins": ({"accuracy": "1e-3", "bins": "32"}, "'bins' = '32' is not a power of two from 64", True),
    "threads": ({"accuracy": "1e-3", "threads": "-1"}, "'threads' = '-1' is not a whole number", True),
    "many_threads": ({"accuracy": "1e-3", "threads": "99999999999"}, "'threads' = '99999999999'", True),
    "backend": ({"accuracy": "1e-3", "backend": "gpu"}, "'backend' = 'gpu' is not 'auto', 'cpu'", True),
    "stage": ({"accuracy": "1e-3", "lossless": "gzip"}, "'lossless' = 'gzip' is not 'none' or 'zstd'", True),
    "order": ({"accuracy": "1e-3", "order": "F"}, "'order' = 'F' is not 'row' or 'column'", True),
    "unknown": ({"accuracy": "1e-3", "acuracy": "1"}, "'acuracy' is not known and is ignored", True),
    "two_bounds": ({"accuracy": "1e-2", "eb": "1e-3"}, "given more than once", True),
    "good": ({"accuracy": " +1E-3 ", "mode": "Abs", "bins": "128", "threads": "1", "backend": "CPU"}, None, True),
    "no_psnr": ({"mode": "psnr", "accuracy": "much"}, "'accuracy' = 'much' is not an error bound", False),
    "same_twice": ({"Accuracy": "1e-3", "eb": "0.001", "fill": "NaN", "order": "row"}, None, True),
    "lossless": ({"accuracy": "0"}, None, False),
    "defaults": (
        {"accuracy": "1e-3", **{key: row.default for key, row in TABLE.items() if row.default and key != "eb"}},
        None,
        True,
    ),
    "packed": ({"accuracy": "1e-3", "lossless": lossless_stages()[-1]}, None, True),  # zstd, if this build has it
}


def test_the_plugin_warns_once_and_loses_nothing(engine: str, python: Callable, tmp_path: Path) -> None:
    file = tmp_path / "out.bp"
    sets = {name: parameters for name, (parameters, _, _) in MISTAKES.items()}
    done = python(WRITE, file, engine, json.dumps(sets), env={"OMPI_COMM_WORLD_RANK": "7"})

    messages = [line for line in done.stderr.splitlines() if "cusz_operator" in line]
    assert all(message.startswith("cusz_operator[rank 7]: ") for message in messages)
    for name, (_, expected, _) in MISTAKES.items():
        if expected is not None:
            assert sum(expected in message for message in messages) == 1, (name, messages)
    assert len(messages) == sum(expected is not None for _, expected, _ in MISTAKES.values())

    result = dict(line.split() for line in done.stdout.splitlines())
    for name, (_, _, compressed) in MISTAKES.items():
        assert (result[name] != "exact") == compressed, name
        if compressed:
            assert float(result[name]) <= 1e-3, name
    for block in cusz_operator.inspect_bp(file):
        assert block["operator"] == "cusz"
        assert block["kind"] == ("tiled" if MISTAKES[block["variable"][:-1]][2] else "raw")


@pytest.mark.parametrize("name", MISTAKES)
def test_python_tells_before_what_the_plugin_is_going_to_warn_of(name: str) -> None:
    given, expected, _ = MISTAKES[name]
    problems = parameter_problems({key.lower(): value for key, value in given.items()})
    assert len(problems) == (expected is not None)
    assert all(str(expected) in problem for problem in problems)


@pytest.mark.parametrize(
    ("mode", "goal", "is_legal"),
    [
        ("psnr", "0", False),
        ("psnr", "0.1", True),
        (" Ratio ", "1", False),
        ("ratio", "0.5", False),
        ("ratio", "2", True),
    ],
)
def test_a_psnr_or_a_ratio_that_none_can_be(
    mode: str, goal: str, is_legal: bool, python: Callable, tmp_path: Path
) -> None:
    given = {"accuracy": goal, "mode": mode}
    done = python(WRITE, tmp_path / "out.bp", "BP5", json.dumps({"T": given}))
    assert ("bad parameter: " in done.stderr) == (not is_legal)
    problems = [f"parameter 'accuracy' = '{goal}' is not a {mode.strip().lower()} above {int('atio' in mode)}"]
    assert [p.partition(":")[0] for p in parameter_problems(given)] == ([] if is_legal else problems)


@pytest.mark.parametrize("mode", ["psnr", "ratio"])
def test_a_goal_that_is_not_given_is_said_once(mode: str, python: Callable, tmp_path: Path) -> None:
    done = python(WRITE, tmp_path / "out.bp", "BP5", json.dumps({"T": {"mode": mode}}))
    (message,) = (line for line in done.stderr.splitlines() if "cusz_operator" in line)
    assert "no error bound is given (parameter 'accuracy')" in message
    assert done.stdout == "T exact\n"


def test_python_drops_the_blanks_that_the_plugin_drops(python: Callable, tmp_path: Path) -> None:
    texts = [" row", "\tROW\r\n", "\vrow\f", "\u00a0row", "\u2003row", "row\x1f"]
    done = python(
        WRITE, tmp_path / "out.bp", "BP5", json.dumps({str(i): {"eb": "1", "order": t} for i, t in enumerate(texts)})
    )
    refused = [text for text in texts if f"parameter 'order' = '{text}' is not 'row' or 'column'" in done.stderr]
    assert refused == texts[3:]
    assert [text for text in texts if parameter_problems({"eb": "1", "order": text})] == refused


def test_python_reads_numbers_as_the_plugin_does(python: Callable, tmp_path: Path) -> None:
    """That is, like std::from_chars; the plugin warns of texts that it does not accept as a bound."""
    texts = ["1e-3", "1.", ".5", ".", "", " 1E-3\t", "+1", "+-1", "-1", "-0", "+", "1_0", "1,5", "1e", "1e+2", "1 2"]
    texts += ["0x1p-3", "0x10", "1d-3", "1f", "inf", "Infinity", "nan", "nan(1)", "1e999", "1e-999", "0e-999", "1e-310"]
    done = python(WRITE, tmp_path / "out.bp", "BP5", json.dumps({str(i): {"eb": t} for i, t in enumerate(texts)}))
    refused = [text for text in texts if f"parameter 'eb' = '{text}' is not an error bound" in done.stderr]
    assert [text for text in texts if bound_of(text) is None] == refused
    assert "1e-310" not in refused
    assert "1e-999" in refused


# ------------------------------------------------------------------------------------------------- Python


def test_operator_parameters() -> None:
    assert cusz_operator.operator_parameters(1e-3) == {
        "PluginName": "cusz",
        "PluginLibrary": "cusz_operator",
        "accuracy": "0.001",
        "mode": "abs",
    }
    full = cusz_operator.operator_parameters(
        0.1, "rel", bins=1024, backend="cpu", threads=2, fill=-9999, order="column"
    )
    assert full == {
        "PluginName": "cusz",
        "PluginLibrary": "cusz_operator",
        "accuracy": "0.1",
        "mode": "rel",
        "bins": "1024",
        "backend": "cpu",
        "threads": "2",
        "fill": "-9999.0",
        "order": "column",
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"eb": -1.0}, "eb is -1.0"),
        ({"eb": 1e-3, "mode": "pointwise"}, "mode is 'pointwise'"),
        ({"eb": 1e-3, "bins": 100}, "bins is 100"),
        ({"eb": 1e-3, "order": "F"}, "order is 'F'"),
    ],
)
def test_operator_parameters_are_refused(arguments: dict, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        cusz_operator.operator_parameters(**arguments)


def test_parameters_that_are_set_after_the_operation_was_added(engine: str, tmp_path: Path) -> None:
    """They do not reach the plugin, as the guide states."""
    adios2 = pytest.importorskip("adios2")
    x = np.linspace(0, 1, 5000)
    adios = adios2.Adios()
    operator = cusz_operator.define_operator(adios, 1e-2)
    io = adios.declare_io("output")
    io.set_engine(engine)
    operator.impl.SetParameter("accuracy", "1e-3")  # in time
    variable = io.define_variable("T", x, x.shape, [0], x.shape)
    variable.add_operation(operator)
    operator.impl.SetParameter("accuracy", "1e-5")
    variable.operations()[0].SetParameter("accuracy", "1e-6")
    file = io.open(str(tmp_path / "run.bp"), adios2.Mode.Write)
    file.begin_step()
    file.put(variable, x)
    file.end_step()
    file.close()
    assert [block["eb"] for block in cusz_operator.inspect_bp(tmp_path / "run.bp")] == [1e-3]


def test_define_operator() -> None:
    adios2 = pytest.importorskip("adios2")
    adios = adios2.Adios()
    operator = cusz_operator.define_operator(adios, eb=1e-3, mode="rel", bins=128)
    assert operator.get_parameters()["bins"] == "128"
    with pytest.raises(ParameterError, match=r"named 'cusz'.*give another name=.*defined twice"):
        cusz_operator.define_operator(adios, eb=1e-3)
    cusz_operator.define_operator(adios, eb=1e-3, name="second")
    with pytest.raises(ParameterError):
        cusz_operator.define_operator(adios, eb=-1, name="third")
