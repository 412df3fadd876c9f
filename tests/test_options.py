"""The option table: signatures, checks, stores and keys agree with it; what a verb cannot honour it refuses by name."""

import inspect
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files import put
from refusals import refuses

from streameval import Store, attribute, churn, drift, evaluate, plan_labels, quantile_sketch, simulate
from streameval.errors import FormatError, OptionError
from streameval.evaluation import explain
from streameval.metrics.contingency.assignment import ASSIGNMENT_CELLS
from streameval.options import NEEDS, OPTIONS, complete_options, kept_options, record_options, result_key, verb_options
from streameval.store.nights.configuration import Configuration

NIGHTS = ("night=2026-01-01", "night=2026-01-02")
BASE: dict[str, Any] = {"score": ["s", "t"], "cluster": "id", "classes": "k"}
OTHER: dict[str, Any] = {  # a value of every option of `evaluate` that is not its default
    "label": "other",
    "score": "s",
    "cluster": "id",
    "sketch": "s",
    "classes": "k",
    "weight": "w",
    "pos_label": 0,
    "classes_of_label": ["0", "1"],
    "metrics": ["roc_auc", "aul"],
    "truncate": [0.1, 20],
    "aul_threshold": 2,
    "clip": 0.01,
    "assignment_cells": 5,
    "at": "fpr=0.1",
    "nan": "drop",
    "nulls": "singleton",
    "unlabelled": "size",
    "labels": str(Path(tempfile.gettempdir()) / "streameval-labels.parquet"),  # written by `data`
    "on": "id=id",
    "label_time": "at",
    "labels_as_of": "2026-01-02",
    "label_conflicts": "drop",
    "rejects": str(Path(tempfile.gettempdir()) / "streameval-rejects.csv"),
    "allow_unmatched": True,
    "sampled_by": "uniform",
    "label_probability": "p",
    "classes_sampled": "size",
    "clusters_sampled": "size",
    "cluster_scope": "partition",
    "common_rows": True,
    "where": "id > 3",
    "by": "c",
    "timezone": "Europe/Berlin",
    "mean_over": "id",
    "mean_weight": "equal",
    "max_slices": 5_000,
    "ci": 0.9,
    "unit": "id",
    "baseline": "s",
    "against": "rest",
    "resample_bins": 512,
    "approx": True,
    "approx_agc": True,
    "sample": 0.5,
    "quantiles": 10,
    "sample_by": "row_groups",
    "sample_seed": 7,
    "passes": 1,
    "memory": "64MiB",
    "spill": tempfile.gettempdir(),
    "on_error": "skip",
    "delta_version": 0,
    "snapshot": 1,
    "threads": 1,
    "client": "tcp://127.0.0.1:1",
    "scheduler_timeout": 5.0,
    "progress": lambda *_: None,
}
MORE: dict[str, Any] = {  # the same of every other option of the table
    "partition": "night=2026-01-01",
    "against": "2026-01-01..2026-01-01",
    "since": "2026-01-01",
    "until": "2026-01-02",
    "last": 1,
    "as_of": 0,
    "verify": True,
    "dry_run": True,
    "keep": "1d",
    "grace": "2d",
    "versions": "90d",
    "forget": "30d",
    "metric": "aul",
    "of": "id",
    "rules": "aul[id] >= 0",
    "again": True,
    "mature": "3d",
    "labels_open": "30d",
    "ages": (1, 2),
    "allow_incomplete": True,
    "storage_options": {},
    "columns": "t",
    "column": "s",
    "compression": 50,
    "changed_from": "w",
    "top": 5,
    "examples": "s",
    "examples_per": 1,
    "adjust": "family",
    "from_": "id",
    "id": "n",
    "for_": "precision@threshold=0.5",
    "budget": 20,
    "pilot": "pilot",
    "least": 1,
}
ELSEWHERE = ("client", "scheduler_timeout", "delta_version", "snapshot")  # of clusters and tables
ENGINE = ("memory", "spill", "threads", "client", "scheduler_timeout", "progress")  # of Store(…), for all its verbs


def needed(name: str) -> dict[str, Any]:
    """The inputs besides those of `BASE` without which `evaluate` refuses another value of an option."""
    sources = {NEEDS[o.needs][0] for o in OPTIONS if o.name == name and o.needs and "evaluate" in o.verbs}
    inputs = {source: OTHER[source] for source in sources - set(BASE)}
    inputs |= {"on": "id"} if name in ("labels", "labels_open") or "labels" in inputs else {}
    inputs |= {"label_time": "at"} if name == "labels_as_of" else {}
    inputs |= {"by": "hour(sent)"} if name == "timezone" else {}
    return inputs | ({"ci": 0.9} if name == "resample_bins" else {})


def base_of(name: str) -> dict[str, Any]:
    """The inputs beside an option: clusters and classes, whose metrics take longest, only where it is about them."""
    needs = {NEEDS[o.needs][0] for o in OPTIONS if o.name == name and o.needs}
    about = ("metrics", "cluster", "classes", "unlabelled", "classes_sampled", "clusters_sampled")
    return BASE if needs & {"cluster", "classes"} or name in about else {"score": BASE["score"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nights with two scores, clusters, classes, weights and two label columns."""
    folder, rng = tmp_path_factory.mktemp("options"), np.random.default_rng(5)
    for night in NIGHTS:
        rows = 200
        table = {
            "label": rng.integers(0, 2, rows),
            "other": rng.integers(0, 2, rows),
            "s": rng.random(rows),
            "t": rng.random(rows),
            "w": rng.random(rows) + 0.5,
            "id": rng.integers(0, 30, rows),
            "k": rng.integers(0, 20, rows),
            "c": np.arange(rows) % 3,
            "p": np.ones(rows),
            "sent": pa.array(rng.integers(0, 10**6, rows), pa.timestamp("s", "UTC")),
            "n": np.arange(rows) + rows * NIGHTS.index(night),
        }
        put(folder / night / "part-0.parquet", table)
    late = {"id": range(30), "label": [0, 1] * 15, "other": [0, 1] * 15, "at": [date(2026, 1, 1)] * 30}
    pq.write_table(pa.table(late), OTHER["labels"])
    return folder


@pytest.fixture(scope="module")
def folded(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of both nights, to be copied."""
    folder = tmp_path_factory.mktemp("folded")
    Store(folder / "store").update(data, **BASE)
    return folder / "store"


@pytest.fixture
def store(folded: Path, tmp_path: Path) -> Store:
    """A store of both nights."""
    shutil.copytree(folded, tmp_path / "store")
    return Store(tmp_path / "store")


def test_the_signature_of_evaluate_is_the_table() -> None:
    """Names, order and defaults; `explain` has the same."""
    parameters = list(inspect.signature(evaluate).parameters.values())[1:]
    assert [(p.name, p.default) for p in parameters] == [(o.name, o.default) for o in verb_options("evaluate").values()]
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters)
    assert inspect.signature(explain) == inspect.signature(evaluate)
    assert verb_options("evaluate")["assignment_cells"].default == ASSIGNMENT_CELLS
    assert set(OTHER) == set(verb_options("evaluate"))
    assert set(OTHER) | set(MORE) == {option.name for option in OPTIONS}


METHODS: dict[str, Callable[..., Any]] = {
    "update": Store.update,
    "show": Store.evaluate,
    "add": Store.add,
    "replace": Store.replace,
    "remove": Store.remove,
    "vacuum": Store.vacuum,
    "history": Store.history,
    "check": Store.check,
    "info": Store.info,
    "diagnose": Store.diagnose,
    "drift": drift,
    "maturity": Store.maturity,
    "sketch": quantile_sketch,
    "attribute": attribute,
    "churn": churn,
    "plan_labels": plan_labels,
    "simulate": simulate,
}


@pytest.mark.parametrize("verb", METHODS)
def test_signatures_of_other_verbs_are_the_table(verb: str) -> None:
    """A named parameter has the default of its row; every row is a parameter, of the method or of Store(…)."""
    parameters = inspect.signature(METHODS[verb]).parameters
    constructor = inspect.signature(Store).parameters
    for name, option in verb_options(verb).items():
        if name in parameters:
            default = parameters[name].default
            assert default is inspect.Parameter.empty or option.plain(default) == option.rest, name
        elif name not in (constructor if METHODS[verb] is getattr(Store, METHODS[verb].__name__, None) else {}):
            assert any(p.kind is p.VAR_KEYWORD for p in parameters.values()), name


def sliced_store(data: Path, folder: Path) -> Store:
    """A store that keeps slices by id."""
    made = Store(folder / "sliced")
    made.update(data, score="s", by="id")
    return made


def outcome(call: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """``honoured``, or the message that refused."""
    try:
        call(*arguments, **options)
    except (OptionError, TypeError) as error:
        return str(error)
    return "honoured"


@pytest.mark.parametrize("name", dict.fromkeys((*OTHER, *MORE)))
def test_every_option_is_honoured_or_refused_by_every_verb(name: str, data: Path, tmp_path: Path, store: Store) -> None:
    """None is ignored: where the table does not have the verb, the message names the option."""
    value = {**OTHER, **MORE}[name]
    more = {"clip": {"metrics": ["roc_auc", "log_loss"]}, "sketch": {"sketch": "s"}, "against": {"metrics": "roc_auc"}}
    inputs: dict[str, Any] = more.get(name, {}) | ({} if name in ELSEWHERE else needed(name))
    options = {name: value} | base_of(name) | inputs | {name: OTHER.get(name, value)}
    if (
        inputs
        and name != "timezone"
        and "update" in {verb for option in OPTIONS if option.name == name for verb in option.verbs}
    ):
        store = Store(tmp_path / "estimates")
        store.update(data, **BASE | inputs)
    run = {} if name == "client" else {"threads": 1}  # a client without a scheduler is a ClusterError: see below
    calls: dict[str, Callable[[], str]] = {
        "update": lambda: outcome(Store(tmp_path / "new", **run).update, data, **options),
        "show": lambda: outcome(
            (sliced_store(data, tmp_path) if name == "where" else store).evaluate,
            **{name: {"classes": "w", "by": "night"}.get(name, value)},
        ),
        "add": lambda: outcome(
            store.add, **{"score": "w", name: value, **({"by": "hour(sent)"} if name == "timezone" else {})}
        ),
        "replace": lambda: outcome(store.replace, data, **{name: value}),
        "remove": lambda: outcome(store.remove, [], **{name: value}),
        "vacuum": lambda: outcome(store.vacuum, **{name: value}),
        "history": lambda: outcome(store.history, **{"metric": "aul", name: value}),
        "check": lambda: outcome(store.check, **{"rules": "aul[id] >= 0", name: value}),
        "diagnose": lambda: outcome(store.diagnose, **{name: value}),
        "info": lambda: outcome(store.info, **{name: value}),
    }
    for verb, call in calls.items():
        said, there = call(), any(verb in o.verbs for o in OPTIONS if o.name == name)
        if name in ENGINE or name == "storage_options":
            assert name in said, (verb, said)  # refused here, and taken by Store(…)
        elif name in ("delta_version", "snapshot") and there:
            table = "a Delta table" if name == "delta_version" else "an Iceberg table"
            assert said == f"{name}={value} would change nothing: no input is {table}", (verb, said)
        elif (name, verb) == ("on", "add"):  # the store of this test has ids, and labels already
            assert "contradicts the store's value, 'id'; a store can have only one" in said, said
        elif (name, verb) == ("label_time", "add"):
            assert "label_time='at' contradicts the store's value, none; its labels have no times" in said
        elif there:
            assert said == "honoured", (verb, said)
        else:
            assert name in said, (verb, said)
    for function in (evaluate, explain):
        if name in ("delta_version", "snapshot", "scheduler_timeout"):
            assert name in outcome(function, data, **options)
        elif name in OTHER and name != "client":
            assert outcome(function, data, **options) == "honoured"
        elif name in MORE:
            assert name in outcome(function, data, **options)


@pytest.mark.parametrize("name", dict.fromkeys((*OTHER, *MORE)))
def test_verbs_without_a_store_honour_or_refuse_every_option(name: str, data: Path, tmp_path: Path) -> None:
    """`attribute`, `quantile_sketch`, `churn` and `simulate`, as the test above for other verbs."""
    value = {"metric": "pairwise.fscore", "unlabelled": "drop", "changed_from": "k"}.get(name, {**OTHER, **MORE}[name])
    attributed: dict[str, Any] = {"cluster": "id", "classes": "k"}
    if name in ("score", "by", "timezone", "ci", "unit", "nan", "adjust"):
        attributed = {"score": "s", "by": "k"} | ({"unit": "id"} if name in ("ci", "adjust") else {})
        attributed |= needed(name) if name == "timezone" else {}
    elif name in ("label", "pos_label", "aul_threshold", "unlabelled"):
        attributed = {"cluster": "id", "label": "label"}
    elif "on" in needed(name) or name == "on":
        attributed |= needed(name)
    elif name == "examples_per":
        attributed["examples"] = "s"
    elif name == "changed_from":
        attributed.pop("classes")
    if name == "pilot":
        value = str(tmp_path / "pilot")
        Store(value).update(data, score="s", sampled_by="uniform")
    calls: dict[str, Callable[[], str]] = {
        "attribute": lambda: outcome(attribute, data, **attributed | {name: value}),
        "sketch": lambda: outcome(quantile_sketch, data, **{"column": "s", name: value}),
        "plan_labels": lambda: outcome(plan_labels, data, **{"id": "n", "score": "s", "for_": "roc_auc", name: value}),
        "churn": lambda: outcome(churn, data, **{"cluster": "id", "from_": "k", "unit": "k", name: value}),
        "simulate": lambda: outcome(simulate, tmp_path / "out", **{"rows": 10, "partitions": 1, name: value}),
    }
    for verb, call in calls.items():
        there = any(verb in option.verbs for option in OPTIONS if option.name == name)
        if there and name not in ELSEWHERE:
            assert call() == "honoured", verb
        elif name != "progress" and not (there and name == "client"):  # progress has no row for these verbs
            assert name in call(), verb


@pytest.mark.parametrize("name", [name for name in OTHER if name not in ELSEWHERE])
def test_results_record_what_decides_them(name: str, data: Path) -> None:
    """`to_dict()["options"]` has the options that were given, but for those that decide nothing."""
    options = {**base_of(name), **needed(name), name: OTHER[name]}
    metrics = {"sample_by": "agc_approx", "clip": "log_loss", "against": "roc_auc"}
    options |= {"metrics": metrics[name]} if name in metrics else {}
    found = evaluate(data, **options).to_dict()["options"]
    expected = {key: verb_options("evaluate")[key].plain(value) for key, value in options.items()}
    deciding = {key for key, option in verb_options("evaluate").items() if option.decides != "nothing"}
    kept = {key for key, value in expected.items() if value != verb_options("evaluate")[key].rest} & deciding
    assert set(found) == kept
    assert json.loads(json.dumps(found)) == found
    assert found == {key: list(v) if isinstance(v, tuple) else v for key, v in expected.items() if key in kept}
    assert record_options(complete_options(found)) == found


@pytest.mark.parametrize("name", OTHER)
def test_a_key_holds_exactly_what_decides_a_result(name: str) -> None:
    """Another value gives another key, unless the option decides nothing."""
    options: dict[str, Any] = BASE | needed(name) | ({"labels": "others.parquet"} if name == "labels" else {})
    other = options | {name: {"cluster": ["id", "w"], "classes": "w"}.get(name, OTHER[name])}
    same = result_key(complete_options(options)) == result_key(complete_options(other))
    assert same == (verb_options("evaluate")[name].decides == "nothing")


@pytest.mark.parametrize(
    "option", [o for o in OPTIONS if o.needs and "evaluate" in o.verbs], ids=lambda option: option.name
)
def test_an_option_that_would_change_nothing_is_refused(option: Any) -> None:
    """The message names it and what it needs."""
    source = NEEDS[option.needs][0]
    options = {"score": "s", "cluster": "id", "classes": "k", "approx_agc": True, option.name: OTHER[option.name]}
    options.pop(source, None)
    options = {k: v for k, v in options.items() if k == option.name or not _needs(k, source)}
    refuses(OptionError, rf"{option.name}.* would change nothing without {option.needs}: ", complete_options, options)


def _needs(name: str, source: str) -> bool:
    option = verb_options("evaluate")[name]
    return bool(option.needs) and NEEDS[option.needs][0] == source


def test_unknown_options_are_refused_with_a_suggestion(store: Store, data: Path) -> None:
    """Of a store, and of a table that is checked."""
    refuses(OptionError, "a store takes no option 'metrix'; did you mean 'metrics'", store.evaluate, metrix="aul")
    with pytest.raises(
        OptionError, match="a store takes no option 'passes', which belongs to evaluate; it takes label"
    ):
        store.update(data, passes=1)
    refuses(OptionError, "evaluate takes no option 'treshold'", complete_options, {"treshold": 1})


# -- stores ------------------------------------------------------------------------------------------------------------

LOOKS: list[dict[str, Any]] = [
    {"metrics": "aul"},
    {"truncate": 0.1},
    {"aul_threshold": 3},
    {"assignment_cells": 0, "metrics": "assignment_score"},
    {"at": "k=10"},
    {"score": "s"},
    {"score": "t", "truncate": 3},
]


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_a_cached_result_is_that_of_its_options(store: Store, data: Path, look: dict[str, Any]) -> None:
    """Whatever was evaluated before, also with the same metrics: the numbers are those of the files."""
    for options in ({"metrics": look["metrics"]} if "assignment_cells" in look else {}, look, look, {}):
        expected = evaluate(data, **BASE | options)
        assert store.evaluate(**options).to_json() == expected.to_json()


SELECTIONS: list[dict[str, Any]] = [  # of a store that keeps slices by c and units id
    {"ci": 0.9},
    {"baseline": "s"},
    {"baseline": "t", "ci": 0.9},
    {"by": "c"},
    {"by": "c", "ci": 0.9},
    {"by": "c", "against": "rest"},
    {"by": "night"},
    {"by": "night", "ci": 0.9},
    {"where": "c = 1"},
    {"where": "c = 1", "ci": 0.9},
    {"against": "2026-01-01..2026-01-01"},
    {"until": "2026-01-01"},
    {"metrics": "corp.dsc"},
]


def test_no_cached_result_answers_for_another_selection(data: Path, tmp_path: Path) -> None:
    """Slices, filters, levels, baselines, other nights: each gives a text of its own, and the same text again."""
    kept = Store(tmp_path / "store", threads=1)
    kept.update(data, score=["s", "t"], by="c", unit="id")
    first = [kept.evaluate(**{"metrics": "roc_auc", **look}).to_json() for look in SELECTIONS]
    assert len(set(first)) == len(first)  # a key that ignored an option would repeat a text
    again = [kept.evaluate(**{"metrics": "roc_auc", **look}).to_json() for look in reversed(SELECTIONS)]
    assert again[::-1] == first


SHOWN = [o.name for o in kept_options().values() if verb_options("show").get(o.name, o) is o]  # `by` picks what is kept


@pytest.mark.parametrize("name", [name for name in SHOWN if kept_options()[name].decides == "state"])
def test_a_look_cannot_change_the_states(store: Store, name: str) -> None:
    """Another value is refused by name; the store's own is fine, and so is a default of what a store never does."""
    value = {"score": "w", "cluster": "k", "classes": "id"}.get(name, {**OTHER, **MORE}[name])
    refuses(OptionError, rf"^{name}=.* contradicts the store's value, ", store.evaluate, **{name: value})
    assert store.evaluate(**{name: BASE.get(name, kept_options()[name].default)}).rows == 400
    assert store.evaluate(on_error="raise", approx_agc=False, threads=None).rows == 400


def test_an_unknown_option_of_a_store_is_refused_by_name() -> None:
    """A later version may keep more than this one knows."""
    with pytest.raises(FormatError, match="keeps an option 'colour', which this version does not know"):
        Configuration.read({"options": {"colour": 1}, "types": {}})


@dataclass(frozen=True)
class Rows:
    """A metric of a user: the rows of a score."""

    name: str = "rows_counted"
    family: str = "score"
    factor: int = 1

    def partial(self, part: Any) -> int:
        """Rows of a part."""
        return int(part.rows.sum())

    def combine(self, partials: Any, state: Any) -> float:
        """All rows."""
        return float(self.factor * sum(partials))


def test_metrics_take_names_and_objects(store: Store, data: Path, tmp_path: Path) -> None:
    """An object reaches the evaluation; a store computes it each time and does not cache it."""
    found = evaluate(data, score="s", metrics=[Rows(), "roc_auc"])
    assert {(r.metric, r.value) for r in found.results} == {
        ("rows_counted", 400.0),
        ("roc_auc", found.value("roc_auc")),
    }
    assert found.to_dict()["options"] == {"score": ["s"], "metrics": ["rows_counted", "roc_auc"]}
    for factor in (1, 2):
        assert store.evaluate(metrics=Rows(factor=factor), score="s").value("rows_counted") == 400.0 * factor
    with pytest.raises(OptionError, match="a store keeps names of metrics only"):
        Store(tmp_path / "new").update(data, score="s", metrics=[Rows()])
    for wrong in (3, [3], {"roc_auc"}, ["roc_auc", object()]):
        refuses(OptionError, r"metrics=.* must be a name, a metric object", evaluate, data, score="s", metrics=wrong)
    refuses(OptionError, "a name is empty", evaluate, data, score="s", metrics="")
