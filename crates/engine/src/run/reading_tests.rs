use super::*;

fn wanted(position: ReadingPosition, budget: usize) -> Wanted {
    Wanted {
        position,
        budget,
        grep: None,
    }
}

fn spool(text: &str) -> Spool {
    let mut spool = Spool::new(std::path::PathBuf::new());
    spool.push(text.as_bytes());
    spool
}

#[test]
fn reading_on_never_splits_a_character() {
    let text = "é漢😀x".repeat(50);
    let spool = spool(&text);
    for budget in 4..12 {
        let (mut since, mut seen) = (0, String::new());
        while since < spool.total() {
            let piece = read(&spool, &wanted(ReadingPosition::Since(since), budget)).unwrap();
            assert!(piece.next > since);
            seen.push_str(&piece.text);
            since = piece.next;
        }
        assert_eq!(seen, text, "budget {budget}");
    }
}

#[test]
fn last_lines_are_the_last_lines() {
    let spool = spool("a\nb\nc\nd\n");
    let last = |lines| read(&spool, &wanted(ReadingPosition::LastLines(lines), 100)).unwrap();
    assert_eq!(last(2).text, "c\nd\n");
    assert_eq!(last(99).text, "a\nb\nc\nd\n");
    assert_eq!(last(2).next, 8);
}

#[test]
fn lines_with_a_pattern_are_the_last_ones_or_the_next_ones() {
    let text: String = (0..100).map(|n| format!("step {n}\nloss {n}\n")).collect();
    let spool = spool(&text);
    let grep = |position, budget| {
        let grep = Pattern::parse("grep", "^loss").unwrap();
        let wanted = Wanted {
            position,
            budget,
            grep,
        };
        read(&spool, &wanted).unwrap()
    };
    let last = grep(ReadingPosition::LastLines(2), 100);
    assert_eq!(last.text, "loss 98\nloss 99\n");
    assert_eq!(last.next, spool.total());
    assert_eq!(grep(ReadingPosition::LastLines(9), 10).text, "loss 99\n");
    let next = grep(ReadingPosition::Since(0), 16);
    assert_eq!(next.text, "loss 0\nloss 1\n");
    assert_eq!(next.next, "step 0\nloss 0\n".len() as u64 * 2 + 7);
}

fn found(text: &str, budget: usize, pattern: &str) -> String {
    let spool = spool(text);
    let (mut since, mut seen) = (0, String::new());
    while since < spool.total() {
        let wanted = Wanted {
            position: ReadingPosition::Since(since),
            budget,
            grep: Pattern::parse("grep", pattern).unwrap(),
        };
        let piece = read(&spool, &wanted).unwrap();
        assert!(piece.next > since, "it must come on");
        assert!(piece.text.chars().count() <= budget, "{}", piece.text);
        seen.push_str(&piece.text);
        since = piece.next;
    }
    seen
}

#[test]
fn reading_on_with_a_pattern_misses_no_line() {
    let lines: Vec<String> = (0..200).map(|n| format!("hit é {n}\n")).collect();
    let text: String = lines.iter().map(|line| format!("other\n{line}")).collect();
    for budget in [12, 30, 300, 100_000] {
        assert_eq!(found(&text, budget, "hit"), lines.concat(), "{budget}");
    }
}

#[test]
fn line_longer_than_the_reply_is_cut_and_the_next_ones_come() {
    let text = format!("hit {}\nhit 2\n", "x".repeat(500));
    let seen = found(&text, 20, "^hit");
    assert!(
        seen.starts_with("hit xxx") && seen.ends_with("…\nhit 2\n"),
        "{seen}"
    );
    let wanted = Wanted {
        position: ReadingPosition::LastLines(1),
        budget: 20,
        grep: Pattern::parse("grep", "x").unwrap(),
    };
    assert!(
        read(&spool(&text), &wanted)
            .unwrap()
            .text
            .starts_with("hit x")
    );
}

#[test]
fn masked_lines_keep_their_places_when_a_secret_has_several() {
    let mask = Mask::new(["first secret line\nsecond secret line"]);
    let text = "hit 1\nfirst secret line\nsecond secret line\nhit 2\nhit 3\n";
    let wanted = Wanted {
        position: ReadingPosition::Since(0),
        budget: 12,
        grep: Pattern::parse("grep", "hit").unwrap(),
    };
    let piece = shown(text.as_bytes(), 0, text.len() as u64, &wanted, &mask);
    assert_eq!(piece.text, "hit 1\nhit 2\n");
    let rest = text.get(usize::try_from(piece.next).unwrap()..).unwrap();
    assert_eq!(rest, "hit 3\n");
}

#[test]
fn escaped_text_is_no_longer_than_what_was_asked_for() {
    let text = "\0\x1b[0m".repeat(500);
    let spool = spool(&text);
    for position in [
        ReadingPosition::Since(0),
        ReadingPosition::LastLines(usize::MAX),
    ] {
        let piece = read(&spool, &wanted(position, 1000)).unwrap();
        let shown = piece.text.chars().count();
        assert!((980..=1000).contains(&shown), "{position:?}: {shown}");
    }
    let (mut since, mut seen) = (0, String::new());
    while since < spool.total() {
        let piece = read(&spool, &wanted(ReadingPosition::Since(since), 100)).unwrap();
        seen.push_str(&piece.text);
        since = piece.next;
    }
    assert_eq!(seen, clean_text(text.as_bytes()));
}

#[test]
fn secret_is_masked_where_the_bytes_are_not_ours() {
    let mask = Mask::new(["correct horse"]);
    let bytes = b"x correct horse y\n";
    let piece = shown(bytes, 7, 25, &wanted(ReadingPosition::Since(7), 100), &mask);
    assert!(!piece.text.contains("horse"), "{}", piece.text);
    assert_eq!(piece.next, 7 + bytes.len() as u64);
}
