//! Syncs in both directions, on every kind of sandbox.

mod background;
mod bare;
mod changing;
mod choice;
mod commands;
mod cuts;
mod deletes;
mod dirlinks;
mod down;
mod edges;
mod hostile;
mod leftovers;
mod lies;
mod links;
mod lone;
mod mounts;
mod obstacles;
mod places;
mod random;
mod refusals;
mod revisions;
mod rights;
mod room;
mod same_target;
mod slow;
mod stage;
mod swapped;
mod trees;
mod volume;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use remote_sandbox_testkit::ToolReply;
use serde_json::{Value, json};

use crate::files::{Ground, Kind, write};
use crate::support::with;

/// What a tree holds: by path, what it is, its mode, its time and its content.
type Snapshot = BTreeMap<Vec<u8>, (char, u32, (i64, i64), Vec<u8>)>;

/// A server with one sandbox, a folder here and a folder there.
struct Pair {
    ground: Ground,
    here: PathBuf,
    there: PathBuf,
}

impl Pair {
    async fn new(kind: Kind) -> Self {
        let ground = Ground::new(kind).await;
        let here = ground.client().home().join("project");
        std::fs::create_dir_all(&here).unwrap();
        let there = ground.at("copy");
        Pair {
            ground,
            here,
            there,
        }
    }

    /// Writes a file here.
    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        write(&self.here.join(name), content);
    }

    /// Writes a file there.
    fn write_there(&self, name: &str, content: impl AsRef<[u8]>) {
        write(&self.there.join(name), content);
    }

    async fn call_up(&self, more: Value) -> ToolReply {
        let arguments = json!({"local_path": self.here, "remote_path": "copy"});
        let arguments = with(arguments, more);
        self.ground.call("sync_local_to_remote", arguments).await
    }

    /// An upload that must succeed.
    async fn up(&self, more: Value) -> Value {
        let reply = self.call_up(more).await;
        assert!(!reply.is_error, "{}", reply.text);
        reply.json
    }

    /// An upload that must be refused.
    async fn up_refused(&self, more: Value) -> Value {
        let reply = self.call_up(more).await;
        assert!(reply.is_error, "{}", reply.text);
        reply.json
    }

    async fn call_down(&self, more: Value) -> ToolReply {
        let arguments = json!({"local_path": self.here, "remote_path": "copy"});
        let arguments = with(arguments, more);
        self.ground.call("sync_remote_to_local", arguments).await
    }

    /// A download that must succeed.
    async fn down(&self, more: Value) -> Value {
        let reply = self.call_down(more).await;
        assert!(!reply.is_error, "{}", reply.text);
        reply.json
    }

    /// Asserts that both trees are the same.
    fn assert_same(&self) {
        assert_same_trees(&self.here, &self.there);
    }
}

/// Asserts that two trees are the same, and that nothing of ours is left in either.
fn assert_same_trees(here: &Path, there: &Path) {
    let (here, there) = (snapshot(here), snapshot(there));
    let keys = |snapshot: &Snapshot| -> Vec<String> {
        let names = snapshot.keys();
        names
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect()
    };
    assert_eq!(keys(&here), keys(&there));
    for (name, (kind, mode, time, content)) in &here {
        let name_text = String::from_utf8_lossy(name);
        let (kind_there, mode_there, time_there, content_there) = &there[name];
        assert_eq!((kind, mode), (kind_there, mode_there), "{name_text}");
        assert!(content == content_there, "{name_text} has another content");
        assert_eq!(time, time_there, "{name_text}");
    }
}

/// Reads a tree; the times of directories and links do not count.
fn snapshot(root: &Path) -> Snapshot {
    let mut found = Snapshot::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let about = std::fs::symlink_metadata(&path).unwrap();
            let kind = about.file_type();
            let name = path
                .strip_prefix(root)
                .unwrap()
                .as_os_str()
                .as_bytes()
                .to_vec();
            let mode = about.mode() & 0o777;
            let time = (about.mtime(), about.mtime_nsec());
            let row = if kind.is_dir() {
                folders.push(path);
                ('d', mode, (0, 0), Vec::new())
            } else if kind.is_symlink() {
                let target = std::fs::read_link(&path).unwrap();
                ('l', 0, (0, 0), target.as_os_str().as_bytes().to_vec())
            } else {
                ('f', mode, time, std::fs::read(&path).unwrap())
            };
            found.insert(name, row);
        }
    }
    found
}

/// The problems of a result, by path.
fn problems(result: &Value) -> BTreeMap<String, String> {
    let all = result["problems"].as_array().expect("problems").iter();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    all.map(|problem| (text(&problem["path"]), text(&problem["problem"])))
        .collect()
}

/// One action of a plan.
fn action<'a>(plan: &'a Value, name: &str) -> &'a Value {
    let actions = plan["actions"].as_array().expect("actions");
    let found = actions.iter().find(|action| action["action"] == name);
    found.unwrap_or(&Value::Null)
}
