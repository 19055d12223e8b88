use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;

fn home() -> (TempDir, Environment) {
    let home = TempDir::new().unwrap();
    let path = home.path().display().to_string();
    let environment = Environment::from([("HOME".to_owned(), path)]);
    (home, environment)
}

fn write(home: &TempDir, text: &str, mode: u32) -> PathBuf {
    let path = home.path().join("own.toml");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

fn find(report: &ConfigurationReport, name: StepName) -> Option<(Status, &str)> {
    let step = report.steps.iter().find(|step| step.step == name)?;
    Some((step.status, step.detail.as_str()))
}

const WITH_PASSWORD: &str =
    "[[sandbox]]\nname = \"box\"\nhost = \"h\"\nuser = \"u\"\npassword = \"canary-secret-9\"\n";

#[test]
fn file_with_a_password_is_warned_of_when_others_can_read_it() {
    let (home, environment) = home();
    let path = write(&home, WITH_PASSWORD, 0o644);
    let (report, config) = examine_configuration(Some(&path), &environment);
    let (status, detail) = find(&report, StepName::Permissions).unwrap();
    assert_eq!(status, Status::Warning);
    assert!(
        detail.contains("644") && !detail.contains("canary"),
        "{detail}"
    );
    assert_eq!(config.unwrap().names().count(), 1);
    assert!(!report.has_failed(), "{report:?}");
}

#[test]
fn file_is_not_warned_of_when_it_is_private_or_holds_no_secret() {
    let (home, mut environment) = home();
    let path = write(&home, WITH_PASSWORD, 0o600);
    let (report, _) = examine_configuration(Some(&path), &environment);
    assert_eq!(find(&report, StepName::Permissions), None);
    environment.insert("WORD".to_owned(), "canary-secret-8".to_owned());
    let text = "[[sandbox]]\nname = \"box\"\nhost = \"h\"\nuser = \"u\"\npassword_env = \"WORD\"\n";
    let path = write(&home, text, 0o644);
    let (report, config) = examine_configuration(Some(&path), &environment);
    assert_eq!(config.unwrap().secrets().count(), 1);
    assert_eq!(find(&report, StepName::Permissions), None);
}

#[test]
fn nothing_configured_is_fine_for_there_is_a_sandbox_on_this_machine() {
    let (_home, environment) = home();
    let (report, _) = examine_configuration(None, &environment);
    assert!(!report.has_failed());
    let (status, detail) = find(&report, StepName::Sandboxes).unwrap();
    assert_eq!(status, Status::Ok);
    assert!(detail.contains("`local`"), "{detail}");
}

#[test]
fn nothing_readable_is_a_failure_with_the_way_out() {
    let (_home, mut environment) = home();
    environment.insert("REMOTE_SANDBOX_LIST".to_owned(), "[{".to_owned());
    let (report, _) = examine_configuration(None, &environment);
    assert!(report.has_failed());
    let (status, _) = find(&report, StepName::Sandboxes).unwrap();
    assert_eq!(status, Status::Failed);
    assert_eq!(find(&report, StepName::State).unwrap().0, Status::Ok);
}

#[test]
fn missing_file_is_a_failure_when_it_was_asked_for() {
    let (home, environment) = home();
    let path = home.path().join("none.toml");
    let (report, config) = examine_configuration(Some(&path), &environment);
    assert!(config.is_none());
    let (status, detail) = find(&report, StepName::File).unwrap();
    assert_eq!(status, Status::Failed);
    assert!(detail.contains("none.toml"), "{detail}");
}

#[test]
fn state_folder_is_warned_of_when_others_can_enter() {
    let (home, environment) = home();
    let folder = home.path().join(".local/state/remote-sandbox-mcp");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (report, _) = examine_configuration(None, &environment);
    assert_eq!(find(&report, StepName::State).unwrap().0, Status::Warning);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn store_that_was_set_aside_is_warned_of() {
    let (home, mut environment) = home();
    let state = home.path().join("state");
    environment.insert(
        "REMOTE_SANDBOX_MCP_HOME".to_owned(),
        state.display().to_string(),
    );
    fsio::private_directory(&state).unwrap();
    let name = "store.sqlite3.damaged-20261116T061812000Z";
    for part in ["", "-wal"] {
        std::fs::write(state.join(format!("{name}{part}")), b"x").unwrap();
    }
    let (report, _) = examine_configuration(None, &environment);
    let told = report
        .steps
        .iter()
        .filter(|step| step.status == Status::Warning && step.detail.contains(name));
    assert_eq!(told.count(), 1);
}

#[test]
fn state_folder_that_cannot_be_made_is_a_failure() {
    let (home, mut environment) = home();
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("state").display().to_string();
    environment.insert("REMOTE_SANDBOX_MCP_HOME".to_owned(), below);
    let (report, _) = examine_configuration(None, &environment);
    assert_eq!(find(&report, StepName::State).unwrap().0, Status::Failed);
    let read = &report.variables;
    assert!(
        read.contains(&"REMOTE_SANDBOX_MCP_HOME".to_owned()),
        "{read:?}"
    );
}

#[test]
fn kept_secret_that_is_absent_is_a_failure_with_the_command_that_keeps_it() {
    let (home, environment) = home();
    let text =
        "[[sandbox]]\nname = \"box\"\nhost = \"h\"\nuser = \"u\"\npassword_secret = \"gpu1\"\n";
    let path = write(&home, text, 0o644);
    let (report, _) = examine_configuration(Some(&path), &environment);
    let step = report
        .steps
        .iter()
        .find(|step| step.step == StepName::Secret)
        .unwrap();
    assert_eq!(step.status, Status::Failed);
    assert_eq!(
        step.fix.as_deref(),
        Some("remote-sandbox-mcp secret set gpu1")
    );
}
