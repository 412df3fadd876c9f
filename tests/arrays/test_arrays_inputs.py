"""What goes into arrays: containers, labels of every type, numbers that must stay apart, and weights of any size."""

import enum
import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from streameval import (
    LiftCurve,
    RocCurve,
    adjusted_rand_score,
    agc_approximate,
    agc_score,
    auc_by_sampling,
    aul_score_from_labels,
    average_precision_score,
    dist_auc,
    gain_curve,
    mutual_info_score,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)
from streameval.errors import DataError, LabelError, NullError, SchemaError, WeightError

LABELS, SCORES, WEIGHTS, CLUSTERS = [0, 1, 0, 1], [0.1, 0.4, 0.35, 0.8], [1.0, 2.0, 0.5, 1.0], [0, 0, 1, 1]
ON_SCORES = [roc_auc_score, average_precision_score, agc_score, gain_curve, roc_curve, precision_recall_curve]
ON_LABELS = [adjusted_rand_score, mutual_info_score, aul_score_from_labels, LiftCurve.from_labels]
WRAPS: list[Callable[[Any], Any]] = [lambda s: s, lambda s: s.array, lambda s: s.values, pd.Index]


class Marked(list):  # type: ignore[type-arg] - like an array that has no types
    """A list with attributes by which other arrays might be recognised."""

    _mask = True
    data = array = dtype = "not what it seems"

    def __arrow_array__(self, type: Any = None) -> pa.Array:  # noqa: A002 - the name is Arrow's
        """The elements."""
        return pa.array(list(self), type)


class Bare:
    """An object that is an array, and has no length."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """The elements."""
        return np.array(self.values, dtype)


def told(found: Any) -> str:
    """A result as text, to be compared."""
    return repr(found if not hasattr(found, "__dict__") else vars(found))


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("kind", ["Int64", "boolean", "Float64", "int64[pyarrow]", "double[pyarrow]"])
def test_nullable_arrays_of_pandas(wrap: Callable[[Any], Any], kind: str) -> None:
    """The value of a list; with an NA, the error that names the argument."""
    whole, holed = (wrap(pd.Series(values, dtype=kind)) for values in (LABELS, [0, 1, None, 1]))
    for function in ON_SCORES:
        assert told(function(whole, SCORES)) == told(function(LABELS, SCORES))
        for pair, name in (((holed, SCORES), "y_true"), ((LABELS, holed), "y_score")):
            refuses(NullError, f"{name} has a", function, *pair)
        refuses(WeightError, "sample_weight has nan at position 2", function, LABELS, SCORES, sample_weight=holed)
    for function in ON_LABELS:
        assert told(function(whole, CLUSTERS)) == told(function(LABELS, CLUSTERS))
    assert math.isfinite(adjusted_rand_score(LABELS, holed))  # a null is a cluster
    refuses(NullError, "y_score has a", auc_by_sampling, LABELS, holed, 10)


@pytest.mark.parametrize("wrap", [Marked, Bare])
def test_signs_of_other_arrays(wrap: Callable[[Any], Any]) -> None:
    """Attributes that others have do not make an argument one of theirs."""
    for function in ON_SCORES:
        wrapped = function(wrap(LABELS), wrap(SCORES), sample_weight=wrap(WEIGHTS))
        assert told(wrapped) == told(function(LABELS, SCORES, sample_weight=WEIGHTS))
    for function in (adjusted_rand_score, mutual_info_score):
        assert function(wrap(LABELS), wrap(CLUSTERS)) == function(LABELS, CLUSTERS)


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
        refuses(LabelError, "has no label", roc_auc_score, labels, [1, 2], pos_label=positive)
    with pytest.raises(LabelError, match="not a whole number of microseconds"):
        roc_auc_score(np.array([1, 2, 1], "M8[ns]"), [1, 2, 3], pos_label=np.datetime64(1, "ns"))
    refuses(SchemaError, "equal as float64", roc_auc_score, [0, 2.0**53, 2**53 + 1], [1, 2, 3])


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
    refuses(DataError, "null", roc_auc_score, [0, 1, 1], scores)
    assert adjusted_rand_score(pa.chunked_array([*scores.chunks, *scores.chunks]), [0, 1, 2, 0, 1, 2]) == 1.0


class Kind(enum.Enum):
    """Labels of a user's own type."""

    HAM = 1
    SPAM = 2


PAIRS: list[tuple[Any, Any]] = [
    ("ham", "spam"),
    (b"ham", b"spam"),
    (1, 2),
    (0.5, 1.5),
    (False, True),
    (date(2026, 1, 1), date(2026, 1, 2)),
    (datetime(2026, 1, 1, 12), datetime(2026, 1, 2)),
    (Decimal("0.1"), Decimal("0.2")),
    (Kind.HAM, Kind.SPAM),
]


@pytest.mark.parametrize(("negative", "positive"), PAIRS, ids=[type(pair[0]).__name__ for pair in PAIRS])
def test_any_label_can_be_positive(negative: Any, positive: Any) -> None:
    """Whatever type labels have, naming the positive one gives the value of 0 and 1."""
    labels = [negative, negative, positive, positive]
    assert roc_auc_score(labels, SCORES, pos_label=positive) == 0.75
    assert roc_auc_score(pd.Series(labels), SCORES, pos_label=positive) == 0.75
    assert average_precision_score(labels, SCORES, pos_label=positive) == pytest.approx(5 / 6)


@pytest.mark.parametrize(
    "container",
    [
        list,
        tuple,
        np.array,
        pd.Series,
        pa.array,
        lambda x: pa.chunked_array([x[:1], x[1:]]),
        lambda x: pa.array(x).dictionary_encode(),
        pl.Series,
        lambda x: pd.Series(x, dtype="category"),
    ],
)
@pytest.mark.parametrize(("negative", "positive"), PAIRS[:4], ids=["str", "bytes", "int", "float"])
def test_every_container_of_labels(container: Callable[[list[Any]], Any], negative: Any, positive: Any) -> None:
    """Lists, numpy, pandas, polars and Arrow, for labels, scores and weights."""
    labels = container([negative, negative, positive, positive])
    scores, weights = (pa.array, pl.Series)[isinstance(labels, pl.Series)](SCORES), pl.Series([1.0] * 4)
    assert roc_auc_score(labels, scores, weights, pos_label=positive) == 0.75
    assert agc_score(labels, scores, pos_label=positive) == 0.5


@pytest.mark.parametrize(
    ("labels", "pos_label", "seen"),
    [
        (["spam", "ham", "spam", "ham"], "SPAM", "'spam', 'ham';"),
        (["spam", "ham", "spam", "ham"], b"spam", "'spam', 'ham';"),
        ([b"spam", b"ham", b"spam", b"ham"], "spam", "b'spam', b'ham';"),
        ([1, 2, 1, 2], 3, "1, 2;"),
        ([1, 2, 1, 2], "1", "1, 2;"),
        ([True, False, True, True], "True", "True, False;"),
    ],
)
def test_an_absent_label_is_refused_with_those_seen(labels: list[Any], pos_label: Any, seen: str) -> None:
    """A typo is an error that says what could be named."""
    for function in (roc_auc_score, average_precision_score, roc_curve, precision_recall_curve, gain_curve, agc_score):
        with pytest.raises(LabelError, match=f"has no label {pos_label!r}; it has {seen} name one of them"):
            function(labels, SCORES, pos_label=pos_label)


def test_many_labels_are_not_all_listed() -> None:
    """A message names the first five labels."""
    with pytest.raises(LabelError, match="it has 0, 1, 2, 3, 4, …; name one of them"):
        roc_auc_score(list(range(9)), list(range(9)), pos_label=99)


@pytest.mark.parametrize("weights", [[1e-300, 1e-300, 1e300], [5e-324, 1.0, 1.0], [1e308, 1e308, 1e308]])
def test_weights_of_arrays_that_leave_float64_are_refused(weights: Any) -> None:
    """A ratio or a sum outside float64 is named with both ends."""
    for function in (roc_auc_score, average_precision_score, agc_score):
        with pytest.raises(WeightError, match=r"sample_weight has weights from .* to .*leaves float64; scale"):
            function([1, 0, 0], [0.4, 0.6, 0.1], sample_weight=weights)
