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

fn certificates(what: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
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

/// Which certificates switches must have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Binding {
    on: bool,
    names: BTreeMap<String, String>,
}

impl Binding {
    pub(crate) fn new(tls: &Tls) -> Binding {
        Binding { on: tls.bind_names || !tls.names.is_empty(), names: tls.names.clone() }
    }

    /// Whether a certificate with these names is valid for a switch; if not, the error says what was expected.
    pub(crate) fn check(&self, borne: Option<&[String]>, switch: &str, dpid: u64) -> Result<(), String> {
        let Some(borne) = borne.filter(|_| self.on) else { return Ok(()) };
        let digits = format!("{dpid:016x}");
        let wanted = match self.names.get(switch) {
            Some(name) => vec![name.as_str()],
            None => vec![switch, digits.as_str()],
        };
        let same = |name: &String| wanted.iter().any(|wanted| name.eq_ignore_ascii_case(wanted));
        if borne.iter().any(same) {
            return Ok(());
        }
        Err(format!(
            "its certificate is for {}, but switch {switch} needs one for {}; see listen.tls.names",
            if borne.is_empty() { "nobody".into() } else { borne.join(", ") },
            wanted.join(" or ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_must_name_the_switch_that_shows_it() {
        let names = BTreeMap::from([("core0".to_owned(), "spine.example".to_owned())]);
        let tls =
            |bind_names, names| Tls { certificate: "c".into(), key: "k".into(), client_ca: None, bind_names, names };
        let binding = Binding::new(&tls(true, names));
        let one = |name: &str| vec![name.to_owned()];
        assert_eq!(binding.check(Some(&one("e0_0")), "e0_0", 7), Ok(()));
        assert_eq!(binding.check(Some(&one("0000000000000007")), "e0_0", 7), Ok(()));
        assert_eq!(binding.check(Some(&one("Spine.Example")), "core0", 8), Ok(()));
        let wrong = binding.check(Some(&one("core0")), "core0", 8).unwrap_err();
        assert!(wrong.contains("spine.example") && wrong.contains("for core0"), "{wrong}");
        assert!(binding.check(Some(&[]), "e0_0", 7).unwrap_err().contains("nobody"));
        assert_eq!(binding.check(None, "e0_0", 7), Ok(()), "a session without TLS has no certificate");
        assert_eq!(Binding::new(&tls(false, BTreeMap::new())).check(Some(&[]), "e0_0", 7), Ok(()));
    }
}
