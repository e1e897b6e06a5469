"""The packages in dist/: the wheel in an empty environment, the Debian packages unpacked (`make package-test`)."""

from __future__ import annotations

import configparser
import ctypes
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
NATIVE = ("pathloom-controller", "pathloom-hostd", "pathloom-switch")
"""Programs with a Debian package each."""
IN_THE_WHEEL = (*NATIVE, "pathloom-delay", "libpathloom_preload.so", "_core.abi3.so")
HAS_BPF = {"pathloom-hostd": b"cgroup_skb/egress", "pathloom-switch": b"switch_license"}
"""A name in the BPF programs of each program, which occurs nowhere else in it."""
MOST_BYTES = 20_000_000
"""Largest size of a wheel."""
MACHINE = platform.machine()
ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
GLIBC = re.compile(rb"GLIBC_2\.(\d+)")


def the_only(pattern: str) -> Path:
    found = sorted(DIST.glob(pattern))
    if len(found) != 1:
        pytest.fail(f"{DIST} has {len(found)} files {pattern}, expected one; build it with: make package-test")
    return found[0]


def call(*words: str | Path, cwd: Path) -> str:
    # Without these variables, neither Python modules nor programs of the checkout are found.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment["PATH"] = "/usr/bin:/bin"
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has only the wheel and its dependencies, without extras."""
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
    modules = {path.name for path in (installed.parent / "lib").glob("python*/site-packages/*")}
    assert "polars" in modules
    assert not modules & {"matplotlib", "networkx", "highspy", "distributed"}


def test_the_wheel_brings_its_extras(installed: Path, tmp_path: Path) -> None:
    wheel = the_only(f"pathloom-*_{MACHINE}.whl")
    call(installed / "python", "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    programs = tmp_path / "venv/bin"
    call(programs / "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[all]", cwd=tmp_path)
    call(programs / "pathloom", "fabric", "draw", "fat-tree:k=4", cwd=tmp_path)
    assert (tmp_path / "fabric.svg").is_file()


def test_the_wheel_holds_the_controller(installed: Path, tmp_path: Path) -> None:
    call(installed / "pathloom", "controller", "check", EXAMPLE, cwd=tmp_path)
    version = call(installed / "pathloom", "--version", cwd=tmp_path).split()[1]
    assert version in call(installed / "pathloom-controller", "--version", cwd=tmp_path)


@pytest.mark.parametrize("name", HAS_BPF)
def test_the_wheel_holds_the_daemons_with_their_bpf_programs(installed: Path, tmp_path: Path, name: str) -> None:
    version = call(installed / "pathloom", "--version", cwd=tmp_path).split()[1]
    assert call(installed / name, "--version", cwd=tmp_path).split() == [name, version]
    assert HAS_BPF[name] in (installed / name).read_bytes()


@pytest.mark.parametrize("short", ["controller", "hostd", "switch"])
def test_the_wheel_has_an_example_and_a_unit_of_each_program(installed: Path, short: str) -> None:
    examples = installed.parent / "share/pathloom/examples"
    assert (examples / f"{short}.toml").read_bytes() == (ROOT / f"docs/{short}.example.toml").read_bytes()
    assert (examples / f"pathloom-{short}.service").is_file()


def test_the_wheel_has_manual_pages_and_completion(installed: Path) -> None:
    packaged = ROOT / "target/share"
    names = [path.relative_to(packaged) for path in packaged.rglob("*") if path.is_file()]
    assert len(names) > 5
    for name in names:
        assert (installed.parent / "share" / name).read_bytes() == (packaged / name).read_bytes(), name


def test_the_wheel_gives_programs_the_library_for_paths(installed: Path, tmp_path: Path) -> None:
    # Connections on the loopback interface need no path and no controller.
    program = """
import socket
from pathlib import Path
door = socket.create_server(("127.0.0.1", 0))
socket.create_connection(door.getsockname()).close()
print({line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "pathloom" in line})
"""
    words = ["with-paths", "--controller", "127.0.0.1:9", "--paths", "2", "--", sys.executable, "-c", program]
    library = next((installed.parent / "lib").glob("python*/site-packages/pathloom/libpathloom_preload.so"))
    assert call(installed / "pathloom", *words, cwd=tmp_path) == f"{{'{library}'}}\n"


def test_the_wheel_has_the_simulator_for_c(installed: Path) -> None:
    header = (installed.parent / "include/pathloom_net.h").read_text(encoding="utf-8")
    library = ctypes.CDLL(str(installed.parent / "lib/libpathloom_net.so"))
    assert f"#define PATHLOOM_NET_ABI {library.pathloom_net_abi()}u" in header


def test_the_wheel_keeps_the_delays_of_long_links_in_a_lab(installed: Path, tmp_path: Path) -> None:
    asked = "from pathloom.lab.delays import is_kept; print(is_kept(1_000_000_000))"
    assert call(installed / "python", "-c", asked, cwd=tmp_path) == "True\n"
    done = subprocess.run([installed / "pathloom-delay"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "pathloom-delay: expected cables such as d10,d11,20000000,20000000\n")


def test_the_wheel_has_the_published_figures_and_the_license(installed: Path, tmp_path: Path) -> None:
    assert "ofpt/fig4a" in call(installed / "pathloom", "reproduce", "list", cwd=tmp_path)
    names = zipfile.ZipFile(the_only(f"pathloom-*_{MACHINE}.whl")).namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "pathloom/py.typed" in names


def elf_machine(program: bytes) -> str:
    """The architecture in the header of a program."""
    assert program[:6] == b"\x7fELF\x02\x01"
    return ELF_MACHINES[int.from_bytes(program[18:20], "little")]


@pytest.mark.parametrize("wheel", sorted(DIST.glob("pathloom-*.whl")), ids=lambda wheel: wheel.name)
def test_a_wheel_is_for_its_architecture_and_for_glibc_2_17(wheel: Path) -> None:
    # The wheel may be for any architecture: `make wheel ARCH=aarch64` puts one into the same folder.
    assert "manylinux_2_17" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        programs = [name for name in archive.namelist() if name.endswith((".so", *NATIVE, "pathloom-delay"))]
        assert {Path(name).name for name in programs} == set(IN_THE_WHEEL)
        for name in programs:
            program = archive.read(name)
            assert wheel.stem.endswith(elf_machine(program)), name
            assert max(int(minor) for minor in GLIBC.findall(program)) <= 17, name
            assert HAS_BPF.get(Path(name).name, b"") in program, name
    assert wheel.stat().st_size <= MOST_BYTES


@pytest.mark.parametrize("package", sorted(DIST.glob("pathloom-*.deb")), ids=lambda package: package.name)
def test_a_debian_package_holds_a_program_of_its_architecture(package: Path, tmp_path: Path) -> None:
    name, _, architecture = package.stem.split("_")
    call("dpkg-deb", "--extract", package, tmp_path, cwd=tmp_path)
    program = (tmp_path / "usr/bin" / name).read_bytes()
    assert DEBIAN[elf_machine(program)] == architecture
    assert call("dpkg-deb", "--field", package, "Architecture", cwd=tmp_path) == f"{architecture}\n"
    assert HAS_BPF.get(name, b"") in program


@pytest.fixture(params=NATIVE)
def unpacked(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, Path]:
    """The name of a Debian package, its file, and the folder in which it is unpacked."""
    name: str = request.param
    package = the_only(f"{name}_*_{DEBIAN[MACHINE]}.deb")
    call("dpkg-deb", "--extract", package, tmp_path, cwd=tmp_path)
    call("dpkg-deb", "--control", package, tmp_path / "DEBIAN", cwd=tmp_path)
    return name, package, tmp_path


def test_a_debian_package_is_complete(unpacked: tuple[str, Path, Path]) -> None:
    name, package, place = unpacked
    short = name.removeprefix("pathloom-")
    program, config = place / "usr/bin" / name, place / f"etc/pathloom/{short}.toml"
    assert name in call(program, "--version", cwd=place)
    assert config.read_bytes() == (ROOT / f"docs/{short}.example.toml").read_bytes()
    assert (place / "DEBIAN/conffiles").read_text() == f"/etc/pathloom/{short}.toml\n"
    documents = place / "usr/share/doc" / name
    assert "Apache-2.0" in (documents / "copyright").read_text()
    assert gzip.decompress((documents / "changelog.gz").read_bytes()) == (ROOT / "CHANGELOG.md").read_bytes()
    manual = gzip.decompress((place / f"usr/share/man/man1/{name}.1.gz").read_bytes())
    assert manual == (ROOT / f"target/share/man/man1/{name}.1").read_bytes()
    assert f" {name}\n" in (place / "usr/share/bash-completion/completions" / name).read_text()
    for script in ("postinst", "prerm"):
        assert (place / "DEBIAN" / script).stat().st_mode & 0o111
        assert f"{name}.service" in (place / "DEBIAN" / script).read_text()
    owners = {line.split()[1] for line in call("dpkg-deb", "--contents", package, cwd=place).splitlines()}
    assert owners == {"root/root"}


def test_a_unit_is_valid_and_its_program_accepts_its_configuration(unpacked: tuple[str, Path, Path]) -> None:
    name, _, place = unpacked
    file = place / f"lib/systemd/system/{name}.service"
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign, assignment]
    unit.read(file)
    for key in ("ExecStart", "ExecStartPre"):
        words = unit["Service"].get(key, f"/usr/bin/{name} /etc/pathloom").split()
        assert words[0] == f"/usr/bin/{name}"
        assert (place / words[-1].lstrip("/")).exists()
    # The program must be where the unit says.
    file.write_text(file.read_text().replace("/usr/bin/", f"{place}/usr/bin/"))
    judged = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, check=False
    )
    about = [line for line in judged.stderr.splitlines() if name in line]
    assert (judged.returncode, about) == (0, []), judged.stderr


def test_a_program_accepts_its_packaged_configuration(unpacked: tuple[str, Path, Path]) -> None:
    name, _, place = unpacked
    config = place / f"etc/pathloom/{name.removeprefix('pathloom-')}.toml"
    call(place / "usr/bin" / name, "check", config, cwd=place)
