"""docs/formats.md names every column of every table."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from conftest import Cli
from pathloom.experiments.results.columns import is_column

FORMATS = (Path(__file__).resolve().parents[2] / "docs/formats.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([^`]+)`", FORMATS))
OPTIONS = ["--fabric", "leaf-spine:spines=2,leaves=2,hosts=2,rate=10Mbps", "--duration", "300ms", "--runs", "2"]
TRAFFIC = ["hadoop:load=0.5", "all-to-all:size=20KB", "long-lived"]


def undocumented(columns: list[str]) -> list[str]:
    """Returns columns that the document lacks. The mark of a bound has the name of its figure without the unit."""
    figures = {name: name.removesuffix("_censored") for name in columns if not name.startswith("control_sizes_")}
    return [
        name for name, figure in figures.items() if not NAMED & {figure, f"{figure}_s" if figure != name else figure}
    ]


def test_every_column_is_named_with_its_unit(cli: Cli, tmp_path: Path) -> None:
    for place, traffic in enumerate(TRAFFIC):
        out = f"out{place}"
        schemes = ["--schemes", "ecmp,mptcp:subflows=2,hedera:period=100ms"]
        outcome = cli(
            "compare", *OPTIONS, "--traffic", traffic, *schemes, "--out", out, "--yardstick", "--series", "50ms"
        )
        assert outcome.code == 0, outcome.err
        folder = tmp_path / out
        columns = pl.read_csv(folder / "schemes.csv").columns
        assert undocumented(columns) == []
        assert [name for name in columns if not is_column(name)] == [], "no axis may have such a name"
        for path in sorted(folder.glob("*.parquet")):
            assert path.name in NAMED
            assert undocumented(pl.read_parquet(path).columns) == [], path.name
        assert (folder / "subflows.parquet").is_file()
    (tmp_path / "s.toml").write_text(
        'fabric = "leaf-spine:spines=2,leaves=2,hosts=2,rate=10Mbps"\ntraffic = "all-to-all:size={size}"\n'
        'schemes = "ecmp,ofpt"\nduration = "300ms"\nruns = 2\nyardstick = true\ngrid = {size = ["10KB", "20KB"]}\n',
        encoding="utf-8",
    )
    assert cli("sweep", "s.toml", "--out", "s").code == 0
    for columns in (
        pl.read_parquet(tmp_path / "s/runs.parquet").columns,
        pl.read_csv(tmp_path / "s/points.csv").columns,
    ):
        assert columns[0] == "size"
        assert undocumented(columns[1:]) == []
    assert cli("diff", "s", "s", "--csv", "d.csv").code == 0
    assert undocumented(pl.read_csv(tmp_path / "d.csv").columns[1:]) == []


def test_names_that_are_documented_exist(cli: Cli, tmp_path: Path) -> None:
    """A documented column that no table has would mislead readers."""
    from pathloom.experiments.results.series import FLOW_SERIES_SCHEMA, LINK_SERIES_SCHEMA
    from pathloom.experiments.results.subflows import SUBFLOW_SCHEMA
    from pathloom.experiments.results.tables import FLOW_SCHEMA, LINK_SCHEMA

    for heading, schema in (
        ("flows.parquet", FLOW_SCHEMA),
        ("subflows.parquet", SUBFLOW_SCHEMA),
        ("links.parquet", LINK_SCHEMA),
        ("link-series.parquet", LINK_SERIES_SCHEMA),
        ("flow-series.parquet", FLOW_SERIES_SCHEMA),
    ):
        section = FORMATS.split(f"## {heading}\n")[1].split("\n## ")[0]
        first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
        assert {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)} == set(schema)
