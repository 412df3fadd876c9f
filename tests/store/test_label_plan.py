"""Plans of labels: allocation, draw, what is written, and what is refused."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from refusals import refuses

from streameval import Store, evaluate, plan_labels
from streameval.errors import LabelError, NullError, OptionError

if TYPE_CHECKING:
    from pathlib import Path

    from streameval.evaluation.labels.plan import LabelPlan

PURPOSE = "precision@threshold=0.8"


def pilot(n: int = 30_000, labels: int = 1000, seed: int = 0) -> pa.Table:
    """Ids, scores, and labels of a uniform sample."""
    rng = np.random.default_rng(seed)
    score = rng.random(n) ** 3
    truth = (rng.random(n) < score).astype(np.int8)
    mask = np.ones(n, bool)
    mask[rng.choice(n, labels, replace=False)] = False
    ids = pa.array([f"m{i}" for i in range(n)])
    return pa.table({"id": ids, "s": score, "label": pa.array(truth, mask=mask), "truth": truth})


def test_a_plan_is_reproducible_and_keeps_its_budget() -> None:
    """Row order and threads change nothing; π = n/N of each stratum; strata near the threshold get most labels."""
    data = pilot()
    plan = plan_labels(data, id="id", score="s", for_=PURPOSE, budget=600)
    shuffled = data.take(pa.array(np.random.default_rng(1).permutation(len(data))))
    again = plan_labels(shuffled, id="id", score="s", for_=PURPOSE, budget=600, threads=1)
    assert set(plan.ids["id"].to_pylist()) == set(again.ids["id"].to_pylist())
    assert abs(len(plan.ids) - 600) <= 5 * len(plan.strata)
    by_name = {one["stratum"]: one for one in plan.strata}
    drawn = plan.ids.group_by("stratum").aggregate([("id", "count"), ("probability", "max")]).to_pylist()
    for one in drawn:
        stratum = by_name[one["stratum"]]
        assert one["id_count"] == stratum["labels"]
        assert one["probability_max"] == stratum["labels"] / stratum["rows"]
    beyond = [one for one in plan.strata if "0.8 <=" in one["stratum"] or "< 0.8" not in one["stratum"]]
    assert sum(one["labels"] for one in plan.strata[:1]) / plan.strata[0]["rows"] > 0.02
    assert beyond


def test_half_of_the_budget_is_for_the_ranking_that_is_wanted_as_well() -> None:
    """It is in proportion to the rows; the other half is all for the other metric, of which a plan alone has 0.9."""
    data = pilot()
    alone, both = (
        plan_labels(data, id="id", score="s", for_=names, budget=600).strata
        for names in ([PURPOSE], [PURPOSE, "roc_auc"])
    )
    rows, labels, found = (np.array([one[name] for one in plan], np.float64) for plan, name in (
        (alone, "rows"), (alone, "labels"), (both, "labels")
    ))  # fmt: skip
    share = (labels / 600 - 0.1 * np.sqrt(rows) / np.sqrt(rows).sum()) / 0.9
    expected = np.maximum(5, 600 * (share + rows / rows.sum()) / 2)
    np.testing.assert_allclose(found, expected, atol=5)


def test_planned_labels_are_read_back_and_narrow_the_interval() -> None:
    """The forecast is about the half-width that the labels then give, and below that of as many uniform labels."""
    data = pilot()
    plan = plan_labels(data, id="id", score="s", for_=PURPOSE, budget=1000)
    chosen = dict(zip(plan.ids["id"].to_pylist(), plan.ids["probability"].to_pylist(), strict=True))
    p = [chosen.get(name) for name in data["id"].to_pylist()]
    label = pa.array(data["truth"].to_numpy(), mask=np.array([each is None for each in p]))
    planned = data.set_column(2, "label", label).append_column("p", pa.array(p, pa.float64()))
    found = evaluate(planned, score="s", metrics=PURPOSE, label_probability="p").results[0]
    uniform = evaluate(data, score="s", metrics=PURPOSE, sampled_by="uniform").results[0]
    truth = evaluate(data, score="s", label="truth", metrics=PURPOSE).value(PURPOSE)
    sample = evaluate(planned, score="s", metrics="roc_auc", at="threshold=0.8", label_probability="p")
    assert len(sample.label_strata) >= len(plan.strata)  # none is joined with one of another probability
    assert float(found.stderr or 9) < 0.8 * float(uniform.stderr or 0)
    assert abs(found.value - truth) < 4 * float(found.stderr or 0)
    assert plan.half_width[PURPOSE] == pytest.approx(1.96 * float(found.stderr or 0), rel=0.1)


def labelled_plan(data: pa.Table, plan: LabelPlan) -> pa.Table:
    """A plan as it comes back, with the labels of its ids."""
    places = [int(name[1:]) for name in plan.ids["id"].to_pylist()]
    return plan.ids.append_column("label", data["truth"].take(pa.array(places)))


@pytest.mark.parametrize("given", [1.0, 0.8])
def test_strata_of_a_plan_follow_from_its_probabilities(given: float) -> None:
    """Values and intervals are those of a column of strata in all rows, at any threshold, with labels missing."""
    data = pilot(12_000)
    plan = plan_labels(data, id="id", score="s", for_=PURPOSE, budget=500)
    labels, rows = labelled_plan(data, plan), data.select(["id", "s"])
    missing = np.random.default_rng(2).random(len(labels)) > given
    labels = labels.set_column(3, "label", pa.array(labels["label"].to_numpy(), mask=missing))
    sizes = {one["stratum"]: one["rows"] for one in plan.strata}
    ordered = labels.join(rows, "id").group_by("stratum").aggregate([("s", "max")]).sort_by([("s_max", "descending")])
    names = np.repeat(ordered["stratum"].to_pylist(), [sizes[name] for name in ordered["stratum"].to_pylist()])
    column = np.empty(12_000, object)
    column[np.argsort(-data["s"].to_numpy())] = names
    everywhere = rows.append_column("stratum", pa.array(column, pa.string()))
    options: dict[str, Any] = {"score": "s", "metrics": ["roc_auc", "brier_score"], "sampled_by": "strata=stratum"}
    options |= {"at": ["threshold=0.8", "threshold=0.3", "share=0.1"], "on": "id", "label_probability": "probability"}
    found = evaluate(rows, labels=labels, **options)
    known = evaluate(everywhere, labels=labels.drop_columns("stratum"), **options)
    for one, other in zip((*found.results, *found.counts), (*known.results, *known.counts), strict=True):
        assert (one.metric, one.strata) == (other.metric, other.strata)
        for name in ("value", "stderr", "ci_lower", "ci_upper"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-10 if name != "value" else 1e-12)
    assert [one.rows for one in found.label_strata] == [one.rows for one in known.label_strata]
    with pytest.raises(LabelError, match=r"is null for .*once the probabilities are named as well"):
        evaluate(rows, labels=labels, **options | {"label_probability": None})
    others = rows.set_column(0, "id", pa.array([f"n{i}" for i in range(12_000)])).slice(0, 5)
    with pytest.raises(LabelError, match="else name the probabilities alone"):
        evaluate(pa.concat_tables([rows, others]), labels=labels, **options)


def test_repeated_ids_are_refused() -> None:
    """In a plan if both rows are held, else where labels are read, wherever the other row is."""
    data, refused = pilot(12_000), set()
    how: dict[str, Any] = {"id": "id", "score": "s", "for_": PURPOSE, "budget": 100}
    drawn = plan_labels(data, **how).ids.group_by("stratum", use_threads=False).aggregate([("id", "last")])
    ends = (int(end(data["s"].to_numpy())) for end in (np.argmin, np.argmax))
    for place, name in product(ends, drawn["id_last"].to_pylist()):
        ids = data["id"].to_pylist()
        ids[place] = name
        twice, said = data.set_column(0, "id", pa.array(ids)), ""
        try:
            labels = labelled_plan(data, plan_labels(twice, **how))
        except LabelError as error:
            said = str(error)
        else:
            if ids.count(name) == 1 or name not in labels["id"].to_pylist():
                continue
            with pytest.raises(LabelError) as caught:
                evaluate(twice.select(["id", "s"]), score="s", labels=labels, on="id", label_probability="probability")
            said = str(caught.value)
        refused.add(next(why for why in ("in several rows", "but rows were drawn one by one") if why in said))
    assert len(refused) == 2


def test_a_store_is_a_pilot(tmp_path: Path) -> None:
    """Its nights give the plan of their data, here a Delta version; other rows have strata of other sizes."""
    data = pilot()
    how: dict[str, Any] = {"id": "id", "score": "s", "for_": PURPOSE, "budget": 600}
    for night in range(3):
        folder = tmp_path / "data" / f"night={night}"
        folder.mkdir(parents=True)
        pq.write_table(data.slice(night * 10_000, 10_000), folder / "part.parquet")
    store = Store(tmp_path / "store")
    store.update(tmp_path / "data", score="s", sampled_by="uniform")
    plan, own = plan_labels(data, pilot=store.name, **how), plan_labels(data, **how)
    assert plan.ids.equals(own.ids)
    for rows in (data, data.slice(0, 5)):
        write_deltalake(str(tmp_path / "table"), rows, mode="overwrite")
    assert all(
        plan_labels(tmp_path / "table", delta_version=0, pilot=one, **how).ids.equals(own.ids)
        for one in (store.name, None)
    )
    assert (plan.strata, plan.half_width) == (own.strata, own.half_width)
    new = data.slice(0, 6000).select(["id", "s"])
    part = plan_labels(new, pilot=store.name, **how)
    assert sum(one["rows"] for one in part.strata) == 6000
    assert [one["pilot"] for one in part.strata] == [one["pilot"] for one in plan.strata]
    assert set(part.ids["id"].to_pylist()) <= set(new["id"].to_pylist())
    refuses(OptionError, "no column 't'", plan_labels, new, pilot=store.name, **how | {"score": "t"})
    refuses(OptionError, "label would change nothing", plan_labels, data, pilot=store.name, label="truth", **how)
    designs: dict[str, dict[str, Any]] = {"strata": {"sampled_by": "strata=truth"}, "none": {"unlabelled": "drop"}}
    for name, design in designs.items():
        Store(tmp_path / name).update(tmp_path / "data", score="s", **design)
        with pytest.raises(OptionError, match="the labels of a pilot are a uniform sample"):
            plan_labels(data, pilot=tmp_path / name, **how)


def test_a_pilot_of_few_positives_gives_no_forecast() -> None:
    """Below 50 labelled positives the half-width is NaN."""
    plan = plan_labels(pilot(labels=120), id="id", score="s", for_=[PURPOSE, "roc_auc"], budget=200)
    assert all(width != width for width in plan.half_width.values())


def test_ids_and_purposes_that_do_not_fit_are_refused() -> None:
    """Null ids, repeated ids, numbers of points, and data without labels."""
    data = pilot(2000, 400)
    nulls = data.set_column(0, "id", pa.array([None, *data["id"].to_pylist()[1:]]))
    refuses(NullError, "'id' has nulls", plan_labels, nulls, id="id", score="s", for_=PURPOSE)
    twice = data.set_column(0, "id", pa.array(["a"] * 2000))
    refuses(LabelError, "has 'a' in several rows", plan_labels, twice, id="id", score="s", for_=PURPOSE, budget=100)
    for name in ("agc@0.1", "f1_max", "precision@recall=0.9", "ece", "max_informedness"):
        with pytest.raises(OptionError, match=r"gets no interval from sampled labels: .*; name a threshold"):
            plan_labels(data, id="id", score="s", for_=name)
