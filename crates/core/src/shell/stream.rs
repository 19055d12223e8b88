//! The script that gives the two directions of a channel to one program.

use super::quote;
use crate::ids::RunToken;

/// Becomes a program whose standard input is everything that is sent after the marker has come, and
/// whose output everything after it. The braces make `sh` read all of it before it runs any of it, and
/// nothing more is sent until it says so, for a shell may read ahead.
pub fn stream_script(token: &RunToken, arguments: &[&str]) -> String {
    let words: Vec<String> = arguments.iter().map(|word| quote(word)).collect();
    let words = words.join(" ");
    format!(
        "{{\nprintf '%s\\n' RSMCP:{token}:B:$$:0:0:n:; printf '%s\\n' RSMCP:{token}:B:$$:0:0:n: >&2\nexec {words}\nexit 127\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::shell::Gate;

    #[test]
    fn program_gets_the_bytes_after_the_script_and_the_gate_removes_the_marker() {
        let token = RunToken::from_uuid_bytes([7; 16]);
        let script = stream_script(&token, &["cat", "-"]);
        let mut child = Command::new("sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(script.as_bytes()).unwrap();
        // The script is the whole of what can be read until the program runs.
        std::thread::sleep(std::time::Duration::from_millis(300));
        input.write_all(b"one\0two\n").unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        let mut gate = Gate::new(&token);
        assert_eq!(gate.pass(&output.stdout).as_ref(), b"one\0two\n");
    }

    #[test]
    fn arguments_stand_for_themselves() {
        let token = RunToken::from_uuid_bytes([7; 16]);
        let script = stream_script(&token, &["tar", "-C", "a b'$(c)", "-x"]);
        assert!(
            script.contains(r"exec 'tar' '-C' 'a b'\''$(c)' '-x'"),
            "{script}"
        );
    }
}
