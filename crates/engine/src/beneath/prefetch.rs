//! Directories that are read ahead by other threads, a bounded number of them.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::listing::{Event, Place, read};
use super::scan::LocalScanOptions;

/// So many findings travel together.
const CHUNK: usize = 256;

/// So many chunks of one directory wait for the walk to come there; then its reader waits.
const CHUNKS: usize = 2;

/// What is to be read ahead, shared by the walk and its readers.
#[derive(Default)]
pub(super) struct Ahead {
    queue: Mutex<Queue>,
    more: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Arc<Job>>,
    is_closed: bool,
}

struct Job {
    place: Place,
    /// Whoever takes this reads the directory.
    answer: Mutex<Option<SyncSender<Vec<Event>>>>,
}

impl Job {
    fn take(&self) -> Option<SyncSender<Vec<Event>>> {
        lock(&self.answer).take()
    }
}

/// A directory that was asked for.
pub(super) struct Ticket {
    job: Arc<Job>,
    events: Receiver<Vec<Event>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets the readers go when the walk is over, however it ends.
pub(super) struct Closing<'a>(pub(super) &'a Ahead);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        lock(&self.0.queue).is_closed = true;
        self.0.more.notify_all();
    }
}

impl Ahead {
    /// Asks for directories; they are needed in this order, and before all that were asked for earlier.
    pub(super) fn ask(&self, places: Vec<Place>) -> Vec<Ticket> {
        let (tickets, jobs): (Vec<_>, Vec<_>) = places
            .into_iter()
            .map(|place| {
                let (answer, events) = sync_channel(CHUNKS);
                let answer = Mutex::new(Some(answer));
                let job = Arc::new(Job { place, answer });
                let ticket = Ticket {
                    job: job.clone(),
                    events,
                };
                (ticket, job)
            })
            .unzip();
        let mut queue = lock(&self.queue);
        for job in jobs.into_iter().rev() {
            queue.jobs.push_front(job);
        }
        drop(queue);
        self.more.notify_all();
        tickets
    }

    /// What a reader has found, or the directory itself when no reader has begun with it.
    pub(super) fn collect(&self, ticket: Ticket) -> Result<Receiver<Vec<Event>>, Place> {
        if ticket.job.take().is_none() {
            return Ok(ticket.events);
        }
        let mut queue = lock(&self.queue);
        queue.jobs.retain(|job| !Arc::ptr_eq(job, &ticket.job));
        Err(ticket.job.place.clone())
    }

    /// Reads directories until the walk is over.
    pub(super) fn serve(&self, options: &LocalScanOptions) {
        while let Some(job) = self.next() {
            let Some(answer) = job.take() else {
                continue;
            };
            let mut chunk = Vec::new();
            // The walk may have given up; then there is nobody to tell.
            let told = read(&job.place, options, &mut |event| {
                chunk.push(event);
                if chunk.len() < CHUNK {
                    return ControlFlow::Continue(());
                }
                match answer.send(std::mem::take(&mut chunk)) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            });
            if told.is_continue() {
                let _ = answer.send(chunk);
            }
        }
    }

    fn next(&self) -> Option<Arc<Job>> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.is_closed {
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            queue = self
                .more
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
