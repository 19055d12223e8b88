use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use remote_sandbox_core::config::{Config, Sources, resolve};
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::service::ServiceStatus;
use rstest::rstest;
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::engine::Keeper;
use crate::store::Store;

fn environment(home: &TempDir, list: &str, more: &[(&str, &str)]) -> Environment {
    let home = home.path().display().to_string();
    let mut environment = Environment::from([
        ("HOME".to_owned(), home),
        ("REMOTE_SANDBOX_LIST".to_owned(), list.to_owned()),
    ]);
    for (name, value) in more {
        environment.insert((*name).to_owned(), (*value).to_owned());
    }
    environment
}

fn config(environment: &Environment) -> Config {
    resolve(&Sources {
        environment: environment.clone(),
        file: None,
    })
}

#[rstest]
#[case::key(r#""key_file":"/k""#, Outlook::Unclear)]
#[case::open_key(r#""key_file":"/k","key_passphrase":"secret-two""#, Outlook::Good)]
#[case::password(r#""password":"secret-one""#, Outlook::Good)]
#[case::kept(r#""password_secret":"name""#, Outlook::Good)]
#[case::command(r#""password_command":["pass","show"]"#, Outlook::Unclear)]
#[case::agent(r#""tags":[]"#, Outlook::Unclear)]
#[case::alias(r#""ssh_alias":"box""#, Outlook::Unclear)]
#[case::shared(
    r#""ssh_alias":"box","transport":"openssh","require_existing_master":true"#,
    Outlook::OnlyWhileShared
)]
fn outlook_tells_what_the_entry_alone_can_tell(#[case] members: &str, #[case] wanted: Outlook) {
    let home = TempDir::new().unwrap();
    let place = if members.contains("ssh_alias") {
        ""
    } else {
        r#""host":"h","user":"u","#
    };
    let list = format!(r#"[{{"name":"one",{place}{members}}}]"#);
    let config = config(&environment(&home, &list, &[]));
    let entry = config.ready().next();
    assert_eq!(outlook(entry.expect("an entry that is ready")), wanted);
}

#[test]
fn unattended_environment_has_no_agent_and_no_terminal() {
    let home = TempDir::new().unwrap();
    let more = [
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("DISPLAY", ":0"),
        ("PATH", "/bin"),
        ("TERM", "xterm"),
        ("SECRET_OF_MINE", "x"),
    ];
    let left = unattended(&environment(&home, "[]", &more));
    let names: Vec<&str> = left.keys().map(String::as_str).collect();
    assert_eq!(names, ["HOME", "PATH"]);
}

/// Counts how often it is asked, and never succeeds.
struct Failing(AtomicUsize);

#[async_trait]
impl Keeper for Failing {
    async fn ensure(&self, _: &Store) -> Result<Option<String>, Failure> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Err(Failure::new(Code::Internal, "no manager answers"))
    }

    async fn bring_back(&self, _: &Store, _: bool) -> Result<(), Failure> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn install(&self, _: bool) -> Result<Value, Failure> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Value::Null)
    }

    async fn uninstall(&self) -> Result<Value, Failure> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Value::Null)
    }

    async fn status(&self) -> Result<ServiceStatus, Failure> {
        Err(Failure::new(Code::Internal, "no manager answers"))
    }
}

fn engine_with(more: &[(&str, &str)]) -> (TempDir, Engine, Arc<Failing>) {
    let home = TempDir::new().unwrap();
    let environment = environment(&home, "[]", more);
    let keeper = Arc::new(Failing(AtomicUsize::new(0)));
    let engine = Engine::new(&config(&environment), &environment).unwrap();
    (home, engine.with_keeper(keeper.clone()), keeper)
}

#[tokio::test]
async fn watchdog_that_does_not_start_is_a_warning() {
    let (_home, engine, keeper) = engine_with(&[]);
    let warning = engine.ensure_watchdog(true).await;
    assert_eq!(warning.as_deref(), Some("no manager answers"));
    assert_eq!(engine.ensure_watchdog(false).await, None);
    assert_eq!(keeper.0.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn watchdog_that_is_turned_off_is_never_started_nor_set_up() {
    let (_home, engine, keeper) = engine_with(&[("REMOTE_SANDBOX_WATCHDOG", "off")]);
    assert_eq!(engine.ensure_watchdog(true).await, None);
    engine.bring_watchdog_back().await;
    assert_eq!(
        engine.install_watchdog(true, true).await.unwrap().done,
        None
    );
    assert_eq!(engine.uninstall_watchdog().await.unwrap().done, None);
    assert_eq!(keeper.0.load(Ordering::SeqCst), 0);
}
