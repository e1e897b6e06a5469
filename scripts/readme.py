"""Fills in the output of the commands in README.md, and the picture that one of them makes.

A block that begins with ```console has commands after `$ `, each followed by its output. `make readme` renews the
outputs; the tests check that they are up to date (`--check`).
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ("results/stride/link-heat-map.svg", "docs/link-heat-map.svg")
BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)


def renewed(text: str, folder: Path) -> str:
    """Returns the text with the present output of every command. The commands run in `folder`."""

    def renew(block: re.Match[str]) -> str:
        commands = [line for line in block.group().splitlines() if line.startswith("$ ")]
        return "".join(f"{command}\n{output(command.removeprefix('$ '), folder)}" for command in commands)

    return BLOCK.sub(renew, text)


def output(command: str, folder: Path) -> str:
    """Returns the output of a `pathloom` command."""
    words = shlex.split(command)
    if words[0] != "pathloom":
        raise SystemExit(f"README.md: `{words[0]}`: only commands of pathloom can be in a console block")
    call = [sys.executable, "-m", "pathloom", *words[1:]]
    return subprocess.run(call, cwd=folder, capture_output=True, text=True, check=True, timeout=600).stdout


def main() -> int:
    """Renews README.md, or with `--check` only checks whether it is up to date."""
    readme = ROOT / "README.md"
    before = readme.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        after = renewed(before, Path(folder))
        if "--check" in sys.argv:
            if after != before:
                print("README.md: the output of its commands has changed; `make readme` renews it", file=sys.stderr)
            return int(after != before)
        readme.write_text(after, encoding="utf-8")
        (ROOT / PICTURE[1]).parent.mkdir(exist_ok=True)
        shutil.copyfile(Path(folder) / PICTURE[0], ROOT / PICTURE[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
