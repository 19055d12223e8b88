//! Servers with local sandboxes, somebody to run them, and attacks on their walls.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use remote_sandbox_testkit::mcp::{McpClient, ToolReply};
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::users::TestUser;
use remote_sandbox_testkit::wait::{skip, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{program, ready};

/// Who runs the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Root,
    Plain,
}

/// What stands around the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wall {
    Bubblewrap,
    Landlock,
}

impl Wall {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Wall::Bubblewrap => "bubblewrap",
            Wall::Landlock => "landlock",
        }
    }
}

/// How a server is to be started.
pub(crate) struct Setup {
    configuration: String,
    variables: Vec<(String, String)>,
    wrapper: Vec<String>,
    state: Option<PathBuf>,
}

impl Setup {
    /// Nothing configured at all.
    pub(crate) fn new() -> Self {
        Setup {
            configuration: String::new(),
            variables: Vec::new(),
            wrapper: Vec::new(),
            state: None,
        }
    }

    /// Adds lines to the table `[local]`.
    pub(crate) fn local(mut self, lines: &str) -> Self {
        if self.configuration.is_empty() {
            self.configuration = "[local]\n".to_owned();
        }
        self.configuration.push_str(lines);
        self.configuration.push('\n');
        self
    }

    /// Asks for this wall and no other.
    pub(crate) fn isolation(self, word: &str) -> Self {
        self.local(&format!("isolation = \"{word}\""))
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A program with arguments that starts the server, which follows as its last argument.
    pub(crate) fn wrapper<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.wrapper = words.map(str::to_owned).into();
        self
    }

    /// Another place for the state.
    pub(crate) fn state(mut self, folder: &Path) -> Self {
        self.state = Some(folder.to_owned());
        self
    }

    /// Starts the server as whoever runs the tests.
    pub(crate) async fn start(self) -> Local {
        let owner = Owner::current();
        self.start_as(owner).await
    }

    /// Starts it as root or as a plain user; nothing, and a printed reason, where that cannot be had.
    pub(crate) async fn start_for(self, who: Who) -> Option<Local> {
        let owner = Owner::new(who)?;
        Some(self.start_as(owner).await)
    }

    async fn start_as(self, owner: Owner) -> Local {
        let server = Server { setup: self, owner };
        let client = server.start().await;
        Local { client, server }
    }
}

/// An account with a home.
pub(crate) struct Owner {
    /// The account that is removed at the end, where there is one.
    user: Option<TestUser>,
    /// A place for the home, where the account's own is not to be used.
    _folder: TempDir,
    home: PathBuf,
    program: PathBuf,
}

impl Owner {
    fn current() -> Self {
        let folder = TempDir::with_prefix("testkit-local-").unwrap();
        Owner {
            user: None,
            home: folder.path().canonicalize().unwrap(),
            _folder: folder,
            program: program(),
        }
    }

    fn new(who: Who) -> Option<Self> {
        match (who, process::is_root()) {
            (Who::Root, false) => {
                skip("needs root: what root may do behind a wall");
                None
            }
            (Who::Root, true) | (Who::Plain, false) => Some(Self::current()),
            (Who::Plain, true) => {
                let user = TestUser::create()?;
                let folder = TempDir::with_prefix("testkit-local-").unwrap();
                Some(Owner {
                    home: user.home().to_owned(),
                    user: Some(user),
                    program: reachable_program(folder.path()),
                    _folder: folder,
                })
            }
        }
    }

    /// The words that make a command one of this account.
    fn become_it(&self) -> Vec<String> {
        let Some(user) = &self.user else {
            return Vec::new();
        };
        let group = std::fs::metadata(user.home()).unwrap().gid();
        let numbers = [
            format!("--reuid={}", user.uid()),
            format!("--regid={group}"),
        ];
        let mut words = vec!["setpriv".to_owned(), "--clear-groups".to_owned()];
        words.extend(numbers);
        words
    }

    /// The name of the account.
    pub(crate) fn account(&self) -> String {
        match &self.user {
            Some(user) => user.name().to_owned(),
            None => TestUser::current().name().to_owned(),
        }
    }

    /// Gives a path to the account.
    pub(crate) fn give(&self, path: &Path) {
        if let Some(user) = &self.user {
            chown(path, Some(user.uid()), None).unwrap();
        }
    }
}

/// The program under test at a place where everybody can run it.
fn reachable_program(folder: &Path) -> PathBuf {
    let program = program();
    let passable = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o001 != 0)
    };
    if program.ancestors().all(passable) {
        return program;
    }
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    let copy = folder.join("remote-sandbox-mcp");
    std::fs::copy(program, &copy).unwrap();
    copy
}

/// A server that can be started again with the same files.
pub(crate) struct Server {
    setup: Setup,
    pub(crate) owner: Owner,
}

impl Server {
    /// Starts one, ready for calls.
    pub(crate) async fn start(&self) -> McpClient {
        let setup = &self.setup;
        let mut words = self.owner.become_it();
        words.extend(setup.wrapper.iter().cloned());
        words.push(self.owner.program.display().to_string());
        if !setup.configuration.is_empty() {
            let file = self.owner.home.join("sandboxes.toml");
            // A server that starts at the same moment must not find it half written.
            let written = std::fs::read_to_string(&file).unwrap_or_default();
            if written != setup.configuration {
                std::fs::write(&file, &setup.configuration).unwrap();
                self.owner.give(&file);
            }
            words.extend(["--config".to_owned(), file.display().to_string()]);
        }
        let mut builder = McpClient::builder(&words[0])
            .args(&words[1..])
            .home(&self.owner.home)
            .env("REMOTE_SANDBOX_MCP_HOME", self.state());
        for (name, value) in &setup.variables {
            builder = builder.env(name, value);
        }
        ready(builder.start()).await
    }

    /// Has the next start find another configuration.
    pub(crate) fn configure(&mut self, configuration: &str) {
        self.setup.configuration = configuration.to_owned();
    }

    /// Where it keeps its state.
    pub(crate) fn state(&self) -> PathBuf {
        match &self.setup.state {
            Some(state) => state.clone(),
            None => self.owner.home.join("state"),
        }
    }

    /// The supervisors and their tools, of one sandbox.
    pub(crate) fn supervisors(&self, sandbox: &str) -> Vec<u32> {
        let home = self.state().join("sandboxes").join(sandbox).join("home");
        let mut found = process::with_command_line("sandbox-supervisor");
        let home = home.display().to_string();
        found.retain(|pid| process::command_line(*pid).is_some_and(|line| line.contains(&home)));
        found.retain(|pid| process::is_alive(*pid));
        found.sort_unstable();
        found
    }

    /// The supervisor itself.
    pub(crate) fn supervisor(&self, sandbox: &str) -> u32 {
        let is_tool = |pid: &u32| process::name(*pid).is_some_and(|name| name == "bwrap");
        let mut found = self.supervisors(sandbox);
        found.retain(|pid| !is_tool(pid));
        assert_eq!(found.len(), 1, "one supervisor");
        found[0]
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        process::end_sandboxes_below(&self.state());
    }
}

/// A running server with local sandboxes; at the end nothing of it is left.
pub(crate) struct Local {
    pub(crate) client: McpClient,
    pub(crate) server: Server,
}

impl Local {
    /// Runs a command in the sandbox `local`.
    pub(crate) async fn run(&self, command: &str) -> ToolReply {
        self.run_in("local", command).await
    }

    pub(crate) async fn run_in(&self, sandbox: &str, command: &str) -> ToolReply {
        run_in(&self.client, sandbox, command).await
    }

    /// What a command prints.
    pub(crate) async fn output(&self, command: &str) -> String {
        output(&self.client, "local", command).await
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> ToolReply {
        self.client.call_tool(tool, arguments).await
    }

    pub(crate) async fn create(&self, arguments: Value) -> ToolReply {
        let reply = self.call("create_sandbox", arguments).await;
        assert!(!reply.is_error, "{}", reply.text);
        reply
    }

    pub(crate) async fn delete(&self, name: &str) -> ToolReply {
        self.call("delete_sandbox", json!({"sandbox_id": name}))
            .await
    }

    /// What `list_sandboxes` says of a sandbox.
    pub(crate) async fn line(&self, name: &str) -> Value {
        line(&self.client, name).await
    }

    /// Whether the list says that a wall does not keep this apart.
    pub(crate) async fn is_open(&self, words: &str) -> bool {
        let line = self.line("local").await;
        let open = line["not_walled_off"].as_array().expect("a list");
        open.iter().any(|one| one == words)
    }

    /// Asserts that this wall stands.
    pub(crate) async fn assert_level(&self, wall: Wall) {
        assert_eq!(self.line("local").await["isolation"], wall.word());
    }

    /// The home of whoever runs the server.
    pub(crate) fn home(&self) -> &Path {
        &self.server.owner.home
    }

    /// The folder of a sandbox.
    pub(crate) fn folder(&self, sandbox: &str) -> PathBuf {
        self.server.state().join("sandboxes").join(sandbox)
    }

    /// A command of whoever runs the server, outside of every wall.
    pub(crate) fn outside(&self, program: &str) -> Command {
        let mut words = self.server.owner.become_it();
        words.push(program.to_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir("/");
        command
    }

    /// Runs a script outside of every wall.
    pub(crate) fn run_outside(&self, script: &str) -> Output {
        let mut command = self.outside("bash");
        command.args(["-c", script]).output().unwrap()
    }

    /// Asserts that a script that succeeds outside does not succeed behind the wall, and that it does
    /// not say the canary there.
    pub(crate) async fn assert_refused(&self, attack: &str, script: &str) {
        let reply = self.run(script).await;
        let code = reply.json["exit_code"].as_i64();
        assert!(
            code.is_some_and(|code| code > 0),
            "{attack}: {}",
            reply.text
        );
        assert!(!reply.text.contains(CANARY), "{attack}: {}", reply.text);
        self.assert_works_outside(attack, script);
    }

    /// The other half of an attack: it is one.
    pub(crate) fn assert_works_outside(&self, attack: &str, script: &str) {
        let output = self.run_outside(script);
        assert!(output.status.success(), "{attack} outside: {output:?}");
    }

    /// A file of whoever runs the server.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home().join(name);
        let folder = path.parent().unwrap();
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(&path, text).unwrap();
        self.server.owner.give(folder);
        self.server.owner.give(&path);
        path
    }
}

/// What must not be seen inside.
pub(crate) const CANARY: &str = "canary-of-the-outside";

/// Runs a command in a sandbox.
pub(crate) async fn run_in(client: &McpClient, sandbox: &str, command: &str) -> ToolReply {
    let arguments = json!({"command": command, "sandbox_name": sandbox});
    client.call_tool("exec_bash", arguments).await
}

/// What a command prints, without the end of the line.
pub(crate) async fn output(client: &McpClient, sandbox: &str, command: &str) -> String {
    let reply = run_in(client, sandbox, command).await;
    assert!(!reply.is_error, "{}", reply.text);
    let text = reply.json["stdout"].as_str().expect("an output");
    text.trim_end().to_owned()
}

/// What `list_sandboxes` says of a sandbox; null when there is none of this name.
pub(crate) async fn line(client: &McpClient, name: &str) -> Value {
    let reply = client.call_tool("list_sandboxes", json!({})).await;
    let lines = reply.json["sandboxes"].as_array().expect("a list");
    let found = lines.iter().find(|line| line["name"] == name);
    found.cloned().unwrap_or_default()
}

/// Waits until nothing has this command line any more.
pub(crate) async fn gone(text: &str) -> bool {
    let living = || {
        let mut pids = process::with_command_line(text);
        pids.retain(|pid| process::is_alive(*pid));
        pids
    };
    wait_until(Duration::from_secs(8), || living().is_empty()).await
}

/// A folder that everybody may write into.
pub(crate) fn open_folder() -> TempDir {
    let folder = TempDir::with_prefix("testkit-open-").unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    folder
}

/// A file that is removed whatever becomes of the test.
pub(crate) struct Cleanup(pub(crate) PathBuf);

impl Drop for Cleanup {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A process outside of every wall, ended with the test.
pub(crate) struct Bystander(std::process::Child);

impl Bystander {
    /// Starts `sleep` with a canary in its environment, as whoever runs the server.
    pub(crate) fn start(local: &Local, seconds: &str) -> Self {
        let mut command = local.outside("env");
        let child = command
            .args([&format!("CANARY={CANARY}"), "sleep", seconds])
            .stdin(std::process::Stdio::null())
            .spawn();
        let bystander = Bystander(child.unwrap());
        let is_sleep = || process::name(bystander.pid()).is_some_and(|name| name == "sleep");
        assert!(remote_sandbox_testkit::wait_until_blocking(
            Duration::from_secs(5),
            is_sleep
        ));
        bystander
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn lives(&self) -> bool {
        process::is_alive(self.pid())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
