//! What a command at an event finds: few variables, and none with a secret of ours.

use std::path::{Path, PathBuf};

use remote_sandbox_core::config::Environment;

/// Variables that commands get where they are set.
const HANDED_ON: [&str; 23] = [
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// Beginnings of names of variables that agents need besides, their own keys among them.
const OF_AGENTS: [&str; 4] = ["CODEX_", "OPENAI_", "CLAUDE_", "ANTHROPIC_"];

/// Where programs of a user lie that a service is not told of.
const USUAL_FOLDERS: [&str; 5] = [
    "/opt/homebrew/bin",
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
    "/usr/sbin",
];

/// The surroundings of all commands.
#[derive(Clone)]
pub(super) struct Surroundings {
    variables: Vec<(String, String)>,
    of_agents: Vec<(String, String)>,
    path: String,
    folder: PathBuf,
}

impl std::fmt::Debug for Surroundings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values of variables are often passwords.
        formatter
            .debug_struct("Surroundings")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl Surroundings {
    /// Those that an environment gives, without the `hidden` variables.
    pub(super) fn new(environment: &Environment, hidden: &[String]) -> Self {
        let is_open = |name: &String| !hidden.contains(name);
        let set = environment.iter().filter(|(name, _)| is_open(name));
        let pair = |(name, value): (&String, &String)| (name.clone(), value.clone());
        let is_agents = |name: &str| OF_AGENTS.iter().any(|start| name.starts_with(start));
        let variables = set
            .clone()
            .filter(|(name, _)| HANDED_ON.contains(&name.as_str()));
        let of_agents = set.filter(|(name, _)| is_agents(name));
        let home = environment.get("HOME").map(PathBuf::from);
        let home = home.filter(|home| home.is_absolute());
        Surroundings {
            variables: variables.map(pair).collect(),
            of_agents: of_agents.map(pair).collect(),
            path: path(environment.get("PATH"), home.as_deref()),
            folder: home
                .filter(|home| home.is_dir())
                .unwrap_or_else(|| PathBuf::from("/")),
        }
    }

    /// The variables of a command, its own among them.
    pub(super) fn of_command(&self, own: Vec<(String, String)>) -> Vec<(String, String)> {
        let mut variables = self.variables.clone();
        variables.push(("PATH".to_owned(), self.path.clone()));
        variables.extend(own);
        variables
    }

    /// The variables of an agent, its own among them.
    pub(super) fn of_agent(&self, own: Vec<(String, String)>) -> Vec<(String, String)> {
        let mut variables = self.of_command(own);
        variables.extend(self.of_agents.iter().cloned());
        variables
    }

    /// Where commands begin.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A program in the first folder that has it.
    pub(super) fn find(&self, program: &str) -> Option<PathBuf> {
        let folders = std::env::split_paths(&self.path).filter(|folder| folder.is_absolute());
        let mut places = folders.map(|folder| folder.join(program));
        places.find(|place| {
            rustix::fs::access(place, rustix::fs::Access::EXEC_OK).is_ok() && place.is_file()
        })
    }

    /// Whether there is a desktop that shows notices.
    pub(super) fn has_session_bus(&self) -> bool {
        let get = |wanted: &str| {
            let mut all = self.variables.iter();
            all.find(|(name, value)| name == wanted && !value.is_empty())
        };
        let socket = get("XDG_RUNTIME_DIR").map(|(_, folder)| Path::new(folder).join("bus"));
        get("DBUS_SESSION_BUS_ADDRESS").is_some() || socket.is_some_and(|socket| socket.exists())
    }

    #[cfg(test)]
    pub(super) fn with_path(mut self, path: &str) -> Self {
        self.path = path.to_owned();
        self
    }
}

/// The given folders first, then where programs usually are.
fn path(given: Option<&String>, home: Option<&Path>) -> String {
    let mut folders: Vec<String> = given
        .map(|given| given.split(':').map(str::to_owned).collect())
        .unwrap_or_default();
    let own = home.map(|home| home.join(".local/bin").to_string_lossy().into_owned());
    let usual = USUAL_FOLDERS.into_iter().map(str::to_owned);
    for folder in own.into_iter().chain(usual) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders.retain(|folder| !folder.is_empty());
    folders.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_get_few_variables_and_agents_their_own_keys() {
        let environment: Environment = [
            ("HOME", "/"),
            ("PATH", "/mine"),
            ("REMOTE_SANDBOX_LIST", "[]"),
            ("REMOTE_PASSWORD", "x"),
            ("GITHUB_TOKEN", "x"),
            ("ANTHROPIC_API_KEY", "k"),
            ("OPENAI_BASE_URL", "hidden"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        let surroundings = Surroundings::new(&environment, &["OPENAI_BASE_URL".to_owned()]);
        let names = |variables: Vec<(String, String)>| {
            let names = variables.into_iter().map(|(name, _)| name);
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(surroundings.of_command(Vec::new())), ["HOME", "PATH"]);
        let agent = names(surroundings.of_agent(Vec::new()));
        assert_eq!(agent, ["HOME", "PATH", "ANTHROPIC_API_KEY"]);
        assert!(surroundings.path.starts_with("/mine:/.local/bin:/opt"));
        assert!(surroundings.find("sh").is_some());
        assert!(surroundings.find("no-such-program").is_none());
    }
}
