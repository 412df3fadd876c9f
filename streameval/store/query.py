"""The verbs that read a store night by night: history, check, accept, diagnose, and their forecasts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.options import honoured
from streameval.options.kinds import texts
from streameval.store.attribution import costs
from streameval.store.evaluate import evaluator
from streameval.store.nights.diagnosis import diagnosed, odd, shapes_of, usual_nights
from streameval.store.nights.gate import Gate, store_rules
from streameval.store.nights.gate import accept as accepted
from streameval.store.nights.history import Histories, History, Point
from streameval.store.nights.partitions import chosen, newest
from streameval.store.nights.slices import slice_facts, slice_histories
from streameval.store.planned import Reading, reading
from streameval.store.source import store_source
from streameval.store.vacuum import seconds
from streameval.wording import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from streameval.store.context import StoreContext
    from streameval.store.files.entries import Entry
    from streameval.store.nights.diagnosis import Diagnosis
    from streameval.store.nights.gate import Check
    from streameval.store.nights.judgements import Judgement

READING = ("show", "history", "check", "diagnose", "attribute", "info")  # verbs that read states


def history(
    context: StoreContext,
    metric: str,
    of: str | None,
    as_of: str | int | date | None,
    selection: Mapping[str, Any],
    *,
    cumulative: bool,
    ci: float | None,
) -> History:
    """A metric of the selected partitions; see `Store.history`."""
    return _series(context, [(canonical(metric), of)], as_of, selection, cumulative=cumulative, ci=ci)[0]


def histories(
    context: StoreContext,
    metrics: Sequence[str],
    of: Sequence[str],
    as_of: str | int | date | None,
    selection: Mapping[str, Any],
    *,
    cumulative: bool,
    by: Sequence[str] = (),
    ci: float | None,
) -> Histories:
    """Several metrics of several columns, of all rows and by slice; see `Store.history`."""
    snapshot, configuration = context.begun(as_of)
    nightly = context.nightly(snapshot, configuration)
    pairs = list(dict.fromkeys(pair for metric in metrics for pair in nightly.named(metric, of)))
    series = _series(context, pairs, as_of, selection, cumulative=cumulative, ci=ci)
    asked = [(metric, *nightly.column(metric, of, ci), one) for (metric, of), one in zip(pairs, series, strict=True)]
    of_store: dict[str, Any] = {"configuration": configuration, "files": context.compaction, "asked": asked}
    given = {"metric": tuple(metrics), "of": tuple(of), "by": tuple(by), "ci": ci}
    source = store_source(
        "history",
        context.location.name,
        len(chosen(snapshot.entries, **selection)),
        selection,
        given,
        [name for name, value in given.items() if value],
    )
    series = [replace(one, source=source) for one in series]
    for text in by:
        entries = chosen(snapshot.entries, **selection)
        series += context.computed(partial(slice_histories, text=text, **of_store), entries)
    return Histories(tuple(series))


def plan(context: StoreContext, verb: str, asked: Mapping[str, Any]) -> Reading:
    """Forecast what a verb reads; see `Store.plan`."""
    as_of = asked.get("as_of")
    snapshot, configuration = context.begun(as_of)
    names = ("partition", "since", "until", "last") if verb != "check" else ("partition",)
    selection = {name: asked[name] for name in names if asked.get(name)}
    entries = chosen(snapshot.entries, **selection)
    if verb == "diagnose" and not selection:
        log, last = context.judgements(), newest(snapshot.entries)
        due = {**log.failing(entries, last), **log.undecided(entries, last)}
        entries = [entry for entry in entries if entry.partition in due]
    columns: list[str] = []
    if verb == "show":
        request = configuration.request(**{n: v for n, v in asked.items() if n not in (*names, "as_of", "by")})
        columns = [*request.scores, *request.clusters, *request.sketches]
    if verb == "history":
        nightly = context.nightly(snapshot, configuration)
        metrics, of = (texts(name, asked.get(name)) for name in ("metric", "of"))
        columns = [column for metric in metrics for _, column in nightly.named(metric, of)]
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
    ci: float | None,
) -> list[History]:
    """The history of each pair of metric and column; `ci` is the level of intervals, None for that of the store."""
    ci = honoured("history")["ci"].plain(ci)
    snapshot, configuration = context.begun(as_of)
    entries = chosen(snapshot.entries, **selection)
    nightly = context.nightly(snapshot, configuration)
    nightly.evaluated = evaluator(context)
    failing, found = tuple(context.judgements().failing(entries, newest(snapshot.entries))), []
    for metric, of in pairs:
        alone = nightly.nights(entries, metric, of, ci)
        totals: list[Any] = nightly.cumulative(entries, metric, of, ci) if cumulative else [None] * len(alone)
        rows = zip(entries, alone, totals, strict=True)
        points = tuple(Point(entry.partition, night, total, entry.incomplete) for entry, night, total in rows)
        given = {"metric": metric, "of": of, "ci": ci}
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
    read, hours = store_rules(rules), seconds(mature, "mature") / 3600 if mature else 0.0
    snapshot, configuration = context.begun()
    entries = chosen(snapshot.entries) if snapshot.entries or not partition else []
    if since is not None:
        chosen(snapshot.entries, since=since)  # raises unless it is a date
    nightly, log = context.nightly(snapshot, configuration), context.judgements()
    nightly.evaluated = evaluator(context)
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
    usual = usual_nights(failing[-1], entries, log.failing(entries, newest(snapshot.entries)))
    return replace(found, odd=odd(failing[-1], usual, configuration.readable))


def diagnose(context: StoreContext, partition: Sequence[str]) -> tuple[Diagnosis, ...]:
    """Diagnose nights; see `Store.diagnose`."""
    snapshot, configuration = context.begun()
    entries, log = chosen(snapshot.entries), context.judgements()
    nightly, last = context.nightly(snapshot, configuration), newest(snapshot.entries)
    nightly.evaluated = evaluator(context)
    failing, undecided = log.failing(entries, last), log.undecided(entries, last)
    named = partition or [*failing, *undecided]
    due = chosen(snapshot.entries, partition=named) if named else []
    of_store: dict[str, Any] = {"configuration": configuration, "files": context.compaction}
    shapes, slices = (partial(context.computed, partial(each, **of_store)) for each in (shapes_of, slice_facts))

    def one(entry: Entry) -> Diagnosis:
        usual = usual_nights(entry, entries, failing)
        found = diagnosed(
            entry,
            usual,
            configuration.readable,
            log.closing(entry, last),
            lambda night: nightly.grouped([[night]], {})[0] if configuration.options["unit"] else (),
            shapes,
            slices,
        )
        rose = costs(context, configuration, entry, usual) if entry.rows and usual else ()
        return replace(found, costs=rose)

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
