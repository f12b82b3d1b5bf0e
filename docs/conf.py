"""The documentation site: scripts/docs makes it, with Sphinx and MyST, from the Markdown files of this folder.

The guides remain plain Markdown, to be read where the repository is. What the site needs beyond them is here.

Environment:
    CUSZ_DOCS_REPOSITORY  the repository's address on the web, such as https://host/owner/cusz. Links to files that are
                          not pages then go there. Without it, the site has copies of these files.
    CUSZ_DOCS_BRANCH      its branch or tag (default: main)
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

import c_header  # noqa: E402
import command_line  # noqa: E402

import cusz_core  # noqa: E402
import cusz_operator  # noqa: E402
from cusz_core import cli  # noqa: E402

project = "cusz"
author = copyright = "The cusz authors"
version = release = cusz_core.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
nitpicky = True
smartquotes = False  # quotes are those of code

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "fieldlist"]

html_theme = "furo"
html_title = f"cusz {version}"
html_copy_source = html_show_sourcelink = False
html_css_files = ["site.css"]
html_static_path = ["static"]

# ---- Links

repository = os.environ.get("CUSZ_DOCS_REPOSITORY", "").rstrip("/")
branch = os.environ.get("CUSZ_DOCS_BRANCH", "main")

#: Pages that are made of a file elsewhere in the repository.
PAGES = {
    "README.md": "index",
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "SECURITY.md": "security",
}
_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
_BLOCK = re.compile(r"^```{(include|c-header|command-line)}(?: (\S+))?\n```$", re.MULTILINE)
_HEADERS = (ROOT / "cusz_core/include/cusz/cusz.h", ROOT / "operator/plugin/cusz_operator.h")


def read_page(app: Sphinx, docname: str, source: list[str]) -> None:
    """Puts in the files that a page is made of, and makes links lead to pages, to the repository, or to copies."""

    def block(found: re.Match[str]) -> str:
        if found[1] == "command-line":
            return command_line.markdown(cli.parser(), 2)
        file = folder / found[2]
        text = file.read_text(encoding="utf-8")
        app.env.note_dependency(str(file), docname=docname)
        if found[1] == "include":
            return with_links(text, file.parent)
        return c_header.markdown(text, 3, *(header.read_text(encoding="utf-8") for header in _HEADERS))

    def with_links(text: str, origin: Path) -> str:
        return _LINK.sub(lambda found: target_of(found[1], origin), text)

    def target_of(target: str, origin: Path) -> str:
        path = Path(os.path.normpath(origin / target))
        if ":" in target or not path.is_relative_to(ROOT) or not path.exists():
            return target  # another site, or a mistake, which MyST reports
        of_root = path.relative_to(ROOT).as_posix()
        if of_root in PAGES:
            path = HERE / f"{PAGES[of_root]}.md"
        elif repository and not path.is_relative_to(HERE):
            return f"{repository}/{'tree' if path.is_dir() else 'blob'}/{branch}/{of_root}"
        return os.path.relpath(path, folder)

    folder = Path(app.env.doc2path(docname)).parent
    source[0] = _BLOCK.sub(block, with_links(source[0], folder))


# ---- Docstrings

autodoc_typehints = "none"  # the texts have the types
autodoc_member_order = "bysource"
autoclass_content = "both"
autodoc_default_options = {"members": True}
default_role = "py:obj"
nitpick_ignore_regex = [
    ("py:obj", ".*"),  # `names` in docstrings may be those of parameters
    ("c:identifier", r"(size|uintptr|u?int\d+)_t"),
]

for package in (cusz_core, cusz_operator):
    for name in package.__all__:
        if getattr(getattr(package, name), "__module__", "").startswith(package.__name__):
            getattr(package, name).__module__ = package.__name__  # where users find it


_LABELS = {"Args:": "Parameters", "Attributes:": "Attributes", "Returns:": "Returns", "Raises:": "Raises"}
_ENTRY = re.compile(r"((?:\w+, )*\w+): (.*)")


def read_docstring(app: Sphinx, kind: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    """Google's sections become fields, whose entries may be of several names; as in Markdown, what is indented after an
    empty line is code. (Docstrings of modules are for readers of the sources, and those of texts are Python's own.)"""
    if kind == "module" or (kind == "data" and lines[:1] == (type(item).__doc__ or "").splitlines()[:1]):
        lines.clear()
    result: list[str] = []
    code = False
    section, at = "", 0  # of the section, and the indentation of its entries
    for line, after in zip(lines, [*lines[1:], ""], strict=False):
        text, indentation = line.strip(), _indentation(line)
        if not text or text.startswith("Create new instance of "):  # what Python says of named tuples
            result.append("")
            continue
        if code and indentation > 0:
            result.append(line)
            continue
        code = indentation > 0 and not section and result[-1:] == [""]
        if code:
            result += [".. code-block:: python", "", line]
            continue
        text = re.sub(r"(`[^`]*`|\*\w[^*]*\*)|([|*])", lambda found: found[1] or f"\\{found[2]}", text)
        if indentation == 0:
            is_section = text.endswith(":") and _indentation(after) > 0
            before = section
            section, at = (text, _indentation(after)) if is_section else ("", 0)
            label = _LABELS.get(text, "")
            result += [""] * bool(before) + ([f":{label}:"] if label else [text] + [""] * is_section)
            continue
        entry = _ENTRY.fullmatch(text) if section and indentation == at else None
        if entry and section != "Returns:":
            names = [_error(each) if section == "Raises:" else f"**{each}**" for each in entry[1].split(", ")]
            result.append(f"    * {', '.join(names)} – {entry[2]}")
        else:
            result.append(f"{'    ' if section in _LABELS else ''}{'  ' if section and indentation > at else ''}{text}")
    lines[:] = result


def _error(name: str) -> str:
    for package in (cusz_operator, cusz_core):
        if name in package.__all__:
            return f":py:exc:`~{package.__name__}.{name}`"
    return f":py:exc:`{name}`"


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def shorten_signature(
    app: Sphinx, kind: str, name: str, item: Any, options: Any, signature: str, returns: str
) -> tuple[str, str] | None:
    """Results, which users do not make themselves, are shown without the long list of their attributes."""
    is_result = kind == "class" and (
        (dataclasses.is_dataclass(item) and item is not cusz_core.Parameters) or hasattr(item, "_fields")
    )
    return ("", "") if is_result else None


def skip_member(app: Sphinx, kind: str, name: str, item: Any, skip: bool, options: Any) -> bool | None:
    """Members of named tuples are in the text about these."""
    return True if type(item).__name__ == "_tuplegetter" else None


def setup(app: Sphinx) -> None:
    app.connect("source-read", read_page)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-skip-member", skip_member)
