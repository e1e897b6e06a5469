"""The packages in dist/: the wheel in an empty environment, the Debian package unpacked (`make package-test`)."""

from __future__ import annotations

import configparser
import gzip
import os
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
EXAMPLE = ROOT / "docs/controller.example.toml"
MACHINE = platform.machine()
GLIBC = re.compile(rb"GLIBC_2\.(\d+)")


def the_only(pattern: str) -> Path:
    found = sorted(DIST.glob(pattern))
    if len(found) != 1:
        pytest.fail(f"{DIST} has {len(found)} files {pattern}, expected one; build it with: make package-test")
    return found[0]


def call(*words: str | Path, cwd: Path) -> str:
    # Nothing of the checkout is found: not its Python, not its programs.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment["PATH"] = "/usr/bin:/bin"
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, and nothing else but what it needs."""
    place = tmp_path_factory.mktemp("installed")
    call(sys.executable, "-m", "venv", place / "venv", cwd=place)
    wheel = the_only(f"pathloom-*_{MACHINE}.whl")
    call(place / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=place)
    return place / "venv/bin"


def test_the_wheel_gives_a_first_result(installed: Path, tmp_path: Path) -> None:
    command = "compare --fabric fat-tree:k=4,rate=10Mbps --traffic long-lived:pattern=stride --schemes ecmp,ofpt"
    printed = call(installed / "pathloom", *command.split(), "--duration", "1s", "--out", "results", cwd=tmp_path)
    assert "Highest mean throughput: ofpt" in printed
    assert (tmp_path / "results/report.html").is_file()


def test_the_wheel_holds_the_controller(installed: Path, tmp_path: Path) -> None:
    call(installed / "pathloom", "controller", "check", EXAMPLE, cwd=tmp_path)
    version = call(installed / "pathloom", "--version", cwd=tmp_path).split()[1]
    assert version in call(installed / "pathloom-controller", "--version", cwd=tmp_path)


def test_the_wheel_has_the_published_figures_and_the_license(installed: Path, tmp_path: Path) -> None:
    assert "ofpt/fig4a" in call(installed / "pathloom", "reproduce", "list", cwd=tmp_path)
    names = zipfile.ZipFile(the_only(f"pathloom-*_{MACHINE}.whl")).namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "pathloom/py.typed" in names


@pytest.mark.parametrize("wheel", sorted(DIST.glob("pathloom-*.whl")), ids=lambda wheel: wheel.name)
def test_a_wheel_needs_no_later_glibc_than_2_17(wheel: Path) -> None:
    assert "manylinux_2_17" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        programs = [name for name in archive.namelist() if name.endswith((".so", "scripts/pathloom-controller"))]
        assert len(programs) == 2
        for name in programs:
            assert max(int(minor) for minor in GLIBC.findall(archive.read(name))) <= 17, name


def test_the_debian_package_is_complete(tmp_path: Path) -> None:
    package = the_only("pathloom-controller_*_amd64.deb" if MACHINE == "x86_64" else "pathloom-controller_*_arm64.deb")
    call("dpkg-deb", "--extract", package, tmp_path, cwd=tmp_path)
    call("dpkg-deb", "--control", package, tmp_path / "DEBIAN", cwd=tmp_path)
    program = tmp_path / "usr/bin/pathloom-controller"
    call(program, "check", tmp_path / "etc/pathloom/controller.toml", cwd=tmp_path)
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign, assignment]
    unit.read(tmp_path / "lib/systemd/system/pathloom-controller.service")
    for key in ("ExecStart", "ExecStartPre"):
        words = unit["Service"][key].split()
        assert words[0] == "/usr/bin/pathloom-controller"
        assert (tmp_path / words[-1].lstrip("/")).is_file()
    assert (tmp_path / "DEBIAN/conffiles").read_text() == "/etc/pathloom/controller.toml\n"
    documents = tmp_path / "usr/share/doc/pathloom-controller"
    assert "Apache-2.0" in (documents / "copyright").read_text()
    assert gzip.decompress((documents / "changelog.gz").read_bytes()) == (ROOT / "CHANGELOG.md").read_bytes()
    assert (tmp_path / "DEBIAN/postinst").stat().st_mode & 0o111
    owners = {line.split()[1] for line in call("dpkg-deb", "--contents", package, cwd=tmp_path).splitlines()}
    assert owners == {"root/root"}
