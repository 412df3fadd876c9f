"""Histories of stores that keep slices and blocks of units, against the files of the nights that count."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from fuzzing.cases import Tally, seeded
from fuzzing.slices import columns_of
from fuzzing.stores import compare
from streameval import Store, evaluate
from streameval.errors import StreamevalError
from streameval.states.grouped.table import slice_type

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

_WHERE = {
    "country": ["country = 'DE'", "country IN ('DE', 'FR')", "country IS NOT NULL"],
    "length": ["length > 2", "length BETWEEN 1 AND 3", "NOT length = 2"],
    "flag": ["flag", "NOT flag", "flag IS NULL"],
    "country,flag": ["country = 'DE' OR flag", "flag AND country <> 'FR'"],
}
_BY = ["country", "length", "flag", "country,flag", "hour(sent)", "ratio", "length=0,2.5"]


def sliced_history_case(seed: int, folder: Path, tally: Tally) -> None:
    """Nights come, change and go; slicings join and leave; every answer is that of the files."""
    rng = seeded(seed)
    data, store = folder / "data", Store(folder / "store", threads=1)
    by = rng.sample(_BY, 2)
    unit = rng.choice([None, "id"])
    weight = None if unit else rng.choice([None, "w"])
    base: dict[str, Any] = {"score": ["s", "t"], "cluster": "id", "weight": weight}
    types = {name: rng.choice([column.type]) for name, column in columns_of(rng, 1).items()}
    names = [f"night=2026-01-0{i}" for i in range(1, 5)]
    for name in names:
        _night(rng, data / name, types)
    store.update(data / names[0], **base, by=by, **({"unit": unit} if unit else {}))
    kept = {names[0]}
    for _ in range(4):
        action, name = rng.choice(["update", "update", "replace", "remove", "add", "vacuum"]), rng.choice(names)
        if action == "update":
            store.update(data / name)
            kept.add(name)
        elif action == "replace" and name in kept:
            shutil.rmtree(data / name)
            _night(rng, data / name, types)
            store.replace(data / name)
        elif action == "remove" and name in kept and len(kept) > 1:
            store.remove(name)
            kept.remove(name)
        elif action == "add" and len(by) < len(_BY):
            by.append(rng.choice([each for each in _BY if each not in by]))
            store.add(data=[data / one for one in sorted(kept)], by=[by[-1]])
        elif action == "vacuum":
            store.vacuum(grace="0s")
        asked: dict[str, Any] = _slices_or_rows(rng, by)
        asked |= rng.choice([{}, {"score": "t"}, {"metrics": "roc_auc"}, {"truncate": 0.3}])
        asked |= rng.choice([{}, {"ci": 0.9}, {"against": "rest"} if "by" in asked else {}]) if unit else {}
        some = rng.sample(sorted(kept), rng.randint(1, len(kept)))
        direct, reason = _outcome(
            evaluate, [data / one for one in sorted(some)], **base | {"unit": unit, "threads": 1} | asked
        )
        found, error = _outcome(store.evaluate, tuple(some), **asked)
        if error is not None:
            tally.refused(error)
            if reason is None and "evaluate the files" not in str(error):
                tally.wrong.append(f"{asked} of {some}: refused without a reason: {error}")
        elif reason is not None:
            tally.wrong.append(f"{asked} of {some}: a store answers, and the files do not: {reason}")
        else:
            compare(found, direct, tally, exactly=weight is None)


def _outcome(verb: Callable[..., Any], *given: Any, **asked: Any) -> tuple[Any, StreamevalError | None]:
    """What a verb answers, or why it refuses."""
    try:
        return verb(*given, **asked), None
    except StreamevalError as error:
        return None, error


def _slices_or_rows(rng: random.Random, by: Sequence[str]) -> dict[str, Any]:
    """Some of the kept slicings, or a filter on the columns of one."""
    known = [names for names in by if names in _WHERE]
    if known and rng.random() < 0.3:
        return {"where": rng.choice(_WHERE[rng.choice(known)])}
    return {"by": rng.sample(by, rng.randint(1, len(by)))}


def _night(rng: random.Random, place: Path, types: dict[str, pa.DataType]) -> None:
    """A night with columns to slice by; texts, integers and floats may change their width."""
    size = rng.randint(8, 60)
    columns: dict[str, Any] = {"label": [0, 1, *(rng.randint(0, 1) for _ in range(size - 2))]}
    columns |= {name: [rng.choice([0.1, 0.2, 0.5, rng.random()]) for _ in range(size)] for name in "st"}
    columns |= {"id": [rng.randint(0, 9) for _ in range(size)], "w": [rng.random() + 0.1 for _ in range(size)]}
    drawn = columns_of(rng, size)
    kinds = {name: pair[_alike(*pair)] for name, kind in types.items() if (pair := (kind, drawn[name].type))}
    columns |= {name: pa.array(column.to_pylist(), kinds[name]) for name, column in drawn.items() if name != "raw"}
    place.mkdir(parents=True)
    pq.write_table(pa.table(columns), place / "part-0.parquet", row_group_size=rng.choice([3, 50]))


def _alike(*kinds: pa.DataType) -> bool:
    """Whether the values of two types are the same slices."""
    one, other = (slice_type(kind, "", "") for kind in kinds)
    return one == other
