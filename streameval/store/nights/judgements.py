"""The judgements of a store, in the Delta table ``checks``.

The key of a judgement is the name of the rule, the night, and the digest of the fold that made the night's states. A
night that is folded again has another digest, and is judged again. Rows are appended; the newest row of a key is valid.
When there are many files, they are rewritten as one with only the newest rows. The table is not derived data, so a
damaged table is refused by name.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from math import nan
from typing import TYPE_CHECKING

import pyarrow as pa

from streameval.errors import CorruptFileError, DataError, NullError, StoreError
from streameval.results import Judgement
from streameval.rules import LIVE, Rule
from streameval.scan.faults import other_format
from streameval.store.files.delta import RowTable, data_files
from streameval.store.files.published import PublishedFiles
from streameval.store.nights.open_nights import OPEN
from streameval.store.nights.results import key_of
from streameval.wording import canonical, few

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from deltalake import DeltaTable

    from streameval.store.files.entries import Entry
    from streameval.store.files.location import Location


POLICIES = (
    "; update keeps the policies of a store, and add changes them once: nan (--nan), nulls (--nulls) and unlabelled "
    "(--unlabelled)"
)
BUILT_IN = COMPLETE, PRESENT, FOLDED = "complete", "present", "folded"  # rules that every store has
FILES = 32  # most files of the table before they are rewritten as one
_COPY = "restore it from a copy"
_ANEW = (
    ", or move it away and check again: the newest night is judged anew, earlier ones with since (--since), and "
    "accepted failures are lost"
)
_TEXTS = ("rule", "text", "partition", "digest", "outcome", "reason", "accepted")
_SCHEMA = pa.schema(
    dict.fromkeys(_TEXTS, pa.string())
    | dict.fromkeys(("value", "usual"), pa.float64())
    | dict.fromkeys(("nights", "number"), pa.int64())
    | {"judged": pa.timestamp("us", "UTC"), "windows": pa.list_(pa.list_(pa.float64()))}
    | {"edges": pa.list_(pa.float64())}
)


def digests(entry: Entry) -> dict[tuple[str, str], str]:
    """Digests of a fold by (group, column) of the state that a rule reads; ``("", "")`` for rules that read none.

    Adding a column later changes only the digests of rules on that column. Late labels do not change a digest before
    the night is closed for them.
    """
    is_open = ["open"] if entry.state(OPEN, "") else []
    fold = entry.partition, entry.fingerprint, entry.folded, *is_open
    columns = [("", ""), *((state.group, state.of) for state in entry.states)]
    return {column: key_of(*fold, *column) for column in columns}


class Judgements:
    """The judgements of a store.

    Parameters
    ----------
    location : Location
        Directory of the table.
    newest : str
        Name of the newest night of the store.
    """

    def __init__(self, location: Location, newest: str = "") -> None:
        self.location = location
        self.newest = newest
        self._table = RowTable(location, _SCHEMA, later=("windows", "edges"))
        self._new: list[Judgement] = []

    @cached_property
    def _opened(self) -> tuple[DeltaTable | None, pa.Table]:
        """The table, None if there is none, and its rows; raises `StoreError` if they are damaged."""
        try:
            return self._table.read()
        except StoreError as error:
            raise StoreError(f"{error}{_ANEW if str(error).endswith(_COPY) else ''}") from error

    @cached_property
    def _by_night(self) -> dict[str, dict[tuple[str, str], Judgement]]:
        """The newest judgement of each rule and digest, by night."""
        rows = self._opened[1].sort_by("number").drop_columns(["number"])
        by_night: dict[str, dict[tuple[str, str], Judgement]] = {}
        for row in rows.to_pylist():
            lists = {name: row.pop(name) or () for name in ("windows", "edges")}
            one = Judgement(**row, windows=tuple(map(tuple, lists["windows"])), edges=tuple(lists["edges"]))
            by_night.setdefault(one.partition, {})[one.rule, one.digest] = one
        return by_night

    @cached_property
    def rules(self) -> set[str]:
        """Names of the rules that have judged a night of the store."""
        return {rule for judged in self._by_night.values() for rule, _ in judged}

    def find(self, rule: str, partition: str, digest: str) -> Judgement | None:
        """The newest judgement with a key; None if there is none."""
        return self._by_night.get(partition, {}).get((rule, digest))

    def of(self, entry: Entry) -> list[Judgement]:
        """All judgements of the current fold of a night."""
        judged = self._by_night.get(entry.partition, {})
        now = set(digests(entry).values()) if judged else set()
        return [one for one in judged.values() if one.digest and now.issuperset(one.digest.split())]

    def closing(self, entry: Entry) -> list[Judgement]:
        """Judgements of the current fold of a night that keep the gate closed.

        Rules on age and missing nights count for the newest night only: an earlier night that was late no longer fails.
        """
        return [
            one for one in self.of(entry) if not one.passed and (entry.partition == self.newest or not is_live(one))
        ]

    def failing(self, entries: Iterable[Entry], outcome: str = "failed") -> dict[str, tuple[str, ...]]:
        """Nights whose gate an outcome keeps closed, with the names of the rules."""
        rules = {e.partition: tuple(one.rule for one in self.closing(e) if one.outcome == outcome) for e in entries}
        return {name: failed for name, failed in rules.items() if failed}

    def windows(self, entries: Iterable[Entry], metric: str, of: str | None) -> tuple[Judgement | None, ...]:
        """The judgement of each night by the rule on a metric of all rows that last judged windows; () without any."""
        judged = [{one.rule: one for one in self.of(entry) if one.windows} for entry in entries]
        every = [one for night in judged for one in night.values()]
        every.sort(key=lambda one: one.judged.timestamp() if one.judged else 0.0, reverse=True)
        texts = {one.rule: Rule.read(one.text) for one in every}
        own = ((name, rule) for name, rule in texts.items() if rule.than is None and rule.of in (None, of))
        name = next((name for name, rule in own if canonical(rule.metric) == metric), None)
        return tuple(night.get(name) for night in judged) if name is not None else ()

    def edges(self, rule: str, entries: Iterable[Entry]) -> tuple[float, ...]:
        """The edges of PSI by which a rule first judged nights, also earlier folds of them; empty if it has not."""
        judged = (one for entry in entries for one in self._by_night.get(entry.partition, {}).values())
        return next((one.edges for one in judged if one.rule == rule and one.edges), ())

    def unfolded(self, entries: Iterable[Entry]) -> list[Judgement]:
        """Failures to fold nights that the store lacks since, or of which it has an earlier fold."""
        folds = {entry.partition: digests(entry)["", ""] for entry in entries}
        recorded = (self.find(FOLDED, name, folds.get(name, "")) for name in self._by_night)
        return [one for one in recorded if one is not None]

    def record_unfolded(self, errors: Mapping[str, DataError], entries: Mapping[str, Entry]) -> None:
        """Record that nights could not be folded; a file of another format, such as a CSV file, is no night."""
        for name, error in errors.items():
            if isinstance(error, CorruptFileError) and other_format(name)[0]:
                continue
            digest = digests(entries[name])["", ""] if name in entries else ""
            why = f"cannot be folded: {error}{POLICIES * isinstance(error, NullError)}"
            self.add(
                Judgement(FOLDED, FOLDED, "failed", nan, why, partition=name, digest=digest, judged=datetime.now(UTC))
            )
        with suppress(StoreError):  # the error of the nights, which follows, matters more
            self.write()

    def add(self, one: Judgement) -> None:
        """Collect a judgement for `write`."""
        self._by_night.setdefault(one.partition, {})[one.rule, one.digest] = one
        self._new.append(one)

    def write(self) -> None:
        """Write the collected judgements.

        Raises
        ------
        StoreError
            If another process wrote meanwhile.
        """
        if not self._new:
            return
        base = self._opened[0]
        anew = base is not None and len(data_files(base)) >= FILES
        judged = [one for night in self._by_night.values() for one in night.values()] if anew else self._new
        number = 0 if base is None else base.version() + 1  # orders the writes
        rows = pa.Table.from_pylist([vars(one) | {"number": number} for one in judged], schema=_SCHEMA)
        self._table.write(base, rows, f"{len(self._new)} judged", anew=anew)
        self._new = []

    def vacuum(self, oldest: float) -> None:
        """Delete unreferenced files that were last modified at `oldest` (seconds since 1970) or earlier.

        A check may have written one of them and be about to commit it. So files are listed, then the table is read,
        and a commit that adds a file of the table once more has that check refused before anything is deleted. If
        another check commits first, nothing is deleted.

        Raises
        ------
        StoreError
            If the table is damaged.
        """
        files = PublishedFiles(self.location)
        listed = {name: (size, when) for name, size, when in files.list()}
        table, _ = self._opened
        names = [] if table is None else data_files(table)
        dead = [name for name, (_, when) in listed.items() if when <= oldest and name not in names]
        if not dead or not names:
            return
        again = {"path": names[0], "size": listed.get(names[0], (0,))[0], "modification_time": 0, "stats": "{}"}
        with suppress(StoreError):
            self._table.commit(table, again, {"action": f"vacuum: {len(dead)} deleted"})
            files.delete(dead)


def is_live(one: Judgement) -> bool:
    """Whether the rule is about the store at the time of the check (age, missing), not about the night."""
    return one.rule not in BUILT_IN and Rule.read(one.text).metric in LIVE


def accept(entries: Sequence[Entry], log: Judgements, rules: Sequence[str], why: str, now: datetime) -> list[Judgement]:
    """Accept the recorded failures of nights, by all rules or by the named ones.

    Raises
    ------
    DataError
        If no such failure is recorded.
    """
    accepted = []
    for entry in entries:
        failures = [one for one in log.of(entry) if not one.passed]
        chosen = [one for one in failures if not rules or one.rule in rules]
        if not chosen:
            of = f" of {few(list(rules))}" if rules else ""
            remedy = f"it fails {few([one.rule for one in failures])}" if failures else "check first, then accept"
            raise DataError(f"{entry.partition}: no failure{of} is recorded; {remedy}")
        accepted += [replace(one, accepted=why, judged=now) for one in chosen]
    for one in accepted:
        log.add(one)
    return accepted
