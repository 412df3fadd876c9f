"""The options of the commands, generated from the option table, and ``--config``.

Options have no default here: a command is called with the options that were given, on the command line or in a file,
and leaves the others to the function that it calls. The help text repeats that function's default.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any

import click

from streameval.errors import OptionError
from streameval.kinds import OTHERS
from streameval.options import ANY, COLUMN, FLAG, NAMES, NUMBERS, Option, kept_options, refuse, verb_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Command = Callable[..., Any]

_READS = (
    "evaluate", "attribute", "sketch", "churn", "plan_labels", "drift", "show", "info", "history", "check", "diagnose",
    "maturity",
)  # fmt: skip
SELECTION = ("partition", "since", "until", "last", "as_of")  # which nights of a store


# options of a store's nights, for the verbs that accept a store in place of data
_OF_NIGHTS = [replace(verb_options("show")[name], verbs=("attribute",)) for name in SELECTION]
SHOWN = (
    *(replace(option, help=f"For a store: {option.help[0].lower()}{option.help[1:]}") for option in _OF_NIGHTS),
    *(replace(option, verbs=("evaluate",), help="") for option in _OF_NIGHTS),  # as of show, whose help has them
    Option("plan_only", FLAG, False, ("evaluate",), "nothing", flag="plan",
           help="Only print what the run would read, hold in memory and do."),
    Option("plan_only", FLAG, False, ("update", "replace", "add", "show", "history", "check", "diagnose", "drift",
                                      "info", "attribute", "sketch"), "nothing", flag="plan",
           help="Only print what would be read and kept."),
    Option("storage_options", NAMES, (), ("evaluate", "attribute", "sketch", "churn", "plan_labels"), "nothing",
           flag="storage", metavar="KEY=VALUE",
           help="Option of the S3 storage of DATA or STORE, such as AWS_ENDPOINT_URL=…; options in a URI override it."),
    Option("with_versions", FLAG, False, ("info",), "nothing", flag="versions",
           help="List every version as well, newest first; --as-of takes its number or time."),
    Option("with_all", FLAG, False, ("diagnose",), "nothing", flag="all",
           help="List all facts. [default: the ten that deviate most]"),
    Option("nightly", FLAG, False, ("history",), "nothing", "Leave out the values over all nights up to each one."),
    Option("quantiles", NUMBERS, (), ("sketch",), "value", flag="quantile",
           help="Quantile in [0, 1]; repeat for several. [default: 0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1]"),
    Option("rules", NAMES, (), ("evaluate",), "value", flag="rule",
           help="Rule, such as 'roc_auc[v2] - roc_auc[v1] >= -0.002 proven @95%'; exit with status 3 unless it "
           "passes; repeat for several."),
    Option("by_label", FLAG, False, ("sketch",), "nothing",
           "Show the quantiles of each class as well; reads the data twice more."),
    Option("label", COLUMN, "label", ("sketch",), "nothing", "Column of true classes, for --by-label."),
    Option("pos_label", ANY, None, ("sketch",), "nothing",
           "Positive label, for --by-label; without it, numbers above zero are positive."),
    Option("rules_file", ANY, None, ("check", "evaluate"), "value", flag="rules", metavar="FILE",
           help="TOML file of rules by name, such as auc_floor = \"roc_auc[score] >= 0.97\"."),
    Option("accepted", NAMES, (), ("check",), "nothing", flag="accept", metavar="NIGHT",
           help="Accept the recorded failures of this night, by all rules or only --rule NAME; repeat for several."),
    Option("why", ANY, None, ("check",), "nothing", flag="reason", metavar="TEXT", help="Why a failure is accepted."),
    Option("csv_to", ANY, None, ("history",), "nothing", flag="csv", metavar="FILE|-",
           help="Write CSV to a file, or to stdout with -; ' precedes texts that begin like a formula."),
    Option("plot", ANY, None, ("history", "maturity", "sketch"), "nothing", metavar="FILE",
           help="Draw a figure into this file, such as history.svg."),
    Option("out", NAMES, (), ("evaluate", "show", "history", "check"), "nothing", metavar="FILE",
           help="Write everything to a .json, .csv, .parquet or .html file; repeat for several. "
           "The .html file is one self-contained page. In CSV, ' precedes texts that begin like a formula. "
           ".prom is the Prometheus text format; .openlineage.json has the outcomes of rules."),
    Option("out", NAMES, (), ("sketch", "churn", "drift", "info", "diagnose", "maturity"), "nothing",
           metavar="FILE",
           help="Write everything to a .json, .csv or .parquet file, of maturity also .html; repeat for several. "
           "In CSV, ' precedes texts that begin like a formula."),
    Option("out", NAMES, (), ("plan_labels",), "nothing", metavar="FILE",
           help="Write the ids with their strata and probabilities to a .csv or .parquet file, the plan to a .json "
           "file; repeat for several."),
    Option("out", NAMES, (), ("attribute",), "nothing", metavar="DIR|FILE",
           help="Write the tables as Parquet to a directory, or everything to a .json or .html file; "
           "repeat for several. The .html file is one self-contained page."),
    Option("with_examples", FLAG, False, ("attribute",), "nothing",
           "Show examples on the page as well; everyone who has the page can read these values."),
    Option("json_to", ANY, None, (*_READS, "metrics"), "nothing", flag="json", metavar="FILE|-",
           help="Write JSON to a file, or to stdout with - in place of the table."),
    Option("quiet", FLAG, False, (*_READS, "update", "replace", "remove", "add", "vacuum", "simulate"), "nothing",
           "Print no progress, table or summary."),
)  # fmt: skip


def options(verb: str) -> Callable[[Command], Command]:
    """A decorator that adds all options of a verb, in the order of the table."""
    rows = [option for option in verb_options(verb).values() if option.verbs]
    if verb == "show":
        own = " [default: as the store]"  # the value that the store keeps
        stored = kept_options()
        rows = [replace(o, help=o.help.partition(" [default")[0] + own) if o.name in stored else o for o in rows]
    return options_of([*rows, *(option for option in SHOWN if verb in option.verbs)])


def options_of(rows: Iterable[Option]) -> Callable[[Command], Command]:
    """A decorator that adds these options and ``--config``, and passes those that were given."""
    decorators: list[Callable[[Command], Command]] = [*map(_option, rows), _CONFIG]

    def decorate(function: Command) -> Command:
        def call(**values: object) -> object:
            return function(**{name: value for name, value in values.items() if value not in (None, ())})

        command: Command = update_wrapper(call, function)
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def deciding(values: Mapping[str, object]) -> list[str]:
    """Names of the options that affect results."""
    table = verb_options("evaluate")
    return [name for name in values if name in table and table[name].decides != "nothing"]


def _option(option: Option) -> Callable[[Command], Command]:
    """The click decorator of one option."""
    kind, spelling = option.kind, option.spelling
    silent = option.default in (None, ()) or option.default is False or "[default" in option.help
    facts: dict[str, Any] = {"type": click.Choice(kind.choices) if kind.choices else kind.word, "multiple": kind.many}
    if option.of:
        facts = {"type": _OfColumn(facts["type"]), "multiple": True, "callback": partial(_by_column, kind.many)}
    if kind is COLUMN or (option.name == "unit" and not kind.many):
        facts |= {"multiple": True, "callback": _one_column}
    if kind.word is bool:
        facts = {"is_flag": True}
        spelling += f"/--no-{spelling[2:]}" if option.decides != "nothing" else ""
    if not option.required:  # click treats default=None of a required option as a value
        facts |= {"default": None}
    if option.bare is not None:
        facts |= {"is_flag": False, "flag_value": option.bare, "type": _Bare(option)}
    return click.option(
        spelling,
        option.name,
        required=option.required,
        metavar=option.metavar,
        help=option.help if silent else f"{option.help} [default: {option.default}]",
        hidden=not option.help,
        **facts,
    )


class _Wrapper(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1, the oldest release supported
    """Base of types that convert a value by another type."""

    name = "value"

    def __init__(self, inner: object) -> None:
        self.inner = click.types.convert_type(inner)


class _OfColumn(_Wrapper):
    """A value for all columns, or ``COLUMN=VALUE``, as a pair (column, value)."""

    name = "column"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """The placeholder in the help text."""
        shown = self.inner.get_metavar(param, ctx) or self.inner.name.upper()
        return f"[COLUMN=]{shown}"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, object]:
        """The column (``*`` for all others) and the value."""
        if isinstance(value, tuple):
            return value
        column, _, text = str(value).rpartition("=")
        return column or OTHERS, self.inner.convert(text, param, ctx)


class _Bare(_Wrapper):
    """The value of an option such as ``--ci`` that may be given without one; click passes it the next word."""

    name = "level"

    def __init__(self, option: Option) -> None:
        super().__init__(option.kind.word)
        self.option = option

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """The value; if the next word is not a value, the error explains how to write the option without one."""
        try:
            return self.inner.convert(value, param, ctx)
        except click.BadParameter:
            spelling, bare = self.option.spelling, self.option.bare
            self.fail(f"{value!r} is not a number; write {spelling} {bare}, or put {spelling} last", param, ctx)


def _by_column(many: bool, _: click.Context, __: click.Parameter, pairs: tuple[tuple[str, object], ...]) -> object:
    """A callback that joins the pairs of one option into a mapping, or a single value if no column is named."""
    by_column: dict[str, Any] = {}
    for column, value in pairs:
        by_column[column] = [*by_column.get(column, ()), value] if many else value
    return by_column.get(OTHERS) if set(by_column) <= {OTHERS} else by_column


def _one_column(_: click.Context, param: click.Parameter, names: tuple[str, ...]) -> str | None:
    """A callback that refuses several columns for an option that takes one; click would silently take the last."""
    if len(set(names)) > 1:
        crossed = "; write two crossed ones as one, a,b" if "," in (param.metavar or "") else ""
        both = " and ".join(dict.fromkeys(map(repr, names)))
        raise OptionError(f"{param.opts[0]} takes one column, not {both}{crossed}")
    return names[0] if names else None


def _configure(ctx: click.Context, _: click.Parameter, path: str | None) -> None:
    """Use a file's options as defaults for those not given on the command line."""
    if path is not None:
        ctx.default_map = _read_config(path, ctx.command)


_CONFIG = click.option(
    "--config",
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=_configure,
    help="TOML file of options, such as truncate = [0.01, 0.1]; the command line wins.",
)


def _read_config(path: str, command: click.Command) -> dict[str, object]:
    """Read the options of a TOML file, keyed by the names of a command's parameters.

    Raises
    ------
    OptionError
        If the file cannot be read, or has an option or a value that the command does not take.
    """
    content = toml_of(path, "--config")
    own = [option for option in command.params if isinstance(option, click.Option) and option.expose_value]
    by_key = {key: option for option in own for key in (option.name, option.opts[0][2:].replace("-", "_"))}
    values: dict[str, Any] = {}
    for key, value in content.items():
        option = by_key.get(key.replace("-", "_"))
        if option is None:
            refuse(command.name or "", key, [o.opts[0][2:] for o in own], f"--config {path}: ")
        if option.name in values:
            raise OptionError(f"--config {path}: names {option.opts[0]} twice, the second time as {key!r}")
        values[str(option.name)] = _words(option, value, f"--config {path}: {key}")
    return values


def toml_of(path: str, option: str) -> dict[str, object]:
    """The content of a TOML file.

    Raises
    ------
    OptionError
        If the file cannot be read or parsed; the message names the command-line option.
    """
    import tomllib
    from pathlib import Path

    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"{option} {path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else error
        raise OptionError(f"{option} {path}: is not a TOML file ({reason})") from None


def _words(option: click.Option, value: object, where: str) -> object:
    """Convert a TOML value to command-line words, so that click parses both in the same way."""
    if option.is_flag != isinstance(value, bool) and option.name != "pos_label":
        raise OptionError(f"{where} must be true or false" if option.is_flag else f"{where} must not be true or false")
    if option.is_flag:
        return value
    if isinstance(value, dict) and isinstance(option.type, _OfColumn):
        pairs = [
            (name, item) for name, items in value.items() for item in (items if isinstance(items, list) else [items])
        ]
        return [str(item) if name == OTHERS else f"{name}={item}" for name, item in pairs]
    several = value if isinstance(value, list) else [value]
    if isinstance(value, dict) or any(isinstance(item, dict | list) for item in several):
        raise OptionError(f"{where} must be a value or a list of values")
    if isinstance(value, list) and (not option.multiple or option.callback is _one_column):
        raise OptionError(f"{where} must be one value, not a list")
    if option.multiple:
        return [str(item) for item in several]
    return str(value).lower() if isinstance(value, bool) else str(value)
