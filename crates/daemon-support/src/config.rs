//! Configuration files (TOML): errors name the file, the line and what was expected.

use serde::de::DeserializeOwned;
use std::fs;
use std::path::Path;

/// Reads a file and parses it with `parse`. An error begins with the name of the file.
pub fn read<T>(file: &Path, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, String> {
    let text = fs::read_to_string(file).map_err(|problem| format!("{}: {problem}", file.display()))?;
    parse(&text).map_err(|problem| format!("{}: {problem}", file.display()))
}

/// Parses the text of a configuration. An error begins with the line.
pub fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|problem| {
        let line = problem.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        format!("line {line}: {}", problem.message())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    type Numbers = BTreeMap<String, u32>;

    #[test]
    fn an_error_names_file_and_line() {
        assert_eq!(from_toml::<Numbers>("a = 1\nb = 2\n").unwrap()["b"], 2);
        let error = from_toml::<Numbers>("a = 1\n\nb = 'two'\n").unwrap_err();
        assert!(error.starts_with("line 3: ") && error.contains("expected u32"), "{error}");
        assert!(from_toml::<Numbers>("a = 1\na =").unwrap_err().starts_with("line 2: "));

        let file = std::env::temp_dir().join(format!("pathloom-config-{}", std::process::id()));
        assert!(read(&file, from_toml::<Numbers>).unwrap_err().starts_with(&format!("{}: ", file.display())));
        fs::write(&file, "a = 1\nb = -1\n").unwrap();
        let error = read(&file, from_toml::<Numbers>).unwrap_err();
        fs::remove_file(&file).unwrap();
        assert!(error.starts_with(&format!("{}: line 2: ", file.display())), "{error}");
    }
}
