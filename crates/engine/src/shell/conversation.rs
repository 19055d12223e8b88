//! One command on one channel, from the script that is sent to the end that is told.

use std::time::Duration;

use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::outcome::{LeftRunning, Outcome};
use remote_sandbox_core::output::{clean_line, clean_text};
use remote_sandbox_core::shell::{Gate, ShellAge, Started, Target};

use super::interruption::{silence, stopped};
use super::{Carrier, Heard, Incoming, NotStarted, NotTaken, Outgoing, Signal, left_running};
use crate::clock;
use crate::sandbox::{Ended, Event, Order, Sink, Stream};

/// How long background children may keep the pipe before the reply is made without them.
const PIPE_PATIENCE: Duration = Duration::from_millis(200);

/// The same where processes are known to hold the pipe, and how long it may take then.
const SHORT_QUIET: Duration = Duration::from_millis(50);
const HELD_LIMIT: Duration = Duration::from_secs(3);

/// Silence after which the host is asked whether it has anything more to send.
const QUIET: Duration = Duration::from_secs(1);

/// Time between TERM and KILL.
const TERM_PATIENCE: Duration = Duration::from_secs(2);

/// How long the end of a killed shell may take to be told.
const KILL_PATIENCE: Duration = Duration::from_millis(200);

/// More than this cannot be under way when a command has ended: the window and what the host holds.
const MOST_UNDER_WAY: u64 = 64 << 20;

/// How long handing a signal to the connection may take.
const SIGNAL_LIMIT: Duration = Duration::from_millis(40);

/// The end of a channel may be seen a moment before the end of its connection.
const FAREWELL_LIMIT: Duration = Duration::from_millis(100);

/// Lines that are shown of what a sandbox's own beginning printed before it failed.
const MOST_WORDS: usize = 20;

/// The end of a run whose connection broke.
fn lost(carrier: &impl Carrier) -> Ended {
    Ended {
        outcome: Outcome::LinkLost,
        left_running: LeftRunning::Unknown,
        detail: Some(carrier.farewell()),
    }
}

/// What has been said so far on the channel of a run.
pub(crate) struct Conversation<'a, C, I> {
    out: Gate,
    err: Gate,
    exit: Option<Outcome>,
    /// Whether the host said that no more output comes.
    whole: bool,
    /// Whether the host stopped answering before that.
    cut: bool,
    /// Bytes of both streams so far.
    received: u64,
    closed: bool,
    /// Whether the connection ended before the channel was closed.
    broken: bool,
    refused: bool,
    carrier: &'a C,
    sink: &'a Sink,
    target: Target,
    incoming: I,
    age: ShellAge,
}

/// What ended the first part of a conversation.
enum Turn {
    /// The channel is closed, or the connection gone.
    Closed,
    /// The command has ended, its pipe has not.
    PipeHeld,
    /// We have to end it.
    Interrupt(Outcome),
    /// The host does not answer any more.
    Silent,
}

impl<'a, C: Carrier, I: Incoming> Conversation<'a, C, I> {
    /// A conversation in which nothing was said yet.
    pub(crate) fn new(
        token: &RunToken,
        carrier: &'a C,
        sink: &'a Sink,
        incoming: I,
        age: ShellAge,
    ) -> Self {
        Conversation {
            out: Gate::new(token),
            err: Gate::new(token),
            exit: None,
            whole: false,
            cut: false,
            received: 0,
            closed: false,
            broken: false,
            refused: false,
            carrier,
            sink,
            target: Target {
                token: token.clone(),
                started: None,
            },
            incoming,
            age,
        }
    }

    /// Sends the script and listens to the end; also gives back a channel that is still open.
    pub(crate) async fn hold(
        mut self,
        order: &mut Order,
        outgoing: &C::Outgoing,
        script: String,
    ) -> (Option<I>, Result<Ended, NotStarted>) {
        let send = async {
            outgoing.send(script).await?;
            outgoing.finish().await
        };
        tokio::pin!(send);
        let turn = self.listen(order, send).await;
        let ended = match turn {
            Turn::Closed => {
                if self.exit.is_none() {
                    self.carrier.wait_for_end(FAREWELL_LIMIT).await;
                }
                let left = self.look_after_close(order).await;
                self.conclude(order, left)
            }
            Turn::PipeHeld => {
                let mut left = self.wait_for_pipe(order).await;
                if left == LeftRunning::Nothing {
                    left = self.look_after_close(order).await;
                }
                self.conclude(order, left)
            }
            Turn::Silent => Ok(lost(self.carrier)),
            Turn::Interrupt(outcome) => {
                let left_running = self.end_processes(outgoing).await;
                Ok(Ended {
                    outcome,
                    left_running,
                    detail: None,
                })
            }
        };
        ((!self.closed).then_some(self.incoming), ended)
    }

    /// Passes output on until something ends it.
    async fn listen(
        &mut self,
        order: &mut Order,
        mut send: std::pin::Pin<&mut impl Future<Output = Result<(), NotTaken>>>,
    ) -> Turn {
        let mut sent = false;
        let deadline = order.deadline;
        let silence = silence(self.carrier, self.age);
        tokio::pin!(silence);
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(deadline) => return Turn::Interrupt(Outcome::TimedOut),
                reason = stopped(&mut order.stop) => return Turn::Interrupt(Outcome::Ended(reason)),
                _ = &mut send, if !sent => sent = true,
                () = &mut silence, if !self.out.is_acknowledged() => return Turn::Silent,
                heard = self.incoming.next() => {
                    self.take(heard);
                    if self.closed {
                        return Turn::Closed;
                    }
                    if self.exit.is_some() {
                        return Turn::PipeHeld;
                    }
                }
            }
        }
    }

    /// Some servers close a channel although somebody holds it; there the host is asked who.
    async fn look_after_close(&self, order: &mut Order) -> LeftRunning {
        let asks = |started: Started| started.closes_early && self.exit.is_some();
        if !self.target.started.is_some_and(asks) {
            return LeftRunning::Nothing;
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(order.deadline) => LeftRunning::Unknown,
            _ = stopped(&mut order.stop) => LeftRunning::Unknown,
            left = self.carrier.find(&self.target) => left.unwrap_or(LeftRunning::Unknown),
        }
    }

    /// The command has ended: takes what is still under way, and asks who holds the pipe when it
    /// stays open. The deadline and a request to stop hold here too.
    async fn wait_for_pipe(&mut self, order: &mut Order) -> LeftRunning {
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(order.deadline) => LeftRunning::Unknown,
            _ = stopped(&mut order.stop) => LeftRunning::Unknown,
            left = self.settle_pipe() => left,
        }
    }

    async fn settle_pipe(&mut self) -> LeftRunning {
        if self.drain_until(clock::instant() + PIPE_PATIENCE).await {
            return LeftRunning::Nothing;
        }
        let (carrier, target) = (self.carrier, self.target.clone());
        let looked = {
            let looking = carrier.find(&target);
            tokio::pin!(looking);
            loop {
                tokio::select! {
                    left = &mut looking => break left,
                    heard = self.incoming.next(), if !self.closed => self.take(heard),
                }
            }
        };
        if let Some(LeftRunning::Processes(processes)) = looked {
            // What the command itself has left in the pipe is little, but they may write for ever.
            let rest = self.drain_while_it_flows(SHORT_QUIET);
            let _ = tokio::time::timeout(HELD_LIMIT, rest).await;
            return LeftRunning::Processes(processes);
        }
        if self.drain_while_it_flows(QUIET).await {
            LeftRunning::Nothing
        } else {
            // A process that shed every mark of the run has the pipe.
            LeftRunning::Unknown
        }
    }

    /// Takes the rest of the output, which may only be slow: losing it would be a lie. It is over when
    /// the channel is silent although the connection answers, for an answer does not overtake output.
    /// Says whether the channel is closed.
    async fn drain_while_it_flows(&mut self, quiet: Duration) -> bool {
        let carrier = self.carrier;
        let before = self.received;
        while !self.closed && self.received - before < MOST_UNDER_WAY {
            let silent = async {
                tokio::time::sleep(quiet).await;
                carrier.answers().await
            };
            tokio::select! {
                biased;
                heard = self.incoming.next() => self.take(heard),
                answers = silent => {
                    self.cut = !answers;
                    break;
                }
            }
        }
        self.closed
    }

    /// Takes messages until the channel is closed or the time has come; says whether it is closed.
    async fn drain_until(&mut self, until: tokio::time::Instant) -> bool {
        let drain = async {
            while !self.closed {
                let heard = self.incoming.next().await;
                self.take(heard);
            }
        };
        tokio::time::timeout_at(until, drain).await.is_ok()
    }

    async fn end_processes(&mut self, outgoing: &C::Outgoing) -> LeftRunning {
        let (carrier, target) = (self.carrier, self.target.clone());
        let patience = clock::instant() + TERM_PATIENCE;
        if target.started.is_none() {
            // Login files still run, and the command would after them: only the server has hold
            // of that process.
            signal(outgoing, Signal::Term).await;
        }
        let report = {
            let ending = carrier.end(&target, outgoing);
            tokio::pin!(ending);
            loop {
                tokio::select! {
                    report = &mut ending => break report,
                    heard = self.incoming.next(), if !self.closed => self.take(heard),
                }
                if self.exit.is_some() && !self.out.is_open() {
                    return LeftRunning::Nothing;
                }
            }
        };
        let answered = report.is_some();
        let left = left_running(report);
        if target.started.is_none() && self.ends_before(patience).await {
            return LeftRunning::Nothing;
        }
        if target.started.is_none() || left == LeftRunning::Unknown {
            // For this the host need not start anything, so it works where nothing can be started.
            signal(outgoing, Signal::Kill).await;
        }
        // A host that gave no answer has used up the time there is.
        let patience = clock::instant()
            + if answered {
                KILL_PATIENCE
            } else {
                Duration::ZERO
            };
        if target.started.is_none() && !self.ends_before(patience).await {
            // It was not seen to start and not seen to end either.
            return LeftRunning::Unknown;
        }
        if left == LeftRunning::Nothing {
            self.drain_until(clock::instant() + Duration::from_millis(50))
                .await;
        }
        left
    }

    /// Whether the process that the server started ends before a point in time.
    async fn ends_before(&mut self, until: tokio::time::Instant) -> bool {
        let end = async {
            while self.exit.is_none() && !self.closed {
                let heard = self.incoming.next().await;
                self.take(heard);
            }
        };
        let _ = tokio::time::timeout_at(until, end).await;
        self.exit.is_some()
    }

    fn take(&mut self, heard: Option<Heard>) {
        match heard {
            None => {
                self.closed = true;
                self.broken = true;
            }
            Some(Heard::NoMoreOutput) => self.whole = true,
            Some(Heard::Closed) => {
                self.whole = true;
                self.closed = true;
            }
            Some(Heard::Out(data)) => {
                self.received += data.len() as u64;
                let was_open = self.out.is_open();
                let own = self.out.pass(&data);
                if !was_open && let Some(started) = self.out.started() {
                    self.target.started = Some(started);
                    self.carrier.learn_timeout_program(started.timeout_program);
                    (self.sink)(Event::Started(started));
                }
                if !own.is_empty() {
                    (self.sink)(Event::Output(Stream::Out, &own));
                }
            }
            Some(Heard::Err(data)) => {
                self.received += data.len() as u64;
                let own = self.err.pass(&data);
                if !own.is_empty() {
                    (self.sink)(Event::Output(Stream::Err, &own));
                }
            }
            Some(Heard::Refused) => {
                self.refused = true;
                self.closed = true;
            }
            Some(Heard::Exited(code)) => {
                self.exit.get_or_insert(Outcome::Exited(code));
            }
            Some(Heard::Signalled(name)) => {
                self.exit.get_or_insert(Outcome::Signalled(name));
            }
        }
    }

    /// Whether the shell ended without taking the command up. Only what was heard to its end tells
    /// that: a connection that broke may have swallowed the word.
    fn is_unused(&self) -> bool {
        let heard_to_the_end =
            self.whole && self.closed && !self.broken && self.carrier.is_connected();
        let silent = heard_to_the_end && !self.out.is_acknowledged();
        match self.age {
            ShellAge::Waiting => silent || self.refused || self.out.refused() == Some("stale"),
            // Nothing at all, not even how it ended: the host took the channel back.
            ShellAge::New => silent && self.exit.is_none() && !self.refused,
        }
    }

    /// Says how it ended, from what arrived.
    fn conclude(&self, order: &Order, left_running: LeftRunning) -> Result<Ended, NotStarted> {
        if self.is_unused() {
            return Err(NotStarted::Unused);
        }
        if self.refused {
            let words = "it refused to start a shell for this login".to_owned();
            return Err(NotStarted::Refused { words });
        }
        match (&self.exit, self.out.is_open(), self.out.refused()) {
            (_, _, Some("cwd")) => Err(NotStarted::Directory {
                cwd: clean_line(order.spec.cwd().unwrap_or_default(), 200),
                words: self.words(3),
            }),
            (_, _, Some("shell")) => Err(NotStarted::Shell {
                shell: order
                    .spec
                    .shell()
                    .map(ToString::to_string)
                    .unwrap_or_default(),
            }),
            (_, _, Some("init")) => Err(NotStarted::Init {
                words: self.words(MOST_WORDS),
            }),
            // Whatever did not arrive may have been its output, or the word that it started.
            (Some(outcome), ..) if (self.closed || self.cut) && !self.whole => Ok(Ended {
                outcome: Outcome::LinkLost,
                left_running: LeftRunning::Unknown,
                detail: Some(format!(
                    "it had ended ({}), but the end of its output did not arrive: {}",
                    ending(outcome),
                    self.carrier.farewell()
                )),
            }),
            (Some(outcome), true, _) => Ok(Ended {
                outcome: outcome.clone(),
                left_running,
                detail: None,
            }),
            (Some(_), false, _) if order.spec.has_init() && self.out.is_acknowledged() => {
                Err(NotStarted::Init {
                    words: self.words(MOST_WORDS),
                })
            }
            (Some(outcome), false, _) => {
                let how = match outcome {
                    Outcome::Exited(code) => format!("its shell ended with exit code {code}"),
                    _ => "its shell was killed".to_owned(),
                };
                Err(NotStarted::Refused {
                    words: format!("{how}: {}", self.words(3)),
                })
            }
            (None, ..) if self.carrier.is_connected() => Ok(Ended {
                outcome: Outcome::LinkLost,
                left_running: LeftRunning::Unknown,
                detail: Some("the host closed the channel without an exit status".to_owned()),
            }),
            (None, ..) => Ok(lost(self.carrier)),
        }
    }

    /// The last words on both streams before the command's own output.
    fn words(&self, most: usize) -> String {
        let noise = [self.out.noise(), self.err.noise()].concat();
        let text = clean_text(&noise);
        let lines: Vec<&str> = text
            .lines()
            // A shell that waited said so in this form.
            .filter(|line| !line.trim().is_empty() && !line.starts_with("RSMCP:"))
            .collect();
        let last = lines
            .get(lines.len().saturating_sub(most)..)
            .unwrap_or_default()
            .join("; ");
        if last.is_empty() {
            "no reason given".to_owned()
        } else {
            clean_line(&last, 200 * most)
        }
    }
}

/// Has the server signal the group of the process it started.
async fn signal(outgoing: &impl Outgoing, signal: Signal) {
    let sent = tokio::time::timeout(SIGNAL_LIMIT, outgoing.signal(signal)).await;
    if !matches!(sent, Ok(Ok(()))) {
        tracing::debug!("a signal could not be sent");
    }
}

/// An end in two words.
fn ending(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Exited(code) => format!("exit code {code}"),
        Outcome::Signalled(name) => format!("signal {name}"),
        other => other.word().to_owned(),
    }
}
