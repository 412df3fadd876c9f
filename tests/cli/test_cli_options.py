"""The commands' options: every one of the table at every verb, what help says of them, and ``--config``."""

from __future__ import annotations

import inspect
import json
import re
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from processes import run

from streameval import evaluate, simulate
from streameval.cli import main
from streameval.cli.options import SHOWN
from streameval.cli.simulate import SIMULATION
from streameval.options import OPTIONS, honoured

if TYPE_CHECKING:
    from pathlib import Path

VERBS = list(main.commands)
SPELLINGS = sorted({o.spelling for o in (*OPTIONS, *SHOWN, *SIMULATION) if o.verbs})
ARGUMENTS = {"evaluate": "DATA", "sketch": "DATA", "metrics": "", "demo": "", "simulate": "OUT"}  # others: a store


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Scores, clusters and labels of eight rows."""
    table = {"label": [0, 1, 0, 1] * 2, "s": [0.1 * i for i in range(8)], "t": [float(i % 3) for i in range(8)]}
    pq.write_table(pa.table(table | {"id": [1, 1, 2, 2, 2, 3, 3, 3]}), tmp_path / "a.parquet")
    return str(tmp_path / "a.parquet")


def options_of(verb: str) -> dict[str, click.Option]:
    """The options of a command, by their spelling."""
    return {p.opts[0]: p for p in main.commands[verb].params if isinstance(p, click.Option)}


def named(verb: str) -> list[str]:
    """Arguments of a command that stand for places."""
    word = ARGUMENTS.get(verb, "STORE")
    return [word] * bool(word) + ["DATA"] * (verb in ("update", "replace", "remove"))


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_the_options_of_the_table_and_refuses_all_others(verb: str, tmp_path: Path) -> None:
    """What it does not have is refused by name, on the command line and in a file; with status 2."""
    rows = [*honoured(verb).values(), *(o for o in SHOWN if verb in o.verbs)]
    rows = list(SIMULATION) if verb == "simulate" else rows
    expected = {option.spelling for option in rows if option.verbs}
    assert set(options_of(verb)) == expected | {"--config"} | ({"--rows", "--out"} if verb == "demo" else set())
    config = tmp_path / "options.toml"
    names = {str(option.name) for option in options_of(verb).values()}  # in a file these are spellings as well
    for spelling in [s for s in SPELLINGS if s not in options_of(verb) and s[2:] not in names]:
        done = run(verb, *named(verb), spelling, "1")
        assert (done.exit_code, f"No such option '{spelling}'" in done.stderr) == (2, True), spelling
        config.write_text(f"{spelling[2:]} = 1\n")
        done = run(verb, *named(verb), "--config", str(config))
        assert done.exit_code == 2, spelling
        assert f"{verb} takes no option '{spelling[2:]}'" in done.stderr


def test_without_a_command_the_help_is_shown_alone() -> None:
    """Once, as with --help, and not as the text of an error."""
    assert run().output == run("--help").output


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_fits_a_terminal_of_80_columns(verb: str) -> None:
    """No line is longer, also where the terminal is wider."""
    told = CliRunner().invoke(main, [verb, "--help"] if verb else ["--help"], terminal_width=200 if verb else None)
    assert told.exit_code == 0
    told = run(*([verb] if verb else []), "--help")
    assert max(map(len, told.stdout.splitlines())) <= 80


@pytest.mark.parametrize(("verb", "function"), [("evaluate", evaluate), ("simulate", simulate)])
def test_help_tells_the_defaults_of_the_function(verb: str, function: Any) -> None:
    """What is not given is left to the function, and help says what the function has."""
    defaults = {name: p.default for name, p in inspect.signature(function).parameters.items()}
    silent = set()
    for option in options_of(verb).values():
        assert option.multiple or option.required or not option.expose_value or option.default is None
        said = re.search(r"\[default: ([^ \]]+)\]", option.help or "")
        if said:
            assert said[1] == str(defaults[str(option.name)]), option.name
        elif "[default: " not in (option.help or ""):
            silent.add(str(option.name))
    assert {name for name in silent & set(defaults) if defaults[name] not in (None, (), False)} <= {"rows"}
    for row in SIMULATION if verb == "simulate" else ():
        assert row.required or row.name == "quiet" or row.default == defaults[row.name], row.name


def test_a_config_file_gives_options_by_either_name_and_the_command_line_wins(data: str, tmp_path: Path) -> None:
    """Lists, numbers, flags; results record what was given."""
    config = tmp_path / "options.toml"
    config.write_text(
        'score = ["s", "t"]\ncluster = "id"\nmetric = ["roc_*", "aul"]\naul-threshold = 2\ntruncate = 0.5\n'
        'at = "k=2"\nnan = "drop"\napprox = true\nthreads = 1\npos_label = 1\njson = "-"\n'
    )
    done = run("evaluate", data, "--config", str(config))
    assert done.exit_code == 0, done.stderr
    options: dict[str, Any] = {"score": ["s", "t"], "metrics": ["roc_*", "aul"], "truncate": 0.5, "at": "k=2"}
    options |= {"cluster": "id", "aul_threshold": 2, "nan": "drop", "pos_label": "1"}
    assert json.loads(done.stdout) == evaluate(data, **options, approx=True).to_dict()
    done = run("evaluate", data, "--config", str(config), "--score", "s", "--nan", "half", "--no-approx", "--at", "k=3")
    assert json.loads(done.stdout)["options"] == {
        "score": ["s"],
        "cluster": ["id"],
        "pos_label": "1",
        "metrics": ["roc_*", "aul"],
        "truncate": [0.5],
        "aul_threshold": 2,
        "at": ["k=3"],
        "nan": "half",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trunkate = 0.1", "evaluate takes no option 'trunkate'; did you mean 'truncate'?"),
        ("threshold = 1", "evaluate takes no option 'threshold'; did you mean 'aul-threshold'?"),
        ('keep = "90d"', "evaluate takes no option 'keep', which belongs to vacuum; it takes"),
        ("config = 'x'", "evaluate takes no option 'config'"),
        ('metric = "aul"\nmetrics = "aul"', "names --metric twice, the second time as 'metrics'"),
        ("approx = 1", "approx must be true or false"),
        ("label = true", "label must not be true or false"),
        ('label = ["a", "b"]', "label must be one value, not a list"),
        ("[label]\ns = 'drop'", "label must be a value or a list of values"),
        ("label", "is not a TOML file"),
        ("label = " + "[" * 9_999, "is not a TOML file (nested too deep)"),
        ("threads = 2.5", "Invalid value for '--threads': '2.5' is not a valid integer."),
        ("threads = 0", "--threads 0 is not a whole number of at least 1"),
        ("nan = 'ignore'", "Invalid value for '--nan': 'ignore' is not one of"),
    ],
)
def test_a_bad_config_file_is_refused_by_name(text: str, message: str, data: str, tmp_path: Path) -> None:
    """The file, the key and what was probably meant; with status 2."""
    config = tmp_path / "options.toml"
    config.write_text(text)
    done = run("evaluate", data, "--score", "s", "--config", str(config))
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    done = run("evaluate", data, "--config", str(tmp_path / "none.toml"))
    assert (done.exit_code, "none.toml: cannot be read (No such file" in done.stderr) == (2, True)


@pytest.mark.parametrize("verb", ["simulate", "history", "sketch"])
def test_what_a_verb_requires_is_asked_for_by_name(verb: str) -> None:
    """Before a function gets None for its value."""
    done = run(verb, "place")
    required = [option for option in options_of(verb).values() if option.required]
    assert done.exit_code == 2
    assert f"Missing option '{required[0].opts[0]}'" in done.stderr


@pytest.mark.parametrize(
    "words", [("attribute", "--score", "s", "--by", "id", "--score", "t"), ("evaluate", "--label", "s", "--label", "t")]
)
def test_two_columns_where_there_is_one_are_refused(data: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """The last was silently taken; the same column twice is not a contradiction."""
    verb, option, *_ = words
    done = run(verb, data, *words[1:])
    assert (done.exit_code, f"{option} takes one column, not 's' and 't'" in done.stderr) == (2, True), done.stderr
    config = tmp_path / "options.toml"
    config.write_text(f"{option[2:]} = ['s', 't']\n")
    assert "must be one value, not a list" in run(verb, data, "--config", str(config)).stderr
    config.write_text('score = "s"\nlabel = "label"\nby = "id"\n')
    assert run(verb, data, "--config", str(config), option, words[2], option, words[2]).exit_code in (0, 1)
