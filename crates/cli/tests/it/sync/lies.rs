//! What a host says of its files and what it then sends: paths that are none (f55) and sizes that are wrong (f58).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use remote_sandbox_testkit::{Sshd, ToolReply, process, skip};
use rstest::rstest;
use serde_json::json;

use super::hostile::{Liar, archive, member, record};
use super::stage::{Way, unfinished};
use super::volume::free_bytes;
use super::{problems, snapshot};
use crate::files::write;

/// What a host says a file has.
const TOLD: u64 = 10 << 30;

/// More than this never lies on this disk of what was not sent.
const MOST_KEPT: u64 = 16 << 20;

#[tokio::test]
async fn f55_each_path_that_is_refused_is_listed_with_its_reason_and_the_rest_arrives() {
    let liar = Liar::new().await;
    for name in ["honest", "d/honest"] {
        write(&liar.stage.there.join(name), "1");
    }
    let long_name = "n".repeat(256);
    let long_path = vec!["d".repeat(200); 21].join("/");
    let wrong = [
        ("../x", "../x", "`.` or `..`"),
        ("/etc/x", "/etc/x", "absolute"),
        ("a/../../x", "a/../../x", "`.` or `..`"),
        (".", ".", "`.` or `..`"),
        ("..", "..", "`.` or `..`"),
        // Two slashes end a path in what a host says, so that the next three say something else.
        ("", "f f 644", "could not be understood"),
        ("a//b", "a//b", "could not be understood"),
        ("a/", "a", "special file"),
        (&long_name, "nnnnn", "name longer than 255"),
        (&long_path, "ddddd", "longer than 4096"),
        // What a terminal would act upon is shown as text.
        ("red\x1b[31m/..", "red\\", "`.` or `..`"),
        ("line\nbreak/..", "line\\", "`.` or `..`"),
    ];
    let mut records: Vec<_> = wrong
        .iter()
        .map(|(name, ..)| record(name.as_bytes(), 'f', 1, b""))
        .collect();
    // A NUL byte ends a name, so that this says two things, and neither is there.
    records.push(record(b"nul\0byte", 'f', 1, b""));
    liar.lists(&records);
    let done = liar.down().await;
    let named = problems(&done);
    for (name, begin, reason) in wrong {
        let is_told = |(path, problem): (&String, &String)| {
            let is_it = path == begin || begin.len() > 3 && path.starts_with(begin);
            is_it && problem.contains(reason)
        };
        assert!(named.iter().any(is_told), "{name:?}: {named:#?}");
    }
    for name in ["nul", "byte"] {
        assert!(named.contains_key(name), "{name}: {named:#?}");
    }
    // The host's archiver has a word for the last one, too.
    assert_eq!(done["problem_count"], 15, "{named:#?}");
    let is_plain = |text: &String| !text.contains(|c: char| c.is_control());
    assert!(
        named
            .iter()
            .all(|(path, told)| is_plain(path) && is_plain(told))
    );
    assert_eq!(done["downloaded_files"], 2, "{done}");
    let here: Vec<_> = snapshot(&liar.stage.here).into_keys().collect();
    assert_eq!(here, [b"d".as_slice(), b"d/honest", b"honest"]);
}

#[tokio::test]
async fn weakness_2_failed_download_leaves_the_local_file_as_it_was() {
    let liar = Liar::new().await;
    for name in ["a", "b"] {
        write(&liar.stage.there.join(name), "old");
    }
    liar.stage.sync(Way::Down, json!({})).await;
    for name in ["a", "b"] {
        let path = liar.stage.there.join(name);
        write(&path, "new content");
        // What the archive says of its members.
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(0o14_524_450_400);
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(time).unwrap();
    }
    liar.packs(&archive(&[
        member(b"./a", b'0', b"", 3, b"new"),
        member(b"./b", b'0', b"", 11, b"new content"),
    ]));
    let done = liar.down().await;
    assert_eq!(fs::read(liar.stage.here.join("a")).unwrap(), b"old");
    assert_eq!(fs::read(liar.stage.here.join("b")).unwrap(), b"new content");
    let told: Vec<String> = problems(&done).into_keys().collect();
    assert_eq!(told, ["a"], "{done}");
    assert_eq!(
        unfinished(&liar.stage.here),
        Vec::<std::path::PathBuf>::new()
    );
}

#[tokio::test]
async fn f55_torn_file_that_cannot_be_removed_never_gets_its_name_with_its_directory() {
    let liar = Liar::new().await;
    liar.stage.write(Way::Up, "d/whole", "1");
    liar.stage.write(Way::Up, "d/torn", "123456");
    // The archive is unpacked, but of one file only a part is written; nobody can delete single files.
    liar.program(
        "tar",
        "case \"$1\" in -x*) ;; *) exec /usr/bin/tar \"$@\" ;; esac\n\
         /usr/bin/tar \"$@\"\n\
         /usr/bin/find . -name torn -exec sh -c 'printf 123 >\"$0\"' {} \\;\n\
         echo 'tar: torn: Cannot write' >&2; exit 2\n",
    );
    liar.program(
        "rm",
        "case \"$1\" in -rf) exec /usr/bin/rm \"$@\" ;; esac\nexit 1\n",
    );
    let reply = liar.stage.call(Way::Up, json!({})).await;
    assert!(!liar.stage.there.join("d/torn").exists(), "{}", reply.text);
    assert_eq!(reply.json["code"], "remote_refused", "{}", reply.text);
    assert!(
        reply.text.contains("could not be removed"),
        "{}",
        reply.text
    );
    assert_eq!(
        unfinished(&liar.stage.there),
        Vec::<std::path::PathBuf>::new()
    );
    // Where it can be removed, the rest of its directory arrives.
    fs::remove_file(liar.programs.path().join("rm")).unwrap();
    let reply = liar.stage.call(Way::Up, json!({})).await;
    assert!(
        problems(&reply.json).contains_key("d/torn"),
        "{}",
        reply.text
    );
    assert_eq!(fs::read(liar.stage.there.join("d/whole")).unwrap(), b"1");
    assert!(!liar.stage.there.join("d/torn").exists(), "{}", reply.text);
}

/// Nothing has the name of the file, what is left of it takes no room, and the server has not grown.
fn assert_not_taken_in(liar: &Liar, reply: &ToolReply, memory_before: u64) {
    liar.assert_untouched();
    let here = &liar.stage.here;
    assert!(!here.join("big").exists(), "{}", reply.text);
    // An archive that breaks off is an error of the whole sync.
    let is_told = match reply.is_error {
        true => reply.text.contains("breaks off"),
        false => problems(&reply.json).contains_key("big"),
    };
    assert!(is_told, "{}", reply.text);
    let kept = unfinished(here);
    let room: u64 = kept
        .iter()
        .map(|path| fs::metadata(path).unwrap().blocks() * 512)
        .sum();
    assert!(room < MOST_KEPT, "{room} bytes in {kept:?}");
    let now = process::rss_kb(liar.stage.client.pid()).unwrap();
    assert!(now < memory_before + 50_000, "{memory_before} kB, {now} kB");
}

/// Whether a file of the size that is told would find room; otherwise the sync is refused for that alone.
fn has_room() -> bool {
    let has_room = free_bytes() > TOLD + (1 << 30);
    if !has_room {
        skip("needs room for ten gibibytes, of which nothing is used");
    }
    has_room
}

fn memory(liar: &Liar) -> u64 {
    process::rss_kb(liar.stage.client.pid()).unwrap()
}

#[rstest]
#[case::archive_says_the_same(TOLD, false)]
#[case::archive_says_the_same_and_ends(TOLD, true)]
#[case::archive_says_what_it_holds(10, true)]
#[tokio::test]
async fn f58_ten_bytes_in_an_archive_for_ten_gibibytes_never_get_the_name(
    #[case] told: u64,
    #[case] has_end: bool,
) {
    if !has_room() {
        return;
    }
    // Without the file protocol, large files come in archives as well.
    let host = Sshd::builder().extra_config("Subsystem other /bin/false");
    let liar = Liar::with(host).await;
    write(&liar.stage.there.join("honest"), "1");
    liar.stage.sync(Way::Down, json!({})).await;
    let before = memory(&liar);
    liar.lists(&[record(b"big", 'f', TOLD, b"")]);
    let mut sent = member(b"./big", b'0', b"", told, b"0123456789");
    if has_end {
        sent = archive(&[sent]);
    }
    liar.packs(&sent);
    let reply = liar.stage.call(Way::Down, json!({})).await;
    assert_not_taken_in(&liar, &reply, before);
    assert_eq!(fs::read(liar.stage.here.join("honest")).unwrap(), b"1");
}

#[tokio::test]
async fn f58_file_of_ten_bytes_that_a_listing_gives_ten_gibibytes_never_comes() {
    if !has_room() {
        return;
    }
    let liar = Liar::new().await;
    write(&liar.stage.there.join("honest"), "1");
    liar.stage.sync(Way::Down, json!({})).await;
    let before = memory(&liar);
    // The file protocol says what the file really has.
    liar.lists(&[record(b"big", 'f', TOLD, b"")]);
    let real = liar.stage.there.with_file_name("big");
    write(&real, "0123456789");
    liar.program(
        "find",
        &format!(
            "/usr/bin/find \"$@\"; code=$?\ncase \"$*\" in *//device*) \
             mv {} {}/big; cat {}/lies ;; esac\nexit $code\n",
            real.display(),
            liar.stage.there.display(),
            liar.programs.path().display()
        ),
    );
    let reply = liar.stage.call(Way::Down, json!({})).await;
    assert_not_taken_in(&liar, &reply, before);
}

/// The file server of the host, which reads no more than once from one file and then says that this was all.
fn stingy_server(folder: &Path) -> Option<String> {
    let server = Path::new("/usr/lib/openssh/sftp-server");
    let tried = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status();
    if !server.exists() || !tried.is_ok_and(|status| status.success()) {
        skip("needs strace, the right to trace, and a file server as a program");
        return None;
    }
    let script = folder.join("file-server");
    let text = format!(
        "#!/bin/sh\nexec /usr/bin/strace -f -qq -o {0}/traced -P \"$(cat {0}/stingy)\" \
         -e trace=read,pread64 -e inject=read,pread64:retval=0:when=2+ {1}\n",
        folder.display(),
        server.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    Some(format!("Subsystem sftp {}", script.display()))
}

#[tokio::test]
async fn f58_few_bytes_over_the_file_protocol_for_ten_gibibytes_never_get_the_name() {
    if !has_room() {
        return;
    }
    let programs = Liar::programs();
    let Some(line) = stingy_server(programs.path()) else {
        return;
    };
    let host = Sshd::builder().extra_config(&line);
    let liar = Liar::with_programs(host, programs).await;
    let big = liar.stage.there.join("big");
    fs::write(liar.programs.path().join("stingy"), big.to_str().unwrap()).unwrap();
    write(&liar.stage.there.join("honest"), "1");
    liar.stage.sync(Way::Down, json!({})).await;
    let before = memory(&liar);
    // It has a hole of that size, so that everybody is told the same.
    fs::File::create(&big).unwrap().set_len(TOLD).unwrap();
    for _ in 0..2 {
        let reply = liar.stage.call(Way::Down, json!({})).await;
        assert_not_taken_in(&liar, &reply, before);
        let traced = fs::read_to_string(liar.programs.path().join("traced")).unwrap();
        assert!(traced.contains("INJECTED"), "{traced}");
    }
    write(&liar.stage.there.join("late"), "2");
    liar.stage.call(Way::Down, json!({})).await;
    assert_eq!(fs::read(liar.stage.here.join("late")).unwrap(), b"2");
}
