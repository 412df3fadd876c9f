"""Attribution of costs: against pairs counted one by one, from tables, files, states and stores."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import comb
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fuzzing.cases import Case, Tally, seeded, written
from streameval import Attribution, Store, attribute, evaluate
from streameval.metrics.contingency.attribution import GAINS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_IDS = {pa.int64(): lambda i: i - 2, pa.uint16(): int, pa.string(): "c{}".format, pa.large_string(): "é{}".format}


def attribution_case(seed: int, folder: Path, tally: Tally) -> None:
    """The costs of clusters and classes in a table, its files, its states and a store."""
    rng = seeded(seed)
    size = rng.choice([2, 9, 40, 120])
    types = [rng.choice(list(_IDS)) for _ in range(2)]
    ids = [[_IDS[kind](rng.randint(0, rng.choice([1, 6, 20]))) for _ in range(size)] for kind in types]
    labels = [rng.randint(0, 1) for _ in range(size)]
    labels[:2] = [0, 1]
    table = pa.table({"label": labels, "c": pa.array(ids[0], types[0]), "k": pa.array(ids[1], types[1])})
    metric, top = rng.choice(list(GAINS)), rng.choice([1, 3, 100])
    asked: dict[str, Any] = {"cluster": "c", "metric": metric, "top": top}
    due = _costs(ids[0], ids[1]), _costs(ids[1], ids[0])
    files = written(Case(table, {}, [], refuses=False), folder / "data", rng)
    found = attribute(table, classes="k", label="label", threads=1, **asked)
    for read, cost, name, costs in (
        (found.merges, "false_pairs", "cluster", due[0]),
        (found.splits, "missed_pairs", "class", due[1]),
    ):
        rows = [(row[cost], row[name]) for row in read.to_pylist()] if read is not None else []
        if sorted(n for n, _ in rows) != sorted(costs.values())[::-1][:top][::-1] or any(
            costs[k] != n for n, k in rows
        ):
            tally.wrong.append(f"{cost} {rows} for {costs}")
        if found.totals[cost] != sum(costs.values()):
            tally.wrong.append(f"{found.totals[cost]} {cost} in all for {sum(costs.values())}")
    if repr(found.tables()) != repr(attribute(files, classes="k", label="label", threads=2, **asked).tables()):
        tally.wrong.append("attribution of files is not that of their table")
    both = evaluate(files, cluster="c", classes="k", threads=2)
    store = Store(folder / "store", threads=1)
    store.update(files, cluster="c", classes="k")
    for what, other in (
        ("an evaluation", both.attribution(metric=metric, top=top)),
        ("a store", store.attribute(classes="k", label="label", **asked)),
    ):
        if _plain(found) != _plain(other):
            tally.wrong.append(f"attribution of {what}: {_plain(other)} for {_plain(found)}")


def _costs(groups: Iterable[Any], members: Iterable[Any]) -> Counter[Any]:
    """Pairs of each group that are of different members."""
    cells: dict[Any, Counter[Any]] = defaultdict(Counter)
    for group, member in zip(groups, members, strict=True):
        cells[group][member] += 1
    found = {g: comb(sum(own.values()), 2) - sum(comb(n, 2) for n in own.values()) for g, own in cells.items()}
    return Counter({g: pairs for g, pairs in found.items() if pairs})


def _plain(found: Attribution) -> Any:
    """Costs and totals without the texts of ids, which states do not hold; of equal costs any may come first."""
    tables = (found.merges, found.splits)
    costs = [sorted(t[n].to_pylist()) for t, n in zip(tables, ("false_pairs", "missed_pairs"), strict=True) if t]
    return costs, {k: v for k, v in found.totals.items() if "pairs" in k or "rows" in k}
