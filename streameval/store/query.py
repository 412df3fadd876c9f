"""The verbs that read a store: evaluate partitions together, follow a metric night by night, check rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from streameval._version import __version__
from streameval.errors import OptionError
from streameval.evaluation.comparison import compare_named
from streameval.evaluation.resampling import LEVEL
from streameval.evaluation.result import Evaluation
from streameval.evaluation.result.recalled import Recalled, RecalledEstimates, RecalledStates
from streameval.options import recorded, result_key
from streameval.options.kinds import texts
from streameval.results import REST
from streameval.scan.derived import slicing
from streameval.store.attribution import costs
from streameval.store.nights.filtered import evaluated_where
from streameval.store.nights.keys import by_keys
from streameval.store.nights.merge import evaluated, labels_of, states_of
from streameval.store.nights.partitions import chosen
from streameval.store.nights.remote import evaluated_on_worker
from streameval.store.nights.slices import kept_key, slice_facts, slice_histories, slices_of
from streameval.store.page import nights
from streameval.store.results.cache import key_of
from streameval.store.results.diagnosis import diagnosed, odd, shapes_of, usual_nights
from streameval.store.results.gate import Gate, store_rules
from streameval.store.results.gate import accept as accepted
from streameval.store.results.histories import Histories
from streameval.store.results.history import History, Point
from streameval.store.results.reading import Reading, reading
from streameval.store.source import store_source
from streameval.store.vacuum import seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date

    from streameval.evaluation.intervals import Estimated
    from streameval.evaluation.request import Request
    from streameval.store.context import StoreContext
    from streameval.store.files.ledger import Entry, Snapshot
    from streameval.store.nights.configuration import Configuration
    from streameval.store.results.diagnosis import Diagnosis
    from streameval.store.results.gate import Check
    from streameval.store.results.judgements import Judgement

__all__ = ["READING", "accept", "check", "diagnose", "evaluate", "histories", "history", "plan"]

READING = ("show", "history", "check", "diagnose", "attribute", "info")  # verbs that `plan` knows


def evaluate(
    context: StoreContext, as_of: str | int | date | None, selection: Mapping[str, Any], options: Mapping[str, Any]
) -> Evaluation:
    """Evaluate the partitions of a selection (arguments of `chosen`); see `Store.evaluate`."""
    snapshot, configuration = context.begun(as_of)
    selection = dict(selection)
    against = selection.pop("against", None)
    entries = chosen(snapshot.entries, **selection)
    if against is not None and options.get("ci") is None:
        options = {**options, "ci": LEVEL}  # where the store keeps no blocks, differences are null with the reason
    against, rest = (None, True) if against == REST else (against, False)
    filtered = options.get("where") is not None
    if filtered and (against is not None or options.get("by")):
        msg = "where (--where) of a store is answered for the nights alone: leave out by (--by) and against (--against)"
        raise OptionError(msg, "where")
    by, options = texts("by", options.get("by")), {name: value for name, value in options.items() if name != "by"}
    of_states = [text for text in by if kept_key(configuration, list(slicing(text)))]
    if rest and not of_states:
        msg = f"against={REST!r} compares slices that the store keeps; name some with by (--by)"
        raise OptionError(msg, "against")
    groups = [group for names in by if names not in of_states for group in _by_keys(configuration, entries, names)]
    engine, request = context.engine(), configuration.request(**options)
    nightly, key = context.nightly(snapshot, configuration), _key(configuration, request, entries)
    cached = not request.selection.own and not filtered
    known = nightly.recall(key) if cached else None
    if known is not None:
        found = _recalled(known, request, (entries, configuration, engine, context.compaction), options)
    else:
        evaluator = evaluated_where if filtered else _evaluator(context)
        found = evaluator(entries, configuration, engine, context.compaction, **options)
        if as_of is None and cached:
            nightly.keep(key, entries, found)
    skipped = tuple(lost for entry in entries for lost in entry.left_out)
    if against is not None:
        there = _span(snapshot, against)
        other = _evaluator(context)(there, configuration, engine, context.compaction, **options)
        found = replace(found, results=(*found.results, *compare_named(other, found, (against, "these nights"))))
    if groups:
        nightly.evaluated = _evaluator(context)
        sliced = nightly.grouped([group for _, group in groups], options)
        rows = (replace(r, slice=named) for (named, _), row in zip(groups, sliced, strict=True) for r in row)
        found = replace(found, results=(*found.results, *rows))
        if as_of is None and cached:
            nightly.write(snapshot)
    for text in of_states:
        of_text = partial(
            slices_of,
            configuration=configuration,
            files=context.compaction,
            text=text,
            resampling=replace(request.resampling, rest=rest),
            options=options,
        )
        found = replace(found, results=(*found.results, *context.computed(of_text, entries)))
    made = recorded(request.options) | ({"by": list(by)} if by else {})
    told = {**selection, "against": REST if rest else against, "by": by or None}
    source = store_source("show", context.location.name, len(entries), told, request.options, options)
    more = None if filtered else partial(nights, context, as_of, selection)  # which show all rows of each night
    return replace(found, options=made, skipped=skipped, source=source, _more=more)


def _by_keys(
    configuration: Configuration, entries: Sequence[Entry], names: str
) -> list[tuple[dict[str, str], list[Entry]]]:
    """Partitions grouped by the values of keys in their names.

    Raises
    ------
    OptionError
        If a partition has no such key; the message also says which slices the store keeps.
    """
    try:
        return by_keys(entries, names)
    except OptionError as error:
        have = "; ".join(configuration.options["by"])
        kept = f"the store keeps slices by {have}" if have else "the store keeps no slices"
        msg = f"{error}; {kept} (add STORE DATA --by {names} lets slices of a column join)"
        raise OptionError(msg, "by") from None


def _recalled(
    known: tuple[Any, Any, Any], request: Request, where: tuple[Any, ...], options: Mapping[str, Any]
) -> Evaluation:
    """The evaluation whose results and dropped rows are cached; `where` and `options` are the arguments of `evaluated`.

    Its states are read where a curve is drawn. Replicates are not cached: comparisons and bands make it once more.
    """
    labels = labels_of(where[0], request.label)
    states: Any = states_of(*where, **options)
    level, again = request.resampling.level, Recalled(lambda: evaluated(*where, **options))
    estimates: Sequence[Estimated] = () if level is None else RecalledEstimates(again)
    return Evaluation(
        labels.rows,
        labels.positives,
        *known[:2],
        (),
        _states=states,
        _engine=where[2],
        _threshold=request.options["aul_threshold"],
        estimates=estimates,
        ci_level=level,
        counts=known[2],
        _resampled={} if level is None else RecalledStates(again),
    )


def _span(snapshot: Snapshot, against: str) -> list[Entry]:
    """The nights of a span of dates.

    Raises
    ------
    OptionError
        If it is not a span of dates.
    """
    since, dots, until = against.partition("..")
    if not (since and dots and until):
        msg = f"against={against!r} is not a span of dates; write FROM..TO, such as 2026-01-01..2026-01-07"
        raise OptionError(msg)
    return chosen(snapshot.entries, since=since, until=until)


def _evaluator(context: StoreContext) -> Callable[..., Evaluation]:
    """The function that evaluates partitions: on a worker of the store's client, or in this process."""
    workers = context.workers() if context.client is not None else None
    return evaluated if workers is None else partial(evaluated_on_worker, workers)


def _key(configuration: Configuration, request: Request, entries: Sequence[Entry]) -> str:
    """The key of an evaluation: every option that decides it, labels, and contents of states."""
    facts = ((entry.partition, entry.labels, *(c for s in entry.states for c in s.content)) for entry in entries)
    return key_of(__version__, repr(configuration.to_dict()), result_key(request.options), *chain.from_iterable(facts))


def history(
    context: StoreContext,
    metric: str,
    of: str | None,
    as_of: str | int | date | None,
    selection: Mapping[str, Any],
    *,
    cumulative: bool,
) -> History:
    """A metric of the partitions of a selection; see `Store.history`."""
    return _series(context, [(metric, of)], as_of, selection, cumulative=cumulative)[0]


def histories(
    context: StoreContext,
    metrics: Sequence[str],
    of: Sequence[str],
    as_of: str | int | date | None,
    selection: Mapping[str, Any],
    *,
    cumulative: bool,
    by: Sequence[str] = (),
) -> Histories:
    """Metrics of all columns that have them, or of some, for all rows or by slice; see `Store.history`."""
    snapshot, configuration = context.begun(as_of)
    nightly = context.nightly(snapshot, configuration)
    pairs = [(metric, w.of) for metric in metrics for w, _ in nightly.columns(metric, of)]
    series = _series(context, pairs, as_of, selection, cumulative=cumulative)
    asked = [(metric, *nightly.column(metric, of), whole) for (metric, of), whole in zip(pairs, series, strict=True)]
    of_store: dict[str, Any] = {"configuration": configuration, "files": context.compaction, "asked": asked}
    given = {"metric": tuple(metrics), "of": tuple(of), "by": tuple(by)}
    source = store_source(
        "history",
        context.location.name,
        len(chosen(snapshot.entries, **selection)),
        selection,
        given,
        [name for name, texts in given.items() if texts],
    )
    series = [replace(one, source=source) for one in series]
    for text in by:
        entries = chosen(snapshot.entries, **selection)
        series += context.computed(partial(slice_histories, text=text, **of_store), entries)
    return Histories(tuple(series))


def plan(context: StoreContext, verb: str, asked: Mapping[str, Any]) -> Reading:
    """Forecast of what a verb reads; see `Store.plan`."""
    as_of = asked.get("as_of")
    snapshot, configuration = context.begun(as_of)
    names = ("partition", "since", "until", "last") if verb != "check" else ("partition",)
    selection = {name: asked[name] for name in names if asked.get(name)}
    entries = chosen(snapshot.entries, **selection)
    if verb == "diagnose" and not selection:
        failing = context.judgements().failing(entries)
        entries = [entry for entry in entries if entry.partition in failing]
    columns: list[str] = []
    if verb == "show":
        request = configuration.request(**{n: v for n, v in asked.items() if n not in (*names, "as_of", "by")})
        columns = [*request.scores, *request.clusters, *request.sketches]
    if verb == "history":
        nightly = context.nightly(snapshot, configuration)
        metrics, of = (texts(name, asked.get(name)) for name in ("metric", "of"))
        columns = [w.of for metric in metrics for w, _ in nightly.columns(metric, of)]
    if verb == "attribute":
        columns = [asked[name] for name in ("cluster", "score") if asked.get(name)]
    kept = {"show": "the results until the next update", "history": "the values of the nights"}
    keeps = "nothing" if as_of is not None else kept.get(verb, "judgements" if verb == "check" else "nothing")
    found = reading(entries, columns, keeps)
    from_ledger = verb == "info" and not asked.get("verify")
    return replace(found, files=0, bytes=0, columns={}) if from_ledger else found


def _series(
    context: StoreContext,
    pairs: Sequence[tuple[str, str | None]],
    as_of: str | int | date | None,
    selection: Mapping[str, Any],
    *,
    cumulative: bool,
) -> list[History]:
    """The history of each metric and column."""
    snapshot, configuration = context.begun(as_of)
    entries = chosen(snapshot.entries, **selection)
    nightly = context.nightly(snapshot, configuration)
    nightly.evaluated = _evaluator(context)
    failing, found = tuple(context.judgements().failing(entries)), []
    for metric, of in pairs:
        alone = nightly.nights(entries, metric, of)
        totals: list[Any] = nightly.cumulative(entries, metric, of) if cumulative else [None] * len(alone)
        rows = zip(entries, alone, totals, strict=True)
        points = tuple(Point(entry.partition, night, total, entry.incomplete) for entry, night, total in rows)
        given = {"metric": metric, "of": of}
        source = store_source("history", context.location.name, len(entries), selection, given, given)
        found.append(History(metric, alone[0].of, points, failing, source))
    if as_of is None:
        nightly.write()
    return found


def check(
    context: StoreContext,
    rules: Any,
    partition: Sequence[str],
    since: str | date | None,
    *,
    again: bool,
    mature: str | None,
    allow_incomplete: bool,
) -> Check:
    """Judge the nights that need it; see `Store.check`."""
    read, hours = store_rules(rules), seconds(mature) / 3600 if mature else 0.0
    snapshot, configuration = context.begun()
    entries = chosen(snapshot.entries) if snapshot.entries or not partition else []
    if since is not None:
        chosen(snapshot.entries, since=since)  # refuses anything but a date
    nightly, log = context.nightly(snapshot, configuration), context.judgements()
    nightly.evaluated = _evaluator(context)
    gate = Gate(entries, nightly, log, hours, datetime.now(UTC))
    found = gate.check(
        read, partition, None if since is None else str(since), again=again, allow_incomplete=allow_incomplete
    )
    log.write()
    nightly.write()
    given = {"rules": tuple(rule.text for rule in read), "partition": tuple(partition), "since": since}
    source = store_source("check", context.location.name, found.nights, {}, given, given)
    found = replace(found, source=source)
    failing = [snapshot.entries[name] for name in found.failing if name in snapshot.entries]
    if not failing:
        return found
    usual = usual_nights(failing[-1], entries, log.failing(entries))
    return replace(found, odd=odd(failing[-1], usual, configuration.folding.columns))


def diagnose(context: StoreContext, partition: Sequence[str]) -> tuple[Diagnosis, ...]:
    """What is unusual in nights; see `Store.diagnose`."""
    snapshot, configuration = context.begun()
    entries, log = chosen(snapshot.entries), context.judgements()
    nightly, failing = context.nightly(snapshot, configuration), log.failing(entries)
    nightly.evaluated = _evaluator(context)
    due = chosen(snapshot.entries, partition=partition or list(failing)) if partition or failing else []
    of_store: dict[str, Any] = {"configuration": configuration, "files": context.compaction}
    shapes, slices = (partial(context.computed, partial(each, **of_store)) for each in (shapes_of, slice_facts))

    def one(entry: Entry) -> Diagnosis:
        usual = usual_nights(entry, entries, failing)
        found = diagnosed(
            entry,
            usual,
            configuration.folding.columns,
            [rule for rule in failing.get(entry.partition, ()) if rule not in log.undecided(entry)],
            lambda night: nightly.grouped([[night]], {})[0] if configuration.options["unit"] else (),
            shapes,
            slices,
        )
        rose = costs(context, configuration, entry, usual) if entry.rows and usual else ()
        return replace(found, costs=rose, undecided=log.undecided(entry))

    return tuple(map(one, due))


def accept(context: StoreContext, partition: Sequence[str], rules: Sequence[str], why: str) -> list[Judgement]:
    """Accept recorded failures; see `Store.accept`."""
    if not why.strip():
        msg = "say why the failure is accepted (--reason)"
        raise OptionError(msg)
    snapshot, _ = context.begun()
    log = context.judgements()
    found = accepted(chosen(snapshot.entries, partition=partition), log, rules, why.strip(), datetime.now(UTC))
    log.write()
    return found
