"""Several classes, one against the rest: the columns of their scores, and averages over classes.

A score column of each class is folded once, against whether a row belongs to its class. *Micro* averages rank all
scores of all classes together, from the same states. *Macro* is the mean over the classes with a value, *weighted*
weighs them by their rows, or by the weights of these. Classes that do not occur are left out (of micro averages those
that no row has; a slice leaves out no others), and `Scalar.groups_left_out` counts them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval.errors import OptionError
from streameval.metrics.estimates import Estimate, mean_of
from streameval.results import Scalar
from streameval.states.grouped.groups import DenseGroups, Grouped
from streameval.states.grouped.spec import GroupedSpec
from streameval.states.labels import MACRO, MICRO, WEIGHTED, ClassSpec, class_name
from streameval.states.scores.blocks import BlockCounts
from streameval.states.scores.types import halved
from streameval.wording import few

if TYPE_CHECKING:
    from streameval.engine.fold import Folded
    from streameval.evaluation.intervals import Estimated
    from streameval.evaluation.protocol import MetricRequest
    from streameval.evaluation.slices import SlicedStates
    from streameval.states.protocol import State, StoredSpec

PLACE = "{class}"

Of = tuple[int, "str | None"]  # a set of rows, 0 for all, and a column


def expand_classes(data: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options in which the score columns of several classes are listed, with their classes in the same order.

    Parameters
    ----------
    data : the data, whose columns decide which classes a pattern stands for
    options : the options of a run; `score` may map classes to columns, or be a pattern such as ``p_{class}``

    Raises
    ------
    OptionError
        If the classes and columns do not fit together.

    Examples
    --------
    >>> import pyarrow as pa
    >>> data = pa.table({"p_a": [0.5], "p_b": [0.5], "label": ["a"]})
    >>> expand_classes(data, {"score": "p_{class}", "classes_of_label": None})
    {'score': ['p_a', 'p_b'], 'classes_of_label': ['a', 'b']}
    """
    options, score, classes = dict(options), options.get("score"), options.get("classes_of_label")
    texts: list[Any] = [score] if isinstance(score, str) else list(score) if isinstance(score, list | tuple) else []
    names = [] if classes is None else [classes] if isinstance(classes, str) else list(classes)
    if isinstance(score, Mapping):
        if names:
            raise OptionError("classes_of_label would change nothing: score maps each class to its column")
        by_class = {class_name(name): str(column) for name, column in score.items()}
        return options | {"score": list(by_class.values()), "classes_of_label": list(by_class)}
    patterned = any(PLACE in str(text) for text in texts)
    if len(names) == 1:
        names = names[0].split(",")
    if not patterned and names == ["all"]:
        raise OptionError("classes_of_label='all' needs a pattern such as score='p_{class}'", "classes_of_label")
    if not patterned:
        return options | ({"classes_of_label": names} if names else {})
    if len(texts) != 1:
        raise OptionError(f"score={texts!r}: leave out the others, or the pattern of classes")
    columns = [str(name) for name in columns_in(data)]
    pattern = re.compile("(.+)".join(map(re.escape, texts[0].split(PLACE, 1))))
    there = {found[1]: name for name in columns if (found := pattern.fullmatch(name))}
    chosen = there if names in ([], ["all"]) else {name: there.get(name, "") for name in names}
    lacking = [name for name, column in chosen.items() if not column]
    if lacking or not chosen:
        have = f"there are columns for {few(list(there))}" if there else f"the data have {few(columns)}"
        raise OptionError(f"score={texts[0]!r}: no column {texts[0].replace(PLACE, few(lacking) or '…')!r}; {have}")
    return options | {"score": list(chosen.values()), "classes_of_label": list(chosen)}


def columns_in(data: Any) -> Sequence[object]:
    """Names of the columns of an input, or of the first of several."""
    if isinstance(data, list | tuple) and data:
        return columns_in(data[0])
    if isinstance(data, Mapping):
        return list(data)
    if isinstance(schema := getattr(data, "schema", None), pa.Schema):  # of Arrow's tables, readers and datasets
        return list(schema.names)
    if (columns := getattr(data, "columns", None)) is not None:  # of frames
        return list(columns)
    from streameval.scan.parquet.statistics import survey

    return [one.name for one in survey([str(data)])]


def with_micro(
    folded: Folded, requests: Sequence[MetricRequest], labels: ClassSpec
) -> tuple[Folded, Sequence[MetricRequest]]:
    """Add the states and the request of all scores of the classes that occur together, if their types are equal."""
    own = {
        spec: state for spec, state in folded.states.items() if spec is not labels and labels.number_of(spec.columns)
    }
    there = {labels.number_of(spec.columns) for spec, state in own.items() if _positive(state)[0]}
    scores = [w for w in requests if (number := labels.number_of((w.of,))) and (number in there or not there)]
    specs = {replace(w.spec, column=MICRO) for w in scores}
    if len(specs) != 1 or not scores[0].metrics:
        return folded, requests
    together: dict[StoredSpec, State] = {}
    for spec, state in own.items():
        if labels.number_of(spec.columns) in there or not there:
            renamed = _rename_spec(spec)
            moved = _move_state(state, renamed)
            together[renamed] = together[renamed].merge(moved) if renamed in together else moved
    micro = replace(scores[0], of=MICRO, spec=specs.pop(), repeated=True)
    return replace(folded, states={**folded.states, **together}), [*requests, micro]


def _positive(state: State) -> tuple[int, float]:
    """Rows of the class of a state, missing scores that count as halves among them, and their weight."""
    whole = state.total() if isinstance(state, Grouped) else state
    totals, missing = whole.totals(), halved(whole)
    return totals.pos + missing.pos, math.ldexp(totals.pos_weight + missing.pos_weight, totals.unit)


def _rename_spec(spec: Any) -> Any:
    """The spec of the states of all classes together."""
    if isinstance(spec, GroupedSpec):
        return replace(spec, inner=_rename_spec(spec.inner))
    return replace(spec, column=MICRO)


def _move_state(state: Any, spec: Any) -> Any:
    """A state under the spec of all classes."""
    if isinstance(state, DenseGroups):
        states = {name: _move_state(one, spec.inner) for name, one in state.states.items()}
        return replace(state, spec=spec, states=states)
    if isinstance(state, BlockCounts) and state.points is not None:
        return replace(state, spec=spec, points=_move_state(state.points, spec.points))
    return replace(state, spec=spec)


def positive_weights(states: Sequence[tuple[MetricRequest, State]], sliced: SlicedStates) -> dict[Of, float]:
    """The weights of the positives of each score column, of all rows and of each slice."""
    weights: dict[Of, float] = {(0, w.of): _positive(state)[1] for w, state in states if w.family.name == "score"}
    for key in sliced.slicing.keys:
        for w in (w for w in sliced.requests if w.family.name == "score"):
            grouped = sliced.grouped(w, key)
            for group in grouped.groups():
                weights[id(sliced.named(key, group)), w.of] = _positive(grouped.only(group))[1]
    return weights


def add_averages(
    results: Sequence[Scalar],
    labels: ClassSpec,
    estimates: Sequence[Estimated],
    level: float | None,
    weights: Mapping[Of, float] | None,
) -> list[Scalar]:
    """The results with the class of each, and the macro and weighted averages of each set of rows after its results.

    Rows have `weights`, see `positive_weights`, or one each.
    """
    names = dict(labels.classes) | {MICRO: MICRO}
    replicated = {_key(one.own.scalar): one.own for one in estimates}
    there = {one.of for one in results if one.slice is None and one.of in names and one.of != MICRO and one.positives}
    pooled: dict[str, Any] = {"groups": len(there), "groups_left_out": len(names) - 1 - len(there)}
    collected: list[Scalar] = []
    for _, same in groupby(results, key=lambda one: id(one.slice) if one.slice else 0):
        rows = [
            replace(one, label_class=names.get(one.of or ""), **(pooled if one.of == MICRO else {})) for one in same
        ]
        collected += rows
        by_metric: dict[str, list[Scalar]] = {}
        for one in rows:
            if one.label_class not in (None, MICRO) and one.baseline is None:
                by_metric.setdefault(one.metric, []).append(one)
        for kind in (MACRO, WEIGHTED):
            collected += [_average(some, kind, replicated, level, weights) for some in by_metric.values()]
    return collected


def _of(one: Scalar) -> Of:
    return id(one.slice) if one.slice else 0, one.of


def _key(one: Scalar) -> tuple[Of, str]:
    return _of(one), one.metric


def _average(
    results: Sequence[Scalar],
    kind: str,
    replicated: Mapping[Any, Estimate],
    level: float | None,
    measures: Mapping[Of, float] | None,
) -> Scalar:
    """The average of a metric over the classes that occur and have a value."""
    defined = [one for one in results if one.value == one.value and one.positives]
    first, left = results[0], len(results) - len(defined)
    weights = [1.0] * len(defined)
    if kind == WEIGHTED:
        weights = [float(one.positives or 0) if measures is None else measures[_of(one)] for one in defined]
    facts: dict[str, Any] = {"groups": len(defined), "groups_left_out": left, "label_class": kind, "of": kind}
    facts |= {"slice": first.slice, "rows": max(one.rows for one in results), "positives": None}
    facts |= {"basis": first.basis, "labelled_share": first.labelled_share}
    if not defined:
        return replace(Scalar.undefined(first.metric, f"no class has a value: {first.reason}"), **facts)
    value, lower, upper = (
        math.fsum(w * getattr(one, end) for w, one in zip(weights, defined, strict=True)) / math.fsum(weights)
        for end in ("value", "lower", "upper")
    )
    mean = Scalar(first.metric, value, lower=lower, upper=upper, exact=all(one.exact for one in defined), **facts)
    if level is None:
        return mean
    return mean_of(mean, [replicated[_key(one)] for one in defined], weights).scalar_with(level)
