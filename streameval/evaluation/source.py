"""The source of results, without credentials: the data, the files, and the command that repeats the run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from streameval import options
from streameval.errors import OptionError
from streameval.results import Source
from streameval.scan import shown
from streameval.scan.files.uris import Uri
from streameval.wording import few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.scan import Piece


def source_of(data: Any, pieces: Sequence[Piece], plain: Mapping[str, Any], verb: str = "evaluate") -> Source:
    """The source of a result.

    Parameters
    ----------
    data : the data as given to `evaluate`
    pieces : the pieces that were read
    plain : the options in plain form
    verb : the verb that was run

    Examples
    --------
    >>> found = source_of(["s3://key:secret@bucket/a.parquet"], [], {"score": ("a",)})
    >>> found.data, found.command
    (('s3://bucket/a.parquet',), 'streameval evaluate s3://bucket/a.parquet --score a')
    """
    named = list(_named(data))
    told = tuple(dict.fromkeys(name for name, _ in named))
    on_disk = bool(named) and all(path for _, path in named)
    files = len({piece.name for piece in pieces}) if on_disk else 0
    return Source(told, files, options.command(verb, told, plain) if on_disk else "")


def with_storage(data: Sequence[str], storage: Mapping[str, str]) -> list[str]:
    """Add options of S3 storage to the URIs of inputs.

    Parameters
    ----------
    data : paths and URIs
    storage : options as deltalake spells them, such as ``AWS_ENDPOINT_URL``; options in a URI take precedence

    Raises
    ------
    OptionError
        If no input is on S3, or a URI cannot carry an option.

    Examples
    --------
    >>> with_storage(["s3://bucket/x", "local"], {"AWS_REGION": "eu-west-1"})
    ['s3://bucket/x?region=eu-west-1', 'local']
    """
    uris = [Uri.parse(text) for text in data]
    if not any(uri is not None and uri.on_s3 for uri in uris):
        msg = f"storage_options would change nothing: no input is on S3 (s3://…): {few([shown(text) for text in data])}"
        raise OptionError(msg, "storage_options")
    return [
        uri.with_storage(storage) if uri is not None and uri.on_s3 else text
        for text, uri in zip(data, uris, strict=True)
    ]


def is_pattern(text: str) -> bool:
    """Whether a path or URI has wildcards; the options and the credentials of a URI have none.

    Raises
    ------
    OptionError
        If the text is almost a URI.

    Examples
    --------
    >>> is_pattern("s3://bucket/store?region=eu-west-1"), is_pattern("s3://bucket/night=*?region=eu-west-1")
    (False, True)
    """
    uri = Uri.parse(text)
    return any(c in (text if uri is None else uri.path) for c in "*?[")


def _named(data: Any) -> Iterator[tuple[str, bool]]:
    """The name of each input, and whether it is a path."""
    if isinstance(data, str | os.PathLike):
        yield shown(os.fspath(data)), True
    elif isinstance(data, list | tuple):
        for item in data:
            yield from _named(item)
    else:
        kind = type(data)
        yield f"a {kind.__module__.partition('.')[0]} {kind.__name__}", False
