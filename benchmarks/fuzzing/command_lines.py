"""Command lines that nobody would write: every ends with a status from 0 to 3, and a refusal with one line."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from click import Choice, Option
from click.testing import CliRunner

from fuzzing.cases import Tally, seeded
from streameval import Store
from streameval.cli import main

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

HOSTILE = [
    "", " ", "nan", "inf", "-inf", "1e999", "-1e-400", "9" * 5000, "-1", "0", "0.5", "1", "3", "2.5", "10" * 20,
    "0x1F",
    "1_0", "٣", "²", "99999999d", "9" * 30 + "d", "1d", "-1d", "9e999GiB", "1KiB", "64MiB", "'", '"', '""', "[", "]",
    "(", "=", "=1", "x=", "a=b=c", ",", "a,,b", "*", "?", "..", "/", "a/../b", "\n", "\u202e", "\udcff", "x" * 5000,
    "{}", "2026-13-45", "0000-00-00", "99999-01-01", "2026-01-01", "2026-01-01..2026-01-02", "..", "night=2026-01-01",
    "hour()", "hour(t)", "day(s)", "week(u)", "month(t)", "s=nan", "s=0,0", "s=1e400", "s=0.1,0.2", "s=", "k", "s,k",
    "id", "label", "missing", "all", "default", "*_auc", "roc_auc", "rows", "fpr=2", "threshold=nan", "recall=1e-400",
    "k=1e400", "precision=", "rest", "-", "--", "-h", "~nobody/x", "%", "%FF", "${HOME}", "\ufeff",
    "roc_auc[s] >= 0.5",
    "roc_auc[s] - roc_auc[t] >= -1 proven @95%", "roc_auc >= 1e999", "roc_auc[s] >= 0.5 @999%", "roc_auc[s", ">=",
    "s=1",
]  # fmt: skip
CONDITIONS = [
    '"" = 1', "`` = 1", '""', "s", "1", "NOT", "s IN ()", "s = 1e999", "s > ''", "t > '99999-01-01'", "s = 0x1F",
    "s = 1_0",
    "s BETWEEN 1 AND", "(" * 400 + "s = 1" + ")" * 400, "s LIKE '\\'", "k LIKE 'a%'", "s = $1", "s = ?", "s = :x",
    "/*",
    "s = 'a' -- c", "s = 1; DROP TABLE x", "s IS NULL IS NULL", "t = CAST('x' AS DATE)", "t = DATE 'x'", "id = 1.0e0",
    "t = TIMESTAMP '9999999'", "a.b.c.d.e.f = 1", "s = -'1'", "s = - - 1", "a[0] = 1", "s = TRUE", "@x = 1",
    "s = ''''",
    "CASE WHEN 1 THEN 2 END", "s = E'\\x'", "s = t", "k = s", "k = 'a'", "s > 0.2", "NOT s > 0.2 OR k IS NULL",
    "s <> NULL",
    "id = 99999999999999999999999999", "u > '2026-01-01 00:00:00Z'", "u < '1e5'", "t < '23:00'", "s = 1e" + "9" * 30,
    "s = " + "9" * 5000, "id IN (" + ", ".join(map(str, range(99))) + ", 'x')", "\udcff = 1", "k = '\udcff'",
    "k = '\0'",
]  # fmt: skip
BASES = {
    "evaluate": ["{data}", "--score", "s", "--cluster", "id"],
    "attribute": ["{data}", "--cluster", "id", "--classes", "k", "--nulls", "drop"],
    "sketch": ["{data}", "--column", "s"],
    "update": ["{store}", "{data}"],
    "replace": ["{store}", "{data}"],
    "add": ["{store}", "{data}", "--by", "k"],
    "remove": ["{store}", "{data}"],
    "show": ["{store}"],
    "info": ["{store}"],
    "history": ["{store}", "--metric", "roc_auc"],
    "check": ["{store}", "--rule", "roc_auc[s] >= 0.5"],
    "diagnose": ["{store}"],
    "vacuum": ["{store}", "--keep", "90d"],
}
SLOW = {"client", "threads", "scheduler_timeout", "rows", "partitions", "config", "storage_options", "spill"}


def command_case(seed: int, folder: Path, tally: Tally) -> None:
    """One command in a folder of its own, over small data, nights and a store."""
    rng = seeded(seed)
    words = _words(rng)
    home = Path.cwd()
    os.chdir(folder)
    try:
        found = CliRunner().invoke(main, words)
    finally:
        os.chdir(home)
    tally.refusals[f"a command with status {found.exit_code}"] += 1
    errors = [line for line in found.stderr.splitlines() if "rror: " in line]
    shown = [word if len(word) < 99 else f"{word[:40]}…" for word in words]
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        tally.wrong.append(f"{shown}: {type(found.exception).__name__}: {str(found.exception)[:200]}")
    elif found.exit_code not in range(4) or len(errors) != (found.exit_code in (1, 2)):
        tally.wrong.append(f"{shown}: status {found.exit_code} with {found.stderr[:400]!r}")


def _words(rng: random.Random) -> list[str]:
    """A command that works, with some more options and a hostile word or two."""
    places = _places()
    verb = rng.choice([*BASES, *BASES, "metrics"])
    data = str(rng.choice([places["data.parquet"], places["nights"]]))
    words = [word.format(data=data, store=places["store"]) for word in BASES.get(verb, ())]
    options = [param for param in main.commands[verb].params if isinstance(param, Option) and param.name not in SLOW]
    for option in rng.choices(options, k=rng.choice([0, 1, 1, 2])):
        words.append(rng.choice(option.opts + option.secondary_opts))
        if not option.is_flag:
            words.append(rng.choice(_values(option) if rng.random() < 0.5 else HOSTILE))
    if words and rng.random() < 0.3:
        words[rng.randrange(len(words))] = rng.choice([*HOSTILE, *map(str, places.values())])
    return [verb, *words]


def _values(option: Option) -> Sequence[str]:
    """Values that an option might take."""
    if isinstance(option.type, Choice):
        return option.type.choices
    return {
        "where": CONDITIONS,
        "by": ["k", "hour(t)", "day(u)", "s=0.2,0.5", "k,id", "s=0.1,1e308"],
        "metrics": ["*", "roc_auc", "default", "b_cubed*"],
        "label": ["label"], "score": ["s", "id"], "cluster": ["id", "k"], "sketch": ["s"], "classes": ["k"],
        "unit": ["id"],
        "weight": ["s", "id"], "column": ["s", "t", "id"], "quantiles": ["0.5", "1"], "memory": ["64MiB", "1GiB"],
        "keep": ["0d", "90d", "9999999d"], "grace": ["0s", "1d", "99999999d"], "mature": ["1d", "999999999d"],
        "partition": ["night=2026-01-01", "2026-01-02"], "since": ["2026-01-01"], "until": ["2026-01-02"],
        "as_of": ["0", "1"],
        "rules": ["roc_auc[s] >= 0.5", "rows >= 1"], "truncate": ["0.5", "2", "s=0.3"], "ci": ["0.9"],
        "at": ["fpr=0.5", "k=2"],
        "out": ["x.csv", "x.json", "x.html", "x.parquet", "x.txt"], "json_to": ["-", "x.json"], "plot": ["x.svg",
        "x.png"],
    }.get(str(option.name), ["1", "2", "0.5"])  # fmt: skip


@cache
def _places() -> dict[str, Path]:
    """Data, nights and a store, which all cases share."""
    folder = Path(tempfile.mkdtemp(prefix="streameval-fuzz-shared-"))
    times = pa.array([0, 1, 2, 3], pa.int64())
    table = pa.table({
        "label": [0, 1, 0, 1], "s": [0.1, 0.4, 0.35, 0.8], "k": ["a", "b", None, "a"], "id": [1, 1, 2, 3],
        "t": times.cast(pa.timestamp("us")), "u": times.cast(pa.timestamp("ns", "UTC")),
    })  # fmt: skip
    for night in ("2026-01-01", "2026-01-02"):
        (folder / "nights" / f"night={night}").mkdir(parents=True)
        pq.write_table(table, folder / "nights" / f"night={night}" / "part.parquet")
    pq.write_table(table, folder / "data.parquet")
    (folder / "text.parquet").write_text("no Parquet")
    Store(folder / "store").update(folder / "nights", score="s", cluster="id")
    return {name: folder / name for name in ("data.parquet", "nights", "text.parquet", "missing", "store")}
