"""Names of variables: many like ones in few words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NUMBER = re.compile(r"\d+")
_MAX_LISTED = 4  # numbers with gaps between them; of more, the first and the last


def numbered(text: str) -> str:
    """A text without its numbers, which those of levels, species and components share."""
    return _NUMBER.sub("#", text)


def in_short(texts: Iterable[str]) -> list[str]:
    """Texts, those that differ only in numbers together: level{0..4}/rho. (In a text with several, not every
    combination needs to be there.)"""
    groups: dict[str, list[str]] = {}
    for text in texts:
        groups.setdefault(numbered(text), []).append(text)
    return [together(group) for group in groups.values()]


def together(texts: Sequence[str]) -> str:
    """One text for some that differ only in numbers: level{0..4}/rho."""
    words = _NUMBER.split(texts[0])
    columns = zip(*(_NUMBER.findall(text) for text in texts), strict=True)
    return "".join(word + numbers for word, numbers in zip(words, [*map(_in_braces, columns), ""], strict=True))


def _in_braces(numbers: Sequence[str]) -> str:
    found = sorted(set(numbers), key=lambda text: (int(text), text))
    if len(found) == 1:
        return found[0]
    is_gapless = int(found[-1]) - int(found[0]) == len(found) - 1
    if is_gapless or len(found) > _MAX_LISTED:
        return f"{{{found[0]}..{found[-1]}}}"
    return f"{{{','.join(found)}}}"
