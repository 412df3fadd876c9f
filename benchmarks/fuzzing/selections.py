"""Nights that are chosen from a store, nights against others, versions of Delta tables, and runs on a cluster."""

from __future__ import annotations

import logging
import math
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from fuzzing.cases import Tally, drawn, seeded
from fuzzing.slices import told
from fuzzing.stores import compare, night
from streameval import Store, evaluate
from streameval import compare as compared
from streameval.errors import MissingInputError, StreamevalError

if TYPE_CHECKING:
    import random
    from pathlib import Path

_DAYS = [f"2026-01-0{i}" for i in range(1, 7)]


def selection_case(seed: int, folder: Path, tally: Tally) -> None:
    """The last nights, nights between dates, the store of an earlier version, and nights against others."""
    rng = seeded(seed)
    data, store = folder / "data", Store(folder / "store", threads=1)
    base: dict[str, Any] = {"score": ["s", "t"], "cluster": "id", "unit": "id"}
    days, versions = sorted(rng.sample(_DAYS, rng.randint(2, 6))), list[list[str]]()
    for i, day in enumerate(rng.sample(days, len(days))):
        night(rng, data / f"night={day}")
        store.update(data / f"night={day}", **({} if i else base))
        versions.append(sorted([*(versions[-1] if versions else []), day]))
    for _ in range(3):
        first, last = sorted(rng.choices(_DAYS, k=2))
        version, count = rng.randrange(len(versions)), rng.randint(1, len(days))
        asked, chosen = rng.choice([
            ({"last": count}, days[-count:]),
            ({"since": first}, [day for day in days if day >= first]),
            ({"until": last}, [day for day in days if day <= last]),
            ({"since": first, "until": last}, [day for day in days if first <= day <= last]),
            ({"as_of": version}, versions[version]),
            ({"as_of": version, "last": 1}, versions[version][-1:]),
        ])  # fmt: skip
        found = _answer(lambda given=asked: store.evaluate(**given), tally)
        if found is None or not chosen:
            if (found is None) == bool(chosen):
                tally.wrong.append(f"{asked} of {days}: {'refused' if chosen else 'answered'}")
            continue
        compare(found, evaluate([data / f"night={day}" for day in chosen], **base, threads=1), tally, exactly=True)
    _against(rng, store, data, days, base, tally)


def _against(rng: random.Random, store: Store, data: Path, days: list[str], base: dict[str, Any], tally: Tally) -> None:
    """The last nights against those of a span of dates: the difference of two evaluations of files."""
    first, last = sorted(rng.choices(days, k=2))
    count = rng.randint(1, len(days))
    spans = [day for day in days if first <= day <= last], days[-count:]
    found = _answer(lambda: store.evaluate(last=count, against=f"{first}..{last}", ci=0.9), tally)
    made = [
        _answer(lambda span=span: evaluate([data / f"night={day}" for day in span], **base, ci=0.9, threads=1), tally)
        for span in spans
    ]
    if found is None or None in made:
        return
    expected = _answer(lambda: compared(*made), tally)
    differences = [r for r in found.results if " − " in (r.of or "")]
    for one, other in zip(differences, expected or (), strict=expected is not None):
        pairs = [(getattr(one, name), getattr(other, name)) for name in ("value", "stderr", "ci_lower", "ci_upper")]
        if one.metric != other.metric or not all(_close(*pair) for pair in pairs):
            tally.wrong.append(f"{spans[1]} against {spans[0]}: {one} for {other}")


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(one) and math.isnan(other))


def _answer(ask: Any, tally: Tally) -> Any:
    """What is answered; None, and counted, if it is refused."""
    try:
        return ask()
    except StreamevalError as error:
        tally.refused(error)
        return None


def version_case(seed: int, folder: Path, tally: Tally) -> None:
    """Every version of a Delta table that is appended to, deleted from and overwritten, and a store of each."""
    rng = seeded(seed)
    place, versions = folder / "table", list[pa.Table]()
    parts = rng.choice([None, ["part"]])
    for step in range(4):
        night(rng, folder / f"rows-{step}")
        rows = pq.read_table(folder / f"rows-{step}" / "part-0.parquet")
        rows = rows.append_column("part", pc.cast(pc.bit_wise_and(rows["id"], 1), pa.string()))
        action = rng.choice(["append", "append", "overwrite", "delete"]) if versions else "append"
        if action == "delete":
            number = rng.randint(0, 9)
            kept = versions[-1].filter(pc.field("id") != number)
            if len(kept) == len(versions[-1]) or not 0 < pc.sum(kept["label"]).as_py() < len(kept):
                continue
            DeltaTable(place).delete(f"id = {number}")
            versions.append(kept)
            continue
        write_deltalake(place, rows, mode=action, partition_by=parts)
        versions.append(rows if action == "overwrite" or not versions else pa.concat_tables([versions[-1], rows]))
    options: dict[str, Any] = {"score": "s", "cluster": "id"} | rng.choice([{}, {"by": "part"}, {"where": "id > 2"}])
    for number, table in enumerate(versions):
        given = rng.choice([{"data": str(place), "delta_version": number}, {"data": DeltaTable(place, version=number)}])
        said = []
        for data in (given, {"data": table}):
            try:
                said.append(_numbers(evaluate(**data, **options, threads=1)))
            except MissingInputError as error:  # no row meets where
                tally.refused(error)
                said.append([(type(error).__name__, "", None)])
        if said[0] != said[1]:
            tally.wrong.append(f"version {number} of {len(versions)} with {options}")


def _numbers(found: Any) -> list[tuple[str, str, Any]]:
    """The results, for comparison."""
    return [(r.metric, str(r.slice), told(r)) for r in found.results]


def client_case(seed: int, folder: Path, tally: Tally) -> None:
    """A table, and its rows in files, on two workers as on threads."""
    rng = seeded(seed)
    case = drawn(rng)
    rows = len(case.table)
    pq.write_table(case.table, folder / "rows.parquet", row_group_size=max(1, rows // 3))
    options = {name: value for name, value in case.options.items() if name != "threads"}
    data: Any = rng.choice([case.table, str(folder / "rows.parquet")])
    memory = rng.choice(["300KiB", "4MiB", None])
    said = []
    for where in ({"threads": 1}, {"client": _client(), "memory": memory}):
        try:
            said.append(_numbers(evaluate(data, **options, **where)))
        except StreamevalError as error:
            tally.refused(error)
            said.append([(type(error).__name__, "", None)])
    if said[0] != said[1]:
        tally.wrong.append(f"on a cluster {said[1]} for {said[0]} with {options}")


@cache
def _client() -> Any:
    """A client of two workers on threads of this process, made once."""
    from distributed import Client, LocalCluster

    logging.getLogger("distributed.worker").setLevel(logging.CRITICAL)  # a refusal is no failure
    made = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=0)
    return Client(made, set_as_default=False)


def close_client() -> None:
    """Close the client, if there is one."""
    if _client.cache_info().currsize:
        client = _client()
        cluster = client.cluster
        client.close()
        cluster.close()
        _client.cache_clear()
