//! A home with stand-ins for the programs of service managers, which write down what they are called with.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use remote_sandbox_core::config::{Environment, Platform};
use remote_sandbox_testkit::{process, wait_until};
use tempfile::TempDir;

use super::{Heartbeat, Service};

pub(super) const CANARY: &str = "canary-hunter2-canary";
pub(super) const SOON: Duration = Duration::from_secs(10);

const HEAD: &str = "#!/bin/sh\nPATH=/usr/bin:/bin\ncd 'FOLDER' || exit 9\n\
    echo \"${0##*/} $*\" >> calls\nenv >> environment\n[ -f hang ] && exec sleep 600\n";

const SYSTEMCTL: &str = "\
[ -f no-manager ] && { echo 'Failed to connect to bus: No medium found' >&2; exit 1; }
[ \"$1\" = --user ] || { echo 'not for root' >&2; exit 1; }
shift
case \"$*\" in
'show --property=Version') echo Version=252;;
show*)
  if [ -f active ]; then printf 'ActiveState=active\\nSubState=running\\nMainPID=4242\\n'
  else printf 'ActiveState=inactive\\nSubState=dead\\nMainPID=0\\n'; fi
  if [ -f enabled ]; then echo UnitFileState=enabled; fi;;
'enable --now '*)
  [ -f no-enable ] && { echo 'Failed to enable unit: it does not exist.' >&2; exit 1; }
  touch active enabled;;
'enable '*) touch enabled;;
'disable --now '*) rm -f active enabled;;
daemon-reload|restart*|reset-failed*) ;;
*) echo \"unknown: $*\" >&2; exit 1;;
esac
";

const LAUNCHCTL: &str = "\
case \"$*\" in
'print gui/'*)
  if [ -f ending ]; then sed -i 1d ending; [ -s ending ] || rm -f ending active; fi
  [ -f active ] || { echo 'Could not find service' >&2; exit 113; }
  printf 'x = {\\n\\tstate = running\\n\\tpid = 4242\\n}\\n';;
list*) [ -f loaded ] || exit 113; printf '{\\n\\t\"PID\" = 77;\\n};\\n';;
'enable gui/'*) ;;
'bootstrap gui/'*)
  [ -f no-bootstrap ] && { echo 'Bootstrap failed: 5: Input/output error' >&2; exit 5; }
  [ -f active ] && { echo 'Bootstrap failed: 37: Operation already in progress' >&2; exit 37; }
  [ -s busy ] && { sed -i 1d busy; echo 'Bootstrap failed: 5: Input/output error' >&2; exit 5; }
  touch active;;
'bootout gui/'*)
  [ -s ending ] && { echo 'Boot-out failed: 36: Operation now in progress' >&2; exit 36; }
  [ -f slow-end ] && { mv slow-end ending; exit 0; }
  rm -f active;;
'kickstart -k gui/'*) ;;
'load -w '*) [ -f no-load ] || touch loaded;;
'unload '*) rm -f loaded;;
*) echo \"unknown: $*\" >&2; exit 1;;
esac
";

const LOGINCTL: &str = "[ -f lingers ] && echo Linger=yes || echo Linger=no\n";

/// A watchdog that says that it lives and ends when it is asked to.
pub(super) const WATCHDOG: &str = "#!/bin/sh\nPATH=/usr/bin:/bin\ncd 'FOLDER' || exit 9\n\
    echo \"$0 $*\" >> started\necho $$ >> pids\necho 'watchdog: here' >&2\n\
    [ -f silent ] || touch alive\ntrap 'exit 0' TERM\nwhile :; do sleep 0.05; done\n";

/// A watchdog that cannot work.
pub(super) const BROKEN: &str = "#!/bin/sh\necho 'first line' >&2\necho 'no store' >&2\nexit 3\n";

/// A home in which nothing is set up.
pub(super) struct Stage {
    pub(super) folder: TempDir,
    pub(super) home: PathBuf,
    pub(super) environment: Environment,
    pub(super) platform: Platform,
}

impl Stage {
    /// With launchd on macOS, systemd on Linux.
    pub(super) fn new(platform: Platform) -> Self {
        Stage::in_home(platform, "home")
    }

    pub(super) fn in_home(platform: Platform, home: &str) -> Self {
        let folder = TempDir::with_prefix("service-").unwrap();
        let programs = folder.path().join("programs");
        fs::create_dir(&programs).unwrap();
        let home = folder.path().join(home);
        fs::create_dir_all(&home).unwrap();
        let variables = [
            ("HOME", home.to_str().unwrap()),
            ("PATH", programs.to_str().unwrap()),
            ("LANG", "C.UTF-8"),
            ("SSH_AUTH_SOCK", "/nonexistent/agent"),
            ("REMOTE_PASSWORD", CANARY),
            ("REMOTE_SANDBOX_LIST", CANARY),
            ("API_TOKEN", CANARY),
        ];
        let environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let stage = Stage {
            home,
            environment: environment.into_iter().collect(),
            platform,
            folder,
        };
        match platform {
            Platform::Linux => {
                stage.put_program("programs/systemctl", &format!("{HEAD}{SYSTEMCTL}"));
                stage.put_program("programs/loginctl", &format!("{HEAD}{LOGINCTL}"));
            }
            Platform::MacOs => {
                stage.put_program("programs/launchctl", &format!("{HEAD}{LAUNCHCTL}"));
            }
        }
        stage.put_program("watchdog", WATCHDOG);
        stage
    }

    /// With nothing that keeps services running.
    pub(super) fn bare(platform: Platform) -> Self {
        let stage = Stage::new(platform);
        for entry in fs::read_dir(stage.folder.path().join("programs")).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        stage
    }

    pub(super) fn put_program(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        let folder = self.folder.path().to_str().unwrap();
        fs::write(&path, text.replace("FOLDER", folder)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(super) fn service(&self) -> Service {
        self.service_with(None)
    }

    pub(super) fn service_with(&self, config: Option<&Path>) -> Service {
        let service = Service::on(self.platform, &self.environment, config).unwrap();
        service.with_program(self.folder.path().join("watchdog"))
    }

    pub(super) fn state(&self) -> PathBuf {
        match self.platform {
            Platform::Linux => self.home.join(".local/state/remote-sandbox-mcp"),
            Platform::MacOs => self
                .home
                .join("Library/Application Support/remote-sandbox-mcp"),
        }
    }

    /// Lets the stand-ins behave otherwise.
    pub(super) fn set(&self, name: &str) {
        fs::write(self.folder.path().join(name), "1\n2\n").unwrap();
    }

    pub(super) fn unset(&self, name: &str) {
        fs::remove_file(self.folder.path().join(name)).unwrap();
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// What the stand-ins were called with since the last look.
    pub(super) fn calls(&self) -> Vec<String> {
        let text = self.read("calls");
        let _ = fs::remove_file(self.folder.path().join("calls"));
        text.lines().map(str::to_owned).collect()
    }

    /// Every watchdog that was started, whether it lives or not.
    pub(super) fn pids(&self) -> Vec<u32> {
        let text = self.read("pids");
        text.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    pub(super) fn living(&self) -> Vec<u32> {
        let mut pids = self.pids();
        pids.retain(|pid| process::is_alive(*pid));
        pids
    }

    /// What says that the watchdog lives: a file that the stand-in makes.
    pub(super) fn heartbeat(&self) -> FileHeartbeat {
        FileHeartbeat(self.folder.path().join("alive"))
    }

    /// Waits until so many watchdogs have begun, and the last one has said that it lives.
    pub(super) async fn begun(&self, count: usize) -> bool {
        let alive = self.folder.path().join("alive");
        wait_until(SOON, || self.pids().len() >= count && alive.exists()).await
    }

    pub(super) fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut folders = vec![self.home.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                match entry.file_type().unwrap().is_dir() {
                    true => folders.push(path),
                    false => files.push(path),
                }
            }
        }
        files.sort();
        files
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let mut left = self.living();
        // One that has not come so far as to write its number down.
        let record = fs::read(self.state().join("service/detached.json")).unwrap_or_default();
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap_or_default();
        let folder = self.folder.path().to_str().unwrap_or_default();
        let is_ours =
            |pid: &u32| process::command_line(*pid).is_some_and(|line| line.contains(folder));
        let pid = record["pid"]
            .as_u64()
            .and_then(|pid| u32::try_from(pid).ok());
        left.extend(pid.filter(is_ours));
        process::kill_and_wait(&left);
    }
}

pub(super) struct FileHeartbeat(PathBuf);

#[async_trait]
impl Heartbeat for FileHeartbeat {
    async fn is_fresh(&self) -> bool {
        self.0.exists()
    }
}

pub(super) fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}
