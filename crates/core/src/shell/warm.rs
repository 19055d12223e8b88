//! The shell that is started before there is a command for it.

use std::fmt::Write as _;

use super::TimeoutProgram;
use super::start::{FIND_TIMEOUT, WHO_AM_I};
use crate::ids::RunToken;

/// What goes to a shell in advance. It learns what a run would have to learn, notes how the login
/// files are now, says that it is ready, and waits for the rest of its standard input.
///
/// Its own names are long because scripts of all kinds follow: `rsmcp_begin` is the directory the login
/// began in, `rsmcp_files` shows the state of the files, `rsmcp_then` is what it showed.
pub fn ready_script(token: &RunToken, program: TimeoutProgram) -> String {
    let mut script = String::from("{\n");
    let _ = writeln!(script, "t={token}");
    script.push_str(WHO_AM_I);
    match program.letter() {
        None => script.push_str(FIND_TIMEOUT),
        Some(letter) => {
            let _ = writeln!(script, "k={letter}");
        }
    }
    script.push_str(NOTE_LOGIN_FILES);
    script.push_str("printf '%s\\n' \"RSMCP:$t:R:$$:$q:$b:$k\"\n}\n");
    script
}

/// Compares the login files with how they were: whoever changed one expects the next command to see
/// it. Says so and ends where it cannot be this shell that runs the command.
pub(super) const STILL_FRESH: &str = "\
[ \"$(rsmcp_files)\" = \"$rsmcp_then\" ] && CDPATH= cd \"$rsmcp_begin\" >/dev/null 2>&1 || { printf '%s\\n' RSMCP:$t:F:stale; exit 125; }
";

/// The files that shells, PAM and the server read at a login without a terminal. Their time is told
/// to the nanosecond where `ls` can, and with their inode, so that a file that was replaced shows too.
const NOTE_LOGIN_FILES: &str = "\
rsmcp_begin=$PWD rsmcp_time=--full-time; ls -d --full-time / >/dev/null 2>&1 || rsmcp_time=
rsmcp_files() {
set -- \"${HOME:-/}\"
ls -lidnL $rsmcp_time \"$1/.bashrc\" \"$1/.bash_profile\" \"$1/.bash_login\" \"$1/.profile\" \"$1/.bash_aliases\" \
\"${BASH_ENV:-$1/.bashrc}\" \"${ENV:-$1/.bashrc}\" \"${ZDOTDIR:-$1}/.zshenv\" \
\"$1/.config/fish/config.fish\" \"$1/.config/fish/conf.d\" \"$1/.config/fish/fish_variables\" \
\"$1/.cshrc\" \"$1/.tcshrc\" \"$1/.kshrc\" \"$1/.mkshrc\" \"$1/.shrc\" \
\"$1/.ssh/environment\" \"$1/.ssh/rc\" \"$1/.pam_environment\" \
/etc/environment /etc/bash.bashrc /etc/bashrc /etc/profile /etc/profile.d /etc/zshenv /etc/zsh/zshenv \
/etc/csh.cshrc /etc/fish/config.fish /etc/ssh/sshrc 2>/dev/null
}
rsmcp_then=$(rsmcp_files)
";
