//! SIGHUP: reads the configuration again, with the files that it names. Settings that can change at run time take
//! effect. The others need a restart, which does not affect flows either.

use crate::config::{CheckedAddress, CheckedConfig, ConfigError, Current};
use crate::drivers::process;
use crate::drivers::session::Shared;
use crate::hub::binding::Binding;
use crate::hub::Hub;
use pathloom_control::{Input, SchemeChange};
use pathloom_model::Nanos;
use rustls::ServerConfig;
use std::path::PathBuf;
use tokio::signal::unix::Signal;

/// The parts of a configuration that are in use and can be reloaded.
pub(crate) struct InUse {
    listen_tls: Option<Current<ServerConfig>>,
    hosts_tls: Option<Current<ServerConfig>>,
    api: Option<CheckedAddress>,
    paths: Option<CheckedAddress>,
    /// The scheme in the file when it was last read. Another one may be in charge.
    scheme: SchemeChange,
}

impl InUse {
    /// The parts at the start.
    pub(crate) fn new(checked: &CheckedConfig) -> InUse {
        InUse {
            listen_tls: checked.listen_tls.clone(),
            hosts_tls: checked.hosts_tls.clone(),
            api: checked.api.clone(),
            paths: checked.paths.clone(),
            scheme: scheme_of(checked),
        }
    }

    /// Uses the new certificates and tokens for new connections and requests. Returns the sections that need a
    /// restart.
    fn renew(&self, checked: &CheckedConfig) -> Vec<&'static str> {
        // The requests of applications use the tokens of the API.
        if let (Some(old), Some(new)) = (&self.api, &checked.api) {
            old.tokens.set(new.tokens.get());
        }
        let sections = [
            renew(&self.listen_tls, &checked.listen_tls, "listen.tls"),
            renew(&self.hosts_tls, &checked.hosts_tls, "hosts.tls"),
            renew_address(&self.api, &checked.api, ["api", "api.tls"]),
            renew_address(&self.paths, &checked.paths, ["paths", "paths.tls"]),
        ];
        sections.into_iter().flatten().collect()
    }
}

/// Replaces the value in use. Returns the name of its section if that was added or removed.
fn renew<T>(old: &Option<Current<T>>, new: &Option<Current<T>>, section: &'static str) -> Option<&'static str> {
    if let (Some(old), Some(new)) = (old, new) {
        old.set(new.get());
    }
    (old.is_some() != new.is_some()).then_some(section)
}

/// Replaces the certificate of an address. Returns the section, or its section `tls`, if that was added or
/// removed.
fn renew_address(
    old: &Option<CheckedAddress>,
    new: &Option<CheckedAddress>,
    [section, tls]: [&'static str; 2],
) -> Option<&'static str> {
    let (Some(old), Some(new)) = (old, new) else { return (old.is_some() != new.is_some()).then_some(section) };
    renew(&old.tls, &new.tls, tls)
}

/// Reads the file again at each SIGHUP. A new scheme takes over from the old one, and all flows keep their paths at
/// first. The process of a scheme is started again, and so reads its file. New tokens and certificates apply to new
/// connections and requests; existing sessions and connections continue.
pub(crate) async fn reload(shared: Shared, file: PathBuf, mut hangup: Signal, mut in_use: InUse) {
    while hangup.recv().await.is_some() {
        let read: Result<CheckedConfig, ConfigError> = crate::config::read(&file);
        match read {
            Ok(checked) => {
                take(&shared, &mut in_use, &checked);
                if let Some(process) = &checked.process {
                    process::reload(&shared, process).await;
                }
            }
            Err(problem) => {
                tracing::error!(%problem, "the configuration is invalid; the old one stays in use");
            }
        }
    }
}

fn scheme_of(checked: &CheckedConfig) -> SchemeChange {
    SchemeChange { spec: checked.scheme.label.clone(), seed: checked.config.scheme.seed }
}

fn take(shared: &Shared, in_use: &mut InUse, checked: &CheckedConfig) {
    for what in in_use.renew(checked) {
        tracing::warn!(what, "this section was added or removed, which needs a restart");
    }
    shared.drive(|hub, now| take_by(hub, now, in_use, checked));
}

fn take_by(hub: &mut Hub, now: Nanos, in_use: &mut InUse, checked: &CheckedConfig) {
    if let (Some(_), Some(tls)) = (&in_use.listen_tls, &checked.config.listen.tls) {
        hub.binding = Binding::new(tls);
    }
    hub.hosts.set_tokens(checked.hosts_tokens.clone());
    // An operator who sends a SIGHUP may have seen wrong rules.
    hub.handle(now, Input::Resync { switch: None });
    tracing::info!("tokens and certificates were read again; settings other than these and the scheme need a restart");
    let change = scheme_of(checked);
    let before = std::mem::replace(&mut in_use.scheme, change.clone());
    if let Some(process) = &checked.process {
        // It is asked for its needs first, outside of the hub.
        if change != before {
            let file = process.label.as_str();
            tracing::warn!(
                file,
                "another scheme in a process of its own takes charge only with a restart of the controller"
            );
        }
        return;
    }
    if change == before {
        // An operator may have chosen another scheme, or fallen back, for a reason that a new certificate does not
        // change.
        let in_charge = hub.gauges.scheme.0.as_str();
        return tracing::info!(in_charge, "the file names the same scheme as before; the scheme in charge stays");
    }
    if let Some(scheme) = checked.scheme.central(change.seed) {
        hub.set_scheme(now, change, scheme);
    }
}
