//! Which certificates switches must have, by name.

use crate::config::Tls;
use std::collections::BTreeMap;

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
