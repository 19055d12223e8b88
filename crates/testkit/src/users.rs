//! Accounts to log in with: the own one, or throw-away local accounts when the tests run as root.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::keys::set_mode;
use crate::process;
use crate::wait::{random_u64, skip};

const NAME_PREFIX: &str = "rsk";
const LOCK_FILE: &str = "/tmp/remote-sandbox-testkit-users.lock";

/// The login shell of a throw-away account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// GNU bash.
    Bash,
    /// The system's `/bin/sh`.
    Sh,
    /// fish, whose syntax is not that of a POSIX shell.
    Fish,
    /// zsh.
    Zsh,
    /// tcsh, a C shell.
    Tcsh,
    /// The ash of busybox.
    BusyboxAsh,
    /// `nologin`, which refuses every command.
    Nologin,
}

/// The home directory of a throw-away account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// An ordinary one.
    Made,
    /// Named in the account but absent.
    Missing,
    /// There, but the account may not write into it.
    ReadOnly,
}

/// A local account that a test may log in as.
#[derive(Debug)]
pub struct TestUser {
    name: String,
    uid: u32,
    home: PathBuf,
    password: Option<String>,
    throw_away: Option<ThrowAway>,
}

/// What has to vanish together with the account.
#[derive(Debug)]
struct ThrowAway {
    _shell_wrapper: Option<TempDir>,
}

impl TestUser {
    /// The account the tests run as.
    #[must_use]
    pub fn current() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let (name, home) = passwd_entries()
            .into_iter()
            .find(|entry| entry.uid == uid)
            .map(|entry| (entry.name, entry.home))
            .unwrap_or_else(|| panic!("no account has the user id {uid}"));
        Self {
            name,
            uid,
            home,
            password: None,
            throw_away: None,
        }
    }

    /// Describes a throw-away account: bash, no password, an ordinary home.
    #[must_use]
    pub fn builder() -> TestUserBuilder {
        TestUserBuilder {
            shell: Shell::Bash,
            password: None,
            home: Home::Made,
        }
    }

    /// A throw-away account with bash and an ordinary home; `None` (and a printed reason) without root.
    #[must_use]
    pub fn create() -> Option<Self> {
        Self::builder().create()
    }

    /// The login name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The numeric user id.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The home directory of the account, which may be absent.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The password, when one was set.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The living processes of the account.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        process::of_user(self.uid)
    }
}

impl Drop for TestUser {
    fn drop(&mut self) {
        if self.throw_away.is_some() {
            let _lock = lock_accounts();
            remove_account(&self.name, self.uid);
        }
    }
}

/// The description of a throw-away account, see [`TestUser::builder`].
#[derive(Clone, Debug)]
pub struct TestUserBuilder {
    shell: Shell,
    password: Option<String>,
    home: Home,
}

impl TestUserBuilder {
    /// Chooses the login shell.
    #[must_use]
    pub fn shell(mut self, shell: Shell) -> Self {
        self.shell = shell;
        self
    }

    /// Sets a password.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Chooses what the home directory is like.
    #[must_use]
    pub fn home(mut self, home: Home) -> Self {
        self.home = home;
        self
    }

    /// Makes the account; `None` (and a printed reason) without root or without that shell.
    #[must_use]
    pub fn create(self) -> Option<TestUser> {
        if !process::is_root() {
            skip("throw-away accounts need root");
            return None;
        }
        let (shell, wrapper) = shell_path(self.shell)?;
        let _lock = lock_accounts();
        remove_left_behind();
        let name = format!(
            "{NAME_PREFIX}{}x{:06x}",
            std::process::id(),
            random_u64() & 0xff_ffff
        );
        let mut useradd = Command::new("useradd");
        // An asterisk is "no password"; useradd's own default locks the account, which sshd refuses.
        useradd.args(["--password", "*", "--shell"]).arg(&shell);
        useradd.arg(if self.home == Home::Missing {
            "--no-create-home"
        } else {
            "--create-home"
        });
        run_to_success(useradd.arg(&name));
        let entry = passwd_entries()
            .into_iter()
            .find(|entry| entry.name == name)
            .expect("useradd made the account");
        if self.home == Home::ReadOnly {
            run_to_success(Command::new("chown").arg("root:root").arg(&entry.home));
            set_mode(&entry.home, 0o755);
        }
        if let Some(password) = &self.password {
            set_password(&name, password);
        }
        Some(TestUser {
            name,
            uid: entry.uid,
            home: entry.home,
            password: self.password,
            throw_away: Some(ThrowAway {
                _shell_wrapper: wrapper,
            }),
        })
    }
}

struct PasswdEntry {
    name: String,
    uid: u32,
    home: PathBuf,
}

fn passwd_entries() -> Vec<PasswdEntry> {
    let text = fs::read_to_string("/etc/passwd").expect("/etc/passwd is readable");
    text.lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            Some(PasswdEntry {
                name: (*fields.first()?).to_owned(),
                uid: fields.get(2)?.parse().ok()?,
                home: PathBuf::from(fields.get(5)?),
            })
        })
        .collect()
}

fn shell_path(shell: Shell) -> Option<(PathBuf, Option<TempDir>)> {
    let candidates: &[&str] = match shell {
        Shell::Bash => &["/bin/bash", "/usr/bin/bash"],
        Shell::Sh => &["/bin/sh"],
        Shell::Fish => &["/usr/bin/fish", "/bin/fish"],
        Shell::Zsh => &["/usr/bin/zsh", "/bin/zsh"],
        Shell::Tcsh => &["/usr/bin/tcsh", "/bin/tcsh"],
        Shell::Nologin => &["/usr/sbin/nologin", "/sbin/nologin"],
        Shell::BusyboxAsh => &["/bin/busybox", "/usr/bin/busybox"],
    };
    let Some(program) = candidates.iter().map(Path::new).find(|path| path.exists()) else {
        skip(format_args!("the shell {shell:?} is not installed"));
        return None;
    };
    if shell != Shell::BusyboxAsh {
        return Some((program.to_owned(), None));
    }
    let dir = TempDir::with_prefix("testkit-shell-").expect("a temporary directory");
    set_mode(dir.path(), 0o755);
    let wrapper = dir.path().join("ash");
    let script = format!("#!/bin/sh\nexec {} ash \"$@\"\n", program.display());
    fs::write(&wrapper, script).expect("the shell wrapper is written");
    set_mode(&wrapper, 0o755);
    Some((wrapper, Some(dir)))
}

/// Test processes run side by side, while `useradd` gives up when another one is at work.
fn lock_accounts() -> File {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(LOCK_FILE)
        .expect("the lock file for accounts opens");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
        .expect("the lock for accounts is taken");
    file
}

/// Removes accounts of test processes that were killed before they could clean up.
fn remove_left_behind() {
    for entry in passwd_entries() {
        let Some(rest) = entry.name.strip_prefix(NAME_PREFIX) else {
            continue;
        };
        let Some((owner, _)) = rest.split_once('x') else {
            continue;
        };
        let gone = owner
            .parse::<u32>()
            .is_ok_and(|pid| !process::is_alive(pid));
        if gone {
            remove_account(&entry.name, entry.uid);
        }
    }
}

fn remove_account(name: &str, uid: u32) {
    assert!(uid >= 1000, "refusing to remove the account {name}");
    // A process may fork between the listing and the signal, hence more than one round.
    for _ in 0..5 {
        let pids = process::of_user(uid);
        if pids.is_empty() {
            break;
        }
        process::kill_and_wait(&pids);
    }
    // Its exit code also complains about a home that never was, so the account itself is looked for.
    let removed = Command::new("userdel")
        .args(["--remove", name])
        .stdin(Stdio::null())
        .output();
    if passwd_entries().iter().any(|entry| entry.name == name) {
        skip(format_args!(
            "the account {name} is left behind: {removed:?}"
        ));
    }
}

fn set_password(name: &str, password: &str) {
    let mut child = Command::new("chpasswd")
        .stdin(Stdio::piped())
        .spawn()
        .expect("chpasswd starts");
    let mut input = child.stdin.take().expect("chpasswd has an input");
    writeln!(input, "{name}:{password}").expect("chpasswd reads");
    drop(input);
    let status = child.wait().expect("chpasswd ends");
    assert!(status.success(), "chpasswd failed for {name}: {status}");
}

fn run_to_success(command: &mut Command) {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("cannot start {:?}: {error}", command.get_program()));
    assert!(
        output.status.success(),
        "{:?} failed: {}",
        command.get_program(),
        String::from_utf8_lossy(&output.stderr)
    );
}
