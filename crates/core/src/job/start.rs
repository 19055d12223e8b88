//! The script that starts an attempt of a job, and what the host says of it.
//!
//! All of a job lies in `~/.remote-sandbox-mcp/jobs/<job id>/<attempt>/`, which only its owner may enter. The folder of
//! an attempt is made by `mkdir`, so of two who want the same number one has it. Making the file `process` is the gate:
//! it is linked into place whole, once, by the runner of the attempt, or by somebody who makes sure that the attempt
//! never begins. Session names and GPUs are claimed below `~/.remote-sandbox-mcp/claims/<boot id>/`.

use std::fmt::Write as _;

use super::process::ProcessIdentity;
use super::script::{COMMON, TELL, TMUX, bare, marked, path_word};
use super::spec::{ClaimedGpus, GpuWish, JobSpec};
use super::{AttemptNumber, JobId, Nonce, SessionName};
use crate::ids::RunToken;
use crate::output::clean_line;
use crate::probe::GpuVendor;
use crate::shell::quote;

const CLAIM: &str = include_str!("claim.sh");
const GPU: &str = include_str!("gpu.sh");
const START: &str = include_str!("start.sh");
const RUNNER: &str = include_str!("runner.sh");
const VIEWER: &str = include_str!("viewer.sh");

/// What the host says of an attempt that it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobStarted {
    /// The runner, which leads the session of the job.
    pub process: ProcessIdentity,
    /// The log, as an absolute path.
    pub log_file: String,
    /// Where in the log this attempt begins; before it stands what earlier ones said.
    pub log_offset: u64,
    /// The working directory, as an absolute path.
    pub cwd: String,
    /// The GPUs it has for itself.
    pub gpus: Option<ClaimedGpus>,
    /// Whether there is a tmux session to attach to; `None` when it is only made after this was said, or was not looked
    /// for again.
    pub has_viewer: Option<bool>,
}

/// Why the host did not start an attempt. It left nothing behind, but where said otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartRefusal {
    /// The directory cannot be entered.
    #[error("the working directory cannot be entered: {detail}")]
    Cwd {
        /// What the host said.
        detail: String,
    },
    /// The log cannot be made or written.
    #[error("the log cannot be written: {detail}")]
    Log {
        /// What the host said.
        detail: String,
    },
    /// Our folder in the home cannot be made.
    #[error("the folder of the job cannot be made in the home directory: {detail}")]
    Home {
        /// What the host said.
        detail: String,
    },
    /// The disk, or the user's share of it, is full.
    #[error("no space is left for the files of the job: {detail}")]
    NoSpace {
        /// What the host said.
        detail: String,
    },
    /// The shell that was chosen is not there.
    #[error("the shell of the sandbox was not found on the host")]
    Shell,
    /// A session of that name is alive.
    #[error("the session name is taken by a session that is alive")]
    SessionTaken {
        /// The job that has it, where it is one of ours.
        holder: Option<JobId>,
    },
    /// tmux cannot be asked whether a session of that name is alive.
    #[error("whether the session name is taken cannot be found out: {detail}")]
    SessionsUnknown {
        /// What the host said.
        detail: String,
    },
    /// Somebody else has this attempt, or a later one.
    #[error("attempt {attempt} was already taken by somebody else")]
    AttemptTaken {
        /// The attempt that is there.
        attempt: AttemptNumber,
        /// Whose it is.
        holder: Option<Nonce>,
    },
    /// An earlier attempt still runs.
    #[error("attempt {attempt} still runs")]
    AttemptLive {
        /// The attempt that runs.
        attempt: AttemptNumber,
        /// Whose it is.
        holder: Option<Nonce>,
    },
    /// The same start is being carried out by an earlier sending of it; ask again.
    #[error("the same start is still being carried out")]
    StillStarting,
    /// Somebody made sure that this attempt never begins, or its start had broken off before; its number is used up.
    #[error("this attempt was given up before it began; nothing was started")]
    Abandoned,
    /// The runner did not come up in time; it is certain that it never will, and its number is used up.
    #[error("the runner did not begin in time; nothing was started")]
    RunnerSilent,
    /// A program that knows the GPUs failed, so which of them are free is not known.
    #[error("which GPUs are free is not known, for `{tool}` failed on the host: {detail}")]
    GpuTool {
        /// The program.
        tool: String,
        /// What it said.
        detail: String,
    },
    /// Not enough GPUs are free.
    #[error("{free} of {present} GPUs are free")]
    NoFreeGpu {
        /// How many are free.
        free: u32,
        /// How many there are.
        present: u32,
    },
}

/// What came of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartVerdict {
    /// It runs.
    Started(JobStarted),
    /// An earlier sending of this very start had begun it already; it may be over by now.
    StartedBefore(JobStarted),
    /// It was not started.
    Refused(StartRefusal),
}

/// Why an answer cannot be used; whether anything was started is not known then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartReportError {
    /// The script never came to its end.
    #[error("the host did not say what became of the start")]
    NoVerdict,
    /// It came to its end in words we do not know.
    #[error("the host's words about the start could not be understood")]
    Strange,
}

/// Builds the one script that starts an attempt; `mark` tells its words from other text. It may be sent twice: the
/// second one finds what the first one did.
pub fn start_script(spec: &JobSpec, mark: &RunToken) -> String {
    let command = command_text(spec);
    let mut script = String::with_capacity(command.len() + 16 * 1024);
    // The braces make `sh` read all of it before it runs any of it.
    let _ = writeln!(script, "{{\n_rm={mark}");
    // What the runner and the view need too goes over the link once.
    for (name, part) in [("_rcommon", COMMON), ("_rtools", TMUX)] {
        let _ = writeln!(script, "{name}={}\neval \"${name}\"", quote(&bare(part)));
    }
    for part in [TELL, CLAIM] {
        script.push_str(&bare(part));
    }
    let gpus = match spec.gpus {
        GpuWish::None => "0".to_owned(),
        GpuWish::Auto => "auto".to_owned(),
        GpuWish::Count(count) => count.to_string(),
    };
    if spec.gpus != GpuWish::None {
        script.push_str(&bare(GPU));
    }
    let named = if spec.session == SessionName::for_job(&spec.job) {
        ""
    } else {
        "yes"
    };
    let _ = writeln!(
        script,
        "_rid={} _rn={} _rnonce={} _rname={} _rnamed={named} _rmax={} _rgpus={gpus} _rpause={}",
        spec.job, spec.attempt, spec.nonce, spec.session, spec.max_log_bytes, spec.log_pause_s,
    );
    let _ = writeln!(script, "_rcwd={}", path_word(spec.run.cwd().unwrap_or("")));
    let _ = writeln!(
        script,
        "_rlog={}",
        path_word(spec.log_file.as_deref().unwrap_or(""))
    );
    let shell = spec.run.shell().map_or("", |shell| shell);
    let _ = writeln!(script, "_rshell={}", quote(shell));
    let _ = writeln!(
        script,
        "write_command() {{ printf %s {}; }}",
        quote(&command)
    );
    for (name, common, part) in [
        ("write_runner", "\"$_rcommon$_rtools\"", RUNNER),
        ("write_viewer", "\"$_rcommon\"", VIEWER),
    ] {
        let text = quote(&bare(part));
        let _ = writeln!(script, "{name}() {{ printf %s {common}{text}; }}");
    }
    push_launch(&mut script, spec);
    script.push_str(&bare(START));
    script.push_str("}\n");
    script
}

/// What the script of a start says last.
pub fn start_last_words(mark: &RunToken) -> String {
    format!("RSMCP:{mark}:over\n")
}

/// A beginning that is longer cannot travel in the environment.
const LONGEST_VARIABLE: usize = 96 * 1024;

/// What the shell of the job reads: the sandbox's own beginning, and the command as the caller wrote it. The beginning may
/// hold secrets, so it goes with the process, as variables do, and is not written down.
fn command_text(spec: &JobSpec) -> String {
    let command = spec.run.command();
    // Some shells drop a backslash at the very end of a file, which they keep at the end of an argument.
    let backslashes = command
        .bytes()
        .rev()
        .take_while(|byte| *byte == b'\\')
        .count();
    let command = format!("{command}{}", if backslashes % 2 == 1 { "\\" } else { "" });
    let begin = match spec.run.init() {
        None => return command,
        Some(init) if init.len() > LONGEST_VARIABLE => format!("eval {} </dev/null", quote(init)),
        Some(_) => {
            "_rinit=$REMOTE_SANDBOX_INIT; unset REMOTE_SANDBOX_INIT; eval \"$_rinit\" </dev/null"
                .to_owned()
        }
    };
    format!(
        "{begin}\n\
         [ $? = 0 ] || {{ printf '%s\\n' 'the `init` of the sandbox failed' >&2; exit 125; }}\n\
         CDPATH= cd \"$REMOTE_SANDBOX_CWD\" || exit 125; unset REMOTE_SANDBOX_CWD _rinit\n\
         {command}"
    )
}

/// The call of the runner, written down before the caller's variables are set. Its shell comes up before there is a
/// runner: the first line it reads makes it one. bash, under whichever name, reads only this line of its script, and says
/// which signal ended a command only when it reads one; other shells would read what follows, too.
const RUNNER_CALL: &str = "\
set -- \"$_rdir/runner\" \"$_rdir\" \"$_rcwd\" \"$_rlog\" \"$_rshell\" \"$_rmask\" \"$PATH\" \"$_rmax\" \"$_rname\" \"$_rid.$_rn\" \"$_rpause\"
case ${BASH_VERSION:+bash}$_rsh in
bash* | */bash) set -- \"$_rsh\" --norc --posix -s \"$@\";;
*) set -- \"$_rsh\" -c 'read -r _rgo && eval \"$_rgo\"' sh \"$@\";;
esac
set_variables
";

/// Starts the runner by a program that leaves it behind in a session of its own, where the host has one that can.
const LAUNCH_APART: &str = "\
case $_rsetsid in */setsid) exec \"$_rsetsid\" -f \"$@\";; esac
exit 1
";

/// Starts the runner as an orphan that leads a session. It is the left side of a pipe and not a background command, for
/// a shell makes those deaf to two signals; the right side ends the shell that would wait for it.
const LAUNCH: &str = "\
case $_rsetsid in
*/perl) set -- \"$_rsetsid\" -e 'use POSIX; POSIX::setsid(); exec @ARGV' \"$@\";;
?*) set -- \"$_rsetsid\" \"$@\";;
esac
_rwait='exec 3>&1; \"$@\" >&3 3>&- | kill -KILL $$'
case $_rsh in */bash) exec \"$_rsh\" --norc --posix -c \"$_rwait\" sh \"$@\";; esac
exec \"$_rsh\" -c \"$_rwait\" sh \"$@\"
";

/// Writes the two ways to start the runner. The caller's variables go with the process and are never written down.
fn push_launch(script: &mut String, spec: &JobSpec) {
    script.push_str("set_variables() {\n");
    for (name, value) in spec.run.variables() {
        let _ = writeln!(script, "export {}={}", name.as_str(), quote(value));
    }
    // Tells the runner, and what keeps the log for it, from what the command starts.
    script.push_str("export REMOTE_SANDBOX_RUNNER=\"$_rid.$_rn\"\n");
    if let Some(init) = spec.run.init() {
        script.push_str("export REMOTE_SANDBOX_CWD=\"$_rcwd\"\n");
        if init.len() <= LONGEST_VARIABLE {
            let _ = writeln!(script, "export REMOTE_SANDBOX_INIT={}", quote(init));
        }
    }
    script.push_str("}\n");
    for (name, way) in [("launch_apart", LAUNCH_APART), ("launch", LAUNCH)] {
        let _ = writeln!(script, "{name}() (\n{RUNNER_CALL}{way})");
    }
}

/// Reads what [`start_script`] says.
pub fn parse_start(mark: &RunToken, answer: &[u8]) -> Result<StartVerdict, StartReportError> {
    let mut report = Report::default();
    for (line, _) in marked(mark.as_str(), answer) {
        let (key, value) = line.split_once(':').unwrap_or((line, ""));
        match key {
            "process" => report.process = Some(value),
            "log" => report.log = Some(value),
            "cwd" => report.cwd = Some(value),
            "offset" => report.offset = value.parse().ok(),
            "gpus" => report.gpus = claimed(value),
            "viewer" => {
                report.viewer = match value {
                    "no" => Some(false),
                    _ => None,
                };
            }
            "detail" => report.detail = clean_line(value, 300),
            "verdict" => return report.verdict(value).ok_or(StartReportError::Strange),
            _ => {}
        }
    }
    Err(StartReportError::NoVerdict)
}

#[derive(Default)]
struct Report<'a> {
    process: Option<&'a str>,
    log: Option<&'a str>,
    cwd: Option<&'a str>,
    offset: Option<u64>,
    gpus: Option<ClaimedGpus>,
    viewer: Option<bool>,
    detail: String,
}

impl Report<'_> {
    fn verdict(self, word: &str) -> Option<StartVerdict> {
        match word {
            "started" => self.started().map(StartVerdict::Started),
            "again" => self.started().map(StartVerdict::StartedBefore),
            _ => {
                let reason = word.strip_prefix("refused:")?;
                self.refusal(reason).map(StartVerdict::Refused)
            }
        }
    }

    fn started(self) -> Option<JobStarted> {
        let mut fields = self.process?.split(':');
        let mut next = || fields.next().unwrap_or("");
        Some(JobStarted {
            process: ProcessIdentity::read(next(), next(), next(), next(), next())?,
            log_file: self.log.filter(|path| path.starts_with('/'))?.to_owned(),
            log_offset: self.offset?,
            cwd: self.cwd?.to_owned(),
            gpus: self.gpus,
            has_viewer: self.viewer,
        })
    }

    fn refusal(self, reason: &str) -> Option<StartRefusal> {
        let mut fields = reason.split(':');
        let kind = fields.next()?;
        let (one, two) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let attempt = || AttemptNumber::new(one.parse().ok()?).ok();
        let detail = self.detail;
        Some(match kind {
            "cwd" => StartRefusal::Cwd { detail },
            "log" => StartRefusal::Log { detail },
            "home" => StartRefusal::Home { detail },
            "space" => StartRefusal::NoSpace { detail },
            "shell" => StartRefusal::Shell,
            "session" => StartRefusal::SessionTaken {
                holder: JobId::parse(one).ok(),
            },
            "tmux" => StartRefusal::SessionsUnknown { detail },
            "attempt" => StartRefusal::AttemptTaken {
                attempt: attempt()?,
                holder: Nonce::parse(two).ok(),
            },
            "live" => StartRefusal::AttemptLive {
                attempt: attempt()?,
                holder: Nonce::parse(two).ok(),
            },
            "starting" => StartRefusal::StillStarting,
            "abandoned" => StartRefusal::Abandoned,
            "not_started" => StartRefusal::RunnerSilent,
            "gputool" => StartRefusal::GpuTool {
                tool: clean_line(one, 32),
                detail,
            },
            "gpus" => StartRefusal::NoFreeGpu {
                free: one.parse().ok()?,
                present: two.parse().ok()?,
            },
            _ => return None,
        })
    }
}

fn claimed(text: &str) -> Option<ClaimedGpus> {
    let (vendor, indices) = text.split_once(':')?;
    let vendor = match vendor {
        "nvidia" => GpuVendor::Nvidia,
        "amd" => GpuVendor::Amd,
        "ascend" => GpuVendor::Ascend,
        _ => return None,
    };
    let indices: Option<Vec<u32>> = indices.split(',').map(|index| index.parse().ok()).collect();
    Some(ClaimedGpus {
        vendor,
        indices: indices?,
    })
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "attempt_tests.rs"]
mod attempt_tests;

#[cfg(test)]
#[path = "session_tests.rs"]
mod session_tests;

#[cfg(test)]
#[path = "gpu_tests.rs"]
mod gpu_tests;

#[cfg(test)]
#[path = "claim_tests.rs"]
mod claim_tests;

#[cfg(test)]
#[path = "void_tests.rs"]
mod void_tests;
