//! The process of a scheme: its pipe, and the tasks that read and write.

use crate::config::{CheckedConfig, CheckedProcess, Launch};
use crate::drivers::process_command::{self, Running, LINE_BYTES};
use crate::drivers::session::Shared;
use crate::hub::scheme_process::{Output, SchemeProcess};
use std::io;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::UnixStream;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;

/// Learns what a scheme in a process of its own needs: starts the process once. Must be called before the scheme is used;
/// without such a process it does nothing.
///
/// # Errors
/// The process does not greet, or its scheme cannot run on live switches. The message names the scheme.
pub fn greet(checked: &mut CheckedConfig) -> Result<(), String> {
    let CheckedConfig { process, fabric, scheme, .. } = checked;
    if let Some(process) = process {
        let greeting = process_command::greet(&process.launch, &process.hello(fabric));
        let needs = greeting.map_err(|problem| format!("scheme {}: {problem}", process.label))?.needs;
        *scheme = process.take_needs(needs)?;
    }
    Ok(())
}

/// Begins with the process that the configuration names, if it names one. The hub starts it at its next time-out.
pub(crate) fn begin(checked: &CheckedConfig, shared: &Shared) {
    if let Some(process) = &checked.process {
        shared.hub.borrow_mut().process = Some(SchemeProcess::new(process, &checked.fabric));
        tokio::task::spawn_local(run(shared.clone()));
    }
}

/// Starts the process of the scheme in charge again, with these settings, so that it reads its file. A first one shows that it
/// can greet; if not, the old one stays. Does nothing if another scheme is in charge.
pub(crate) async fn reload(shared: &Shared, wanted: &CheckedProcess) {
    let hello = {
        let hub = shared.hub.borrow();
        let in_charge = hub.gauges.scheme.0.as_str();
        let Some(process) = hub.process.as_ref().filter(|_| in_charge == wanted.label) else {
            return tracing::info!(in_charge, "the scheme of the file is not in charge; the one in charge stays");
        };
        process.hello().to_owned()
    };
    let CheckedProcess { launch, answer_within, .. } = wanted.clone();
    let tried = launch.clone();
    let greeted = tokio::task::spawn_blocking(move || process_command::greet(&tried, &hello)).await;
    let greeted = greeted.unwrap_or_else(|problem| Err(problem.to_string()));
    let accepted = greeted.and_then(|greeting| match &shared.hub.borrow().process {
        Some(process) => process.check_needs(greeting.needs),
        None => Ok(()),
    });
    match accepted {
        Ok(()) => shared.drive(|hub, now| hub.reload_process(now, launch, answer_within)),
        Err(problem) => {
            let scheme = wanted.label.as_str();
            tracing::error!(scheme, problem, "the new process of the scheme is unusable; the old one stays");
        }
    }
}

/// A process, and the tasks that read and write. Dropping it ends them, so a process at a socket learns it even if it does not
/// read.
struct Link {
    lines: UnboundedSender<String>,
    tasks: [JoinHandle<()>; 2],
    /// The process, if the controller has started it.
    _running: Option<Running>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Does what the machine wants, until the controller ends.
async fn run(shared: Shared) {
    let mut current: Option<Link> = None;
    loop {
        let output = shared.drive(|hub, _| hub.poll_process());
        match output {
            Some(Output::Start(number, launch)) => match start(&shared, &launch, number) {
                Ok(started) => current = Some(started),
                Err(problem) => {
                    let why = format!("{launch}: {problem}");
                    shared.drive(|hub, now| hub.process_ended(now, number, &why));
                }
            },
            Some(Output::Write(line)) => {
                if let Some(link) = &current {
                    // If the process is gone, the reader says it.
                    let _ = link.lines.send(line);
                }
            }
            Some(Output::Stop) => current = None,
            None => shared.tasks.process.notified().await,
        }
    }
}

/// Starts the process or connects to it, and starts the tasks that read and write.
fn start(shared: &Shared, launch: &Launch, number: u64) -> io::Result<Link> {
    let (running, pipe) = process_command::open(launch)?;
    pipe.set_nonblocking(true)?;
    let (reader, writer) = UnixStream::from_std(pipe)?.into_split();
    let (lines, to_write) = unbounded_channel();
    let writes = tokio::task::spawn_local(write(writer, to_write));
    let shared = shared.clone();
    let reads = tokio::task::spawn_local(async move {
        let why = match read(&shared, reader, number).await {
            Ok(()) => "it ended".to_owned(),
            Err(problem) => format!("its output cannot be read: {problem}"),
        };
        shared.drive(|hub, now| hub.process_ended(now, number, &why));
    });
    Ok(Link { lines, tasks: [writes, reads], _running: running })
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
