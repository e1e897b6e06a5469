"""The HTTP API of a lab's controller."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from live import Live
from pathloom.lab import system
from support import PATIENCE_S

TOKEN = "0123456789abcdef0123456789abcdef"
PERIOD_S = 1


def with_api(folder: Path) -> str:
    """Returns the configuration of an API, and of port counters that are read every second."""
    tokens = folder / "tokens"
    tokens.write_text(f"read test {TOKEN}\n", encoding="ascii")
    tokens.chmod(0o600)
    return f'[api]\naddress = "127.0.0.1:6680"\ntokens = "{tokens}"\nport_period = "{PERIOD_S}s"'


def ask(live: Live, path: str) -> Any:
    """Returns the answer of the API."""

    def act() -> Any:
        url = f"http://127.0.0.1:6680{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
            return json.loads(text) if path.startswith("/v1") else text

    return system.inside(live.blueprint.namespace, act)
