"""Writing configuration files for ADIOS2."""

from xml.etree import ElementTree

import pytest

import cusz_core
from cusz_operator.configuring import files as configuration

VARIABLES = [
    configuration.OperatedVariable("U", {"accuracy": 1e-3, "mode": "abs"}),
    configuration.OperatedVariable('a<&>"b\\', {"accuracy": 0.1 + 0.2, "mode": "rel", "bins": 1024, "fill": 1e20}),
]


def test_xml():
    text = configuration.xml("Simulation & Output", "SST", VARIABLES, "export A=---b\n-")
    assert "<!-- export A=- - -b?- -->" in text
    root = ElementTree.fromstring(text)
    assert root.tag == "adios-config"
    (io,) = root
    assert io.attrib == {"name": "Simulation & Output"}
    assert io.find("engine").attrib == {"type": "SST"}
    assert list(io.find("engine")) == []
    found = {}
    for variable in io.findall("variable"):
        operation = variable.find("operation")
        assert operation.attrib == {"type": "plugin"}
        found[variable.get("name")] = {p.get("key"): p.get("value") for p in operation.findall("parameter")}
    plugin = {"PluginName": "cusz", "PluginLibrary": "cusz_operator"}
    assert found == {
        "U": {**plugin, "accuracy": "0.001", "mode": "abs"},
        'a<&>"b\\': {**plugin, "accuracy": "0.30000000000000004", "mode": "rel", "bins": "1024", "fill": "1e+20"},
    }


def test_without_statistics():
    """If the CPU cannot read the data put, ADIOS2 must not compute min and max; the file says so."""
    text = configuration.xml("Out", "BP5", VARIABLES, statistics=False)
    assert ElementTree.fromstring(text).find("io/engine/parameter").attrib == {"key": "StatsLevel", "value": "0"}
    assert "<!-- ADIOS2 does not read the data put" in text
    yaml = pytest.importorskip("yaml")
    text = configuration.yaml("Out", "BP5", VARIABLES, statistics=False)
    (io,) = yaml.safe_load(text)
    assert io["Engine"] == {"Type": "BP5", "StatsLevel": 0}
    assert "# ADIOS2 does not read the data put" in text


def test_yaml():
    yaml = pytest.importorskip("yaml")
    (io,) = yaml.safe_load(configuration.yaml("Out", "BP5", VARIABLES, "export A=b"))
    assert io["IO"] == "Out"
    assert io["Engine"] == {"Type": "BP5"}
    assert [v["Variable"] for v in io["Variables"]] == ["U", 'a<&>"b\\']
    (operation,) = io["Variables"][1]["Operations"]
    assert operation["Type"] == "plugin"
    assert operation["PluginName"] == "cusz"
    assert operation["accuracy"] == "0.30000000000000004"


@pytest.mark.parametrize("write", [configuration.xml, configuration.yaml])
@pytest.mark.parametrize("name", ["a\nb", "a\x01", "a\x85b", "\u2028", "\udc80"])
def test_names_that_no_configuration_can_hold(write, name):
    with pytest.raises(cusz_core.ParameterError, match=r"io is .*: XML and YAML have no such characters"):
        write(name, "BP5", VARIABLES)
    with pytest.raises(cusz_core.ParameterError, match="the name of a variable is"):
        write("Out", "BP5", [*VARIABLES, configuration.OperatedVariable(name, {})])


def test_a_comment_stays_a_comment():
    """It may contain an installation path, which may contain anything."""
    yaml = pytest.importorskip("yaml")
    variable = configuration.OperatedVariable("U", {}, "of\nrun: [")
    (io,) = yaml.safe_load(configuration.yaml("Out", "BP5", [variable], "export A=a\n- b: ["))
    assert [own["Variable"] for own in io["Variables"]] == ["U"]
    text = configuration.xml("Out", "BP5", [variable], "export A=a\x01--->")
    assert ElementTree.fromstring(text).find("io/variable").attrib == {"name": "U"}
