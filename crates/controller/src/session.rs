//! One connection: a task that reads and one that writes.

use crate::connection::ConnectionId;
use crate::hub::Hub;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{ready, Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;

/// The hub and the buffer that all sessions read into, one after another.
#[derive(Clone)]
pub(crate) struct Shared {
    pub hub: Rc<RefCell<Hub>>,
    scratch: Rc<RefCell<Box<[u8]>>>,
}

/// Maximum number of bytes of one read, besides the beginning of a message left from the previous one.
const READ_BYTES: usize = 128 << 10;
/// Maximum length of an incomplete message.
const LEFT_BYTES: usize = 64 << 10;
/// While this many bytes wait to be written to a peer, nothing more is read from it.
const HIGH_WATER: usize = 1 << 20;
/// A buffer that grew beyond this is freed, because every session has two.
const KEPT_BYTES: usize = 16 << 10;
/// Maximum number of bytes of one read with few sessions: while the answers travel, the next part is handled.
const FEW_BYTES: usize = 4 << 10;

impl Shared {
    pub(crate) fn new(hub: Hub) -> Shared {
        let scratch = vec![0; READ_BYTES + LEFT_BYTES].into_boxed_slice();
        Shared { hub: Rc::new(RefCell::new(hub)), scratch: Rc::new(RefCell::new(scratch)) }
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
        let Some(id) = self.hub.borrow_mut().connect(peer) else { return };
        self.hub
            .borrow_mut()
            .connection_mut(id)
            .into_iter()
            .for_each(|connection| connection.certificate.clone_from(&certificate));
        let drained = self.hub.borrow_mut().connection_mut(id).map(|connection| connection.drained.clone());
        let Some(drained) = drained else { return };
        let why = tokio::select! {
            ended = self.read(id, reader, &drained) => ended.err().map_or("the peer closed it".into(), |e| e.to_string()),
            ended = self.write(id, writer, &drained) => ended.err().map_or("it was closed".into(), |e| e.to_string()),
            () = self.closed_for_long(id, &drained) => "it was closed, and the peer did not read".into(),
        };
        self.hub.borrow_mut().disconnect(id, &why);
    }

    /// Waits until the connection must be closed, even if bytes remain to be written.
    async fn closed_for_long(&self, id: ConnectionId, drained: &Notify) {
        loop {
            drained.notified().await;
            let mut hub = self.hub.borrow_mut();
            let Some(connection) = hub.connection_mut(id) else { return };
            if connection.is_closed() {
                return;
            }
        }
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
                let received = self.hub.borrow_mut().received(id, &left);
                left.drain(..received.used);
                late = received.late;
            }
            let backlog = |hub: &Rc<RefCell<Hub>>| {
                let mut hub = hub.borrow_mut();
                hub.connection_mut(id).map(|connection| (connection.is_closed(), connection.out.len()))
            };
            loop {
                match backlog(&self.hub) {
                    // The writing task closes the connection.
                    None | Some((true, _)) => return std::future::pending().await,
                    Some((false, waiting)) if waiting > HIGH_WATER => drained.notified().await,
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
            let received = self.hub.borrow_mut().received(id, all);
            late = received.late;
            left.clear();
            left.extend_from_slice(&all[received.used.min(all.len())..]);
        }
        Poll::Ready(Ok((count, late)))
    }

    async fn write(&self, id: ConnectionId, mut writer: impl AsyncWrite + Unpin, drained: &Notify) -> io::Result<()> {
        let mut buffer = Vec::new();
        let wake = self.hub.borrow_mut().connection_mut(id).map(|connection| connection.wake.clone());
        let Some(wake) = wake else { return Ok(()) };
        loop {
            buffer.clear();
            let closed = {
                let mut hub = self.hub.borrow_mut();
                let Some(connection) = hub.connection_mut(id) else { return Ok(()) };
                std::mem::swap(&mut connection.out, &mut buffer);
                connection.dirty = false;
                connection.is_closed()
            };
            if !buffer.is_empty() {
                writer.write_all(&buffer).await?;
                if buffer.capacity() > KEPT_BYTES {
                    buffer = Vec::new();
                }
                drained.notify_waiters();
            } else if closed {
                return writer.shutdown().await;
            } else {
                wake.notified().await;
            }
        }
    }
}
