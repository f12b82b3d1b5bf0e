"""What ranks agree on (agreement.py, together.py); ranks are threads of this process, or are not needed."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import cusz_core
import support
from cusz_core import Parameters
from cusz_operator.ranks import Ranks
from cusz_operator.tables import blocktable, checks, representation
from cusz_operator.writing import agreement, overlaps
from cusz_operator.writing.agreement import Description, Opening, Openings, Value
from cusz_operator.writing.goals import Wanted
from cusz_operator.writing.progress import Tally, VariableSummary
from cusz_operator.writing.together import Agreed, Layout, Report, Together, Totals

ABS, REL = Parameters(0.1), Parameters(1e-3, "rel")
UNKNOWN = cusz_core.ValueRange(math.nan, math.nan, 0)


class Block(NamedTuple):
    """A block, and the range of its values."""

    of: Description
    range: cusz_core.ValueRange


def block(name: str = "U", start: int = 0, count: int = 10, range: Any = UNKNOWN, **other: Any) -> Block:
    place = np.array([[start]]), np.array([[count]])
    return Block(Description(name, "float32", "float32", (), (100,), ABS, None, *place)._replace(**other), range)


class _Meeting:
    """State shared by ranks that are threads."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=30)
        self.items: list[Any] = [None] * size
        self.lock = threading.Condition()
        self.sent: dict[tuple[int, int], list[Any]] = {}


class Threads(Ranks):
    """Ranks that are threads. They notice if one of them deviates from the others."""

    def __init__(self, meeting: _Meeting, rank: int) -> None:
        super().__init__(None)
        self.rank, self.size, self._meeting = rank, len(meeting.items), meeting

    def _all(self, what: str, item: Any) -> list[Any]:
        self._meeting.items[self.rank] = (what, item)
        self._meeting.barrier.wait()
        items = list(self._meeting.items)
        self._meeting.barrier.wait()
        assert {other for other, _ in items} == {what}
        return [other for _, other in items]

    def _all_reduced(self, own: NDArray[Any], operation: str) -> NDArray[Any]:
        every = self._all(f"{operation} {own.shape} {own.dtype}", own)
        return np.max(every, axis=0) if operation == "MAX" else np.sum(every, axis=0)

    def sums_before(self, own: NDArray[Any]) -> NDArray[Any]:
        return np.sum([np.zeros_like(own), *self._all("before", own)[: self.rank]], axis=0)

    def merged(self, make: Callable[[], Any], merge: Callable[[Any, Any], Any], where: str) -> Any:
        every = self._all("merged", make())
        random.Random(len(every)).shuffle(every)  # the order must not matter
        while len(every) > 1:
            every.append(merge(every.pop(0), every.pop(0)))
        return every[0]

    def of(self, rank: int, item: Any) -> Any:
        return self._all(f"of {rank}", item)[rank]

    def exchanged(self, item: Any, other: int) -> Any:
        self.send(item, other)
        return self.receive(other)

    def send(self, item: Any, other: int) -> None:
        with self._meeting.lock:
            self._meeting.sent.setdefault((self.rank, other), []).append(item)
            self._meeting.lock.notify_all()

    def receive(self, other: int) -> Any:
        key = (other, self.rank)
        with self._meeting.lock:
            assert self._meeting.lock.wait_for(lambda: self._meeting.sent.get(key), timeout=30)
            return self._meeting.sent[key].pop(0)

    def groups(self, size: int) -> Ranks:
        return self

    def gathered(self, own: NDArray[Any], counts: NDArray[np.int64], into: NDArray[Any]) -> None:
        every = self._all("gathered", own)
        if self.rank == 0:
            assert [len(one) for one in every] == counts.tolist()
            into[:] = np.concatenate(every)


def in_ranks(n: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """Runs `work` on n ranks; returns what each returns, or the error that it raises."""
    meeting = _Meeting(n)
    found: list[Any] = [None] * n

    def run(rank: int) -> None:
        try:
            found[rank] = work(Threads(meeting, rank))
        except threading.BrokenBarrierError:
            found[rank] = AssertionError("ranks have waited for each other in vain")
        except Exception as error:
            found[rank] = error
            if not isinstance(error, cusz_core.CuszError):
                meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def report_of(blocks: Sequence[Block], *values: Value) -> Report:
    ranges = np.array([one.range for one in blocks], np.float64).reshape(-1, 3)
    return Report(tuple(one.of for one in blocks), ranges, values)


def steps(*each: Sequence[Report | Exception], known: dict[str, str] | None = None) -> list[Agreed]:
    """What ranks agree on in each step, given the reports of all ranks. It must be the same on all ranks."""

    def work(ranks: Ranks) -> list[Agreed | cusz_core.CuszError]:
        all_ranks = Together(ranks)
        all_ranks.known.kinds = dict(known or {})
        made: list[Agreed | cusz_core.CuszError] = []
        for told in each:
            own = told[ranks.rank]
            error = own if isinstance(own, Exception) else None
            report = Report() if isinstance(own, Exception) else own
            try:
                made.append(all_ranks.end_step(report, error, "step 7"))
            except cusz_core.CuszError as raised:
                made.append(raised)
        return made

    found = in_ranks(len(each[0]), work)
    for failed in found:
        if isinstance(failed, Exception):
            raise failed
    for of_step in zip(*found, strict=True):
        said = {f"{type(one).__name__}: {one}" if isinstance(one, Exception) else repr(one[:4]) for one in of_step}
        assert len(said) == 1, said
    last = found[0][-1]
    if isinstance(last, cusz_core.CuszError):
        raise last
    return found[0]


def agreed(*ranks: list[Block], **options: Any) -> Agreed:
    return steps([report_of(blocks) for blocks in ranks], **options)[-1]


def bounds(*ranks: list[Block], **options: Any) -> dict[str, float]:
    return agreed(*ranks, **options).bounds


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
    """However the variable is cut into blocks and distributed, even with empty blocks and ranks without any."""
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
        ({"parameters": dataclasses.replace(ABS, fill=0.0)}, "fill=0.0, predictor='auto', coarse='auto' on rank 2"),
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
        assert agreed(*told).arrays["U"].dimensions == ("x",)
    said = refused([block()], [block(start=10, **named)], [block(start=20, dimensions=("y",))])
    assert "dims ('y',) on rank 2 and ('x',) on rank 1: they must be the same" in said


def test_a_fill_value_that_is_nan_is_equal_to_itself() -> None:
    one, other = (dataclasses.replace(ABS, fill=float("nan")) for _ in range(2))
    assert bounds([block(parameters=one)], [block(start=10, parameters=other)])


def test_fill_values_that_are_equal_may_differ() -> None:
    one, other = (dataclasses.replace(ABS, fill=fill) for fill in (0.0, -0.0))
    assert "fill=-0.0" in refused([block(parameters=one)], [block(start=10, parameters=other)])


def test_a_variable_keeps_its_type() -> None:
    first = agreed([block(), block("V", dtype="float64", given="float64")], [block(start=20)])
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


def test_overlaps_are_looked_for_where_blocks_have_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[list[tuple[int, ...]]] = []

    def first_pair(ranks: Ranks, rows: NDArray[np.int64]) -> None:
        looked.append([tuple(row) for row in rows[:, 2:].tolist()])

    monkeypatch.setattr(overlaps, "first_pair", first_pair)
    first = [report_of([block(parameters=REL), block("V")]), report_of([block(start=10, parameters=REL)])]
    u0, v0, u1 = (0, 0, 1, 10), (1, 0, 2, 10), (0, 10, 1, 20)  # start and end; the first axis is the variable
    for other, expected in (
        ([[block(parameters=REL), block("V")], [block(start=10, parameters=REL)]], []),  # the same
        ([[block(), block("V")], [block(start=10)]], []),  # other settings
        ([[block(), block("V")], []], []),
        ([[block(), block(start=20)], [block("W")]], [[u0, (0, 20, 1, 30)], [(1, 0, 2, 10)]]),
        ([[block()], [block(start=11)]], [[u0], [(0, 11, 1, 21)]]),
    ):
        looked.clear()
        steps(first, [report_of(blocks) for blocks in other])
        assert sorted(looked) == sorted([[u0, v0], [u1], *expected])


@settings(max_examples=60)
@given(
    n=st.integers(1, 9),
    boxes=st.lists(st.tuples(*[st.integers(0, 9)] * 2, *[st.integers(0, 3)] * 2), min_size=0, max_size=40),
)
def test_overlaps_are_found_by_any_number_of_ranks(n: int, boxes: list[tuple[int, int, int, int]]) -> None:
    """In two dimensions, with boxes of two variables in turn."""
    told: list[list[Block]] = [[] for _ in range(n)]
    covered: list[tuple[int, int, int]] = []
    for i, (x, y, width, height) in enumerate(boxes):
        one = block("UV"[i % 2], shape=(20, 20))
        place = {"start": np.array([[x, y]]), "extents": np.array([[width, height]])}
        told[i * 7 % n].append(one._replace(of=one.of._replace(**place)))
        covered += [(i % 2, *cell) for cell in itertools.product(range(x, x + width), range(y, y + height))]
    if len(covered) == len(set(covered)):
        bounds(*told)
    else:
        assert "overlaps" in refused(*told)


def test_no_rank_sees_all_blocks() -> None:
    """64 ranks with 16 random blocks each of a regular grid: no rank holds many more blocks than its own."""
    n, each = 64, 16
    order = np.random.default_rng(0).permutation(n * each)
    places = np.array([*np.ndindex(16, 8, 8)])[order].reshape(n, each, 3)
    most = [0] * n

    def work(ranks: Ranks) -> None:
        told = [block(shape=(64, 32, 32))[0]._replace(start=4 * places[ranks.rank], extents=np.full((each, 3), 4))]
        rows = overlaps.rows_of(ranks.rank, ["U"], told, np.array([True]), 3)
        search = overlaps._Search(ranks, rows)
        take = search._take

        def taken(rows: NDArray[np.int64]) -> None:
            take(rows)
            most[ranks.rank] = max(most[ranks.rank], len(search.rows))

        search._take = taken  # type: ignore[method-assign]
        search.distribute()
        assert search.pair() is None

    assert in_ranks(n, work) == [None] * n
    assert max(most) <= 4 * each, most


@pytest.mark.parametrize("n", [2, 3, 4, 7])
@pytest.mark.parametrize("spoil", ["_sampled", "sides", "first_overlap"])
def test_a_rank_that_fails_while_overlaps_are_looked_for(n: int, spoil: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others get its error instead of waiting for it."""
    wrong = threading.local()
    plain = getattr(overlaps, spoil)

    def call(*arguments: Any, **options: Any) -> Any:
        if wrong.here:
            raise MemoryError("no memory for this")
        return plain(*arguments, **options)

    monkeypatch.setattr(overlaps, spoil, call)

    def work(ranks: Ranks) -> str:
        wrong.here = ranks.rank == 1
        report = report_of([block(start=10 * ranks.rank)])
        all_ranks = Together(ranks)
        with pytest.raises(cusz_core.CuszError) as raised:
            all_ranks.end_step(report, None, "step 7")
        wrong.here = False
        all_ranks.end_step(report, None, "step 7")
        return f"{raised.type.__name__}: {raised.value}"

    assert in_ranks(n, work) == ["OutOfMemoryError: step 7: rank 1: out of memory: no memory for this"] * n


@given(st.lists(st.lists(st.tuples(st.sampled_from("UV"), st.integers(-3, 3)), max_size=4), min_size=1, max_size=4))
def test_ranges_are_those_of_all_blocks_of_a_variable(ranks: list[list[tuple[str, int]]]) -> None:
    told = [
        [block(name, 20 * rank + 5 * i, 5, cusz_core.ValueRange(low, low + 1, 3)) for i, (name, low) in enumerate(of)]
        for rank, of in enumerate(ranks)
    ]
    reports = [report_of(blocks) for blocks in told]
    for found in steps(reports, reports):  # the second one in one reduction
        lows = {name: [low for of in ranks for own, low in of if own == name] for name in found.spans}
        assert found.spans == {name: (min(own), max(own) + 1) for name, own in lows.items()}
        assert found.spans.keys() == {name for of in ranks for name, _ in of}


def test_a_range_that_one_rank_does_not_know() -> None:
    known = cusz_core.ValueRange(1.0, 2.0, 3)
    found = agreed([block(range=known), block("V", range=known)], [block(start=10)], [block("V", start=10)])
    assert [math.isnan(low) for low, _ in found.spans.values()] == [True, True]


# ------------------------------------------------------------------------------------------------- from step to step


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that records the exchanges of rank 0 as they happen."""
    done: list[str] = []
    for name in ("_all", "send"):
        plain = getattr(Threads, name)

        def call(self: Threads, what: Any, *rest: Any, plain: Any = plain) -> Any:
            if self.rank == 0:
                done.append(str(what).partition(" ")[0])
            return plain(self, what, *rest)

        monkeypatch.setattr(Threads, name, call)
    return done


def test_a_step_like_the_one_before_takes_one_reduction(monkeypatch: pytest.MonkeyPatch) -> None:
    done = counted(monkeypatch)
    time = [Value("time", np.float64(0.1 * i)) for i in range(6)]
    reports = [
        [report_of([block(), block("V")], time[i]), report_of([block(start=10)], *time[i : i + (i % 2)])]
        for i in range(6)
    ]
    done.clear()
    steps(reports[0])
    first = len(done)
    done.clear()
    found = steps(*reports)
    assert done[first:] == ["MAX"] * 5
    assert found[-1].kinds == {"time": "one value of float64"}
    assert found[-1].values["time"].value == 0.5
    assert found[-1].bounds == {"U": 0.1, "V": 0.1}


def test_values_may_come_and_go() -> None:
    """Any ranks may put them; the value of the first rank is stored."""

    def value(name: str, of: Any) -> Value:
        return Value(name, of if isinstance(of, str) else np.float64(of))

    each: list[list[list[Value]]] = [
        [[value("a", 1)], [value("b", 2)], [value("a", 3)]],
        [[], [], []],
        [[], [value("b", 4)], [value("b", 5)]],
        [[value("a", 6), value("a", 7)], [], []],
        [[value("b", 8), value("a", 9)], [value("a", 0)], [value("c", "x")]],
        [[value("b", 1), value("a", 2), value("c", "y")], [value("a", 0)], [value("c", "x")]],
        [[value("b", 3), value("a", 4), value("c", "z")], [value("a", 0)], [value("c", "x")]],
    ]
    found = steps(*[[report_of([], *values) for values in of] for of in each])
    assert [{name: own.value for name, own in one.values.items()} for one in found] == [
        {"a": 1, "b": 2},
        {},
        {"b": 4},
        {"a": 6},
        {"b": 8, "a": 9, "c": "x"},
        {"b": 1, "a": 2, "c": "y"},
        {"b": 3, "a": 4, "c": "z"},
    ]
    assert [sorted(one.kinds) for one in found] == [["a", "b"], [], ["b"], ["a"], *[["a", "b", "c"]] * 3]


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ([[1.0], ["x"]], "variable 'v' has one value of type text on rank 1 and float64 on rank 0: they must be the"),
        ([[1.0, "x"], []], "variable 'v' has one value of type text in one put of rank 0 and float64 in another"),
        ([[], [1.0]], "variable 'v' is one value of float64 on rank 1, and one value of text in earlier steps"),
    ],
)
def test_values_that_do_not_agree(told: list[list[Any]], message: str) -> None:
    known = {"v": "one value of text"} if "earlier" in message else {}
    reports = [report_of([], *[Value("v", v if isinstance(v, str) else np.float64(v)) for v in of]) for of in told]
    with pytest.raises(cusz_core.ParameterError, match=message):
        steps(reports, known=known)


def test_a_value_cannot_have_the_name_of_an_array() -> None:
    time = Value("U", np.float64(1))
    with pytest.raises(cusz_core.ParameterError, match="'U' is one value of float64 on rank 1, and an array"):
        steps([report_of([block()]), report_of([], time)])
    with pytest.raises(cusz_core.ParameterError, match="'U' is one value of float64 on rank 0, and an array"):
        steps([report_of([], time), report_of([])], [report_of([], time), report_of([block()])])


def test_after_a_rank_has_failed_all_is_told_again() -> None:
    good = [report_of([block(parameters=REL, range=cusz_core.ValueRange(0.0, 2.0, 9))]), report_of([block(start=10)])]
    good[1] = report_of([block(start=10, parameters=REL, range=cusz_core.ValueRange(1.0, 5.0, 9))])
    bad: list[Report | Exception] = [good[0], cusz_core.DeviceError("it is gone")]
    wrong = [good[0], report_of([block(start=5, parameters=REL)])]
    *_, last = steps(good, bad, good, wrong, good, good)
    assert last.bounds == {"U": 5e-3}
    with pytest.raises(cusz_core.DeviceError, match=r"^step 7: rank 1: it is gone$"):
        steps(good, bad)
    with pytest.raises(cusz_core.DeviceError, match=r"^step 7: rank 1: it is gone \(and 1 other rank failed\)$"):
        steps([good[0], bad[1], bad[1]])


# ------------------------------------------------------------------------------------------------ opening and closing


def opening(**other: Any) -> Opening:
    return Opening("run.bp", "BP5", False, False, False)._replace(**other)


@pytest.mark.parametrize(
    "other", [{"path": "b.bp"}, {"engine": "BP4"}, {"append": True}, {"asynchronous": True}, {"overlap": True}]
)
def test_ranks_must_open_the_same(other: dict[str, Any]) -> None:
    every = [opening(), opening(), opening(**other), opening(path="c.bp")]
    told = [Openings((rank, own), None) for rank, own in enumerate(every)]
    for order in itertools.permutations(told):
        found = agreement.merged_openings(
            agreement.merged_openings(order[0], order[1]), agreement.merged_openings(order[2], order[3])
        )
        with pytest.raises(
            cusz_core.ParameterError, match=r"^here: rank 0 opens \('run.bp', 'BP5', False, False, False\) .* rank 2"
        ):
            agreement.require_same_opening(found, "here")
    agreement.require_same_opening(agreement.merged_openings(told[0], told[1]), "here")


@pytest.mark.parametrize("failure", [None, cusz_core.DeviceError("it is gone")])
def test_a_rank_that_closes_while_others_end_a_step(failure: Exception | None) -> None:
    def work(ranks: Ranks) -> str:
        all_ranks = Together(ranks)
        report = report_of([block(start=10 * ranks.rank)])
        all_ranks.end_step(report, None, "here")
        if ranks.rank == 0:
            with pytest.raises(cusz_core.CuszError) as raised:
                all_ranks.end_step(report, None, "here")
            assert all_ranks.is_closing
            return f"{raised.type.__name__}: {raised.value}"
        error = all_ranks.close(failure, "here")
        return f"{type(error).__name__}: {error}"

    expected = "ParameterError: here: rank 1 closed the Writer while others ended a step"
    if failure is not None:
        expected = "DeviceError: here: rank 1: it is gone"
    assert in_ranks(3, work) == [expected] * 3
    assert in_ranks(3, lambda ranks: Together(ranks).close(failure, "here")) == [None] * 3


# ------------------------------------------------------------------------------------------------------ block tables


def rows(rank: int, *sizes: int) -> NDArray[np.float64]:
    made = np.zeros(len(sizes), blocktable.table_dtype(1))
    made["rank"], made["archive_bytes"], made["raw_bytes"], made["seconds"] = rank, sizes, 100, 0.5
    return blocktable.rows_of(made)


#: The rows of three ranks; BLOCKS has the blocks themselves.
PARTS = [{"U": rows(0, 10, 20), "V": rows(0, 1)}, {}, {"V": rows(2, 2), "U": rows(2, 30)}]
BLOCKS = [[block(), block(start=10), block("V")], [], [block("V", start=10), block(start=20)]]


def test_room_is_needed_for_archives_blocks_and_ranks() -> None:
    arrays = {"U": block().of, "V": block("V").of}

    def needed(archive_bytes: int, blocks: dict[str, int], ranks: int) -> int:
        return agreement.bytes_needed(archive_bytes, blocks, arrays, ranks)

    nothing = needed(0, {}, 0)
    assert nothing > 0
    per_rank = needed(0, {}, 1) - nothing
    without_blocks = needed(0, {"U": 0, "V": 0}, 3)
    assert without_blocks > nothing + 3 * per_rank
    per_block = needed(0, {"U": 1}, 0) - needed(0, {"U": 0}, 0)
    assert needed(63, {"U": 3, "V": 2}, 3) == without_blocks + 5 * per_block + 63


def test_tables_of_ranks_make_one_in_their_order() -> None:
    def work(ranks: Ranks) -> Any:
        told = [one.of for one in BLOCKS[ranks.rank]]
        layout = Layout(ranks, {"U": block().of, "V": block("V").of}, told)
        layout.agree(ranks)
        for _ in range(2):
            layout.gather(layout.in_one(PARTS[ranks.rank]))
        return layout.tables(), layout.before.tolist()

    (whole, before), *others = in_ranks(3, work)
    assert list(whole) == ["U", "V"]
    assert blocktable.table_of(whole["U"], "U")["archive_bytes"].tolist() == [10, 20, 30]
    assert blocktable.table_of(whole["V"], "V")["rank"].tolist() == [0, 2]
    assert before == [0, 0]
    assert [tables for tables, _ in others] == [{}, {}]
    blocktable.set_step(whole["U"], 9)
    assert blocktable.table_of(whole["U"], "U")["step"].tolist() == [9, 9, 9]


def test_what_ranks_have_made_adds_up() -> None:
    predictors = [{("U", "lorenzo"): 2, ("V", "spline"): 1}, {}, {("U", "spline"): 1}]

    def work(ranks: Ranks, error: Exception | None = None) -> Any:
        layout = Layout(ranks, {"U": block().of, "V": block("V").of}, [one.of for one in BLOCKS[ranks.rank]])
        made = PARTS[ranks.rank], predictors[ranks.rank]
        return Together(ranks).totals(layout, *made, 1e9 if ranks.rank == 0 else math.inf, error, "step 7")

    totals = {"U": Totals(3, 300, 60, 1.5, {"lorenzo": 2, "spline": 1}), "V": Totals(2, 200, 3, 1.0, {"spline": 1})}
    assert in_ranks(3, work) == [(totals, 1e9)] * 3
    failed = in_ranks(3, lambda ranks: work(ranks, None if ranks.rank == 0 else MemoryError("none")))
    assert {f"{type(error).__name__}: {error}" for error in failed} == {
        "OutOfMemoryError: step 7: rank 1: out of memory: none"
    }


def test_what_is_written_adds_up() -> None:
    tally = Tally()
    assert tally.summaries(0.0) == []
    for _ in range(2):
        tally.add({"U": Totals(3, 300, 60, 1.5, {}), "V": Totals(2, 200, 3, 1.0, {})})
    tally.add({"V": Totals(1, 100, 5, 0.5, {})})
    assert tally.summaries(10.0) == [
        VariableSummary("U", 2, 6, 600, 120, 3.0, 0.3),
        VariableSummary("V", 3, 5, 500, 11, 2.5, 0.25),
    ]
    assert [own.share for own in tally.summaries(0.0)] == [0.0, 0.0]


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_checksums_of_parts_make_that_of_the_whole(parts: list[bytes]) -> None:
    whole = 0
    for i, part in enumerate(parts):
        whole ^= checks.crc_before(zlib.crc32(part), sum(map(len, parts[i + 1 :])))
    assert whole == zlib.crc32(b"".join(parts))


class _Looked(dict[str, Any]):
    """A dictionary in which names are only looked up."""

    def _refuse(self, *_: Any) -> Any:
        raise AssertionError("every name of earlier steps is looked at")

    __iter__ = keys = items = values = __or__ = __ror__ = _refuse  # type: ignore[assignment]


def test_a_step_does_not_look_at_every_earlier_name() -> None:
    """Of a run with new names at every step, each would take longer than the one before."""
    whole = "U"
    real = block(whole + representation.PARTS[0], given="complex64").of
    for earlier, now in ((real, block(whole).of), (block(whole).of, real)):
        known = agreement.Known(kinds=_Looked({earlier.name: agreement.kind_of(earlier)}))
        agreement.require_distinct({"V": block("V").of}, [], known)
        with pytest.raises(cusz_core.ParameterError, match="'U' is of complex numbers, and another one"):
            agreement.require_distinct({now.name: now}, [], known)
