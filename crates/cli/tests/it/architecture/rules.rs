//! The rules themselves, and proof that they notice what they forbid.

use serde_json::Value;

use super::sources::{Module, named_paths};

/// A longer file holds more than one thing.
pub(super) const LONGEST_FILE: usize = 500;

const PREFIX: &str = "remote-sandbox-";
const KIT: &str = "testkit";

/// What each crate may build on.
const DIRECTIONS: [(&str, &[&str]); 5] = [
    ("core", &[]),
    ("engine", &["core"]),
    ("server", &["engine", "core"]),
    ("mcp", &["server", "engine", "core"]),
    (KIT, &[]),
];

/// What does input or output, which `core` leaves to others.
const IMPURE: [&str; 12] = [
    "tokio",
    "std::fs",
    "std::env",
    "std::process",
    "std::thread",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "std::net::UdpSocket",
    "std::net::ToSocketAddrs",
];

/// What a part of `engine` must not know.
const STRANGERS: [(&str, &[&str]); 2] = [("ssh", &["engine", "run"]), ("run", &["engine", "ssh"])];

/// The parts of `engine` that may know how SSH sandboxes are made.
const KNOW_SSH: [&str; 3] = ["engine", "sandbox", "ssh"];

/// A room of `engine` that knows nothing of the others, so that it could be a crate of its own.
const ROOM_OF_ITS_OWN: [&str; 2] = ["ssh", "sftp"];

fn may_use(user: &str, used: &str) -> bool {
    let allowed = DIRECTIONS.iter().find(|(name, _)| *name == user);
    user == used || allowed.is_some_and(|(_, used_by)| used_by.contains(&used))
}

/// The dependencies between our crates that go in a wrong direction.
pub(super) fn wrong_dependencies(metadata: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let user = package["name"].as_str().unwrap_or_default();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some(used) = dependency["name"]
                .as_str()
                .and_then(|name| name.strip_prefix(PREFIX))
            else {
                continue;
            };
            let for_tests = dependency["kind"] == "dev" && used == KIT;
            let user = user.strip_prefix(PREFIX).unwrap_or(user);
            if !for_tests && !may_use(user, used) {
                wrong.push(format!("{user} depends on {used}"));
            }
        }
    }
    wrong
}

/// The paths in a module that it must not name.
pub(super) fn broken_rules(crate_name: &str, module: &Module) -> Vec<String> {
    if module.is_test {
        return Vec::new();
    }
    let own = if crate_name == "cli" {
        "mcp"
    } else {
        crate_name
    };
    let part = module.path.first().map_or("", String::as_str);
    let named = named_paths(&module.text, &module.path);
    let forbidden = |path: &String| {
        let words: Vec<&str> = path.split("::").collect();
        let other = words[0].strip_prefix("remote_sandbox_");
        let wrong_crate = other.is_some_and(|other| !may_use(own, other));
        wrong_crate
            || own == "core" && is_impure(path)
            || own == "engine" && words[0] == "crate" && is_strange(part, words.get(1).copied())
            || own == "engine" && words[0] == "crate" && leaves_its_room(&module.path, &words)
    };
    named.into_iter().filter(forbidden).collect()
}

fn is_impure(path: &str) -> bool {
    let below = |door: &str| path == door || path.starts_with(&format!("{door}::"));
    let clock = ["Instant::now", "SystemTime::now"];
    IMPURE.into_iter().any(below) || clock.iter().any(|call| path.ends_with(call))
}

fn is_strange(part: &str, named: Option<&str>) -> bool {
    let Some(named) = named else {
        return false;
    };
    let strangers = STRANGERS.iter().find(|(user, _)| *user == part);
    named == "ssh" && !KNOW_SSH.contains(&part)
        || strangers.is_some_and(|(_, strangers)| strangers.contains(&named))
}

fn leaves_its_room(module: &[String], named: &[&str]) -> bool {
    module.iter().take(2).eq(ROOM_OF_ITS_OWN.iter())
        && !named.iter().skip(1).take(2).eq(ROOM_OF_ITS_OWN.iter())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn module(path: &str, text: &str) -> Module {
        Module {
            file: path.into(),
            path: path
                .split("::")
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect(),
            is_test: false,
            text: text.to_owned(),
        }
    }

    #[rstest]
    #[case("core", "shell", "use remote_sandbox_engine::engine::Engine;")]
    #[case("core", "shell", "fn f() { std::fs::write(a, b) }")]
    #[case("core", "shell", "use tokio::sync::watch;")]
    #[case("core", "shell", "use std::net::{IpAddr, TcpStream};")]
    #[case("core", "shell", "use std::time::Instant; fn f() { Instant::now() }")]
    #[case("core", "shell", "let now = std::time::SystemTime::now();")]
    #[case("engine", "run", "use remote_sandbox_server::mcp;")]
    #[case("engine", "run::live", "use crate::ssh::Dialer;")]
    #[case("engine", "run::live", "use super::super::{ssh};")]
    #[case("engine", "run", "use crate::engine::Engine;")]
    #[case("engine", "ssh::dial", "use crate::{clock, run::Registry};")]
    #[case("engine", "ssh::dial", "fn f() -> crate::engine::Engine {}")]
    #[case("engine", "audit", "use crate::ssh::pool;")]
    #[case("engine", "", "pub use crate::ssh::pool;")]
    #[case("engine", "ssh::sftp::client", "use crate::sync::Progress;")]
    #[case("engine", "ssh::sftp::client", "use super::super::dial;")]
    #[case("server", "mcp", "use remote_sandbox_testkit::Sshd;")]
    #[case("testkit", "mcp", "use remote_sandbox_core::ids;")]
    fn wrong_direction_is_noticed(#[case] name: &str, #[case] path: &str, #[case] text: &str) {
        assert_eq!(broken_rules(name, &module(path, text)).len(), 1, "{text}");
    }

    #[rstest]
    #[case(
        "core",
        "shell",
        "use std::net::IpAddr; use std::time::Duration; use crate::ids;"
    )]
    #[case(
        "core",
        "shell",
        "#[cfg(test)]\nmod tests { fn f() { std::fs::write(a, b) } }"
    )]
    #[case(
        "engine",
        "engine::setup",
        "use crate::ssh::Dialer; use crate::run::Registry;"
    )]
    #[case("engine", "sandbox", "use crate::ssh::SshSandbox;")]
    #[case(
        "engine",
        "ssh::dial",
        "use super::pool; use crate::ssh::auth; use crate::clock;"
    )]
    #[case(
        "engine",
        "run",
        "use tokio::time; use remote_sandbox_core::ids; // crate::ssh"
    )]
    #[case(
        "engine",
        "ssh::sftp::client",
        "use super::pump; use crate::ssh::sftp::error; use remote_sandbox_core::sftp::Attributes;"
    )]
    #[case("server", "mcp", "use remote_sandbox_engine::engine::Engine;")]
    #[case(
        "cli",
        "serve",
        "use remote_sandbox_server::mcp; use remote_sandbox_engine::engine;"
    )]
    fn right_direction_is_left_alone(#[case] name: &str, #[case] path: &str, #[case] text: &str) {
        assert_eq!(
            broken_rules(name, &module(path, text)),
            Vec::<String>::new()
        );
    }

    #[test]
    fn wrong_dependency_is_noticed() {
        let package = |name: &str, used: &str, kind: Value| {
            json!({"packages": [{"name": name, "dependencies": [
                {"name": used, "kind": kind}, {"name": "serde", "kind": null}]}]})
        };
        let wrong = |name, used, kind| wrong_dependencies(&package(name, used, kind)).len();
        assert_eq!(
            wrong("remote-sandbox-core", "remote-sandbox-engine", Value::Null),
            1
        );
        assert_eq!(
            wrong("remote-sandbox-core", "remote-sandbox-engine", json!("dev")),
            1
        );
        assert_eq!(
            wrong(
                "remote-sandbox-engine",
                "remote-sandbox-server",
                Value::Null
            ),
            1
        );
        assert_eq!(
            wrong("remote-sandbox-server", "remote-sandbox-mcp", Value::Null),
            1
        );
        assert_eq!(
            wrong("remote-sandbox-mcp", "remote-sandbox-testkit", Value::Null),
            1
        );
        assert_eq!(
            wrong("remote-sandbox-mcp", "remote-sandbox-testkit", json!("dev")),
            0
        );
        assert_eq!(
            wrong("remote-sandbox-mcp", "remote-sandbox-core", Value::Null),
            0
        );
        assert_eq!(
            wrong(
                "remote-sandbox-server",
                "remote-sandbox-engine",
                Value::Null
            ),
            0
        );
    }
}
