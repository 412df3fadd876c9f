"""Late labels of an update: what was delivered, the nights that it touches, and those that close or open again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from streameval.errors import DataError, LabelError, OptionError
from streameval.kinds import Place
from streameval.options import honoured
from streameval.saving import TABULAR, check_writable, ending
from streameval.store.nights.configuration import NO_IDS
from streameval.store.nights.fold import Folding, Night, check_written, map_on_workers
from streameval.store.nights.maturity import Aging
from streameval.store.nights.merge import Nights
from streameval.store.nights.open_nights import OPEN, OpenNight, close_night, find_closing, find_reopening, newest_day
from streameval.store.nights.statements import read_labels
from streameval.wording import few

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from streameval.engine import Engine
    from streameval.engine.cluster import ClusterEngine
    from streameval.engine.threads import ThreadEngine
    from streameval.states.late import IdTable, LateLabels
    from streameval.store.context import StoreContext
    from streameval.store.files.entries import Entry
    from streameval.store.files.ledger import Snapshot
    from streameval.store.files.published import StateFiles
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.late import Arrived
    from streameval.store.nights.partitions import Partition
    from streameval.typing import Array


class Delivery(NamedTuple):
    """Files of late labels.

    Attributes
    ----------
    labels : their paths
    verify : whether to read known ones again
    unmatched : whether none needs to match a row
    rejects : file for the statements that label no row; None without one
    """

    labels: Sequence[str] = ()
    verify: bool = False
    unmatched: bool = True
    rejects: str | None = None


NO_LABELS = Delivery()


def check_delivery(
    configuration: Configuration,
    labels: Any,
    rejects: str | os.PathLike[str] | None,
    *,
    verify: bool,
    unmatched: bool,
) -> Delivery:
    """The late labels of an update; raises `OptionError` if the store takes none."""
    named = honoured("update")["labels"].plain(labels)
    paths = [one for one in named if isinstance(one, Place)]
    if named and configuration.late is None:
        raise OptionError(f"labels: {NO_IDS}", "labels")
    if len(paths) < len(named):
        raise OptionError("labels: a store reads labels from files: name paths", "labels")
    file = honoured("update")["rejects"].plain(rejects)
    for name in ["allow_unmatched"] * unmatched + ["rejects"] * (file is not None) if not named else ():
        raise OptionError(f"{name} would change nothing without late labels: name their table (--labels)", name)
    if file is not None:
        ending(file, TABULAR, "rejects")
        check_writable(file)
    return Delivery([path.value for path in paths], verify, unmatched, file)


def is_closed(entry: Entry, configuration: Configuration) -> bool:
    """Whether a night is closed for late labels."""
    return bool(configuration.late is not None and entry.rows and entry.state(OPEN, "") is None)


def closed_errors(
    snapshot: Snapshot, configuration: Configuration, partitions: Sequence[Partition]
) -> dict[str, DataError]:
    """The errors of partitions that are to be folded again, though their nights are closed for late labels."""
    return {
        name: DataError(
            f"{name}: is closed for late labels, so its rows cannot be labelled again; remove it, then update with its "
            "data and its labels (--labels)"
        )
        for name in (partition.name for partition in partitions)
        if name in snapshot.entries and is_closed(snapshot.entries[name], configuration)
    }


def relabel_nights(
    snapshot: Snapshot,
    arrived: Arrived,
    nights: Mapping[str, Night],
    engine: ThreadEngine,
    files: StateFiles,
    delivery: Delivery,
    workers: ClusterEngine | None,
) -> tuple[dict[str, Night], Array]:
    """Fold the open nights anew that have the id of a new statement, except those that were just folded.

    Also returns which of these ids an open night has.
    """
    ids = arrived.new
    if ids is None:
        if arrived.counts["read"] and arrived.counts["read"] == arrived.counts["null_ids"] and not delivery.unmatched:
            raise LabelError(
                f"labels: no statement of {few(delivery.labels)} has an id; name the ids with on (--on), or accept "
                "that no row has a label with allow_unmatched (--allow-unmatched)"
            )
        return {}, np.zeros(0, np.bool_)
    new = [night.entry for night in nights.values()]
    others = [entry for name, entry in snapshot.entries.items() if name not in nights]
    open_nights = [entry for entry in (*new, *others) if entry.state(OPEN, "")]
    folding = Folding(arrived.configuration, files, False, arrived.labels)
    touch = partial(_touch, folding=folding, ids=ids, nights={*nights})
    try:
        if workers is None:
            touched = engine.each(partial(touch, engine=replace(engine, threads=1)), open_nights, "night")
        else:
            touched = map_on_workers(workers, touch, [((), entry) for entry in open_nights], "night", engine)
            check_written((entry for _, entry in touched if entry is not None), files)
    except LabelError as error:
        raise labels_error(str(error), delivery) from error
    if arrived.unknown and not any(seen.any() for seen, _ in touched) and not delivery.unmatched:
        raise LabelError(
            "labels: none of the new ids is that of a row of an open night; name the ids with on (--on), or accept "
            "that no row has a label with allow_unmatched (--allow-unmatched)"
        )
    seen = np.any([np.zeros(ids.first.size, np.bool_), *(seen for seen, _ in touched)], axis=0)
    return {entry.partition: Night(entry, None) for _, entry in touched if entry is not None}, seen


def _touch(
    entry: Entry, engine: Engine, *, folding: Folding, ids: IdTable, nights: set[str]
) -> tuple[Array, Entry | None]:
    """The new ids that a night has, and the night with its new labels unless it is one of the `nights` just folded."""
    night = OpenNight.read(entry, folding.files)
    seen = night.find(ids, cast("LateLabels", folding.late))
    return seen, folding.relabel(night, engine) if seen.any() and entry.partition not in nights else None


def labels_error(why: str, delivery: Delivery) -> LabelError:
    """The error for labels that cannot be those of a night; nothing is committed."""
    return LabelError(
        f"{few(delivery.labels)}: {why.partition(';')[0]}; correct the labels, or create another store with pos_label "
        "(--pos-label)"
    )


def close_nights(context: StoreContext, configuration: Configuration, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The nights that close: without their rows, and with their values by the age of labels."""
    closing = find_closing([*entries.values()], configuration)
    if not closing:
        return {}
    engine, newest = context.engine(), newest_day(entries)
    with engine.progress:
        stored = Nights([*entries.values()], configuration, context.compaction)
        aging = Aging.of(stored, replace(engine, threads=1), newest)
        closed = engine.each(lambda entry: close_night(aging.close(entry)), closing, "night")
    return {entry.partition: entry for entry in closed}


def reopen_nights(context: StoreContext, configuration: Configuration, entries: Sequence[Entry]) -> dict[str, Entry]:
    """The nights that open again for late labels, with all labels that arrived."""
    reopened = find_reopening(entries, configuration)
    if not reopened:
        return {}
    engine = context.engine()
    with engine.progress, context.files.undone() as files:
        folding = Folding(configuration, files, False, read_labels(configuration, files))
        alone = replace(engine, threads=1)

        def relabel(entry: Entry) -> Entry:
            return folding.relabel(OpenNight.read(entry, files), alone)

        return {entry.partition: entry for entry in engine.each(relabel, reopened, "night")}
