"""`mn --custom … --topo pathloom,SPEC` builds the fabric that the controller expects."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pathloom.fabrics import Fabric
from pathloom.lab import system
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.lab import Lab
from pathloom.lab.switches import OpenVSwitch
from pathloom.native import program

HERE = Path(__file__).resolve().parent
TOPOLOGY = HERE.parents[1] / "examples" / "mininet_topo.py"
DOCUMENTATION = HERE.parents[1] / "docs" / "lab.md"
SPEC = "fat-tree:k=4,rate=10Mbps"


def command_of(page: Path) -> list[str]:
    """Returns the words of the command that starts Mininet on a page of the documentation."""
    (line,) = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("mn ")]
    return shlex.split(line)[1:]


def start(name: str) -> tuple[Blueprint, Path, dict[str, str], list[str]]:
    """Starts a private Open vSwitch. Returns its blueprint, its folder, the environment of programs, and the words that
    run a program in its namespace."""
    blueprint, directory = Blueprint.of(name, Fabric(SPEC)), Lab(name).directory
    directory.mkdir(parents=True)
    system.batch("ip", None, [f"netns add {blueprint.namespace}"])
    system.batch("ip", blueprint.namespace, ["link set lo up"])
    OpenVSwitch(blueprint, directory).start()
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    environment |= {"OVS_RUNDIR": str(directory / "ovs"), system.MARK: str(directory)}
    return blueprint, directory, environment, ["ip", "netns", "exec", blueprint.namespace]


def mininet(within: list[str], environment: dict[str, str], options: list[str]) -> str:
    """Runs Mininet to its end. Returns its output."""
    # Mininet gets its own table of processes, so that it ends only its own processes.
    alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "/usr/bin/python3"]
    done = subprocess.run(
        [*within, *alone, str(HERE / "mininet_driver.py"), *options],
        env=environment, cwd=HERE.parents[1], capture_output=True, text=True, check=False, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_mininet_builds_the_fabric_and_its_switches_connect_to_the_controller(name: str, tmp_path: Path) -> None:
    blueprint, _, environment, within = start(name)
    heard = tmp_path / "heard.json"
    listener = subprocess.Popen([*within, sys.executable, str(HERE / "listener.py"), "6653", "20", str(heard)])
    options = [
        "--custom",
        str(TOPOLOGY),
        "--topo",
        f"pathloom,{SPEC}",
        "--switch",
        "ovs,datapath=user,protocols=OpenFlow13",
    ]
    script = tmp_path / "script"
    # Mininet ends when all switches have been heard.
    script.write_text(f"sh timeout 60 sh -c 'until test -e {heard}; do sleep 0.1; done'\n", encoding="ascii")
    options += ["--controller", "remote,ip=127.0.0.1", "--test", "none", "--post", str(script)]
    mininet(within, environment, options)
    assert listener.wait(60) == 0
    found = json.loads(heard.read_text(encoding="ascii"))
    assert sorted(found) == sorted(switch.dpid for switch in blueprint.switches)
    for switch in blueprint.switches:
        numbers = {str(port.number) for port in blueprint.switch_ports if port.switch == switch.node}
        assert {number for number, one in found[switch.dpid].items() if one != switch.bridge} == numbers


@pytest.mark.long
def test_the_commands_of_the_documentation_connect_mininet_s_hosts(name: str, tmp_path: Path) -> None:
    _, directory, environment, within = start(name)
    config = tmp_path / "controller.toml"
    config.write_text('[fabric]\nspec = "fat-tree:k=4"\n', encoding="ascii")
    checked = subprocess.run([program(), "check", config], capture_output=True, text=True, check=True)
    assert "warning" not in checked.stdout
    server = tmp_path / "server.py"
    server.write_text(
        "import socket; s = socket.create_server(('', 7)); s.accept()[0].sendall(b'here')", encoding="ascii"
    )
    client = tmp_path / "client.py"
    client.write_text(
        "import socket, time\nend = time.time() + 30\nwhile time.time() < end:\n"
        "    try:\n        print('heard', socket.create_connection(('10.0.7.2', 7), 2).recv(9))\n        break\n"
        "    except OSError as error:\n        print(error)\n        time.sleep(0.5)\n",
        encoding="ascii",
    )
    script = tmp_path / "script"
    script.write_text(f"h15 python3 {server} &\nh0 python3 {client}\n", encoding="ascii")
    with (directory / "controller.log").open("ab") as log:
        controller = subprocess.Popen([*within, program(), "--config", config], env=environment, stdout=log, stderr=log)
    try:
        said = mininet(within, environment, [*command_of(DOCUMENTATION), "--test", "none", "--post", str(script)])
    finally:
        controller.terminate()
        controller.wait(20)
    assert "heard b'here'" in said, said + (directory / "controller.log").read_text(encoding="utf-8")[-3000:]
