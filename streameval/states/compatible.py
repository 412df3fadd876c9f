"""Whether two states may be merged, and whether they are equal."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streameval.errors import IncompatibleStatesError


def mergeable(one: Any, other: Any) -> None:
    """Raise `IncompatibleStatesError` unless both states have equal specs.

    Examples
    --------
    >>> from streameval.states.labels import LabelSpec
    >>> mergeable(LabelSpec("label").empty(), LabelSpec("label").empty())
    """
    theirs = getattr(other, "spec", None)
    if type(theirs) is not type(one.spec) or one.spec != theirs:
        named = type(other).__name__ if theirs is None else theirs
        msg = f"cannot merge {one.spec} with {named}; fold both with the same options"
        raise IncompatibleStatesError(msg)


def same_table(one: Any, other: Any) -> bool:
    """Whether two states of one kind have equal headers and equal tables, however these are divided into batches."""
    return bool(one.header() == other.header() and _table(one) == _table(other))


def _table(state: Any) -> pa.Table:
    return pa.Table.from_batches(state.to_arrow(), state.spec.schema).combine_chunks()
