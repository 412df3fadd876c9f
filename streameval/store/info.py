"""Description of a store: nights, columns, policies, incomplete and failing nights, and damaged files."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from streameval.errors import StoreError
from streameval.options import recorded
from streameval.options.kinds import in_words
from streameval.store.nights.configuration import slices_group
from streameval.store.nights.partitions import newest, sort_entries
from streameval.wording import few, plural, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.grouped.keys import By
    from streameval.store.context import StoreContext
    from streameval.store.files.entries import Entry


_COLUMNS = ("label", "weight", "score", "cluster", "sketch", "classes", "by")


@dataclass(frozen=True)
class Info:
    """The description of a store.

    Attributes
    ----------
    name : path or URI, without credentials
    version : version of the ledger; every update increments it
    kept : the versions that are kept, and for how long, in words
    nights, first, last : number of nights, and the names of the first and the last
    rows : total number of rows
    bytes, files : size and number of the state files
    columns : kept columns by kind
    types : key type of each score, cluster and class column
    policies : other options that differ from their defaults
    incomplete : nights from which files were left out
    failing : nights that fail, with the names of the failed rules; None if the judgements cannot be read
    undecided : nights with undecided judgements that keep the gate closed, with the names of the rules; None likewise
    slices : size of the states in bytes, by slicing
    damaged : what is damaged in words, with the remedy: judgements, and states if verified; None if neither was found
    """

    name: str
    version: int
    kept: str
    nights: int
    first: str | None
    last: str | None
    rows: int
    bytes: int
    files: int
    columns: dict[str, Any]
    types: dict[str, str]
    policies: dict[str, Any]
    incomplete: tuple[str, ...]
    failing: dict[str, tuple[str, ...]] | None
    undecided: dict[str, tuple[str, ...]] | None = field(default_factory=dict)
    slices: dict[str, int] = field(default_factory=dict)
    damaged: tuple[str, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        """Name and value of each fact, as text."""
        listed = {name: given if isinstance(given, str) else ", ".join(given) for name, given in self.columns.items()}
        listed.pop("by", None)
        sliced = [f"by {by}, {size / max(self.rows, 1):,.1f} bytes a row" for by, size in self.slices.items()]
        failing, undecided = (
            few([f"{night} ({few(list(rules))})" for night, rules in (nights or {}).items()])
            for nights in (self.failing, self.undecided)
        )
        facts = [
            ("store", f"{self.name}, version {self.version}"),
            ("versions", self.kept),
            ("nights", f"{self.nights:,}, {self.first} to {self.last}" if self.nights else "0"),
            ("rows", f"{self.rows:,}"),
            ("size", f"{plural(self.files, 'file')}, {size(self.bytes)}"),
            *listed.items(),
            *(("slices", what) for what in sliced),
            *((name, in_words(value)) for name, value in self.policies.items()),
            ("incomplete", few(self.incomplete) or "none"),
            ("failing", failing or ("unknown" if self.failing is None else "none")),
            *([("undecided", undecided)] if undecided else []),
        ]
        if self.damaged is not None:
            facts += [("damaged", what) for what in self.damaged] or [
                ("damaged", "none: all files are as they were written")
            ]
        return facts


def info(context: StoreContext, *, verify: bool) -> Info:
    """Describe a store; see `Store.info`."""
    snapshot, configuration = context.begun()
    entries, log = sort_entries(snapshot.entries.values()), context.judgements()
    states = {state.file: state.bytes for entry in entries for state in entry.states}
    options = {name: value for name, value in configuration.options.items() if value}
    damaged: tuple[str, ...] | None = None
    if verify:
        damaged = tuple(
            f"{entry.partition}: {state.of} ({state.file}); fold it again: replace {entry.root}/{entry.partition}"
            for entry in entries
            for state in entry.states
            if not context.files.sound(state.file)
        )
    failing: dict[str, tuple[str, ...]] | None
    undecided: dict[str, tuple[str, ...]] | None
    try:
        last = newest(snapshot.entries)
        failing, undecided = log.failing(entries, last), log.undecided(entries, last)
    except StoreError as error:  # everything else is still told
        failing, undecided, damaged = None, None, (str(error), *(damaged or ()))
    return Info(
        context.location.name,
        snapshot.version,
        snapshot.span,
        len(entries),
        entries[0].partition if entries else None,
        entries[-1].partition if entries else None,
        sum(entry.rows for entry in entries),
        sum(states.values()),
        len(states),
        {name: _plain(options[name]) for name in _COLUMNS if name in options},
        dict(configuration.types),
        {name: value for name, value in recorded(configuration.options).items() if name not in _COLUMNS},
        tuple(entry.partition for entry in entries if entry.incomplete),
        failing,
        undecided,
        {",".join(key.columns): _bytes_of(entries, key) for key in configuration.slicing.keys},
        damaged,
    )


def _bytes_of(entries: Sequence[Entry], key: By) -> int:
    """Total size in bytes of the sliced states of a slicing."""
    group = slices_group("", key)
    sizes = {state.file: state.bytes for entry in entries for state in entry.states if state.group.endswith(group)}
    return sum(sizes.values())


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
