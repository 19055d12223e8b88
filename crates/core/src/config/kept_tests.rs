use rstest::rstest;

use super::*;
use crate::config::{Environment, SandboxEntry, Sources, resolve};

fn read(entry: &Value) -> SandboxConfig {
    let list = Value::from(vec![entry.clone()]).to_string();
    let environment: Environment = [
        ("HOME".to_owned(), "/home/u".to_owned()),
        ("REMOTE_SANDBOX_LIST".to_owned(), list),
    ]
    .into();
    let sources = Sources {
        environment,
        file: None,
    };
    let config = resolve(&sources);
    match config.sandboxes.into_iter().next() {
        Some(SandboxEntry::Ready(sandbox)) => sandbox,
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[case::plain(json!({"name": "a", "host": "h", "user": "u", "key_file": "~/k"}))]
#[case::much(json!({
    "name": "a", "host": "::1", "port": 2222, "user": "u", "password": "hunter2hunter2",
    "key_file": "/k", "key_passphrase": "opensesame", "host_key_policy": "strict",
    "known_hosts_files": ["/a", "/b"], "connect_timeout_s": 2.5, "keepalive_max": 7,
    "env": {"API_KEY": "sk-123456789", "N": 3}, "init": "module load x", "workdir": "~/w", "shell": "zsh",
}))]
#[case::printed(json!({"host": "h", "user": "u", "password_command": ["pass", "show", "x"]}))]
#[case::stored(json!({"host": "h", "user": "u", "password_secret": "mine"}))]
#[case::alias(json!({"ssh_alias": "gpu1", "user": "u", "banner_timeout_s": 3}))]
#[case::openssh(json!({"ssh_alias": "gpu1", "transport": "openssh", "require_existing_master": true}))]
fn kept_entry_makes_the_same_sandbox_again(#[case] entry: Value) {
    let first = read(&entry);
    let kept = kept_entry(&first).unwrap();
    let written = Value::Object(kept.entry.clone()).to_string();
    for secret in ["hunter2", "opensesame", "sk-1234", "module load"] {
        assert!(!written.contains(secret), "{written}");
    }
    let mut whole = kept.entry;
    if let Some(surroundings) = &kept.surroundings {
        whole = whole_entry(whole, surroundings.expose()).unwrap();
    }
    for secret in &kept.secrets {
        whole.insert(secret.key.to_owned(), json!(secret.value.expose()));
    }
    let second = read(&Value::Object(whole));
    let shown = |config: &SandboxConfig| {
        format!(
            "{} {:?} {:?} {:?} {:?}",
            config.name,
            config.reach,
            config.transport,
            config.surroundings,
            config.surroundings.variables
        )
    };
    assert_eq!(shown(&first), shown(&second));
}

fn read_local(file: ConfigText) -> LocalSettings {
    let environment: Environment = [("HOME".to_owned(), "/home/u".to_owned())].into();
    let config = resolve(&Sources {
        environment,
        file: Some(file),
    });
    assert!(config.problems.is_empty(), "{:?}", config.problems);
    config.local
}

#[rstest]
#[case::nothing("")]
#[case::much(
    "isolation = \"landlock\"\nnetwork = \"off\"\nreadable = [\"~/data\", \"/opt/x\"]\nmemory_mb = 2048\n\
     processes = 0\ncpu_percent = 150\ninit = \"module load x\"\nworkdir = \"w\"\nshell = \"zsh\"\n\
     env = { API_KEY = \"sk-123456789\", N = 3 }\n"
)]
fn kept_local_makes_the_same_sandbox_again(#[case] lines: &str) {
    let text = format!("[local]\n{lines}");
    let file = ConfigText::new(PathBuf::from("/c.toml"), text.into_bytes()).unwrap();
    let first = read_local(file);
    let kept = kept_local("mine", &first).unwrap();
    let written = Value::Object(kept.entry.clone()).to_string();
    assert!(
        !written.contains("sk-1234") && !written.contains("module load"),
        "{written}"
    );
    let mut whole = kept.entry;
    if let Some(surroundings) = &kept.surroundings {
        whole = whole_entry(whole, surroundings.expose()).unwrap();
    }
    let (name, file) = kept_local_source(whole).unwrap();
    let second = read_local(file);
    assert_eq!((name.as_str(), &second), ("mine", &first));
    assert_eq!(second.surroundings.variables, first.surroundings.variables);
}

#[test]
fn entry_of_a_host_is_not_one_of_this_machine() {
    let host = read(&json!({"name": "local", "host": "h", "user": "u", "key_file": "/k"}));
    assert!(kept_local_source(kept_entry(&host).unwrap().entry).is_none());
}
