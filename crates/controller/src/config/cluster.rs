//! `[cluster]` in the configuration.

use super::api::CheckedAddress;
use super::tls::certificates;
use pathloom_cluster::Settings;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Bounds of the time to live of a lease. Etcd grants no shorter ones with its default settings.
const TTL_S: std::ops::RangeInclusive<u64> = 2..=300;

/// The etcd by which several controllers choose the one that leads.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Addresses of etcd's machines: `http://10.0.0.1:2379`, or `https://`.
    pub endpoints: Vec<String>,
    /// The name of this controller, which no other one has.
    pub name: String,
    /// Time after which another controller leads when the leader is gone.
    #[serde(default = "five_s", deserialize_with = "crate::config::duration::read")]
    pub ttl: Duration,
    /// What the keys of this fabric's controllers begin with.
    #[serde(default = "prefix")]
    pub prefix: String,
    /// The authority that issues etcd's certificates, as PEM. All files are relative to the configuration file.
    pub ca: Option<PathBuf>,
    /// The certificate that this controller shows, as PEM.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// The user of etcd.
    pub user: Option<String>,
    /// A file with the password of the user.
    pub password_file: Option<PathBuf>,
    /// URL by which clients reach the API of this controller. Without it: that of `api.address`.
    pub api: Option<String>,
    /// URL by which applications reach this controller. Without it: that of `paths.address`.
    pub paths: Option<String>,
}

fn five_s() -> Duration {
    Duration::from_secs(5)
}

fn prefix() -> String {
    "/pathloom/".to_owned()
}

/// A machine of etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Endpoint {
    pub host: String,
    pub port: u16,
    pub is_encrypted: bool,
}

/// Valid settings, with the files that they name.
#[derive(Clone, Debug)]
pub struct CheckedCluster {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// The user and the password.
    pub(crate) user: Option<(String, String)>,
    pub(crate) member: Settings,
    /// URL by which clients reach the API of this controller.
    pub(crate) api: Option<String>,
    /// URL by which applications reach this controller.
    pub(crate) paths: Option<String>,
}

impl CheckedCluster {
    /// The same, with the URLs of these addresses where the settings name none.
    pub(crate) fn with_addresses(self, api: Option<&CheckedAddress>, paths: Option<&CheckedAddress>) -> CheckedCluster {
        let url = |named: Option<String>, address: Option<&CheckedAddress>| named.or_else(|| address?.url());
        CheckedCluster { api: url(self.api.clone(), api), paths: url(self.paths.clone(), paths), ..self }
    }
}

impl Cluster {
    /// Checks the settings, and reads the files.
    ///
    /// # Errors
    /// Names the key, what was expected and the way out.
    pub fn check(&self, base_dir: &Path) -> Result<CheckedCluster, String> {
        if self.endpoints.is_empty() {
            return Err("cluster.endpoints: empty; name etcd's machines, as in [\"http://10.0.0.1:2379\"]".into());
        }
        let endpoints: Vec<Endpoint> =
            self.endpoints.iter().map(|address| endpoint(address)).collect::<Result<_, _>>()?;
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if self.name.is_empty() || !self.name.chars().all(is_plain) {
            let name = &self.name;
            return Err(format!("cluster.name: `{name}`; letters, digits, -, _ and . were expected, as in \"c1\""));
        }
        let ttl_s = self.ttl.as_secs();
        if self.ttl.subsec_nanos() != 0 || !TTL_S.contains(&ttl_s) {
            let ttl = self.ttl;
            return Err(format!("cluster.ttl: {ttl:?}; whole seconds from 2s to 300s were expected"));
        }
        if !self.prefix.ends_with('/') {
            return Err(format!(
                "cluster.prefix: `{}` must end with /, so that no other prefix begins with it",
                self.prefix
            ));
        }
        let is_encrypted = endpoints.iter().any(|endpoint| endpoint.is_encrypted);
        let tls = if is_encrypted { Some(self.tls(base_dir)?) } else { None };
        if !is_encrypted && (self.ca.is_some() || self.certificate.is_some()) {
            return Err("cluster.ca: all endpoints are http://, so certificates have no effect; write https://".into());
        }
        for (key, url) in [("api", &self.api), ("paths", &self.paths)] {
            if let Some(url) = url {
                endpoint(url).map_err(|_| {
                    format!("cluster.{key}: `{url}`; a URL as in \"http://10.0.0.1:6680\" was expected")
                })?;
            }
        }
        let member = Settings::new(&self.name, &self.prefix, ttl_s);
        let (api, paths) = (self.api.clone(), self.paths.clone());
        Ok(CheckedCluster { endpoints, tls, user: self.user(base_dir)?, member, api, paths })
    }

    fn user(&self, base_dir: &Path) -> Result<Option<(String, String)>, String> {
        match (&self.user, &self.password_file) {
            (None, None) => Ok(None),
            (Some(user), Some(file)) => {
                let file = base_dir.join(file);
                let text = std::fs::read_to_string(&file)
                    .map_err(|problem| format!("cluster.password_file: {}: {problem}", file.display()))?;
                Ok(Some((user.clone(), text.trim_end().to_owned())))
            }
            _ => Err("cluster: user and password_file must be given together; leave both out for no user".into()),
        }
    }

    fn tls(&self, base_dir: &Path) -> Result<Arc<ClientConfig>, String> {
        let Some(ca) = &self.ca else {
            return Err("cluster.ca: missing; it names the authority of the certificates of https:// endpoints".into());
        };
        let mut roots = RootCertStore::empty();
        for authority in certificates("cluster.ca", &base_dir.join(ca))? {
            roots.add(authority).map_err(|problem| format!("cluster.ca: {}: {problem}", ca.display()))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|problem| problem.to_string())?
            .with_root_certificates(roots);
        match (&self.certificate, &self.key) {
            (None, None) => Ok(Arc::new(builder.with_no_client_auth())),
            (Some(certificate), Some(key)) => {
                let file = base_dir.join(key);
                let key = PrivateKeyDer::from_pem_file(&file).map_err(|problem| {
                    format!("cluster.key: {}: {problem}; a private key as PEM was expected", file.display())
                })?;
                let certificates = certificates("cluster.certificate", &base_dir.join(certificate))?;
                let made = builder.with_client_auth_cert(certificates, key);
                made.map(Arc::new).map_err(|problem| format!("cluster.certificate and cluster.key: {problem}"))
            }
            _ => Err("cluster: certificate and key must be given together".into()),
        }
    }
}

fn endpoint(address: &str) -> Result<Endpoint, String> {
    let wrong = || {
        format!("cluster.endpoints: `{address}`; http://HOST:PORT or https://HOST:PORT was expected, as in \"http://10.0.0.1:2379\"")
    };
    let (is_encrypted, rest) = match (address.strip_prefix("http://"), address.strip_prefix("https://")) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        _ => return Err(wrong()),
    };
    let (host, port) = rest.trim_end_matches('/').rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    if ServerName::try_from(host.clone()).is_err() {
        return Err(wrong());
    }
    Ok(Endpoint { host, port, is_encrypted })
}
