"""The script that runs after the installation of a Debian package. Recorders replace systemctl and the program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SYSTEMD = "mount -t tmpfs none /run && mkdir -p /run/systemd/system && exec sh"
"""A namespace in which systemd seems to run."""


def configured(folder: Path, *, active: bool, accepted: bool) -> tuple[list[str], str]:
    """The calls that the script makes after an upgrade, and what it prints."""
    template = (ROOT / "packaging/debian/postinst").read_text(encoding="utf-8")
    script, calls = folder / "postinst", folder / "calls"
    script.write_text(template.replace("@NAME@", "pathloom-hostd").replace("@SHORT@", "hostd"), encoding="utf-8")
    results = {"systemctl": f'case "$*" in *is-active*) exit {int(not active)};; esac', "pathloom-hostd": ""}
    if not accepted:
        results["pathloom-hostd"] = "echo 'hostd.toml: line 3: unknown key' >&2; exit 2"
    for name, result in results.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {calls}\n{result}\n', encoding="utf-8")
        program.chmod(0o755)
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", f"{SYSTEMD} {script} configure 0.1.0"],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in done.stderr:
        pytest.skip(f"this machine has no user namespaces: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return calls.read_text(encoding="utf-8").splitlines(), done.stderr


CHECK = "pathloom-hostd check /etc/pathloom/hostd.toml"
RELOAD = "systemctl daemon-reload"
ASK = "systemctl --quiet is-active pathloom-hostd.service"


def test_an_upgrade_restarts_the_service_if_the_new_program_accepts_the_configuration(tmp_path: Path) -> None:
    calls, printed = configured(tmp_path, active=True, accepted=True)
    assert calls == [RELOAD, ASK, CHECK, "systemctl restart pathloom-hostd.service"]
    assert printed == ""


def test_an_upgrade_keeps_the_old_process_if_the_new_program_refuses_the_configuration(tmp_path: Path) -> None:
    calls, printed = configured(tmp_path, active=True, accepted=False)
    assert calls == [RELOAD, ASK, CHECK]
    assert "line 3: unknown key" in printed
    assert "then run: systemctl restart pathloom-hostd" in printed


def test_a_service_that_does_not_run_is_not_started(tmp_path: Path) -> None:
    calls, _ = configured(tmp_path, active=False, accepted=True)
    assert calls == [RELOAD, ASK]
