"""The command line: options in, results out.

Everything is imported where it is used, so that ``--help`` answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from streameval import __version__
from streameval._submodules import import_when_named
from streameval.cli import store
from streameval.cli.console import JUDGED, PAGES, Commands, Output, as_json, progress_bar, stack_tables, table
from streameval.cli.data import COMMANDS
from streameval.cli.options import deciding, options
from streameval.errors import OptionError

if TYPE_CHECKING:
    from rich.console import RenderableType


__all__ = ["main"]
import_when_named(__name__)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(__version__, prog_name="streameval")
def main() -> None:
    """Exact evaluation of scores and clusters on partitioned Parquet too large for memory."""


@main.command()
@click.argument("data", nargs=-1, required=True)
@options("evaluate")
def evaluate(
    data: tuple[str, ...],
    plan_only: bool = False,
    rules: tuple[str, ...] = (),
    rules_file: str | None = None,
    **asked: Any,
) -> None:
    """Evaluate Parquet files, directories, globs or URIs, or a store.

    DATA is read in one pass; a store is evaluated as by show, whose options select nights. If no column to
    evaluate is named, the columns of DATA are listed; with other options as well, the exit status is then 2. With
    --rule, the exit status is 3 unless all rules pass. A rule with a level implies --ci; if it compares two columns, it
    also implies --baseline.
    """
    from streameval.evaluation import evaluate as run
    from streameval.evaluation import explain

    to = Output.take(asked, JUDGED if rules or rules_file else PAGES)
    named = store.read_rules(rules, rules_file) if rules or rules_file else {}
    data = store.add_storage(data, asked)
    opened = store.store_named(data, asked)
    if opened is not None:
        if len(data) > 1:
            raise click.UsageError(
                f"{opened.name}: is a store, and data are named as well ({data[1]}); evaluate one or the other"
            )
        if plan_only:
            store.tell_plan(opened, "show", asked, to)
            return
        results = opened.evaluate(**asked)
    else:
        if not any(name in asked for name in ("score", "cluster", "sketch")):
            _list_columns(data, to)
            if not (named or to.out or plan_only or deciding(asked)):
                return
        asked |= store.imply_options(named, asked) if named else {}
        _check_clusters(asked)
        if plan_only:
            planned = explain(list(data), **asked)
            to.deliver(lambda: planned.to_json(indent=2), lambda: str(planned))
            return
        with progress_bar(to.quiet) as advance:
            results = run(list(data), progress=advance, **asked)
    lines: list[str] = []
    if named:
        from streameval.report.nights import judged_lines

        results = results.judge(named)
        lines = judged_lines(results.judgements)
    to.deliver_evaluation(results, ["", *lines] if lines else [])
    pairs = zip(lines, results.judgements, strict=True)
    store.leave(all(one.passed for one in results.judgements), [line for line, one in pairs if not one.passed], to)


@main.command()
@click.argument("pattern", required=False)
@options("metrics")
def metrics(pattern: str | None = None, **asked: object) -> None:
    """List all metrics, or those that match PATTERN.

    PATTERN is a name, a glob, a family, or a subject such as ranking.
    """
    from streameval.metrics.catalogue import entries
    from streameval.metrics.selection import meant_by
    from streameval.wording import nearest

    to = Output.take(asked)
    matches = list(entries(pattern))
    if not matches:
        near = meant_by(str(pattern)) or nearest(str(pattern), [entry.name for entry in entries(None)])
        meant = f"did you mean {near}? " if near else ""
        raise OptionError(f"no metric is named {pattern!r}; {meant}list all with: streameval metrics")

    def shown() -> RenderableType:
        names = ("metric", "family", "computed", "range", "better", "meaning", "source")
        computed = {True: "by default", False: "when asked"}
        rows = [
            (e.name, e.family, computed[e.default], f"{e.low:g} to {e.high:g}", e.better or "", e.meaning, e.source)
            for e in matches
        ]
        return table(names, rows)

    to.deliver(lambda: as_json([entry.to_dict() for entry in matches]), shown)


def _check_clusters(asked: dict[str, Any]) -> None:
    """Raise `OptionError` if cluster columns are named and none of their metrics is."""
    if "cluster" in asked and "metrics" in asked and not asked.get("classes_of_label"):
        from streameval.evaluation.request import Request

        selection = Request.checked(asked).selection
        if not selection.of("cluster") and not selection.of("classes"):
            store.refuse_cluster(asked["cluster"][0])


def _list_columns(data: tuple[str, ...], to: Output) -> None:
    """List the columns of the data, with a command to copy."""
    from streameval.evaluation.files import columns_of

    facts, command = columns_of(data)

    def shown() -> RenderableType:
        counts = [["?" if one[name] is None else str(one[name]) for name in ("nulls", "low", "high")] for one in facts]
        rows = [[str(one["column"]), str(one["type"]), *more] for one, more in zip(facts, counts, strict=True)]
        return stack_tables(table(["column", "type", "nulls", "low", "high"], rows, ["nulls"]), f"next: {command}")

    to.deliver(lambda: as_json({"columns": facts, "next": command}), shown)


for command in (*COMMANDS, *store.COMMANDS, *store.GATES):
    main.add_command(command)
