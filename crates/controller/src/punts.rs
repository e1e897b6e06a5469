//! The rules that bring control traffic (LLDP and ARP) to the controller. They stand at the top of the control table,
//! lead nowhere else, and so never flood anything.

use pathloom_control::CONTROL;
use pathloom_openflow::action::Action;
use pathloom_openflow::flow_match::{FlowMatch, ETH_ARP, ETH_LLDP};
use pathloom_openflow::instruction::Instructions;
use pathloom_openflow::{FlowCommand, FlowMod, Message, GROUP_ANY, NO_BUFFER, PORT_ANY, PORT_CONTROLLER, TABLE_ALL};
use std::borrow::Cow;

/// Above every rule of the controller proper.
const PRIORITY: u16 = 0xfff0;
/// Marks these rules; the controller proper marks its own by `0xa` and leaves these alone.
const COOKIE: u64 = 0xb << 60;
/// The whole frame, not buffered (OpenFlow 1.3.5 §7.2.5, `OFPCML_NO_BUFFER`).
const WHOLE: u16 = 0xffff;

/// A kind of control traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Punt {
    /// Probes of links.
    Lldp,
    /// What hosts ask.
    Arp,
}

impl Punt {
    pub(crate) const ALL: [Punt; 2] = [Punt::Lldp, Punt::Arp];

    fn eth_type(self) -> u16 {
        match self {
            Punt::Lldp => ETH_LLDP,
            Punt::Arp => ETH_ARP,
        }
    }

    fn cookie(self) -> u64 {
        COOKIE | u64::from(self.eth_type())
    }

    /// Adds the rule. One that stands already is replaced by its like: no frame is lost.
    pub(crate) fn add(self) -> Message<'static> {
        const ACTIONS: &[Action] = &[Action::Output { port: PORT_CONTROLLER, max_len: WHOLE }];
        let instructions = Instructions { apply: Cow::Borrowed(ACTIONS), ..Instructions::default() };
        let matches = FlowMatch { eth_type: Some(self.eth_type()), ..FlowMatch::default() };
        self.change(FlowCommand::Add, CONTROL, matches, instructions)
    }

    /// Deletes the rule, if an earlier start of the controller left it.
    pub(crate) fn delete(self) -> Message<'static> {
        self.change(FlowCommand::Delete, TABLE_ALL, FlowMatch::default(), Instructions::default())
    }

    fn change(
        self,
        command: FlowCommand,
        table: u8,
        matches: FlowMatch,
        instructions: Instructions<'static>,
    ) -> Message<'static> {
        let deletes = command == FlowCommand::Delete;
        Message::FlowMod(FlowMod {
            cookie: self.cookie(),
            cookie_mask: if deletes { u64::MAX } else { 0 },
            table,
            command,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            priority: PRIORITY,
            buffer: NO_BUFFER,
            out_port: PORT_ANY,
            out_group: GROUP_ANY,
            flags: 0,
            matches,
            instructions,
        })
    }
}
