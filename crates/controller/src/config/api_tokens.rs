//! Bearer tokens from a file that nobody else can read, with their roles.

use sha2::{Digest, Sha256};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// The role of a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Role {
    /// May read.
    Read,
    /// May read, and change things.
    Operate,
}

/// Shortest token: 128 bits in hexadecimal digits.
const LEAST_CHARACTERS: usize = 32;

/// All tokens. Only their digests are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens(Vec<Token>);

#[derive(Clone, Debug)]
struct Token {
    name: String,
    role: Role,
    digest: [u8; 32],
}

impl Tokens {
    /// Reads a file of lines `ROLE NAME TOKEN`.
    pub(crate) fn read(file: &Path) -> Result<Tokens, String> {
        let place = file.display();
        let make = format!("`pathloom controller token NAME --role read --file {place}` makes one");
        let problem = |problem: std::io::Error| format!("{place}: {problem}; {make}");
        let metadata = std::fs::metadata(file).map_err(problem)?;
        let mode = metadata.permissions().mode() & 0o777;
        // Credentials passed by systemd belong to the service: their group bit is only the mask of an access control
        // list.
        let passed_on = std::env::var_os("CREDENTIALS_DIRECTORY").is_some_and(|place| file.starts_with(place));
        if mode & 0o077 != 0 && !(passed_on && mode & 0o037 == 0) {
            return Err(format!("{place}: others can use it (mode {mode:04o}); `chmod 600 {place}` was expected"));
        }
        let text = std::fs::read_to_string(file).map_err(problem)?;
        let tokens = Tokens::parse(&text).map_err(|what| format!("{place}: {what}"))?;
        if tokens.0.is_empty() {
            return Err(format!("{place}: no token in it, so nobody could use the API; {make}"));
        }
        Ok(tokens)
    }

    /// Reads lines `ROLE NAME TOKEN`.
    pub(crate) fn parse(text: &str) -> Result<Tokens, String> {
        let mut tokens: Vec<Token> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let place = format!("line {}", index + 1);
            let (role, name, token) = match words[..] {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                [role, name, token] => (role, name, token),
                _ => return Err(format!("{place}: expected ROLE NAME TOKEN, found {} words", words.len())),
            };
            let role = match role {
                "read" => Role::Read,
                "operate" => Role::Operate,
                _ => return Err(format!("{place}: `{role}` is not a role; expected read or operate")),
            };
            if token.len() < LEAST_CHARACTERS {
                return Err(format!(
                    "{place}: the token has {} characters; at least {LEAST_CHARACTERS} were expected",
                    token.len()
                ));
            }
            if tokens.iter().any(|other| other.name == name) {
                return Err(format!("{place}: `{name}` has a token already; give this one another name"));
            }
            tokens.push(Token { name: name.to_owned(), role, digest: digest(token) });
        }
        Ok(Tokens(tokens))
    }

    /// The name of a token. Takes the same time for every token, valid or not.
    pub(crate) fn find(&self, token: &str) -> Option<(&str, Role)> {
        let asked = digest(token);
        let mut found = u64::MAX;
        for (index, token) in self.0.iter().enumerate() {
            let same: Choice = token.digest.ct_eq(&asked);
            found.conditional_assign(&(index as u64), same);
        }
        let token = self.0.get(usize::try_from(found).ok()?)?;
        Some((&token.name, token.role))
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_names_and_roles() {
        let (a, b) = ("a".repeat(32), "b".repeat(40));
        let tokens = Tokens::parse(&format!("# who\n\nread grafana {a}\noperate ops {b}\n")).unwrap();
        assert_eq!(tokens.find(&a), Some(("grafana", Role::Read)));
        assert_eq!(tokens.find(&b), Some(("ops", Role::Operate)));
        assert_eq!(tokens.find(&a[1..]), None);
        assert_eq!(tokens.find(""), None);
    }

    #[test]
    fn a_bad_line_is_named() {
        let token = "a".repeat(32);
        let cases = [
            ("read x".to_owned(), "line 1: expected ROLE NAME TOKEN"),
            (format!("\nroot x {token}"), "line 2: `root`"),
            ("read x short".to_owned(), "5 characters"),
            (format!("read x {token}\nread x {token}"), "line 2: `x` has a token"),
        ];
        for (text, words) in cases {
            let problem = Tokens::parse(&text).unwrap_err();
            assert!(problem.contains(words), "{problem}");
        }
    }
}
