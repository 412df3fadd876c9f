"""Two values never become one on the way into an array: numbers, labels, and scores of two arguments."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval import RocCurve, adjusted_rand_score, agc_approximate, dist_auc, roc_auc_score
from streameval.errors import DataError, LabelError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable

WHOLE: list[Any] = [0, 1, 2**53, 2**53 + 1, 2**53 + 2, 2**63, 2**64 - 1]
NUMBERS = [
    *WHOLE,
    0.1,
    5e-324,
    -0.0,
    2.0**53,
    2.0**64,
    Decimal("0.1"),
    Decimal(2**53),
    Fraction(1, 10),
    np.float32(0.1),
]
OF_WHOLE: list[Callable[[list[Any]], Any]] = [
    lambda side: pa.array(side, pa.uint64()),
    lambda side: pa.chunked_array([pa.array([*side, None], pa.uint64())]).dictionary_encode(),
    lambda side: np.array(side, np.uint64),
    lambda side: pd.Series([*side, None], dtype="UInt64"),
    lambda side: pl.Series([*side, None], dtype=pl.UInt64),
]
OF_ANY: list[Callable[[list[Any]], Any]] = [list, iter, lambda side: pd.Series([*side, None], dtype=object)]


@st.composite
def sides(draw: st.DrawFn) -> tuple[list[Any], Any]:
    """Scores, and an argument that holds them."""
    containers = draw(st.sampled_from([OF_ANY, OF_WHOLE]))
    scores = draw(st.lists(st.sampled_from(NUMBERS if containers is OF_ANY else WHOLE), min_size=1, max_size=3))
    return scores, draw(st.sampled_from(containers))(scores)


def exact(number: Any) -> Any:
    """A number as Python compares it exactly."""
    return Fraction(number.item() if isinstance(number, np.generic) else number)


@given(sides(), sides())
def test_two_samples_of_any_types_are_compared_exactly(neg: tuple[list[Any], Any], pos: tuple[list[Any], Any]) -> None:
    """The exact order of both samples, or a refusal where float64 makes two scores equal."""
    scores = [list(map(exact, side)) for side, _ in (neg, pos)]
    wins = sum((x < y) + Fraction(x == y, 2) for x in scores[0] for y in scores[1])
    try:
        found = RocCurve.from_scores(neg[1], pos[1]).auc_score()
    except SchemaError as error:
        merged = len({*scores[0], *scores[1]}) > len(set(map(float, scores[0] + scores[1])))
        if not (merged and "equal as float64" in str(error)):
            raise
    else:
        assert found == pytest.approx(float(wins) / len(scores[0]) / len(scores[1]), abs=1e-15)


def test_a_null_beside_large_integers_rounds_none() -> None:
    """Each container would become floats in NumPy."""
    for make in (*OF_WHOLE[1:2], *OF_WHOLE[3:], lambda side: [*side, None]):
        with pytest.raises(SchemaError, match="scores0 and scores1: numbers that differ are equal as float64"):
            dist_auc(make([2**53]), [2**53 + 1])
        assert dist_auc(make([2**53]), [2**53 + 2]) == pytest.approx(0.875, abs=0.13)


def test_labels_that_numpy_makes_equal_stay_apart() -> None:
    """A number and its text, texts that end in a zero byte, integers and floats above 2**53, parts of microseconds."""
    cases: list[tuple[Any, Any]] = [
        ([1, "1", 1], "1"),
        (["a\0", "a", "a\0"], "a"),
        ([b"a\0", b"a", b"a\0"], b"a"),
        ([2**53 + 1, 2.0**53, 2**53 + 1], 2.0**53),
        (np.array([2**53 + 1, 2**53, 2**53 + 1]), 2.0**53),
    ]
    for labels, positive in cases:
        assert roc_auc_score(labels, [1, 3, 2], pos_label=positive) == 1.0
    absent: list[tuple[Any, Any]] = [
        (np.array([2.0**53, 0.0]), 2**53 + 1),
        (np.array([2**24, 0], np.float32), 2**24 + 1),
        ([1, 2], 10**400),
    ]
    for labels, positive in absent:
        with pytest.raises(LabelError, match="has no label"):
            roc_auc_score(labels, [1, 2], pos_label=positive)
    with pytest.raises(LabelError, match="not a whole number of microseconds"):
        roc_auc_score(np.array([1, 2, 1], "M8[ns]"), [1, 2, 3], pos_label=np.datetime64(1, "ns"))
    with pytest.raises(SchemaError, match="equal as float64"):
        roc_auc_score([0, 2.0**53, 2**53 + 1], [1, 2, 3])


def test_bins_of_a_sample_keep_the_order_of_large_numbers() -> None:
    """Integers above 2**53, and floats whose difference overflows, are binned by rank."""
    for scores in ([2**53, 2**53 + 1, 2**53 + 2, 2**53 + 3], [-1.7e308, -1.6e308, 1.6e308, 1.7e308]):
        assert agc_approximate([0, 0, 1, 1], scores, quantiles=4) == 1.0


@pytest.mark.parametrize("score", [Decimal("Infinity"), Decimal("1e400"), Fraction(10**400), np.longdouble("1e4000")])
def test_numbers_beyond_float64_are_the_largest(score: Any) -> None:
    """Arrow has no such decimal; float64 has no such fraction."""
    assert roc_auc_score([0, 1, 0], [1, score, 2]) == 1.0


def test_containers_that_cannot_be_read_are_refused() -> None:
    """Whatever a container raises is told with the name of the argument."""
    with pytest.raises(DataError, match=r"y_score is not an array of 1 dimension.*128"):
        roc_auc_score([0, 1], pl.Series([2**70, 1], dtype=pl.Int128))


def test_a_null_of_a_chunked_dictionary_is_no_value() -> None:
    """NumPy reads the last value of the dictionary for it."""
    scores = pa.chunked_array([pa.array([0.5, 0.75, None])]).dictionary_encode()
    assert dist_auc([0.6], scores) == dist_auc([0.6], [0.5, 0.75, None])
    with pytest.raises(DataError, match="null"):
        roc_auc_score([0, 1, 1], scores)
    assert adjusted_rand_score(pa.chunked_array([*scores.chunks, *scores.chunks]), [0, 1, 2, 0, 1, 2]) == 1.0
