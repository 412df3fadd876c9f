"""The options of an `Accumulator`: the subset of `evaluate` that makes sense for batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streameval.errors import OptionError
from streameval.options import honoured, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable

RUN_OPTIONS = ("memory", "spill", "threads")  # set per process; they do not affect results

_TAKEN = {
    "label", "score", "cluster", "classes", "weight", "pos_label", "metrics", "truncate", "aul_threshold", "at", "clip",
    "assignment_cells", "nan", "nulls", "unlabelled", "cluster_scope", "common_rows", "mean_over", "mean_weight", "ci",
    "unit", "baseline", "resample_bins", "approx", *RUN_OPTIONS,
}  # fmt: skip
_REFUSED = {
    "client": "an accumulator folds in its own process; merge the accumulators of your workers",
    "progress": "count your batches instead",
    "on_error": "there are no files to skip",
    "where": "filter the batches first",
    "by": "keep an accumulator for each slice",
    "max_slices": "keep an accumulator for each slice",
    "delta_version": "there are no Delta tables to read",
    "scheduler_timeout": "there is no scheduler",
    "sketch": "update a QuantileSketch in the same loop",
    "approx_agc": "samples depend on the rows of files; use evaluate",
}


def check_names(names: Iterable[str]) -> None:
    """Raise `OptionError` for an option that an accumulator does not take; the message gives the reason.

    Examples
    --------
    >>> check_names(["on_error"])
    Traceback (most recent call last):
    ...
    streameval.errors.OptionError: Accumulator takes no on_error: there are no files to skip
    """
    known = honoured("evaluate")
    for name in names:
        if name not in known:
            refuse("Accumulator", name, [option for option in known if option in _TAKEN])
        if name not in _TAKEN:
            msg = f"Accumulator takes no {name}: {_REFUSED.get(name, 'it needs all data at once; use evaluate')}"
            raise OptionError(msg)
