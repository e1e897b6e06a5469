"""Where the page's data comes from: the folder of a saved result, or a result in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pathloom._core import PathloomError
from pathloom.errors import bad_input, reason
from pathloom.experiments.results.record import COMPARISON, RESULT
from pathloom.experiments.results.result import ResultData
from pathloom.experiments.results.saved import Loaded, load
from pathloom.experiments.settings.input_files import OWN_FABRIC
from pathloom.fabrics import Fabric

REPORT = "report.html"


@dataclass(frozen=True)
class Source:
    """A result as the page needs it."""

    name: str
    record: Mapping[str, Any]
    """The content of `result.json`."""
    fabric: Mapping[str, Any]
    """Nodes and links, in the form of the controller's API."""
    table: Callable[[str], pl.DataFrame | None]
    """A table by its name (`flows`, `links`, `subflows`, `link-series` …), or None if the result has none."""
    report: bytes | None = None


def folder(path: Path) -> Source:
    """A results folder. Raises `PathloomError` when it is not the result of a comparison."""
    if path.name != RESULT and not path.is_dir():
        what = "is a file" if path.exists() else "no such folder"
        raise bad_input(f"`{path}`: {what}; expected the results folder of a compare or a run")
    return saved(load(path))


def saved(loaded: Loaded) -> Source:
    """A result that was loaded. Raises `PathloomError` when it is not the result of a comparison."""
    path = loaded.path
    if loaded.kind != COMPARISON:
        raise bad_input(
            f"`{path}`: is the result of a {loaded.kind}; expected the results folder of a compare or a run"
        )

    tables = {"flows": loaded.flows, "links": loaded.links}

    def table(name: str) -> pl.DataFrame | None:
        if name in tables:
            return tables[name]
        file = path / f"{name}.parquet"
        return _read(file) if file.is_file() else None

    fabric = _fabric_of(path, loaded.summary["settings"], tables["links"])
    return Source(path.resolve().name, loaded.summary, fabric, table, _report(path))


def in_memory(result: ResultData) -> Source:
    """A result that has just been computed. It has no report, because that takes seconds to make."""
    tables: dict[str, Callable[[], pl.DataFrame]] = {
        "flows": lambda: result.flows,
        "links": lambda: result.links,
        "subflows": lambda: result.subflows,
    }
    if result.settings.series is not None:
        tables["flow-series"] = lambda: result.flow_series
        tables["link-series"] = lambda: result.link_series
        tables["way-series"] = lambda: result.way_series

    def table(name: str) -> pl.DataFrame | None:
        found = tables[name]() if name in tables else None
        # A folder has no file of an empty table of subflows.
        return None if name == "subflows" and found is not None and found.height == 0 else found

    return Source(", ".join(result.settings.labels), result.summary, fabric_answer(result.fabric), table)


def fabric_answer(fabric: Fabric) -> dict[str, Any]:
    """Nodes and links, in the form of the controller's API."""
    columns = {name: fabric.links[name] for name in ("source", "target", "rate_bps", "up")}
    return {"spec": fabric.spec, "nodes": fabric.nodes, "links": columns}


def _report(path: Path) -> bytes | None:
    try:
        return (path / REPORT).read_bytes()
    except OSError:
        return None  # A result may have been moved without its report.


def _read(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise bad_input(f"`{path}`: cannot be read: {reason(error)}") from None


def _fabric_of(path: Path, settings: Mapping[str, Any], links: pl.DataFrame) -> dict[str, Any]:
    """Returns the fabric of a result. If its file is missing, it is rebuilt from the table of links."""
    try:
        own = path / OWN_FABRIC
        text = own.read_text(encoding="utf-8") if own.is_file() else None
        spec = settings["fabric"]
        fabric = Fabric(spec) if text is None else Fabric.from_node_link(text, spec)
        if len(fabric.links["source"]) != links["link"].n_unique():
            raise bad_input("the fabric is not the one that was run")
        return fabric_answer(fabric)
    except (PathloomError, OSError, ValueError):
        return _from_links(settings["fabric"], links)


def _from_links(spec: str, links: pl.DataFrame) -> dict[str, Any]:
    rows = links.unique("link").sort("link")
    names = list(dict.fromkeys([*rows["source"], *rows["target"]]))
    numbers = {name: number for number, name in enumerate(names)}
    switches = set(rows.filter("between_switches")["source"]) | set(rows.filter("between_switches")["target"])
    tiers = {name: "tor" if name in switches else "host" for name in names}
    nodes = [{"name": name, "tier": tiers[name], "pod": None, "position": None} for name in names]
    columns = {
        "source": [numbers[name] for name in rows["source"]],
        "target": [numbers[name] for name in rows["target"]],
        "rate_bps": rows["rate_bps"].to_list(),
    }
    return {"spec": spec, "nodes": nodes, "links": columns}
