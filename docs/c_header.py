"""A C header as Markdown with directives of Sphinx's C domain: every declaration, with the comment that belongs to it.

A comment belongs to the declarations right below it; within a struct or enum, to the member before it on its line.
`/* ---- Title */` begins a section. In a comment, indented lines in two columns are about parameters:

     *   archive_bytes  exactly the archive's length
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

#: Not for readers: include guards, the attribute of functions, and what only C++ sees.
_NOISE = re.compile(
    r"^#ifdef __cplusplus\n.*?^#endif\n|^#if defined\(__GNUC__\)\n.*?^#endif\n"
    r"|^#(?:ifndef|include|endif|define \w+_H\b)[^\n]*\n|\b\w+_API\b ?",
    re.DOTALL | re.MULTILINE,
)
_COMMENT = r"/\*.*?\*/"
_DECLARATION = r"#define[^\n]*|\w[^;{/]*(?:\{.*?\}[^;{}]*)?;"
_TOKEN = re.compile(f"({_COMMENT})|({_DECLARATION})", re.DOTALL)
_MEMBER = re.compile(rf"({_COMMENT})|([^;/]+;)(?:[ \t]*({_COMMENT}))?", re.DOTALL)
_VALUE = re.compile(rf"(\w+(?: = [^,/}}]*[^,/}}\s])?),?(?:[ \t]*({_COMMENT}))?", re.DOTALL)


class _Item(NamedTuple):
    """A declaration.

    Attributes:
        kind, name: the directive for it, and what others refer to; "" for an enum without a name.
        signature: as the directive takes it.
        comment: about it, as in the header.
        members: of a struct or enum.
        value: of a macro.
    """

    kind: str
    name: str
    signature: str
    comment: str = ""
    members: tuple[_Item, ...] = ()
    value: str = ""


def markdown(header: str, level: int, *others: str) -> str:
    """A header as Markdown.

    Args:
        header: its text.
        level: of the headings of its sections.
        others: headers whose names it may refer to.

    Raises:
        ValueError: a declaration of a kind that is not known here.
    """
    kinds: dict[str, str] = {}
    for text in (header, *others):
        items = [item for part in _parts(text) if isinstance(part, list) for item in part]
        items += [value for item in items if item.kind == "enum" for value in item.members]
        kinds |= {item.name: item.kind for item in items}
    written = []
    for part in _parts(header):
        if isinstance(part, str):
            title = re.fullmatch("---- (.*)", " ".join(part[2:-2].split()))
            written.append(f"{'#' * level} {title[1]}" if title else _text(part, kinds))
        else:
            written += [_directive(item, kinds) for item in part]
    return "\n\n".join(written) + "\n"


def _parts(header: str) -> Iterator[str | list[_Item]]:
    """Comments that stand alone, and declarations that share one, in their order."""
    for paragraph in re.split(r"\n[ \t]*\n", _NOISE.sub("", header)):
        comment, declarations = "", []
        for token in _TOKEN.finditer(paragraph.strip()):
            if token[2]:
                declarations.append(token[2].strip())
                continue
            if comment or declarations:
                yield _group(declarations, comment) or comment
            comment, declarations = token[1], []
        if comment or declarations:
            yield _group(declarations, comment) or comment


def _group(declarations: list[str], comment: str) -> list[_Item]:
    """Declarations that share a comment: it is with the last one, unless there are types among them."""
    items = [_item(each) for each in declarations]
    functions = [item.name for item in items if item.kind == "function"]
    items = [item for item in items if item.kind != "macro" or item.name not in functions]  # around the function
    if items:
        place = 0 if any(item.members for item in items) else -1
        items[place] = items[place]._replace(comment=comment)
    return items


def _item(declaration: str) -> _Item:
    if found := re.match(r"#define (\w+)(\([^)]*\))?", declaration):
        return _Item("macro", found[1], f"{found[1]}{found[2] or ''}", value=declaration[found.end() :].strip())
    body = declaration.partition("{")[2].rpartition("}")[0]
    if found := re.match(r"(?:typedef )?enum\s*(\w*)\s*\{", declaration):
        return _Item("enum", found[1], found[1] or "@values", members=tuple(_values(body)))
    if found := re.match(r"typedef struct (\w+)", declaration):
        return _Item("struct", found[1], found[1], members=tuple(_members(body)))
    if found := re.match(r"[\w\s*]*?(\w+)\(", declaration):
        return _Item("function", found[1], " ".join(declaration.removesuffix(";").split()))
    raise ValueError(f"what is {declaration!r}?")


def _values(body: str) -> Iterator[_Item]:
    for found in _VALUE.finditer(body):
        yield _Item("enumerator", found[1].split()[0], found[1], found[2] or "")


def _members(body: str) -> Iterator[_Item]:
    for found in _MEMBER.finditer(body):
        if found[1]:  # about those that follow
            yield _Item("", "", "", found[1])
            continue
        text = " ".join(found[2].removesuffix(";").split())
        first, *others = [text] if "(" in text else text.split(", ")
        signatures = [first, *(f"{first.rpartition(' ')[0]} {other}" for other in others)]
        for signature in signatures[:-1]:
            yield _Item("member", "", signature)
        yield _Item("member", "", signatures[-1], found[3] or "")


def _directive(item: _Item, kinds: dict[str, str]) -> str:
    """A declaration as a directive, with those of its members within."""
    if not item.kind:
        return f"*{_text(item.comment, kinds).rstrip(':')}:*"
    parts = [_text(item.comment, kinds)] if item.comment else []
    parts += [f"Value: `{item.value}`"] if item.value else []
    parts += [_directive(member, kinds) for member in item.members]
    fence = ":" * (4 if item.members else 3)
    options = [] if item.name and item.kind != "enumerator" else [":no-contents-entry:", ""]
    return "\n".join([f"{fence}{{c:{item.kind}}} {item.signature}", *options, "\n\n".join(parts), fence])


def _text(comment: str, kinds: dict[str, str]) -> str:
    """A comment in Markdown: paragraphs, with parameters and errors as fields."""
    result: list[str] = []
    field = ""
    for line in comment.removeprefix("/*").removesuffix("*/").replace(" Errors:", "\nErrors:").rstrip().splitlines():
        starred = re.match(r" *\*( ?.*)", line)
        text = (starred[1] if starred else line.strip()).removeprefix(" ")
        columns = re.match(r"  ([^\s-]\S*(?: \S+)*)  +(\S.*)", text)
        if columns:
            result += [] if field == "Parameters" else ["", ":Parameters:"]
            field = "Parameters"
            result.append(f"    - **{columns[1].replace(', ', '**, **')}** – {_marked(columns[2], kinds)}")
        elif text.startswith("Errors:"):
            field = "Errors"
            result += ["", f":Errors:{_marked(text.removeprefix('Errors:'), kinds)}"]
        elif field == "Errors" or (field and text.startswith("   ")):
            result[-1] += " " + _marked(text.strip(), kinds)
        else:
            result += ([""] if field or text.startswith("Returns ") else []) + [_marked(text.strip(), kinds)]
            field = ""
    return "\n".join(result).strip()


def _marked(text: str, kinds: dict[str, str]) -> str:
    """A line in Markdown: names become references, and nothing else is markup."""

    def word(found: re.Match[str]) -> str:
        name = found[0].removesuffix("()")
        if name in kinds:
            return f"{{c:{'func' if kinds[name] == 'function' else kinds[name]}}}`{name}`"
        if f"CUSZ_ERROR_{name}" in kinds:
            return f"{{c:enumerator}}`{name} <CUSZ_ERROR_{name}>`"
        return found[0] if found[0].startswith("`") else re.sub(r"([_*<\[])", r"\\\1", found[0])

    return re.sub(r"`[^`]*`|\w+(?:\(\))?|[*<\[]", word, text)
