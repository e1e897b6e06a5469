//! What other programs do to the interfaces of the ports, and the switch cannot undo: the log names it.

use crate::bpf;
use crate::config::Port;
use crate::links::{index_of, name_of, Numbers};
use pathloom_model::PortNo;
use std::collections::{BTreeMap, BTreeSet};
use tracing::{info, warn};

/// What the log has named, by port.
#[derive(Debug, Default)]
pub(crate) struct Foreigners {
    /// tcx programs that run before the tc filter of the switch.
    preceding: BTreeMap<PortNo, Vec<String>>,
    /// Ports whose interface has an XDP program.
    under_xdp: BTreeSet<PortNo>,
    /// Ports whose interface does not have its name any more, with the name that it has now.
    renamed: BTreeMap<PortNo, Option<String>>,
}

fn about(port: &Port) -> String {
    format!("port {} ({})", port.number, port.interface)
}

impl Foreigners {
    /// Names tcx programs of others that get the frames of a port before the switch, and may take them.
    pub(crate) fn name_preceding(&mut self, ports: &[Port]) {
        for port in ports {
            let now = bpf::preceding(&port.interface);
            let names = now.join(", ");
            if self.preceding.insert(PortNo(port.number), now.clone()).unwrap_or_default() == now {
                continue;
            }
            let about = about(port);
            if now.is_empty() {
                info!("{about}: no tcx program runs before the switch any more");
            } else {
                warn!(
                    "{about}: tcx programs of others run before the tc filter of the switch, and may take its frames: \
                     {names}. Detach them, or give the switch another interface"
                );
            }
        }
    }

    /// Names ports whose interface gets an XDP program, which sees the frames before the switch and may take them, or loses
    /// it. `found`: whether interfaces have one, by index.
    pub(crate) fn name_xdp(&mut self, ports: &[Port], numbers: &Numbers, found: &BTreeMap<u32, bool>) {
        for port in ports {
            let number = PortNo(port.number);
            let Some(&has) = numbers.index_of.get(&number).and_then(|index| found.get(index)) else { continue };
            let about = about(port);
            if has && self.under_xdp.insert(number) {
                warn!(
                    "{about}: another program has attached an XDP program, which gets the frames before the switch and \
                     may take them. Detach it, or give the switch another interface"
                );
            }
            if !has && self.under_xdp.remove(&number) {
                info!("{about}: no XDP program runs before the switch any more");
            }
        }
    }

    /// Names ports whose interface is gone or has another name. The switch goes on to use a renamed interface.
    pub(crate) fn name_renamed(&mut self, ports: &[Port], numbers: &Numbers) {
        for port in ports {
            let (number, about) = (PortNo(port.number), about(port));
            if index_of(&port.interface).is_some() {
                if self.renamed.remove(&number).is_some() {
                    info!("{about}: the interface is there again");
                }
                continue;
            }
            let now = numbers.index_of.get(&number).and_then(|&index| name_of(index));
            if self.renamed.insert(number, now.clone()) == Some(now.clone()) {
                continue;
            }
            match now {
                Some(now) => warn!(
                    "{about}: the interface was renamed to {now}; the switch goes on to use it. Rename it back, or change \
                     the configuration before the next start"
                ),
                None => warn!(
                    "{about}: no interface has this name any more, so the port is down. The switch uses the next \
                     interface of this name"
                ),
            }
        }
    }
}
