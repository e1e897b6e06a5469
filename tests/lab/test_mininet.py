"""`mn --custom … --topo pathloom,SPEC` builds the fabric that the controller expects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from pathloom.fabrics import Fabric
from pathloom.lab import system
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.lab import Lab
from pathloom.lab.switches import OpenVSwitch

HERE = Path(__file__).resolve().parent
TOPOLOGY = HERE.parents[1] / "examples" / "mininet_topo.py"
SPEC = "fat-tree:k=4,rate=10Mbps"


def test_mininet_builds_the_fabric_and_its_switches_call_the_controller(name: str, tmp_path: Path) -> None:
    blueprint, directory = Blueprint.of(name, Fabric(SPEC)), Lab(name).directory
    directory.mkdir(parents=True)
    system.batch("ip", None, [f"netns add {blueprint.namespace}"])
    system.batch("ip", blueprint.namespace, ["link set lo up"])
    OpenVSwitch(blueprint, directory).start()
    heard = tmp_path / "heard.json"
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    environment |= {"OVS_RUNDIR": str(directory / "ovs"), system.MARK: str(directory)}
    within = ["ip", "netns", "exec", blueprint.namespace]
    listener = subprocess.Popen([*within, sys.executable, str(HERE / "listener.py"), "6653", "20", str(heard)])
    # A table of processes of its own: whatever Mininet ends is its own.
    alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "/usr/bin/python3"]
    options = [
        "--custom",
        str(TOPOLOGY),
        "--topo",
        f"pathloom,{SPEC}",
        "--switch",
        "ovs,datapath=user,protocols=OpenFlow13",
    ]
    script = tmp_path / "script"
    script.write_text("sh sleep 4\n", encoding="ascii")
    options += ["--controller", "remote,ip=127.0.0.1", "--test", "none", "--pre", str(script)]
    done = subprocess.run(
        [*within, *alone, str(HERE / "mininet_driver.py"), *options],
        env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert listener.wait(30) == 0
    found = json.loads(heard.read_text(encoding="ascii"))
    assert sorted(found) == sorted(switch.dpid for switch in blueprint.switches)
    for switch in blueprint.switches:
        numbers = {str(port.number) for port in blueprint.switch_ports if port.switch == switch.node}
        assert {number for number, one in found[switch.dpid].items() if one != switch.bridge} == numbers
