//! What a plain user may not read or list, on either side; root reads everything, so the server is such a user's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use remote_sandbox_testkit::{Sshd, ToolReply};
use rstest::rstest;
use serde_json::{Value, json};

use super::problems;
use super::stage::Way;
use crate::files::Kind;
use crate::local::support::{Local, Setup, Who};
use crate::support::with;

/// A server of a plain user whose one sandbox is this account as well, and a folder of the user on each side.
struct Plain {
    local: Local,
    _sshd: Option<Sshd>,
    sandbox: &'static str,
    here: PathBuf,
    there: PathBuf,
}

impl Plain {
    /// None, and a printed reason, where there is no plain user.
    async fn new(kind: Kind) -> Option<Self> {
        let mut local = Setup::new().start_for(Who::Plain).await?;
        let (sshd, sandbox, begin) = match kind {
            Kind::Ssh => {
                let sshd = Sshd::start();
                log_in_with_own_key(&mut local, &sshd).await;
                let home = local.home().to_owned();
                (Some(sshd), "box", home)
            }
            Kind::Local => {
                let begin = PathBuf::from(local.output("pwd").await);
                (None, "local", begin)
            }
        };
        let plain = Plain {
            here: local.home().join("project"),
            there: begin.join("copy"),
            _sshd: sshd,
            local,
            sandbox,
        };
        plain.run("mkdir -p \"$HERE\" \"$THERE\"");
        Some(plain)
    }

    /// Runs a script as the user, outside of every wall.
    fn run(&self, script: &str) {
        let mut command = self.local.outside("bash");
        let done = command
            .args(["-ec", script])
            .env("HERE", &self.here)
            .env("THERE", &self.there)
            .output()
            .unwrap();
        assert!(done.status.success(), "{script}: {done:?}");
    }

    /// The same with the folder that files come from as `SOURCE` and the one that they go to as `TARGET`.
    fn run_for(&self, way: Way, script: &str) {
        let names = match way {
            Way::Up => "SOURCE=$HERE TARGET=$THERE",
            Way::Down => "SOURCE=$THERE TARGET=$HERE",
        };
        self.run(&format!("{names}\n{script}"));
    }

    fn target(&self, way: Way) -> &PathBuf {
        match way {
            Way::Up => &self.there,
            Way::Down => &self.here,
        }
    }

    async fn call(&self, way: Way, more: Value) -> ToolReply {
        let tool = match way {
            Way::Up => "sync_local_to_remote",
            Way::Down => "sync_remote_to_local",
        };
        let arguments = json!({
            "sandbox_name": self.sandbox,
            "local_path": self.here,
            "remote_path": self.there,
        });
        self.local.call(tool, with(arguments, more)).await
    }

    async fn sync(&self, way: Way, more: Value) -> Value {
        let reply = self.call(way, more).await;
        assert!(!reply.is_error, "{}", reply.text);
        reply.json
    }
}

/// Starts the server once more, with a host that it logs in to as the user who runs it.
async fn log_in_with_own_key(local: &mut Local, sshd: &Sshd) {
    let key = fs::read_to_string(sshd.client_key_path()).unwrap();
    let key = local.file("keys/id", &key);
    fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    let configuration = format!(
        "[[sandbox]]\nname = \"box\"\nhost = \"127.0.0.1\"\nport = {}\nuser = \"{}\"\nkey_file = \"{}\"\n",
        sshd.port(),
        local.server.owner.account(),
        key.display()
    );
    local.server.configure(&configuration);
    local.client = local.server.start().await;
}

fn sent(way: Way) -> &'static str {
    match way {
        Way::Up => "uploaded_files",
        Way::Down => "downloaded_files",
    }
}

#[rstest]
#[tokio::test]
async fn weakness_4_unreadable_file_is_a_problem_of_its_own(
    #[values(Kind::Ssh, Kind::Local)] kind: Kind,
    #[values(Way::Up, Way::Down)] way: Way,
) {
    let Some(plain) = Plain::new(kind).await else {
        return;
    };
    plain.run_for(
        way,
        "cd $SOURCE; echo 1 >a; echo old >closed; mkdir d; echo 3 >d/b",
    );
    plain.sync(way, json!({})).await;
    let change = "cd $SOURCE; echo new >closed; echo 2 >fresh; head -c 9000000 /dev/zero >large
        chmod 000 closed fresh large; echo 22 >a";
    plain.run_for(way, change);
    let done = plain.sync(way, json!({"delete_extras": true})).await;
    assert_eq!(done[sent(way)], 1, "{done}");
    assert_eq!(done["revision"], Value::Null, "{done}");
    let told = problems(&done);
    for name in ["closed", "fresh", "large"] {
        let problem = told.get(name).unwrap_or_else(|| panic!("{name}: {done}"));
        let words = ["ermission denied", "cannot be read", "may not"];
        let is_clear = words.iter().any(|words| problem.contains(words));
        assert!(is_clear, "{name}: {problem}");
    }
    // What the host's archiver says of the same is told under the root.
    let others = told.keys().filter(|path| *path != ".").count();
    assert_eq!(others, 3, "{told:?}");
    let target = plain.target(way);
    let read = |name: &str| fs::read_to_string(target.join(name)).unwrap();
    assert_eq!(
        [read("a"), read("closed"), read("d/b")],
        ["22\n", "old\n", "3\n"]
    );
    assert!(!target.join("fresh").exists() && !target.join("large").exists());
}

#[rstest]
#[tokio::test]
async fn f61_directory_that_cannot_be_listed_on_either_side_is_told_and_nothing_is_deleted(
    #[values(Kind::Ssh, Kind::Local)] kind: Kind,
    #[values(Way::Up, Way::Down)] way: Way,
    #[values("SOURCE", "TARGET")] side: &str,
) {
    let Some(plain) = Plain::new(kind).await else {
        return;
    };
    plain.run_for(way, "cd $SOURCE; mkdir -p d/e; touch a b d/x d/e/y");
    plain.sync(way, json!({})).await;
    plain.run_for(way, "cd $TARGET; touch extra d/extra d/e/extra");
    plain.run_for(way, &format!("echo 2 >$SOURCE/a; chmod 000 ${side}/d"));
    let refused = plain.call(way, json!({"delete_extras": true})).await;
    assert_eq!(refused.json["code"], "delete_refused", "{}", refused.text);
    let target = plain.target(way);
    let all = ["extra", "d/extra", "d/e/extra", "d/x", "d/e/y", "a", "b"];
    for name in all {
        // Root sees what lies in a closed directory; a plain user knows the rest.
        let is_hidden = side == "TARGET" && name.starts_with("d/");
        let is_there = target.join(name).exists();
        assert!(is_there || is_hidden, "{name}: {}", refused.text);
    }
    // Another number than the one that was told is no agreement.
    let more = json!({"delete_extras": true, "confirm_delete": 3});
    let refused = plain.call(way, more).await;
    assert_eq!(refused.json["code"], "delete_refused", "{}", refused.text);
    let plan = plain.sync(way, json!({"dry_run": true})).await;
    assert!(problems(&plan).contains_key("d"), "{plan}");
    // Without deletions the rest goes, and the directory is named.
    let done = plain.sync(way, json!({})).await;
    assert!(problems(&done).contains_key("d"), "{done}");
    assert!(done["revision"].is_null(), "{done}");
    assert_eq!(fs::read(target.join("a")).unwrap(), b"2\n");
    // The mode of a directory was carried with the rest.
    plain.run_for(way, "chmod 755 $SOURCE/d $TARGET/d");
    for name in all {
        assert!(target.join(name).exists(), "{name}");
    }
    let done = plain.sync(way, json!({"delete_extras": true})).await;
    assert_eq!(done["deleted_files"], 3, "{done}");
    assert_eq!(done["problem_count"], 0, "{done}");
}
