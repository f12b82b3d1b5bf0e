"""The ADIOS2 operator plugin `cusz`, from Python.

Importing this package prepends the plugin's folder to ADIOS2_PLUGIN_PATH, so that ADIOS2 finds the plugin in this
process for both writing and reading:

    import adios2
    import cusz_operator

    adios = adios2.Adios()
    operator = cusz_operator.define_operator(adios, eb=1e-3)  # every value comes back within 1e-3
    io = adios.declare_io("output")
    T = io.define_variable("T", data, shape, start, count)
    T.add_operation(operator)

    for block in cusz_operator.inspect_bp("run.bp"):
        print(block["variable"], block["step"], block["block"], block.get("ratio"))
"""

from . import configuration
from .checking import Report, check
from .device import Binding, bind_device, device_map
from .errors import PluginError
from .inspecting.blocks import Block, inspect_bp
from .inspecting.difference import Difference, compare_runs
from .inspecting.variables import VariableInfo, inspect_variables
from .parameters import define_operator, operator_parameters
from .plugin import PLUGIN_LIBRARY, PLUGIN_NAME, add_to_plugin_path, plugin_path
from .reader import Reader
from .writing.progress import VariableSummary
from .writing.repair import repair
from .writing.writer import Writer

__all__ = [
    "PLUGIN_LIBRARY",
    "PLUGIN_NAME",
    "Binding",
    "Block",
    "Difference",
    "PluginError",
    "Reader",
    "Report",
    "VariableInfo",
    "VariableSummary",
    "Writer",
    "bind_device",
    "check",
    "compare_runs",
    "configuration",
    "define_operator",
    "device_map",
    "inspect_bp",
    "inspect_variables",
    "operator_parameters",
    "plugin_path",
    "repair",
]

add_to_plugin_path()
