"""htsim (https://github.com/Broadcom/csg-htsim): a program of Pathloom, built with htsim's separate sources."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from running import BUILD, HERE, CannotCompareError, run
from setups import MSS_BYTES, FatTree

PROGRAM: Final = "htsim_fat_tree"
SOURCES: Final = [
    "config",
    "eth_pause_packet",
    "eventlist",
    "fairpullqueue",
    "logfile",
    "loggers",
    "mtcp",
    "ndppacket",
    "network",
    "pipe",
    "queue",
    "route",
    "tcp",
    "tcppacket",
]
"""Source files of htsim that the program needs."""


def require(checkout: Path) -> None:
    """Raises `CannotCompareError` if the sources of htsim or a compiler are missing."""
    if not (checkout / "sim" / "tcp.h").exists():
        raise CannotCompareError(
            f"--htsim {checkout}: no sim/tcp.h; give a clone of https://github.com/Broadcom/csg-htsim"
        )
    if shutil.which("g++") is None:
        raise CannotCompareError("--htsim needs a compiler; install it with `apt-get install g++`")


def build(checkout: Path) -> None:
    """Builds the program with the sources of htsim that it needs. Writes nothing into the checkout."""
    sources = checkout / "sim"
    BUILD.mkdir(parents=True, exist_ok=True)
    # The options are those of htsim's own build.
    command = ["g++", "-O3", "-std=c++17", f"-I{sources}", "-o", str(BUILD / PROGRAM), str(HERE / f"{PROGRAM}.cc")]
    command += [str(sources / f"{name}.cpp") for name in SOURCES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower() or "undefined" in line]
        raise CannotCompareError(f"htsim does not build: {(errors or ['no message'])[0].strip()}")


def fat_tree(work: FatTree, duration_ms: float, under: list[str] | None) -> tuple[dict[str, Any], str]:
    """Runs htsim."""
    options = [f"--k={work.k}", f"--duration-s={duration_ms / 1000}", f"--buffer={work.buffer}"]
    return run(PROGRAM, *options, f"--window-segments={work.receive_window_bytes // MSS_BYTES}", under=under)
