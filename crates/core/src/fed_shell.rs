//! Runs scripts in tests as a host would: on the standard input of a shell.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Feeds a script to a program and collects all it says; whoever ends early need not read it whole.
pub(crate) fn feed(mut command: Command, script: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let script = script.to_owned();
    let writer = std::thread::spawn(move || {
        let _ = input.write_all(script.as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}
