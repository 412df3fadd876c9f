"""The options that a store keeps, and checks of the options given to its methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.options import honoured, kept_options, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEPT = kept_options()
REPORTED = tuple(name for name, option in KEPT.items() if option.decides == "value")
SUBSETS = ("score", "cluster", "sketch")  # an evaluation may name some of the store's columns
SHOWN = tuple(
    name
    for name, option in honoured("show").items()
    if name in honoured("evaluate") and name not in KEPT and option.decides != "nothing"
)
ALL_STATES = {name: KEPT[name].rest for name in REPORTED}


def _spelled(value: Any) -> str:
    """The value of an option for messages."""
    return (
        ", ".join(map(repr, value)) or "none" if isinstance(value, tuple) else "none" if value is None else repr(value)
    )


def plain_options(given: Mapping[str, Any], more: Sequence[str] = ()) -> dict[str, Any]:
    """The options of an update or an evaluation of a store, in plain form; None counts as not given.

    Raises
    ------
    OptionError
        If an option is unknown or invalid, or a store does not take it; options in `more`, and options with their
        default value, are accepted.
    """
    known, found = honoured("evaluate"), {}
    for name, value in given.items():
        if name not in known:
            refuse("a store", name, KEPT)
        if value is None:
            continue
        option = known[name]
        found[name] = option.plain(value)
        if name in KEPT or name in more or found[name] == option.rest:
            continue
        if option.decides == "nothing":
            msg = f"{name} is an option of Store(…) and applies to all its methods: give it there"
            raise OptionError(msg)
        refuse("a store", name, KEPT)
    return found


def contradiction(name: str, value: Any, own: Any, remedy: str) -> OptionError:
    """The error for an option whose value differs from the store's."""
    msg = f"{name}={_spelled(value)} contradicts the store's value, {_spelled(own)}; {remedy}"
    return OptionError(msg)
