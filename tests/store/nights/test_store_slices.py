"""Slices that a store keeps: equal to those of the files, added later, in histories, rules, info and diagnose."""

from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files import put
from refusals import refuses

from streameval import Store, attribute, evaluate
from streameval.errors import MissingColumnError, MissingInputError, OptionError, SchemaError

COLUMNS: dict[str, Any] = {"score": ["f4", "f8"], "cluster": "cluster", "classes": "classes", "nan": "drop"}
BY = ["country", "country,length=0,5"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five nights of two countries and null, one of them absent in the last night."""
    folder = tmp_path_factory.mktemp("data")
    for night in range(1, 6):
        rng = np.random.default_rng(night)
        rows = 120
        score = np.where(rng.random(rows) < 0.05, np.nan, rng.integers(0, 30, rows) / 30)
        country = np.array(["DE", "FR", None], object)[rng.integers(0, 2 if night == 5 else 3, rows)]
        label = (rng.random(rows) < np.where(country == "FR", 0.5, 0.2 + score)).astype(np.int8)
        ids = rng.integers(0, 20, (2, rows))
        columns = {"f4": score.astype(np.float32), "f8": score, "cluster": ids[0], "classes": ids[1], "label": label}
        table = pa.table(columns | {"country": pa.array(country), "length": rng.integers(-1, 9, rows)})
        put(folder / f"night=2026-01-0{night}" / "part.parquet", table)
    return folder


@pytest.fixture(scope="module")
def store(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store that keeps slices from the start."""
    made = Store(tmp_path_factory.mktemp("store") / "s")
    made.update(data, **COLUMNS, by=BY)
    return made


def facts(found: Any) -> list[tuple[Any, ...]]:
    """What must be equal to the last bit."""
    return [(r.metric, r.of, r.slice, repr(r.value), r.rows, r.positives, r.reason) for r in found.results]


def test_slices_equal_those_of_the_files(store: Store, data: Path) -> None:
    """For every kind of state, of all nights and of some, whatever the metrics."""
    assert facts(store.evaluate(by=BY)) == facts(evaluate(data, **COLUMNS, by=BY))
    some = [data / f"night=2026-01-0{night}" for night in (4, 5)]
    asked = {"metrics": ["agc@0.1", "aul"], "truncate": 0.1}
    assert facts(store.evaluate(by="country", last=2, **asked)) == facts(
        evaluate(some, **COLUMNS, by="country", **asked)
    )
    assert [r.slice for r in store.evaluate().results if r.slice] == []


@pytest.mark.parametrize(
    ("where", "more"),
    [
        ("country = 'DE'", {}),
        ("country IS NULL OR country = 'FR'", {"metrics": ["agc@0.1", "aul"], "truncate": 0.1}),
        ("country <> 'DE'", {"last": 1}),
        ("NOT country = 'DE' AND \"length=0,5\" = '[0, 5)'", {}),
    ],
)
def test_a_filter_is_answered_from_slices(store: Store, data: Path, where: str, more: dict[str, Any]) -> None:
    """To the last bit what the files with the filter give, labels and rows left out as well."""
    found = store.evaluate(where=where, **more)
    files = [data / "night=2026-01-05"] if more.get("last") else data
    on_files = where.replace("\"length=0,5\" = '[0, 5)'", "length >= 0 AND length < 5")
    same = evaluate(files, **COLUMNS, where=on_files, **{k: v for k, v in more.items() if k != "last"})
    assert facts(found) == facts(same)
    assert (found.rows, found.positives, found.dropped) == (same.rows, same.positives, same.dropped)
    assert found.options["where"] == where


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"where": "length > 3"}, OptionError, r"reads length, and the store keeps slices by country; country,length"),
        ({"where": "length > 3"}, OptionError, r"between its edges, such as \"length=0,5\" = '>=5'; add"),
        ({"where": "night = '2026-01-05'"}, OptionError, r"choose nights by their night \(--partition night=…"),
        ({"where": "contry = 'DE'"}, OptionError, r"did you mean 'country'\? add them"),
        ({"where": "country > 3"}, OptionError, "country"),
        ({"where": "country = 'XX'"}, MissingInputError, "no row meets where: country = 'XX'"),
        ({"where": "country = 'DE'", "by": "country"}, OptionError, r"leave out by \(--by\).*evaluate the files"),
        ({"where": "country = "}, OptionError, "where"),
    ],
)
def test_filters_that_slices_cannot_answer_are_refused(
    store: Store, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """By name, with what would do."""
    refuses(error, message, store.evaluate, **options)


def test_a_night_whose_slices_have_another_type_is_refused(tmp_path: Path) -> None:
    """1 and "1" would be two slices; narrower integers and nulls are the same, and integers are widened to floats."""
    kinds = {1: pa.null(), 2: pa.float32(), 3: pa.int8(), 4: pa.string(), 5: pa.float64(), 6: pa.null()}
    for night, kind in kinds.items():
        values = pa.nulls(4) if kind == pa.null() else pa.array(["1", "3", "1", "3"]).cast(kind)
        table = pa.table({"label": [0, 1, 1, 0], "s": [0.1, 0.2, 0.4, 0.3], "length": values})
        put(tmp_path / f"night=2026-01-0{night}" / "part.parquet", table)
    store = Store(tmp_path / "store", threads=1)
    store.update(tmp_path / "night=2026-01-01", score="s", by="length")
    store.update(tmp_path / "night=2026-01-02")  # the first that says what the slices are
    for night, kind in ((4, "string"), (5, "double")):
        with pytest.raises(SchemaError, match=f"night=2026-01-0{night}.*'length' is {kind}, but .* slices by float"):
            store.update(tmp_path / f"night=2026-01-0{night}")
    store.update([tmp_path / f"night=2026-01-0{night}" for night in (3, 6)])
    found = [r.slice["length"] for r in store.evaluate(by="length", metrics="roc_auc").results if r.slice]
    assert repr(sorted(found, key=str)) == "[1.0, 3.0, None]"


def test_slices_have_the_intervals_of_the_files(data: Path, tmp_path: Path) -> None:
    """From the blocks of the unit that a store keeps of every slice, also of slices that join; and so have rests."""
    options: dict[str, Any] = {"score": "f8", "cluster": "cluster", "nan": "drop", "metrics": ["roc_auc", "aul"]}
    store, nights = Store(tmp_path / "s", threads=1), [data / f"night=2026-01-0{night}" for night in (1, 2)]
    store.update(nights, **options, unit="classes")
    store.add(data=nights, by="country")
    found = store.evaluate(by="country", against="rest")
    same = evaluate(nights, **options, by="country", unit="classes", against="rest", threads=1)
    assert found.results == same.results
    assert sum(r.ci_lower is not None for r in found.results if r.from_rest) == 3
    assert str(found.source.command).endswith("--against rest --by country --ci 0.95")
    german = evaluate(nights, **options, where="country = 'DE'", unit="classes", threads=1)
    assert store.evaluate(where="country = 'DE'").results == german.results
    assert german.ci("roc_auc")[0] > 0
    refuses(OptionError, r"against='rest' compares slices", store.evaluate, against="rest")


@pytest.mark.parametrize("widened", [{}, {"adjust": "family", "ci": 0.9}])
def test_slices_that_fall_short_are_those_of_the_files(tmp_path: Path, widened: dict[str, Any]) -> None:
    """Kept slices or nights, with the intervals of the store's unit at the widened level, and without its points."""
    rng, rows = np.random.default_rng(4), 1500
    for night in (1, 2, 3):
        label, country = rng.random(rows) < 0.4, rng.choice(["DE", "FR", "IT"], rows)
        noise = rng.normal(size=rows) * np.where(country == "FR", night, 0.5)
        columns = {"label": label, "s": label + noise, "country": country, "unit": rng.integers(0, 700, rows)}
        put(tmp_path / f"night=2026-01-0{night}" / "part.parquet", columns)
    nights, store = sorted(tmp_path.glob("night=*")), Store(tmp_path / "store", threads=1)
    store.update(nights, score="s", by="country", unit="unit", at="fpr=0.01", truncate=0.1)
    for by, last in (("country", 2), ("night", 3)):
        found = store.attribute(last=last, score="s", by=by, metric="average_precision", **widened)
        same = attribute(nights[-last:], score="s", by=by, unit="unit", metric="average_precision", **widened)
        assert (found.slices, found.totals) == (same.slices, same.totals)
        assert 0 < found.slices.num_rows < found.totals["slices"]
        assert found.totals["slices_ci_level"] > widened.get("ci", 0.95)
        command = f"--last {last} --score s --by {by}{' --adjust family --ci 0.9' * bool(widened)} --metric "
        command += "average_precision"
        assert str(found.source.command).endswith(command)


def test_slices_join_and_leave(data: Path, tmp_path: Path) -> None:
    """Nights are folded for the slices alone; a column takes its slicings with it."""
    store = Store(tmp_path / "s")
    store.update(data, **COLUMNS)
    refuses(OptionError, r"keeps no slices; add them \(add STORE DATA --by country", store.evaluate, by="country")
    before = {s.file for e in store.partitions() for s in e.states}
    assert store.add(data=data, by=["country"], since="2026-01-02").joined == ("country",)
    assert before <= {s.file for e in store.partitions() for s in e.states}
    assert facts(store.evaluate(last=4, by="country"))[-1][2] is not None
    with pytest.raises(MissingInputError, match=r"1 night without slices of f4 by country \(night=2026-01-01\)"):
        store.evaluate(by="country")
    store.add(data=data, by=["country,length=0,5"])
    assert facts(store.evaluate(by=BY[1], last=4)) == facts(
        evaluate([data / f"night=2026-01-0{night}" for night in range(2, 6)], **COLUMNS, by=BY[1])
    )
    store.remove((), columns=["length"])
    assert store.info().columns["by"] == ["country"]


def test_history_by_slice(store: Store, data: Path) -> None:
    """A series for each slice; a night without its rows has no value, and says so."""
    found = store.history("roc_auc", "f4", by="country", cumulative=False)
    assert found.series[0].name == "roc_auc[f4]"
    assert {one.name for one in found.series[1:]} == {f"roc_auc[f4]{{country={c}}}" for c in ("DE", "FR", "null")}
    [null] = [one for one in found.series if one.slice == {"country": None}]
    assert [point.night.reason for point in null.points] == [None] * 4 + ["no rows"]
    alone = evaluate(data / "night=2026-01-03", **COLUMNS, by="country")
    assert null.points[2].night.value == alone.value("roc_auc", "f4", slice={"country": None})
    assert found.to_dict()["series"][1]["slice"]["country"] in ("DE", "FR", None)


@pytest.mark.parametrize(
    ("rule", "outcome", "reason"),
    [
        ("roc_auc[f4]{country=*} >= 0.99", "failed", "2 of 2 slices: {country=FR}"),
        ("roc_auc[f4]{country=*} >= 0", "passed", "the worst of 2 slices: {country=FR}"),
        ("roc_auc[f4]{country=DE} >= 0.5", "passed", ""),
        ("roc_auc[f4]{country=null} >= 0.5", "failed", "there is no such slice"),
        ("roc_auc[f4]{country=DEE} >= 0.5", "failed", "there is no such slice; did you mean {country=DE}?"),
        ("aul{length=*,country=DE} >= 0", "passed", "the worst of 3 slices"),
        ("aul{length=>=5,country=DE} >= 0", "passed", ""),
        ("aul{country=DE,length=0,5=>=5} >= 0", "passed", ""),
        ("aul{country=*,length=0,5=[0, 5)} >= 0", "passed", "the worst of 2 slices"),
        ("roc_auc[f4]{country=*} drop <= 90%", "passed", "the worst of 2 slices"),
    ],
)
def test_rules_on_slices(store: Store, data: Path, rule: str, outcome: str, reason: str) -> None:
    """In a check of the newest night, and on data where the rule needs no other nights."""
    [one] = store.check([rule], "night=2026-01-05").judgements
    assert (one.outcome, reason in one.reason) == (outcome, True), one.reason
    if " drop " not in rule:
        [same] = evaluate(data / "night=2026-01-05", **COLUMNS, by=BY).judge([rule]).judgements
        assert (same.outcome, same.value, same.reason) == (
            one.outcome,
            pytest.approx(one.value, nan_ok=True),
            one.reason,
        )


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("roc_auc[f4]{nation=*} >= 0.9", "keeps slices by country; country,length=0,5, not by nation; add them"),
        ("rows{country=*} >= 9", "rows is of the night"),
        ("roc_auc[f4]{country} >= 0.9", "a slice names columns and values"),
        ("roc_auc[f4]{country=DE} >= 0.9 @95%", "by their values or for a year"),
    ],
)
def test_rules_that_cannot_be_judged_are_refused(store: Store, rule: str, reason: str) -> None:
    """By what they lack."""
    refuses(OptionError, reason, store.check, [rule])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "f4", "by": "contry"}, "did you mean 'country'"),
        ({"score": "f4", "by": "country", "unit": "x"}, "unit='x' contradicts the store"),
        ({"score": "f5", "by": "country"}, "score='f5' contradicts the store"),
        ({"by": "country"}, "name a score"),
        ({}, "nothing to attribute"),
        ({"score": "f4", "by": "country", "data": "d"}, "hold texts of clusters and examples"),
    ],
)
def test_slices_that_a_store_cannot_rank_are_refused(store: Store, options: dict[str, Any], message: str) -> None:
    """By name."""
    refuses(OptionError, message, store.attribute, **options)


def test_slices_by_the_values_of_a_score_are_refused(data: Path, tmp_path: Path) -> None:
    """As `evaluate` refuses them: from the start, added to the scores, or the score to them."""
    store = Store(tmp_path / "s")
    with pytest.raises(OptionError, match="'f4': a slice would hold rows of one score; give edges"):
        store.update(data, score="f4", nan="drop", by="f4")
    store.update(data, score="f4", nan="drop", by="f8=0.5")
    for more in ({"by": "f4"}, {"by": "country,f4"}):
        refuses(OptionError, "'f4': a slice would hold rows of one score", store.add, data=data, **more)
    store.add(data=data, by="length")
    refuses(OptionError, "'length': a slice would hold rows of one score", store.add, data=data, score="length")


def test_the_limit_of_slices_is_the_stores(data: Path, tmp_path: Path) -> None:
    """Set by the first update; a night of more slices is refused with the remedies."""
    with pytest.raises(OptionError, match="3 slices or more, more than max_slices=2"):
        Store(tmp_path / "few").update(data, **COLUMNS, by="country", max_slices=2)


def test_a_limit_is_kept_for_slices_that_are_added_later(data: Path, tmp_path: Path) -> None:
    """Also while the store has no slices, and when its only slices leave; `evaluate` refuses a limit without slices."""
    with pytest.raises(OptionError, match=r"max_slices would change nothing without slices: .* \(--by\)"):
        evaluate(data, score="f4", nan="drop", max_slices=2)
    store = Store(tmp_path / "s")
    store.update(data, **COLUMNS, max_slices=2)
    assert store.evaluate(max_slices=2).rows == evaluate(data, **COLUMNS).rows
    store.add(data=data, by="cluster=0,10")
    store.remove([], columns="cluster")
    refuses(OptionError, "3 slices or more, more than max_slices=2", store.add, data=data, by="country")


def test_add_raises_the_limit_of_a_store(data: Path, tmp_path: Path) -> None:
    """Alone, or with the slices that exceed it; no night is folded for it, and the remedies name it."""
    store = Store(tmp_path / "s")
    store.update(data, **COLUMNS, max_slices=2)
    with pytest.raises(OptionError, match=r"more than max_slices=2; .*limit with add .* in the first update$"):
        store.add(data=data, by="country")
    for verb in (partial(store.update, data), store.evaluate):
        refuses(OptionError, r"leave it out, or change the store's limit \(add\)$", verb, max_slices=3)
    done = store.add(max_slices=3)
    assert (done.changed, done.joined, str(done)) == ((), (), "max_slices changed from 2 to 3")
    assert store.add(data=data, by="country").joined == ("country",)
    assert store.add(max_slices=10_000).version == done.version + 2
    refuses(OptionError, "max_slices=3 contradicts", store.update, data, max_slices=3)
    store.add(max_slices=2)
    refuses(OptionError, r"3 slices.*, more than max_slices=2; .* in the first update$", store.evaluate, by="country")


@pytest.mark.parametrize(
    ("kinds", "merges"),
    [
        ((pa.decimal128(6, 2), pa.decimal128(5, 2)), True),
        ((pa.decimal128(5, 2), pa.decimal128(6, 2)), False),
        ((pa.decimal256(50, 2), pa.decimal128(5, 1)), True),
        ((pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin")), False),
        ((pa.timestamp("us", "UTC"), pa.date32()), False),
        ((pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")), True),
    ],
    ids=str,
)
def test_slices_of_decimals_and_zoned_times_are_widened_or_refused(
    tmp_path: Path, kinds: tuple[pa.DataType, pa.DataType], merges: bool
) -> None:
    """Arrow has no alias for their types, and a night of another one raised a raw AttributeError."""
    store, tables = Store(tmp_path / "store", threads=1), []
    for name, kind in zip("12", kinds, strict=True):
        values = pa.array([86_400, 86_400, 172_800, 172_800], pa.int64())
        slices = pa.array([Decimal(1), 1, 2, 2], kind) if pa.types.is_decimal(kind) else _times(values, kind)
        tables.append(pa.table({"label": [0, 1, 0, 1], "a": [0.1, 0.4, 0.3, 0.2], "g": slices}))
        pq.write_table(tables[-1], tmp_path / f"night={name}.parquet")
    store.update(tmp_path / "night=1.parquet", score="a", by="g")
    if not merges:
        with pytest.raises(SchemaError, match=r"night=2\.parquet: column 'g' is .*, but the store slices by "):
            store.update(tmp_path / "night=2.parquet")
        return
    store.update(tmp_path / "night=2.parquet")
    files = [tmp_path / "night=1.parquet", tmp_path / "night=2.parquet"]
    assert store.evaluate(by="g").results == evaluate(files, score="a", by="g", threads=1).results


def _times(seconds: pa.Array, kind: pa.DataType) -> pa.Array:
    """Points of time of this type."""
    return (
        seconds.cast(pa.timestamp("s")).cast(pa.date32() if pa.types.is_date(kind) else pa.timestamp("us")).cast(kind)
    )


def test_slices_of_a_column_that_no_night_has_are_refused(data: Path, tmp_path: Path) -> None:
    """Every later night would be refused for want of it; where some nights have it, the others are named."""
    store = Store(tmp_path / "s")
    store.update(data, **COLUMNS)
    for by in ("contry", "country,contry", "contry=0,5"):
        with pytest.raises(MissingColumnError, match=r"no night at hand has .*contry.*; add .*did you mean 'country'"):
            store.add(data=data, by=by)
    assert store.info().columns.get("by") is None
    last, folder = data / "night=2026-01-05" / "part.parquet", tmp_path / "night=2026-01-06"
    put(folder / "a.parquet", pq.read_table(last, partitioning=None).append_column("region", pa.array(["N"] * 120)))
    store.update(folder)
    done = store.add(data=[data, folder], by="region")
    assert (done.changed, len(done.lacking), done.gone) == (("night=2026-01-06",), 5, done.lacking)
    assert "5 without the column (night=2026-01-01, night=2026-01-02, night=2026-01-03, …)" in str(done)
