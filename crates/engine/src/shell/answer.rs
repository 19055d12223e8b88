//! Collects what a short script of ours prints.

use remote_sandbox_core::output::HeadTail;

use super::{Heard, Incoming, Outgoing};

/// Most bytes of a script's answer that are kept.
const LONGEST_ANSWER: usize = 4 * 1024 * 1024;

/// How a script ended.
pub(crate) enum Answer {
    /// It ran to its end and printed this.
    Whole(Vec<u8>),
    /// It printed this and its last words; the channel is still open.
    Said(Vec<u8>),
    /// The channel was closed, or the connection went away, before the script had ended.
    Broken,
    /// No shell was started for it; the channel is still open.
    Refused,
}

/// The words after which a script says nothing that matters: whoever knows them need not wait for its end.
#[derive(Debug, Clone)]
pub(crate) struct LastWords {
    words: Vec<u8>,
    tail: Vec<u8>,
}

impl LastWords {
    /// They must be such that nobody else can say them.
    pub(crate) fn new(words: &str) -> Self {
        LastWords {
            words: words.as_bytes().to_vec(),
            tail: Vec::new(),
        }
    }

    /// Takes what was said next; whether these were the last words.
    fn are_heard(&mut self, data: &[u8]) -> bool {
        let data = data
            .len()
            .checked_sub(self.words.len())
            .and_then(|from| data.get(from..))
            .unwrap_or(data);
        self.tail.extend_from_slice(data);
        let too_many = self.tail.len().saturating_sub(self.words.len());
        self.tail.drain(..too_many);
        self.tail == self.words
    }
}

/// Sends a script as the whole input of a shell and listens to its end, or to its last words.
pub(crate) async fn collect_answer(
    incoming: &mut impl Incoming,
    outgoing: &impl Outgoing,
    script: String,
    mut last: Option<LastWords>,
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
                Heard::Out(data) => {
                    answer.push(&data);
                    if last.as_mut().is_some_and(|last| last.are_heard(&data)) {
                        return Answer::Said(answer.parts().0);
                    }
                }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn last_words_are_heard_however_they_come(
            before in prop::collection::vec(any::<u8>(), 0..40), pieces in prop::collection::vec(1_usize..9, 1..40),
        ) {
            let said = [before.as_slice(), b"RSMCP:abc:over\n"].concat();
            let mut last = LastWords::new("RSMCP:abc:over\n");
            let mut rest = said.as_slice();
            let mut pieces = pieces.into_iter().cycle();
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(pieces.next().unwrap_or(1).min(rest.len()));
                prop_assert_eq!(last.are_heard(piece), behind.is_empty());
                rest = behind;
            }
            prop_assert!(!last.are_heard(b"and more"));
        }
    }
}
