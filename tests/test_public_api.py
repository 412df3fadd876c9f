"""The public names and signatures, pinned: a change here is a change for users."""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

import streameval

PINNED = Path(__file__).parent / "data" / "public_api.json"


def signature(thing: Any) -> str:
    """Parameters with their defaults; annotations are mypy's business."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    plain = [
        parameter.replace(annotation=parameter.empty, default=named(parameter.default))
        for parameter in found.parameters.values()
    ]
    return str(found.replace(parameters=plain, return_annotation=found.empty))


def named(default: Any) -> Any:
    """A default, a function by its name: its address differs from run to run."""
    return default.__name__ if inspect.isfunction(default) else default


def described(thing: Any) -> Any:
    """A function's signature, or those of a class and its public methods."""
    if not inspect.isclass(thing):
        return signature(thing)
    methods = {
        name: signature(getattr(thing, name))
        for name in sorted(dir(thing))
        if not name.startswith("_") and callable(getattr(thing, name))
    }
    return {"": signature(thing), **methods}


def public_api() -> dict[str, Any]:
    """Every public name but the version."""
    names = (name for name in sorted(streameval.__all__) if not name.startswith("_"))
    return {name: described(getattr(streameval, name)) for name in names}


def test_public_names_and_signatures_are_as_pinned() -> None:
    """Run ``python tests/test_public_api.py`` to pin a change on purpose."""
    pinned, found = json.loads(PINNED.read_text()), public_api()
    assert found.keys() == pinned.keys()
    for name, described_now in found.items():
        assert described_now == pinned[name], name


@pytest.mark.parametrize("name", sorted(public_api()))
def test_every_public_name_has_an_example_and_names_its_arguments(name: str) -> None:
    """Whoever asks for help on a name sees what it takes and a call that runs; errors need no example."""
    thing = getattr(streameval, name)
    text = inspect.getdoc(thing) or ""
    if not (inspect.isclass(thing) and issubclass(thing, Exception)):
        assert ">>> " in text
    if inspect.isfunction(thing):
        assert not [
            argument for argument in inspect.signature(thing).parameters if not re.search(rf"\b{argument}\b", text)
        ]


if __name__ == "__main__":
    PINNED.write_text(json.dumps(public_api(), indent=1, sort_keys=True) + "\n")
