//! The Unix socket for programs on the host that announce their own transfers. docs/controller.md describes the lines.

use crate::agent::ProgramId;
use crate::messages::{self, ProgramMessage, LINE_BYTES, VERSION};
use crate::session::take_lines;
use pathloom_daemon_support::files::bind_private;
use std::io;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, Semaphore};

/// Maximum number of connected programs.
const MOST_PROGRAMS: usize = 256;

/// An event of a program.
#[derive(Debug)]
pub enum Event {
    /// A program has sent its hello. Lines for the program go into this queue.
    Hello(ProgramId, mpsc::UnboundedSender<String>),
    /// A program announces or finishes a transfer.
    Message(ProgramId, ProgramMessage),
    /// A program has closed its connection.
    Gone(ProgramId),
}

/// Opens the socket. Only programs of the same user may use it.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    UnixListener::from_std(bind_private(path)?)
}

/// Accepts connections of programs forever.
pub async fn accept(listener: UnixListener, events: mpsc::Sender<Event>) {
    let places = std::sync::Arc::new(Semaphore::new(MOST_PROGRAMS));
    let mut last = 0;
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                last += 1;
                let (id, events) = (ProgramId(last), events.clone());
                tokio::task::spawn_local(async move {
                    serve(id, stream, &events).await;
                    let _ = events.send(Event::Gone(id)).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
        }
    }
}

async fn serve(id: ProgramId, stream: UnixStream, events: &mpsc::Sender<Event>) {
    let (mut reader, mut writer) = stream.into_split();
    let (out, mut lines) = mpsc::unbounded_channel::<String>();
    let write = async {
        while let Some(mut line) = lines.recv().await {
            line.push('\n');
            if writer.write_all(line.as_bytes()).await.is_err() {
                return;
            }
        }
    };
    let read = async {
        let mut buffer = Vec::new();
        while buffer.len() <= LINE_BYTES && reader.read_buf(&mut buffer).await.is_ok_and(|read| read > 0) {
            for line in take_lines(&mut buffer) {
                let event = match serde_json::from_slice::<ProgramMessage>(&line) {
                    Ok(ProgramMessage::Hello { version }) if version == VERSION => Event::Hello(id, out.clone()),
                    Ok(ProgramMessage::Hello { version }) => {
                        let _ = out
                            .send(messages::refused(&format!("this agent supports version {VERSION}, not {version}")));
                        continue;
                    }
                    Ok(message) => Event::Message(id, message),
                    Err(problem) => {
                        let _ = out.send(messages::refused(&format!("the line is not a valid message: {problem}")));
                        continue;
                    }
                };
                if events.send(event).await.is_err() {
                    return;
                }
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = write => {}
    }
}
