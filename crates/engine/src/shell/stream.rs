//! A program on the other side as two plain streams of bytes.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use remote_sandbox_core::output::{HeadTail, clean_line};
use remote_sandbox_core::shell::{Gate, stream_script};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::oneshot;

use super::{Heard, Incoming, Outgoing};

use crate::mark::new_mark;

/// Bytes that may wait in each direction; whoever writes more waits for the reader.
const HELD: usize = 256 * 1024;

/// Bytes that are taken from the caller at once.
const CHUNK: usize = 64 * 1024;

/// Most of its complaints that are kept.
const KEPT_WORDS: usize = 8 * 1024;

/// How long the program may take to begin.
const BEGIN_LIMIT: Duration = Duration::from_secs(20);

/// How long closing the channel of a program that nobody wants may take.
const LET_GO_LIMIT: Duration = Duration::from_secs(1);

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The shell ended, or said nothing, before the program began.
    #[error("the program did not begin: {0}")]
    NotBegun(String),
    /// The connection broke before it ended.
    #[error("the connection ended before the program did")]
    Broken,
    /// It took too long.
    #[error("the program did not begin in time")]
    Late,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEnd {
    /// Its exit code; none when a signal ended it.
    pub exit_code: Option<u32>,
    /// What it complained about, the beginning and the end of it.
    pub words: String,
}

/// A program whose input and output are the caller's.
#[derive(Debug)]
pub struct ByteStream {
    /// What is written here is its standard input; shut down ends that.
    pub input: DuplexStream,
    /// Its standard output.
    pub output: DuplexStream,
    end: oneshot::Receiver<Result<StreamEnd, StreamError>>,
}

impl ByteStream {
    /// One whose other side is a test.
    #[cfg(test)]
    pub(crate) fn stand_in(
        input: DuplexStream,
        output: DuplexStream,
        end: oneshot::Receiver<Result<StreamEnd, StreamError>>,
    ) -> Self {
        ByteStream { input, output, end }
    }

    /// Ends the input and waits for the end of the program; what is left of its output is not kept.
    /// Dropping the stream instead lets go of the program at once.
    pub async fn end(self) -> Result<StreamEnd, StreamError> {
        let ByteStream {
            input,
            mut output,
            end,
        } = self;
        drop(input);
        let _ = tokio::io::copy(&mut output, &mut tokio::io::sink()).await;
        end.await.unwrap_or(Err(StreamError::Broken))
    }
}

/// Has a new shell become a program; `held` is let go of when it has ended.
pub(crate) async fn open_stream<I, O>(
    mut incoming: I,
    outgoing: O,
    held: impl Send + 'static,
    arguments: &[&str],
) -> Result<ByteStream, StreamError>
where
    I: Incoming + 'static,
    O: Outgoing + 'static,
{
    let token = new_mark();
    let mut pump = Pump {
        out: Gate::new(&token),
        err: Gate::new(&token),
        words: HeadTail::new(KEPT_WORDS),
        exit: None,
    };
    let sent = outgoing.send(stream_script(&token, arguments)).await;
    sent.map_err(|_| StreamError::Broken)?;
    let beginning = pump.wait_for_begin(&mut incoming);
    let first = tokio::time::timeout(BEGIN_LIMIT, beginning).await;
    let first = first.unwrap_or(Err(StreamError::Late))?;
    let (output, to_caller) = tokio::io::duplex(HELD);
    let (input, from_caller) = tokio::io::duplex(HELD);
    let (tell, end) = oneshot::channel();
    tokio::spawn(async move {
        let feeding = feed(from_caller, &outgoing);
        let draining = pump.drain(incoming, first, to_caller);
        tokio::pin!(feeding, draining);
        // The program may end without taking all its input.
        let ended = tokio::select! {
            ended = &mut draining => ended,
            () = &mut feeding => draining.await,
        };
        if ended.is_err() {
            // Nobody takes its output any more, and it must not run on for nobody.
            let _ = tokio::time::timeout(LET_GO_LIMIT, outgoing.let_go()).await;
        }
        drop(held);
        let _ = tell.send(ended);
    });
    Ok(ByteStream { input, output, end })
}

/// Passes the caller's bytes on, then the end of them.
async fn feed(mut from_caller: DuplexStream, outgoing: &impl Outgoing) {
    loop {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        match from_caller.read_buf(&mut chunk).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {
                if outgoing.send_bytes(chunk.freeze()).await.is_err() {
                    return;
                }
            }
        }
    }
    let _ = outgoing.finish().await;
}

struct Pump {
    out: Gate,
    err: Gate,
    words: HeadTail,
    exit: Option<Option<u32>>,
}

impl Pump {
    /// Waits until the program runs; gives the first bytes of its output.
    async fn wait_for_begin(&mut self, incoming: &mut impl Incoming) -> Result<Bytes, StreamError> {
        while let Some(heard) = incoming.next().await {
            match heard {
                Heard::Out(data) => {
                    let own = self.out.pass(&data).into_owned();
                    if self.out.is_open() {
                        return Ok(own.into());
                    }
                }
                Heard::Closed | Heard::Refused => break,
                heard => self.take_note(heard),
            }
        }
        let noise = [self.out.noise(), self.err.noise()].concat();
        let words = clean_line(&String::from_utf8_lossy(&noise), 200);
        Err(StreamError::NotBegun(words))
    }

    fn take_note(&mut self, heard: Heard) {
        match heard {
            Heard::Err(data) => {
                let own = self.err.pass(&data);
                self.words.push(&own);
            }
            Heard::Exited(code) => self.exit = Some(Some(code)),
            Heard::Signalled(_) => self.exit = Some(None),
            Heard::Out(_) | Heard::NoMoreOutput | Heard::Refused | Heard::Closed => {}
        }
    }

    /// Passes output on to the caller, until one of the two goes away.
    async fn drain(
        &mut self,
        mut incoming: impl Incoming,
        first: Bytes,
        to_caller: DuplexStream,
    ) -> Result<StreamEnd, StreamError> {
        let mut to_caller = Some(to_caller);
        let mut next = Some(Heard::Out(first));
        while let Some(heard) = next {
            match heard {
                Heard::Closed => {
                    let (head, tail) = self.words.parts();
                    let words = [head, tail].concat();
                    return match self.exit {
                        Some(exit_code) => Ok(StreamEnd {
                            exit_code,
                            words: clean_line(&String::from_utf8_lossy(&words), KEPT_WORDS),
                        }),
                        None => Err(StreamError::Broken),
                    };
                }
                Heard::NoMoreOutput => to_caller = None,
                Heard::Out(data) => {
                    if let Some(caller) = &mut to_caller
                        && caller.write_all(&data).await.is_err()
                    {
                        return Err(StreamError::Broken);
                    }
                }
                heard => self.take_note(heard),
            }
            next = incoming.next().await;
        }
        Err(StreamError::Broken)
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
