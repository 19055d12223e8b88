use std::path::PathBuf;

use super::*;
use crate::config::SshAlias;
use crate::ssh_config::{Approach, HostOptions};

fn local() -> Local {
    Local {
        home: Some(PathBuf::from("/home/me")),
        user: Some("me".to_owned()),
        ..Local::default()
    }
}

fn asked(alias: &str) -> Asked {
    Asked {
        alias: SshAlias::parse(alias).unwrap(),
        user: None,
        port: None,
        hops: Vec::new(),
    }
}

fn file(text: &str) -> ConfigFile {
    ConfigFile {
        place: ConfigPlace::User,
        text: text.as_bytes().to_vec(),
    }
}

fn options(text: &str, asked: &Asked) -> Result<HostOptions, OptionsError> {
    let mut include = |_: ConfigPlace, name: &str| vec![file(&format!("User from_{name}"))];
    let text = effective_options(&[file(text)], asked, &local(), &mut include)?;
    HostOptions::read(text.as_bytes(), &asked.alias, &local())
}

#[test]
fn first_value_counts_and_keys_add_up() {
    let text = "Port 9\nHost gpu*\n User a\n HostName %h.example\n IdentityFile ~/k1\nHost gpu1\n User b\n Port 10\n IdentityFile \"/x y\"\nHost other\n User c\n";
    let found = options(text, &asked("gpu1")).unwrap();
    assert_eq!(
        (found.user.as_str(), found.port, found.host.as_str()),
        ("a", 9, "gpu1.example")
    );
    let keys = ["/home/me/k1", "/x y"].map(PathBuf::from);
    assert_eq!(found.identity_files, keys);
}

#[test]
fn unknown_host_has_the_usual_options() {
    let found = options("Host a\n User b\n", &asked("c")).unwrap();
    assert_eq!((found.user.as_str(), found.host.as_str()), ("me", "c"));
    assert_eq!(found.identity_files.len(), 4);
    assert_eq!(found.approach, Approach::Direct);
}

#[test]
fn what_is_asked_for_wins() {
    let mut asked = asked("gpu1");
    asked.user = Some("z".to_owned());
    asked.port = Some(7);
    asked.hops = Hop::parse_list("gate").unwrap();
    let text = "User a\nPort 9\nProxyCommand nc \"%h\" %p\n";
    let found = options(text, &asked).unwrap();
    assert_eq!((found.user.as_str(), found.port), ("z", 7));
    assert_eq!(found.approach, Approach::Jump(asked.hops.clone()));
    asked.hops.clear();
    let found = options(text, &asked).unwrap();
    assert_eq!(
        found.approach,
        Approach::Command("nc \"gpu1\" 7".to_owned())
    );
}

#[test]
fn include_counts_where_its_block_does() {
    let text = "Host gpu1\n Include one\nHost *\n Include two\n";
    assert_eq!(options(text, &asked("gpu1")).unwrap().user, "from_one");
    assert_eq!(options(text, &asked("cpu1")).unwrap().user, "from_two");
}

#[test]
fn condition_is_judged_where_it_can_be() {
    let text = "Host gpu1\n HostName x.example\nMatch host *.example user me\n Port 5\nMatch all\n Port 6\n";
    assert_eq!(options(text, &asked("gpu1")).unwrap().port, 5);
    assert_eq!(options(text, &asked("cpu1")).unwrap().port, 6);
    let text = "Match originalhost gpu1 exec \"true\"\n Port 5\n";
    assert_eq!(
        options(text, &asked("gpu1")),
        Err(OptionsError::Condition("exec".to_owned()))
    );
    assert_eq!(options(text, &asked("cpu1")).unwrap().port, 22);
    let text = "Match !originalhost gpu1\n Port 5\n";
    assert_eq!(options(text, &asked("gpu1")).unwrap().port, 22);
}

#[test]
fn files_that_include_each_other_are_refused() {
    let mut include = |_: ConfigPlace, _: &str| vec![file("Include self\n")];
    let result = effective_options(
        &[file("Include self\n")],
        &asked("a"),
        &local(),
        &mut include,
    );
    assert_eq!(result, Err(OptionsError::Depth));
}

#[test]
fn broken_line_is_named() {
    let result = options("User a\nIdentityFile \"x\n", &asked("a"));
    assert_eq!(result, Err(OptionsError::Line(2)));
    assert_eq!(options("User\n", &asked("a")), Err(OptionsError::Line(1)));
}
