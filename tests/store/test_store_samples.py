"""Stores of sampled labels: nights add up to the estimates of one evaluation, single nights, and what is refused."""

from datetime import date
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files import put
from refusals import refuses

from streameval import Store, evaluate
from streameval.errors import LabelError, OptionError
from streameval.results import Scalar
from streameval.store.nights.history import History

METRICS: dict[str, Any] = {"score": ["s", "t"], "metrics": ["roc_auc", "brier_score"], "at": "threshold=0.5"}
DESIGNS: tuple[dict[str, Any], ...] = (
    {"sampled_by": "uniform"},
    {"sampled_by": "strata=night"},
    {"sampled_by": "strata=kind", "label_probability": "p"},
    {"sampled_by": "size", "unit": "unit"},
)


def table(**columns: Any) -> pa.Table:
    """2,000 rows of 300 units over four nights; a fifth is labelled, or every row of every third unit."""
    rng = np.random.default_rng(3)
    score, unit = rng.random(2000).astype(np.float32), rng.integers(0, 300, 2000)
    truth, labelled = (rng.random(2000) < score).astype(np.int8), rng.random(2000) < 0.2
    unit[rng.permutation(2000)[:200]] = 0  # is certain to be drawn
    labelled = unit % 3 == 0 if "unit" in columns else labelled
    kind = np.array(["a", "b"])[rng.integers(0, 2, 2000)]
    return pa.table({
        "label": pa.array(truth, mask=~labelled), "s": score, "t": 1 - score.astype(np.float64) ** 2, "unit": unit,
        "kind": kind, "p": pa.array(np.full(2000, 0.2), mask=~labelled), "night": np.arange(2000) % 4 + 1,
    })  # fmt: skip


def land(rows: pa.Table, folder: Path, before: str = "night=") -> Path:
    """Write the nights of a table, whose names are a text and a number."""
    for night in range(1, 5):
        path = folder / f"{before}{night}"
        put(path / "p.parquet", rows.filter(pa.array(rows["night"].to_numpy() == night)).drop_columns("night"))
    return folder


@pytest.mark.parametrize("design", DESIGNS)
def test_nights_add_up_to_one_evaluation(design: dict[str, Any], tmp_path: Path) -> None:
    """To the last bit, with strata and their weights, in two updates; vacuum changes nothing."""
    data = land(table(**design), tmp_path / "data")
    whole: dict[str, Any] = evaluate(data, **METRICS, **design).to_dict()
    store = Store(tmp_path / "store")
    store.update([data / f"night={night}" for night in (1, 2, 3)], **METRICS, **design)
    store.update(data)
    facts = ("results", "label_strata", "counts", "rows", "positives", "labels", "options")
    for _ in range(2):
        shown: dict[str, Any] = store.evaluate().to_dict()
        assert {name: shown[name] for name in facts} == {name: whole[name] for name in facts}
        store.vacuum(grace="0s")
    assert shown["results"][0]["design"] == {"uniform": "uniform", "size": "unit by size"}.get(
        design["sampled_by"], shown["results"][0]["design"]
    )
    history = cast("History", store.history("roc_auc", "s"))
    values = history.points
    assert str(history).count("Estimated from ") == 1  # of all nights
    assert cast("Scalar", values[-1].cumulative).to_dict() == whole["results"][0]
    assert all(point.night.labelled and point.night.design for point in values)


def test_units_are_drawn_from_all_nights(tmp_path: Path) -> None:
    """In one night, a unit of a rows in all has the weight of all of them; one night cannot be labelled alone."""
    design = DESIGNS[3]
    rows = table(**design)
    store, folder = Store(tmp_path / "store"), land(rows, tmp_path / "data")
    store.update(folder, **METRICS, **design)
    labelled = rows["label"].is_valid().to_numpy()
    sizes = np.bincount(rows["unit"].to_numpy())
    drawn, left, limit = int((np.bincount(rows["unit"].to_numpy(), labelled) > 0).sum()), len(rows), np.inf
    for size in sorted(sizes.tolist(), reverse=True):
        if size * drawn < left:
            break
        limit, drawn, left = size, drawn - 1, left - size
    there = labelled & (rows["night"].to_numpy() == 4)
    each = sizes[rows["unit"].to_numpy()[there]]
    weights = np.where(each >= limit, 1.0, left / drawn / each)
    strata = store.evaluate(last=1).label_strata
    assert sum(one.weight for one in strata) == pytest.approx(weights.sum(), rel=1e-12)
    history = cast("History", store.history("roc_auc", "s"))
    assert history.points[-1].night.value == store.evaluate(last=1).value("roc_auc", "s")
    part = rows.set_column(0, "label", pa.array(rows["label"].to_numpy(zero_copy_only=False), mask=~there))
    again = Store(tmp_path / "again")
    again.update(land(part.cast(rows.schema), tmp_path / "part"), **METRICS, **design)
    refuses(LabelError, "labelled in part", again.evaluate, last=1)


def test_late_labels_are_a_sample(tmp_path: Path) -> None:
    """Their estimates are those of a label column: in open and closed nights, in nights opened again, and by age."""
    rows = table(**DESIGNS[3]).append_column("id", pa.array(range(2000)))
    labels = rows.filter(rows["label"].is_valid()).select(["id", "label"])
    pq.write_table(labels.append_column("at", pa.array([date(2026, 1, 2)] * len(labels))), tmp_path / "labels.parquet")
    data, late = land(rows.drop_columns("label"), tmp_path / "data", "night=2026-01-0"), tmp_path / "labels.parquet"
    design = DESIGNS[3] | {"on": "id", "label_time": "at", "labels_open": "1d"}
    whole = evaluate(data, **METRICS, **DESIGNS[3], labels=late, on="id", label_time="at")
    store = Store(tmp_path / "store", threads=1)
    store.update([data / f"night=2026-01-0{night}" for night in (1, 2)], **METRICS, **design)
    store.update(labels=late)
    assert len(store.update(data).closed) == 2
    for opened in (2, 0):
        assert store.evaluate().to_dict()["results"] == whole.to_dict()["results"]
        ages = store.maturity("roc_auc", of="s", ages=[1]).rows
        assert [row.change for row in ages] == [0] * 4
        assert len(store.add(labels_open="9d", label_conflicts="latest", data=data).changed) == opened
    refuses(OptionError, r"weight='t'.*create another store", store.update, data, weight="t")


def test_rules_on_positives_of_a_sample_are_those_of_data(tmp_path: Path) -> None:
    """They count the labelled ones; their share is not that of all rows, which no verb takes it for."""
    data, design = land(table(), tmp_path / "data", "night=2026-01-0"), DESIGNS[0]
    found, store = evaluate(data, **METRICS, **design), Store(tmp_path / "store")
    store.update(data, **METRICS, **design)
    known = found.labels["labelled_positives"]
    assert [one.outcome for one in found.judge([f"positives == {known}", f"positives > {known}"]).judgements] == [
        "passed",
        "failed",
    ]
    nights = [evaluate(path, **METRICS, **design).labels["labelled_positives"] for path in sorted(data.iterdir())]
    for night, positives in zip(sorted(path.name for path in data.iterdir()), nights, strict=True):
        assert store.check([f"positives == {positives}"], partition=night).passed
    share = "positives >= 1%"
    for verb in (lambda: found.judge([share]), lambda: store.check([share])):
        with pytest.raises(OptionError, match="the share of positives among sampled labels"):
            verb()
    late = table().append_column("id", pa.array(range(2000)))
    labels, rows = late.filter(late["label"].is_valid()).select(["id", "label"]), late.drop_columns("label")
    found = evaluate(rows, **METRICS, **design, labels=labels, on="id")
    assert found.labels["labelled_positives"] == known
    assert found.judge([f"positives == {known}"]).passed


def test_what_a_sample_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    """Slices, clusters, weights, another design, columns of the design, and comparisons; drift has values alone."""
    data, store = land(table(**DESIGNS[3]), tmp_path / "data"), Store(tmp_path / "store")
    for more in ({"by": "kind"}, {"weight": "t"}, {"approx": True}, {"unlabelled": "drop"}):
        refuses(OptionError, next(iter(more)), store.update, data, **METRICS, **DESIGNS[3], **more)
    refuses(OptionError, "its numbers are not strata", store.update, data, score="s", sampled_by="strata=t")
    store.update(data, **METRICS, **DESIGNS[3])
    for verb in (
        lambda: store.update(data, sampled_by="uniform"),
        lambda: store.remove(columns="unit"),
        lambda: store.add(by="kind"),
        lambda: store.add(cluster="unit"),
        lambda: store.evaluate(baseline="t"),
        lambda: store.vacuum(keep="1d"),
        lambda: store.evaluate(against="2026-01-01..2026-01-02"),
    ):
        refuses(OptionError, r"sampled|says how|estimates", verb)
    for verb in (lambda: store.evaluate(cluster="unit"), lambda: store.maturity("roc_auc")):  # adding is refused
        refuses(OptionError, r"; create (another store|one with it)$", verb)
    refuses(OptionError, "leave out where", store.evaluate, where="kind = 'a'")
    for verb in (lambda: store.evaluate(by="kind"), lambda: store.history("roc_auc", by="kind")):
        refuses(OptionError, "sampled labels have none", verb)
    assert len(store.add(score="p", nan="drop", data=data).changed) == 4
