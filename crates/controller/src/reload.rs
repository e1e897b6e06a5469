//! SIGHUP: the configuration is read again, with the files that it names. What can change while everything runs does; the
//! rest takes a restart, which touches no flow either.

use crate::api::ReadyApi;
use crate::config::{ConfigError, Ready};
use crate::current::Current;
use crate::session::Shared;
use crate::tls::Binding;
use pathloom_control::SchemeChange;
use rustls::ServerConfig;
use std::path::PathBuf;
use tokio::signal::unix::{signal, SignalKind};

/// What is in use of the files that a configuration names.
pub(crate) struct InUse {
    listen_tls: Option<Current<ServerConfig>>,
    api: Option<ReadyApi>,
}

impl InUse {
    /// What was started with.
    pub(crate) fn new(ready: &Ready) -> InUse {
        InUse { listen_tls: ready.listen_tls.clone(), api: ready.api.clone() }
    }

    /// Takes certificates and tokens as they are now, for connections and requests to come. Returns what cannot be taken
    /// without a restart.
    fn renew(&self, ready: &Ready) -> Vec<&'static str> {
        let mut left = Vec::new();
        match (&self.listen_tls, &ready.listen_tls) {
            (Some(old), Some(new)) => old.set(new.get()),
            (None, None) => {}
            _ => left.push("listen.tls"),
        }
        match (&self.api, &ready.api) {
            (Some(old), Some(new)) => {
                old.tokens.set(new.tokens.get());
                match (&old.tls, &new.tls) {
                    (Some(old), Some(new)) => old.set(new.get()),
                    (None, None) => {}
                    _ => left.push("api.tls"),
                }
            }
            (None, None) => {}
            _ => left.push("api"),
        }
        left
    }
}

/// Reads the file again at each SIGHUP. A new scheme takes over from the old one and finds all flows where they are.
/// Tokens and certificates hold from then on for whoever comes; sessions and connections that stand go on.
pub(crate) async fn reload(shared: Shared, file: PathBuf, in_use: InUse) {
    let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
    while hangup.recv().await.is_some() {
        let read: Result<Ready, ConfigError> = crate::config::read(&file);
        match read {
            Ok(ready) => take(&shared, &in_use, &ready),
            Err(problem) => {
                tracing::error!(%problem, "the configuration was not taken; going on with the old one");
            }
        }
    }
}

fn take(shared: &Shared, in_use: &InUse, ready: &Ready) {
    for what in in_use.renew(ready) {
        tracing::warn!(what, "this was not there before, or is not there any more, which takes a restart");
    }
    let mut hub = shared.hub.borrow_mut();
    hub.binding = ready.config.listen.tls.as_ref().map(Binding::new).unwrap_or_default();
    tracing::info!("tokens and certificates were read again; settings beside them and the scheme take a restart");
    let change = SchemeChange { spec: ready.scheme.label.clone(), seed: ready.config.scheme.seed };
    if change.spec == hub.gauges.scheme.0 {
        return tracing::info!("the scheme is the same");
    }
    if let Some(scheme) = ready.scheme.central(change.seed) {
        hub.set_scheme(change, scheme);
    }
}
