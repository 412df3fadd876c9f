"""Accumulator: the numbers of `evaluate`, whatever the batches, merges and machines in between."""

from __future__ import annotations

import itertools
import pickle
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval import Accumulator, evaluate
from streameval.errors import (
    FormatError,
    IncompatibleStatesError,
    MissingInputError,
    NullError,
    OptionError,
    SchemaError,
)

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS: dict[str, Any] = {"score": "score", "cluster": "cluster", "metrics": ["score", "cluster"], "at": "fpr=0.1"}


def table(rows: int = 300) -> pa.Table:
    """Scores in [0, 1] and clusters."""
    random = np.random.default_rng(2)
    score = random.random(rows).round(2)
    label = (random.random(rows) < score).astype(np.int8)
    return pa.table({"label": label, "score": score, "cluster": random.integers(0, 20, rows)})


def same(one: Any, other: Any) -> bool:
    """Whether two evaluations hold the same."""
    return one.to_json() == other.to_json()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 300), max_size=5), st.integers(1, 3))
def test_batches_and_merges_change_nothing(cuts: list[int], several: int) -> None:
    """Any cut, dealt to any number of accumulators, in any order of merging."""
    data = table()
    ends = sorted({0, *cuts, data.num_rows})
    made = [Accumulator(**OPTIONS) for _ in range(several)]
    for i, (start, stop) in enumerate(itertools.pairwise(ends)):
        made[i % several].update(data.slice(start, stop - start))
    first = made[-1]
    for other in made[:-1]:
        first.merge(other)
    assert same(first.result(), evaluate(data, **OPTIONS))


def test_every_kind_of_batch_is_taken() -> None:
    """Arrow tables, batches and readers, frames and dicts of arrays; empty ones too."""
    data = table(60)
    found = Accumulator(**OPTIONS)
    found.update(data.slice(0, 10))
    found.update(data.slice(10, 10).to_batches()[0])
    found.update(data.slice(20, 10).to_reader())
    found.update(data.slice(30, 10).to_pandas())
    found.update({name: data[name].to_numpy()[40:] for name in data.column_names})
    found.update(data.slice(0, 0))
    assert same(found.result(), evaluate(data, **OPTIONS))
    found.update(data)  # a result does not end it
    assert found.result().rows == 120


def test_it_travels_and_is_saved(tmp_path: Path) -> None:
    """By pickle and by files; loaded or received, it goes on."""
    data, place = table(), tmp_path / "kept"
    first = Accumulator(**OPTIONS)
    first.save(place)
    assert repr(Accumulator.load(place)) == repr(first)
    first.update(data.slice(0, 100))
    sent = pickle.loads(pickle.dumps(first))
    first.save(place)
    first.save(place)
    assert len(list(place.iterdir())) == 4  # the index, labels, scores, clusters
    for other in (sent, Accumulator.load(place, memory="64MiB")):
        other.update(data.slice(100))
        assert same(other.result(), evaluate(data, **OPTIONS))
    assert first.result().rows == 100


def test_threads_take_turns() -> None:
    """Eight threads that update one accumulator."""
    data, found = table(800), Accumulator(**OPTIONS)
    threads = [threading.Thread(target=found.update, args=(data.slice(100 * i, 100),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same(found.result(), evaluate(data, **OPTIONS))


def test_a_failed_batch_is_not_counted_in_silence() -> None:
    """After a NaN score the rows are in part, so it refuses to go on; a batch of other types is refused alone."""
    found = Accumulator(score="score")
    found.update({"label": np.array([0, 1]), "score": np.array([0.1, 0.9])})
    with pytest.raises(SchemaError, match="first batch had double"):
        found.update({"label": np.array([0, 1]), "score": np.array([1, 0])})
    assert found.result().value("roc_auc") == 1.0
    with pytest.raises(NullError, match="NaN"):
        found.update({"label": np.array([0, 1]), "score": np.array([np.nan, 0.9])})
    with pytest.raises(FormatError, match="an earlier update failed"):
        found.result()


@dataclass(frozen=True)
class Mine:
    """A metric object."""

    name: str = "mine"
    family: str = "score"

    def partial(self, part: Any) -> int:
        """Nothing."""
        return 0

    def combine(self, partials: Any, state: Any) -> float:
        """Nothing."""
        return 0.0


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    """By name, with the remedy."""
    with pytest.raises(OptionError, match="merge those of your workers"):
        Accumulator(score="score", client="tcp://x:1")
    with pytest.raises(OptionError, match="takes no option 'scores'"):
        Accumulator(scores="score")
    with pytest.raises(OptionError, match="batches have no partitions"):
        Accumulator(cluster="cluster", cluster_scope="partition")
    with pytest.raises(MissingInputError, match="update the accumulator first"):
        Accumulator(score="score").result()
    one = Accumulator(score="score")
    with pytest.raises(IncompatibleStatesError, match="differ in nan"):
        one.merge(Accumulator(score="score", nan="drop"))
    with pytest.raises(IncompatibleStatesError, match="int"):
        one.merge(1)
    with pytest.raises(OptionError, match="cannot be saved"):
        Accumulator(score="score", metrics=Mine()).save(tmp_path)
    (tmp_path / "other").write_text("mine")
    with pytest.raises(OptionError, match="something else"):
        one.save(tmp_path)
    with pytest.raises(FormatError, match="no accumulator"):
        Accumulator.load(tmp_path)
