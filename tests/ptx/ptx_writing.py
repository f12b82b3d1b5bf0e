"""Kernels in PTX, written by tests."""

from __future__ import annotations

from collections.abc import Sequence

HEAD = ".version 8.3\n.target sm_90\n.address_size 64\n"
#: Register classes by their size; f32 and f64 have the same.
CLASSES = {1: ("pred", "%p"), 16: ("b16", "%h"), 32: ("b32", "%r"), 64: ("b64", "%d")}


def kernel(name: str, body: str, *, parameters: int = 3, shared: str = "", local: str = "") -> str:
    """A kernel with `parameters` 64-bit parameters, in %d0, %d1, .., and its thread's number in %r0."""
    declared = ", ".join(f".param .u64 {name}_{k}" for k in range(parameters))
    loads = "".join(f"    ld.param.u64 %d{k}, [{name}_{k}];\n" for k in range(parameters))
    return f"""
.visible .entry {name}({declared})
{{
    .reg .pred %p<40>;
    .reg .b16 %h<40>;
    .reg .b32 %r<60>;
    .reg .b64 %d<60>;
    {shared}
    {local}
{loads}
    mov.u32 %r50, %ctaid.x;
    mov.u32 %r51, %ntid.x;
    mov.u32 %r52, %tid.x;
    mad.lo.u32 %r0, %r50, %r51, %r52;
{body}
    ret;
}}
"""


def statements(*lines: str) -> str:
    return "".join(f"    {line};\n" if not line.endswith(":") else f"{line}\n" for line in lines)


def of_lanes(name: str, opcode: str, to: Sequence[int], sources: Sequence[int]) -> str:
    """A kernel in which every thread loads its operands, executes the instruction, and stores the results. to, sources:
    bits of each. The parameters point to the operands and to the results: a row of 64-bit values per thread."""
    body, operands, results = [], [], []
    body += [f"mul.wide.u32 %d10, %r0, {8 * len(sources)}", "add.s64 %d10, %d10, %d0"]
    body += [f"mul.wide.u32 %d11, %r0, {8 * len(to)}", "add.s64 %d11, %d11, %d1"]
    for k, bits in enumerate(sources):
        class_, stem = CLASSES[bits]
        register = f"{stem}{20 + k}"
        if class_ == "pred":
            body += [f"ld.global.u32 %r{20 + k}, [%d10+{8 * k}]", f"setp.ne.u32 {register}, %r{20 + k}, 0"]
        else:
            body.append(f"ld.global.{class_} {register}, [%d10+{8 * k}]")
        operands.append(register)
    results = [f"{CLASSES[bits][1]}{30 + k}" for k, bits in enumerate(to)]
    words = opcode.split(".")
    if words[0].startswith("unpack"):
        text = f"mov.{words[1]} {{{', '.join(results)}}}, {operands[0]}"
    elif words[0].startswith("pack"):
        text = f"mov.{words[1]} {results[0]}, {{{', '.join(operands)}}}"
    else:
        text = f"{opcode} {', '.join(['|'.join(results), *operands])}"
    body.append(text)
    for k, bits in enumerate(to):
        class_, _ = CLASSES[bits]
        if class_ == "pred":
            body += [f"selp.u32 %r{40 + k}, 1, 0, {results[k]}", f"st.global.u32 [%d11+{8 * k}], %r{40 + k}"]
        else:
            body.append(f"st.global.{class_} [%d11+{8 * k}], {results[k]}")
    return kernel(name, statements(*body), parameters=2)
