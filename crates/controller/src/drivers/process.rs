//! The process of a scheme: its pipe, and the tasks that read and write.

use crate::config::{CheckedConfig, ProcessCommand};
use crate::drivers::process_command::{self, Running, LINE_BYTES};
use crate::drivers::session::Shared;
use crate::hub::scheme_process::{Output, SchemeProcess};
use std::io;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::UnixStream;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};

/// Learns what a scheme in a process of its own needs: starts the process once. Must be called before the scheme is used;
/// without such a process it does nothing.
///
/// # Errors
/// The process does not greet, or its scheme cannot run on live switches. The message names the scheme.
pub fn greet(checked: &mut CheckedConfig) -> Result<(), String> {
    let CheckedConfig { process, fabric, scheme, .. } = checked;
    if let Some(process) = process {
        let greeting = process_command::greet(&process.command, &process.hello(fabric));
        let needs = greeting.map_err(|problem| format!("scheme {}: {problem}", process.label))?.needs;
        *scheme = process.take_needs(needs)?;
    }
    Ok(())
}

/// Begins with the process that the configuration names, if it names one. The hub starts it at its next time-out.
pub(crate) fn begin(checked: &CheckedConfig, shared: &Shared) {
    if let Some(process) = &checked.process {
        shared.hub.borrow_mut().process = Some(SchemeProcess::new(process, &checked.fabric));
        tokio::task::spawn_local(run(shared.clone(), process.command.clone()));
    }
}

/// Does what the machine wants, until the controller ends.
async fn run(shared: Shared, command: ProcessCommand) {
    let mut current: Option<(Running, UnboundedSender<String>)> = None;
    loop {
        let output = shared.drive(|hub, _| hub.poll_process());
        match output {
            Some(Output::Start(number)) => match start(&shared, &command, number) {
                Ok(started) => current = Some(started),
                Err(problem) => {
                    let why = format!("{}: {problem}", command.program.display());
                    shared.drive(|hub, now| hub.process_ended(now, number, &why));
                }
            },
            Some(Output::Write(line)) => {
                if let Some((_, lines)) = &current {
                    // If the process is gone, the reader says it.
                    let _ = lines.send(line);
                }
            }
            Some(Output::Stop) => current = None,
            None => shared.tasks.process.notified().await,
        }
    }
}

/// Starts the process, and the tasks that read and write.
fn start(shared: &Shared, command: &ProcessCommand, number: u64) -> io::Result<(Running, UnboundedSender<String>)> {
    let (running, pipe) = process_command::start(command)?;
    pipe.set_nonblocking(true)?;
    let (reader, writer) = UnixStream::from_std(pipe)?.into_split();
    let (lines, to_write) = unbounded_channel();
    tokio::task::spawn_local(write(writer, to_write));
    let shared = shared.clone();
    tokio::task::spawn_local(async move {
        let why = match read(&shared, reader, number).await {
            Ok(()) => "it ended".to_owned(),
            Err(problem) => format!("its output cannot be read: {problem}"),
        };
        shared.drive(|hub, now| hub.process_ended(now, number, &why));
    });
    Ok((running, lines))
}

/// Passes lines to the machine until the pipe ends.
async fn read(shared: &Shared, reader: impl AsyncRead + Unpin, number: u64) -> io::Result<()> {
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = String::new();
        let count = (&mut reader).take(LINE_BYTES).read_line(&mut line).await?;
        if count == 0 {
            return Ok(());
        }
        shared.drive(|hub, now| hub.process_line(now, number, line.trim_end()));
    }
}

/// Writes lines. Ends when the process is stopped.
async fn write(mut writer: OwnedWriteHalf, mut lines: UnboundedReceiver<String>) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        if writer.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}
