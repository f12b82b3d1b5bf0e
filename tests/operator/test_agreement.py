"""What ranks conclude from what they told each other (agreement.py): functions, tested without ranks."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cusz_core
import support
from cusz_core import Parameters
from cusz_operator.ranks import Failure
from cusz_operator.tables import blocktable
from cusz_operator.writing import agreement
from cusz_operator.writing.agreement import Description, Opening, Report
from cusz_operator.writing.goals import Wanted
from cusz_operator.writing.progress import Tally, VariableSummary

ABS, REL = Parameters(0.1), Parameters(1e-3, "rel")
UNKNOWN = cusz_core.ValueRange(math.nan, math.nan, 0)


class Block(NamedTuple):
    """A block, and the range of its values."""

    of: Description
    range: cusz_core.ValueRange


def block(name: str = "U", start: int = 0, count: int = 10, range: Any = UNKNOWN, **other: Any) -> Block:
    place = np.array([[start]]), np.array([[count]])
    return Block(Description(name, "float32", "float32", (), (100,), ABS, None, *place)._replace(**other), range)


def structure(
    *ranks: list[Block], known: dict[str, str] | None = None, before: agreement.Structure | None = None
) -> agreement.Structure:
    return agreement.structure_of([[one.of for one in blocks] for blocks in ranks], known or {}, "step 7", before)


def ranges_of(ranks: Sequence[list[Block]]) -> list[bytes]:
    return [np.array([one.range for one in blocks], np.float64).tobytes() for blocks in ranks]


def bounds(*ranks: list[Block], **options: Any) -> dict[str, float]:
    return agreement.agreed(structure(*ranks, **options), ranges_of(ranks)).bounds


def refused(*ranks: list[Block], **options: Any) -> str:
    with pytest.raises(cusz_core.ParameterError) as raised:
        bounds(*ranks, **options)
    return str(raised.value)


# ------------------------------------------------------------------------------------------------------------ bounds


@given(
    values=st.lists(
        st.one_of(st.floats(-1e10, 1e10, width=32), st.sampled_from([math.nan, 1e20])), min_size=1, max_size=30
    ),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    eb=st.sampled_from([0.0, 1e-6, 1e-3, 0.5]),
)
def test_a_relative_bound_is_that_of_the_whole_variable(values: list[float], cuts: list[int], eb: float) -> None:
    """However it is cut into blocks and dealt out to ranks, empty blocks and ranks without any included."""
    whole = np.array(values, np.float32)
    parameters = Parameters(eb, "rel", fill=1e20)
    edges = [0, *sorted(min(cut, whole.size) for cut in cuts), whole.size]
    parts = [
        block(start=a, count=b - a, parameters=parameters, range=cusz_core.value_range(whole[a:b], 1e20))
        for a, b in itertools.pairwise(edges)
    ]
    assert bounds([], parts[::2], [], parts[1::2]) == {"U": support.absolute_bound(whole, eb, "rel", 1e20)}


def test_an_absolute_bound_is_the_one_that_was_asked_for() -> None:
    assert bounds([block(), block("V")], [block(start=10)]) == {"U": 0.1, "V": 0.1}
    assert bounds([], []) == {}


def test_no_values_make_a_bound_of_zero() -> None:
    assert bounds([block(parameters=REL, range=cusz_core.ValueRange(0.0, 0.0, 0))]) == {"U": 0.0}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"dtype": "float64", "given": "float64"}, "dtype float64 on rank 2 and float32 on rank 1"),
        ({"given": "float16"}, "dtype float16 on rank 2 and float32 on rank 1"),
        ({"shape": (101,)}, r"shape (101,) on rank 2 and (100,) on rank 1"),
        ({"parameters": dataclasses.replace(ABS, bins=128)}, "on rank 1: they must be the same"),
        ({"parameters": dataclasses.replace(ABS, fill=0.0)}, "fill=0.0, predictor='auto' on rank 2"),
        ({"wanted": Wanted("U", "psnr", 80.0, 0.0, math.inf)}, "goal psnr=80 on rank 2"),
    ],
)
def test_ranks_must_describe_a_variable_alike(other: dict[str, Any], message: str) -> None:
    said = refused([block("V")], [block()], [block(start=10, **other)])
    assert said.startswith("step 7: variable 'U' has ")
    assert message in said


def test_blocks_of_one_rank_must_be_alike_too() -> None:
    said = refused([block(), block(start=10, shape=(101,))])
    assert said == (
        "step 7: variable 'U' has shape (101,) in one put of rank 0 and (100,) in another: they must be the same "
        "(shape= is that of the global array, in which start= says where a block begins; if lengths differ from rank "
        "to rank, it is the sum of all of them, and start= that of those before)"
    )


def test_one_block_may_name_the_dimensions_for_all() -> None:
    named = {"dimensions": ("x",)}
    for told in ([[block(), block(start=10, **named)]], [[block(**named)], [block(start=10)]]):
        assert structure(*told).arrays["U"].dimensions == ("x",)
    said = refused([block()], [block(start=10, **named)], [block(start=20, dimensions=("y",))])
    assert "dims ('y',) on rank 2 and ('x',) on rank 1: they must be the same" in said


def test_a_fill_value_that_is_nan_is_equal_to_itself() -> None:
    one, other = (dataclasses.replace(ABS, fill=float("nan")) for _ in range(2))
    assert bounds([block(parameters=one)], [block(start=10, parameters=other)])


def test_fill_values_that_are_equal_may_differ() -> None:
    one, other = (dataclasses.replace(ABS, fill=fill) for fill in (0.0, -0.0))
    assert "fill=-0.0" in refused([block(parameters=one)], [block(start=10, parameters=other)])


def test_a_variable_keeps_its_type() -> None:
    first = structure([block(), block("V", dtype="float64", given="float64")], [block(start=20)])
    kinds = {name: agreement.kind_of(array) for name, array in first.arrays.items()}
    assert kinds == {"U": "float32, 1 dimensions", "V": "float64, 1 dimensions"}
    assert bounds([block(shape=(7,), count=3)], known=kinds), "its shape may change"
    assert refused([block("V")], known=kinds) == (
        "step 7: variable 'V' is float32, 1 dimensions, and was float64, 1 dimensions in earlier steps: a variable "
        "cannot change its type"
    )


def test_blocks_must_not_overlap() -> None:
    told = [[block(), block("V", start=5)], [block(start=30), block(start=9)]]
    assert refused(*told) == (
        "step 7: variable 'U': the block at (0,) with extents (10,) of rank 0 overlaps that at (9,) with extents (10,) "
        "of rank 1"
    )


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4)), max_size=3),
        max_size=4,
    )
)
def test_overlaps_are_those_of_sets_of_indices(ranks: list[list[tuple[int, int]]]) -> None:
    told = [[block(start=start, count=count) for start, count in boxes] for boxes in ranks]
    indices = [index for boxes in ranks for start, count in boxes for index in range(start, start + count)]
    if len(indices) == len(set(indices)):
        bounds(*told)
    else:
        assert "overlaps" in refused(*told)


def test_overlaps_are_looked_for_where_blocks_have_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []

    def first_overlap(start: np.ndarray, count: np.ndarray) -> None:
        looked.append((start.ravel().tolist(), count.ravel().tolist()))

    monkeypatch.setattr(agreement, "first_overlap", first_overlap)
    first = structure([block(parameters=REL), block("V")], [block(start=10, parameters=REL)])
    assert looked == [([0, 10], [10, 10]), ([0], [10])]
    looked.clear()
    structure([block(), block("V")], [block(start=10)], before=first)
    assert not looked, "other settings"
    for other, expected in (
        ([[block()], []], [([0], [10])]),
        ([[block(), block(start=10)], [block("W")]], [([0], [10])]),
        ([[block()], [block(start=11)]], [([0, 11], [10, 10])]),
    ):
        looked.clear()
        structure(*other, before=first)
        assert looked == expected


@given(st.lists(st.lists(st.tuples(st.sampled_from("UV"), st.integers(-3, 3)), max_size=4), max_size=4))
def test_ranges_are_those_of_all_blocks_of_a_variable(ranks: list[list[tuple[str, int]]]) -> None:
    told = [
        [block(name, 20 * rank + 5 * i, 5, cusz_core.ValueRange(low, low + 1, 3)) for i, (name, low) in enumerate(of)]
        for rank, of in enumerate(ranks)
    ]
    found = agreement.agreed(structure(*told), ranges_of(told)).ranges
    lows = {name: [low for of in ranks for own, low in of if own == name] for name in found}
    assert found == {name: (min(own), max(own) + 1, 3 * len(own)) for name, own in lows.items()}
    assert found.keys() == {name for of in ranks for name, _ in of}


# ------------------------------------------------------------------------------------------------ opening and closing


def opening(**other: Any) -> Opening:
    return Opening(None, "run.bp", "BP5", False, False, False, True, None)._replace(**other)


@pytest.mark.parametrize("in_file", [None, False, True])
@pytest.mark.parametrize("wanted", list(itertools.product([False, True], repeat=2)))
def test_statistics_are_for_all_ranks_or_none(wanted: tuple[bool, bool], in_file: bool | None) -> None:
    """A file that is appended to, which rank 0 looks at, decides alone."""
    told = [opening(wants_statistics=wanted[0], has_statistics=in_file), opening(wants_statistics=wanted[1])]
    assert agreement.statistics_agreed(told, "here") is (all(wanted) if in_file is None else in_file)


@pytest.mark.parametrize(
    "other", [{"path": "b.bp"}, {"engine": "BP4"}, {"append": True}, {"asynchronous": True}, {"overlap": True}]
)
def test_ranks_must_open_the_same(other: dict[str, Any]) -> None:
    with pytest.raises(
        cusz_core.ParameterError, match=r"^here: rank 0 opens \('run.bp', 'BP5', False, False, False\) .* rank 2"
    ):
        agreement.statistics_agreed([opening(), opening(), opening(**other)], "here")


def test_a_rank_that_closes_while_others_end_a_step() -> None:
    step, close = Report("step", None), Report("close", None)
    error = agreement.out_of_order([step, close, close], "here")
    assert isinstance(error, cusz_core.ParameterError)
    assert str(error) == "here: rank 1 closed the Writer while others ended a step"
    failed = close._replace(failure=Failure("DeviceError", "it is gone"))
    error = agreement.out_of_order([step, step, failed], "here")
    assert isinstance(error, cusz_core.DeviceError)
    assert str(error) == "here: rank 2: it is gone"


# ------------------------------------------------------------------------------------------------------ block tables


def table(rank: int, *sizes: int) -> np.ndarray:
    made = np.zeros(len(sizes), blocktable.table_dtype(1))
    made["rank"], made["archive_bytes"], made["raw_bytes"], made["seconds"] = rank, sizes, 100, 0.5
    return made


def part(rank: int, *sizes: int) -> blocktable.Part:
    return 1, table(rank, *sizes).tobytes()


PARTS = [{"U": part(0, 10, 20), "V": part(0, 1)}, {}, {"V": part(2, 2), "U": part(2, 30)}]


def test_room_is_needed_for_archives_blocks_and_ranks() -> None:
    nothing = agreement.bytes_needed({}, 0)
    assert nothing > 0
    per_rank = agreement.bytes_needed({}, 1) - nothing
    per_block = agreement.bytes_needed({"U": table(0, 0)}, 1) - nothing - per_rank
    assert agreement.bytes_needed(blocktable.merged(PARTS), 3) == nothing + 3 * per_rank + 5 * per_block + 63


def test_tables_of_ranks_make_one_in_their_order() -> None:
    whole = blocktable.merged(PARTS)
    assert list(whole) == ["U", "V"]
    assert whole["U"]["archive_bytes"].tolist() == [10, 20, 30]
    assert whole["V"]["rank"].tolist() == [0, 2]
    assert whole["U"].flags.writeable
    assert blocktable.merged([]) == {}


def test_what_is_written_adds_up() -> None:
    tally = Tally()
    assert tally.summaries(0.0) == []
    for _ in range(2):
        tally.add(blocktable.merged(PARTS))
    tally.add({"V": table(0, 5)})
    assert tally.summaries(10.0) == [
        VariableSummary("U", 2, 6, 600, 120, 3.0, 0.3),
        VariableSummary("V", 3, 5, 500, 11, 2.5, 0.25),
    ]
    assert [own.share for own in tally.summaries(0.0)] == [0.0, 0.0]
