//! Stand-in hosts for tests: a home directory, the programs they have, and trees to list.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::*;
use crate::ids::RunToken;
use crate::sync::{Entry, Kind, LinkEnd, Mtime, RelPath, Special};

pub(super) fn mark() -> RunToken {
    RunToken::from_uuid_bytes([9; 16])
}

/// A host: a home directory, and the programs it has.
pub(super) struct Host {
    pub(super) home: TempDir,
    pub(super) programs: Option<TempDir>,
    pub(super) shell: &'static [&'static str],
}

impl Host {
    pub(super) fn new() -> Host {
        Host {
            home: tempfile::tempdir().unwrap(),
            programs: None,
            shell: &["sh"],
        }
    }

    /// A host with nothing but busybox; none where there is no busybox.
    pub(super) fn busybox() -> Option<Host> {
        let busybox = ["/bin/busybox", "/usr/bin/busybox"]
            .iter()
            .find(|path| Path::new(path).exists());
        let Some(busybox) = busybox else {
            println!("skipped: this machine has no busybox");
            return None;
        };
        let programs = tempfile::tempdir().unwrap();
        for name in ["sh", "find", "stat", "readlink", "sort", "tr", "printf"] {
            symlink(busybox, programs.path().join(name)).unwrap();
        }
        Some(Host {
            programs: Some(programs),
            shell: if *busybox == "/bin/busybox" {
                &["/bin/busybox", "sh"]
            } else {
                &["/usr/bin/busybox", "sh"]
            },
            ..Host::new()
        })
    }

    pub(super) fn at(&self, name: &[u8]) -> PathBuf {
        self.home.path().join(OsStr::from_bytes(name))
    }

    pub(super) fn write(&self, name: &[u8], content: &str) {
        fs::create_dir_all(self.at(name).parent().unwrap()).unwrap();
        fs::write(self.at(name), content).unwrap();
    }

    pub(super) fn run(&self, script: &str) -> Vec<u8> {
        let mut command = Command::new(self.shell[0]);
        command
            .args(&self.shell[1..])
            .env("HOME", self.home.path())
            .current_dir("/");
        if let Some(programs) = &self.programs {
            command.env("PATH", programs.path());
        }
        run(command, script)
    }

    pub(super) fn scan(
        &self,
        request: &ScanRequest<'_>,
    ) -> (Vec<Entry>, Vec<ScanProblem>, ScanSummary) {
        read(request.scanner, &self.run(&scan_script(request, &mark())))
    }
}

pub(super) fn run(command: Command, script: &str) -> Vec<u8> {
    crate::fed_shell::feed(command, script).stdout
}

pub(super) fn read(scanner: Scanner, output: &[u8]) -> (Vec<Entry>, Vec<ScanProblem>, ScanSummary) {
    let mut reader = ScanReader::new(&mark(), scanner);
    let (mut entries, mut problems) = (Vec::new(), Vec::new());
    for piece in output.chunks(7) {
        reader
            .feed(piece, &mut |found| match found {
                Found::Entry(entry) => entries.push(entry),
                Found::Problem(problem) => problems.push(problem),
            })
            .unwrap();
    }
    (entries, problems, reader.finish().unwrap())
}

pub(super) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("-h").output().is_ok();
    if !found {
        println!("skipped: this machine has no {program}");
    }
    found
}

/// A host of this machine for each scanner that it has.
pub(super) fn hosts() -> Vec<(Scanner, Host)> {
    let mut hosts = vec![(Scanner::Find, Host::new())];
    let other_shells: [&'static [&'static str]; 2] = [&["bash", "--posix"], &["busybox", "sh"]];
    for shell in other_shells.into_iter().filter(|shell| has(shell[0])) {
        let host = Host {
            shell,
            ..Host::new()
        };
        hosts.push((Scanner::Find, host));
    }
    if has("python3") {
        hosts.push((Scanner::Python, Host::new()));
    }
    if has("perl") {
        hosts.push((Scanner::Perl, Host::new()));
    }
    hosts.extend(Host::busybox().map(|host| (Scanner::FindStat, host)));
    hosts
}

pub(super) const ODD: [&[u8]; 10] = [
    b"plain.txt",
    b"new\nline\n",
    b"-rf",
    b"sp ace",
    "gr\u{fc}n".as_bytes(),
    b"\xff\xfe",
    b"q'\"$(id)`x`",
    b"\x01low",
    b"a-b",
    b"*[x]?",
];

/// Files, directories, links and a pipe, under names that break careless scripts.
pub(super) fn plant(host: &Host, root: &[u8]) {
    let below = |name: &[u8]| [root, b"/", name].concat();
    for name in ODD {
        host.write(&below(name), "1234567");
        host.write(
            &below(&[b"dir\n".as_slice(), name, b"/inner"].concat()),
            "12",
        );
    }
    host.write(&below(b"a/b"), "x");
    fs::create_dir_all(host.at(&below(b"empty"))).unwrap();
    fs::set_permissions(host.at(&below(b"-rf")), fs::Permissions::from_mode(0o4751)).unwrap();
    for (name, target) in [
        (b"to-dir".as_slice(), b"a".as_slice()),
        (b"to-file", b"-rf"),
        (b"dangling", b"no where\n//x"),
        (b"odd", b"\xffz"),
        (b"round", b"round"),
    ] {
        symlink(OsStr::from_bytes(target), host.at(&below(name))).unwrap();
    }
    let made = Command::new("mkfifo")
        .arg(host.at(&below(b"pipe")))
        .status()
        .unwrap();
    assert!(made.success());
}

/// The tree as this machine sees it.
pub(super) fn truth(root: &Path, above: &[u8], all: &mut Vec<Entry>) {
    for entry in fs::read_dir(root).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        let bytes = if above.is_empty() {
            name.as_bytes().to_vec()
        } else {
            [above, b"/", name.as_bytes()].concat()
        };
        let found = entry.path().symlink_metadata().unwrap();
        let kind = if found.is_dir() {
            Kind::Directory
        } else if found.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap();
            let end = match fs::metadata(entry.path()) {
                Ok(end) if end.is_dir() => LinkEnd::Directory,
                Ok(_) => LinkEnd::Other,
                Err(_) => LinkEnd::Nothing,
            };
            Kind::Link {
                target: target.as_os_str().as_bytes().into(),
                end,
            }
        } else if found.is_file() {
            Kind::File
        } else {
            Kind::Special(Special::Fifo)
        };
        if kind.is_directory() {
            truth(&entry.path(), &bytes, all);
        }
        all.push(Entry {
            path: RelPath::parse(&bytes).unwrap(),
            kind,
            size_bytes: found.size(),
            mtime: Mtime::exact(found.mtime(), u32::try_from(found.mtime_nsec()).unwrap()).unwrap(),
            mode: u16::try_from(found.mode() & 0o7777).unwrap(),
            identity: None,
        });
    }
}
