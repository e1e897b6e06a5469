"""The colours of pages and pictures, and the look of each scheme: one colour, marker and line in every picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

INK = "#222222"
FAINT = "#8a8f98"
GRID = "#e3e6ea"

# Okabe and Ito's palette, distinguishable with every common colour blindness; yellow is left out on white.
_LOOKS: tuple[tuple[str, str, str | tuple[float, tuple[float, ...]]], ...] = (
    ("#7f7f7f", "s", (0, (4, 1.5))),
    ("#0072b2", "o", "solid"),
    ("#d55e00", "^", "solid"),
    ("#009e73", "D", (0, (6, 1.5, 1.5, 1.5))),
    ("#cc79a7", "v", (0, (4, 1.5))),
    ("#56b4e9", "P", (0, (1.5, 1.5))),
    ("#e69f00", "X", (0, (6, 1.5, 1.5, 1.5))),
    ("#222222", "*", (0, (1.5, 1.5))),
)
# Well-known schemes keep their colour from report to report.
_FAVOURITES = {
    "spt": 0,
    "ecmp": 1,
    "hedera": 2,
    "hedera-sa": 3,
    "ofpt": 4,
    "lessor": 6,
    "mptcp": 5,
    "tcp-path": 7,
}

MOST_LABEL_LETTERS = 34
"""Names of schemes that are longer than this are shortened in pictures."""

PAPER, DARK_PAPER = "#ffffff", "#16191e"

DARK = {
    PAPER: DARK_PAPER,
    "#000000": "#e4e7eb",
    INK: "#e4e7eb",
    FAINT: "#9aa1ab",
    GRID: "#333941",
    # Schemes. Other colours of schemes are light enough.
    "#7f7f7f": "#a3a8af",
    "#0072b2": "#3b8bd6",
    "#56b4e9": "#9adcff",
    "#d55e00": "#f0803c",
    "#009e73": "#22b98c",
    # Fabrics: nodes, cables and the background of pods.
    "#c9ced6": "#4a515c",
    "#cfe3f1": "#173a52",
    "#d5ebdf": "#14402f",
    "#f7dfc6": "#573414",
    "#9aa1ab": "#717985",
    "#7b5ea7": "#a88bd4",
    "#c8102e": "#ff6b7d",
    "#f5f6f8": "#20252c",
}
"""The partner of each colour on a dark background; other colours do not change."""


_HATCHES = ("", "///", "...", "xxx")


@dataclass(frozen=True)
class Look:
    """Label of a scheme in a picture, and its colour, marker and line style, and the hatch of its bars."""

    label: str
    colour: str
    marker: str
    line: str | tuple[float, tuple[float, ...]]
    hatch: str = ""
    """Tells apart bars whose colour is used again."""


def looks(schemes: Sequence[str]) -> dict[str, Look]:
    """A look for each scheme: its usual one, unless the same scheme with other settings already has it."""
    taken: dict[str, int] = {}
    for scheme in schemes:
        favourite = _FAVOURITES.get(scheme.split(":", 1)[0])
        if favourite is not None and favourite not in taken.values():
            taken[scheme] = favourite
    free = iter([index for index in range(len(_LOOKS)) if index not in taken.values()])
    for scheme in schemes:
        if scheme not in taken:
            taken[scheme] = next(free, len(taken) % len(_LOOKS))
    labels = short_labels(schemes)
    found: dict[str, Look] = {}
    used = [0] * len(_LOOKS)
    for scheme, label in zip(schemes, labels, strict=True):
        look = taken[scheme]
        found[scheme] = Look(label, *_LOOKS[look], _HATCHES[used[look] % len(_HATCHES)])
        used[look] += 1
    return found


def short_labels(schemes: Sequence[str]) -> list[str]:
    """Labels of schemes in pictures: the middle of long specifications is cut, unless two labels would then be equal.

    Matplotlib omits labels that begin with an underscore, so such file names get the prefix `./`.

    >>> short_labels(["ecmp", "experiments/my-schemes/greedy.py:Greedy:period=100ms"])
    ['ecmp', 'experiments/my-s…eedy:period=100ms']
    """
    schemes = [f"./{one}" if one.startswith("_") else one for one in schemes]
    head = (MOST_LABEL_LETTERS - 1) // 2
    tail = MOST_LABEL_LETTERS - 1 - head
    cut = [one if len(one) <= MOST_LABEL_LETTERS else f"{one[:head]}…{one[-tail:]}" for one in schemes]
    return cut if len(set(cut)) == len(cut) else list(schemes)
