"""Churn: a brute-force oracle, exact accounts, swapped sides, spilled and divided cells, and the interval."""

from collections import Counter
from math import comb
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

from streameval import churn
from streameval.errors import DataError, OptionError
from streameval.evaluation.churn import Churn
from streameval.states.contingency.churn import _pairs

SWAPPED = {"absorbed": "split_off", "dispersed": "formed", "deaths": "births"}
IDS = st.one_of(st.none(), st.integers(-3, 4))


def found(old: list[Any], new: list[Any], **options: Any) -> Churn:
    """The churn of two lists of ids."""
    kinds = [pa.string() if any(isinstance(one, str) for one in side) else pa.int64() for side in (old, new)]
    data = pa.table({"old": pa.array(old, kinds[0]), "new": pa.array(new, kinds[1]), "unit": list(range(len(old)))})
    return churn(data, cluster="new", from_="old", threads=2, **options)


def oracle(old: list[Any], new: list[Any], least: int) -> dict[str, Any]:
    """The definitions, pair by pair."""
    cells = Counter((i, j) for i, j in zip(old, new, strict=True) if i is not None and j is not None)
    sizes = [Counter[Any](), Counter[Any]()]
    for (i, j), n in cells.items():
        sizes[0][i] += n
        sizes[1][j] += n
    part = {i: min((-n, j) for (k, j), n in cells.items() if k == i) for i in sizes[0]}
    origin = {j: min((-n, i) for (i, k), n in cells.items() if k == j) for j in sizes[1]}
    pairs = {(i, j) for i, (_, j) in part.items() if origin[j][1] == i}
    fates: list[dict[Any, str]] = [{}, {}]
    for side, best, names in ((0, part, ("absorbed", "dispersed")), (1, origin, ("split_off", "formed"))):
        for one, (n, _) in best.items():
            more = -2 * n > sizes[side][one]
            fates[side][one] = "continued" if one in {pair[side] for pair in pairs} else names[0 if more else 1]
    counted = Counter(continued=sum(max(sizes[0][i], sizes[1][j]) >= least for i, j in pairs))
    for side in (0, 1):
        counted.update(f for one, f in fates[side].items() if f != "continued" and sizes[side][one] >= least)
    lone = [Counter(a for a, b in zip(*sides, strict=True) if b is None) for sides in ((old, new), (new, old))]
    for name, side in (("deaths", 0), ("births", 1)):
        counted[name] = sum(n >= least for one, n in lone[side].items() if one is not None and one not in sizes[side])
    moved = Counter[tuple[str, str]]()
    for (i, j), n in cells.items():
        if (i, j) not in pairs:
            moved[fates[0][i], fates[1][j]] += n
    both, a, b = (sum(comb(n, 2) for n in some.values()) for some in (cells, *sizes))
    return {
        "rows": sum(cells.values()),
        "kept": sum(cells[pair] for pair in pairs),
        "counted": {name: n for name, n in counted.items() if n},
        "moved": {pair: n for pair, n in moved.items() if n},
        "pairs": {"both": both, "separated": a - both, "joined": b - both},
    }


def facts(result: Churn) -> dict[str, Any]:
    """The same of a result; its accounts add up."""
    for side in (result.old, result.new):
        assert side["clusters"] == sum(n for name, n in side.items() if name not in ("clusters", "deaths", "births"))
    moved = {(i, j): n for i, row in result.moved.items() for j, n in row.items() if n}
    assert result.rows == result.kept + sum(moved.values())
    counted = {name: n for name, n in {**result.old, **result.new}.items() if n and name != "clusters"}
    own = {name: getattr(result, name) for name in ("rows", "kept", "pairs")}
    return {**own, "counted": counted, "moved": moved}


@settings(max_examples=40)
@given(st.lists(st.tuples(IDS, IDS), max_size=40), st.sampled_from([1, 2, 3]), st.booleans())
def test_equals_the_definitions(rows: list[tuple[Any, Any]], least: int, tagged: bool) -> None:
    """Also if cells are divided by the blocks of units; a pair is added so that some row has both ids."""
    old, new = [[*side, 9] for side in ([i for i, _ in rows], [j for _, j in rows])]
    result = found(old, new, least=least, **({"unit": "unit"} if tagged else {}))
    assert facts(result) == oracle(old, new, least)
    assert result.arrived == sum(i is None and j is not None for i, j in rows)
    assert result.left == sum(i is not None and j is None for i, j in rows)


def test_identical_tables_keep_all_and_swapped_sides_swap_names() -> None:
    """Texts and integers, several intervals and a budget that spills."""
    rng = np.random.default_rng(3)
    old, new = rng.integers(0, 12_000, (2, 90_000))
    new = np.where(rng.random(old.size) < 0.7, old, new)
    forth, back = found(old.tolist(), new.tolist(), memory="8MiB"), found(new.tolist(), old.tolist())
    names = {**SWAPPED, **{there: here for here, there in SWAPPED.items()}}
    assert {names.get(k, k): n for k, n in forth.old.items()} == back.new
    assert {names.get(k, k): n for k, n in forth.new.items()} == back.old
    assert forth.kept == back.kept
    assert forth.pairs["joined"] == back.pairs["separated"]
    same = found([f"c{i}" for i in old.tolist()], [f"d{i}" for i in old.tolist()], least=1)
    assert same.kept == same.rows == old.size
    assert same.old["continued"] == same.old["clusters"] == np.unique(old).size


def test_pairs_of_huge_clusters_are_exact() -> None:
    """Sizes whose products, and sums of pairs, exceed 63 bits."""
    sizes = [0, 1, 2, 2**31 - 1, 3_100_000_000, 2**40, *[2**31 - 1] * 9]
    assert _pairs(np.array(sizes)) == sum(comb(size, 2) for size in sizes)


def test_decimal_ids_are_integers() -> None:
    """As warehouses unload them."""
    plain = pa.table({"old": [1, 1, 1, 2, 2, None], "new": [7, 7, 8, 8, 8, 8]})
    decimals = plain.cast(pa.schema({"old": pa.decimal128(38, 0), "new": pa.decimal128(38, 2)}))
    assert churn(decimals, cluster="new", from_="old") == churn(plain, cluster="new", from_="old")


def test_interval_of_the_share_of_rows_kept_covers() -> None:
    """Units of 20 rows that move together: 95 % intervals hold the mean share in at least 88 % of 60 draws."""
    rng, inside = np.random.default_rng(1), 0
    for _ in range(60):
        moves = np.repeat(rng.random(300) < 0.2, 20)
        old = np.repeat(rng.integers(0, 10, 300), 20)
        data = pa.table({"old": old, "new": np.where(moves, 100 + old, old), "unit": np.repeat(np.arange(300), 20)})
        share = churn(data, cluster="new", from_="old", unit="unit", threads=1).share_kept
        assert share.ci_lower is not None
        inside += share.ci_lower <= 0.8 <= (share.ci_upper or 0)
    assert inside >= 53


def test_refuses_what_has_no_answer() -> None:
    """No common ids, an interval without units, ids of another type."""
    refuses(DataError, "no row has an id in both 'old' and 'new'", found, [1, None], [None, 2])
    refuses(OptionError, "--unit", found, [1], [2], ci=0.9)
    with pytest.raises(DataError, match="ids are integers, strings or binaries"):
        churn(pa.table({"old": [0.5], "new": [1]}), cluster="new", from_="old")
