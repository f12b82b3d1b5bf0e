"""The rANS coder's model, as kernels choose it from counts: to the bit what the CPU chooses."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from simt_library import Library
from simt_model import MOST, N_CONTEXTS, N_SYMBOLS, N_TABLES, chosen, like_a_field, no_counts

pytestmark = pytest.mark.simt


@pytest.mark.parametrize("weights", [(1, 1, 1), (16, 8, 1)])
@pytest.mark.parametrize(
    ("n_contexts", "most", "scale"), [(1, 3000, 3), (30, 300, 10), (200, 3000, 30), (648, 3, 2), (648, 20000, 400)]
)
def test_counts_as_fields_have_them(
    simt: Library, n_contexts: int, most: int, scale: float, weights: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng(n_contexts + most)
    for _ in range(2):
        model, _encoding = chosen(simt, like_a_field(rng, n_contexts, most, scale), weights)
        assert (model["frequency"][: model["n_tables"]].sum(axis=1) == 4096).all()


def test_nothing_is_counted(simt: Library) -> None:
    for weights in ((1, 1, 1), (0, 0, 0)):
        model, _ = chosen(simt, no_counts(), weights)
        assert model["n_tables"] == 1
        assert model["frequency"][0].nonzero()[0].tolist() == [32, 192, 193, 194]
        assert (model["significant"] == 2048).all()


def test_counts_of_weight_0_do_not_occur(simt: Library) -> None:
    counts = like_a_field(np.random.default_rng(1), 400, 300, 10)
    chosen(simt, counts, (0, 3, 0))
    chosen(simt, counts, (5, 0, 2))


@pytest.mark.parametrize("symbol", [0, 32, 63, 64, 191, 194])
@pytest.mark.parametrize("context", [0, 8, 9, 215, 216, 647])
def test_a_single_symbol(simt: Library, context: int, symbol: int) -> None:
    for n in (1, 4096, MOST):
        counts = no_counts()
        counts["symbol"][context, symbol] = n
        model, _ = chosen(simt, counts, (1, 16, 3))
        assert model["n_tables"] == 1


@pytest.mark.parametrize("weights", [(1, 1, 1), (16, 5, 2)])
def test_the_greatest_counts_saturate(simt: Library, weights: tuple[int, int, int]) -> None:
    counts = no_counts()
    counts["symbol"][...] = MOST
    counts["group"][...] = MOST
    model, _ = chosen(simt, counts, weights)
    assert model["n_tables"] == N_TABLES
    rng = np.random.default_rng(7)
    for name in ("symbol", "group"):
        counts[name] = rng.integers(MOST - 3, MOST, counts[name].shape, np.uint32, endpoint=True)
    chosen(simt, counts, weights)
    for name in ("symbol", "group"):
        counts[name] >>= rng.integers(0, 33, counts[name].shape).astype(np.uint64).astype(np.uint32)
    chosen(simt, counts, weights)


def test_means_that_are_equal(simt: Library) -> None:
    """Contexts of the same symbols, in different numbers: their order is that of their own numbers."""
    rng = np.random.default_rng(3)
    counts = no_counts()
    counts["symbol"][:, [32, 40]] = rng.integers(1, 1000, (N_CONTEXTS, 1))
    chosen(simt, counts, (1, 1, 1))
    counts["symbol"][::3, 100] = rng.integers(1, 3, N_CONTEXTS // 3)
    chosen(simt, counts, (1, 2, 1))


def test_means_that_are_small(simt: Library) -> None:
    """Hardly a code is not 0."""
    rng = np.random.default_rng(4)
    counts = no_counts()
    counts["symbol"][:, 32] = 1000
    counts["symbol"][:, 33] = rng.integers(0, 100, N_CONTEXTS)
    model, _ = chosen(simt, counts, (1, 1, 1))
    assert model["n_tables"] == N_TABLES


def test_shares_of_a_table_that_are_whole_numbers(simt: Library) -> None:
    """Of 8192 values, and an odd number of each symbol: quotients without a remainder."""
    rng = np.random.default_rng(5)
    for n_symbols in (2, 40, 194):
        counts = no_counts()
        n = 1 + 2 * rng.multinomial((8192 - n_symbols) // 2, rng.dirichlet(np.ones(n_symbols)))
        assert n.sum() == 8192
        counts["symbol"][100, rng.choice(N_SYMBOLS, n_symbols, replace=False)] = n
        chosen(simt, counts, (1, 1, 1))


def test_tables_that_cost_the_same(simt: Library) -> None:
    """The lowest of them is taken: here several tables have the same frequencies."""
    counts = no_counts()
    counts["symbol"][::5, 20:44] = 1000
    model, _ = chosen(simt, counts, (1, 1, 1))
    assert model["n_tables"] == N_TABLES
    assert set(model["table"]) == {0}


def test_frequencies_that_round_to_too_many(simt: Library) -> None:
    """Symbols that hardly occur have a frequency of 1 each, at the cost of the others."""
    for lot, few in ((10**6, 1), (10**9, 1), (100, 99), (7, 7), (2**31, 2**31 - 1)):
        for n_many in (1, 2, 50, N_SYMBOLS):
            counts = no_counts()
            counts["symbol"][3] = few
            counts["symbol"][3, :n_many] = lot
            model, _ = chosen(simt, counts, (1, 1, 1))
            assert model["frequency"][0].min() > 0


@pytest.mark.parametrize("n_values", [4096 * k + d for k in (0, 1, 13, 14) for d in (-1, 0, 1) if k > 0 or d > 0])
def test_the_number_of_tables(simt: Library, n_values: int) -> None:
    counts = no_counts()
    rng = np.random.default_rng(n_values)
    places = rng.integers(0, 60, n_values) * 10, rng.integers(20, 44, n_values)
    np.add.at(counts["symbol"], places, 1)
    model, _ = chosen(simt, counts, (1, 1, 1))
    n_contexts = len(np.unique(places[0]))
    assert model["n_tables"] == min(16, n_values // 4096 + 2, n_contexts)


@given(
    seed=st.integers(0, 2**32 - 1),
    n_contexts=st.integers(1, N_CONTEXTS),
    density=st.floats(0.001, 1),
    bits=st.integers(0, 32),
    exponents=st.booleans(),
    weights=st.tuples(*[st.sampled_from([0, 1, 2, 16, 128, 2**31])] * 3),
    schedule=st.tuples(st.integers(0, 2), st.integers(0, 99), st.integers(1, 8)),
)
@example(1, 648, 0.12, 16, True, (16, 32, 1), (2, 1, 4))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_counts(
    simt: Library,
    seed: int,
    n_contexts: int,
    density: float,
    bits: int,
    exponents: bool,
    weights: tuple[int, int, int],
    schedule: tuple[int, int, int],
) -> None:
    rng = np.random.default_rng(seed)
    counts = no_counts()
    contexts = rng.choice(N_CONTEXTS, n_contexts, replace=False)
    for name in ("symbol", "group"):
        shape = counts[name].shape
        n = rng.integers(0, 2**bits, shape, np.uint64)
        if exponents:
            n >>= rng.integers(0, bits + 1, shape, np.uint64)
        n[rng.random(shape) >= density] = 0
        if name == "symbol":
            absent = np.ones(N_CONTEXTS, bool)
            absent[contexts] = False
            n[absent] = 0
        counts[name] = n
    simt.set_schedule(*schedule)
    chosen(simt, counts, weights)
