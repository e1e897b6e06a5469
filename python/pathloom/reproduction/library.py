"""The list of published figures, and how a command names them."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from pathloom import _core
from pathloom.errors import bad_input
from pathloom.reproduction.definitions import Figure, Measure, read_figure

ALL = "all"

OWN = ("loom",)
"""Names of schemes of this project, whose figures stand beside those of papers and have no published numbers."""

FOLDER = Path(str(files("pathloom"))) / "published"
"""One folder per paper, one file per figure. (`published/` of the source tree.)"""


def papers() -> list[str]:
    """Short names of the papers.

    >>> papers()
    ['lessor', 'loom', 'mptcp-aware', 'ofpt', 'parallel-tcp', 'tcp-path']
    """
    return sorted(path.name for path in FOLDER.iterdir() if path.is_dir() and any(path.glob("*.toml")))


def names(paper: str) -> list[str]:
    """Names of a paper's figures, in the order of the paper.

    >>> names("lessor")[:3]
    ['fig1', 'fig4a', 'fig4a-permutation']
    """
    return sorted((path.stem for path in (FOLDER / paper).glob("*.toml")), key=_in_order)


def figures(target: str) -> list[Figure]:
    """The figures that `ofpt/fig4a`, `ofpt` or `all` selects. Raises `PathloomError` with the nearest name."""
    return [read_figure(FOLDER / f"{identity}.toml", identity) for identity in identities(target)]


@lru_cache(maxsize=1)
def all_measures() -> tuple[Measure, ...]:
    """The measures of all figures, because figures of a paper share runs."""
    return tuple(measure for figure in figures(ALL) for measure in figure.measures())


def identities(target: str) -> list[str]:
    """Names, such as `ofpt/fig4a`, of the selected figures. Raises `PathloomError` with the nearest name.

    >>> identities("ofpt/fig4a")
    ['ofpt/fig4a']
    """
    known = papers()
    if target == ALL:
        return [f"{paper}/{name}" for paper in known for name in names(paper)]
    paper, slash, name = target.partition("/")
    if paper not in known:
        raise _unknown("paper", paper, known, ", ".join([*known, "or all"]))
    if not slash:
        return [f"{paper}/{one}" for one in names(paper)]
    if name not in names(paper):
        raise _unknown(f"figure of {paper}", name, names(paper), ", ".join(names(paper)))
    return [f"{paper}/{name}"]


def _unknown(what: str, word: str, known: list[str], listed: str) -> Exception:
    near = [name for name in known if word and name.startswith(word)] or [_core.nearest(word, known) or ""]
    hint = f"; did you mean {' or '.join(f'`{name}`' for name in near)}?" if near[0] else ""
    return bad_input(f"reproduce: no {what} is called `{word}`{hint} (known: {listed})")


def _in_order(name: str) -> tuple[int, str]:
    number = re.search(r"\d+", name)
    return (int(number.group()) if number else 0, name)
