use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use reading::words_of_exec;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::config::Environment;

const CANARY: &str = "canary-hunter2-canary";

/// Everything that has a meaning to a shell, to XML or to systemd.
const NASTY: &str = "/h ö/a&b<c>d%n$HOME${X}\"q\"'s'\\t;#";

fn environment(entries: &[(&str, &str)]) -> Environment {
    let owned = entries
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    owned.collect()
}

fn described(folder: &str, config: Option<&str>) -> ServiceDescription {
    let environment = environment(&[
        ("HOME", folder),
        ("PATH", &format!("{folder}/bin:/usr/bin")),
        ("LANG", "de_DE.UTF-8"),
        ("REMOTE_PASSWORD", CANARY),
        ("REMOTE_SANDBOX_LIST", CANARY),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("XDG_STATE_HOME", ""),
    ]);
    let program = PathBuf::from(format!(
        "{folder}/bin/remote-sandbox-mcp-1.2.3-0123456789ab"
    ));
    let log = PathBuf::from(format!("{folder}/service/watchdog.log"));
    ServiceDescription::watchdog(&program, &log, config.map(Path::new), &environment).unwrap()
}

/// How systemd reads a command line, for tests: quotes, escapes, specifiers, variables.
mod reading {
    pub(super) fn words_of_exec(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        let mut letters = line.chars().peekable();
        while let Some(first) = letters.next() {
            let mut word = String::new();
            match first {
                ' ' => continue,
                '"' => loop {
                    match letters.next().expect("a closing quote") {
                        '"' => break,
                        '\\' => word.push(letters.next().expect("an escaped letter")),
                        letter => word.push(letter),
                    }
                },
                letter => {
                    word.push(letter);
                    while let Some(letter) = letters.next_if(|letter| *letter != ' ') {
                        word.push(letter);
                    }
                }
            }
            words.push(word.replace("%%", "%").replace("$$", "$"));
        }
        words
    }
}

fn line_of<'a>(text: &'a str, key: &str) -> &'a str {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(key));
    lines.next().unwrap()
}

#[test]
fn property_list_is_as_launchd_wants_it() {
    let service = described("/Users/me", Some("/Users/me/config.toml"));
    insta::assert_snapshot!(plist(&service));
}

#[test]
fn unit_is_as_systemd_wants_it() {
    let service = described("/home/me", None);
    insta::assert_snapshot!(unit(&service));
}

#[test]
fn unit_of_a_nasty_folder_is_read_back_as_it_was_meant() {
    let config = format!("{NASTY}/config.toml");
    let service = described(NASTY, Some(&config));
    let text = unit(&service);
    let words = words_of_exec(line_of(&text, "ExecStart="));
    assert_eq!(&words[..3], ["/bin/sh", "-c", "exec \"$0\" \"$@\""]);
    assert_eq!(words[3], service.program());
    assert_eq!(&words[4..], service.arguments());
    let home = line_of(&text, "Environment=\"HOME=");
    let home = home.strip_suffix('"').unwrap();
    let home = home.replace("\\\"", "\"").replace("\\\\", "\\");
    assert_eq!(home.replace("%%", "%"), NASTY);
    for line in text.lines() {
        let specifiers = line.replace("%%", "");
        assert!(!specifiers.contains('%'), "{line}");
    }
}

#[test]
fn program_of_a_plain_folder_is_started_without_a_shell() {
    let text = unit(&described("/home/me with space/100%", None));
    let words = words_of_exec(line_of(&text, "ExecStart="));
    let program = "/home/me with space/100%/bin/remote-sandbox-mcp-1.2.3-0123456789ab";
    assert_eq!(words, [program, "watchdog", "run"]);
    assert!(text.contains("100%%/bin/"));
}

/// What a real reader of property lists makes of ours; none where there is no Python.
fn read_plist(text: &str) -> Option<Value> {
    let script = "import json,plistlib,sys;print(json.dumps(plistlib.loads(sys.argv[1].encode())))";
    let output = Command::new("python3").args(["-c", script, text]).output();
    let output = output.ok().filter(|output| output.status.success())?;
    serde_json::from_slice(&output.stdout).ok()
}

#[test]
fn property_list_of_a_nasty_folder_is_read_back_as_it_was_meant() {
    if read_plist("<plist><dict/></plist>").is_none() {
        return eprintln!("SKIP: there is no python3 to read property lists with");
    }
    let config = format!("{NASTY}/config.toml");
    let service = described(NASTY, Some(&config));
    let read = read_plist(&plist(&service)).unwrap();
    let words = [
        service.program(),
        "watchdog",
        "run",
        "--config",
        config.as_str(),
    ];
    assert_eq!(read["ProgramArguments"], json!(words));
    assert_eq!(read["EnvironmentVariables"]["HOME"], NASTY);
    assert_eq!(read["StandardErrorPath"], service.log());
    assert_eq!(read["Label"], LAUNCHD_LABEL);
    assert_eq!(read["KeepAlive"], true);
    assert_eq!(read["RunAtLoad"], true);
    assert_eq!(read["Umask"], 0o077);
}

#[test]
fn unit_of_a_nasty_folder_is_taken_by_systemd_itself() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join(NASTY.trim_start_matches('/'));
    std::fs::create_dir_all(&home).unwrap();
    let text = unit(&described(home.to_str().unwrap(), None));
    let file = folder.path().join(SYSTEMD_UNIT);
    let judge = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new("systemd-analyze");
        command.args(["--user", "verify"]).arg(&file);
        let output = command.env("XDG_RUNTIME_DIR", folder.path()).output();
        output.map(|output| (output.status.success(), output.stderr))
    };
    // Without a judge that refuses what is wrong, its approval is worth nothing.
    let wrong = "[Service]\nExecStart=\"/a\\\"b\"\n";
    if !judge(wrong).is_ok_and(|(is_fine, _)| !is_fine) || !judge_approves_true(&judge) {
        return eprintln!("SKIP: there is no systemd-analyze that works here");
    }
    let (is_fine, said) = judge(&text).unwrap();
    assert!(is_fine, "{}", String::from_utf8_lossy(&said));
}

fn judge_approves_true(judge: &impl Fn(&str) -> std::io::Result<(bool, Vec<u8>)>) -> bool {
    judge("[Service]\nExecStart=/bin/true\n").is_ok_and(|(is_fine, _)| is_fine)
}

#[test]
fn no_secret_is_in_any_description() {
    let service = described("/home/me", None);
    let environment = environment(&[
        ("HOME", "/home/me"),
        ("REMOTE_PASSWORD", CANARY),
        ("SSH_AUTH_SOCK", "/run/agent"),
    ]);
    let lone = service.variables_of_a_lone_process(&environment);
    assert!(lone.contains(&("SSH_AUTH_SOCK".to_owned(), "/run/agent".to_owned())));
    for text in [unit(&service), plist(&service), format!("{lone:?}")] {
        assert!(!text.contains(CANARY), "{text}");
    }
    assert!(!unit(&service).contains("SSH_AUTH_SOCK"));
    assert!(!unit(&service).contains("XDG_STATE_HOME"), "it is empty");
}

#[rstest]
#[case::line_break("/home/a\nb")]
#[case::carriage_return("/home/a\rb")]
#[case::escape("/home/a\u{1b}b")]
#[case::no_xml_character("/home/a\u{ffff}b")]
fn what_would_end_a_line_is_refused(#[case] home: &str) {
    let environment = environment(&[("HOME", home)]);
    let described = |program: &str, log: &str, config: Option<&str>| {
        let config = config.map(Path::new);
        ServiceDescription::watchdog(Path::new(program), Path::new(log), config, &environment)
    };
    let control = |what: &str| Err(DescriptionError::ControlCharacter(what.to_owned()));
    assert_eq!(described("/p", "/l", None), control("the variable HOME"));
    assert_eq!(
        described("/p", "/l", Some(home)),
        control("the path of the configuration file")
    );
}

#[test]
fn path_that_depends_on_a_folder_is_refused() {
    let home = environment(&[("HOME", "/home/me")]);
    let described = |program: &str, config: Option<&str>, home: &Environment| {
        let config = config.map(Path::new);
        ServiceDescription::watchdog(Path::new(program), Path::new("/l"), config, home)
    };
    let relative = |what| Err(DescriptionError::Relative(what));
    assert_eq!(
        described("p", None, &home),
        relative("the path of the program")
    );
    assert_eq!(
        described("/p", Some("c.toml"), &home),
        relative("the path of the configuration file")
    );
    let none = Err(DescriptionError::NoHome);
    assert_eq!(described("/p", None, &BTreeMap::new()), none);
    assert_eq!(described("/p", None, &environment(&[("HOME", "x")])), none);
}

#[test]
fn copy_is_found_in_every_text_that_names_it() {
    let service = described("/x/remote-sandbox-mcp-data", None);
    let expected = CopyName::parse("remote-sandbox-mcp-1.2.3-0123456789ab");
    assert!(expected.is_some());
    assert_eq!(CopyName::named_in(&unit(&service)), expected);
    assert_eq!(CopyName::named_in(&plist(&service)), expected);
    let record = json!({ "program": service.program() }).to_string();
    assert_eq!(CopyName::named_in(&record), expected);
    assert_eq!(
        CopyName::named_in("ExecStart=/usr/bin/remote-sandbox-mcp"),
        None
    );
}

#[rstest]
#[case("remote-sandbox-mcp-1.2.3")]
#[case("remote-sandbox-mcp-1.2.3-0123456789aB")]
#[case("remote-sandbox-mcp-1.2.3-0123456789ab.tmp")]
#[case("remote-sandbox-mcp-data-0123456789ab")]
#[case("remote-sandbox-mcp-1/2-0123456789ab")]
#[case("other-1.2.3-0123456789ab")]
fn what_is_no_copy_is_not_taken_for_one(#[case] name: &str) {
    assert_eq!(CopyName::parse(name), None);
}

#[rstest]
#[case("0.9.9", "0.10.0", true)]
#[case("1.0.0-rc.1", "1.0.0", true)]
#[case("1.0.0", "1.0.0", false)]
#[case("1.0.0", "1.0.0-rc.1", false)]
#[case("2.0.0", "1.9.9", false)]
#[case("1.0", "1.0.1", false)]
fn older_copy_is_told_by_its_version(
    #[case] version: &str,
    #[case] other: &str,
    #[case] is_older: bool,
) {
    let name = CopyName::new(version, &[0xab; 32]);
    assert_eq!(
        name.to_string(),
        format!("remote-sandbox-mcp-{version}-abababababab")
    );
    assert_eq!(name.is_older_than(other), is_older);
}

#[test]
fn launchd_is_understood() {
    let said = "gui/501/com.remote-sandbox-mcp.watchdog = {\n\tactive count = 1\n\tstate = running\n\n\
        \tendpoints = {\n\t\tstate = none\n\t\tpid = 7\n\t}\n\tpid = 4242\n\tspawn type = daemon (3)\n}\n";
    let state = LaunchdState::from_print(said);
    assert_eq!(state.state.as_deref(), Some("running"));
    assert_eq!((state.pid, state.is_running()), (Some(4242), true));
    let waiting = LaunchdState::from_print("x = {\n\tstate = not running\n}\n");
    assert!(!waiting.is_running());
    let listed = LaunchdState::from_list("{\n\t\"Label\" = \"x\";\n\t\"PID\" = 99;\n};\n");
    assert_eq!(listed.pid, Some(99));
    assert!(!LaunchdState::from_list("{\n\t\"LastExitStatus\" = 256;\n};\n").is_running());
}

#[test]
fn systemd_is_understood() {
    let said = "ActiveState=active\nSubState=running\nUnitFileState=enabled\nMainPID=4242\n";
    let state = SystemdState::from_show(said);
    assert!(state.is_running());
    assert_eq!((state.pid, state.file.as_str()), (Some(4242), "enabled"));
    let restarting = "ActiveState=activating\nSubState=auto-restart\nMainPID=0\n";
    let state = SystemdState::from_show(restarting);
    assert_eq!((state.is_running(), state.pid), (false, None));
    assert!(linger_is_off("Linger=no\n"));
    assert!(!linger_is_off("Linger=yes\n") && !linger_is_off(""));
}

proptest! {
    #[test]
    fn every_folder_is_read_back_from_a_unit(folder in "/[^\\p{C}/]{1,24}") {
        let service = described(&folder, Some(&folder));
        let text = unit(&service);
        let words = words_of_exec(line_of(&text, "ExecStart="));
        prop_assert!(words.contains(&service.program().to_owned()));
        prop_assert_eq!(words.last(), Some(&folder));
    }
}
