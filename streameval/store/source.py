"""The source of results of a store: its name, without credentials, and the command that repeats them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval.options import honoured, words
from streameval.results import Source
from streameval.wording import shell

if TYPE_CHECKING:
    from collections.abc import Container, Mapping


def store_source(
    verb: str,
    name: str,
    nights: int,
    selection: Mapping[str, Any],
    plain: Mapping[str, Any],
    given: Container[str],
) -> Source:
    """The source of a result of a store.

    Parameters
    ----------
    verb : the verb that was run
    name : name of the store, without credentials
    nights : number of nights that the result covers
    selection : the selection of nights
    plain : all options in plain form
    given : names of the options that were given; the store's defaults are not repeated

    Examples
    --------
    >>> kept = {"metrics": ("roc_auc",), "nan": "drop"}
    >>> store_source("show", "STORE", 7, {"last": 7, "since": None}, kept, ["metrics"])
    Source(data=('STORE',), files=0, command='streameval show STORE --last 7 --metric roc_auc', nights=7)
    """
    chosen = {key: honoured("show")[key].plain(value) for key, value in selection.items() if value is not None}
    own = words(verb, {key: value for key, value in plain.items() if key in given and key in honoured(verb)})
    told = words("show", chosen)
    command = "" if told is None or own is None else shell(["streameval", verb, name, *told, *own])
    return Source((name,), 0, command, nights)
