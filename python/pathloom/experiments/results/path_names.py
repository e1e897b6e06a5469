"""Paths as text, for tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pathloom.fabrics import Fabric


def path_texts(fabric: Fabric, paths: Iterable[Sequence[int] | None]) -> list[str | None]:
    """The names of the nodes on each path, given by its links; None for an unknown path."""
    names, sources, targets = fabric.names, fabric.links["source"], fabric.links["target"]

    def text(path: Sequence[int]) -> str:
        return " ".join(names[node] for node in [sources[path[0]], *(targets[link] for link in path)])

    return [None if path is None else text(path) for path in paths]
