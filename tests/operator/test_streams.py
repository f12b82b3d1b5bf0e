"""Opening streams so that SST can tell ranks apart (tests/nodes does so with ranks on several nodes)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cusz_operator import streams
from cusz_operator.streams import waits_apart

processes = st.lists(
    st.tuples(st.integers(1, 40), st.floats(1e9, 1e9 + 5, allow_nan=False, allow_infinity=False)), max_size=40
)


@given(processes)
def test_sums_of_number_and_second_differ(told: list[tuple[int, float]]) -> None:
    """At the moment when each rank stops waiting, by its own clock; this moment is not near the end of a second."""
    waits = waits_apart(told)
    begins = [now + wait for (_, now), wait in zip(told, waits, strict=True)]
    assert all(wait >= 0 for wait in waits)
    assert len({number + math.floor(begin) for (number, _), begin in zip(told, begins, strict=True)}) == len(told)
    assert all(begin % 1 <= streams._LATEST_IN_SECOND + 1e-6 for begin in begins)


def test_nobody_waits_without_need() -> None:
    assert waits_apart([(7, 100.3), (8, 100.31), (9, 100.59)]) == [0, 0, 0]
    assert waits_apart([(7, 100.3), (7, 100.3), (7, 100.3)]) == pytest.approx([0, 0.75, 1.75])
    assert waits_apart([(7, 100.9)]) == pytest.approx([0.15])


class Ranks:
    """A communicator of ranks with the same process ID."""

    def __init__(self, size: int) -> None:
        self.size, self.rank = size, 0

    def allgather(self, item: tuple[int, float]) -> list[tuple[int, float]]:
        return [item] * self.size


@pytest.mark.parametrize(
    ("size", "said"), [(1, ""), (3, ""), (40, "40 ranks have only 1 process numbers between them")]
)
def test_a_long_wait_is_told(size: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    adios2 = pytest.importorskip("adios2")
    with streams.told_apart(adios2, Ranks(size), {}):
        pass
    told = capsys.readouterr().err
    assert said in told
    assert bool(said) == bool(told)


def test_what_is_wrong_with_an_engine_is_told_when_it_is_opened() -> None:
    """Not here, where one rank would leave the others waiting."""
    with streams.told_apart(None, Ranks(2), {}):
        pass
