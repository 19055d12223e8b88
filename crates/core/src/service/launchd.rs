//! launchd of macOS: the property list of an agent, and what `launchctl print` says of one.

use super::ServiceDescription;

/// The name of the agent.
pub const LAUNCHD_LABEL: &str = "com.remote-sandbox-mcp.watchdog";

/// Seconds between two starts of a watchdog that ends at once.
const PAUSE: u32 = 10;

/// Files are for this user only; a property list has no octal numbers.
const UMASK: u32 = 0o077;

/// The property list that tells launchd to keep the service running.
pub fn plist(service: &ServiceDescription) -> String {
    let mut text = String::from(concat!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n",
        "<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" ",
        "\"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n",
        "<!-- Written by remote-sandbox-mcp; its command `watchdog uninstall` removes it. -->\n",
        "<plist version=\"1.0\">\n<dict>\n",
    ));
    let mut set = |key: &str, value: &str| {
        text.push_str(&format!("\t<key>{key}</key>\n\t{value}\n"));
    };
    set("Label", &string(LAUNCHD_LABEL));
    let words = std::iter::once(service.program());
    let words = words.chain(service.arguments().iter().map(String::as_str));
    let words: String = words
        .map(|word| format!("\t\t{}\n", string(word)))
        .collect();
    set("ProgramArguments", &format!("<array>\n{words}\t</array>"));
    let variables = service.variables().iter();
    let variables: String = variables
        .map(|(name, value)| format!("\t\t<key>{}</key>\n\t\t{}\n", escaped(name), string(value)))
        .collect();
    let variables = format!("<dict>\n{variables}\t</dict>");
    set("EnvironmentVariables", &variables);
    set("WorkingDirectory", &string("/"));
    set("RunAtLoad", "<true/>");
    set("KeepAlive", "<true/>");
    set("ThrottleInterval", &integer(PAUSE));
    // What it has started, such as sandboxes on this machine, is not ended with it.
    set("AbandonProcessGroup", "<true/>");
    // Agents that it wakes and commands at events inherit this: as background work they would be throttled.
    set("ProcessType", &string("Standard"));
    set("Umask", &integer(UMASK));
    set("StandardOutPath", &string("/dev/null"));
    set("StandardErrorPath", &string(service.log()));
    text.push_str("</dict>\n</plist>\n");
    text
}

fn string(text: &str) -> String {
    format!("<string>{}</string>", escaped(text))
}

fn integer(number: u32) -> String {
    format!("<integer>{number}</integer>")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// What launchd says of an agent that it knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaunchdState {
    /// Its state in launchd's word, such as `running` or `waiting`.
    pub state: Option<String>,
    /// The number of its process.
    pub pid: Option<u32>,
}

impl LaunchdState {
    /// Reads what `launchctl print` said of one agent.
    pub fn from_print(said: &str) -> Self {
        let mut found = LaunchdState::default();
        let mut depth = 0_u32;
        for line in said.lines().map(str::trim) {
            // Only the agent's own lines count, not those of what belongs to it.
            if depth == 1 {
                match line.split_once(" = ") {
                    Some(("state", state)) => found.state = Some(state.to_owned()),
                    Some(("pid", pid)) => found.pid = pid.parse().ok(),
                    _ => {}
                }
            }
            if line.ends_with('{') {
                depth += 1;
            } else if line.starts_with('}') {
                depth = depth.saturating_sub(1);
            }
        }
        found
    }

    /// Reads what `launchctl list LABEL` said, which older systems know too.
    pub fn from_list(said: &str) -> Self {
        let pid = said.lines().find_map(|line| {
            let (key, value) = line.trim().split_once(" = ")?;
            let value = value.trim_end_matches(';');
            (key == "\"PID\"").then(|| value.parse().ok())?
        });
        LaunchdState {
            state: pid.map(|_| "running".to_owned()),
            pid,
        }
    }

    /// Whether its process runs.
    pub fn is_running(&self) -> bool {
        self.pid.is_some()
    }
}
