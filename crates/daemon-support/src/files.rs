//! Files and sockets that a daemon leaves in the file system.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Removes a file if it exists.
///
/// # Errors
/// The file exists and cannot be removed.
pub fn remove_file(place: &Path) -> io::Result<()> {
    match fs::remove_file(place) {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Opens a Unix socket that only processes of the same user may use, from its first moment at this place. Replaces an
/// existing one. Its calls do not block.
///
/// # Errors
/// The socket cannot be created at this place.
pub fn bind_private(place: &Path) -> io::Result<UnixListener> {
    let unfinished = place.with_extension("new");
    remove_file(&unfinished)?;
    let listener = UnixListener::bind(&unfinished)?;
    fs::set_permissions(&unfinished, Permissions::from_mode(0o600))?;
    fs::rename(&unfinished, place)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_private_socket_replaces_the_one_of_an_ended_process() {
        let place = std::env::temp_dir().join(format!("pathloom-private-{}.sock", std::process::id()));
        drop(bind_private(&place).unwrap());
        assert!(UnixStream::connect(&place).is_err());
        let listener = bind_private(&place).unwrap();
        assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(UnixStream::connect(&place).is_ok());
        fs::remove_file(&place).unwrap();
        assert!(remove_file(&place).is_ok());
        assert!(remove_file(Path::new("/dev/null/x")).is_err());
    }
}
