"""How messages spell counts, numbers and lists of names."""

from __future__ import annotations

import inspect
import re
import shlex
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

P = ParamSpec("P")
R = TypeVar("R")


def plural(count: int, word: str) -> str:
    """A count with its noun.

    Examples
    --------
    >>> plural(1, "row"), plural(0, "row"), plural(12_000, "row")
    ('1 row', '0 rows', '12,000 rows')
    """
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def few(names: Sequence[str]) -> str:
    """The first three names, with an ellipsis if there are more.

    Examples
    --------
    >>> few(["a", "b"]), few(["a", "b", "c", "d"])
    ('a, b', 'a, b, c, …')
    """
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def format_number(number: float) -> str:
    """A number in the name of a metric: ``%g``, with as many digits as tell it from every other number.

    Examples
    --------
    >>> format_number(0.01), format_number(2000), format_number(1234567), format_number(0.1 + 0.2)
    ('0.01', '2000', '1234567', '0.30000000000000004')
    """
    texts = (f"{number:.{digits}g}" for digits in (6, 15, 16))
    return next((text for text in texts if float(text) == number), f"{number:.17g}")


def digits(number: float, most: int = 6) -> str:
    """A number for people to read, to six digits: with a minus sign, not a hyphen.

    Examples
    --------
    >>> digits(-0.0125), digits(-1.5e-7), digits(7531.0)
    ('−0.0125', '−1.5e-07', '7531')
    """
    text = f"{number:.{most}g}"
    return f"−{text[1:]}" if text.startswith("-") else text


def amount(rows: float) -> str:
    """A number of rows, or a sum of their weights: with separators, and decimals of small sums only.

    Examples
    --------
    >>> amount(7531), amount(1361753.25), amount(12.5)
    ('7,531', '1,361,753', '12.5')
    """
    return f"{rows:,.0f}" if float(rows).is_integer() or rows >= 1e5 else f"{rows:,.6g}"


def canonical(name: str) -> str:
    """The name of a metric with its numbers as results spell them.

    Examples
    --------
    >>> canonical("tpr@fpr=1e-4"), canonical("cost_min@fp=1.0,fn=10"), canonical("ece@20/equal_count")
    ('tpr@fpr=0.0001', 'cost_min@fp=1,fn=10', 'ece@20/equal_count')
    """
    stem, at, values = name.partition("@")
    number = r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])"
    return stem + at + re.sub(number, lambda match: format_number(float(match.group())), values)


def unknown_column(column: str, names: Sequence[str], have: str) -> str:
    """The message for a missing column: the nearest name, and all names.

    Examples
    --------
    >>> unknown_column("scroe", ["score", "size"], "the store keeps")
    "no column 'scroe'; did you mean 'score'? the store keeps score, size"
    """
    return f"no column {column!r}; {hint(column, names)}{have} {', '.join(names)}"


def hint(name: str, names: Iterable[str]) -> str:
    """A question about the nearest of some names, with a space after it; empty if none is near.

    Examples
    --------
    >>> hint("contry", ["channel", "country"]), hint("x", ["country"])
    ("did you mean 'country'? ", '')
    """
    near = nearest(name, names)
    return "" if near is None else f"did you mean {near!r}? "


_MEANT = {  # arguments of other libraries, without underscores
    **dict.fromkeys(("slice", "slices", "sliceby", "groupby", "groups", "segments"), "by"),
    **dict.fromkeys(("ytrue", "target", "truth"), "label"),
    **dict.fromkeys(("yscore", "ypred", "prediction", "predictions"), "score"),
    "sampleweight": "weight",
}


def explains_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Have a function say what may be meant by arguments that it does not take.

    Examples
    --------
    >>> from streameval import evaluate
    >>> evaluate("data", scores="score_lr")
    Traceback (most recent call last):
    ...
    TypeError: evaluate() got an unexpected keyword argument 'scores'; did you mean 'score'?
    """
    signature = inspect.signature(function)

    @wraps(function)
    def call(*values: P.args, **named: P.kwargs) -> R:
        try:
            signature.bind(*values, **named)
        except TypeError as error:
            unknown = [name for name in named if name not in signature.parameters]
            meant = {one: _MEANT.get(one.replace("_", ""), one) for one in unknown}
            meant = {o: next((n for n in (m, f"y_{m}") if n in signature.parameters), o) for o, m in meant.items()}
            said = [f"an unexpected keyword argument {o!r}; {hint(m, signature.parameters)}" for o, m in meant.items()]
            reason = f"got {' and '.join(one.rstrip('; ') for one in said)}" if said else str(error)
            text = f"{function.__name__}() {reason}"
            second = [*signature.parameters.values()][1]
            if len(values) > 1 and second.kind is inspect.Parameter.KEYWORD_ONLY:
                text += f"; columns are named, as in {function.__name__}(data, {second.name}={second.name!r})"
                if function.__name__ == "evaluate":
                    text += ", and roc_auc_score(y_true, y_score) and average_precision_score take arrays"
            raise TypeError(text) from None
        return function(*values, **named)

    return call


def nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The most similar of some names, or one that differs only in case; None if none is near.

    Examples
    --------
    >>> nearest("COUNTRY", ["county", "country"]), nearest("contry", ["country"]), nearest("x", ["country"])
    ('country', 'country', None)
    """
    from difflib import get_close_matches

    names = list(names)
    same = [other for other in names if other.casefold() == name.casefold()]
    return next(iter(same or get_close_matches(name, names, 1, cutoff)), None)


def text_of_bytes(raw: bytes) -> str:
    r"""Bytes as UTF-8, with those escaped that are not.

    >>> print(text_of_bytes(b"caf\xc3\xa9 \xff"))
    café \xff
    """
    return raw.decode("utf-8", "backslashreplace")


def unescape(text: str) -> str:
    r"""A text with its ``%`` escapes decoded; bytes that are not UTF-8 become lone surrogates, which differ.

    >>> unescape("caf%C3%A9"), unescape("%FE") == unescape("%FF")
    ('café', False)
    """
    return unquote(text, errors="surrogateescape")


def visible(text: str) -> str:
    r"""A text with the characters spelled out that a reader would not see: controls, marks of direction, odd spaces.

    Neither a terminal nor a browser obeys them then, and two names that look alike are told apart.

    Examples
    --------
    >>> print(visible("a\tb\x1b[31m"), visible("caf\u00e9\u202e"))
    a\tb\x1b[31m café\u202e
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible_lines(text: str) -> str:
    r"""Several lines with the same characters spelled out, except for the ends of the lines.

    >>> print(visible_lines("a\x1b[2J\nb"))
    a\x1b[2J
    b
    """
    return "\n".join(map(visible, text.split("\n")))


def apart(texts: Sequence[str], most: int, tail: int = 0) -> list[str]:
    """Texts cut to at most `most` characters, of which `tail` are the end, so that different texts stay different.

    Where a cut would make texts the same, the part in which they differ is kept.

    Examples
    --------
    >>> apart(["short", "a text that is too long"], 12), apart(["a text that is too long"], 12, tail=4)
    (['short', 'a text that…'], ['a text …long'])
    >>> apart([f"https://example.com/shop/{name}/index.html" for name in ("shoes", "socks")], 24, tail=8)
    ['https:/…/shoes/…ex.html', 'https:/…/socks/…ex.html']
    """
    whole = [visible(text) for text in texts]
    cut = {
        text: text if len(text) <= most else text[: most - tail - 1] + "…" + text[len(text) - tail :] for text in whole
    }
    for same in _same(cut):
        cut |= _differing(same, (most - 2) // 3)
    return [cut[text] for text in whole]


def _same(cut: Mapping[str, str]) -> list[list[str]]:
    """The texts that a cut makes the same."""
    groups: dict[str, list[str]] = {}
    for text, short in cut.items():
        groups.setdefault(short, []).append(text)
    return [same for same in groups.values() if len(same) > 1]


def _differing(texts: Sequence[str], part: int) -> dict[str, str]:
    """Three parts of each text: its beginning, where it first differs from the others, and its end."""
    differ, cut = _common(texts), {}
    for text in texts:
        start = max(part, min(differ - part // 3, len(text) - 2 * part))
        end = max(start + part, len(text) - part)
        gap = "…" if end > start + part else ""
        cut[text] = f"{text[:part]}…{text[start : start + part]}{gap}{text[end:]}"
    for same in _same(cut):
        if _common(same) > differ:
            cut |= _differing(same, part)
    return cut


def _common(texts: Sequence[str]) -> int:
    """The number of letters that all texts begin with.

    >>> _common(["shoes", "shirt", "shop"]), _common(["shop", "shops"])
    (2, 4)
    """
    first, last = min(texts), max(texts)
    return next((i for i, pair in enumerate(zip(first, last, strict=False)) if len(set(pair)) > 1), len(first))


def shell(words: Iterable[str]) -> str:
    r"""A command for a shell: words with invisible characters are written as ``$'…'``, which bash and zsh read back.

    Examples
    --------
    >>> print(shell(["show", "a b", "c\u202ed'e"]))
    show 'a b' $'c\u202ed\'e'
    """
    return " ".join(map(_quote, words))


def _quote(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    written = (
        f"\\{c}"
        if c in "\\'"
        else c
        if c.isprintable()
        else f"\\u{ord(c):04x}"
        if ord(c) < 1 << 16
        else f"\\U{ord(c):08x}"
        for c in word
    )
    return f"$'{''.join(written)}'"


def labelled_rows(shares: Sequence[float]) -> str:
    """A sentence for values of the labelled rows alone, given their shares of all rows.

    Examples
    --------
    >>> labelled_rows([0.0123, 0.5])
    'Values that use labels are of the 1.23% to 50.00% labelled rows, not an estimate for all.'
    """
    texts = dict.fromkeys(f"{share:.2%}" for share in (min(shares), max(shares)))
    return f"Values that use labels are of the {' to '.join(texts)} labelled rows, not an estimate for all."


def size(nbytes: int) -> str:
    """Bytes for people.

    Examples
    --------
    >>> size(12_300_000), size(-1)
    ('12.3 MB', 'an unknown size')
    """
    if nbytes < 0:
        return "an unknown size"
    value, unit = float(nbytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.{0 if unit == 'B' else 1}f} {unit}"
