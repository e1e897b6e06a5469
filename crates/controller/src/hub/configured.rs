//! The hub of a configuration.

use crate::config::{Addresses, CheckedConfig};
use crate::hub::binding::Binding;
use crate::hub::learnt::Learnt;
use crate::hub::live_discovery::LiveDiscovery;
use crate::hub::{Hub, Responder};
use pathloom_control::Input;
use pathloom_model::Nanos;

/// A hub with the settings of a configuration. It discovers nothing yet.
pub fn configured_hub(checked: &CheckedConfig, responder: Responder) -> Hub {
    let settings = (checked.config.sessions.clone(), checked.config.limits.clone());
    let mut hub = Hub::new(responder, Some(checked.fabric.clone()), checked.datapaths.clone(), settings);
    hub.binding = checked.config.listen.tls.as_ref().map(Binding::new).unwrap_or_default();
    hub.foreign = checked.config.reconcile.foreign;
    hub
}

/// Lets a hub discover cables and hosts, if that is configured. `secret` signs its probes and must be new at each start.
pub fn discover(hub: &mut Hub, checked: &CheckedConfig, secret: [u8; 32]) {
    let config = &checked.config.discovery;
    let (fabric, datapaths) = (checked.fabric.clone(), checked.datapaths.clone());
    let learnt = (config.addresses == Addresses::Any, checked.allowed.clone(), config.most_addresses);
    let learnt = Learnt::new(fabric.clone(), learnt, &checked.places);
    hub.discovery = LiveDiscovery::new(config, fabric, datapaths, learnt, secret);
}

/// Tells a new controller the configured ports of addresses.
pub fn place_addresses(hub: &mut Hub, checked: &CheckedConfig, now: Nanos) {
    for &(prefix, at) in &checked.places {
        hub.handle(now, Input::Place { prefix, at: Some(at) });
    }
}
