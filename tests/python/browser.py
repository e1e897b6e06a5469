"""A browser without windows, which reports how it lays out a page."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

PROGRAM = "chromium"
"""`make test` installs it (scripts/prepare.sh)."""
_OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1600,1200",
    "--virtual-time-budget=30000",
]
_DEADLINE_S = 180
_FRAME = """<!DOCTYPE html><meta charset="utf-8"><body>
<iframe id="frame" style="width: {width}px; height: 900px; border: 0" srcdoc="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const window = document.getElementById("frame").contentWindow, document_ = window.document;
  Promise.resolve(((window, document) => {{ {script} }})(window, document_)).then((found) => {{
    document.body.innerHTML = "<pre id=found></pre>";
    document.getElementById("found").textContent = JSON.stringify(found);
  }});
}});
</script>"""


def ask(page: str, width_px: int, script: str, folder: Path, *, dark: bool = False) -> Any:
    """Shows a page at this width, and returns the result of a script that sees its `window` and `document`.

    The script may return a promise. `dark`: whether the reader prefers dark pages.
    """
    path = folder / "frame.html"
    path.write_text(_FRAME.format(width=width_px, page=html.escape(page), script=script), encoding="utf-8")
    preferred = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    command = [PROGRAM, *_OPTIONS, preferred, f"--user-data-dir={folder / 'profile'}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, timeout=_DEADLINE_S, check=True)
    text = re.search(r'<pre id="found">(.*?)</pre>', done.stdout.decode("utf-8"), re.DOTALL)
    assert text is not None, done.stderr.decode("utf-8", errors="replace")[-2000:]
    return json.loads(html.unescape(text[1]))
