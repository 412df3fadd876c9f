"""The command line: what goes where, options and config files, statuses, and what each verb says."""

import inspect
import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from files import put
from nightly import DATA
from processes import run

from streameval import Store, evaluate, simulate
from streameval.cli import main
from streameval.cli import store as store_commands
from streameval.cli.data import SIMULATION
from streameval.cli.options import SHOWN
from streameval.evaluation.files import suggestion
from streameval.metrics.catalogue import entries
from streameval.options import OPTIONS, verb_options


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two nights of scores and clusters."""
    rng = np.random.default_rng(1)
    for night in (1, 2):
        folder = tmp_path / "data" / f"night=2026-01-0{night}"
        columns = {"label": rng.integers(0, 2, 50), "s": rng.random(50), "id": rng.integers(0, 9, 50)}
        put(folder / "part-0.parquet", columns)
    return tmp_path / "data"


@pytest.fixture
def store(data: Path, tmp_path: Path) -> str:
    """A store of both."""
    Store(tmp_path / "store").update(data, score="s", cluster="id")
    return str(tmp_path / "store")


def test_what_goes_to_stdout(data: Path, store: str, tmp_path: Path) -> None:
    """Tables are plain when piped, without colours, rules or broken lines; nothing is on stderr, nor with ``--quiet``.

    With ``--json -`` there is no table; with a file both are there.
    """
    to = tmp_path / "out.json"
    for words, text in (
        (["evaluate", data, "--score", "s", "--cluster", "id"], "roc_auc"),
        (["evaluate", data, "--score", "s", "--plan"], "100 rows in 2 partitions"),
        (["sketch", data, "--column", "s"], "quantile"),
        (["metrics", "agc*"], "agc@Q"),
        (["show", store], "aul"),
        (["info", store, "--versions"], "2 new"),
        (["history", store, "--metric", "aul"], "night=2026-01-02"),
        (["check", store, "--rule", "aul >= 0"], "ok  night=2026-01-02  aul >= 0  0."),
    ):
        done = run(*words)
        assert (done.exit_code, done.stderr) == (0, ""), done.stderr
        assert text in done.stdout
        assert not set("\x1b─━│┃") & set(done.stdout)
        if words[0] != "metrics":
            assert (run(*words, "--quiet").stdout, run(*words, "--quiet").stderr) == ("", "")
        done = run(*words, "--json", "-")
        assert (done.exit_code, done.stderr) == (0, "")
        assert run(*words, "--json", to).stdout
        assert json.loads(done.stdout) == json.loads(to.read_text())
        assert "directory does not exist" in run(*words, "--json", tmp_path / "none" / "x.json").stderr
        assert "is a directory" in run(*words, "--json", tmp_path).stderr


def test_every_verb_that_reads_says_what_it_would_read(data: Path, store: str) -> None:
    """With ``--plan`` each names the rows of the data or of the store's nights, and what it would read of them."""
    of_data, of_store = "100 rows in 2 partitions; reads", "2 nights, night=2026-01-01 to night=2026-01-02; 100 rows"
    for words, text in (
        (["evaluate", data, "--score", "s"], of_data),
        (["sketch", data, "--column", "s", "--column", "id", "--by-label"], of_data),
        (["attribute", data, "--cluster", "id", "--label", "label"], of_data),
        (["attribute", data, "--cluster", "id", "--label", "label", "--score", "s", "--by", "id"], of_data),
        *(([verb, store], of_store) for verb in ("evaluate", "show", "info")),
        (["attribute", store, "--cluster", "id"], of_store),
        (["history", store, "--metric", "aul"], of_store),
        (["check", store, "--rule", "aul >= 0"], of_store),
    ):
        done, as_json = run(*words, "--plan"), run(*words, "--plan", "--json", "-")
        assert (done.exit_code, as_json.exit_code) == (0, 0), done.output
        assert done.stdout.startswith(text)
        passes = json.loads(as_json.stdout)
        assert all(each["rows"] == 100 for each in (passes if isinstance(passes, list) else [passes]))
        assert done.stdout.count(of_data) == {"sketch": 4, "attribute": words.count("--by") + 1}.get(words[0], 1) * (
            text == of_data
        )
    info = [json.loads(run("info", store, *more, "--plan", "--json", "-").stdout) for more in ((), ("--verify",))]
    assert [each["files"] for each in info] == [0, 4]


def test_metrics_lists_the_catalogue() -> None:
    """All of it, or what a pattern names; a pattern that names nothing is a usage error."""
    listed = json.loads(run("metrics", "--json", "-").stdout)
    assert listed == [entry.to_dict() for entry in entries()]
    assert [e["name"] for e in json.loads(run("metrics", "roc_auc", "--json", "-").stdout)] == ["roc_auc"]
    assert run("metrics", "nonsense").exit_code == 2


def test_exit_statuses(data: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 for data, 2 for usage, 130 for Ctrl-C; one line on stderr each."""
    for words, status in (
        (["evaluate", data, "--score", "none"], 1),
        (["evaluate", data / "none", "--score", "s"], 1),
        (["evaluate", data, "--score", "s", "--metric", "none"], 2),
        (["evaluate", data, "--common-rows"], 2),
        (["show", store, "--aul-threshold", "-1"], 2),
    ):
        done = run(*words)
        assert (done.exit_code, done.stderr.count("\n")) == (status, 1), done.stderr
        assert done.stderr.startswith("streameval: error: ")

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store_commands, "open_store", interrupt)
    done = run("show", store)
    assert done.exit_code == 130
    assert done.stderr == "streameval: error: interrupted; nothing is half-written\n"


def test_columns_are_listed_with_a_command_to_copy() -> None:
    """Types, nulls and ranges are those of the data, and the command runs."""
    done = run("evaluate", DATA, "--json", "-")
    assert (done.exit_code, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    table = pa.concat_tables(pq.read_table(path, partitioning=None) for path in sorted(DATA.rglob("*.parquet")))
    facts = {one["column"]: one for one in told["columns"]}
    assert list(facts) == table.column_names
    assert {one["rows"] for one in told["columns"]} == {len(table)}
    assert {one["nulls"] for one in told["columns"]} == {0}
    assert (facts["label"]["type"], facts["label"]["low"], facts["label"]["high"]) == ("int8", 0, 1)
    assert facts["length"]["high"] == max(table["length"].to_pylist())
    words = shlex.split(told["next"])
    assert words[:2] == ["streameval", "evaluate"]
    assert [words[i + 1] for i, word in enumerate(words) if word == "--score"] == ["score_lr", "score_nb", "score_q"]
    assert [words[i + 1] for i, word in enumerate(words) if word == "--cluster"] == ["cluster_loose", "cluster_tight"]
    assert run(*words[1:], "--quiet").exit_code == 0
    shown = run("evaluate", DATA)
    assert shown.stdout.splitlines()[0].split() == ["column", "type", "nulls", "low", "high"]
    assert f"next: {told['next']}" in shown.stdout


def test_the_command_to_copy_holds_no_credentials() -> None:
    """It is printed, and so ends in logs."""
    told = suggestion(["s3://AKID:SEC/RET@bucket/scores?region=eu-west-1", "local/file.parquet"], [])
    assert told == "streameval evaluate s3://bucket/scores local/file.parquet --label LABEL --score SCORE"


LABELS: dict[str, tuple[Any, Any, Any]] = {  # labels, which are positive, pos_label
    "numbers": ([0, 1, 1, 0, None, 1], [False, True, True, False, None, True], None),
    "booleans": ([False, True, True, False, None, True], [False, True, True, False, None, True], None),
    "signs": ([-1.0, 1.0, 1.0, -1.0, float("nan"), 1.0], [False, True, True, False, None, True], None),
    "texts": (["ham", "spam", "spam", "ham", None, "spam"], [False, True, True, False, None, True], "spam"),
    "chosen": ([1, 2, 2, 1, None, 2], [False, True, True, False, None, True], "2"),
}


@pytest.mark.parametrize("kind", LABELS)
def test_each_class_has_its_rows(kind: str, tmp_path: Path) -> None:
    """Negatives and positives of any type of label; rows without a label are in neither."""
    labels, positive, pos_label = LABELS[kind]
    score = np.arange(6) / 10
    pq.write_table(pa.table({"y": labels, "s": score}), tmp_path / "a.parquet")
    more = ["--pos-label", pos_label] if pos_label else []
    done = run("sketch", str(tmp_path / "a.parquet"), "--column", "s", "--by-label", "--label", "y", *more,
               "--quantile", "0", "--quantile", "1", "--json", "-")  # fmt: skip
    assert done.exit_code == 0, done.output
    whole, negative, positive_facts = json.loads(done.stdout)
    assert whole["count"] == 6
    assert "class" not in whole
    for facts, side in ((negative, False), (positive_facts, True)):
        mine = [s for s, p in zip(score.tolist(), positive, strict=True) if p is side]
        assert facts["class"] == ("positive" if side else "negative")
        assert facts["count"] == len(mine)
        assert [q["value"] for q in facts["quantiles"]] == [min(mine), max(mine)]


VERBS = list(main.commands)
SPELLINGS = sorted({o.spelling for o in (*OPTIONS, *SHOWN, *SIMULATION) if o.verbs})
ARGUMENTS = {
    "evaluate": "DATA",
    "churn": "DATA",
    "sketch": "DATA",
    "metrics": "",
    "demo": "",
    "simulate": "OUT",
}  # others: a store


@pytest.fixture
def few_rows(tmp_path: Path) -> str:
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
    """What it does not have is refused by name, on the command line or in a file, every other one; with status 2."""
    name = verb.replace("-", "_")
    rows = [*verb_options(name).values(), *(o for o in SHOWN if name in o.verbs)]
    rows = list(SIMULATION) if verb == "simulate" else rows
    expected = {option.spelling for option in rows if option.verbs}
    assert set(options_of(verb)) == expected | {"--config"} | ({"--rows", "--out"} if verb == "demo" else set())
    config = tmp_path / "options.toml"
    names = {str(option.name) for option in options_of(verb).values()}  # in a file these are spellings as well
    others = [s for s in SPELLINGS if s not in options_of(verb) and s[2:] not in names]
    for spelling in others[VERBS.index(verb) % 2 :: 2]:
        done = run(verb, *named(verb), spelling, "1")
        assert (done.exit_code, f"No such option '{spelling}'" in done.stderr) == (2, True), spelling
        takers = [other for other in VERBS if spelling in options_of(other)]
        said = " ".join(done.stderr.split())
        assert f"'{spelling}'; {', '.join(takers)} take" in said
    for spelling in others[1 - VERBS.index(verb) % 2 :: 2]:
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


def test_a_config_file_gives_options_by_either_name_and_the_command_line_wins(few_rows: str, tmp_path: Path) -> None:
    """Lists, numbers, flags; results record what was given."""
    config = tmp_path / "options.toml"
    config.write_text(
        'score = ["s", "t"]\ncluster = "id"\nmetric = ["roc_*", "aul"]\naul-threshold = 2\ntruncate = 0.5\n'
        'at = "k=2"\nnan = "drop"\napprox = true\nthreads = 1\npos_label = 1\njson = "-"\n'
    )
    done = run("evaluate", few_rows, "--config", str(config))
    assert done.exit_code == 0, done.stderr
    options: dict[str, Any] = {"score": ["s", "t"], "metrics": ["roc_*", "aul"], "truncate": 0.5, "at": "k=2"}
    options |= {"cluster": "id", "aul_threshold": 2, "nan": "drop", "pos_label": "1"}
    assert json.loads(done.stdout) == evaluate(few_rows, **options, approx=True).to_dict()
    done = run(
        "evaluate", few_rows, "--config", str(config), "--score", "s", "--nan", "half", "--no-approx", "--at", "k=3"
    )
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
def test_a_bad_config_file_is_refused_by_name(text: str, message: str, few_rows: str, tmp_path: Path) -> None:
    """The file, the key and what was probably meant; with status 2."""
    config = tmp_path / "options.toml"
    config.write_text(text)
    done = run("evaluate", few_rows, "--score", "s", "--config", str(config))
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    done = run("evaluate", few_rows, "--config", str(tmp_path / "none.toml"))
    assert (done.exit_code, "none.toml: cannot be read (No such file" in done.stderr) == (2, True)


@pytest.mark.parametrize("verb", ["simulate", "history", "sketch"])
def test_what_a_verb_requires_is_asked_for_by_name(verb: str) -> None:
    """Before a function gets None for its value."""
    done = run(verb, "place")
    required = [option for option in options_of(verb).values() if option.required]
    assert done.exit_code == 2
    assert f"Missing option '{required[0].opts[0]}'" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("attribute", "--score", "s", "--by", "id", "--score", "t"),
        *(("evaluate", option, "s", option, "t") for option in ("--label", "--unit")),
    ],
)
def test_two_columns_where_there_is_one_are_refused(few_rows: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """The last was silently taken; the same column twice is not a contradiction."""
    verb, option, *_ = words
    done = run(verb, few_rows, *words[1:])
    assert (done.exit_code, f"{option} takes one column, not 's' and 't'" in done.stderr) == (2, True), done.stderr
    config = tmp_path / "options.toml"
    config.write_text(f"{option[2:]} = ['s', 't']\n")
    assert "must be one value, not a list" in run(verb, few_rows, "--config", str(config)).stderr
    config.write_text('score = "s"\nlabel = "label"\nby = "id"\n')
    assert run(verb, few_rows, "--config", str(config), option, words[2], option, words[2]).exit_code in (0, 1)


def test_csv_is_alone_on_stdout(store: str) -> None:
    """The series as CSV takes the place of the table."""
    done = run("history", store, "--metric", "aul", "--csv", "-")
    assert done.stdout.splitlines()[0].startswith("partition,night_rows")
    assert len(done.stdout.splitlines()) == 3
    both = run("history", store, "--metric", "aul", "--csv", "-", "--json", "-")
    assert (both.exit_code, both.stdout) == (2, "")
    assert "--json - and --csv - cannot both print to stdout" in both.stderr


def test_a_failed_rule_is_told_on_stderr_where_there_is_no_table(store: str) -> None:
    """Status 3 and the reason, also when stdout is JSON or nothing."""
    words = ["check", store, "--rule", "aul >= 2", "--rule", "aul >= 0"]
    table, quiet, as_json = run(*words), run(*words, "--quiet"), run(*words, "--json", "-")
    assert [done.exit_code for done in (table, quiet, as_json)] == [3, 3, 3]
    assert len(table.stdout.splitlines()) == 3
    assert (table.stderr, quiet.stdout) == ("", "")
    assert quiet.stderr == as_json.stderr == table.stdout.splitlines()[0] + "\n"


@pytest.mark.parametrize("asked", [("--metric", "agc"), ("--rule", "rows > 0"), ("--plan",), ("--out", "a.json")])
def test_more_than_columns_cannot_be_had_without_one(
    asked: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns are listed, but status 2 says that what was asked for is missing."""
    monkeypatch.chdir(tmp_path)
    done = run("evaluate", DATA, *asked)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "nothing to evaluate" in done.stderr
    assert "score_lr" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_files_that_differ_are_told_apart(tmp_path: Path) -> None:
    """Types that differ are all named; a column of some files counts their rows; a damaged footer is named."""
    pq.write_table(pa.table({"label": [True, None], "a": [1, 2]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"label": [True, False], "a": [1.5, 2.5], "b": ["x", "y"]}), tmp_path / "2.parquet")
    told = json.loads(run("evaluate", tmp_path, "--json", "-").stdout)
    facts = {one["column"]: one for one in told["columns"]}
    assert (facts["a"]["type"], facts["a"]["low"]) == ("int64 or double", None)
    assert (facts["label"]["nulls"], facts["b"]["rows"], facts["b"]["high"]) == (1, 2, "y")
    (tmp_path / "3.parquet").write_bytes(b"nothing")
    done = run("evaluate", tmp_path)
    assert (done.exit_code, "3.parquet: cannot be read" in done.stderr) == (1, True), done.stderr


def test_every_verb_reads_its_config_file(few_rows: str, tmp_path: Path) -> None:
    """Simulations and stores as well; required options may stand in the file."""
    config, store = tmp_path / "options.toml", str(tmp_path / "store")
    config.write_text("rows = 50\npartitions = 2\nquiet = true\n")
    assert run("simulate", str(tmp_path / "out"), "--config", str(config)).exit_code == 0
    assert len(list((tmp_path / "out").glob("night=*"))) == 2
    config.write_text('score = ["s", "t"]\ntruncate = [0.5]\n')
    assert run("update", store, few_rows, "--config", str(config)).exit_code == 0
    config.write_text('score = "t"\nmetric = "agc@0.5"\n')
    shown = json.loads(run("show", store, "--config", str(config), "--json", "-").stdout)
    assert shown == evaluate(few_rows, score="t", metrics="agc@0.5", truncate=0.5).to_dict()
    config.write_text('rule = "roc_auc[s] >= 1.1"\n')
    assert run("check", store, "--config", str(config)).exit_code == 3
    config.write_text('column = "s"\nquantile = [0.5]\n')
    assert "0.5" in run("sketch", few_rows, "--config", str(config)).stdout


def test_a_bare_level_before_the_data_is_told_from_a_bad_level(few_rows: str) -> None:
    """It takes the path for the level: the message says how to write it."""
    found = run("evaluate", "--ci", few_rows, "--score", "s")
    assert found.exit_code == 2
    assert f"'{few_rows}' is not a number; write --ci 0.95, or put --ci last" in re.sub(r"\s+", " ", found.output)
    assert run("evaluate", few_rows, "--score", "s", "--ci").exit_code == 0
    assert run("evaluate", "--ci", "0.9", few_rows, "--score", "s").exit_code == 0
