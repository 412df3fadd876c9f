"""Histories of stores against the files of their nights, and damage to the files of stores."""

from __future__ import annotations

import logging
import math
import shutil
import sys
from contextlib import contextmanager
from logging.handlers import BufferingHandler
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from fuzzing.cases import Tally, seeded
from streameval import Store, evaluate
from streameval.errors import StreamevalError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path


def history_case(seed: int, folder: Path, tally: Tally) -> None:
    """A random history of a store: its results equal those of the files of the nights that count."""
    rng = seeded(seed)
    data, store, kept = folder / "data", Store(folder / "store", threads=1), set[str]()
    base: dict[str, Any] = {"score": ["s", "t"], "cluster": "id", "weight": rng.choice([None, "w"])}
    base |= {"sketch": rng.choice([(), "s"]), "approx": rng.random() < 0.3}
    names = [f"night=2026-01-0{i}" for i in range(1, 5)]
    for name in names:
        night(rng, data / name)
    store.update(data / names[0], **base)
    kept.add(names[0])
    for _ in range(5):
        action, name = rng.choice(["update", "update", "replace", "remove", "vacuum"]), rng.choice(names)
        if action == "update":
            store.update(data / name)
            kept.add(name)
        elif action == "replace" and name in kept:
            shutil.rmtree(data / name)
            night(rng, data / name)
            store.replace(data / name)
        elif action == "remove" and name in kept and len(kept) > 1:
            store.remove(name)
            kept.remove(name)
        elif action == "vacuum":
            store.vacuum(grace="0s")
        asked = rng.choice([{}, {"truncate": 0.3}, {"score": "t"}, {"metrics": "roc_auc"}, {"aul_threshold": 2}])
        found = store.evaluate(**asked)
        direct = evaluate([data / name for name in sorted(kept)], **base | asked, threads=1)
        compare(found, direct, tally, exactly=base["weight"] is None)


def night(rng: random.Random, place: Path) -> None:
    """Write a random night."""
    size = rng.randint(4, 40)
    columns: dict[str, Any] = {"label": [0, 1, *(rng.randint(0, 1) for _ in range(size - 2))]}
    columns |= {name: [rng.choice([0.1, 0.2, 0.5, rng.random()]) for _ in range(size)] for name in "st"}
    columns |= {"id": [rng.randint(0, 9) for _ in range(size)], "w": [rng.random() + 0.1 for _ in range(size)]}
    place.mkdir(parents=True)
    pq.write_table(pa.table(columns), place / "part-0.parquet", row_group_size=rng.choice([3, 50]))


def compare(found: Any, direct: Any, tally: Tally, *, exactly: bool) -> None:
    """Two evaluations of the same rows; estimates apart."""
    if (found.rows, found.positives) != (direct.rows, direct.positives):
        tally.wrong.append(f"a store has {found.rows} rows for {direct.rows}")
    for one, other in zip(found.results, direct.results, strict=True):
        same = repr(one) == repr(other) or (
            not exactly and math.isclose(one.value, other.value, rel_tol=1e-12, abs_tol=1e-12)
        )
        if not same and not one.metric.startswith("quantile"):
            tally.wrong.append(f"a store has {one} for {other}")


def damage_case(seed: int, folder: Path, tally: Tally) -> None:
    """Damage one bit or the tail of one file of a store: the numbers stay the same, or an error names the file.

    A ledger whose newest commit is cut off, as by a power cut, is read up to the version before it, which is logged.
    """
    rng = seeded(seed)
    data = folder / "data"
    for i in range(1, 4):
        night(rng, data / f"night=2026-01-0{i}")
    store = Store(folder / "store", threads=1)
    read = {
        "evaluate": lambda: Store(folder / "store", threads=1).evaluate().to_json(),
        "history": lambda: Store(folder / "store", threads=1).history("roc_auc", "s").to_json(),
    }
    before = {}
    for i in range(1, 4):
        before = {verb: look() for verb, look in read.items()} if i == 3 else {}
        store.update(data / f"night=2026-01-0{i}", score=["s", "t"], cluster="id", sketch="s")
    store.vacuum(grace="0s")
    whole = {verb: look() for verb, look in read.items()}
    newest = max((folder / "store" / "ledger" / "_delta_log").glob("*.json"))
    shutil.rmtree(folder / "store" / "history")  # with the results of both versions
    read["history"]()
    files = sorted(path for path in (folder / "store").rglob("*") if path.is_file())
    for kind in sorted({path.relative_to(folder / "store").parts[0] for path in files}):
        victim = rng.choice([path for path in files if path.relative_to(folder / "store").parts[0] == kind])
        content = victim.read_bytes()
        harmed = damaged(content, rng)
        victim.write_bytes(harmed)
        cut = victim == newest and content.startswith(harmed)
        tally.cases[f"damage to {kind}"] += 1
        with _logged() as messages:  # which name a file only once
            outcomes = {verb: _outcome(look) for verb, look in read.items()}
        for verb, printed in outcomes.items():
            if isinstance(printed, StreamevalError):
                tally.refused(printed)
            else:
                passed_over = cut and printed == before[verb] and any(str(victim) in message for message in messages)
                if printed != whole[verb] and not passed_over:
                    tally.wrong.append(f"{verb} believes damage to {victim.relative_to(folder)}")
        shutil.rmtree(folder / "store" / "history" if kind == "history" else folder / "none", ignore_errors=True)
        victim.parent.mkdir(parents=True, exist_ok=True)
        if kind != "history":
            victim.write_bytes(content)


def _outcome(look: Callable[[], str]) -> str | StreamevalError:
    try:
        return look()
    except StreamevalError as error:
        return error


@contextmanager
def _logged() -> Iterator[list[str]]:
    """The messages that are logged meanwhile; filled at the end."""
    messages: list[str] = []
    handler, logger = BufferingHandler(sys.maxsize), logging.getLogger("streameval")
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        messages += [record.getMessage() for record in handler.buffer]


def damaged(content: bytes, rng: random.Random) -> bytes:
    """A flipped bit, or a file cut short."""
    if not content or rng.random() < 0.3:
        return content[: rng.randrange(len(content))] if content else b"x"
    at, bit = rng.randrange(len(content)), 1 << rng.randrange(8)
    return content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]
