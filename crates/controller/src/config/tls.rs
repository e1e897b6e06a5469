//! TLS by rustls, for the sessions of switches and for the HTTP API: the files, the trusted authorities, and the names
//! in a peer's certificate.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Certificates: the controller's and that of the trusted authority. All are PEM files, relative to the configuration
/// file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The controller's certificate, followed by those of its issuers.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that issues the certificates of clients. If it is set, they must show one; switches always must.
    pub client_ca: Option<PathBuf>,
    /// Whether a switch's certificate must have its name in the fabric or its datapath identifier (16 hexadecimal
    /// digits), as its common name or as a DNS name.
    #[serde(default)]
    pub bind_names: bool,
    /// Another name that a certificate must have instead, by name of switch.
    #[serde(default)]
    pub names: BTreeMap<String, String>,
}

impl Tls {
    /// Reads the files. An error names the key of the configuration, the file and what was expected.
    pub(crate) fn load(&self, base_dir: &Path) -> Result<Arc<ServerConfig>, String> {
        let certificates = certificates("certificate", &base_dir.join(&self.certificate))?;
        let key_file = base_dir.join(&self.key);
        let key = PrivateKeyDer::from_pem_file(&key_file)
            .map_err(|problem| format!("key: {}: {problem}; a private key as PEM was expected", key_file.display()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|problem| problem.to_string())?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let file = base_dir.join(file);
                let mut roots = RootCertStore::empty();
                for certificate in self::certificates("client_ca", &file)? {
                    let add = roots.add(certificate);
                    add.map_err(|problem| format!("client_ca: {}: {problem}", file.display()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|problem| format!("client_ca: {problem}"))?)
            }
        };
        let made = builder.with_single_cert(certificates, key);
        made.map(Arc::new).map_err(|problem| format!("certificate and key: {problem}"))
    }
}

/// The certificates of a file, at least one. `what` names the setting in errors.
pub(super) fn certificates(what: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let place = file.display();
    let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let found = read.map_err(|problem| format!("{what}: {place}: {problem}; certificates as PEM were expected"))?;
    if found.is_empty() {
        return Err(format!("{what}: {place} has no certificate; at least one as PEM was expected"));
    }
    Ok(found)
}

/// The names in a certificate: its common name and its DNS names.
pub(crate) fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let mut names: Vec<String> = common.map(str::to_owned).collect();
    if let Ok(Some(others)) = parsed.subject_alternative_name() {
        let dns = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        };
        names.extend(others.value.general_names.iter().filter_map(dns));
    }
    names
}
