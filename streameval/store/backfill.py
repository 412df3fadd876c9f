"""Change the columns of a store, and fold nights again for the states that they lack, and no others.

Added columns and metrics extend the configuration; a policy may only change if no stored state depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

from streameval import scan
from streameval.errors import DataError, MissingColumnError, MissingInputError, OptionError
from streameval.evaluation.request import Request
from streameval.evaluation.slicing import Slicing
from streameval.kinds import ByColumn, of_column
from streameval.options import active, check_policies
from streameval.scan.derived import has_part
from streameval.states.codec import restate
from streameval.store.files.entries import merge_facts
from streameval.store.nights.configuration import (
    KEPT,
    LATE,
    REPORTED,
    SUBSETS,
    Configuration,
    contradiction_error,
    plain_options,
    select_slicings,
)
from streameval.store.nights.fold import find_types, fold_partitions
from streameval.store.nights.merge import spec_as_kept
from streameval.store.nights.open_nights import OPEN, find_recent, open_days
from streameval.store.nights.partitions import discover, find_rewritten, is_same
from streameval.store.nights.statements import read_labels
from streameval.wording import few, unknown_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.engine import Engine
    from streameval.engine.cluster import ClusterEngine
    from streameval.engine.threads import ThreadEngine
    from streameval.options import Option
    from streameval.scan.files.tables import Tables
    from streameval.states.protocol import StoredSpec
    from streameval.store.files.entries import Entry
    from streameval.store.files.published import StateFiles
    from streameval.store.nights.partitions import Partition

    _Column = tuple[str, str]  # group and column of a state


_COLUMNS = ("classes", "weight", "unit")  # options that name one column


def extend_configuration(before: Configuration, given: Mapping[str, object]) -> Configuration:
    """The configuration with added columns or metrics; `given` are options such as ``score=("score_lr",)``.

    Raises
    ------
    OptionError
        If an option contradicts what the store keeps, or is a policy for a column that it does not keep.
    """
    options, plain = dict(before.options), plain_options(given)
    for name, value in sorted(plain.items(), key=lambda item: bool(KEPT[item[0]].of)):  # policies after columns
        option, own = KEPT[name], before.options[name]
        new = [c for c in options[option.of] if c not in before.options[option.of]] if option.of else []
        if name == "metrics" and not own and value:
            options[name] = ("default", *value)
        elif isinstance(value, ByColumn) or (new and not option.kind.many):
            options[name] = _extend_policy(before, option, value, new)
        elif isinstance(own, ByColumn) and option.kind.many:
            options[name] = ByColumn.of(dict(own.columns), tuple(dict.fromkeys((*own.others, *value))))
        elif option.kind.many and not (name == "on" and own):  # open nights find rows by the ids that they have
            options[name] = tuple(dict.fromkeys((*own, *value)))
        elif name == "timezone" and value != own and any(map(has_part, before.slicing.columns)):
            if not before.is_timezone(value):
                zones = tuple(dict.fromkeys(before.zones.values()))
                raise contradiction_error(name, value, zones, "the store has slices by times: create another store")
            options[name] = value
        elif name == "label_time" and not own and before.statements.files:
            raise contradiction_error(name, value, own, "its labels have no times: create another store")
        elif own == option.rest or name in ("max_slices", "labels_open"):  # limits change no state
            options[name] = value
        elif value != own:
            raise contradiction_error(name, value, own, "a store can have only one: create another store")
    check_policies(plain, options, KEPT)  # the store's own may be for columns that are still to be added
    after = Configuration.of({name: value for name, value in options.items() if value != KEPT[name].rest})
    alike = (*REPORTED, *SUBSETS, "max_slices", "nan", "nulls", "labels_open", "label_conflicts")
    others = [name for name in plain if name not in alike]
    if before.design and others:
        raise OptionError(
            f"{others[0]}: a store of sampled labels takes more columns of scores and sketches only; create "
            "another store with all",
            others[0],
        )
    return after.with_(before.types).delivered(before.statements)


def _extend_policy(before: Configuration, option: Option, value: object, new: Sequence[str]) -> object:
    """Extend a policy to added columns.

    It also applies to named columns that had the default. Other named columns may only change options that affect
    values, not states.

    Raises
    ------
    OptionError
        If the state of a column would change.
    """
    own = before.options[option.name]
    named = dict(value.columns) if isinstance(value, ByColumn) else dict.fromkeys(new, value)
    stray = [name for name in named if name not in new and of_column(own, name) not in (named[name], option.rest)]
    if stray and option.decides == "state":
        raise contradiction_error(option.name, value, own, f"{', '.join(stray)} keeps its policy: create another store")
    by_column = own if isinstance(own, ByColumn) else ByColumn((), own)
    return ByColumn.of(dict(by_column.columns) | named, by_column.others)


def list_added(after: Configuration, before: Configuration) -> tuple[str, ...]:
    """Added columns and metrics, in words."""
    added: list[str] = []
    for name, value in after.options.items():
        own = before.options[name]
        if isinstance(value, tuple):
            added += [item if isinstance(item, str) else f"{name} {item}" for item in value if item not in own]
        elif name in _COLUMNS and value != own:
            added.append(str(value))
    return tuple(dict.fromkeys(name for name in added if name != "default"))


def list_altered(after: Configuration, before: Configuration) -> tuple[tuple[str, object, object], ...]:
    """Changed options: the name of each, such as ``max_slices`` or ``nan of score_lr``, with its old and new value."""
    altered: list[tuple[str, Any, Any]] = []
    for name, value in after.options.items():
        own = before.options[name]
        if isinstance(value, ByColumn):
            changes = [(column, of_column(own, column), new) for column, new in value.columns]
            changes = [
                (column, old, new) for column, old, new in changes if column in before.key_columns and old != new
            ]
            altered += [(f"{name} of {column}", old, new) for column, old, new in changes]
        elif not isinstance(value, tuple) and name not in _COLUMNS and value != own:
            altered.append((name, own, value))
    return tuple(altered)


def _is_computed(options: Mapping[str, Any], metric: str) -> bool:
    """Whether a store with these options has the columns that a metric needs."""
    try:
        own = {name: value for name, value in options.items() if name not in LATE}
        Request.checked(active({**own, "metrics": (metric,)}))
    except OptionError:
        return False
    return True


def remove_column(before: Configuration, column: str) -> Configuration:
    """The configuration without a column.

    Raises
    ------
    OptionError
        If the store does not keep the column, all states depend on it, or it is the only column.
    """
    options = dict(before.options)
    for name in ("label", "weight"):
        if options[name] == column:
            raise OptionError(f"{column} is the {name} column, on which all states depend; create another store")
    if before.design and column in before.design.key.columns:
        raise OptionError(f"{column} says how labels were drawn, on which all states depend; create another store")
    have = dict.fromkeys((*before.key_columns, *filter(None, [options["classes"]]), *before.slicing.sources))
    if column not in have:
        raise OptionError(unknown_column(column, list(have), "the store keeps"))
    options |= select_slicings(options, lambda names: column not in Slicing.of((",".join(names),), 1).sources)
    options |= {name: tuple(c for c in options[name] if c != column) for name in SUBSETS}
    options |= {name: None for name in ("classes", "unit") if options[name] == column}
    options["classes"] = options["classes"] if options["cluster"] else None
    if not any(options[name] for name in SUBSETS):
        raise OptionError(f"{column} is the only column of the store; delete the store instead")
    options["unlabelled"] = "drop" if options["on"] and not options["cluster"] else options["unlabelled"]
    options["metrics"] = tuple(metric for metric in options["metrics"] if _is_computed(options, metric))
    return Configuration(active(options, "update"), {}).with_(before.types).delivered(before.statements)


@dataclass(frozen=True)
class Backfill:
    """Additional states of a store, which nights are folded for.

    Attributes
    ----------
    before, after : the old and the new configuration
    data : paths of the files of nights; None for the paths that they were folded from
    tables : version and snapshot of the tables among the data
    """

    before: Configuration
    after: Configuration
    data: Any
    tables: Tables

    @cached_property
    def _relaxed(self) -> Configuration:
        """The old configuration with the new policies for nulls and NaN."""
        policies = {name: self.after.options[name] for name in ("nan", "nulls")}
        return replace(self.before, options=active(self.before.options | policies, "update"))

    def _find_lacking(self, entries: Sequence[Entry]) -> tuple[set[_Column], dict[str, frozenset[_Column]]]:
        """The states whose spec changes, and the states that each night lacks, these included."""
        states = self.after.changed(self._relaxed)
        stale = {key for key, changed in states.items() if changed}
        known = self._relaxed.specs.keys()  # where sizes now count every row, labelled rows alone have no sizes
        stale |= {(group.replace(".rows", "", 1), of) for group, of in states.keys() - known} & known
        return stale, {
            entry.partition: frozenset(k for k in states if entry.rows and (k in stale or entry.state(*k) is None))
            for entry in entries
        }

    def plan(self, chosen: Sequence[Entry]) -> tuple[Configuration, list[Partition]]:
        """The configuration of the states that these nights lack, and the partitions to fold."""
        _, lacking = self._find_lacking(chosen)
        opening, closed = self._find_opening(chosen)
        due = [e for e in chosen if e.partition not in closed and (lacking[e.partition] or e.partition in opening)]
        return self._narrow(lacking), self._find_files(due)[0] if due else []

    def _narrow(self, lacking: Mapping[str, frozenset[_Column]]) -> Configuration:
        """The configuration of the states to fold: what nights lack, all if they keep rows for late labels."""
        due = None if self.after.late is not None else frozenset().union(*lacking.values())
        return replace(self.after, due=due)

    def _find_opening(self, entries: Sequence[Entry]) -> tuple[set[str], set[str]]:
        """The nights that open for late labels, as these or a longer span are added; and those that stay closed."""
        shut = {e.partition for e in entries if e.rows and e.state(OPEN, "") is None}
        longer = self.before.late is None or open_days(self.after) > open_days(self.before)
        opening = shut & find_recent([entry.partition for entry in entries], self.after) if longer else set()
        if opening and (forgotten := self.before.statements.forgotten_names):
            raise DataError(
                f"{min(opening)}: its labels may be among those that vacuum deleted; deliver {few(forgotten)} again "
                "before it opens (update --labels FILE --allow-unmatched)"
            )
        return opening, shut - opening if self.before.late is not None else set()

    def fold(
        self,
        entries: Sequence[Entry],
        chosen: Sequence[Entry],
        engine: ThreadEngine,
        files: StateFiles,
        workers: ClusterEngine | None,
    ) -> tuple[Configuration, list[Entry], tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Fold some nights for the additional states.

        Parameters
        ----------
        entries : all nights
        chosen : the nights to fold
        engine, workers : fold the nights in this process, or on a cluster
        files : writes the states

        Returns
        -------
        Configuration, list of Entry
            The configuration of the store with the new columns, and all nights.
        three tuples of str
            The nights that were folded, those whose files no longer exist, and those that lack the columns.

        Raises
        ------
        DataError
            If the files of a night changed since it was folded, or no night has the columns.
        """
        after, relabelled = self.after, self._relaxed.changed(self.before)
        entries = [_relabel_states(entry, relabelled, engine, files) for entry in entries]
        stale, lacking = self._find_lacking(entries)
        names = {entry.partition for entry in chosen}
        late, (opening, closed) = after.late is not None, self._find_opening(entries)
        due = {e.partition: e for e in entries if lacking[e.partition] or e.partition in opening}
        closed = closed & due.keys() & names
        due = {name: entry for name, entry in due.items() if name in names - closed}
        present, gone = self._find_files(list(due.values())) if due else ([], [])
        nights: dict[str, Entry] = {}
        if due:
            narrow = self._narrow(lacking)
            reasons = [_why_not_foldable(partition, narrow, engine) for partition in present]
            foldable = [partition for partition, reason in zip(present, reasons, strict=True) if not reason]
            new = sorted({*after.folding.columns} - {*self._relaxed.folding.columns})
            if not present and (new or stale):
                place = "among the data" if self.data is not None else "where it was folded from"
                remedy = "" if self.data is not None else ": name the data of the nights (add STORE DATA)"
                raise MissingInputError(f"no night is {place}{remedy}")
            if not foldable and (new or stale):
                new = new or [of for _, of in sorted(stale)]
                why = f" ({reasons[-1]})" if reasons else ""
                what = f"a column {new[0]}; add it" if len(new) == 1 else f"all columns {', '.join(new)}; add them"
                named = "" if self.data is not None else ", or name the data of the nights (add STORE DATA)"
                raise MissingColumnError(f"no night at hand has {what} once one has{named}{why}")
            if foldable:
                narrow = find_types(foldable, narrow, engine)
                after = replace(narrow, due=None)
            labels = read_labels(after, files) if late else None
            open_names = opening | {name for name, entry in due.items() if entry.state(OPEN, "")}
            for skip, own in product((False, True), (None, labels) if late else (None,)):
                some = [p for p in foldable if (p.name in open_names) == (own is not None)]
                # files that were left out of an incomplete night may be left out again
                if some := [partition for partition in some if due[partition.name].incomplete == skip]:
                    folded, errors = fold_partitions(some, narrow, engine, files, workers, skip=skip, late=own)
                    for error in errors.values():
                        raise error
                    nights |= {name: night.entry for name, night in folded.items()}
        filled = [
            nights[entry.partition]
            if entry.partition in opening & nights.keys()
            else _add_states(entry, nights.get(entry.partition), lacking[entry.partition], stale)
            for entry in entries
        ]
        at_hand = [partition.name for partition in present]
        without = (*closed, *(name for name in at_hand if name not in nights))
        return after, filled, tuple(name for name in at_hand if name in nights), tuple(gone), without

    def _find_files(self, entries: Sequence[Entry]) -> tuple[list[Partition], list[str]]:
        """The partitions whose files exist, and the names of the other nights.

        Raises
        ------
        DataError
            If the files of a night changed since it was folded.
        """
        partitions: list[Partition] = []
        gone: list[str] = []
        roots, by_name = {entry.root for entry in entries}, {entry.partition: entry for entry in entries}
        columns = self.after.readable
        if self.data is None:
            found = list(_discover_again(entries, self.tables, columns))
        else:
            found = list(discover(self.data, roots, self.tables, columns))
        present = {partition.name: partition for partition in found}
        own = [partition for name, partition in present.items() if name in by_name]
        changed = [p for p in own if not is_same(by_name[p.name].fingerprint, p.fingerprint)]
        rewritten = find_rewritten(changed, by_name, self.tables)
        for entry in entries:
            partition = present.get(entry.partition)
            if partition is None:
                gone.append(entry.partition)
            elif not is_same(entry.fingerprint, partition.fingerprint) and partition.name not in rewritten:
                raise DataError(f"{entry.partition}: its files changed since it was folded; update or replace it first")
            else:
                partitions.append(partition)
        return partitions, gone


def _relabel_states(
    entry: Entry, changed: Mapping[_Column, tuple[StoredSpec, StoredSpec] | None], engine: Engine, files: StateFiles
) -> Entry:
    """The night with its states relabelled for the new policies, which change nothing: nulls were refused before."""
    states = []
    for stored in entry.states:
        specs = changed.get((stored.group, stored.of))
        if specs is not None:
            old, new = (spec_as_kept(spec, stored) for spec in specs)
            state = restate(files.read(stored.file, engine.budget, old), new, engine.budget)
            file, size = files.write(state)
            stored = replace(stored, file=file, bytes=size)
        states.append(stored)
    return replace(entry, states=tuple(states))


def _discover_again(entries: Sequence[Entry], tables: Tables, columns: Sequence[str]) -> Iterator[Partition]:
    """The partitions at the original paths of nights, without those that no longer exist; a table is read once."""
    for root in dict.fromkeys(entry.root for entry in entries):
        table = scan.table_of(root)
        nights = [f"{root.rstrip('/')}/{entry.partition}" for entry in entries if entry.root == root]
        for path in [table] if table else nights:
            try:
                yield from discover(path, [root], tables, columns)
            except MissingInputError:
                continue
            except DataError as error:  # such as a directory inside of a table
                raise DataError(f"{path}: name the data of the nights (add STORE DATA): {error}") from error


def _why_not_foldable(partition: Partition, configuration: Configuration, engine: ThreadEngine) -> str:
    """The reason why a night cannot be folded, missing rows or columns; empty if it can."""
    try:
        scan.plan(list(partition.files), configuration.columns, on_error="skip", threads=engine.threads)
    except (MissingColumnError, MissingInputError) as error:
        return str(error)
    return ""


def _add_states(entry: Entry, folded: Entry | None, lacking: frozenset[_Column], stale: set[_Column]) -> Entry:
    """The entry with its new states added, and stale states removed.

    Raises
    ------
    DataError
        If the labels differ from those that were folded.
    """
    states = tuple(state for state in entry.states if (state.group, state.of) not in stale)
    if folded is None:
        return entry if states == entry.states else replace(entry, states=states)
    labels, own = folded.labels, entry.labels
    if folded.rows != entry.rows or (labels.column and own.column and labels != own):
        raise DataError(f"{entry.partition}: its labels are not those that were folded; update or replace it first")
    states = tuple(state for state in states if state.group != OPEN)  # rows are written with the new columns
    new = tuple(state for state in folded.states if (state.group, state.of) in lacking or state.group == OPEN)
    labels = own if own.column else labels
    facts = merge_facts(entry, folded)
    return replace(entry, fingerprint=folded.fingerprint, labels=labels, states=(*states, *new), facts=facts)
