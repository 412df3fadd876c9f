"""Judgements: verdicts of rules on nights, stored in the Delta table ``checks`` of a store.

The key of a judgement is the name of the rule, the night, and the digest of the fold that made the night's states. A
night that is folded again has another digest, and is judged again. Rows are appended; the newest row of a key is valid.
When there are many files, they are rewritten as one with only the newest rows.

The table is not derived data, so a damaged table is refused by name. The outcomes are:

============= ===================================================================================
``passed``    the night satisfies the rule
``failed``    fails every check until the night is replaced, removed, or accepted
``undecided`` too few nights to compare with, or no sampling interval; the next check judges again
``earlier``   the night was folded before the rule existed, and was never judged by it
============= ===================================================================================
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval.errors import StoreError
from streameval.rules import LIVE, Rule, outcome_word
from streameval.store.files.delta import RowTable, data_files
from streameval.store.files.published import PublishedFiles
from streameval.store.nights.results import key_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from deltalake import DeltaTable

    from streameval.store.files.entries import Entry
    from streameval.store.files.location import Location


BUILT_IN = COMPLETE, PRESENT = "complete", "present"  # rules that every store has
FILES = 32  # most files of the table before they are rewritten as one
_COPY = "restore it from a copy"
_ANEW = (
    ", or move it away and check again: the newest night is judged anew, earlier ones with since (--since), and "
    "accepted failures are lost"
)
_SCHEMA = pa.schema(
    {
        "rule": pa.string(),
        "text": pa.string(),
        "partition": pa.string(),
        "digest": pa.string(),
        "outcome": pa.string(),
        "value": pa.float64(),
        "usual": pa.float64(),
        "nights": pa.int64(),
        "reason": pa.string(),
        "accepted": pa.string(),
        "judged": pa.timestamp("us", "UTC"),
        "number": pa.int64(),
    }
)


@dataclass(frozen=True)
class Judgement:
    """Verdict of a rule on a night.

    Attributes
    ----------
    rule, text : name of the rule, and the rule as written
    partition : the night
    digest : digest of the fold that was judged
    outcome : see the module docstring; also ``pending``, which is never stored
    value, usual, nights : see `Verdict`
    reason : the comparison, in words
    accepted : why a failure was accepted; None if it was not
    judged : time of the judgement, UTC
    """

    rule: str
    text: str
    partition: str
    digest: str
    outcome: str
    value: float
    usual: float
    nights: int
    reason: str
    accepted: str | None
    judged: datetime

    @property
    def good(self) -> bool:
        """Whether the judgement does not keep the gate closed."""
        return self.accepted is not None or self.outcome not in ("failed", "undecided")

    @property
    def word(self) -> str:
        """The outcome as shown in tables.

        Examples
        --------
        >>> from dataclasses import replace
        >>> from datetime import UTC, datetime
        >>> rule = "auc_floor", "roc_auc[v2] >= 0.97", "night=2026-01-02", "9f3c"
        >>> judged = Judgement(*rule, "failed", 0.95, float("nan"), 0, "", None, datetime(2026, 1, 3, tzinfo=UTC))
        >>> judged.word, replace(judged, accepted="known").word
        ('FAIL', 'accepted')
        """
        if self.accepted is not None:
            return "accepted"
        return outcome_word(self.outcome)

    @property
    def live(self) -> bool:
        """Whether the rule is about the store at the time of the check (age, missing), not about the night."""
        return self.rule not in BUILT_IN and Rule.read(self.text).metric in LIVE

    def to_dict(self) -> dict[str, Any]:
        """Plain values; NaN becomes None."""
        told = {name: getattr(self, name) for name in ("rule", "text", "partition", "outcome")} | {"passed": self.good}
        told |= {name: getattr(self, name) for name in ("value", "usual", "nights", "reason", "accepted")}
        return {name: None if value != value else value for name, value in told.items()}


def digests(entry: Entry) -> dict[tuple[str, str], str]:
    """Digests of a fold by (group, column) of the state that a rule reads; ``("", "")`` for rules that read none.

    Adding a column later changes only the digests of rules on that column.
    """
    fold = entry.partition, entry.fingerprint, entry.updated.isoformat()
    columns = [("", ""), *((kept.group, kept.of) for kept in entry.states)]
    return {column: key_of(*fold, *column) for column in columns}


class Judgements:
    """The judgements of a store.

    Parameters
    ----------
    location : Location
        Directory of the table.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self._table = RowTable(location, _SCHEMA)
        self._new: list[Judgement] = []

    @cached_property
    def _opened(self) -> tuple[DeltaTable | None, pa.Table]:
        """The table, None if there is none, and its rows; raises `StoreError` if they are damaged."""
        try:
            return self._table.read()
        except StoreError as error:
            raise StoreError(f"{error}{_ANEW if str(error).endswith(_COPY) else ''}") from error

    @cached_property
    def _newest(self) -> dict[str, dict[tuple[str, str], Judgement]]:
        """The newest row of each key, by night."""
        rows = self._opened[1].sort_by("number").drop_columns(["number"])
        newest: dict[str, dict[tuple[str, str], Judgement]] = {}
        for one in (Judgement(**row) for row in rows.to_pylist()):
            newest.setdefault(one.partition, {})[one.rule, one.digest] = one
        return newest

    @cached_property
    def rules(self) -> set[str]:
        """Names of the rules that have judged a night of the store."""
        return {rule for judged in self._newest.values() for rule, _ in judged}

    def find(self, rule: str, partition: str, digest: str) -> Judgement | None:
        """The newest judgement with a key; None if there is none."""
        return self._newest.get(partition, {}).get((rule, digest))

    def of(self, entry: Entry) -> list[Judgement]:
        """All judgements of the current fold of a night."""
        judged = self._newest.get(entry.partition, {})
        now = set(digests(entry).values()) if judged else set()
        return [one for one in judged.values() if now.issuperset(one.digest.split())]

    def closing(self, entry: Entry, newest: str) -> list[Judgement]:
        """Judgements of the current fold of a night that keep the gate closed.

        Rules on age and missing nights count for the newest night only: an earlier night that was late no longer fails.
        """
        open_ = [one for one in self.of(entry) if not one.good]
        return open_ if entry.partition == newest else [one for one in open_ if not one.live]

    def accepted(self, entry: Entry) -> list[Judgement]:
        """Accepted failures of the current fold of a night."""
        return [one for one in self.of(entry) if one.accepted is not None]

    def failing(self, entries: Sequence[Entry], newest: str) -> dict[str, tuple[str, ...]]:
        """Nights whose current fold fails, with the names of the failed rules."""
        return self._named(entries, newest, "failed")

    def undecided(self, entries: Sequence[Entry], newest: str) -> dict[str, tuple[str, ...]]:
        """Nights with undecided judgements that keep the gate closed, with the names of the rules."""
        return self._named(entries, newest, "undecided")

    def _named(self, entries: Sequence[Entry], newest: str, outcome: str) -> dict[str, tuple[str, ...]]:
        """Nights whose gate is kept closed by an outcome, with the names of the rules."""
        found = {
            entry.partition: tuple(one.rule for one in self.closing(entry, newest) if one.outcome == outcome)
            for entry in entries
        }
        return {name: rules for name, rules in found.items() if rules}

    def add(self, one: Judgement) -> None:
        """Collect a judgement for `write`."""
        self._newest.setdefault(one.partition, {})[one.rule, one.digest] = one
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
        judged = [one for night in self._newest.values() for one in night.values()] if anew else self._new
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
