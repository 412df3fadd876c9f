"""One night: a partition of the data → its state files, and what the ledger will say of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from streameval.engine.fold import Folded, Plan
from streameval.errors import DataError
from streameval.evaluation.conclude import finalize_all
from streameval.evaluation.families import planned
from streameval.store.files.ledger import Entry, StoredState
from streameval.store.nights.partitions import fingerprint

if TYPE_CHECKING:
    from streameval import scan
    from streameval.engine import Engine
    from streameval.evaluation.result import Evaluation
    from streameval.states.labels import LabelCounts, LabelSpec
    from streameval.store.files.states import StateFiles
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.partitions import Partition

__all__ = ["Night", "empty_night", "fold_partition"]


@dataclass(frozen=True)
class Night:
    """A partition that was folded.

    Attributes
    ----------
    entry : what the ledger will say
    evaluation : its own metrics; None where they do not exist, as of a partition without rows
    """

    entry: Entry
    evaluation: Evaluation | None


def fold_partition(
    partition: Partition, found: scan.Scan, configuration: Configuration, engine: Engine, files: StateFiles
) -> Night:
    """Fold one partition and write its states.

    Raises
    ------
    DataError
        If it cannot be evaluated, or its files change meanwhile.
    """
    request = configuration.folding
    wanted = planned(request, found)
    plan = Plan(found.schema, request.label, request.weight, tuple({w.spec: None for w in wanted}))
    folded = engine.read(found.pieces, found.rows, plan)
    _refuse_changed(partition)
    kept = tuple(StoredState(w.group, w.of, w.spec.kind, *files.write(folded.states[w.spec])) for w in wanted)
    own = _own(engine, partition.name, plan, configuration, folded)
    return Night(_entry(partition, folded, request.label, kept), own)


def empty_night(partition: Partition, label: LabelSpec) -> Night:
    """A partition without rows."""
    return Night(_entry(partition, Folded({label: label.empty()}), label, ()), None)


def _refuse_changed(partition: Partition) -> None:
    """Raise if the files changed while they were read."""
    if fingerprint(partition.files)[0] != partition.fingerprint:
        msg = f"{partition.name}: its files changed while they were read; nothing of this update counts: run it again"
        raise DataError(msg)


def _entry(partition: Partition, folded: Folded, label: LabelSpec, kept: tuple[StoredState, ...]) -> Entry:
    """The ledger's row of a partition."""
    labels: LabelCounts = folded.states[label]
    return Entry(
        partition.name,
        partition.root,
        partition.fingerprint,
        len(partition.files),
        partition.bytes,
        labels.neg + labels.pos + labels.null,
        json.dumps(labels.header(), sort_keys=True),
        kept,
        datetime.now(UTC),
    )


def _own(engine: Engine, name: str, plan: Plan, configuration: Configuration, folded: Folded) -> Evaluation | None:
    """The metrics of one partition alone."""
    wanted = configuration.wanted([name])
    states = {w.spec: folded.states[w.spec] for w in wanted} | {plan.label: folded.states[plan.label]}
    try:
        return finalize_all(
            engine, [name], plan, wanted, Folded(states), threshold=configuration.request().aul_threshold
        )
    except DataError:
        return None  # its labels alone are no two classes, or it has no rows: what counts is the whole
