"""``streameval attribute``: the clusters, classes and slices that cost most, as tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streameval.cli.console import Output, piped, progress_bar, stacked
from streameval.cli.options import options
from streameval.cli.store import store_named, stored, tell_plan
from streameval.errors import OptionError
from streameval.saving import check_writable
from streameval.wording import plural, visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from streameval.evaluation.costs.attributed import Attribution

_WIDTH = 120  # columns of examples


@click.command()
@click.argument("data", nargs=-1, required=True)
@options("attribute")
def attribute(
    data: tuple[str, ...],
    out: tuple[str, ...] = (),
    with_examples: bool = False,
    plan_only: bool = False,
    **asked: Any,
) -> None:
    """Rank the clusters, classes and slices that cost most, in DATA or in a store.

    Merges and splits need --classes or --changed-from, impure clusters need --label, slices need --score and --by.
    If the first DATA is a store, the others are the files of its nights. They are needed for examples and to print
    string ids, of which a store keeps only hashes.
    """
    from streameval.evaluation.attribution import attribute as run
    from streameval.evaluation.attribution import forecasts
    from streameval.evaluation.costs.attributed import check_target

    to = Output.take(asked)
    for path in out:
        check_target(Path(path))
    check_writable(*(path for path in out if Path(path).suffix and not Path(path).is_dir()))
    if with_examples and not ("examples" in asked and any(path.lower().endswith(".html") for path in out)):
        msg = "with_examples=True would change nothing without a page and examples: --out FILE.html --examples COLUMN"
        raise OptionError(msg)
    data = stored(data, asked)
    with progress_bar(to.quiet) as advance:
        store = store_named(data, asked, advance)
        if plan_only:
            if store is not None:
                tell_plan(store, "attribute", asked, to)
            else:
                to.deliver_forecasts(forecasts(list(data), **asked))
            return
        if store is None:
            losses = run(list(data), progress=advance, **asked)
        else:
            losses = store.attribute(data=list(data[1:]) or None, **asked)
    for path in out:
        losses.save(path, with_examples=with_examples)
    to.deliver(lambda: losses.to_json(indent=2), lambda: shown(losses, from_store=store is not None))


def shown(found: Attribution, *, from_store: bool = False) -> RenderableType:
    """All tables, each followed by a line that states how much of the loss it explains."""
    from streameval.report.attribution import IN_DATA, READ_ONCE, conclusion, hashed, listed, stayed, title_of
    from streameval.report.terminal import rich_table

    parts: list[RenderableType] = []
    for name, rows in found.tables().items():
        title = title_of(name, found)
        parts.append(f"\n{title}" if parts else title)
        if rows.num_rows:
            texts = listed(rows, found, examples=cut)
            parts.append(rich_table(texts.heads, (row.texts for row in texts.rows), plain=piped()))
        parts.append(conclusion(name, rows, found))
    if found.options.get("changed_from"):
        parts.append(f"\n{stayed(found)}")
    parts += [f"left out: {plural(rows, 'row')}, {visible(reason)}" for reason, rows in found.dropped]
    parts += [f"skipped: {visible(name)}: {visible(reason)}" for name, reason in found.skipped]
    if why := hashed(found, IN_DATA if from_store else READ_ONCE):
        parts.append(why)
    return stacked(*parts)


def cut(text: str) -> str:
    """Escape control characters and cut a text to 120 terminal columns.

    Examples
    --------
    >>> len(cut("x" * 500)), cut("short")
    (120, 'short')
    """
    from rich.cells import cell_len, set_cell_size

    clean = visible(text[: 4 * _WIDTH])
    return clean if cell_len(clean) <= _WIDTH else set_cell_size(clean, _WIDTH - 1) + "…"
