//! Connections of fake switches by TCP. One task per connection reads all available bytes, handles them, and writes
//! once.

use crate::{Fake, Work};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::{spawn_local, JoinHandle};

/// Time limit until all sessions are up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Connects a fake switch and works until the controller or the caller ends it.
pub fn connect<W: Work + 'static>(port: u16, fake: Fake, work: W, go: Rc<Notify>) -> JoinHandle<io::Result<()>> {
    spawn_local(async move {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        drive(&mut stream, fake, work, &go).await
    })
}

/// Works on an open connection.
///
/// # Errors
/// The connection ends, or what arrives is no message.
pub async fn drive<W: Work>(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    mut fake: Fake,
    mut work: W,
    go: &Notify,
) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    let (mut filled, mut out) = (0, Vec::new());
    fake.hello(&mut out);
    loop {
        if !out.is_empty() {
            stream.write_all(&out).await?;
            out.clear();
        }
        tokio::select! {
            biased;
            () = go.notified() => work.begin(&mut out),
            read = stream.read(&mut buffer[filled..]) => match read? {
                0 => return Err(io::Error::other("the controller closed the connection")),
                count => {
                    filled += count;
                    let used = fake.read(&buffer[..filled], &mut out, &mut work)?;
                    buffer.copy_within(used..filled, 0);
                    filled -= used;
                }
            },
        }
    }
}

/// Waits until `done` returns true.
///
/// # Errors
/// It did not in 30 s; `what` says in the error what did not happen.
pub async fn until(what: &str, mut done: impl FnMut() -> bool) -> Result<(), String> {
    let wait = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.map_err(|_| format!("{what} did not happen within {PATIENCE:?}"))
}
