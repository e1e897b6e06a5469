"""Every link of a large fabric as a cell of a matrix, where a drawing of its cables would be a tangle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pathloom.report.drawing import FAILED, LinkValues
from pathloom.report.palette import INK
from pathloom.tiers import LEVELS, FabricGraph, tier_words

DOWN = -1.0
"""The value of a link that is down, below the scale of every utilisation."""


@dataclass(frozen=True)
class Block:
    """The links from one tier to another: a column per switch, a row per link of the switch."""

    label: str
    columns: list[int]
    """The switches, pod by pod."""
    links: list[list[int]]
    """The links of each column, in the order of the nodes at their other end."""


def blocks(fabric: FabricGraph) -> list[Block]:
    """All links, each in one block: the way up first, then the way down.

    The column of a link is its lower switch. For links of hosts it is the ToR, and within a tier it is the sender.
    """
    tiers = [LEVELS.index(node["tier"]) for node in fabric.nodes]
    words = tier_words(fabric)
    found: dict[tuple[int, int], dict[int, list[tuple[int, int]]]] = {}
    for link, (source, target) in enumerate(zip(fabric.links["source"], fabric.links["target"], strict=True)):
        way = (tiers[source], tiers[target])
        column, other = (source, target) if way[0] <= way[1] else (target, source)
        if tiers[column] == 0 < tiers[other]:
            column, other = other, column
        found.setdefault(way, {}).setdefault(column, []).append((other, link))
    made = []
    for way in sorted(found, key=lambda way: (way[0] > way[1], way if way[0] <= way[1] else (-way[0], -way[1]))):
        columns = sorted(found[way], key=lambda node: (_pod(fabric, node), node))
        names = [words[LEVELS[tier]].many for tier in way]
        made.append(
            Block(
                f"{names[0]} → {names[1]}", columns, [[link for _, link in sorted(found[way][one])] for one in columns]
            )
        )
    return made


def _pod(fabric: FabricGraph, node: int) -> int:
    pod = fabric.nodes[node].get("pod")
    return -1 if pod is None else int(pod)


def heights(shown: Sequence[Block]) -> list[int]:
    """The number of rows of each block."""
    return [max(map(len, block.links)) for block in shown]


def draw_matrix(axes: Axes, fabric: FabricGraph, shown: Sequence[Block], values: LinkValues) -> None:
    """Draws the blocks one above the other. Links that are down have the colour of failed cables."""
    top = 0
    labels = []
    colours = values.colours.with_extremes(under=FAILED)
    for block, height in zip(shown, heights(shown), strict=True):
        cells = _cells(fabric, block, height, values)
        edges = np.linspace(0.0, 1.0, len(block.columns) + 1)
        rows = np.arange(top, top + height + 1)
        axes.pcolormesh(edges, rows, cells, cmap=colours, norm=values.scale, rasterized=True)
        _pod_lines(axes, fabric, block, top, height)
        labels.append((top + height / 2, block.label))
        top += height + 1
    axes.set_ylim(top - 1, 0)
    axes.set_xlim(0.0, 1.0)
    axes.grid(visible=False)
    axes.set_yticks([at for at, _ in labels], [label for _, label in labels])
    axes.set_xticks([])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _cells(fabric: FabricGraph, block: Block, height: int, values: LinkValues) -> NDArray[np.float64]:
    """The value of each cell: below the scale where the link is down, not a number where there is no link."""
    cells = np.full((height, len(block.columns)), np.nan)
    for column, links in enumerate(block.links):
        for row, link in enumerate(links):
            cells[row, column] = values.values[link] if fabric.links["up"][link] else DOWN
    return cells


def _pod_lines(axes: Axes, fabric: FabricGraph, block: Block, top: int, height: int) -> None:
    """Separates pods, and names them above the first block."""
    pods = [_pod(fabric, node) for node in block.columns]
    starts = [place for place in range(len(pods)) if place == 0 or pods[place] != pods[place - 1]]
    if pods[0] < 0 or len(starts) < 2:
        return
    for start, end in zip(starts, [*starts[1:], len(pods)], strict=True):
        if start:
            axes.plot([start / len(pods)] * 2, [top, top + height], color="white", linewidth=1.6)
        if top == 0:
            text = f"pod {pods[start]}" if len(starts) <= 16 else str(pods[start])
            middle = (start + end) / 2 / len(pods)
            axes.text(middle, -0.4, text, ha="center", va="bottom", color=INK, fontsize=6.5)
