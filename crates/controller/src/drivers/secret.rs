//! Random bytes from the system.

use std::io::{self, Read};

/// 32 random bytes from the system.
///
/// # Errors
/// The system cannot provide them.
pub(crate) fn secret() -> io::Result<[u8; 32]> {
    let mut secret = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut secret)?;
    Ok(secret)
}
