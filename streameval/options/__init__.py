"""Options are data: one table defines every option, and all code that handles options is driven by it.

The rows are in `streameval.options.table`. They drive the checks of arguments (`checked`), the options of the command
line (`streameval.cli.options`), the options that a store keeps (`kept_options`), the options that results record
(`recorded`), and the keys of cached results (`result_key`).
"""

from __future__ import annotations

import json
import math
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from streameval.errors import OptionError
from streameval.options.kinds import ByColumn, texts
from streameval.options.table import NEEDS, OPTIONS, Option
from streameval.wording import few, shell, text_of_bytes, unknown_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "Option",
    "active",
    "as_json",
    "check_policies",
    "checked",
    "command",
    "honoured",
    "kept_options",
    "recorded",
    "refuse",
    "result_key",
    "words",
]


@cache
def honoured(verb: str) -> Mapping[str, Option]:
    """The options of a verb, by their names in Python.

    Examples
    --------
    >>> list(honoured("vacuum"))
    ['dry_run', 'keep', 'versions', 'grace', 'storage_options', 'memory', 'spill', 'threads']
    """
    in_python = verb == "evaluate"  # also takes options that no command has, such as progress
    return {option.name: option for option in OPTIONS if verb in option.verbs or (in_python and not option.verbs)}


def kept_options() -> dict[str, Option]:
    """The options that a store keeps: they determine its states, or the values computed from them by default."""
    return {
        name: option
        for name, option in honoured("update").items()
        if name in honoured("evaluate") and _decides(option) and option.kept
    }


def checked(given: Mapping[str, Any], verb: str = "evaluate") -> dict[str, Any]:
    """All options of a verb in plain form; those not given have their defaults.

    Raises
    ------
    OptionError
        If an option is unknown, has an invalid value, or has no effect because the input that it needs is not named.

    Examples
    --------
    >>> found = checked({"score": "score_lr"})
    >>> found["score"], found["nan"]
    (('score_lr',), 'error')
    >>> checked({"score": "score_lr", "aul_threshold": 2})
    Traceback (most recent call last):
    ...
    streameval.errors.OptionError: aul_threshold would change nothing without clusters: ...
    """
    for name in given:
        if name not in honoured(verb):
            refuse(verb, name)
    options = {name: option.plain(given.get(name, option.default)) for name, option in honoured(verb).items()}
    if verb == "evaluate" and not any(options[source] for source in ("score", "cluster", "sketch")):
        raise OptionError(
            "nothing to evaluate: name a score or a cluster column (--score, --cluster), or one to sketch (--sketch)"
        )
    check_policies(options, options, honoured(verb))
    for need, idle in _idle(options, verb).items():
        if idle:
            remedy = NEEDS[need][1]
            named = [f"{o.name}={options[o.name]!r}" if o.idle else o.name for o in idle]
            raise OptionError(
                f"{' and '.join(named)} would change nothing without {need}: {remedy}", *(o.name for o in idle)
            )
    return options


def check_policies(given: Mapping[str, Any], options: Mapping[str, Any], known: Mapping[str, Option]) -> None:
    """Raise `OptionError` if a given option has a value for a column that is not among those of all options."""
    for option, value in ((known[name], value) for name, value in given.items() if isinstance(value, ByColumn)):
        columns = texts(option.of, options[option.of])
        for name, _ in value.columns:
            if columns and name not in columns:
                raise OptionError(
                    f"{option.name}: {unknown_column(name, columns, f'the columns of {option.of} are')}", option.name
                )


def active(options: Mapping[str, Any], verb: str = "evaluate") -> dict[str, Any]:
    """Plain options, with defaults for options without effect and without values for columns that are not evaluated.

    `verb` is the one whose rows say what has an effect: a store keeps ``max_slices`` for slices that are added later.

    Examples
    --------
    >>> active({"score": (), "cluster": ("id",), "approx": True, "aul_threshold": 2})
    {'score': (), 'cluster': ('id',), 'approx': False, 'aul_threshold': 2}
    >>> active({"by": (), "max_slices": 50}), active({"by": (), "max_slices": 50}, "update")
    ({'by': (), 'max_slices': 10000}, {'by': (), 'max_slices': 50})
    """
    options = {
        name: value.only(options[honoured(verb)[name].of]) if isinstance(value, ByColumn) else value
        for name, value in options.items()
    }
    idle = {option.name: option.rest for several in _idle(options, verb).values() for option in several}
    return active({**options, **idle}, verb) if idle else dict(options)  # options that needed a reset one are idle now


def recorded(options: Mapping[str, Any], verb: str = "evaluate") -> dict[str, Any]:
    """The plain options that affect results and differ from their default, for `Evaluation.to_dict`.

    Examples
    --------
    >>> recorded(checked({"score": "a", "truncate": 0.1, "memory": "1GiB"}))
    {'score': ['a'], 'truncate': [0.1]}
    """
    return {
        name: as_json(value)
        for name, value in options.items()
        if _decides(honoured(verb)[name]) and value != honoured(verb)[name].rest
    }


def command(verb: str, data: Iterable[str], options: Mapping[str, Any]) -> str:
    """The shell command that runs a verb with these plain options; options that do not affect results are omitted.

    Empty if the command line cannot express a value, such as a user-defined metric.

    Examples
    --------
    >>> command("evaluate", ["data"], checked({"score": "a b", "truncate": 0.1, "approx": True, "threads": 2}))
    "streameval evaluate data --score 'a b' --truncate 0.1 --approx"
    """
    told = words(verb, options)
    return "" if told is None else shell(["streameval", verb, *data, *told])


def words(verb: str, options: Mapping[str, Any]) -> list[str] | None:
    """Plain options as command-line words; None if the command line cannot express a value."""
    told: list[str] = []
    for name, value in options.items():
        option = honoured(verb)[name]
        if not _decides(option) or value == option.rest:
            continue
        for prefix, one in _spelled(value, option.rest):
            if not isinstance(one, str | int | float):
                return None
            told += [option.spelling] if one is True else [option.spelling, f"{prefix}{as_json(one)}"]
    return told


def _spelled(value: Any, rest: Any) -> list[tuple[str, Any]]:
    """Pairs of ``COLUMN=`` prefix (empty for all columns) and value, one for each occurrence of the option."""
    if isinstance(value, ByColumn):
        others = [] if value.others == rest else _spelled(value.others, rest)
        return others + [(f"{name}=", one) for name, own in value.columns for _, one in _spelled(own, rest)]
    return [("", one) for one in (value if isinstance(value, tuple) else (value,))]


def result_key(options: Mapping[str, Any]) -> str:
    """The part of a cached result's key that depends on options: all plain options that affect results.

    Examples
    --------
    >>> one, other = checked({"score": "a"}), checked({"score": "a", "truncate": 0.1})
    >>> result_key(one) == result_key(checked({"score": ["a"], "threads": 1})) != result_key(other)
    True
    """
    deciding = {name: as_json(value) for name, value in options.items() if _decides(honoured("evaluate")[name])}
    return json.dumps(deciding, sort_keys=True)


def refuse(verb: str, name: str, names: Iterable[str] | None = None, where: str = "") -> NoReturn:
    """Raise `OptionError` for an option that a verb does not have; the message suggests a similar one.

    Parameters
    ----------
    verb, name : the verb and the unknown option
    names : the options of the verb, by default those of the table
    where : prefix of the message, such as a file

    Examples
    --------
    >>> refuse("evaluate", "trunkate")
    Traceback (most recent call last):
    ...
    streameval.errors.OptionError: evaluate takes no option 'trunkate'; did you mean 'truncate'?
    """
    from difflib import get_close_matches

    names = list(honoured(verb) if names is None else names)
    verbs = dict.fromkeys(v for option in OPTIONS if option.name == name for v in option.verbs)
    msg = f"{where}{verb} takes no option {name!r}"
    if close := [] if verbs else get_close_matches(name, names, 1):
        msg += f"; did you mean {close[0]!r}?"
    else:
        msg += f", which belongs to {few(list(verbs))}" if verbs else ""
        msg += f"; it takes {', '.join(names)}"
    raise OptionError(msg)


def _idle(options: Mapping[str, Any], verb: str) -> dict[str, list[Option]]:
    """The options without effect, by the absent input that they need."""
    known = honoured(verb)
    given = [known[name] for name, value in options.items() if known[name].idles(value)]
    absent = [need for need, (source, _) in NEEDS.items() if not options.get(source)]
    return {need: [option for option in given if option.needs == need] for need in absent}


def _decides(option: Option) -> bool:
    return option.decides != "nothing"


def as_json(value: Any) -> Any:
    """A plain value as a JSON value: 2 for 2.0, text for bytes, and the name of a metric object."""
    if isinstance(value, ByColumn):
        return {name: as_json(item) for name, item in value.to_dict().items()}
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str | bytes):  # text may stand for bytes, see `LabelSpec.pos_label`
        raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        return text_of_bytes(raw)
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(getattr(value, "name", value))
