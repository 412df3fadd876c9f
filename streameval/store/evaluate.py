"""Evaluate selected nights of a store: all rows, slices, and differences from other nights.

The page of an evaluation adds a section on its nights, and the source of its results names the command that repeats
them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from streameval import __version__
from streameval.errors import OptionError
from streameval.evaluation.comparison import with_comparison
from streameval.evaluation.finalize import count_labelled
from streameval.evaluation.request import LEVEL
from streameval.evaluation.result import Evaluation
from streameval.kinds import texts
from streameval.options import record_options, result_key, verb_options, words
from streameval.results import REST, Source
from streameval.store.nights.merge import Nights, labels_of
from streameval.store.nights.partitions import check_dates, group_by_keys, select_entries
from streameval.store.nights.results import key_of
from streameval.store.nights.slices import evaluate_slices, evaluate_where, find_slicing
from streameval.wording import shell

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
    from datetime import date

    from streameval.engine import Engine
    from streameval.evaluation.request import Request
    from streameval.report.elements import Section
    from streameval.store.context import StoreContext
    from streameval.store.files.entries import Entry
    from streameval.store.files.ledger import Snapshot
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.results import Recalled


def nights_of_page(
    context: StoreContext, as_of: str | int | date | None, selection: Mapping[str, Any], evaluation: Evaluation
) -> list[Section]:
    """The section on nights of an evaluation's page: the first metric of each kind of column, and judgements.

    Parameters
    ----------
    context : the store
    as_of, selection : the selection of nights, see `streameval.store.evaluate.evaluate`
    evaluation : the evaluation of these nights
    """
    from streameval.report.nights import nights_section  # imported here: only a page needs it

    snapshot, configuration = context.begun(as_of)
    entries, log = select_entries(snapshot.entries, **selection), context.judgements(snapshot)
    nightly, meanings = context.nightly(snapshot, configuration), evaluation.meanings()
    values = [result for result in evaluation.results if result.baseline is None and result.slice is None]
    first: dict[str, str] = {}
    for result in values:
        meaning = meanings.get(result.metric)
        if meaning is not None and meaning.family in ("score", "cluster", "classes"):
            first.setdefault(meaning.family, result.metric)
    series = {
        metric: {r.of: nightly.values(entries, metric, r.of) for r in values if r.metric == metric and r.of is not None}
        for metric in first.values()
    }
    if as_of is None:
        nightly.write()
    judgements = [
        one
        for entry in entries
        for one in log.of(entry)
        if one.outcome != "earlier" and (entry is entries[-1] or one.accepted is not None or one in log.closing(entry))
    ]
    incomplete = [entry.partition for entry in entries if entry.incomplete]
    names = [entry.partition for entry in entries]
    return [nights_section(names, series, log.failing(entries), incomplete, judgements)]


def store_source(
    verb: str, name: str, nights: int, selection: Mapping[str, Any], plain: Mapping[str, object], given: Container[str]
) -> Source:
    """The source of a result of a store.

    Parameters
    ----------
    verb : the verb that was run
    name : name of the store, without credentials
    nights : number of nights that the result covers
    selection : the selection of nights
    plain : all options in plain form
    given : names of the options that were given; the store's defaults are not repeated

    Examples
    --------
    >>> kept = {"metrics": ("roc_auc",), "nan": "drop"}
    >>> store_source("show", "STORE", 7, {"last": 7, "since": None}, kept, ["metrics"]).command
    'streameval show STORE --last 7 --metric roc_auc'
    """
    nights_asked = {
        key: verb_options("show")[key].plain(value) for key, value in selection.items() if value is not None
    }
    own = words(verb, {key: value for key, value in plain.items() if key in given and key in verb_options(verb)})
    selected = words("show", nights_asked)
    command = "" if selected is None or own is None else shell(["streameval", verb, name, *selected, *own])
    return Source((name,), 0, command, nights)


def evaluate(
    context: StoreContext, as_of: str | int | date | None, selection: Mapping[str, Any], options: Mapping[str, Any]
) -> Evaluation:
    """Evaluate the partitions of a selection (arguments of `select_entries`); see `Store.evaluate`."""
    snapshot, configuration = context.begun(as_of)
    selection = dict(selection)
    against = selection.pop("against", None)
    if against is not None and options.get("ci") is None:
        options = {**options, "ci": LEVEL}  # without blocks in the store, differences are null with a reason
    by, options = texts("by", options.get("by")), {name: value for name, value in options.items() if name != "by"}
    every = [*snapshot.entries.values()]
    nights = Nights(select_entries(snapshot.entries, **selection), configuration, context.compaction, every)
    if against is not None and configuration.design is not None:
        raise OptionError(
            f"against={against!r}: estimates from sampled labels are not compared; show each span of nights with its "
            "intervals (--since, --until)",
            "against",
        )
    filtered = options.get("where") is not None
    if filtered and (against not in (None, REST) or by):
        raise OptionError(
            "where (--where) of a store is answered from kept slices for all rows that meet it: leave out by (--by) "
            "and against (--against), or evaluate the files with where and by",
            "where",
        )
    slicings = {text: find_slicing(configuration, text) for text in by}
    keys = list(dict.fromkeys(key for key in slicings.values() if key is not None))
    if against == REST and not keys:
        raise OptionError(f"against={REST!r} compares slices that the store keeps; name some with by (--by)", "against")
    groups: list[tuple[dict[str, str], list[Entry]]] = []
    for text in (text for text in by if not slicings[text]):
        remedy = configuration.more_slices(text)
        groups += group_by_keys(nights.entries, text, configuration.options["by"], remedy)
    engine, request = context.engine(), configuration.request(**options)
    nightly, key = context.nightly(snapshot, configuration), _key(configuration, request, nights.entries)
    # user-defined metrics and filters are not cached, nor is what is known of the strata of labels
    cached = not request.selection.own and not filtered and request.design is None
    stored = nightly.recall(key) if cached else None
    if stored is not None:
        result = _restore_evaluation(stored, request, nights, engine)
    else:
        result = (evaluate_where if filtered else context.evaluate)(nights, engine, request)
        if cached and as_of is None:
            nightly.keep(key, nights.entries, result)
    results = [*result.results]
    if against not in (None, REST):
        before = context.evaluate(nights.of(*nights_of(snapshot, str(against))), engine, request)
        results = [*with_comparison(before, result, (str(against), "these nights"))]
    if groups:
        rows = nightly.grouped([group for _, group in groups], options)
        results += [replace(one, slice=values) for (values, _), row in zip(groups, rows, strict=True) for one in row]
        if cached and as_of is None:
            nightly.write(snapshot)
    if keys:
        resampling = replace(request.resampling, rest=against == REST)
        compute = partial(evaluate_slices, request=request, keys=keys, resampling=resampling)
        results += context.computed(compute, nights)
    arguments = {**selection, "against": against, "by": by or None}
    more = partial(nights_of_page, context, as_of, selection)
    return replace(
        result,
        results=tuple(results),
        options=record_options(request.options) | ({"by": list(by)} if by else {}),
        skipped=tuple(lost for entry in nights.entries for lost in entry.left_out),
        source=replace(
            store_source("show", context.location.name, len(nights.entries), arguments, request.options, options),
            zones={
                name: zone for name, zone in configuration.zones.items() if any(name in key.columns for key in keys)
            },
        ),
        _more=None if filtered else more,  # its values cover all rows
    )


def _restore_evaluation(results: Recalled, request: Request, nights: Nights, engine: Engine) -> Evaluation:
    """An evaluation from cached results, dropped rows and counts.

    States are read on demand, for curves. Replicates are not cached: comparisons and bands evaluate the nights again.
    """
    labels, states = labels_of(nights.entries, request.label), cast("dict[Any, Any]", nights.states(engine, request))
    level = request.resampling.level
    return Evaluation(
        labels.rows,
        labels.positives,
        *results[:2],
        (),
        _states=states,
        _engine=engine,
        _threshold=request.options["aul_threshold"],
        ci_level=level,
        counts=results[2],
        labels=count_labelled(request, labels),
        _again=None if level is None else cache(lambda: nights.evaluate(engine, request)),
    )


def ends_of(against: str, *, single: bool = False) -> tuple[str, str]:
    """The first and the last date of a span, ``FROM..TO``; if `single`, one date may stand for itself.

    Raises
    ------
    OptionError
        If the text is not a span of dates.
    """
    since, dots, until = (f"{against}..{against}" if single and ".." not in against else against).partition("..")
    if not (since and dots and until):
        raise OptionError(f"against={against!r} is not a span of dates; write FROM..TO, such as 2026-01-01..2026-01-07")
    for end in (since, until):
        check_dates(against=end)
    return since, until


def nights_of(snapshot: Snapshot, against: str, *, single: bool = False) -> list[Entry]:
    """The nights of a span of dates; see `ends_of`."""
    since, until = ends_of(against, single=single)
    return select_entries(snapshot.entries, since=since, until=until)


def _key(configuration: Configuration, request: Request, entries: Sequence[Entry]) -> str:
    """The cache key of an evaluation: the options that affect it, the labels, and the contents of the states."""
    facts = ((entry.partition, str(entry.labels), *(c for s in entry.states for c in s.content)) for entry in entries)
    return key_of(__version__, repr(configuration.to_dict()), result_key(request.options), *chain.from_iterable(facts))
