//! The shell that is started before there is a command for it.

use std::fmt::Write as _;

use super::TimeoutProgram;
use super::start::{FIND_TIMEOUT, WHO_AM_I};
use crate::ids::RunToken;

/// What goes to a shell in advance. It learns what a run would have to learn, notes how the login
/// files are now, says that it is ready, and waits for the rest of its standard input.
///
/// Its own names are long because scripts of all kinds follow. `rsmcp_begin` is the directory the
/// login began in. `rsmcp_files` shows the state of the files, `rsmcp_then` is what it showed.
/// `rsmcp_newer` says whether a file or folder was changed at or after the moment that descriptor 7
/// stands for, a clock ticks slowly; `rsmcp_fast` is set where that can be believed.
///
/// `local` is what an earlier shell on the same connection said about the file systems.
pub fn ready_script(token: &RunToken, program: TimeoutProgram, local: Option<bool>) -> String {
    let mut script = String::from("{\n");
    let _ = writeln!(script, "t={token}");
    script.push_str(WHO_AM_I);
    match program.letter() {
        None => script.push_str(FIND_TIMEOUT),
        Some(letter) => {
            let _ = writeln!(script, "k={letter}");
        }
    }
    script.push_str(NOTE_MOMENT);
    script.push_str(match local {
        None => FIND_LOCAL,
        Some(true) => "",
        Some(false) => "rsmcp_fast=\n",
    });
    script.push_str(NOTE_LOGIN_FILES);
    script.push_str(
        "printf '%s\\n' \"RSMCP-FILES:$t\" \"$rsmcp_then\" \"RSMCP:$t:R:$$:$q:$b:$k:$c:$rsmcp_fast\"\n}\n",
    );
    script
}

/// The state of the login files that a ready shell told, from what it printed before saying so.
pub fn noted_files<'a>(token: &RunToken, printed: &'a [u8]) -> Option<&'a [u8]> {
    let mark = format!("RSMCP-FILES:{token}\n").into_bytes();
    let at = printed
        .windows(mark.len())
        .position(|window| window == mark)?;
    printed.get(at + mark.len()..)
}

/// Compares the login files with how they were: whoever changed one expects the next command to see
/// it. Starts a process only where something was changed. Says so and ends where it cannot be this
/// shell that runs the command.
pub(super) const STILL_FRESH: &str = "\
{ [ -n \"$rsmcp_fast\" ] && ! rsmcp_newer || [ \"$(rsmcp_files)\" = \"$rsmcp_then\" ]; } \
&& CDPATH= cd \"$rsmcp_begin\" >/dev/null 2>&1 || { printf '%s\\n' RSMCP:$t:F:stale; exit 125; }
";

/// Keeps the moment: an open file of /proc has the time of its first opening.
const NOTE_MOMENT: &str = "\
rsmcp_fast=
if [ -r /proc/$$/stat ]; then
exec 7</proc/$$/stat
[ /proc/$$/stat -nt / ] 2>/dev/null && rsmcp_fast=1
fi
";

/// The moment only serves where the files are dated by the same clock, which a file server's are not.
const FIND_LOCAL: &str = "\
rsmcp_kinds=$(stat -f -c %T \"${HOME:-/}\" /etc 2>/dev/null) || rsmcp_kinds=unknown
for x in $rsmcp_kinds; do
case $x in ext2/ext3|xfs|btrfs|tmpfs|ramfs|overlayfs|zfs|f2fs) ;; *) rsmcp_fast=;; esac
done
";

/// The files that shells, PAM and the server read at a login without a terminal, and the folders in
/// which they appear and vanish. The files' time is told to the nanosecond where `ls` can, and with
/// their inode, so that a file that was replaced shows too.
const NOTE_LOGIN_FILES: &str = "\
rsmcp_begin=$PWD rsmcp_time=--full-time
rsmcp_over() {
set -- \"$1\" \"${HOME:-/}\"
\"$1\" \"$2/.bashrc\" \"$2/.bash_profile\" \"$2/.bash_login\" \"$2/.profile\" \"$2/.bash_aliases\" \
\"${BASH_ENV:-$2/.bashrc}\" \"${ENV:-$2/.bashrc}\" \"${ZDOTDIR:-$2}/.zshenv\" \
\"${XDG_CONFIG_HOME:-$2/.config}/fish/config.fish\" \"${XDG_CONFIG_HOME:-$2/.config}/fish/conf.d\" \"${XDG_CONFIG_HOME:-$2/.config}/fish/conf.d/\"*.fish \"${XDG_CONFIG_HOME:-$2/.config}/fish/fish_variables\" \
\"$2/.cshrc\" \"$2/.tcshrc\" \"$2/.kshrc\" \"$2/.mkshrc\" \"$2/.shrc\" \
\"$2/.ssh/environment\" \"$2/.ssh/rc\" \"$2/.pam_environment\" \
/etc/environment /etc/bash.bashrc /etc/bashrc /etc/profile /etc/profile.d /etc/zshenv /etc/zsh/zshenv \
/etc/csh.cshrc /etc/fish/config.fish /etc/ssh/sshrc
}
rsmcp_list() { ls -lidnL $rsmcp_time \"$@\" 2>/dev/null; }
rsmcp_files() { rsmcp_over rsmcp_list; }
rsmcp_any() { for x do [ /proc/$$/stat -nt \"$x\" ] || return 0; done; return 1; }
rsmcp_newer() {
rsmcp_over rsmcp_any && return 0
set -- \"${HOME:-/}\"
rsmcp_any \"$1\" \"${ZDOTDIR:-$1}\" \"${XDG_CONFIG_HOME:-$1/.config}\" \"${XDG_CONFIG_HOME:-$1/.config}/fish\" \"$1/.ssh\" /etc /etc/zsh /etc/fish /etc/ssh
}
rsmcp_then=$(rsmcp_files)
[ -n \"$rsmcp_then\" ] || { rsmcp_time=; rsmcp_then=$(rsmcp_files); }
";
