//! The tokens of agents that connect by TCP.

use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Minimum length of a token, in characters.
const LEAST_CHARACTERS: usize = 16;

/// The valid tokens. Only their digests are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens(Vec<Token>);

#[derive(Clone, Debug)]
struct Token {
    digest: [u8; 32],
    /// Hosts that its agent may represent; empty for any.
    addresses: BTreeSet<Ipv4Addr>,
}

impl Tokens {
    /// Reads a file: a token per line, followed by the addresses that it is for, if it is not for all. Lines that begin
    /// with `#` are comments. An error names the file and the line.
    pub(crate) fn load(file: &Path) -> Result<Arc<Tokens>, String> {
        let place = file.display();
        let metadata = std::fs::metadata(file).map_err(|problem| format!("{place}: {problem}"))?;
        if metadata.mode() & 0o077 != 0 {
            return Err(format!("{place}: others may read it; chmod 600 {place}"));
        }
        let text = std::fs::read_to_string(file).map_err(|problem| format!("{place}: {problem}"))?;
        Tokens::parse(&text).map(Arc::new).map_err(|problem| format!("{place}: {problem}"))
    }

    fn parse(text: &str) -> Result<Tokens, String> {
        let mut tokens = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let mut words = line.split_whitespace();
            let Some(token) = words.next().filter(|word| !word.starts_with('#')) else { continue };
            if token.len() < LEAST_CHARACTERS {
                return Err(format!("line {number}: a token of at least {LEAST_CHARACTERS} characters was expected"));
            }
            let address = |word: &str| {
                word.parse().map_err(|_| format!("line {number}: `{word}` is not an address such as 10.0.0.1"))
            };
            let addresses = words.map(address).collect::<Result<_, _>>()?;
            tokens.push(Token { digest: Sha256::digest(token).into(), addresses });
        }
        if tokens.is_empty() {
            return Err("it has no token; a line such as TOKEN or TOKEN 10.0.0.1 was expected".into());
        }
        Ok(Tokens(tokens))
    }

    /// Whether an agent with this token may represent hosts with these addresses. The error is for the agent.
    pub(crate) fn check(&self, token: Option<&str>, addresses: &[Ipv4Addr]) -> Result<(), &'static str> {
        let digest = Sha256::digest(token.ok_or("a token is needed; see token_file of the agent")?);
        // The time of the comparison does not depend on how many characters of a token are right.
        let same = |one: &&Token| bool::from(one.digest.ct_eq(&digest));
        let found: Vec<_> = self.0.iter().filter(same).collect();
        if found.is_empty() {
            return Err("the token is not known");
        }
        let is_for =
            |one: &&Token| one.addresses.is_empty() || addresses.iter().all(|address| one.addresses.contains(address));
        if found.iter().any(is_for) {
            Ok(())
        } else {
            Err("the token is for other hosts")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::loopback::Directory;

    const ANY: &str = "any-host-may-use-it";
    const ONE: &str = "only-the-first-host";

    #[test]
    fn a_token_is_valid_only_for_its_hosts() {
        let tokens = Tokens::parse(&format!("# of agents\n{ANY}\n\n{ONE} 10.0.0.1 10.0.0.2\n")).unwrap();
        let hosts: Vec<Ipv4Addr> = ["10.0.0.1", "10.0.7.1"].map(|text| text.parse().unwrap()).to_vec();
        assert_eq!(tokens.check(Some(ANY), &hosts), Ok(()));
        assert_eq!(tokens.check(Some(ONE), &hosts[..1]), Ok(()));
        assert!(tokens.check(Some(ONE), &hosts).unwrap_err().contains("other hosts"));
        assert!(tokens.check(Some("something-else-again"), &hosts).unwrap_err().contains("not known"));
        assert!(tokens.check(None, &hosts).unwrap_err().contains("needed"));
    }

    #[test]
    fn invalid_token_files_are_refused_with_their_place() {
        let directory = Directory::new();
        let load = |mode, text: &str| {
            directory.write("tokens", mode, text);
            Tokens::load(&directory.0.join("tokens")).map(|_| ()).unwrap_err()
        };
        assert!(load(0o644, ANY).contains("chmod 600"));
        assert!(load(0o600, "short").contains("line 1"));
        assert!(load(0o600, &format!("{ANY} h0")).contains("`h0`"));
        assert!(load(0o600, "# nothing\n").contains("no token"));
        assert!(Tokens::load(Path::new("/missing/tokens")).unwrap_err().contains("/missing/tokens"));
    }
}
