"""Builds any fabric of Pathloom in Mininet, with the names, ports, addresses and datapath ids of its controller.

    mn --custom examples/mininet_topo.py --topo pathloom,fat-tree:k=4 --switch ovs,protocols=OpenFlow13 \
       --controller remote

The fabric's keys follow the name as on Pathloom's own command line: `--topo pathloom,fat-tree:k=4,rate=10Mbps`. Rates
and buffers are kept with `--link tc`. If the kernel has no module for Open vSwitch, switches run in user space. Then
hosts compute checksums themselves, because those of their interfaces would be wrong. Mininet runs under the system's
Python, which need not have Pathloom: the plan comes from the command `pathloom lab plan`. The command is searched in
the variable PATHLOOM, in the checkout of this file, and on the PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from mininet.node import Host
from mininet.topo import Topo

WHOLE_LENGTH = 8
CHECKSUMS = """
import array, fcntl, socket, struct, sys
value = array.array("B", struct.pack("II", 0x17, 0))
door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(door, 0x8946, struct.pack("16sP", sys.argv[1].encode(), value.buffer_info()[0]))
"""
"""Turns checksum offload of an interface off (linux/ethtool.h: ETHTOOL_STXCSUM), since `ethtool` may be missing."""


def has_kernel_datapath() -> bool:
    """Returns whether this kernel has Open vSwitch's module, loaded or not."""
    if Path("/sys/module/openvswitch").exists():
        return True
    modinfo = shutil.which("modinfo") or "/sbin/modinfo"
    if not Path(modinfo).exists():
        return False
    return subprocess.run([modinfo, "openvswitch"], capture_output=True, check=False).returncode == 0


class HostOfUserSpace(Host):  # type: ignore[misc]
    """A host whose frames pass switches in user space."""

    def config(self, **keys: Any) -> Any:
        """Sets the host up, and turns checksum offload off."""
        done = super().config(**keys)
        for name in self.intfNames():
            self.pexec(["python3", "-c", CHECKSUMS, name])
        return done


def pathloom_command() -> str:
    """Returns the path of the command `pathloom`. Raises `SystemExit`."""
    # Mininet runs this file without `__file__`, but its code has the name.
    here = Path(pathloom_command.__code__.co_filename).resolve()
    checkouts = [parent / ".venv" / "bin" / "pathloom" for parent in here.parents]
    near = next((str(path) for path in checkouts if path.exists()), None)
    found = os.environ.get("PATHLOOM") or near or shutil.which("pathloom")
    if found is None:
        raise SystemExit("pathloom: the command `pathloom` is not found; name it in the variable PATHLOOM")
    return found


def plan_of(spec: str) -> dict[str, Any]:
    """Returns the plan of a fabric. Raises `SystemExit` with one line."""
    command = [pathloom_command(), "lab", "plan", spec, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr.strip())
    plan: dict[str, Any] = json.loads(done.stdout)
    return plan


class Fabric(Topo):  # type: ignore[misc]
    """A fabric as a topology of Mininet."""

    def build(self, *words: object, **keys: object) -> None:
        """Builds the fabric. Mininet splits the specification at commas, and passes `key=value` as keys."""
        spec = ",".join([*map(str, words), *(f"{key}={value}" for key, value in keys.items())])
        plan = plan_of(spec or "fat-tree:k=4")
        names: dict[int, str] = {}
        in_kernel = has_kernel_datapath()
        of_switch: dict[str, Any] = {} if in_kernel else {"datapath": "user"}
        of_host: dict[str, Any] = {} if in_kernel else {"cls": HostOfUserSpace}
        for switch in plan["switches"]:
            names[switch["node"]] = switch["bridge"]
            self.addSwitch(switch["bridge"], dpid=switch["dpid"], failMode="secure", **of_switch)
        for host in plan["hosts"]:
            names[host["node"]] = host["name"]
            first = host["ports"][0]
            self.addHost(host["name"], ip=f"{first['address']}/{WHOLE_LENGTH}", mac=first["mac"], **of_host)
        for cable in plan["cables"]:
            self.addLink(
                names[cable["source"]],
                names[cable["target"]],
                port1=cable["source_port"],
                port2=cable["target_port"],
                bw=cable["rate_bps"] / 1e6,
                max_queue_size=cable["buffer_packets"],
                use_htb=True,
            )


topos = {"pathloom": Fabric}
