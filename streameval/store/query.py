"""The verbs that read a store: evaluate partitions together, follow a metric night by night, check rules."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from streameval._version import __version__
from streameval.errors import OptionError
from streameval.evaluation.result import Evaluation
from streameval.options import recorded, result_key
from streameval.store.nights.merge import evaluated, labels_of, states_of
from streameval.store.nights.partitions import chosen
from streameval.store.nights.remote import evaluated_on_worker
from streameval.store.results.cache import key_of
from streameval.store.results.history import History, Point
from streameval.store.results.rules import Rule, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date

    from streameval.evaluation.request import Request
    from streameval.store.context import StoreContext
    from streameval.store.files.ledger import Entry
    from streameval.store.nights.configuration import Configuration
    from streameval.store.results.rules import Check

__all__ = ["check", "evaluate", "history"]


def evaluate(
    context: StoreContext, as_of: str | int | date | None, selection: Mapping[str, Any], options: Mapping[str, Any]
) -> Evaluation:
    """Evaluate the partitions of a selection (arguments of `chosen`); see `Store.evaluate`."""
    snapshot, configuration = context.begun(as_of)
    entries = chosen(snapshot.entries, **selection)
    engine, request = context.engine(), configuration.request(**options)
    nightly, key = context.nightly(snapshot, configuration), _key(configuration, request, entries)
    cached = not request.selection.own  # two metrics of one name may differ
    known = nightly.recall(key) if cached else None
    if known is not None:
        labels = labels_of(entries, request.label)
        states: Any = states_of(entries, configuration, engine, context.compaction, **options)
        counts = labels.neg + labels.pos, labels.pos
        found = Evaluation(*counts, *known, (), _states=states, _engine=engine, _threshold=request.aul_threshold)
    else:
        found = _evaluator(context)(entries, configuration, engine, context.compaction, **options)
        if as_of is None and cached:
            nightly.keep(key, entries, found)
    return replace(found, options=recorded(request.options))


def _evaluator(context: StoreContext) -> Callable[..., Evaluation]:
    """What evaluates partitions: a worker of the client that the store was given, or this process."""
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
    snapshot, configuration = context.begun(as_of)
    entries = chosen(snapshot.entries, **selection)
    nightly = context.nightly(snapshot, configuration)
    nights = nightly.nights(entries, metric, of)
    totals: list[Any] = nightly.cumulative(entries, metric, of) if cumulative else [None] * len(nights)
    if as_of is None:
        nightly.write()
    points = (Point(e.partition, night, total) for e, night, total in zip(entries, nights, totals, strict=True))
    return History(metric, nights[0].of, tuple(points))


def check(context: StoreContext, rules: Sequence[str], partition: str | None) -> Check:
    """Judge a night; see `Store.check`."""
    read = [Rule.read(text) for text in rules]
    if not read:
        msg = "name a rule, such as 'roc_auc[score] >= 0.97' (--rule)"
        raise OptionError(msg)
    snapshot, configuration = context.begun()
    entries = chosen(snapshot.entries)
    if partition is not None:
        [tonight] = chosen(snapshot.entries, partition=[partition])
        entries = entries[: entries.index(tonight) + 1]
    nightly = context.nightly(snapshot, configuration)
    nightly.evaluated = _evaluator(context)
    names = [entry.partition for entry in entries]
    columns = [(rule, nightly.nights(entries, rule.metric, rule.of)) for rule in read]
    nightly.write()
    return judge(read, names, {(night, rule): r for rule, row in columns for night, r in zip(names, row, strict=True)})
