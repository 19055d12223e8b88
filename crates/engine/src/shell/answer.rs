//! Collects what a short script of ours prints.

use remote_sandbox_core::output::HeadTail;

use super::{Heard, Incoming, Outgoing};

/// Most bytes of a script's answer that are kept.
const LONGEST_ANSWER: usize = 4 * 1024 * 1024;

/// How a script ended.
pub(crate) enum Answer {
    /// It ran to its end and printed this.
    Whole(Vec<u8>),
    /// The channel was closed, or the connection went away, before the script had ended.
    Broken,
    /// No shell was started for it; the channel is still open.
    Refused,
}

/// Sends a script as the whole input of a shell and listens to its end.
pub(crate) async fn collect_answer(
    incoming: &mut impl Incoming,
    outgoing: &impl Outgoing,
    script: String,
) -> Answer {
    let send = async {
        outgoing.send(script).await?;
        outgoing.finish().await
    };
    let receive = async {
        let mut answer = HeadTail::new(LONGEST_ANSWER);
        let mut finished = false;
        while let Some(heard) = incoming.next().await {
            match heard {
                Heard::Out(data) => answer.push(&data),
                Heard::Refused => return Answer::Refused,
                Heard::Exited(_) | Heard::Signalled(_) => finished = true,
                Heard::Closed => break,
                Heard::Err(_) | Heard::NoMoreOutput => {}
            }
        }
        if finished {
            Answer::Whole(answer.parts().0)
        } else {
            Answer::Broken
        }
    };
    tokio::pin!(send, receive);
    // Whoever ends the channel early never takes the rest of the script.
    tokio::select! {
        answer = &mut receive => answer,
        _ = &mut send => receive.await,
    }
}
