//! Commands, woken agents and notices of the desktop, with stand-ins in a folder that only these tests know.

use std::time::Duration;

use remote_sandbox_core::config::Platform;
use remote_sandbox_core::job::WatchOrder;
use remote_sandbox_core::watch::Channel;
use remote_sandbox_testkit::{process, wait_until};
use rstest::rstest;
use serde_json::json;

use super::testing::{Stage, arguments, event, order, said};
use super::*;

const ANY: &str = "[watchdog]\nallow_event_command = \"any\"\n";

fn with_command(line: &str) -> WatchOrder {
    let mut order = order();
    order.event_command = Some(line.to_owned());
    order
}

#[tokio::test]
async fn command_gets_the_eight_variables_and_no_secret() {
    let text = format!("{ANY}webhook_secret_env = \"HOOK_SECRET\"\n");
    let pairs = [
        ("HOOK_SECRET", "whsec-0123456789"),
        ("LANG", "C"),
        ("OPENAI_API_KEY", "k"),
    ];
    let stage = Stage::in_environment(&text, &pairs);
    let order = with_command("env -0 > \"$HOME/seen\"");
    stage.deliver(Channel::Command, &order).await.unwrap();
    let seen = std::fs::read_to_string(stage.folder.path().join("seen")).unwrap();
    let mut names: Vec<_> = seen
        .split_terminator('\0')
        .filter_map(|line| line.split_once('=').map(|(name, _)| name))
        .filter(|name| !["PWD", "OLDPWD", "SHLVL", "_", "REMOTE_SANDBOX_HOOK"].contains(name))
        .collect();
    names.sort_unstable();
    let wanted = [
        "HOME",
        "LANG",
        "PATH",
        "RSMCP_EVENT_FILE",
        "RSMCP_EVENT_JSON",
        "RSMCP_EVENT_TYPE",
        "RSMCP_LOG_FILE",
        "RSMCP_SANDBOX_NAME",
        "RSMCP_SUGGESTED_PROMPT",
        "RSMCP_TMUX_SESSION",
        "RSMCP_WATCH_ID",
    ];
    assert_eq!(names, wanted);
    let value = |wanted: &str| {
        let mut lines = seen.split_terminator('\0');
        let line = lines.find_map(|line| line.strip_prefix(&format!("{wanted}=")));
        line.unwrap().to_owned()
    };
    assert_eq!(value("RSMCP_EVENT_JSON"), event().json().to_string());
    assert_eq!(value("RSMCP_EVENT_TYPE"), "completed");
    assert_eq!(value("RSMCP_WATCH_ID"), "7");
    assert_eq!(value("RSMCP_TMUX_SESSION"), "bg-1");
    let file = std::fs::read_to_string(value("RSMCP_EVENT_FILE")).unwrap();
    assert_eq!(file, event().json().to_string());
}

#[tokio::test]
async fn event_that_is_too_long_for_a_variable_is_shortened_there_and_whole_in_the_file() {
    let stage = Stage::new(ANY);
    let mut event = event();
    event.payload["log_tail"] = json!(format!("{}the end", "x".repeat(400_000)));
    event.payload["suggested_codex_prompt"] = json!("p".repeat(300_000));
    let order = with_command(
        "printf %s \"$RSMCP_EVENT_JSON\" > \"$HOME/seen\"; wc -c < \"$RSMCP_EVENT_FILE\" > \"$HOME/size\"",
    );
    stage
        .deliver_event(&event, Channel::Command, &order)
        .await
        .unwrap();
    let seen = std::fs::read_to_string(stage.folder.path().join("seen")).unwrap();
    assert!(seen.len() < 128 * 1024);
    let seen: serde_json::Value = serde_json::from_str(&seen).unwrap();
    assert_eq!(seen["payload"]["shortened"], true);
    assert_eq!(seen["payload"]["watch"]["name"], "train");
    let size = std::fs::read_to_string(stage.folder.path().join("size")).unwrap();
    assert_eq!(
        size.trim().parse::<usize>().unwrap(),
        event.json().to_string().len()
    );
}

#[tokio::test]
async fn f47_command_that_fails_says_what_it_wrote_without_secrets() {
    let text = format!("{ANY}webhook_secret = \"whsec-0123456789\"\n");
    let stage = Stage::new(&text);
    let order =
        with_command("echo before; echo whsec-0123456789 >&2; printf '\\033[31mred'; exit 1");
    let error = stage.deliver(Channel::Command, &order).await.unwrap_err();
    let said = said(&error);
    assert!(
        said.contains("exit status: 1") && said.contains("before"),
        "{said}"
    );
    assert!(
        said.contains("[masked]") && !said.contains("whsec"),
        "{said}"
    );
    assert!(!said.contains('\u{1b}') && !error.is_permanent(), "{said}");
}

#[tokio::test]
async fn f47_command_that_is_missing_is_tried_again() {
    let stage = Stage::new(ANY);
    let order = with_command("/no/such/program");
    let error = stage.deliver(Channel::Command, &order).await.unwrap_err();
    assert!(said(&error).contains("exit status: 127") && !error.is_permanent());
}

#[tokio::test]
async fn f47_command_that_hangs_is_ended_with_all_it_started() {
    let mut stage = Stage::new(ANY);
    stage.settings.limits.command = Duration::from_millis(600);
    let order = with_command("echo waiting; sleep 4341 & echo $! > \"$HOME/pid\"; wait");
    let error = stage.deliver(Channel::Command, &order).await.unwrap_err();
    assert!(
        matches!(error, DeliveryError::CommandTooSlow { .. }),
        "{error:?}"
    );
    assert!(said(&error).contains("waiting"));
    let pid = std::fs::read_to_string(stage.folder.path().join("pid")).unwrap();
    let pid: u32 = pid.trim().parse().unwrap();
    assert!(wait_until(Duration::from_secs(5), || !process::is_alive(pid)).await);
}

#[tokio::test]
async fn command_that_is_not_listed_any_more_is_not_run() {
    let stage = Stage::new("[watchdog]\nevent_commands = [\"true\"]\n");
    stage
        .deliver(Channel::Command, &with_command("true"))
        .await
        .unwrap();
    let order = with_command("touch \"$HOME/ran\"");
    let error = stage.deliver(Channel::Command, &order).await.unwrap_err();
    assert!(matches!(error, DeliveryError::Policy(_)), "{error:?}");
    assert!(!stage.folder.path().join("ran").exists());
}

#[tokio::test]
async fn codex_is_woken_with_the_prompt_as_one_argument() {
    let stage = Stage::in_environment("", &[("OPENAI_API_KEY", "k3y")]);
    let record = stage.stand_in("codex", "printf %s \"$OPENAI_API_KEY\" > \"$HOME/key\"");
    stage.deliver(Channel::Codex, &order()).await.unwrap();
    assert_eq!(arguments(&record), ["exec", event().suggested_prompt()]);
    let key = std::fs::read_to_string(stage.folder.path().join("key")).unwrap();
    assert_eq!(key, "k3y");
}

#[tokio::test]
async fn claude_is_woken_with_the_prompt_as_one_argument() {
    let stage = Stage::new("");
    let record = stage.stand_in("claude", "");
    stage.deliver(Channel::Claude, &order()).await.unwrap();
    assert_eq!(arguments(&record), ["-p", event().suggested_prompt()]);
}

#[tokio::test]
async fn command_for_an_agent_is_run_when_it_is_listed() {
    let line = "printf %s \"$RSMCP_SUGGESTED_PROMPT\" > \"$HOME/prompt\"";
    let listed = toml_list(line);
    let stage = Stage::new(&format!("[watchdog]\nevent_commands = {listed}\n"));
    for channel in [Channel::Codex, Channel::Claude] {
        let mut order = order();
        order.codex_command = Some(line.to_owned());
        order.claude_command = Some(line.to_owned());
        let file = stage.folder.path().join("prompt");
        stage.deliver(channel, &order).await.unwrap();
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            event().suggested_prompt()
        );
        std::fs::remove_file(file).unwrap();
    }
    let mut order = order();
    order.claude_command = Some("true".to_owned());
    let error = stage.deliver(Channel::Claude, &order).await.unwrap_err();
    assert!(matches!(error, DeliveryError::Policy(_)), "{error:?}");
}

#[tokio::test]
async fn command_that_only_names_a_program_gets_the_prompt_as_the_usual_one_does() {
    let stage = Stage::new("[watchdog]\nallow_event_command = \"any\"\n");
    let cases = [
        (Channel::Codex, "my-codex", "exec"),
        (Channel::Claude, "my-claude", "-p"),
    ];
    for (channel, name, word) in cases {
        let record = stage.stand_in(name, "");
        let whole = stage.settings.surroundings.find(name).unwrap();
        for line in [name, whole.to_str().unwrap()] {
            let mut order = order();
            order.codex_command = Some(line.to_owned());
            order.claude_command = Some(line.to_owned());
            stage.deliver(channel.clone(), &order).await.unwrap();
            assert_eq!(
                arguments(&record),
                [word, event().suggested_prompt()],
                "{line}"
            );
        }
    }
}

fn toml_list(line: &str) -> String {
    format!("['''{line}''']")
}

#[tokio::test]
async fn agent_that_is_not_there_or_fails_is_tried_again() {
    let mut stage = Stage::new("");
    let empty = stage.folder.path().join("empty");
    stage.settings.surroundings = stage
        .settings
        .surroundings
        .with_path(empty.to_str().unwrap());
    let error = stage.deliver(Channel::Codex, &order()).await.unwrap_err();
    assert!(matches!(error, DeliveryError::NoProgram("codex")) && !error.is_permanent());
    let stage = Stage::new("");
    stage.stand_in("claude", "echo not logged in >&2; exit 2");
    let error = stage.deliver(Channel::Claude, &order()).await.unwrap_err();
    assert!(said(&error).contains("not logged in"), "{error:?}");
}

#[tokio::test]
async fn agent_that_hangs_is_ended() {
    let mut stage = Stage::new("");
    stage.settings.limits.agent = Duration::from_millis(400);
    stage.stand_in("codex", "sleep 4342");
    let error = stage.deliver(Channel::Codex, &order()).await.unwrap_err();
    assert!(
        matches!(error, DeliveryError::CommandTooSlow { .. }),
        "{error:?}"
    );
}

const BUS: (&str, &str) = ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere");

#[tokio::test]
async fn desktop_of_linux_is_told_where_there_is_one() {
    let mut stage = Stage::in_environment("", &[BUS]);
    stage.settings.platform = Platform::Linux;
    let record = stage.stand_in("notify-send", "");
    let mut event = event();
    event.summary = "<b>it</b> ended".to_owned();
    stage
        .deliver_event(&event, Channel::Local, &order())
        .await
        .unwrap();
    let found = arguments(&record);
    assert_eq!(
        found[..4],
        [
            "--app-name=remote-sandbox-mcp",
            "--urgency=normal",
            "--",
            "completed: train"
        ]
    );
    assert!(
        found[4].starts_with("&lt;b&gt;it&lt;/b&gt; ended\n"),
        "{found:?}"
    );
}

#[tokio::test]
async fn desktop_of_macos_is_told_by_arguments_and_not_in_the_script() {
    let mut stage = Stage::new("");
    stage.settings.platform = Platform::MacOs;
    let record = stage.stand_in("osascript", "");
    let mut event = event();
    event.summary = "\" & (do shell script \"id\") & \"".to_owned();
    stage
        .deliver_event(&event, Channel::Local, &order())
        .await
        .unwrap();
    let found = arguments(&record);
    let script: Vec<_> = found.iter().take(6).collect();
    assert!(
        !format!("{script:?}").contains("do shell script"),
        "{found:?}"
    );
    assert_eq!(found[6], "completed: train");
    assert!(found[7].starts_with("\" & (do shell script"), "{found:?}");
    assert_eq!(found.len(), 8);
}

#[tokio::test]
async fn without_a_desktop_nobody_is_told_and_it_is_said_why() {
    let mut stage = Stage::new("");
    stage.settings.platform = Platform::Linux;
    let record = stage.stand_in("notify-send", "exit 1");
    let error = stage.deliver(Channel::Local, &order()).await.unwrap_err();
    assert!(said(&error).contains("no desktop session"), "{error:?}");
    assert!(error.is_impossible() && !record.exists());
    for (platform, program) in [
        (Platform::MacOs, "osascript"),
        (Platform::Linux, "notify-send"),
    ] {
        let mut stage = Stage::in_environment("", &[BUS]);
        stage.settings.platform = platform;
        let empty = stage.folder.path().join("empty");
        let surroundings = stage.settings.surroundings.clone();
        stage.settings.surroundings = surroundings.with_path(empty.to_str().unwrap());
        let error = stage.deliver(Channel::Local, &order()).await.unwrap_err();
        assert!(said(&error).contains(program), "{error:?}");
        assert!(error.is_impossible(), "{error:?}");
    }
}

#[rstest]
#[case::no_daemon(
    "echo 'ServiceUnknown: no notifications' >&2; exit 1",
    "ServiceUnknown"
)]
#[case::hangs("sleep 4343", "did not end within")]
#[tokio::test]
async fn desktop_that_shows_nothing_is_impossible_and_not_tried_again(
    #[case] script: &str,
    #[case] words: &str,
) {
    let mut stage = Stage::in_environment("", &[BUS]);
    stage.settings.platform = Platform::Linux;
    stage.settings.limits.local = Duration::from_millis(800);
    stage.stand_in("notify-send", script);
    let error = stage.deliver(Channel::Local, &order()).await.unwrap_err();
    assert!(
        error.is_impossible() && said(&error).contains(words),
        "{error:?}"
    );
}

#[tokio::test]
async fn no_more_than_eight_are_told_at_the_same_time() {
    let stage = Stage::new(ANY);
    let counting = "mkdir \"$HOME/$$\" && ls -d \"$HOME\"/[0-9]* | wc -l >> \"$HOME/counts\"; sleep 0.3; rmdir \"$HOME/$$\"";
    let order = with_command(counting);
    let all = (0..20).map(|_| stage.deliver(Channel::Command, &order));
    for told in futures::future::join_all(all).await {
        told.unwrap();
    }
    let counts = std::fs::read_to_string(stage.folder.path().join("counts")).unwrap();
    let counts: Vec<usize> = counts
        .lines()
        .map(|line| line.trim().parse().unwrap())
        .collect();
    assert_eq!(counts.len(), 20);
    assert!(counts.iter().all(|count| *count <= PLACES), "{counts:?}");
    assert!(counts.iter().any(|count| *count > 1), "{counts:?}");
}
