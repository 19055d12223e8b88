use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use super::*;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn mark() -> RunToken {
    RunToken::from_uuid_bytes([7; 16])
}

fn report(lines: &[&str]) -> Vec<u8> {
    let line = |line: &&str| format!("RSMCP:{}:{line}\n", mark());
    lines.iter().map(line).collect::<String>().into_bytes()
}

#[test]
fn report_is_read_with_foreign_text_around_it() {
    let mut bytes = b"welcome to the host\n".to_vec();
    bytes.extend(report(&[
        &format!("P:{TOKEN}:41:7:d:sle:ep\u{1b}[31m"),
        &format!("P:{TOKEN}:42:0:c:bash"),
        "E:2",
    ]));
    let found = parse_clean_report(&mark(), &bytes).unwrap();
    assert_eq!(
        (found[0].pid, found[0].age_s, found[0].connected),
        (41, 7, false)
    );
    assert_eq!(found[0].name, "sle:ep\\x1b[31m");
    assert!(found[1].connected);
}

#[test]
fn report_is_refused_when_it_is_not_whole_or_not_ours() {
    let cut = report(&[&format!("P:{TOKEN}:41:7:d:sleep")]);
    assert_eq!(
        parse_clean_report(&mark(), &cut),
        Err(CleanError::Incomplete)
    );
    let other = String::from_utf8(report(&["E:0"]))
        .unwrap()
        .replace("07", "08");
    let other = parse_clean_report(&mark(), other.as_bytes());
    assert_eq!(other, Err(CleanError::Incomplete));
    let hidden = parse_clean_report(&mark(), &report(&["U"]));
    assert_eq!(hidden, Err(CleanError::Hidden));
}

#[test]
fn process_line_is_left_out_when_it_cannot_be_right() {
    for wrong in [
        "P:xyz:41:7:d:a",
        "P:{TOKEN}:1:7:d:init",
        "P:",
        "P:::::",
        "Q:1",
    ] {
        let wrong = wrong.replace("{TOKEN}", TOKEN);
        let found = parse_clean_report(&mark(), &report(&[&wrong, "E:0"]));
        assert_eq!(found, Ok(Vec::new()), "{wrong}");
    }
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn carrier(token: &str) -> Ended {
    let mut command = Command::new("sleep");
    let child = command.arg("60").env("REMOTE_SANDBOX_RUN", token).spawn();
    Ended(child.unwrap())
}

fn run_with(shell: &[&str], script: &str) -> Option<Vec<u8>> {
    let mut child = Command::new(shell[0])
        .args(&shell[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(script.as_bytes()).ok()?;
    Some(child.wait_with_output().ok()?.stdout)
}

#[test]
fn script_lists_carriers_in_every_shell() {
    let token = format!("{:032x}", u128::from(std::process::id()) << 8);
    let ours = carrier(&token);
    let forged = carrier("not a token");
    let mut shells = 0;
    for shell in [&["sh"][..], &["dash"], &["bash"], &["busybox", "sh"]] {
        let Some(output) = run_with(shell, &clean_script(&mark())) else {
            eprintln!("SKIP: there is no {shell:?}");
            continue;
        };
        let found = parse_clean_report(&mark(), &output).unwrap();
        let mine = found.iter().find(|found| found.pid == ours.0.id());
        let mine = mine.unwrap_or_else(|| panic!("{shell:?} does not see it: {found:?}"));
        assert_eq!(
            (mine.token.as_str(), mine.name.as_str()),
            (&*token, "sleep")
        );
        assert!(mine.age_s < 600, "{}", mine.age_s);
        assert!(found.iter().all(|found| found.pid != forged.0.id()));
        shells += 1;
    }
    assert!(shells > 0);
}
