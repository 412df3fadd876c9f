"""Add columns to a configuration, remove them, and determine the states that change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.evaluation.slicing import Slicing
from streameval.options import active, check_policies
from streameval.options.kinds import ByColumn, of_column
from streameval.store.nights.configuration import Configuration
from streameval.store.nights.given import KEPT, SUBSETS, contradiction, plain_options
from streameval.wording import unknown_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.options import Option

_COLUMNS = ("classes", "weight", "unit")  # options that name one column


def widened(before: Configuration, given: Mapping[str, Any]) -> Configuration:
    """The configuration with added columns or metrics; `given` are options such as ``score=("score_lr",)``.

    Raises
    ------
    OptionError
        If an option contradicts what the store keeps, or is a policy for a column that it does not keep.
    """
    options, plain = dict(before.options), plain_options(given)
    for name, value in sorted(plain.items(), key=lambda item: bool(KEPT[item[0]].of)):  # policies after columns
        option = KEPT[name]
        kept, rest = before.options[name], option.rest
        new = [c for c in options[option.of] if c not in before.options[option.of]] if option.of else []
        if name == "metrics" and not kept and value:
            options[name] = ("default", *value)
        elif isinstance(value, ByColumn) or (new and not option.kind.many):
            options[name] = _of_columns(before, option, value, new)
        elif isinstance(kept, ByColumn) and option.kind.many:
            options[name] = ByColumn.of(dict(kept.columns), tuple(dict.fromkeys((*kept.others, *value))))
        elif option.kind.many:
            options[name] = tuple(dict.fromkeys((*kept, *value)))
        elif kept == rest or name == "max_slices":  # a limit changes no state
            options[name] = value
        elif value != kept:
            raise contradiction(name, value, kept, "a store can have only one: create another store")
    check_policies(plain, options, KEPT)  # the store's own may be for columns that are still to be added
    return Configuration.of({name: value for name, value in options.items() if value != KEPT[name].rest}).with_(
        before.types
    )


def _of_columns(before: Configuration, option: Option, value: Any, new: Sequence[str]) -> Any:
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
        raise contradiction(option.name, value, own, f"{', '.join(stray)} keeps its policy: create another store")
    kept = own if isinstance(own, ByColumn) else ByColumn((), own)
    return ByColumn.of(dict(kept.columns) | named, kept.others)


def joined(after: Configuration, before: Configuration) -> tuple[str, ...]:
    """Added columns and metrics, in words."""
    found: list[str] = []
    for name, value in after.options.items():
        own = before.options[name]
        if isinstance(value, tuple):
            found += [item if isinstance(item, str) else f"{name} {item}" for item in value if item not in own]
        elif name in _COLUMNS and value != own:
            found.append(str(value))
    return tuple(dict.fromkeys(name for name in found if name != "default"))


def altered(after: Configuration, before: Configuration) -> tuple[tuple[str, Any, Any], ...]:
    """Changed options: the name of each, such as ``max_slices`` or ``nan of score_lr``, with its old and new value."""
    found: list[tuple[str, Any, Any]] = []
    for name, value in after.options.items():
        own = before.options[name]
        if isinstance(value, ByColumn):
            changes = [(column, of_column(own, column), new) for column, new in value.columns]
            known = [each for each in changes if each[0] in before.key_columns and each[1] != each[2]]
            found += [(f"{name} of {column}", old, new) for column, old, new in known]
        elif not isinstance(value, tuple) and name not in _COLUMNS and value != own:
            found.append((name, own, value))
    return tuple(found)


def without(before: Configuration, column: str) -> Configuration:
    """The configuration without a column.

    Raises
    ------
    OptionError
        If the store does not keep the column, all states depend on it, or it is the only column.
    """
    single = [name for name in ("label", "weight") if before.options[name] == column]
    if single:
        msg = f"{column} is the {single[0]} column, on which all states depend; create another store"
        raise OptionError(msg)
    known = (*before.key_columns, *([before.options["classes"]] if before.options["classes"] else []))
    known = tuple(dict.fromkeys((*known, *before.slicing.sources)))
    if column not in known:
        raise OptionError(unknown_column(column, known, "the store keeps"))
    options = dict(before.options)
    options["by"] = tuple(text for text in options["by"] if column not in Slicing.of((text,), 1).sources)
    for name in (*SUBSETS, "classes"):
        own = options[name]
        options[name] = tuple(c for c in own if c != column) if isinstance(own, tuple) else own
    options["classes"] = None if options["classes"] == column or not options["cluster"] else options["classes"]
    options["unit"] = None if options["unit"] == column else options["unit"]
    if not any(options[name] for name in SUBSETS):
        msg = f"{column} is the only column of the store; delete the store instead"
        raise OptionError(msg)
    made = Configuration(active(options, "update"), before.types)
    return made.with_(before.types)


def narrowed(whole: Configuration, due: frozenset[tuple[str, str]]) -> Configuration:
    """The configuration that folds only these states."""
    families = {(group.partition(".")[0], of) for group, of in due}  # score.blocks belongs to the family score
    columns = {
        name: tuple(of for of in whole.options[name] if any((group, of) in families for group in groups))
        for name, groups in (
            ("score", ("score", "sample")),
            ("cluster", ("cluster", "classes")),
            ("sketch", ("sketch",)),
        )
    }
    classes = whole.options["classes"] if any(group == "classes" for group, _ in families) else None
    options = whole.options | columns | {"classes": classes, "metrics": (), "clip": None}
    return replace(Configuration(active(options, "update"), whole.types).with_(whole.types), due=due)
