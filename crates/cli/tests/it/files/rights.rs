//! What an account may not read, on every kind of sandbox.

use remote_sandbox_testkit::{McpClient, Sshd, TestUser, ToolReply};
use rstest::rstest;
use serde_json::{Value, json};

use super::{Kind, paths};
use crate::local::support::{Local, Setup, Who};
use crate::support::account;

/// A sandbox of a plain user, with what has to live as long as it.
enum Plain {
    Ssh(Box<Account>),
    Local(Box<Local>),
}

struct Account {
    client: McpClient,
    _sshd: Sshd,
    _user: TestUser,
}

impl Plain {
    /// None where it cannot be had.
    async fn new(kind: Kind) -> Option<Self> {
        Some(match kind {
            Kind::Ssh => {
                let (user, sshd, client) = account(TestUser::builder()).await?;
                Plain::Ssh(Box::new(Account {
                    client,
                    _sshd: sshd,
                    _user: user,
                }))
            }
            Kind::Local => Plain::Local(Box::new(Setup::new().start_for(Who::Plain).await?)),
        })
    }

    async fn call(&self, tool: &str, arguments: Value) -> ToolReply {
        match self {
            Plain::Ssh(account) => account.client.call_tool(tool, arguments).await,
            Plain::Local(local) => local.call(tool, arguments).await,
        }
    }

    async fn run(&self, command: &str) {
        let reply = self.call("exec_bash", json!({"command": command})).await;
        assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
    }
}

/// Weakness 4 of the package: the whole list failed, without a path.
#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn unreadable_directory_is_a_note_and_the_rest_is_listed(#[case] kind: Kind) {
    let Some(sandbox) = Plain::new(kind).await else {
        return;
    };
    sandbox
        .run("mkdir -p d/open d/shut && touch d/open/x d/shut/x && chmod 0 d/shut")
        .await;
    let list = |path: &str, recursive: bool| {
        let arguments = json!({"remote_path": path, "recursive": recursive});
        sandbox.call("list_remote_files", arguments)
    };
    let deep = list("d", true).await;
    assert_eq!(
        paths(&deep.json),
        ["d/open", "d/open/x", "d/shut"],
        "{}",
        deep.text
    );
    let notes = deep.json["notes"].as_array().unwrap();
    assert_eq!(notes.len(), 1, "{}", deep.text);
    assert!(notes[0].as_str().unwrap().contains("`shut` cannot be read"));
    let level = list("d", false).await;
    assert_eq!(paths(&level.json), ["d/open", "d/shut"], "{}", level.text);
    assert!(level.json.get("notes").is_none(), "{}", level.text);
    for path in ["d/shut", "d/shut/x"] {
        let denied = list(path, false).await;
        assert_eq!(denied.json["code"], "permission_denied", "{}", denied.text);
        assert!(denied.json["error"].as_str().unwrap().contains(path));
    }
    sandbox.run("chmod 700 d/shut").await;
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn file_that_may_not_be_read_is_told_and_named(#[case] kind: Kind) {
    let Some(sandbox) = Plain::new(kind).await else {
        return;
    };
    sandbox
        .run("echo x >f && chmod 0 f && mkdir -p shut && touch shut/x && chmod 600 shut")
        .await;
    for path in ["f", "shut/x"] {
        let arguments = json!({"remote_path": path});
        let denied = sandbox.call("read_remote_file", arguments).await;
        assert!(denied.is_error, "{}", denied.text);
        assert_eq!(denied.json["code"], "permission_denied", "{}", denied.text);
        assert!(denied.json["error"].as_str().unwrap().contains(path));
    }
    sandbox.run("chmod 700 shut").await;
}
