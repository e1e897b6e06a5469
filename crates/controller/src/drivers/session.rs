//! One connection: a task that reads and one that writes.

use crate::drivers::clock::Clock;
use crate::drivers::record::Recorder;
use crate::drivers::storing::Storing;
use crate::hub::connection::{ConnectionId, Transmit};
use crate::hub::hosts::AgentId;
use crate::hub::{Hub, Received};
use pathloom_model::Nanos;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{ready, Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;

/// The hub, its clock, the tasks that wait for it, and the buffer that all sessions read into, one after another.
#[derive(Clone)]
pub(crate) struct Shared {
    pub hub: Rc<RefCell<Hub>>,
    pub clock: Clock,
    pub tasks: Rc<Tasks>,
    scratch: Rc<RefCell<Box<[u8]>>>,
}

/// The tasks that wait for the hub.
#[derive(Default)]
pub(crate) struct Tasks {
    /// By slot of their connection.
    sessions: RefCell<Vec<Option<Rc<Wakers>>>>,
    agents: RefCell<BTreeMap<AgentId, Rc<Wakers>>>,
    /// Wakes the task that settles the hub.
    pub settle: Notify,
    /// Wakes the task that waits for switches which have a newer leader.
    pub refused: Notify,
    /// Wakes the task that waits for time-outs and jobs.
    pub timer: Notify,
    /// When that task wakes by itself.
    pub armed: Cell<Nanos>,
    /// Wakes the task that drives the process of a scheme.
    pub process: Notify,
    /// Writes the event log.
    pub recorder: RefCell<Option<Recorder>>,
    /// Stores changed assignments, and holds the calls of the API that wait.
    pub storing: Storing,
}

/// Wakes the tasks of one connection.
#[derive(Default)]
pub(crate) struct Wakers {
    /// Wakes the task that writes.
    pub wake: Notify,
    /// Wakes the task that reads, when it waits for the other end to read.
    drained: Notify,
    /// Notified when the connection is over.
    pub ended: Notify,
}

/// Maximum number of bytes of one read, besides the beginning of a message left from the previous one.
const READ_BYTES: usize = 128 << 10;
/// Maximum length of an incomplete message.
const LEFT_BYTES: usize = 64 << 10;
/// While this many bytes wait to be written to a peer, nothing more is read from it.
const HIGH_WATER: usize = 1 << 20;
/// A buffer that grew beyond this is freed, because every session has two.
const KEPT_BYTES: usize = 16 << 10;
/// How long the messages of one connection are handled before other connections have their turn.
const TURN: Nanos = Nanos::from_millis(4);
/// Maximum number of messages handled between two looks at the clock. A scheme may need much time for a flow, so the
/// number begins with 1 and doubles.
const MESSAGES: usize = 64;
/// Maximum number of bytes of one read with few sessions: while the answers travel, the next part is handled.
const FEW_BYTES: usize = 4 << 10;

impl Shared {
    pub(crate) fn new(hub: Hub) -> Shared {
        Shared::with_clock(hub, Clock::start())
    }

    pub(crate) fn with_clock(hub: Hub, clock: Clock) -> Shared {
        let scratch = vec![0; READ_BYTES + LEFT_BYTES].into_boxed_slice();
        let (hub, scratch) = (Rc::new(RefCell::new(hub)), Rc::new(RefCell::new(scratch)));
        Shared { hub, clock, tasks: Rc::default(), scratch }
    }

    /// Lets `work` call the hub at the present time, and does what the hub then wants.
    pub(crate) fn drive<T>(&self, work: impl FnOnce(&mut Hub, Nanos) -> T) -> T {
        let mut hub = self.hub.borrow_mut();
        let done = work(&mut hub, self.clock.now());
        self.wake_tasks(&mut hub);
        done
    }

    /// Wakes the tasks that have something to do.
    fn wake_tasks(&self, hub: &mut Hub) {
        let tasks = &*self.tasks;
        while let Some(id) = hub.poll_writable() {
            if let Some(Some(wakers)) = tasks.sessions.borrow().get(id.slot()) {
                wakers.wake.notify_one();
            }
        }
        while let Some(id) = hub.poll_ended() {
            let wakers = tasks.sessions.borrow_mut().get_mut(id.slot()).and_then(Option::take);
            wakers.iter().for_each(|wakers| wakers.ended.notify_one());
        }
        while let Some(id) = hub.hosts.poll_writable() {
            if let Some(wakers) = tasks.agents.borrow().get(&id) {
                wakers.wake.notify_one();
            }
        }
        while let Some(id) = hub.hosts.poll_ended() {
            tasks.agents.borrow_mut().remove(&id).iter().for_each(|wakers| wakers.ended.notify_one());
        }
        if let Some(recorder) = &mut *tasks.recorder.borrow_mut() {
            std::iter::from_fn(|| hub.poll_record()).for_each(|record| recorder.write(&record));
        }
        tasks.storing.look_at(hub);
        if hub.wants_process() {
            tasks.process.notify_one();
        }
        if hub.take_refusal() {
            tasks.refused.notify_one();
        }
        if hub.is_unsettled() {
            tasks.settle.notify_one();
        } else if hub.has_jobs() || hub.poll_timeout() < tasks.armed.get() {
            tasks.timer.notify_one();
        }
    }

    /// Wakes the tasks of the new connection of an agent.
    pub(crate) fn wakers_of_agent(&self, id: AgentId) -> Rc<Wakers> {
        self.tasks.agents.borrow_mut().entry(id).or_default().clone()
    }

    /// Wakes the tasks of a new connection.
    fn wakers(&self, id: ConnectionId) -> Rc<Wakers> {
        let mut sessions = self.tasks.sessions.borrow_mut();
        if sessions.len() <= id.slot() {
            sessions.resize(id.slot() + 1, None);
        }
        sessions[id.slot()].insert(Rc::default()).clone()
    }

    /// Serves a connection until it ends.
    pub(crate) async fn serve(self, peer: String, reader: impl AsyncRead + Unpin, writer: impl AsyncWrite + Unpin) {
        self.serve_as(peer, None, reader, writer).await;
    }

    /// Serves a connection of a peer that has shown a certificate with these names.
    pub(crate) async fn serve_as(
        self,
        peer: String,
        certificate: Option<Vec<String>>,
        reader: impl AsyncRead + Unpin,
        writer: impl AsyncWrite + Unpin,
    ) {
        let Some(id) = self.drive(|hub, now| hub.connect(now, peer, certificate)) else { return };
        let wakers = self.wakers(id);
        let why = tokio::select! {
            ended = self.read(id, reader, &wakers.drained) => ended.err().map_or("the peer closed it".into(), |e| e.to_string()),
            ended = self.write(id, writer, &wakers) => ended.err().map_or("it was closed".into(), |e| e.to_string()),
            () = wakers.ended.notified() => return,
        };
        self.drive(|hub, now| hub.disconnect(now, id, &why));
    }

    async fn read(&self, id: ConnectionId, mut reader: impl AsyncRead + Unpin, drained: &Notify) -> io::Result<()> {
        let mut left = Vec::new();
        loop {
            let few = self.hub.borrow().has_few_sessions();
            let most = if few { FEW_BYTES } else { READ_BYTES };
            let (count, mut late) =
                poll_fn(|context| self.poll_read(id, (&mut reader, most), &mut left, context)).await?;
            if count == 0 {
                return Ok(());
            }
            while late {
                // Other tasks run first, so that answers are sent and other connections are handled.
                tokio::task::yield_now().await;
                let received = self.take_turn(id, &left);
                left.drain(..received.used);
                late = received.late;
            }
            loop {
                let backlog = self.hub.borrow().backlog(id);
                match backlog {
                    // The writing task closes the connection.
                    None => return std::future::pending().await,
                    Some(waiting) if waiting > HIGH_WATER => drained.notified().await,
                    Some(_) => break,
                }
            }
            if count == most {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Reads up to `most` bytes and handles them. Returns the number of bytes read, 0 at the end, and whether `left`
    /// has whole messages.
    fn poll_read(
        &self,
        id: ConnectionId,
        (reader, most): (&mut (impl AsyncRead + Unpin), usize),
        left: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(usize, bool)>> {
        let mut scratch = self.scratch.borrow_mut();
        let (head, tail) = scratch.split_at_mut(left.len());
        let mut buffer = ReadBuf::new(&mut tail[..most]);
        ready!(Pin::new(reader).poll_read(context, &mut buffer))?;
        let count = buffer.filled().len();
        head.copy_from_slice(left);
        let all = &scratch[..left.len() + count];
        let mut late = false;
        if count > 0 {
            let received = self.take_turn(id, all);
            late = received.late;
            left.clear();
            left.extend_from_slice(&all[received.used.min(all.len())..]);
        }
        Poll::Ready(Ok((count, late)))
    }

    /// Handles messages of a connection until its turn is over.
    fn take_turn(&self, id: ConnectionId, bytes: &[u8]) -> Received {
        let mut hub = self.hub.borrow_mut();
        let (start, mut most) = (self.clock.now(), 1);
        let (mut now, mut done) = (start, Received { used: 0, late: false });
        loop {
            let received = hub.received(now, id, &bytes[done.used..], most);
            done = Received { used: done.used + received.used, late: received.late };
            if !done.late {
                break;
            }
            now = self.clock.now();
            if now.saturating_sub(start) > TURN {
                break;
            }
            most = (2 * most).min(MESSAGES);
        }
        self.wake_tasks(&mut hub);
        done
    }

    async fn write(&self, id: ConnectionId, mut writer: impl AsyncWrite + Unpin, wakers: &Wakers) -> io::Result<()> {
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            let transmit = self.hub.borrow_mut().transmit(id, &mut buffer);
            if !buffer.is_empty() {
                writer.write_all(&buffer).await?;
                if buffer.capacity() > KEPT_BYTES {
                    buffer = Vec::new();
                }
                wakers.drained.notify_waiters();
                continue;
            }
            match transmit {
                Transmit::Open => wakers.wake.notified().await,
                Transmit::Closing => return writer.shutdown().await,
                Transmit::Gone => return Ok(()),
            }
        }
    }
}
