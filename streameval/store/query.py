"""The verbs that read a store: evaluate partitions together, follow a metric night by night, check rules."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from streameval._version import __version__
from streameval.errors import OptionError
from streameval.evaluation.result import Evaluation
from streameval.store.nights.merge import evaluated, labels_of, states_of
from streameval.store.nights.partitions import chosen
from streameval.store.results.cache import key_of
from streameval.store.results.history import History, Point
from streameval.store.results.rules import Rule, judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from streameval.evaluation.request import Request
    from streameval.store.context import StoreContext
    from streameval.store.files.ledger import Entry
    from streameval.store.nights.configuration import Configuration
    from streameval.store.results.rules import Check

__all__ = ["check", "evaluate", "history"]


def evaluate(
    context: StoreContext, as_of: str | int | date | None, selection: Mapping[str, Any], metrics: Mapping[str, Any]
) -> Evaluation:
    """Evaluate the partitions of a selection (arguments of `chosen`); see `Store.evaluate`."""
    snapshot, configuration = context.begun(as_of)
    entries = chosen(snapshot.entries, **selection)
    engine, request = context.engine(), configuration.request(**metrics)
    nightly, key = context.nightly(snapshot, configuration), _key(configuration, request, entries)
    known = nightly.recall(key)
    if known is not None:
        labels = labels_of(entries, request.label)
        states: Any = states_of(entries, configuration, engine, context.compaction, **metrics)
        return Evaluation(labels.neg + labels.pos, labels.pos, *known, (), states, engine, request.threshold)
    found = evaluated(entries, configuration, engine, context.compaction, **metrics)
    if as_of is None:
        nightly.keep(key, entries, found)
    return found


def _key(configuration: Configuration, request: Request, entries: Sequence[Entry]) -> str:
    """The key of an evaluation: the store's options and those asked for, labels, and contents of states."""
    asked = repr([getattr(request, name) for name in ("patterns", "truncate", "at", "threshold")])
    facts = ((entry.partition, entry.labels, *(c for s in entry.states for c in s.content)) for entry in entries)
    return key_of(__version__, repr(configuration.to_dict()), asked, *chain.from_iterable(facts))


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
    names = [entry.partition for entry in entries]
    columns = [(rule, nightly.nights(entries, rule.metric, rule.of)) for rule in read]
    nightly.write()
    return judge(read, names, {(night, rule): r for rule, row in columns for night, r in zip(names, row, strict=True)})
