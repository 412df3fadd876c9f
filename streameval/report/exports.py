"""Results for other tools: a flat mapping of numbers, the Prometheus text format, and OpenLineage assertions.

No client library is needed: the texts follow the published formats.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from streameval import __version__
from streameval.results import Judgement, Scalar, slice_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime


_PRODUCER = f"urn:streameval:{__version__}"
_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACET = "https://openlineage.io/spec/facets/1-0-1/DataQualityAssertionsDatasetFacet.json"
_FACTS = ("ci_lower", "ci_upper", "labelled", "strata")  # of a value, beside it


class Sample(NamedTuple):
    """A number with its name and labels, and the design of the sample of labels that it is estimated from."""

    name: str
    labels: Mapping[str, str]
    value: float
    about: str = ""
    design: str = ""


def plain_names(names: Iterable[str], others: str = "./-") -> dict[str, str]:
    """Names of letters, digits, ``_`` and `others` alone; names that would become the same end in a digest.

    Without `others`, a name that begins with a digit is preceded by ``_``, so that it is an identifier.

    Examples
    --------
    >>> list(plain_names(["tpr@fpr=0.001", "roc_auc/v2 − v1"]).values())
    ['tpr_at_fpr_0.001', 'roc_auc/v2-v1']
    >>> list(plain_names(["a b", "a:b", "1"], "").values())
    ['a_b_4e5f', 'a_b_26d2', '_1']
    """
    start = "" if others else r"^(?=\d)|"
    plain = {}
    for name in names:
        text = re.sub(r" ?− ?", "-", name).replace("@", "_at_")
        plain[name] = re.sub(rf"{start}[^A-Za-z0-9_{re.escape(others)}]", "_", text)
    shared = {one for one, times in Counter(plain.values()).items() if times > 1}
    digests = {name: blake2b(name.encode("utf-8", "surrogateescape"), digest_size=2).hexdigest() for name in plain}
    return {name: f"{one}_{digests[name]}" if one in shared else one for name, one in plain.items()}


def flat(samples: Iterable[Sample]) -> dict[str, float]:
    """The numbers under names of metric, column and labels, such as ``roc_auc/score/country_DE``."""
    numbers = {}
    for one in samples:
        labels = [text if name == "of" else f"{name}={text}" for name, text in one.labels.items()]
        numbers["/".join((one.name, *labels))] = float(one.value)
    names = plain_names(numbers)
    return {names[name]: value for name, value in numbers.items()}


def samples_of(results: Iterable[Scalar], **labels: str) -> list[Sample]:
    """The values of results, the ends of their intervals, and sizes of samples; `labels` are added to those of each."""
    samples = []
    for one in results:
        own = {**labels, **({"of": one.of} if one.of else {})}
        own |= {name: slice_text(value) for name, value in (one.slice or {}).items()}
        name = f"{one.metric}/difference" if one.baseline else one.metric
        samples.append(Sample(name, own, one.value, design=one.design or ""))
        facts = {fact: value for fact in _FACTS if (value := getattr(one, fact)) is not None}
        samples += [Sample(f"{name}/{fact}", own, value, design=one.design or "") for fact, value in facts.items()]
    return samples


def samples_of_rules(judgements: Iterable[Judgement]) -> list[Sample]:
    """For each judgement, whether the rule passed (1 or 0), and the value that it judged."""
    samples = []
    for one in judgements:
        labels = {"rule": one.rule, **({"partition": one.partition} if one.partition else {})}
        samples.append(Sample("rule_passed", labels, float(one.passed), "1 if the rule passed, else 0."))
        samples.append(Sample("rule_value", labels, one.value, "The value that the rule judged."))
    return samples


def prometheus(samples: Iterable[Sample], meanings: Mapping[str, str] | None = None) -> str:
    """Gauges in the Prometheus text format, for the textfile collector of its node exporter.

    Examples
    --------
    >>> print(prometheus([Sample("tpr@fpr=0.001", {"of": "score"}, 0.5)]), end="")
    # TYPE streameval_tpr_at_fpr_0_001 gauge
    streameval_tpr_at_fpr_0_001{of="score"} 0.5
    """
    samples = list(samples)
    names = plain_names((one.name for one in samples), "")
    series: dict[str, list[Sample]] = {}
    for one in samples:
        series.setdefault(f"streameval_{names[one.name]}", []).append(one)
    lines: list[str] = []
    for name, members in series.items():
        about = members[0].about or (meanings or {}).get(members[0].name, "")
        lines += [f"# HELP {name} {_escape(about)}"] if about else []
        lines += [f"# TYPE {name} gauge"]
        for one in members:
            design = {"design": one.design} if one.design else {}
            lines += [f"{name}{_labels({**one.labels, **design})} {_number(one.value)}"]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    """Labels in braces; their names have letters, digits and underscores alone, and differ.

    >>> _labels({"a.b": "x", "a-b": "y"})
    '{a_b_cd02="x",a_b_8dfa="y"}'
    """
    names = plain_names(labels, "")
    pairs = (f'{names[name]}="{_escape(text, quote=True)}"' for name, text in labels.items())
    return f"{{{','.join(pairs)}}}" if labels else ""


def _escape(text: str, *, quote: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text


def _number(value: float) -> str:
    """A number as Go reads it."""
    text = repr(float(value))
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(text, text)


def openlineage(judgements: Sequence[Judgement], data: Sequence[str], job: str, when: datetime) -> str:
    """A run event of OpenLineage whose inputs have data-quality assertions, one a rule; each night is an input.

    Parameters
    ----------
    judgements : judgements of rules
    data : names of the data or of the store
    job : name of the job
    when : time of the event, with a zone
    """
    from uuid import uuid4

    inputs: dict[str, list[dict[str, Any]]] = {}
    facet = {"_producer": _PRODUCER, "_schemaURL": f"{_FACET}#/$defs/DataQualityAssertionsDatasetFacet"}
    for one in judgements:
        column = re.search(r"\[([^\]]+)\]", one.text)
        about = {"column": column[1]} if column else {}
        name = "/".join(filter(None, (", ".join(data) or "data", one.partition)))
        inputs.setdefault(name, []).append({"assertion": one.rule, "success": one.passed, **about})
    event = {
        "eventType": "COMPLETE",
        "eventTime": when.isoformat(),
        "producer": _PRODUCER,
        "schemaURL": _EVENT,
        "run": {"runId": str(uuid4())},
        "job": {"namespace": "streameval", "name": job},
        "inputs": [
            {"namespace": "file", "name": name, "inputFacets": {"dataQualityAssertions": facet | {"assertions": about}}}
            for name, about in inputs.items()
        ],
        "outputs": [],
    }
    return json.dumps(event, indent=2) + "\n"
