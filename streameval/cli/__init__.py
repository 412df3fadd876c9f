"""The command line: options in, results out.

Everything is imported where it is used, so that ``--help`` answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from streameval._version import __version__
from streameval.cli import gate, simulate, store
from streameval.cli.attribute import attribute
from streameval.cli.console import as_json, check_out, deliver, evaluation_tables, progress_bar, refuse_directory, table
from streameval.cli.errors import Commands
from streameval.cli.options import deciding, given, options
from streameval.cli.sketch import sketch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType


__all__ = ["main"]


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(__version__, prog_name="streameval")
def main() -> None:
    """Exact evaluation of scores and clusters on partitioned Parquet too large for memory."""


@main.command()
@click.argument("data", nargs=-1, required=True)
@options("evaluate")
def evaluate(
    data: tuple[str, ...],
    json_to: str | None,
    out: tuple[str, ...],
    plan_only: bool,
    quiet: bool,
    rules: tuple[str, ...],
    rules_file: str | None,
    **asked: Any,
) -> None:
    """Evaluate Parquet files, directories, globs or URIs, or a store.

    DATA is read in one pass; the nights of a store are evaluated from their states. If no column to evaluate is
    named, the columns of DATA are listed; with other options as well, the exit status is then 2. With --rule, the
    exit status is 3 unless all rules pass. A rule with a level implies --ci; if it compares two columns, it also
    implies --baseline.
    """
    from streameval.evaluation import evaluate as run
    from streameval.evaluation import explain

    refuse_directory(json_to)
    check_out(out)
    named = gate.read_rules(rules, rules_file) if rules or rules_file else {}
    data = store.stored(data, asked)
    if (kept := store.store_named(data, asked)) is not None:
        if len(data) > 1:
            msg = f"{kept[0].name}: is a store, and data are named as well ({data[1]}); evaluate one or the other"
            raise click.UsageError(msg)
        if plan_only:
            store.tell_plan(kept[0], "show", {**kept[1], **given(asked)}, json_to, quiet)
            return
        found = kept[0].evaluate(**kept[1], **given(asked))
    else:
        if not any(asked.get(name) for name in ("score", "cluster", "sketch")):
            _list_columns(data, json_to, quiet)
            if not (named or out or plan_only or deciding(asked)):
                return
        asked = given(asked)
        asked |= gate.implied_by(named, asked) if named else {}
        if plan_only:
            planned = explain(list(data), **asked)
            deliver(json_to, lambda: planned.to_json(indent=2), lambda: str(planned), quiet)
            return
        with progress_bar(quiet) as advance:
            found = run(list(data), progress=advance, **asked)
    found = found.judge(named) if named else found
    for path in out:
        found.save(path)
    lines = gate.judged_lines(found.judgements)
    deliver(json_to, lambda: found.to_json(indent=2), lambda: _with_lines(evaluation_tables(found), lines), quiet)
    gate.tell_judged(found.judgements, quiet, json_to)


def _with_lines(shown: RenderableType, lines: Sequence[str]) -> RenderableType:
    """Append lines to a table."""
    from rich.console import Group
    from rich.text import Text

    return Group(shown, "", *map(Text, lines)) if lines else shown


@main.command()
@click.argument("pattern", required=False)
@options("metrics")
def metrics(pattern: str | None, json_to: str | None) -> None:
    """List all metrics, or those that match PATTERN.

    PATTERN is a name, a glob, a family, or a subject such as ranking.
    """
    from streameval.errors import OptionError
    from streameval.metrics.catalogue import entries

    refuse_directory(json_to)
    found = list(entries(pattern))
    if not found:
        msg = f"no metric is named {pattern!r}; list all with: streameval metrics"
        raise OptionError(msg)

    def shown() -> RenderableType:
        names = ("metric", "family", "computed", "range", "better", "meaning", "source")
        computed = {True: "by default", False: "when asked"}
        rows = [
            (e.name, e.family, computed[e.default], f"{e.low:g} to {e.high:g}", e.better or "", e.meaning, e.source)
            for e in found
        ]
        return table(names, rows)

    deliver(json_to, lambda: as_json([entry.to_dict() for entry in found]), shown, False)


def _list_columns(data: tuple[str, ...], json_to: str | None, quiet: bool) -> None:
    """List the columns of the data, with a command to copy."""
    from streameval.evaluation.source import columns_of

    found, told = columns_of(data)

    def shown() -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        rows = [
            [
                one["column"],
                one["type"],
                *("?" if one[name] is None else str(one[name]) for name in ("nulls", "low", "high")),
            ]
            for one in found
        ]
        return Group(table(["column", "type", "nulls", "low", "high"], rows, ["nulls"]), Text(f"next: {told}"))

    deliver(json_to, lambda: as_json({"columns": found, "next": told}), shown, quiet)


for command in (attribute, sketch, *store.COMMANDS, *gate.COMMANDS, *simulate.COMMANDS):
    main.add_command(command)
