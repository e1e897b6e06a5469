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

/// What one read may bring, besides the beginning of a message left over from the last.
const READ_BYTES: usize = 128 << 10;
/// Longest beginning of a message.
const LEFT_BYTES: usize = 64 << 10;
/// While so many bytes wait to be written, nothing more is read from that peer.
const HIGH_WATER: usize = 1 << 20;
/// A buffer that grew beyond this is given back: there are two for every session.
const KEPT_BYTES: usize = 16 << 10;
/// What one read may bring where sessions are few: while the answers to it travel, the next part is worked off.
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

    /// The same with a peer that has shown a certificate with these names.
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

    /// Waits until the connection is to be given up, whatever is still to be written.
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
                // Whatever else there is to do comes first: what has been worked off goes out, and others are heard.
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
                    // The task that writes has the last word.
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

    /// Reads `most` bytes of what is there, and works them off. Returns the number of bytes read, 0 at the end, and whether
    /// there are whole messages in what is `left`.
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
