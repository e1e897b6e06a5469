//! Listening sockets, and the connections of switches without encryption.

use crate::drivers::failed_accepts::FailedAccepts;
use crate::drivers::session::Shared;
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use tokio::net::{TcpListener, UnixListener};

/// Backlog of the listening sockets: all switches of a fabric connect at once. If it is full, a client tries again after 1 s
/// and then 3 s.
const WAITING: i32 = 1024;

/// A listening socket of the runtime.
pub(crate) fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::from_std(listen_tcp(address)?)
}

/// A listening socket that does not block.
pub(crate) fn listen_tcp(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(WAITING)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Binds a Unix socket. An existing one without a listener is replaced.
pub(crate) fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(problem) if problem.kind() == io::ErrorKind::AddrInUse => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(problem);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        done => done,
    }
}

/// Accepts switches.
pub(crate) async fn accept_tcp(listener: TcpListener, shared: Shared) {
    let mut failed = FailedAccepts::new("switches");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                failed.accepted();
                let _ = stream.set_nodelay(true);
                let (reader, writer) = stream.into_split();
                tokio::task::spawn_local(shared.clone().serve(peer.to_string(), reader, writer));
            }
            Err(problem) => failed.failed(&problem).await,
        }
    }
}

/// Accepts switches of this machine.
pub(crate) async fn accept_unix(listener: UnixListener, shared: Shared) {
    let mut failed = FailedAccepts::new("switches");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                failed.accepted();
                let (reader, writer) = stream.into_split();
                tokio::task::spawn_local(shared.clone().serve("a local socket".into(), reader, writer));
            }
            Err(problem) => failed.failed(&problem).await,
        }
    }
}
