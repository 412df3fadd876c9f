"""Labels from another table: equal to a label column, matched by value, with every statement accounted for."""

import uuid
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval import attribute, evaluate, scan
from streameval.cli import main
from streameval.engine import start
from streameval.errors import DataError, LabelError, NullError, OptionError, SchemaError
from streameval.evaluation.labels.divided import read_labels
from streameval.evaluation.labels.statements import LateSource

ROWS = 40
SCORES = np.random.default_rng(52).integers(0, 12, ROWS) / 8
CLUSTERS = np.random.default_rng(53).integers(0, 9, ROWS)
DATA = pa.table({"id": np.arange(ROWS), "s": SCORES, "c": CLUSTERS})
WHAT: dict[str, Any] = {"score": "s", "cluster": "c", "at": "fpr=0.2"}


def table(ids: Any, labels: Any, **columns: Any) -> pa.Table:
    """A table of labels."""
    return pa.table({"id": ids, "label": labels, **columns})


def values(evaluation: Any) -> list[tuple[Any, ...]]:
    """The values as texts, so that NaN equals itself, with their rows."""
    return [(r.metric, r.of, repr(r.value), repr(r.ends), r.rows, r.positives) for r in evaluation.results]


Statement = tuple["int | None", int, "int | None"]  # id, time, label


def truth(statements: list[Statement], own: dict[int, int]) -> tuple[dict[int, int | None], dict[str, int]]:
    """The label of each id under ``drop``, and what became of the statements."""
    by_id: dict[int, set[tuple[int, int | None]]] = {}
    for name, time, label in statements:
        if name is not None:
            by_id.setdefault(name, set()).add((time, label))
    labels: dict[int, int | None] = dict(own)
    counts = dict.fromkeys(("used", "superseded", "withdrawn", "conflicts", "orphans"), 0)
    for name, several in by_id.items():
        newest = max(time for time, _ in several)
        latest = {label for time, label in several if time == newest}
        counts["superseded"] += len(several) - len(latest)
        labels[name] = None if len(latest) > 1 else next(iter(latest))
        if len(latest) > 1:
            counts["conflicts"] += 1
        elif labels[name] is None:
            counts["withdrawn"] += 1
        else:
            counts["used" if name < ROWS else "orphans"] += 1
    counts["null_ids"] = sum(name is None for name, _, _ in statements)
    counts["read"] = len(statements)
    counts["duplicates"] = len(statements) - counts["null_ids"] - sum(map(len, by_id.values()))
    return labels, counts


ids = st.one_of(st.none(), st.integers(0, ROWS + 10))
statement = st.tuples(ids, st.integers(0, 3), st.sampled_from([0, 1, None]))


@settings(max_examples=60)  # an example makes two runs
@given(
    st.lists(statement, max_size=60), st.booleans(), st.sampled_from(["int64", "uint32", "string"]), st.integers(1, 3),
    st.booleans(), st.sampled_from([None, "1kB"]),
)  # fmt: skip
def test_labels_of_another_table_equal_a_label_column(
    statements: list[Statement], timed: bool, kind: str, parts: int, own: bool, memory: str | None
) -> None:
    """In any division and order, with duplicates, corrections, withdrawals, conflicts and orphans; in any memory."""
    statements = [(0, 0, 1), (1, 0, 0), *((name, time if timed else 0, label) for name, time, label in statements)]
    before = {i: i % 2 for i in range(0, ROWS, 3)} if own else {}
    labels, counts = truth(statements, before)
    names, times, given_labels = zip(*statements, strict=True)
    late = table(
        pa.array(names, pa.int64()).cast(kind), pa.array(given_labels, pa.int8()), t=pa.array(times, pa.timestamp("s"))
    )
    late = late.take(np.random.default_rng(len(names)).permutation(len(names)))
    data = DATA.append_column("label", pa.array([before.get(i) for i in range(ROWS)], pa.int64())) if own else DATA
    cuts = [late.slice(i * late.num_rows // parts, late.num_rows // parts + 1) for i in range(parts)]
    pieces = [late] if parts == 1 else [one.rename_columns(["id", "label", "t"]) for one in cuts]
    if parts > 1:  # the parts overlap by a statement: it is read twice and counts once
        extra = sum(one.num_rows for one in pieces) - late.num_rows
        rest = late.slice(parts * (late.num_rows // parts) + 1)
        pieces += [rest] if rest.num_rows else []
        extra += rest.num_rows
        nulls = sum(one["id"].null_count for one in pieces)
        counts |= {
            "read": counts["read"] + extra,
            "duplicates": counts["duplicates"] + extra - (nulls - counts["null_ids"]),
            "null_ids": nulls,
        }
    late = {"labels": pieces, "on": "id", "label_time": "t" if timed else None, "label_conflicts": "drop"}
    found = evaluate(data, **WHAT, **late, threads=2, memory=memory)
    column = pa.array([labels.get(i) for i in range(ROWS)], pa.int64())
    assert values(found) == values(evaluate(DATA.append_column("label", column), **WHAT, unlabelled="size"))
    assert {name: found.labels[name] for name in counts} == counts
    assert found.labels["labelled_rows"] == ROWS - column.null_count


KEYS = [uuid.UUID(int=7 + i) for i in range(ROWS)]
FORMS: dict[str, tuple[pa.Array, pa.Array]] = {
    "integer and text": (pa.array(range(ROWS)), pa.array(list(map(str, range(ROWS))))),
    "decimal and integer": (pa.array(map(Decimal, range(ROWS)), pa.decimal128(20, 0)), pa.array(range(ROWS))),
    "signed and unsigned": (pa.array(range(ROWS), pa.int64()), pa.array(range(ROWS), pa.uint64())),
    "uuid and text": (pa.array([k.bytes for k in KEYS], pa.uuid()), pa.array(list(map(str, KEYS)))),
    "uuid and uuid": (pa.array([k.bytes for k in KEYS], pa.uuid()), pa.array([k.bytes for k in KEYS], pa.uuid())),
    "binary and dictionary": (
        pa.array([b"x%d" % i for i in range(ROWS)]), pa.array([f"x{i}" for i in range(ROWS)]).dictionary_encode()
    ),
    "dictionary of integers": (pa.array(range(ROWS)).dictionary_encode(), pa.array(range(ROWS), pa.int8())),
    "date and text": (
        pa.array([date(2026, 1, 1) + timedelta(i) for i in range(ROWS)]),
        pa.array([str(date(2026, 1, 1) + timedelta(i)) for i in range(ROWS)]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_ids_match_by_value(form: str, tmp_path: Path) -> None:
    """Across types, in memory and in files, in both directions."""
    label = np.arange(ROWS) % 2
    expected = values(evaluate(DATA.append_column("label", pa.array(label)), **WHAT))
    for ours, theirs in (FORMS[form], FORMS[form][::-1]):
        pq.write_table(DATA.set_column(0, "id", ours), tmp_path / "data.parquet")
        pq.write_table(table(theirs, label).take(pa.array(np.arange(ROWS)[::-1])), tmp_path / "labels.parquet")
        found = evaluate(tmp_path / "data.parquet", **WHAT, labels=tmp_path / "labels.parquet", on="id")
        assert values(found) == expected
        assert found.labels["used"] == ROWS
        assert found.results[0].basis is None  # every row has a label


def test_leading_zeros_and_nulls_match_nothing() -> None:
    """The integer 7 equals "7" alone; a null id matches no null."""
    data = DATA.set_column(0, "id", pa.array([None, *range(1, ROWS)]))
    late = table(["007", "8", None, "+9", "10.0", "11"], [1, 0, 1, 1, 1, 1])
    found = evaluate(data, **WHAT, labels=late, on="id")
    assert found.labels == {
        "read": 6, "duplicates": 0, "null_ids": 1, "superseded": 0, "later": 0, "withdrawn": 0, "conflicts": 0,
        "used": 2, "orphans": 3, "labelled_rows": 2, "rows_without_id": 1,
    }  # fmt: skip


def test_several_columns_must_all_agree() -> None:
    """Columns may have other names in the labels, and other types."""
    a, b = np.arange(ROWS) // 8, np.arange(ROWS) % 8
    data = DATA.append_column("a", pa.array(a)).append_column("b", pa.array(list(map(str, b))))
    label = np.arange(ROWS) % 3 // 2
    late = pa.table({"x": pa.array(a, pa.int16()), "b": b, "y": label})
    crossed = pa.table({"x": b[:8], "b": a[:8] + 50, "y": np.ones(8, np.int64)})
    expected = values(evaluate(DATA.append_column("label", pa.array(label)), **WHAT))
    for on in ("a=x,b", ["a=x", "b"], "b, a = x"):
        found = evaluate(data, **WHAT, label="y", labels=[late, crossed], on=on)
        assert values(found) == expected
        assert found.labels["orphans"] == 8


def test_times_files_and_dates_decide() -> None:
    """The later time wins, an as-of date includes its end, and among equal times the file that was named last."""
    at = [datetime(2026, 1, day, hour, tzinfo=UTC) for day, hour in ((1, 0), (2, 23), (3, 0))]
    late = table([0, 0, 0, 1], [0, 1, None, 0], t=pa.array([*at, at[0]], pa.timestamp("ns", "Europe/Berlin")))

    def positives(until: Any) -> tuple[int | None, int]:
        found = evaluate(DATA, score="s", labels=late, on="id", label_time="t", labels_as_of=until)
        return found.positives, found.labels["labelled_rows"]

    assert positives(None) == (0, 1)
    assert positives("2026-01-02") == positives(date(2026, 1, 2)) == positives(at[1]) == (1, 2)
    assert positives("2026-01-02T22:59:59.999999") == positives("2026-01-03T00:29+01:30") == (0, 2)
    first, second = table([0, 1], [0, 1]), table([0], [1])
    latest = evaluate(DATA, score="s", labels=[first, second, second], on="id", label_conflicts="latest")
    assert [latest.positives, latest.labels["superseded"], latest.labels["duplicates"]] == [2, 1, 1]
    with pytest.raises(
        LabelError,
        match="the Table: 1 id with different labels in one delivery: 0; name a column of times with label_time",
    ):
        evaluate(DATA, score="s", labels=pa.concat_tables([first, second]), on="id", label_conflicts="latest")


def test_every_output_tells_of_labelled_rows() -> None:
    """Results, tables, pages and headers; metrics that use no label say nothing."""
    data = DATA.append_column("k", pa.array(CLUSTERS // 2))
    late = table([0, 1, 2, 3], [0, 1, 1, 0])
    found = evaluate(data, **WHAT, classes="k", labels=late, on="id", by="k", ci=0.95)
    for result in found.results:
        labelled = result.positives is not None
        assert (result.basis == "labelled rows") == labelled
        assert result.labelled_share == (0.1 if labelled and result.slice is None else None)
    assert {"basis", "labelled_share"} <= set(found.to_arrow().column_names)
    assert found.to_dict()["labels"]["labelled_rows"] == 4
    header = "40 rows, 4 labelled (10.00%), 2 positive (50.00% of labelled)"
    said = "of the 10.00% labelled rows, not an estimate"
    assert str(found).startswith(header)
    assert said in str(found)
    assert said in found.to_html()
    assert header.removeprefix("40 rows, ") in found.to_html()
    assert said in found._repr_html_()


def test_a_rule_on_an_interval_admits_that_labels_are_few() -> None:
    """The interval is of rows like the labelled ones; a rule on the value, or with all labels, needs no words."""
    few, every = (table(np.arange(rows), np.arange(rows) % 2) for rows in (ROWS // 2, ROWS))
    found = evaluate(DATA, score="s", labels=few, on="id", ci=0.95)
    admitted = found.judge(["roc_auc[s] >= 0.01 of labelled proven @95%", "roc_auc[s] >= 0.01"])
    assert [one.outcome for one in admitted.judgements] == ["passed", "passed"]
    for rule in ("roc_auc[s] >= 0.01 proven @95%", "roc_auc >= 0.01 @95%"):
        with pytest.raises(OptionError, match="proves nothing about the others: write 'of labelled' after the bound"):
            found.judge(rule)
        assert evaluate(DATA, score="s", labels=every, on="id", ci=0.95).judge(rule).passed


def test_the_command_line_takes_the_same_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two files of labels, a time, a file of rejects; the command of the page repeats it."""
    pq.write_table(DATA, tmp_path / "data.parquet")
    day = date(2026, 1, 1)
    pq.write_table(table([0, 1, 99], [0, 1, 1], t=[day] * 3), tmp_path / "a.parquet")
    pq.write_table(table([0, 1, None], [1, 0, 1], t=[day, day + timedelta(1), day]), tmp_path / "b.parquet")
    paths = [str(tmp_path / name) for name in ("data.parquet", "a.parquet", "b.parquet", "rejects.csv")]
    late = ["--labels", paths[1], "--labels", paths[2], "--on", "id", "--label-time", "t", "--label-conflicts", "drop"]
    main(["evaluate", paths[0], "--score", "s", *late, "--rejects", paths[3], "--json", "-"], standalone_mode=False)
    said = capsys.readouterr().out
    assert '"conflicts": 1' in said
    assert '"basis": "labelled rows"' in said
    rejects = (tmp_path / "rejects.csv").read_text().splitlines()
    assert rejects == [
        '"id","label","t","reason"', '0,0,2026-01-01,"conflict"', '1,1,2026-01-01,"superseded"',
        '99,1,2026-01-01,"no row"', '0,1,2026-01-01,"conflict"', ',1,2026-01-01,"null id"',
    ]  # fmt: skip
    found = evaluate(paths[0], score="s", labels=paths[1:3], on="id", label_time="t", label_conflicts="drop")
    assert found.source.command.endswith(" ".join(late))


def test_attribution_takes_late_labels() -> None:
    """Impure clusters and slices of the labelled rows are those of a label column."""
    label = pa.array([int(i % 3 == 0) if i % 4 else None for i in range(ROWS)])
    late = table(np.arange(ROWS), label)
    for what in ({"cluster": "c"}, {"score": "s", "by": "c"}):
        column = DATA.append_column("label", label)
        expected = attribute(column, **what, label="label", unlabelled="drop") if "cluster" in what else None
        found = attribute(DATA, **what, labels=late, on="id")
        assert found.labels["withdrawn"] == ROWS // 4
        if expected is not None:
            assert (found.impure, found.totals, found.dropped) == (expected.impure, expected.totals, expected.dropped)
        assert (found.basis, found.labelled_share) == ("labelled rows", 0.75)
        assert "labelled: 75.00% of all" in found.to_html()


ERRORS: dict[str, tuple[type[Exception], dict[str, Any], str]] = {
    "float id": (SchemaError, {"on": "s=id"}, "column 's' has type double, .*: cast to integers"),
    "boolean id": (SchemaError, {"on": "id=flag"}, "column 'flag' has type bool"),
    "null time": (NullError, {"label_time": "t"}, "label_time column 't' has nulls; give every statement a time"),
    "no time": (SchemaError, {"label_time": "flag"}, "label_time column 'flag' has type bool; .*cast it"),
    "not a time": (OptionError, {"labels_as_of": "yesterday"}, "is not a time; write 2026-01-31"),
    "rejects": (OptionError, {"rejects": "x.txt"}, "end it in .csv or .parquet"),
    "filter": (OptionError, {"where": "label = 1"}, "cannot filter or slice rows"),
    "many labels": (LabelError, {"label": "many"}, "more than 200 labels"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_name_the_remedy(case: str) -> None:
    """One line each, before anything is evaluated; `test_remedies.py` has others, and tries what they advise."""
    kind, options, message = ERRORS[case]
    size = 300
    late = table(
        np.append(np.arange(size - 1), 1), np.append(np.zeros(size - 1, np.int64), 1),
        t=pa.array([None] * size, pa.timestamp("s")), flag=[True] * size, far=np.arange(size) + 1000,
        many=np.arange(size), day=pa.array([0] * size, pa.date32()),
    )  # fmt: skip
    with pytest.raises(kind, match=message):
        evaluate(DATA, **{"score": "s", "labels": late, "on": "id", **options})


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_parts_change_nothing(kind: str, tmp_path: Path) -> None:
    """Labels beyond the memory: slices, sketches, filters, attribution, several tasks; conflicts are listed."""
    rng, rows = np.random.default_rng(5), 300
    names = pa.array(rng.permutation(rows) % 200).cast(kind)
    data = pa.table({"id": names, "s": rng.normal(size=rows), "c": rng.integers(0, 40, rows), "k": np.arange(rows) % 3})
    for i in range(3):
        pq.write_table(data.slice(i * 100, 100), tmp_path / f"{i}.parquet", row_group_size=30)
    ids, day = rng.integers(0, 250, 400), pa.array(rng.integers(0, 3, 400), pa.timestamp("s"))
    late = {"labels": table(pa.array(ids).cast(kind), rng.integers(0, 2, 400), t=day), "on": "id", "label_time": "t"}
    dropped: dict[str, Any] = {**late, "label_conflicts": "drop"}
    engine = start(memory="12kB", threads=2)
    source = LateSource([late["labels"]], (("id", "id"),), "label", "t", conflicts="drop")
    statements = read_labels(source, scan.plan(tmp_path, ["id"]), engine)
    assert statements.late.parts is not None
    for what in (
        WHAT | {"by": "k", "where": "s > -1"},
        {"score": "s", "approx": True},
        {"score": "s", "ci": 0.95},
    ):
        expected = evaluate(tmp_path, **what, **dropped, threads=1)
        for threads in (1, 2):
            found = evaluate(tmp_path, **what, **dropped, memory="12kB", threads=threads)
            assert (repr(found.results), found.labels) == (repr(expected.results), expected.labels)
    several = [attribute(tmp_path, cluster="c", **dropped, memory=memory) for memory in (None, "12kB")]
    assert several[0].to_dict()["impure"] == several[1].to_dict()["impure"]
    said = []
    for memory in (None, "12kB"):
        with pytest.raises(LabelError, match="ids with different labels at one time: ") as raised:
            evaluate(tmp_path, **WHAT, **late, memory=memory)
        said.append(str(raised.value).split(": ")[:2])
    assert said[0] == said[1]


def test_what_does_not_fit_or_match_can_be_allowed(tmp_path: Path) -> None:
    """The memory holds a filter, or all statements that are to be listed; labels of no row leave all without one."""
    many = {"labels": table(np.arange(100_000), np.zeros(100_000)), "on": "id"}
    with pytest.raises(OptionError, match=r"more than the memory .*give memory=\d+MiB \(--memory\), or leave out rej"):
        evaluate(DATA, score="s", **many, memory="8MiB", rejects=str(tmp_path / "rejects.csv"))
    with pytest.raises(OptionError, match=r"filter of 100,000 ids .*: give memory=1MiB \(--memory\)"):
        evaluate(DATA, score="s", **many, memory="500kB")
    assert evaluate(DATA, score="s", **many, memory="1MiB").labels["used"] == ROWS
    found = evaluate(DATA, score="s", labels=table([1000], [1]), on="id", allow_unmatched=True)
    assert (found.rows, found.positives, found.labels["orphans"]) == (ROWS, 0, 1)
    withdrawn = evaluate(DATA, score="s", labels=table([0], pa.nulls(1)), on="id")
    assert replace(withdrawn.results[0], reason=None) == replace(found.results[0], reason=None)


def test_a_label_column_in_some_files_is_refused(tmp_path: Path) -> None:
    """In all files it is the earliest statement; labels of some files alone would be forgotten in silence."""
    labelled = DATA.append_column("label", pa.array(np.arange(ROWS) % 2))
    for first, second in ((DATA, labelled), (labelled, DATA)):
        pq.write_table(first, tmp_path / "a.parquet")
        pq.write_table(second, tmp_path / "b.parquet")
        with pytest.raises(DataError, match="column 'label' is in some files only"):
            evaluate(tmp_path, score="s", labels=table([0], [1]), on="id")


def test_numbers_are_one_type_and_empty_tables_say_nothing(tmp_path: Path) -> None:
    """Floats instead of nulls beside integers, as pandas writes them; a table without rows or labels is no error."""
    own = pa.array([None if i % 2 else i % 4 // 2 for i in range(ROWS)], pa.float64())
    pq.write_table(table(pa.array([], pa.int64()), pa.array([], pa.int64())), tmp_path / "none.parquet")
    late = [table([1], pa.array([1.0])), tmp_path / "none.parquet", table([3], pa.array([0])), table([5], pa.nulls(1))]
    for kind in (pa.int64(), pa.float64()):
        found = evaluate(DATA.append_column("label", own.cast(kind)), score="s", labels=late, on="id")
        assert [found.labels[name] for name in ("read", "used", "withdrawn", "labelled_rows")] == [
            3,
            2,
            1,
            ROWS // 2 + 2,
        ]
    empty = evaluate(DATA, score="s", labels=tmp_path / "none.parquet", on="id")
    assert (empty.rows, empty.labels["read"], empty.labels["labelled_rows"]) == (ROWS, 0, 0)
