"""A learning switch on os-ken, on the port of the loopback that the first argument names.

os-ken 4.2 comes without a program that starts its applications, and without a learning switch.
"""

import sys

from os_ken import cfg
from os_ken.lib import hub

if hasattr(hub, "patch"):
    hub.patch()
from os_ken.base import app_manager  # noqa: E402
from os_ken.controller import ofp_event  # noqa: E402
from os_ken.controller.handler import MAIN_DISPATCHER, set_ev_cls  # noqa: E402
from os_ken.ofproto import ofproto_v1_3  # noqa: E402


class Learning(app_manager.OSKenApp):
    """Forwards by the Ethernet addresses it has seen: a rule and the packet where the way is known, else a flood."""

    OFP_VERSIONS = (ofproto_v1_3.OFP_VERSION,)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ports = {}

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        message = event.msg
        datapath, data = message.datapath, message.data
        protocol, parser = datapath.ofproto, datapath.ofproto_parser
        in_port = message.match["in_port"]
        destination, source = bytes(data[0:6]), bytes(data[6:12])
        self.ports[datapath.id, source] = in_port
        known = self.ports.get((datapath.id, destination))
        actions = [parser.OFPActionOutput(protocol.OFPP_FLOOD if known is None else known)]
        if known is not None:
            text = [":".join(f"{byte:02x}" for byte in address) for address in (destination, source)]
            match = parser.OFPMatch(in_port=in_port, eth_dst=text[0], eth_src=text[1])
            instructions = [parser.OFPInstructionActions(protocol.OFPIT_APPLY_ACTIONS, actions)]
            rule = parser.OFPFlowMod(datapath, priority=1, idle_timeout=60, match=match, instructions=instructions)
            datapath.send_msg(rule)
        buffered = message.buffer_id != protocol.OFP_NO_BUFFER
        packet = None if buffered else data
        answer = parser.OFPPacketOut(datapath, message.buffer_id, in_port, actions, packet)
        datapath.send_msg(answer)


if __name__ == "__main__":
    from os_ken.controller import ofp_handler  # noqa: F401 - declares the options, and is loaded by name

    cfg.CONF(["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", sys.argv[1]], project="os_ken")
    manager = app_manager.AppManager.get_instance()
    manager.load_app = lambda name: Learning if name == "learning" else app_manager.AppManager.load_app(manager, name)
    manager.load_apps(["learning", "os_ken.controller.ofp_handler"])
    contexts = manager.create_contexts()
    hub.joinall(manager.instantiate_apps(**contexts))
