//! The script that starts one command of a caller.

use std::fmt::Write as _;

use super::run::{HostFacts, LONGEST_ARGUMENT, RunSpec, ShellAge, StdinText};
use super::warm::STILL_FRESH;
use super::{ShellProgram, TOKEN_VARIABLE, quote};
use crate::ids::RunToken;

/// Builds the script that runs `spec` under `token`.
///
/// `last_resort_s` is the second layer: when this program is gone, the host's own `timeout` ends the
/// command after that many seconds. The last thing the script does is `exec`, so that the server's
/// exit status and exit signal are the command's own, where the connection tells both.
pub fn run_script(spec: &RunSpec, token: &RunToken, last_resort_s: u64, host: HostFacts) -> String {
    let mut script = String::with_capacity(spec.command.len() + 2048);
    // The braces make `sh` read all of it before it runs any of it.
    script.push_str("{\n");
    let _ = writeln!(script, "t={token}");
    match (host.age, host.program.letter()) {
        // It knows who it is and which programs there are.
        (ShellAge::Waiting, _) => script.push_str(STILL_FRESH),
        (ShellAge::New, letter) => {
            script.push_str(WHO_AM_I);
            match letter {
                None => script.push_str(FIND_TIMEOUT),
                Some(letter) => {
                    let _ = writeln!(script, "k={letter}");
                }
            }
        }
    }
    if let Some(cwd) = &spec.cwd {
        push_change_directory(&mut script, cwd);
    }
    script.push_str(FIND_BASH);
    if let Some(shell) = &spec.shell {
        push_shell(&mut script, shell);
    }
    if spec.variables.iter().any(|(name, _)| name.0 == "PATH") {
        // The caller's own search path is for the command; ours has to be found without it.
        script.push_str(RESOLVE);
    }
    let _ = writeln!(script, "n={last_resort_s}");
    script.push_str(ASSEMBLE);
    script.push_str(match spec.init {
        None => ANNOUNCE,
        Some(_) => ACKNOWLEDGE,
    });
    push_start(&mut script, spec, token, host);
    script.push_str(if host.tells_signals {
        "exit 127\n}\n"
    } else {
        "exit $?\n}\n"
    });
    script
}

/// Learns the session and start time of this shell without starting a process, and leads a session
/// of its own where the server did not make one. `q` is the number that finds its processes: that of
/// the session or group it leads, or 0 where it leads none and only the token can find them. `c`
/// tells a server that closes the channel with the command, whoever else still holds it.
pub(super) const WHO_AM_I: &str = "\
c=; x=; [ -r /proc/$PPID/comm ] && read -r x </proc/$PPID/comm; case $x in dropbear*) c=c;; esac
x=; [ -r /proc/$$/stat ] && read -r x </proc/$$/stat
x=${x##*) }; set -- $x; g=${3-} q=${4-0} b=${20-0}; w=
[ -n \"$g\" ] || g=$(ps -o pgid= -p $$ 2>/dev/null | tr -d ' ')
if [ \"$q\" != $$ ]; then
if [ \"$g\" = $$ ]; then q=$$; elif command -v setsid >/dev/null 2>&1; then w=setsid; q=$$; else q=0; fi
fi
";

/// Finds out which `timeout` the host has; costs one short process, once per connection. One that
/// becomes the command has the parent of the command, and not a process of its own in between.
pub(super) const FIND_TIMEOUT: &str = "\
k=n
if command -v timeout >/dev/null 2>&1; then
(:) # where no process can be started, this says so aloud
if x=$(exec timeout -k 1 5 sh -c 'echo $PPID' 2>/dev/null); then k=k; [ \"$x\" != $$ ] || k=K
elif x=$(exec timeout 5 sh -c 'echo $PPID' 2>/dev/null); then k=p; [ \"$x\" != $$ ] || k=P; fi
fi
";

/// Finds our own programs by their full names.
const RESOLVE: &str = "\
s=$(command -v ${s%% *})${s#${s%% *}}; o=$(command -v timeout); [ -z \"$w\" ] || w=$(command -v setsid)
";

/// Bash takes itself for a login over the network here and would read `.bashrc`, whose words would
/// then be the command's; the login shell has read its own files already.
const FIND_BASH: &str = "s=sh o=timeout; command -v bash >/dev/null 2>&1 && s='bash --norc'\n";

/// Puts together what is executed, and the line that says so. A `timeout` that outlives the command
/// must not pass for a child of it: it gets neither the token nor the descriptor that background
/// children are known by, the shell within it does.
const ASSEMBLE: &str = "\
set -- $w
case $k in [kK]) set -- \"$@\" $o -k 2 $n;; [pP]) set -- \"$@\" $o $n;; esac
rsmcp_within=; case $k in [KP]) rsmcp_within=1;; esac
[ -z \"$rsmcp_within\" ] || set -- \"$@\" $s -c 'export REMOTE_SANDBOX_RUN=$0; exec \"$@\" 8>&2' $t
set -- \"$@\" $s
m=RSMCP:$t:B:$$:$q:$b:$k:$c
";

/// Tells both streams that everything after this line is the command's own output.
const ANNOUNCE: &str = "printf '%s\\n' \"$m\"; printf '%s\\n' \"$m\" >&2\n";

/// Says that the shell has taken the command up; the other line follows when the beginning is done.
const ACKNOWLEDGE: &str = "printf '%s\\n' RSMCP:$t:A\n";

/// The variable that carries the line into the shell of the command, when that has to say it.
const LINE_VARIABLE: &str = "REMOTE_SANDBOX_LINE";

/// Uses the shell that somebody chose, and says so where the host has none of that name. It only has
/// to run the command itself; the text before the command stays with the one we know.
fn push_shell(script: &mut String, shell: &ShellProgram) {
    let name = quote(shell);
    let _ = writeln!(
        script,
        "command -v {name} >/dev/null 2>&1 || {{ printf '%s\\n' RSMCP:$t:F:shell; exit 125; }}"
    );
}

/// What is executed for the command: the shell that was chosen, or none where it is the usual one.
fn chosen(spec: &RunSpec) -> Option<String> {
    let shell = spec.shell.as_ref()?;
    let name = shell.rsplit('/').next().unwrap_or(shell);
    let options = if name == "bash" { " --norc" } else { "" };
    // A line break in front keeps a command that begins with a dash from being an option.
    let command = quote(&format!("\n{}", spec.command));
    Some(format!("exec {}{options} -c {command}", quote(shell)))
}

/// The text that the shell runs: the sandbox's own beginning, the word that it is done, the command.
fn body(spec: &RunSpec, token: &RunToken) -> String {
    let command = chosen(spec).unwrap_or_else(|| spec.command.clone());
    let Some(init) = &spec.init else {
        return command;
    };
    // A directory that was asked for holds, wherever the text goes.
    let back = match spec.cwd {
        Some(_) => "CDPATH= cd \"$REMOTE_SANDBOX_CWD\"; unset REMOTE_SANDBOX_CWD\n",
        None => "",
    };
    // A test of its own, for `||` would take the meaning of `set -e` from the text.
    format!(
        "eval {} </dev/null\n\
         [ $? = 0 ] || {{ printf '%s\\n' RSMCP:{token}:F:init; exit 125; }}\n\
         {back}\
         printf '%s\\n' \"${LINE_VARIABLE}\"; printf '%s\\n' \"${LINE_VARIABLE}\" >&2; unset {LINE_VARIABLE}\n\
         {command}",
        quote(init)
    )
}

fn push_change_directory(script: &mut String, cwd: &str) {
    let target = match cwd.strip_prefix('~') {
        Some("") => "\"${HOME:-/nonexistent}\"".to_owned(),
        Some(rest) if rest.starts_with('/') => {
            format!("\"${{HOME:-/nonexistent}}\"{}", quote(rest))
        }
        // A leading dash would be read as an option, and a lone one as the previous directory.
        _ if cwd.starts_with('-') => quote(&format!("./{cwd}")),
        _ => quote(cwd),
    };
    let _ = writeln!(
        script,
        "CDPATH= cd {target} >/dev/null 2>&1 || {{ printf '%s\\n' RSMCP:$t:F:cwd; CDPATH= cd {target}; exit 125; }}"
    );
}

fn push_start(script: &mut String, spec: &RunSpec, token: &RunToken, host: HostFacts) {
    let exec = if host.tells_signals { "exec " } else { "" };
    let body = body(spec, token);
    let (how, delivered) = if spec.init.is_none() && body.len() <= LONGEST_ARGUMENT {
        let _ = writeln!(script, "set -- \"$@\" -c -- {}", quote(&body));
        (format!("{exec}\"$@\""), String::new())
    } else {
        // Too long for an argument, or not for everybody's eyes: it comes on a descriptor of its own,
        // closed before it runs.
        let end = format!("RSMCP_{token}");
        (
            format!("{exec}\"$@\" -c 'eval \"$(\"$REMOTE_SANDBOX_CAT\" <&9)\" 9<&-' 9<<'{end}'"),
            format!("unset REMOTE_SANDBOX_CAT\n{body}\n{end}\n"),
        )
    };
    if !delivered.is_empty() {
        script.push_str("export REMOTE_SANDBOX_CAT=\"$(command -v cat)\"\n");
    }
    // Background children that let go of both streams still hold this descriptor, so that their
    // being there shows as a pipe that stays open, at no cost for everybody else.
    script.push_str("[ -n \"$rsmcp_within\" ] || exec 8>&2\n");
    if spec.init.is_some() {
        let _ = writeln!(script, "export {LINE_VARIABLE}=\"$m\"");
        if spec.cwd.is_some() {
            script.push_str("export REMOTE_SANDBOX_CWD=\"$PWD\"\n");
        }
    }
    // Last, for the script has variables of its own, which must neither be nor become the caller's.
    for (name, value) in &spec.variables {
        let _ = writeln!(script, "export {}={}", name.as_str(), quote(value));
    }
    let _ = writeln!(
        script,
        "{{ true >&8; }} 2>/dev/null && export {TOKEN_VARIABLE}={token}"
    );
    // The moment that a waiting shell keeps is no business of the command.
    let how = match host.age {
        ShellAge::New => how,
        ShellAge::Waiting => format!("{how} 7<&-"),
    };
    match &spec.stdin {
        None => {
            let _ = write!(script, "{how} </dev/null\n{delivered}");
        }
        // A here-document always ends in a newline, so it can carry exactly this text, and the
        // command keeps its own exit signal.
        Some(StdinText(text)) if text.ends_with('\n') => {
            let end = format!("RSMCP_IN_{token}");
            let _ = write!(script, "{how} <<'{end}'\n{delivered}{text}{end}\n");
        }
        Some(StdinText(text)) => {
            let text = quote(text);
            let _ = write!(script, "printf %s {text} | {how}\n{delivered}exit $?\n");
        }
    }
}
