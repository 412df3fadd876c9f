"""Drift: the values against SciPy, the size of the tests with campaigns, and rules of a store."""

import runpy
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files import put
from refusals import refuses
from scipy.stats import ks_2samp, wasserstein_distance

from streameval import Store, drift
from streameval.errors import DataError, MissingInputError, OptionError, SchemaError
from streameval.rules import Rule

ALARMS = Path(__file__).parents[2] / "benchmarks" / "alarms.py"


@pytest.mark.skipif(not ALARMS.exists(), reason="needs the benchmarks of a checkout")
def test_values_are_those_of_scipy_and_tests_have_their_size() -> None:
    """The short form of `benchmarks/year.py --drift`: at most 14 % of 60 draws without drift; most with a shift."""
    compared = runpy.run_path(str(ALARMS))["compared"]
    rng, hits = np.random.default_rng(0), np.zeros(2)
    sizes = np.minimum(rng.zipf(2.0, 300), 40)
    for _ in range(60):
        found, one, other = compared(rng, sizes)
        assert found.ks == pytest.approx(ks_2samp(one, other).statistic)
        assert found.w1 == pytest.approx(wasserstein_distance(one, other))
        hits += found.ks_p < 0.05, found.w1_p < 0.05
        assert found.ks_lower <= found.ks
    assert (hits / 60 <= 0.14).all()
    assert np.mean([compared(rng, sizes, 0.6)[0].ks_lower > 0 for _ in range(20)]) > 0.8


def test_a_store_compares_its_nights_and_judges_drift(tmp_path: Path) -> None:
    """Exact values, p-values by the store's unit, and rules against the usual nights."""
    rng = np.random.default_rng(1)
    scores = []
    for day in range(1, 6):
        unit = rng.integers(0, 400, 800)
        scores.append((rng.random(800) + 0.3 * (day == 5)).astype(np.float32))
        table = pa.table({"label": unit % 2, "s": scores[-1], "unit": unit, "c": unit % 3})
        put(tmp_path / "data" / f"night=2026-01-0{day}" / "a.parquet", table)
    store = Store(tmp_path / "store", threads=1)
    store.update(tmp_path / "data", score="s", unit="unit", by="c")
    found = drift(tmp_path / "store", score="s", since="2026-01-05", against="2026-01-01..2026-01-04")
    before = np.concatenate(scores[:4])
    assert (found.rows, found.rows_against) == (800, 3200)
    assert found.ks == pytest.approx(ks_2samp(scores[4], before).statistic)
    assert found.w1 == pytest.approx(wasserstein_distance(scores[4], before))
    assert found.ks_p < 0.01 < store.drift("s", since="2026-01-02", until="2026-01-02", against="2026-01-01").ks_p
    files = drift(tmp_path / "data", score="s", since="2026-01-05", against="2026-01-01..2026-01-04", unit="unit")
    assert files == found
    both = "2026-01-01..2026-01-03"  # two nights are on both sides
    shared = drift(tmp_path / "data", score="s", unit="unit", since="2026-01-02", against=both)
    assert shared == store.drift("s", since="2026-01-02", against=both)
    plain = drift(tmp_path / "data", score="s", against="2026-01-01")
    assert (plain.effective_units, plain.reason) == (None, "without a unit there are no p-values: name one (--unit)")
    for data in (tmp_path / "data", tmp_path / "store"):  # a mistyped date is not every night
        for name in ("since", "until", "against"):
            with pytest.raises(OptionError, match=f"{name}='2026-02-30' must be a date"):
                drift(data, **{"score": "s", "against": "2026-01-01", name: "2026-02-30"})
    with pytest.raises(MissingInputError, match="no partition has a date in this range; the data have night=2026-01-0"):
        drift(tmp_path / "data", score="s", against="2026-02-01")
    with pytest.raises(SchemaError, match=r"a\.parquet: column 's' has type float; ids are"):
        drift(tmp_path / "data", score="s", against="2026-01-01", unit="s")
    for name, content in (("night=2025-01-01", {"other": [1]}), ("night=2026-01-06", {"s": pa.array([], "float")})):
        put(tmp_path / "data" / name / "a.parquet", content)
    assert drift(tmp_path / "data", score="s", since="2026-01-05", against="2026-01-01..2026-01-04").ks == found.ks
    with pytest.raises(MissingInputError, match="drift: night=2026-01-06 has no rows"):
        drift(tmp_path / "data", score="s", since="2026-01-06", against="2026-01-05")
    pq.write_table(table, tmp_path / "undated.parquet")
    with pytest.raises(OptionError, match=r"undated\.parquet: has no date .* leave it out, or move it to"):
        drift([tmp_path / "data", tmp_path / "undated.parquet"], score="s", against="2026-01-01")
    refuses(OptionError, "drift compares nights by the dates", drift, table, score="s", against="2026-02-01")
    with pytest.raises(OptionError, match="the store has its own"):
        drift(tmp_path / "store", score="s", against="2026-01-01", unit="unit")
    plan = store.plan("drift", score="s", since="2026-01-05", against="2026-01-01..2026-01-02")
    assert (plan.nights, plan.rows, plan.keeps) == (3, 2400, "nothing")
    assert set(plan.columns) == {"score s", "score.blocks s"}
    rules = ["drift_ks[s] <= 0.05 @95%", "drift_w1[s] <= 0.1", "drift_psi[s] <= 0.2"]
    assert [one.outcome for one in store.check(rules).judgements] == ["failed"] * 3
    assert [one.outcome for one in store.check(rules, "night=2026-01-04", again=True).judgements] == ["passed"] * 3
    own = store.drift("s", since="2026-01-04", until="2026-01-04", against="2026-01-01..2026-01-03")
    nights = [f"night=2026-01-0{day}" for day in (4, 5)]
    psi = store.check(rules[2], nights, again=True).judgements  # between the edges of the night that was judged first
    newest = store.drift("s", since="2026-01-05", until="2026-01-05", against="2026-01-01..2026-01-04")
    assert psi[0].edges == psi[1].edges == newest.edges != own.edges
    assert psi[1].value == newest.psi
    assert psi[0].value != own.psi
    reason = store.check(rules[0], "night=2026-01-04", again=True).judgements[0].reason
    assert reason == "from 3 usual nights, at least 0 @95% by unit"
    early = store.check(rules[0], "night=2026-01-02").judgements[0]
    assert early.reason.startswith("undecided: 1 night to compare with, 3 are needed")
    refuses(OptionError, "drift: ", store.drift, "t", against="2026-01-01")
    late = [tmp_path / "data" / night for night in nights]
    shutil.copy(late[1] / "a.parquet", late[0] / "a.parquet")
    store.replace(late)  # both nights that were judged: the edges stay
    assert store.check(rules[2]).judgements[-1].edges == newest.edges
    store.vacuum(keep="2d")
    with pytest.raises(DataError, match=r"turned the exact scores s of .*-01, .*-03 into bins; compare nights that"):
        store.drift("s", since="2026-01-05", against="2026-01-01..2026-01-04")
    assert store.check(rules[0], "night=2026-01-04", again=True).judgements[0].outcome == "undecided"


def test_a_store_compares_labelled_rows_and_says_so(tmp_path: Path) -> None:
    """Rows without a label are left out of its states, and of a night that has none nothing is left."""
    label, score = np.arange(90) % 2, np.arange(90, dtype=np.float32)
    for day in (1, 2, 3):
        rows = pa.table({"label": pa.array(label, mask=np.arange(90) >= 45 * (3 - day)), "s": score})
        put(tmp_path / "data" / f"night=2026-01-0{day}" / "a.parquet", rows)
    store = Store(tmp_path / "store", threads=1)
    store.update(tmp_path / "data", score="s", unlabelled="drop")
    half = store.drift("s", since="2026-01-02", until="2026-01-02", against="2026-01-01")
    assert (half.rows, half.ks, half.basis, half.labelled_share) == (45, 0.5, "labelled rows", 0.5)
    assert drift(tmp_path / "data", score="s", since="2026-01-02", against="2026-01-01").labelled_share is None
    with pytest.raises(DataError, match=r"no row of night=2026-01-03 has a label; compare its files \(drift DATA\)"):
        store.drift("s", since="2026-01-03", against="2026-01-01")


@pytest.mark.parametrize("rule", ["drift_ks[s] <= 0.1 always @95%", "drift_psi[s] <= 0.1 @95%", "drift_ks[s] >= 0.1"])
def test_rules_that_have_no_meaning_are_refused(rule: str) -> None:
    """Quantiles that far, an interval of PSI, and a drift bounded from below."""
    refuses(OptionError, "drift", Rule.read, rule)
