//! Processes that are started with descriptors of somebody else, in a session of their own.

use std::ffi::OsString;
use std::io::PipeWriter;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use tokio::process::{Child, ChildStderr, ChildStdout, Command};

/// A program that lives on when this one ends.
#[derive(Debug)]
pub struct Detached {
    /// What it says first.
    pub output: ChildStdout,
    /// What it complains about.
    pub errors: ChildStderr,
    child: Child,
}

impl Detached {
    /// Waits for its end in the background, so that it does not stay as a zombie.
    pub fn reap_later(self) {
        let mut child = self.child;
        tokio::spawn(async move {
            let _ = child.wait().await;
        });
    }

    /// Ends it at once.
    pub async fn end(mut self) {
        let _ = self.child.kill().await;
    }
}

/// The largest descriptor that is looked at one by one.
const LARGEST: libc::c_uint = 65_536;

/// Has every descriptor but the first three closed when the program begins.
#[expect(
    unsafe_code,
    reason = "descriptors that nobody owns can only be named by number"
)]
fn close_on_exec(most: libc::c_uint) {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the call takes three numbers and touches no memory.
        let done = unsafe {
            libc::syscall(
                libc::SYS_close_range,
                3 as libc::c_uint,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            )
        };
        if done == 0 {
            return;
        }
    }
    for descriptor in 3..most {
        // SAFETY: the call takes numbers only; for a descriptor that is not open it does nothing.
        unsafe { libc::fcntl(descriptor as libc::c_int, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// What a child does before it becomes another program: we may have been started with descriptors of somebody
/// else's, which are not ours to hand on.
fn close_others() -> impl Fn() + Send + Sync + 'static {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let most = most.map_or(LARGEST, |most| most.min(u64::from(LARGEST)) as libc::c_uint);
    move || close_on_exec(most)
}

/// Has a program begin a session of its own, with no descriptor but the standard ones.
pub(super) fn begin_session(command: &mut Command) {
    let close = close_others();
    #[expect(
        unsafe_code,
        reason = "the standard library offers no other way to begin a session and to close what it does not know"
    )]
    // SAFETY: only single system calls, which allocate nothing and take no lock.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            close();
            Ok(())
        });
    }
}

/// Has a program begin a session of its own, with no descriptor but the standard ones, in a process that no living one
/// is the parent of; its number is told through a pipe.
pub(super) fn begin_session_apart(command: &mut Command, teller: PipeWriter) {
    #[expect(
        unsafe_code,
        reason = "the standard library offers no other way to fork"
    )]
    // SAFETY: only single system calls, which allocate nothing and take no lock; the process has one thread here.
    unsafe {
        command.pre_exec(move || {
            match libc::fork() {
                -1 => return Err(std::io::Error::last_os_error()),
                0 => {}
                _ => libc::_exit(0),
            }
            let number = rustix::process::getpid().as_raw_nonzero().get();
            rustix::io::write(&teller, &number.to_ne_bytes())?;
            Ok(())
        });
    }
    begin_session(command);
}

/// Starts a program that lives on, in a group of its own, with nothing of our environment and no
/// other descriptor than the one that becomes its standard input. Where a control group is given, it
/// belongs to that from its first instruction on.
pub fn detached(
    program: &Path,
    arguments: &[OsString],
    variables: &[(String, OsString)],
    input: OwnedFd,
    control_group: Option<OwnedFd>,
) -> std::io::Result<Detached> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::from(input))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let close = close_others();
    #[expect(
        unsafe_code,
        reason = "the standard library offers no other way to close what it does not know"
    )]
    // SAFETY: only single system calls, which allocate nothing and take no lock.
    unsafe {
        command.pre_exec(move || {
            if let Some(group) = &control_group {
                rustix::io::write(group, b"0")?;
            }
            close();
            Ok(())
        });
    }
    let mut child = command.spawn()?;
    let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(std::io::ErrorKind::BrokenPipe.into());
    };
    Ok(Detached {
        output,
        errors,
        child,
    })
}

/// Starts a shell on three given streams, as the leader of a session of its own.
pub fn shell_in_session(folder: &Path, streams: [OwnedFd; 3]) -> std::io::Result<Child> {
    let [input, output, errors] = streams;
    let mut command = Command::new("/bin/sh");
    command
        .current_dir(folder)
        .stdin(Stdio::from(input))
        .stdout(Stdio::from(output))
        .stderr(Stdio::from(errors));
    #[expect(
        unsafe_code,
        reason = "the standard library offers no other way to begin a session"
    )]
    // SAFETY: setsid is a single system call that allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
    command.spawn()
}
