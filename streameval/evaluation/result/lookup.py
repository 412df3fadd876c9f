"""Look results up by name: values, slices, and certain intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.results import near_slice, same_slice, slice_table
from streameval.wording import canonical, hint

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from streameval.results import Scalar

__all__ = ["LookUp"]


class LookUp:
    """Results of an evaluation, looked up by the name of a metric."""

    results: tuple[Scalar, ...]

    def _find(self, metric: str, of: str | None, slice: Any) -> Scalar:
        if not (slice is None or isinstance(slice, Mapping)):
            example = next((r.slice for r in self.results if r.slice), {"country": "DE"})
            msg = f"slice={slice!r} must map each slicing column to a value, such as {dict(example)!r}"
            raise OptionError(msg)
        results = [r for r in self.results if same_slice(r.slice, slice)]
        if not results:
            raise self._no_slice(slice or {})
        names = {metric, canonical(metric)}
        found = [r for r in results if r.metric in names and (r.of == of if of else r.baseline is None)]
        if len(found) == 1:
            return found[0]
        if found:
            columns = ", ".join(str(r.of) for r in found)
            msg = f"{metric} was computed for {columns}; say which with of="
        else:
            msg = f"{metric}{f' of {of}' if of else ''} was not computed; {_have(names, results)}"
        raise OptionError(msg)

    def _no_slice(self, given: Mapping[str, Any]) -> OptionError:
        return OptionError(_no_slice(given, [r.slice for r in self.results if r.slice]))

    def value(self, metric: str, of: str | None = None, slice: Mapping[str, Any] | None = None) -> float:
        """Value of a metric; `of` names the score or cluster column where there are several.

        With `slice`, such as ``{"country": "DE"}``, the value of that slice; dates and times are texts there.

        Raises
        ------
        OptionError
            If it was not computed, or `of` is needed, or there is no such slice.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 1, 0, 1], "score": [0.1, 0.4, 0.8, 0.3], "country": ["DE", "DE", "FR", "FR"]})
        >>> result = evaluate(data, score="score", by="country")
        >>> result.value("roc_auc"), result.value("roc_auc", slice={"country": "FR"})
        (0.5, 0.0)
        """
        return self._find(metric, of, slice).value

    def slices(self, column: str) -> pa.Table:
        """One row for each slice of a slicing, such as ``"country"`` or ``"country,channel"``; most rows first.

        The columns are the slicing columns, `rows`, `positives`, and the value of each metric, such as
        ``roc_auc[score]``; null where it is undefined.

        Raises
        ------
        OptionError
            If there is no such slicing.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 1, 1], "score": [0.1, 0.4, 0.8], "country": ["DE", "DE", None]})
        >>> evaluate(data, score="score", by="country", metrics="roc_auc").slices("country").to_pylist()[0]
        {'country': 'DE', 'rows': 2, 'positives': 1, 'roc_auc[score]': 1.0}
        """
        return slice_table(self.results, column)

    def interval(
        self,
        metric: str,
        of: str | None = None,
        slice: Mapping[str, Any] | None = None,
    ) -> tuple[float, float]:
        """Ends of the interval that is certain to hold the exact value.

        NaN where the value is not defined, and where it was sampled: then nothing is certain, and the result's `bound`
        and `stderr` say what is likely, see `streameval.metrics.scores.gain_sampled`.
        """
        result = self._find(metric, of, slice)
        return result.lower, result.upper


def _have(names: Collection[str], results: Sequence[Scalar]) -> str:
    """The columns that a metric was computed for; the metrics with their columns where it was computed for none."""
    columns = dict.fromkeys(str(r.of) for r in results if r.metric in names and r.baseline is None)
    if columns:
        return f"it was computed for {', '.join(columns)}"
    metrics: dict[str, list[str]] = {}
    for r in results:
        if r.baseline is None and str(r.of) not in (known := metrics.setdefault(r.metric, [])):
            known.append(str(r.of))
    return "there are: " + "; ".join(f"{metric} of {', '.join(columns)}" for metric, columns in metrics.items())


def _no_slice(given: Mapping[str, Any], slices: Sequence[Mapping[str, Any]]) -> str:
    """The message for a slice that does not exist."""
    slicings = list(dict.fromkeys(map(",".join, slices)))
    near = near_slice(given, slices)
    columns = ",".join(given)
    meant = f"did you mean {near!r}? " if near else "" if columns in slicings else hint(columns, slicings)
    there = "; ".join(slicings) or "nothing, since by was not given"
    return f"there is no slice {given!r}; {meant}there are slices by: {there}"
