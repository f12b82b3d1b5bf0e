"""Patterns of names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cusz_core.errors import ParameterError
from cusz_operator import names

NAMES = ["a[1]", "a1", "level0/rho", "level0/u", "level10/rho", "level2/rho", "{x,y}"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("level0/rho", ["level0/rho"]),
        ("level{0..2}/rho", ["level0/rho", "level2/rho"]),
        ("level{08..10}/rho", ["level10/rho"]),
        ("level?/{rho,u}", ["level0/rho", "level0/u", "level2/rho"]),
        ("*/rho", ["level0/rho", "level10/rho", "level2/rho"]),
        ("level[02]/*", ["level0/rho", "level0/u", "level2/rho"]),
        ("a[1]", ["a[1]"]),  # its own name, though it is a pattern for a1
        ("a[0-9]", ["a1"]),
        ("{x,y}", ["{x,y}"]),
        ("LEVEL0/rho", []),
    ],
)
def test_what_a_pattern_stands_for(pattern: str, found: list[str]) -> None:
    assert names.standing_for(pattern, NAMES) == found
    if found:
        assert names.chosen([pattern], NAMES, "it") == found
        return
    with pytest.raises(ParameterError, match=r"no variable 'LEVEL0/rho' in it \(there is 'level0/rho'"):
        names.chosen([pattern], NAMES, "it")


@pytest.mark.parametrize(
    ("name", "patterns", "found"),
    [
        ("level0/rho", ["*", "level0/rho"], "level0/rho"),  # its own name before patterns
        ("level0/rho", ["level?/rho", "*"], "level?/rho"),  # the first pattern that matches
        ("level0/rho", ["*", "level?/rho"], "*"),
        ("level0/rho", ["level{1..2}/rho", "LEVEL*"], None),
        ("a1", ["a[1]", "a*"], "a*"),  # a[1] is the name of another variable
        ("a[1]", ["a*", "a[1]"], "a[1]"),
        ("a2", ["a[1]", "a[2]"], "a[2]"),
        ("a2", [], None),
    ],
)
def test_which_pattern_decides(name: str, patterns: list[str], found: str | None) -> None:
    assert names.deciding(name, patterns, NAMES) == found


@given(st.lists(st.text("ab1[]{}*?,.", min_size=1), unique=True))
def test_every_name_stands_for_itself_alone(own: list[str]) -> None:
    for name in own:
        assert names.standing_for(name, own) == [name]
    assert names.chosen(own, own, "it") == names.chosen(None, own, "it") == own
