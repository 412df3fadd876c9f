"""Data as commands name them: the source of results, storage options of URIs, and a command for unknown columns."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from streameval import options
from streameval.errors import OptionError
from streameval.results import Source
from streameval.scan import Piece, shown
from streameval.scan.files.uris import Uri
from streameval.scan.parquet.statistics import ColumnFacts, survey
from streameval.wording import few, shell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def source_of(data: object, pieces: Sequence[Piece], plain: Mapping[str, object], verb: str = "evaluate") -> Source:
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
    names = tuple(dict.fromkeys(name for name, _ in named))
    on_disk = bool(named) and all(path for _, path in named)
    files = len({piece.name for piece in pieces}) if on_disk else 0
    return Source(names, files, options.command(verb, names, plain) if on_disk else "")


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
        raise OptionError(
            f"storage_options would change nothing: no input is on S3 (s3://…): {few([shown(text) for text in data])}",
            "storage_options",
        )
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


def _named(data: object) -> Iterator[tuple[str, bool]]:
    """The name of each input, and whether it is a path."""
    if isinstance(data, str | os.PathLike):
        yield shown(os.fspath(data)), True
    elif isinstance(data, list | tuple):
        for item in data:
            yield from _named(item)
    else:
        kind = type(data)
        yield f"a {kind.__module__.partition('.')[0]} {kind.__name__}", False


def columns_of(data: Sequence[str]) -> tuple[list[dict[str, object]], str]:
    """The columns of files as plain values (``column, type, rows, nulls, low, high``), and a `suggestion`."""
    columns = survey(data)
    plain = [
        {"column": one.name, "type": one.kind, "rows": one.rows, "nulls": one.nulls}
        | {"low": _text(one.low), "high": _text(one.high)}
        for one in columns
    ]
    return plain, suggestion(data, columns)


def suggestion(data: Sequence[str], columns: Sequence[ColumnFacts]) -> str:
    """A command that evaluates the columns of the data that look like scores and clusters.

    A label is a boolean column, or a column with the range 0 to 1 that is named like a label. A score is a column of
    numbers that is named like a score; if there is none, every floating-point column except weights counts. A cluster
    is a column that is named like one and is not floating-point. If footers report nulls, the command drops those rows,
    column by column.
    """
    data = [shown(text) for text in data]  # without credentials
    floats = [one for one in columns if one.kind in ("halffloat", "float", "double")]
    numbers = [one for one in columns if one in floats or one.kind.startswith(("int", "uint", "decimal"))]
    label = next((one.name for one in columns if _is_label(one)), "LABEL")
    scores = [one.name for one in numbers if one.name != label and _has_name(one, "score", "prob")]
    scores = scores or [one.name for one in floats if not _has_name(one, "weight")]
    clusters = [one.name for one in columns if _has_name(one, "cluster") and one not in floats]
    words = ["streameval", "evaluate", *data, "--label", label]
    words += [word for name in scores for word in ("--score", name)]
    words += [word for name in clusters for word in ("--cluster", name)]
    words += ["--score", "SCORE"] if not scores and not clusters else []
    null = {one.name for one in columns if one.nulls}
    words += ["--unlabelled", "drop"] if label in null else []
    for option, names in (("--nan", scores), ("--nulls", clusters)):
        words += [word for name in names if name in null for word in (option, f"{name}=drop")]
    return shell(words)


def _has_name(one: ColumnFacts, *parts: str) -> bool:
    return any(part in one.name.lower() for part in parts)


def _is_label(one: ColumnFacts) -> bool:
    """Whether a column looks like labels."""
    return one.kind == "bool" or (_has_name(one, "label", "target", "class", "spam") and (one.low, one.high) == (0, 1))


def _text(end: object) -> object:
    if isinstance(end, float):
        return f"{end + 0.0:.6g}"
    return end if end is None or isinstance(end, bool | int | str) else str(end)
