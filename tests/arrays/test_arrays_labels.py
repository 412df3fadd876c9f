"""Labels of every type and container, and positive labels that do not occur."""

from __future__ import annotations

import enum
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from streameval.arrays.curves import precision_recall_curve, roc_curve
from streameval.arrays.gain import agc_score, gain_curve
from streameval.arrays.ranking import average_precision_score, roc_auc_score
from streameval.errors import LabelError

if TYPE_CHECKING:
    from collections.abc import Callable

SCORES = [0.1, 0.4, 0.35, 0.8]


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


def test_tuples_are_labels_in_an_array_of_objects() -> None:
    """A sequence as a label is compared as one value."""
    labels = pd.Series([(1, 2), (1, 2), (3, 4), (3, 4)])
    assert roc_auc_score(labels, SCORES, pos_label=(3, 4)) == 0.75


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
