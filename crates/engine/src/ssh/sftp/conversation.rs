//! The requests that are under way, and who waits for which answer.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use remote_sandbox_core::sftp::{
    Attributes, Frame, HandleBytes, NamedEntry, PathError, RemotePath, Reply, Request, Status,
    StatusCode, parse_reply,
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot};

use super::error::{Loss, SftpError};

/// Requests are sent together up to this many bytes.
const BATCH: usize = 64 * 1024;

/// Data up to this length is copied, so that it does not keep a large buffer alive.
const SMALL_DATA: usize = 8 * 1024;

/// No answer beyond the protocol that is asked for here is longer.
const LONGEST_EXTENDED: usize = 128;

/// What somebody waits for, and where it goes.
pub(super) enum Waiter {
    Status(Answer<()>),
    Handle(Answer<RawHandle>),
    Data { most: u32, answer: Answer<Bytes> },
    Names(Answer<Vec<NamedEntry>>),
    Path(Answer<Result<RemotePath, PathError>>),
    Attributes(Answer<Attributes>),
    Extended(Answer<Bytes>),
    Nobody,
}

/// Where an answer goes.
pub(super) type Answer<T> = oneshot::Sender<Result<T, Status>>;

/// The room that a request takes until it is answered.
pub(super) struct Slot {
    _request: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

struct Pending {
    waiter: Waiter,
    _slot: Option<Slot>,
}

#[derive(Default)]
struct State {
    next_id: u32,
    pending: HashMap<u32, Pending>,
    queue: VecDeque<Frame>,
    loss: Option<Arc<Loss>>,
}

/// One conversation with a server.
pub(super) struct Conversation {
    state: Mutex<State>,
    queued: Notify,
    requests: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    most_bytes: usize,
    open_handles: AtomicU64,
}

impl Conversation {
    pub(super) fn new(most_requests: usize, most_bytes: usize) -> Self {
        // A semaphore has a largest size of its own, and counts in 32 bits.
        let most_bytes = most_bytes.clamp(1, u32::MAX as usize >> 3);
        let most_requests = most_requests.clamp(1, Semaphore::MAX_PERMITS);
        Conversation {
            state: Mutex::new(State::default()),
            queued: Notify::new(),
            requests: Arc::new(Semaphore::new(most_requests)),
            bytes: Arc::new(Semaphore::new(most_bytes)),
            most_bytes,
            open_handles: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most bytes that are under way at the same time.
    pub(super) fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// How many handles of the server we hold.
    pub(super) fn open_handles(&self) -> u64 {
        self.open_handles.load(Ordering::Acquire)
    }

    /// Whether an answer is due.
    pub(super) fn is_waiting(&self) -> bool {
        !self.state().pending.is_empty()
    }

    /// Why the conversation is over, once it is.
    pub(super) fn loss(&self) -> Option<Arc<Loss>> {
        self.state().loss.clone()
    }

    /// What a call is told that can get no answer any more.
    fn closed(&self) -> SftpError {
        SftpError::Closed(self.loss().unwrap_or_else(|| Arc::new(Loss::LetGo)))
    }

    /// Ends the conversation: whoever waits hears why. Only the first reason counts.
    pub(super) fn end(&self, loss: Loss) {
        let left = {
            let mut state = self.state();
            state.loss.get_or_insert_with(|| Arc::new(loss));
            state.queue.clear();
            std::mem::take(&mut state.pending)
        };
        self.requests.close();
        self.bytes.close();
        drop(left);
    }

    /// Waits for room for a request that takes this many bytes there and back.
    pub(super) async fn slot(&self, bytes: usize) -> Result<Slot, SftpError> {
        let request = self.requests.clone().acquire_owned().await;
        let request = request.map_err(|_| self.closed())?;
        let bytes = self.permits(bytes);
        let bytes = self.bytes.clone().acquire_many_owned(bytes).await;
        Ok(Slot {
            _request: request,
            _bytes: bytes.map_err(|_| self.closed())?,
        })
    }

    /// The same without waiting; nothing where there is no room now.
    pub(super) fn slot_now(&self, bytes: usize) -> Result<Option<Slot>, SftpError> {
        let bytes = self.permits(bytes);
        let request = self.requests.clone().try_acquire_owned();
        let bytes = self.bytes.clone().try_acquire_many_owned(bytes);
        match (request, bytes) {
            (Ok(request), Ok(bytes)) => Ok(Some(Slot {
                _request: request,
                _bytes: bytes,
            })),
            (Err(TryAcquireError::Closed), _) | (_, Err(TryAcquireError::Closed)) => {
                Err(self.closed())
            }
            _ => Ok(None),
        }
    }

    /// One request may be larger than all that is allowed; it then goes alone.
    fn permits(&self, bytes: usize) -> u32 {
        bytes.min(self.most_bytes) as u32
    }

    /// Puts a request into the queue. It goes out whole even if nobody waits for its answer any more.
    pub(super) fn submit<T>(
        self: &Arc<Self>,
        request: &Request<'_>,
        slot: Slot,
        waiter: impl FnOnce(Answer<T>) -> Waiter,
    ) -> Result<Ticket<T>, SftpError> {
        let frame = request.encode();
        let (answer, receiver) = oneshot::channel();
        let pending = Pending {
            waiter: waiter(answer),
            _slot: Some(slot),
        };
        self.enqueue(frame, pending).map_err(SftpError::Closed)?;
        Ok(Ticket {
            receiver,
            conversation: self.clone(),
        })
    }

    fn enqueue(&self, mut frame: Frame, pending: Pending) -> Result<(), Arc<Loss>> {
        {
            let mut state = self.state();
            if let Some(loss) = &state.loss {
                return Err(loss.clone());
            }
            // Numbers begin anew after four billion; one that is still waited for is left out.
            let mut id = state.next_id;
            while state.pending.contains_key(&id) {
                id = id.wrapping_add(1);
            }
            state.next_id = id.wrapping_add(1);
            frame.set_id(id);
            state.pending.insert(id, pending);
            state.queue.push_back(frame);
        }
        self.queued.notify_one();
        Ok(())
    }

    /// Waits for requests and puts them into an empty buffer, several small ones at once.
    pub(super) async fn next_batch(&self, out: &mut Vec<u8>) {
        while !self.take_batch(out) {
            self.queued.notified().await;
        }
    }

    fn take_batch(&self, out: &mut Vec<u8>) -> bool {
        let mut state = self.state();
        while let Some(frame) = state.queue.front() {
            if !out.is_empty() && out.len() + frame.as_bytes().len() > BATCH {
                break;
            }
            if let Some(frame) = state.queue.pop_front() {
                if out.is_empty() {
                    *out = frame.into_bytes();
                } else {
                    out.extend_from_slice(frame.as_bytes());
                }
            }
        }
        !out.is_empty()
    }

    /// Gives a reply to whoever waits for it. This never waits itself: an undrained stream would stop
    /// everything that shares its connection.
    pub(super) fn deliver(self: &Arc<Self>, packet: &Bytes) -> Result<(), Loss> {
        let (id, reply) = parse_reply(packet)?;
        let pending = self.state().pending.remove(&id);
        let Pending { waiter, _slot } = pending.ok_or(Loss::UnknownRequest(id))?;
        match (waiter, reply) {
            (Waiter::Nobody, Reply::Status(_)) => {}
            (Waiter::Status(answer), Reply::Status(status)) => {
                let result = match status.code {
                    StatusCode::Ok => Ok(()),
                    _ => Err(status),
                };
                let _ = answer.send(result);
            }
            (Waiter::Handle(answer), Reply::Handle(bytes)) => {
                let _ = answer.send(Ok(RawHandle::new(bytes, self.clone())));
            }
            (Waiter::Data { most, .. }, Reply::Data(data)) if data.len() > most as usize => {
                let sent = data.len();
                return Err(Loss::TooMuch { sent, most });
            }
            (Waiter::Data { answer, .. }, Reply::Data(data)) => {
                let _ = answer.send(Ok(kept(packet, data)));
            }
            (Waiter::Names(answer), Reply::Names(names)) => {
                let _ = answer.send(Ok(names));
            }
            (Waiter::Path(answer), Reply::Names(names)) => {
                let name = names.into_iter().next().map(|entry| entry.name);
                let _ = answer.send(Ok(RemotePath::new(name.unwrap_or_default())));
            }
            (Waiter::Attributes(answer), Reply::Attributes(attributes)) => {
                let _ = answer.send(Ok(attributes));
            }
            (Waiter::Extended(answer), Reply::Extended(bytes)) => {
                let start = bytes.get(..LONGEST_EXTENDED).unwrap_or(bytes);
                let _ = answer.send(Ok(Bytes::copy_from_slice(start)));
            }
            // That it worked is no answer where something was asked for.
            (waiter, Reply::Status(status)) if status.code != StatusCode::Ok => {
                waiter.refuse(status);
            }
            _ => return Err(Loss::OtherAnswer(id)),
        }
        Ok(())
    }
}

impl Waiter {
    fn refuse(self, status: Status) {
        match self {
            Waiter::Status(answer) => drop(answer.send(Err(status))),
            Waiter::Handle(answer) => drop(answer.send(Err(status))),
            Waiter::Data { answer, .. } => drop(answer.send(Err(status))),
            Waiter::Names(answer) => drop(answer.send(Err(status))),
            Waiter::Path(answer) => drop(answer.send(Err(status))),
            Waiter::Attributes(answer) => drop(answer.send(Err(status))),
            Waiter::Extended(answer) => drop(answer.send(Err(status))),
            Waiter::Nobody => {}
        }
    }
}

/// Bytes of a packet, to keep.
fn kept(packet: &Bytes, part: &[u8]) -> Bytes {
    if part.len() <= SMALL_DATA {
        Bytes::copy_from_slice(part)
    } else {
        packet.slice_ref(part)
    }
}

/// The claim to an answer.
pub(super) struct Ticket<T> {
    receiver: oneshot::Receiver<Result<T, Status>>,
    conversation: Arc<Conversation>,
}

impl<T> Ticket<T> {
    /// Waits for the answer. Whoever stops waiting may ask again later, until it has come.
    pub(super) async fn answer(&mut self) -> Result<Result<T, Status>, SftpError> {
        let answer = (&mut self.receiver).await;
        answer.map_err(|_| self.conversation.closed())
    }
}

/// An open file or directory of the server, closed there when it is dropped.
pub(super) struct RawHandle {
    bytes: HandleBytes,
    conversation: Arc<Conversation>,
    is_closed: bool,
}

impl RawHandle {
    fn new(bytes: HandleBytes, conversation: Arc<Conversation>) -> Self {
        conversation.open_handles.fetch_add(1, Ordering::AcqRel);
        RawHandle {
            bytes,
            conversation,
            is_closed: false,
        }
    }

    pub(super) fn bytes(&self) -> &HandleBytes {
        &self.bytes
    }

    /// Closes it and waits for what the server says to that.
    pub(super) async fn close(mut self) -> Result<Result<(), Status>, SftpError> {
        let slot = self.conversation.slot(0).await?;
        let request = Request::Close(&self.bytes);
        let ticket = self.conversation.submit(&request, slot, Waiter::Status);
        self.is_closed = true;
        ticket?.answer().await
    }
}

impl Drop for RawHandle {
    fn drop(&mut self) {
        self.conversation
            .open_handles
            .fetch_sub(1, Ordering::AcqRel);
        if !self.is_closed {
            // It takes no slot: there is one at most for each open handle.
            let pending = Pending {
                waiter: Waiter::Nobody,
                _slot: None,
            };
            let frame = Request::Close(&self.bytes).encode();
            // Where the conversation is over, the server has closed it already.
            let _ = self.conversation.enqueue(frame, pending);
        }
    }
}
