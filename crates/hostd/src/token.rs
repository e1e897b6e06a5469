//! The token that the agent sends to the controller.

use std::fs;
use std::path::Path;

/// Reads the token in the first line of a file. The error contains the name of the file.
pub fn read(file: &Path) -> Result<String, String> {
    let text = fs::read_to_string(file).map_err(|problem| format!("token_file {}: {problem}", file.display()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.len() < 16 {
        return Err(format!("token_file {}: expected a token of at least 16 characters", file.display()));
    }
    Ok(token.to_owned())
}
