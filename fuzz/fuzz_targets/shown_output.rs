#![no_main]

use libfuzzer_sys::fuzz_target;
use remote_sandbox_core::output::{HeadTail, clean_text, shape};
use remote_sandbox_core::secret::Mask;

// A command's output on its way into a reply.
fuzz_target!(|input: (Vec<Vec<u8>>, Vec<u8>, u16, u16)| {
    let (stdout, stderr, limit, budget) = input;
    let mask = Mask::new(["canary-secret"]);
    let mut stream = mask.stream();
    let mut out = HeadTail::new(usize::from(limit));
    let mut clean = Vec::new();
    for chunk in &stdout {
        stream.push(chunk, &mut clean);
    }
    stream.finish(&mut clean);
    assert!(!clean.windows(13).any(|window| window == b"canary-secret"));
    out.push(&clean);
    let mut err = HeadTail::new(usize::from(limit));
    err.push(&stderr);
    let shaped = shape(&out, &err, usize::from(budget));
    assert!(!clean_text(&stdout.concat()).contains('\u{1b}'));
    assert!(shaped.stdout.chars().count() <= usize::from(budget) + 60);
});
