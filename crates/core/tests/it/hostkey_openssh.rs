//! Host key verdicts compared with those of the real `ssh`, `sshd` and `ssh-keygen`.
#![expect(
    clippy::disallowed_methods,
    reason = "the test runs OpenSSH and writes its files, which the core never does"
)]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use remote_sandbox_core::hostkey::{HostAddress, HostKey, KnownHosts, Verdict, judge};
use tempfile::TempDir;

use rows::{Answer, DEFAULT_PORT_ROWS, OTHER_PORT_ROWS, Row};

mod certificates;
mod rows;

/// A program of OpenSSH, or `None` with the reason printed.
fn program(name: &str) -> Option<PathBuf> {
    let found = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"]
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: {name} is not installed");
    }
    found
}

/// Makes a key pair with ssh-keygen; returns the private key's path and the public line without comment.
fn generate(ssh_keygen: &Path, directory: &Path, name: &str, kind: &str) -> (PathBuf, String) {
    let path = directory.join(name);
    let status = Command::new(ssh_keygen)
        .args(["-q", "-N", "", "-t", kind, "-f"])
        .arg(&path)
        .status()
        .unwrap();
    assert!(status.success());
    let public = fs::read_to_string(path.with_extension("pub")).unwrap();
    let mut words = public.split(' ');
    let (kind, encoded) = (words.next().unwrap(), words.next().unwrap());
    (path, format!("{kind} {encoded}"))
}

fn key_of(public: &str) -> HostKey {
    let encoded = public.split(' ').nth(1).unwrap();
    HostKey::from_blob(STANDARD.decode(encoded).unwrap()).unwrap()
}

fn recorded_lines(verdict: &Verdict) -> Vec<usize> {
    match verdict {
        Verdict::Changed { recorded } => recorded.iter().map(|entry| entry.line).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn fingerprint_is_the_one_ssh_keygen_prints() {
    let Some(ssh_keygen) = program("ssh-keygen") else {
        return;
    };
    let directory = TempDir::new().unwrap();
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let (path, public) = generate(&ssh_keygen, directory.path(), kind, kind);
        let output = Command::new(&ssh_keygen)
            .arg("-lf")
            .arg(path)
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let key = key_of(&public);
        assert_eq!(printed.split(' ').nth(1), Some(key.fingerprint().as_str()));
        assert!(public.starts_with(key.algorithm()));
    }
}

/// Lines `ssh-keygen -F` finds for a name: plain ones, revoked ones.
fn lines_found(ssh_keygen: &Path, file: &Path, name: &str) -> (Vec<usize>, Vec<usize>) {
    // With -l the keys are parsed, so that broken lines are left out as `ssh` leaves them out.
    let output = Command::new(ssh_keygen)
        .args(["-l", "-F", name, "-f"])
        .arg(file)
        .output()
        .unwrap();
    let (mut plain, mut revoked) = (Vec::new(), Vec::new());
    for report in String::from_utf8(output.stdout).unwrap().lines() {
        let Some((_, found)) = report.split_once(" found: line ") else {
            continue;
        };
        let mut words = found.split_whitespace();
        let line = words.next().unwrap().parse().unwrap();
        match words.next() {
            None => plain.push(line),
            Some("REVOKED") => revoked.push(line),
            Some(marker) => assert_eq!(marker, "CA"),
        }
    }
    (plain, revoked)
}

/// `KEY` is a recorded key; `REVOKED` one that only `@revoked` lines hold.
const LOOKUP_FILE: &str = "\
# a comment, then a blank line

host KEY comment here
Host.Example KEY
[host]:2222 KEY
\tother,host\tKEY
*.example,!b.example KEY
h?st KEY
@cert-authority host KEY
@revoked host REVOKED
@revoked * REVOKED
host ssh-ed25519 AAAA
host ssh-unknown AAAA
host
host KEY\r
\r
|1|AAAA|AAAA KEY
10.0.0.* KEY
[*.example]:2222 KEY
fe80::1,::1 KEY
[::1]:2222 KEY
host # KEY
@unknown host KEY
!host,* KEY
* KEY";

const LOOKUPS: [(&str, u16); 12] = [
    ("host", 22),
    ("host", 2222),
    ("host", 2223),
    ("host.example", 22),
    ("a.example", 22),
    ("b.example", 22),
    ("a.example", 2222),
    ("10.0.0.7", 22),
    ("::1", 22),
    ("::1", 2222),
    ("0:0::1", 22),
    ("nowhere", 22),
];

#[test]
fn lines_are_found_as_ssh_keygen_finds_them_plain_and_hashed() {
    let Some(ssh_keygen) = program("ssh-keygen") else {
        return;
    };
    let directory = TempDir::new().unwrap();
    let public = |name: &str| generate(&ssh_keygen, directory.path(), name, "ed25519").1;
    let (recorded, revoked, fresh) = (public("recorded"), public("revoked"), public("fresh"));
    let full = LOOKUP_FILE
        .replace("REVOKED", &revoked)
        .replace("KEY", &recorded);
    // Hashing refuses files with broken lines, and without the last line most names are not found at all.
    let sound: String = full
        .lines()
        .filter(|line| line.ends_with(&recorded) && !line.contains(['#', '@', '|', '\r']))
        .filter(|line| !line.starts_with("* "))
        .map(|line| format!("{line}\n"))
        .collect();
    let file = directory.path().join("known_hosts");
    for (content, hash) in [(&full, false), (&sound, false), (&sound, true)] {
        fs::write(&file, content).unwrap();
        if hash {
            let done = Command::new(&ssh_keygen)
                .arg("-Hf")
                .arg(&file)
                .output()
                .unwrap();
            assert!(done.status.success(), "{done:?}");
        }
        let bytes = fs::read(&file).unwrap();
        assert_eq!(bytes.windows(3).any(|part| part == b"|1|" && hash), hash);
        let files = [KnownHosts::parse("known_hosts", &bytes)];
        for (host, port) in LOOKUPS {
            let address = HostAddress::new(host, port).unwrap();
            let name = address.known_hosts_name();
            let (plain, revocations) = lines_found(&ssh_keygen, &file, &name);
            let verdict = judge(&address, &key_of(&fresh), &files);
            assert_eq!(recorded_lines(&verdict), plain, "{name}, hashed: {hash}");
            let verdict = judge(&address, &key_of(&revoked), &files);
            let refused = match verdict {
                Verdict::Revoked { line, .. } => Some(line),
                _ => None,
            };
            assert_eq!(refused.as_ref(), revocations.first(), "{name}");
        }
    }
}

fn answer_of(verdict: &Verdict) -> Answer {
    match verdict {
        Verdict::Trusted { .. } => Answer::Trusted,
        Verdict::Unknown => Answer::Unknown,
        Verdict::Changed { .. } => Answer::Changed,
        Verdict::Revoked { .. } => Answer::Revoked,
        Verdict::Broken { .. } => Answer::Broken,
    }
}

/// A host with an ed25519 and an ECDSA key, and the programs to reach it.
struct Bench {
    directory: TempDir,
    ssh: PathBuf,
    sshd: PathBuf,
    configuration: PathBuf,
    offered: String,
    other: String,
    second: String,
    other_second: String,
}

impl Bench {
    fn new() -> Option<Self> {
        let (ssh_keygen, ssh, sshd) = (program("ssh-keygen")?, program("ssh")?, program("sshd")?);
        let directory = TempDir::new().unwrap();
        let make = |name: &str, kind: &str| generate(&ssh_keygen, directory.path(), name, kind);
        let (first_path, offered) = make("first", "ed25519");
        let (second_path, second) = make("second", "ecdsa");
        let (_, other) = make("other", "ed25519");
        let (_, other_second) = make("other_second", "ecdsa");
        let configuration = directory.path().join("sshd_config");
        let host_keys =
            [first_path, second_path].map(|path| format!("HostKey {}\n", path.display()));
        fs::write(
            &configuration,
            format!("{}PidFile none\nUsePAM no\n", host_keys.concat()),
        )
        .unwrap();
        // A root-started sshd refuses to run without this directory; for other users it plays no part.
        let _ = fs::create_dir_all("/run/sshd");
        Some(Self {
            directory,
            ssh,
            sshd,
            configuration,
            offered,
            other,
            second,
            other_second,
        })
    }

    /// Puts keys into a row: the one on offer, one of its kind, the host's second one, one of that kind.
    fn fill(&self, content: &str) -> String {
        content
            .replace("OFFERED", &self.offered)
            .replace("OTHER_SECOND", &self.other_second)
            .replace("OTHER", &self.other)
            .replace("SECOND", &self.second)
            .replace("BLOB", self.offered.split(' ').nth(1).unwrap())
            .replace("BAD", "ssh-ed25519 AAAA")
    }

    /// Asks `ssh` with strict checking; also returns the line it calls offending.
    fn ask_ssh(
        &self,
        host: &str,
        contents: [&str; 2],
        options: &[String],
    ) -> (Answer, Option<usize>) {
        let files = ["user", "system"].map(|name| self.directory.path().join(name));
        for (file, content) in files.iter().zip(contents) {
            fs::write(file, content).unwrap();
        }
        let [user, system] = files.map(|file| file.display().to_string());
        let output = Command::new(&self.ssh)
            .args(["-F", "none", "-o", "BatchMode=yes"])
            .args(["-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=20"])
            // Nobody is let in: reaching the refusal of the login shows that the host key was taken.
            .args([
                "-o",
                "PreferredAuthentications=none",
                "-o",
                "AddressFamily=inet",
            ])
            .args(["-o", &format!("UserKnownHostsFile={user}")])
            .args(["-o", &format!("GlobalKnownHostsFile={system}")])
            .args(options)
            .args([host, "true"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer = if said.contains("REVOKED HOST KEY DETECTED") {
            Answer::Revoked
        } else if said.contains("REMOTE HOST IDENTIFICATION HAS CHANGED") {
            Answer::Changed
        } else if said.contains("host key is known for") {
            Answer::Unknown
        } else {
            assert!(said.contains("Permission denied"), "ssh said: {said}");
            Answer::Trusted
        };
        let offending = said
            .lines()
            .find(|line| line.starts_with("Offending "))
            .and_then(|line| line.trim_end().rsplit(':').next()?.parse().ok());
        (answer, offending)
    }

    /// Compares both verdicts on one row with what the table says.
    fn compare(&self, row: &Row, port: u16, options: &[String]) {
        let contents = [row.user, row.system]
            .map(|content| self.fill(content).replace("PORT", &port.to_string()));
        let files = [("user", &contents[0]), ("system", &contents[1])]
            .map(|(name, content)| KnownHosts::parse(name, content.as_bytes()));
        let address = HostAddress::new(row.host, port).unwrap();
        let verdict = judge(&address, &key_of(&self.offered), &files);
        let (answer, offending) = self.ask_ssh(
            row.host,
            [&contents[0], &contents[1]],
            &[
                &["-o".to_owned(), "HostKeyAlgorithms=ssh-ed25519".to_owned()],
                options,
            ]
            .concat(),
        );
        assert_eq!(answer, row.ssh, "ssh on {row:?}");
        assert_eq!(answer_of(&verdict), row.ours.unwrap_or(row.ssh), "{row:?}");
        if let (Some(line), Answer::Changed) = (offending, answer) {
            assert!(recorded_lines(&verdict).contains(&line), "{line} {row:?}");
        }
    }
}

#[test]
fn verdict_on_the_default_port_is_that_of_ssh() {
    let Some(bench) = Bench::new() else {
        return;
    };
    // An sshd behind a pipe stands for any host name on port 22 and ends with its ssh.
    let proxy = format!(
        "ProxyCommand={} -i -f {}",
        bench.sshd.display(),
        bench.configuration.display()
    );
    for row in &DEFAULT_PORT_ROWS {
        bench.compare(row, 22, &["-o".to_owned(), proxy.clone()]);
    }
}

/// An sshd of this test's own, ended with it.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Daemon {
    fn start(bench: &Bench) -> (Self, u16) {
        // The port is free again for a moment before sshd takes it.
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .unwrap()
            .port();
        let mut arguments = vec!["-o".to_owned(), format!("ListenAddress=127.0.0.1:{port}")];
        // Newer servers shut out an address that fails as often as this test makes it fail.
        let penalties = ["-o".to_owned(), "PerSourcePenalties=no".to_owned()];
        let knows_penalties = Command::new(&bench.sshd)
            .arg("-tf")
            .arg(&bench.configuration)
            .args(&penalties)
            .stderr(Stdio::null())
            .status()
            .unwrap();
        if knows_penalties.success() {
            arguments.extend(penalties);
        }
        let child = Command::new(&bench.sshd)
            .args(["-D", "-f"])
            .arg(&bench.configuration)
            .arg("-E")
            .arg(bench.directory.path().join("sshd.log"))
            .args(arguments)
            .spawn()
            .unwrap();
        let daemon = Self(child);
        let up = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        assert!(up, "sshd does not listen");
        (daemon, port)
    }
}

#[test]
fn verdict_on_another_port_is_that_of_ssh() {
    let Some(bench) = Bench::new() else {
        return;
    };
    let (_daemon, port) = Daemon::start(&bench);
    for row in &OTHER_PORT_ROWS {
        bench.compare(row, port, &["-p".to_owned(), port.to_string()]);
    }
}
