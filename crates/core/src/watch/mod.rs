//! Events of watches: what they say, to whom they go, and what may be done with them.
//!
//! Whatever a host wrote is data here: it is cut, cleaned and fenced before a person or another agent sees it.

mod address;
mod delivery;
mod event;
mod glimpse;
mod notice;
mod policy;
mod prompt;

pub use address::{
    AddressKind, HostPort, WebAddress, WebAddressError, judge_address, usable_addresses,
};
pub use delivery::{Channel, MOST_TRIES, channels, is_for_people, next_try, wakes};
pub use event::{EventDraft, EventRecord, EventType, LONGEST_EVENT_TEXT, WatchFacts, summary};
pub use glimpse::{
    CheckpointGlimpse, LONGEST_TAIL, broken_line, checkpoint_glimpse, digest, joined_tail,
    next_scan,
};
pub use notice::{
    Notice, NotifierKind, NotifierRequest, RequestError, ServiceReply, Weight, signature,
    text_for_people,
};
pub use policy::{AllowEvents, EventPolicy, PolicyRefusal};
pub use prompt::{LONGEST_PROMPT, fenced, prompt};

/// The end of a text, at most so many bytes, beginning with a whole character.
fn last_bytes(text: &str, most: usize) -> &str {
    let from = text.len().saturating_sub(most);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at));
    from.and_then(|from| text.get(from..)).unwrap_or_default()
}

/// The beginning of a text, at most so many bytes, ending with a whole character.
fn first_bytes(text: &str, most: usize) -> &str {
    let to = (0..=most.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    to.and_then(|to| text.get(..to)).unwrap_or_default()
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_ends_of_a_text_are_whole_characters_within_the_bound(text in ".{0,60}", most in 0_usize..80) {
            let (first, last) = (first_bytes(&text, most), last_bytes(&text, most));
            prop_assert!(first.len() <= most && text.starts_with(first));
            prop_assert!(last.len() <= most && text.ends_with(last));
            prop_assert!(first.len() + 4 > most.min(text.len()) && last.len() + 4 > most.min(text.len()));
        }
    }
}
