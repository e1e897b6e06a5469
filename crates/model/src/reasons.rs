//! Reasons of the operating system, as users read them.

/// Returns a message without the numbers of errors that Rust adds to reasons of the system: `(os error 2)`.
///
/// ```
/// use pathloom_model::reasons::without_numbers;
/// assert_eq!(
///     without_numbers("a.toml: No such file or directory (os error 2); name another"),
///     "a.toml: No such file or directory; name another"
/// );
/// ```
pub fn without_numbers(message: &str) -> String {
    const BEGIN: &str = " (os error ";
    let mut rest = message;
    let mut kept = String::with_capacity(message.len());
    while let Some(at) = rest.find(BEGIN) {
        let after = &rest[at + BEGIN.len()..];
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let is_number = digits > 0 && after[digits..].starts_with(')');
        kept.push_str(if is_number { &rest[..at] } else { &rest[..at + BEGIN.len()] });
        rest = if is_number { &after[digits + 1..] } else { after };
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::without_numbers;

    #[test]
    fn only_numbers_of_the_system_are_left_out() {
        for (message, expected) in [
            ("", ""),
            ("x (os error 13)", "x"),
            ("x (os error 13): y (os error 2)", "x: y"),
            ("x (os error -)", "x (os error -)"),
            ("x (os error )", "x (os error )"),
            ("x (os error 1", "x (os error 1"),
            ("größe (os error 5) – ü", "größe – ü"),
        ] {
            assert_eq!(without_numbers(message), expected);
        }
    }
}
