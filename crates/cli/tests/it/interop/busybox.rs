//! A host without GNU programs and without bash: everything in `PATH` is busybox, the shells too.

use remote_sandbox_testkit::busybox::Busybox;
use remote_sandbox_testkit::mcp::McpClient;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::users::{Shell, TestUser};
use remote_sandbox_testkit::wait::wait_until;
use serde_json::json;

use super::{
    PATIENCE, assert_background_children_are_told, assert_commands, assert_deadline_ends_the_tree,
    assert_files, assert_long_output_is_whole, assert_resources_are_listed,
    assert_stop_ends_the_tree, out,
};
use crate::support::{entry, login_file, serve, shells_wait, with};

struct Host {
    client: McpClient,
    sshd: Sshd,
    user: TestUser,
    programs: Busybox,
}

async fn host(session_environment: &[(&str, &str)]) -> Option<Host> {
    let programs = Busybox::install()?;
    let user = TestUser::builder().shell(Shell::BusyboxAsh).create()?;
    let path = programs.path().to_str().unwrap();
    let mut server = Sshd::builder()
        .user(&user)
        .session_environment("PATH", path);
    for (name, value) in session_environment {
        let value = value.replace("HOME", user.home().to_str().unwrap());
        server = server.session_environment(name, &value);
    }
    let sshd = server.start();
    let client = serve(&[with(entry("box", &sshd), json!({"user": user.name()}))]).await;
    let host = Host {
        client,
        sshd,
        user,
        programs,
    };
    Some(host)
}

#[tokio::test]
async fn busybox_userland_runs_commands_and_tells_what_it_has() {
    let Some(host) = host(&[]).await else { return };
    let places = "command -v sh; command -v ls; command -v bash || echo none";
    let path = host.programs.path().display();
    let expected = format!("{path}/sh\n{path}/ls\nnone");
    assert_eq!(out(&host.client, places).await, expected);
    assert_commands(&host.client, host.user.home()).await;
    assert_background_children_are_told(&host.client).await;
    assert_long_output_is_whole(&host.client).await;
    assert_resources_are_listed(&host.client).await;
    assert_files(&host.client).await;
}

#[tokio::test]
async fn busybox_userland_runs_are_ended_with_their_whole_tree() {
    let Some(host) = host(&[]).await else { return };
    assert_deadline_ends_the_tree(&host.client).await;
    assert_stop_ends_the_tree(&host.client).await;
    host.client.close_stdin().await;
    assert!(wait_until(PATIENCE, || host.sshd.command_pids().is_empty()).await);
}

/// Its shell reads the file that `ENV` names, and its `ls` tells the time in another way.
#[tokio::test]
async fn busybox_shell_that_waited_serves_and_sees_an_edited_login_file() {
    let Some(host) = host(&[("ENV", "HOME/.shrc")]).await else {
        return;
    };
    let (client, sshd) = (&host.client, &host.sshd);
    login_file(&host.user, ".shrc", "export FLAVOUR=old\n");
    out(client, "true").await;
    for _ in 0..3 {
        assert!(shells_wait(sshd, 2).await);
        let waiting = sshd.command_pids();
        let line = out(client, "echo $$ $PPID").await;
        let own: Vec<u32> = line.split(' ').map(|pid| pid.parse().unwrap()).collect();
        assert!(
            waiting.iter().any(|pid| own.contains(pid)),
            "{own:?} not of {waiting:?}"
        );
    }
    // Whether a shell without a terminal reads the file at all is the host's business.
    let before = out(client, "echo ${FLAVOUR-unread}").await;
    assert!(shells_wait(sshd, 2).await);
    let waiting = sshd.command_pids();
    out(client, "echo 'export FLAVOUR=new' >> ~/.shrc").await;
    let line = out(client, "echo $$ $PPID ${FLAVOUR-unread}").await;
    let expected = if before == "old" { "new" } else { "unread" };
    assert!(line.ends_with(expected), "{line}");
    let stale = |pid: &&u32| line.split(' ').any(|word| word == pid.to_string());
    assert_eq!(waiting.iter().find(stale), None, "{line}");
}
