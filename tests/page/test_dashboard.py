"""Checks the dashboard with Grafana's own types: the package @grafana/schema, which web/package-lock.json pins."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = ROOT / "web/node_modules"
"""`make test-page` installs the packages here (scripts/web.sh)."""
TYPES = Path(__file__).with_name("dashboard-types.ts")
DASHBOARD: dict[str, Any] = json.loads((ROOT / "packaging/monitoring/dashboard.json").read_text(encoding="utf-8"))
OPTIONS = [
    "--noEmit",
    "--strict",
    "--target",
    "es2022",
    "--module",
    "esnext",
    "--moduleResolution",
    "bundler",
    "--pretty",
    "false",
]


def problems(dashboard: dict[str, Any], place: Path) -> list[str]:
    """Returns the errors that the TypeScript compiler finds in a dashboard."""
    if not (MODULES / "@grafana/schema").is_dir():
        pytest.fail(f"{MODULES} has no @grafana/schema; fetch it with: scripts/web.sh check")
    (place / "node_modules").symlink_to(MODULES)
    literal = f"export const dashboard: Checked = {json.dumps(dashboard, indent=1)};\n"
    (place / "dashboard.ts").write_text(TYPES.read_text(encoding="utf-8") + literal, encoding="utf-8")
    command = [str(MODULES / ".bin/tsc"), *OPTIONS, "--types", "", "dashboard.ts"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "error TS" in done.stdout, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if "error TS" in line]


def test_the_dashboard_has_the_types_of_grafana(tmp_path: Path) -> None:
    assert problems(DASHBOARD, tmp_path) == []


def panel(dashboard: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in dashboard["panels"] if one["type"] == kind)
    return found


@pytest.mark.parametrize("broken", ["key", "option", "enum", "field", "variable", "panel"])
def test_a_mistake_in_the_dashboard_is_found(tmp_path: Path, broken: str) -> None:
    dashboard = copy.deepcopy(DASHBOARD)
    stat, series = panel(dashboard, "stat"), panel(dashboard, "timeseries")
    match broken:
        case "key":
            dashboard["pannels"] = []
        case "option":
            stat["options"]["colourMode"] = "value"
        case "enum":
            stat["options"]["colorMode"] = "values"
        case "field":
            series["fieldConfig"]["defaults"]["custom"] = {"fillOpacityy": 1}
        case "variable":
            dashboard["templating"]["list"][1]["refresh"] = 7
        case "panel":
            stat["type"] = "graph"
    assert len(problems(dashboard, tmp_path)) == 1
