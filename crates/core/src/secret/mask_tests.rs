use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn pushed(stream: &mut MaskStream, chunk: &str) -> String {
    let mut out = Vec::new();
    stream.push(chunk.as_bytes(), &mut out);
    String::from_utf8(out).unwrap()
}

fn finished(stream: &mut MaskStream) -> String {
    let mut out = Vec::new();
    stream.finish(&mut out);
    String::from_utf8(out).unwrap()
}

#[rstest]
#[case(&["hunter22"], "a hunter22 b", "a [masked] b")]
#[case(&["hunter22"], "hunter22hunter22", "[masked][masked]")]
#[case(&["short"], "short", "short")]
#[case(&["éééééééé"], "<éééééééé>", "<[masked]>")]
#[case(&["abcdefgh", "efghijkl"], "abcdefghijkl.", "[masked].")]
#[case(&["abcdefgh", "XXabcdefghYY"], "XXabcdefghYZ", "XX[masked]YZ")]
#[case(&["abcdefgh", "XXabcdefghYY"], "XXabcdefghYY", "[masked]")]
#[case(&["first line\nshort\nthird line"], "first line\r\nshort\r\nthird line", "[masked]\r\nshort\r\n[masked]")]
#[case(&["first line\nx\nthird line"], "<first line\nx\nthird line>", "<[masked]>")]
#[case(&["hunter22\n"], "hunter22\nnext", "[masked]\nnext")]
fn mask_text_hides_secrets(#[case] secrets: &[&str], #[case] text: &str, #[case] wanted: &str) {
    let mask = Mask::new(secrets);
    assert_eq!(mask.mask_text(text), wanted);
    assert_eq!(mask.mask_bytes(text.as_bytes()), wanted.as_bytes());
}

#[test]
fn mask_text_borrows_when_nothing_is_hidden() {
    let mask = Mask::new(["hunter22"]);
    assert!(matches!(mask.mask_text("plain"), Cow::Borrowed("plain")));
    assert!(matches!(
        Mask::default().mask_text("hunter22"),
        Cow::Borrowed("hunter22")
    ));
}

#[test]
fn mask_bytes_hides_secrets_when_the_rest_is_not_text() {
    let mask = Mask::new(["hunter22"]);
    assert_eq!(
        &*mask.mask_bytes(b"\xff\xfehunter22\xff"),
        b"\xff\xfe[masked]\xff"
    );
}

#[test]
fn learned_secret_is_masked_by_clones_and_running_streams() {
    let mask = Mask::default();
    let clone = mask.clone();
    let mut stream = mask.stream();
    assert_eq!(pushed(&mut stream, "hunter22 "), "hunter22 ");
    clone.learn("hunter22");
    clone.learn("hunter22");
    clone.learn("tiny");
    clone.learn("correct horse");
    assert_eq!(pushed(&mut stream, "hunter22 "), "[masked] ");
    assert_eq!(mask.mask_text("correct horse tiny"), "[masked] tiny");
    assert_eq!(format!("{mask:?}"), "Mask(2 patterns)");
}

#[test]
fn mask_stays_usable_when_a_thread_panicked_with_the_lock() {
    let mask = Mask::new(["hunter22"]);
    let clone = mask.clone();
    let _ = std::thread::spawn(move || {
        let _guard = clone.matcher.write().unwrap();
        panic!("poisons the lock");
    })
    .join();
    mask.learn("correct horse");
    assert_eq!(
        mask.mask_text("hunter22 correct horse"),
        "[masked] [masked]"
    );
}

#[test]
fn stream_passes_bytes_at_once_when_no_secret_can_begin_there() {
    let mut stream = Mask::new(["hunter22"]).stream();
    assert_eq!(pushed(&mut stream, "prompt$ "), "prompt$ ");
    assert_eq!(pushed(&mut stream, "x hunt"), "x ");
    assert_eq!(pushed(&mut stream, "ing"), "hunting");
    assert_eq!(finished(&mut stream), "");
}

#[test]
fn stream_shows_the_mark_at_once_when_a_secret_is_complete() {
    let mut stream = Mask::new(["hunter22"]).stream();
    assert_eq!(pushed(&mut stream, "<hunt"), "<");
    assert_eq!(pushed(&mut stream, "er22"), "[masked]");
    assert_eq!(pushed(&mut stream, ">"), ">");
}

#[test]
fn stream_gives_the_held_bytes_when_it_ends() {
    let mut stream = Mask::new(["hunter22"]).stream();
    assert_eq!(pushed(&mut stream, "hunter2"), "");
    assert_eq!(finished(&mut stream), "hunter2");
    assert_eq!(finished(&mut stream), "");
}

#[test]
fn stream_holds_few_bytes_when_the_output_repeats_a_secret_forever() {
    let mut stream = Mask::new(["aaaaaaaa"]).stream();
    let mut out = Vec::new();
    for _ in 0..10_000 {
        stream.push(b"aaaaa", &mut out);
        assert!(stream.pending.len() < 8);
    }
    stream.finish(&mut out);
    assert_eq!(out, MASKED.as_bytes());
}

fn secrets() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec("[ab]{8,11}|[ab]{4}é[ab]{4}|a{8}", 0..5)
}

fn pieces() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec("[ab]{0,14}|a{0,20}|[abé]{0,9}", 0..12)
}

#[test]
fn texts_within_json_are_masked_and_the_rest_stays() {
    let mask = Mask::new(["quoted\"secret"]);
    let mut value = serde_json::json!({"n": 1, "list": ["a quoted\"secret b", {"deep": "quoted\"secret"}], "no": null});
    mask.mask_json(&mut value);
    let wanted =
        serde_json::json!({"n": 1, "list": ["a [masked] b", {"deep": "[masked]"}], "no": null});
    assert_eq!(value, wanted);
}

proptest! {
    #[test]
    fn stream_equals_the_mask_of_the_whole_however_it_is_cut(
        secrets in secrets(), pieces in pieces(), planted in 0usize..5, step in 1usize..7,
    ) {
        let mut whole = pieces.concat();
        if let Some(secret) = secrets.get(planted) {
            whole.push_str(secret);
            whole.push_str(&pieces.concat());
        }
        let mask = Mask::new(&secrets);
        let wanted = mask.mask_text(&whole).into_owned();

        let mut stream = mask.stream();
        let mut by_step = Vec::new();
        for chunk in whole.as_bytes().chunks(step) {
            stream.push(chunk, &mut by_step);
        }
        stream.finish(&mut by_step);
        prop_assert_eq!(String::from_utf8(by_step).unwrap(), wanted.as_str());

        for secret in &secrets {
            prop_assert!(!wanted.contains(secret.as_str()));
        }
    }

    #[test]
    fn automaton_and_plain_search_agree(secrets in secrets(), pieces in pieces()) {
        let whole = pieces.concat();
        let mut patterns = Vec::new();
        for secret in &secrets {
            add_patterns(&mut patterns, secret);
        }
        if let Some(matcher) = Matcher::build(patterns) {
            prop_assert!(matcher.automaton.is_some());
            prop_assert_eq!(
                matcher.spans(whole.as_bytes()),
                matcher.spans_one_by_one(whole.as_bytes())
            );
        }
    }
}
