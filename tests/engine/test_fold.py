"""A fold task is a function of its inputs: folded again, anywhere and under any load, it gives the same bytes."""

import functools
import hashlib
import io
import itertools
import multiprocessing
import pickle
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from strategies import FLOATS, SUBJECTS, numbered

from streameval.budget import Budget
from streameval.states.keyed import hot
from streameval.states.labels import LabelSpec
from streameval.states.rounds import outline_only
from streameval.states.scores.histogram import HistogramSpec

Task = tuple[str, str]  # names of a subject and of a shape

LEARN, CAPACITY, ROWS, LIMIT = 64, 600, 1200, 1 << 28
NAMED = {
    subject.name: subject
    for subject in SUBJECTS
    if not isinstance(getattr(subject.spec, "inner", None), HistogramSpec)  # each group takes 70 MiB
}

SHAPES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "hot": lambda rng, rows: np.where(rng.random(rows) < 0.6, 7, rng.integers(0, 1 << 20, rows)),
    "zipf": lambda rng, rows: rng.zipf(1.4, rows) % (1 << 20),
    "lone": lambda rng, rows: np.where(rng.random(rows) < 0.7, np.arange(rows), rng.integers(0, 1 << 20, rows)),
    "repeated": lambda rng, rows: np.repeat(rng.integers(0, 50, rows // 8 + 1), 8)[:rows],
}


def column(kind: pa.DataType, numbers: np.ndarray) -> pa.Array:
    """A column of a type with a value for each number; types with few values repeat them."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(plain):
        values: Any = numbers % min(2 ** (plain.bit_width - 1), 1 << 20)
    elif plain in FLOATS:
        values = ((numbers % 1000) / 1000).astype(plain.to_pandas_dtype())
    elif pa.types.is_boolean(plain):
        values = numbers % 2 == 1
    elif pa.types.is_decimal(plain):
        values = [Decimal(number) for number in (numbers % 1000).tolist()]
    elif pa.types.is_fixed_size_binary(plain):
        values = [int(number).to_bytes(plain.byte_width, "big") for number in numbers % 251]
    else:
        values = [f"id-{number}" for number in numbers.tolist()]
    array = pa.array(values, plain)
    return array.dictionary_encode().cast(kind) if kind != plain else array


@functools.cache
def rows_of(name: str, shape: str) -> pa.Table:
    """Rows for a subject, all of whose columns have one shape."""
    subject, rng = NAMED[name], np.random.default_rng([*f"{name} {shape}".encode()])
    few = 100 if pa.types.is_dictionary(subject.kind) else 1 << 20
    few = 2 if isinstance(subject.spec, LabelSpec) else few
    columns = {name: column(kind, SHAPES[shape](rng, ROWS) % 40) for name, (kind, _) in subject.others}
    return numbered(
        pa.table(
            {
                "column": column(subject.kind, SHAPES[shape](rng, ROWS) % few),
                "label": pa.array(rng.integers(0, 2, ROWS), pa.uint8()),
                "weight": pa.array(rng.gamma(2.0, 1.0, ROWS)),
                "partition": pa.array(np.where(np.arange(ROWS) < ROWS // 2, "a", "b")),
                **columns,
            }
        )
    )


def digest(task: Task, budget: Budget) -> str:
    """The digest of what a worker sends of a task's outline and rows.

    Without the memo of pickle, which tells equal objects from the same one: loops that were read from numba's cache
    have their own `numpy.dtype`, and those that were compiled here the common one.
    """
    name, shape = task
    state = NAMED[name].fold(rows_of(name, shape), 500, CAPACITY, budget)
    sent = io.BytesIO()
    pickler = pickle.Pickler(sent)
    pickler.fast = True
    pickler.dump((outline_only(state), state.runs()))
    return hashlib.sha256(sent.getvalue()).hexdigest()


def digests(seed: int, threads: int = 1, *, full: bool = False) -> dict[Task, str]:
    """Digests of all tasks, which share a budget, in a shuffled order, on some threads at once.

    In a full budget, every array is spilled that is large enough.
    """
    tasks = [task for task in itertools.product(NAMED, SHAPES) if task[1] == "hot" or not bounded(task[0])]
    random.Random(seed).shuffle(tasks)
    budget = Budget(LIMIT)
    ballast = budget.hold(np.zeros(1), LIMIT if full else 0)
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(threads) as pool:
        patch.setattr(hot, "LEARN", LEARN)
        found = dict(zip(tasks, pool.map(lambda task: digest(task, budget), tasks), strict=True))
    assert (budget.spilled > 0) is full, ballast
    return found


def bounded(name: str) -> bool:
    """Whether a state is a histogram, which takes megabytes for any rows."""
    return isinstance(NAMED[name].spec, HistogramSpec)


def test_a_task_gives_the_same_bytes_wherever_it_is_folded() -> None:
    """In another order, on several threads while arrays are spilled, and in another process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        elsewhere = other.submit(digests, 3)
        first = digests(1)
        under_load = digests(2, threads=4, full=True)
        assert {task for task in first if len({first[task], under_load[task], elsewhere.result()[task]}) > 1} == set()
