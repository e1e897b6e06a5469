"""Follows the steps of a documentation page in a copy of the sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r'^```\w+ title="(\S+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


class Copy:
    """A copy of the sources, to which a page is applied."""

    def __init__(self, root: Path) -> None:
        self.root = root
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in listed.rstrip("\0").split("\0"):
            is_needed = name.startswith(("crates/", "tests/conformance/", "Cargo.", "rustfmt", "fuzz/"))
            if is_needed and (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)

    def write_files(self, page: str) -> list[Path]:
        """Writes the files that the page shows. Returns them."""
        made = []
        for name, content in BLOCK.findall(page):
            file = self.root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
            made.append(file)
        return made

    def insert(self, name: str, after: str, lines: str) -> None:
        """Inserts lines into a file, after a text that it has once."""
        file = self.root / name
        text = file.read_text(encoding="utf-8")
        assert text.count(after) == 1, (file, after)
        file.write_text(text.replace(after, after + lines), encoding="utf-8")

    def cargo(self, *words: str, **environment: str) -> None:
        # Compiled files are kept for the next time.
        kept = {"CARGO_TARGET_DIR": str(ROOT / "target/new-scheme"), "CARGO_TERM_COLOR": "never"}
        done = subprocess.run(
            ["cargo", *words], cwd=self.root, env={**os.environ, **kept, **environment}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
