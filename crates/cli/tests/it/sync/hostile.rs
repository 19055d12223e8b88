//! A host that lies about what it has (f55, f56, f58): its `find` and `tar` are stand-ins that say what the test wants.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use remote_sandbox_testkit::{Sshd, SshdBuilder, process};
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::stage::{Stage, Way};
use super::{problems, snapshot};
use crate::files::write;

/// A host with stand-ins for its programs, and a tree here that nobody may touch.
pub(super) struct Liar {
    pub(super) stage: Stage,
    pub(super) programs: TempDir,
    outside: PathBuf,
}

impl Liar {
    pub(super) async fn new() -> Self {
        Liar::with(Sshd::builder()).await
    }

    pub(super) async fn with(host: SshdBuilder) -> Self {
        Liar::with_programs(host, Liar::programs()).await
    }

    /// A folder for programs of the host that are found before its own.
    pub(super) fn programs() -> TempDir {
        let programs = TempDir::with_prefix("liar-").unwrap();
        fs::set_permissions(programs.path(), PermissionsExt::from_mode(0o755)).unwrap();
        programs
    }

    pub(super) async fn with_programs(host: SshdBuilder, programs: TempDir) -> Self {
        let path = format!("{}:/usr/bin:/bin", programs.path().display());
        let host = host.session_environment("PATH", &path);
        // Also what is said to be large is synced within the call.
        let variables = [("REMOTE_SANDBOX_INLINE_SYNC_MAX_BYTES", "1000000000000")];
        let stage = Stage::with(host, json!({}), &variables).await;
        fs::create_dir_all(&stage.there).unwrap();
        let outside = stage.home().join("outside");
        write(&outside.join("canary"), "untouched");
        Liar {
            stage,
            programs,
            outside,
        }
    }

    pub(super) fn program(&self, name: &str, script: &str) {
        let path = self.programs.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Lets the scan say these entries beside the true ones.
    pub(super) fn lists(&self, records: &[Vec<u8>]) {
        let lies = self.programs.path().join("lies");
        fs::write(&lies, records.concat()).unwrap();
        let script = format!(
            "/usr/bin/find \"$@\"; code=$?\ncase \"$*\" in *//device*) cat {} ;; esac\nexit $code\n",
            lies.display()
        );
        self.program("find", &script);
    }

    /// Lets every archive be this one.
    pub(super) fn packs(&self, archive: &[u8]) {
        let file = self.programs.path().join("archive");
        fs::write(&file, archive).unwrap();
        let send = format!("cat >/dev/null; cat {}", file.display());
        self.packs_by(&send);
    }

    /// Lets a script say what an archive is.
    fn packs_by(&self, send: &str) {
        let script =
            format!("case \"$1\" in -cf) {send}; exit 0 ;; esac\nexec /usr/bin/tar \"$@\"\n");
        self.program("tar", &script);
    }

    pub(super) async fn down(&self) -> Value {
        let reply = self.stage.call(Way::Down, json!({})).await;
        self.assert_untouched();
        reply.json
    }

    /// Whatever the host says, nothing outside is touched and the server lives.
    pub(super) fn assert_untouched(&self) {
        assert_eq!(snapshot(&self.outside).len(), 1);
        assert_eq!(fs::read(self.outside.join("canary")).unwrap(), b"untouched");
        let mut names: Vec<_> = fs::read_dir(self.stage.home())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| name.to_string_lossy().starts_with(|first| first != '.'))
            .collect();
        names.sort();
        assert_eq!(names, ["outside", "project"]);
    }
}

/// A record of a scan.
pub(super) fn record(path: &[u8], kind: char, size: u64, target: &[u8]) -> Vec<u8> {
    let fields = format!("//{kind} {kind} 644 {size} 1700000000.5 1 77 1//");
    [path, fields.as_bytes(), target, b"\0"].concat()
}

/// One member of an archive.
pub(super) fn member(name: &[u8], kind: u8, link: &[u8], size: u64, content: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name);
    header[100..108].copy_from_slice(b"0000644\0");
    header[108..116].copy_from_slice(b"0000000\0");
    header[116..124].copy_from_slice(b"0000000\0");
    // What has no room as text is a number.
    match size < 8 << 30 {
        true => header[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes()),
        false => {
            header[124] = 0x80;
            header[128..136].copy_from_slice(&size.to_be_bytes());
        }
    }
    header[136..148].copy_from_slice(b"14524450400\0");
    header[148..156].copy_from_slice(b"        ");
    header[156] = kind;
    header[157..157 + link.len()].copy_from_slice(link);
    header[257..265].copy_from_slice(b"ustar  \0");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut all = header.to_vec();
    all.extend_from_slice(content);
    all.resize(all.len().next_multiple_of(512), 0);
    all
}

pub(super) fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    [members.concat(), vec![0; 1024]].concat()
}

#[tokio::test]
async fn f55_names_that_lead_out_are_refused_and_the_rest_arrives() {
    let liar = Liar::new().await;
    write(&liar.stage.there.join("honest"), "1");
    let wrong: [&[u8]; 9] = [
        b"../x",
        b"/etc/x",
        b"a/../../x",
        b".",
        b"..",
        b"",
        b"a//b",
        b"a/./b",
        b"a/",
    ];
    let records: Vec<_> = wrong.iter().map(|name| record(name, 'f', 1, b"")).collect();
    liar.lists(&records);
    let done = liar.down().await;
    assert!(done["problem_count"].as_u64().unwrap() >= 8, "{done}");
    assert!(done["revision"].is_null(), "{done}");
    let named = problems(&done);
    for name in ["../x", "/etc/x", "a/../../x"] {
        let is_named = named.keys().any(|path| path.contains(name));
        assert!(is_named, "{name}: {named:?}");
    }
    assert_eq!(fs::read(liar.stage.here.join("honest")).unwrap(), b"1");
    // With a listing like that nothing is deleted.
    write(&liar.stage.here.join("extra"), "2");
    let more = json!({"delete_extras": true});
    let refused = liar.stage.call(Way::Down, more).await;
    assert_eq!(refused.json["code"], "delete_refused", "{}", refused.text);
    assert!(liar.stage.here.join("extra").exists());
}

#[tokio::test]
async fn f55_archive_with_other_names_than_those_asked_for_writes_nothing() {
    let liar = Liar::new().await;
    write(&liar.stage.there.join("a"), "12345");
    let outside = liar.outside.join("canary");
    let outside = outside.to_str().unwrap().as_bytes();
    let names: [&[u8]; 6] = [
        b"../outside/canary",
        outside,
        b"./b",
        b"..",
        b".",
        b"d/../../x",
    ];
    let mut members: Vec<_> = names
        .iter()
        .map(|name| member(name, b'0', b"", 5, b"wrong"))
        .collect();
    // A link under a name that was asked for, and something behind it.
    members.push(member(b"./a", b'2', b"../outside", 0, b""));
    members.push(member(b"./a/canary", b'0', b"", 5, b"wrong"));
    members.push(member(b"./a", b'1', outside, 0, b""));
    members.push(member(b"./a", b'3', b"", 0, b""));
    liar.packs(&archive(&members));
    let reply = liar.stage.call(Way::Down, json!({})).await;
    liar.assert_untouched();
    let is_told = reply.is_error || problems(&reply.json).contains_key("a");
    assert!(is_told, "{}", reply.text);
    assert_eq!(snapshot(&liar.stage.here).len(), 0, "{}", reply.text);
}

#[rstest]
#[case::short(10, 3, "12345")]
#[case::long(5, 3_000_000, "12345")]
#[case::huge(5, 7 << 30, "12345")]
#[tokio::test]
async fn f58_file_of_another_size_than_told_never_gets_its_name(
    #[case] told: usize,
    #[case] sent: u64,
    #[case] old: &str,
) {
    let liar = Liar::new().await;
    write(&liar.stage.there.join("a"), old);
    liar.stage.sync(Way::Down, json!({})).await;
    write(&liar.stage.there.join("a"), "x".repeat(told));
    let content = vec![b'y'; usize::try_from(sent.min(3_000_000)).unwrap()];
    liar.packs(&archive(&[member(b"./a", b'0', b"", sent, &content)]));
    let reply = liar.stage.call(Way::Down, json!({})).await;
    liar.assert_untouched();
    let is_told = reply.is_error || reply.json["problem_count"].as_u64() > Some(0);
    let now = fs::read(liar.stage.here.join("a")).unwrap();
    let is_old = now == old.as_bytes() && is_told;
    // A file may shrink or grow a little while it is read; then it is whole as it came.
    let is_whole = sent <= 3_000_000 && now == content;
    assert!(is_old || is_whole, "{} bytes: {}", now.len(), reply.text);
}

#[tokio::test]
async fn f58_stream_without_end_is_given_up_in_bounded_memory() {
    let liar = Liar::new().await;
    write(&liar.stage.there.join("a"), "12345");
    let before = process::rss_kb(liar.stage.client.pid()).unwrap();
    let first = liar.programs.path().join("first");
    fs::write(&first, member(b"./other", b'0', b"", 7 << 30, b"")).unwrap();
    liar.packs_by(&format!("cat {}; cat /dev/zero", first.display()));
    let reply = liar.stage.call(Way::Down, json!({})).await;
    assert!(reply.is_error, "{}", reply.text);
    liar.assert_untouched();
    let after = process::rss_kb(liar.stage.client.pid()).unwrap();
    assert!(after < before + 50_000, "{before} kB, then {after} kB");
    assert_eq!(snapshot(&liar.stage.here).len(), 0);
    let list = liar
        .stage
        .client
        .call_tool("list_sandboxes", json!({}))
        .await;
    assert!(!list.is_error, "{}", list.text);
}

#[tokio::test]
async fn f58_listing_without_end_is_given_up_in_bounded_memory() {
    let liar = Liar::new().await;
    write(&liar.stage.there.join("a"), "12345");
    liar.stage.sync(Way::Down, json!({})).await;
    liar.program(
        "find",
        "case \"$*\" in *//device*) ;; *) exec /usr/bin/find \"$@\" ;; esac\n\
         exec awk 'BEGIN { for (n = 0; n < 40000000; n++) printf \"%012d/%0200d//f f 644 5 1700000000.5 1 77 1//%c\", n, n, 0 }'\n",
    );
    let before = peak_kb(liar.stage.client.pid());
    let reply = liar.stage.call(Way::Down, json!({})).await;
    assert!(reply.is_error, "{}", reply.text);
    let peak = peak_kb(liar.stage.client.pid());
    assert!(peak < before + 50_000, "{before} kB, then {peak} kB");
    assert_eq!(snapshot(&liar.stage.here).len(), 1);
}

fn peak_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[tokio::test]
async fn f58_name_that_comes_twice_is_one_file_or_a_told_problem() {
    let liar = Liar::new().await;
    write(&liar.stage.there.join("a"), "12345");
    liar.lists(&[record(b"a", 'f', 5, b""), record(b"a", 'd', 0, b"")]);
    let reply = liar.stage.call(Way::Down, json!({})).await;
    liar.assert_untouched();
    let here = liar.stage.here.join("a");
    if here.is_file() {
        assert_eq!(fs::read(&here).unwrap(), b"12345");
    } else {
        assert!(
            reply.is_error || reply.json["problem_count"].as_u64() > Some(0),
            "{}",
            reply.text
        );
    }
}

#[tokio::test]
async fn f56_entries_below_a_link_are_never_written_through_it() {
    let liar = Liar::new().await;
    let target = liar.outside.to_str().unwrap().as_bytes();
    liar.lists(&[
        record(b"d", 'l', 0, target),
        record(b"d/canary", 'f', 5, b""),
        record(b"e", 'd', 0, b""),
        record(b"e/new", 'f', 5, b""),
    ]);
    // The link of this machine is there already, as a directory of the host.
    symlink(&liar.outside, liar.stage.here.join("e")).unwrap();
    liar.packs(&archive(&[
        member(b"./d/canary", b'0', b"", 5, b"wrong"),
        member(b"./e/new", b'0', b"", 5, b"wrong"),
    ]));
    let done = liar.down().await;
    assert!(done["problem_count"].as_u64() > Some(0), "{done}");
    assert!(liar.stage.here.join("e").is_symlink());
}

#[rstest]
#[case::keep(false)]
#[case::follow(true)]
#[tokio::test]
async fn f56_links_of_the_host_are_links_here_and_loops_end(#[case] follow: bool) {
    let liar = Liar::new().await;
    let there: &Path = &liar.stage.there;
    write(&there.join("real/a"), "1");
    symlink("/etc", there.join("etc")).unwrap();
    symlink("..", there.join("above")).unwrap();
    symlink("self", there.join("self")).unwrap();
    symlink("real/../.", there.join("loop")).unwrap();
    symlink("nowhere", there.join("dangling")).unwrap();
    symlink("real", there.join("deep0")).unwrap();
    for number in 0..45 {
        let name = format!("deep{}", number + 1);
        symlink(format!("deep{number}"), there.join(name)).unwrap();
    }
    let mut more = json!({"follow_links": follow});
    if follow {
        // What is a whole machine elsewhere is not wanted here.
        more["excludes"] = json!(["/etc", "/above"]);
    }
    let reply = liar.stage.call(Way::Down, more).await;
    liar.assert_untouched();
    assert!(!reply.is_error, "{}", reply.text);
    if follow {
        let told = problems(&reply.json);
        for name in ["self", "loop", "dangling", "deep45"] {
            assert!(told.contains_key(name), "{name}: {}", reply.text);
        }
        assert!(!told.contains_key(""), "{}", reply.text);
        assert!(
            told["loop"].contains("loop") || told["loop"].contains("above"),
            "{}",
            reply.text
        );
        assert!(reply.json["revision"].is_null(), "{}", reply.text);
        assert_eq!(fs::read(liar.stage.here.join("deep3/a")).unwrap(), b"1");
    } else {
        assert_eq!(reply.json["problem_count"], 0, "{}", reply.text);
        liar.stage.assert_same();
    }
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test]
async fn f55_odd_but_honest_names_arrive_as_they_are(#[case] way: Way) {
    use std::os::unix::ffi::OsStrExt;
    let stage = Stage::new().await;
    let names: [&[u8]; 20] = [
        b"-rf",
        b"--checkpoint-action=exec=touch x",
        b"~",
        b"$HOME",
        b"`id`",
        b"C:\\x",
        b"dot.",
        b"space ",
        b" lead",
        b"new\nline",
        b"esc\x1b[31m",
        b"tab\t",
        b"quote'\"",
        b"back\\slash",
        b"\xff\xfe",
        b"\xef\xbf\xbd",
        b"Case",
        b"case",
        "caf\u{e9}".as_bytes(),
        "cafe\u{301}".as_bytes(),
    ];
    let source = stage.source(way);
    for (number, name) in names.iter().enumerate() {
        let name = std::ffi::OsStr::from_bytes(name);
        write(&source.join(name), number.to_string());
        write(
            &source.join("below").join(name).join(name),
            number.to_string(),
        );
    }
    write(&source.join("n".repeat(255)), "long");
    let deep = vec!["d".repeat(200); 19].join("/");
    let made = std::process::Command::new("sh")
        .args([
            "-c",
            "for d in $(echo $1 | tr / ' '); do mkdir $d; cd $d; done; echo 1 >f",
            "sh",
        ])
        .arg(&deep)
        .current_dir(source)
        .status();
    assert!(made.unwrap().success());
    let done = stage.sync(way, json!({})).await;
    assert_eq!(done["problem_count"], 0, "{done}");
    stage.assert_same();
    let again = stage.sync(way, json!({})).await;
    let sent = match way {
        Way::Up => "uploaded_files",
        Way::Down => "downloaded_files",
    };
    assert_eq!(again[sent], 0, "{again}");
}
