#![no_main]
//! Any bytes as an answer of `ssh -G`, as an SSH configuration file, and as a list of jump hosts.

use libfuzzer_sys::fuzz_target;
use remote_sandbox_core::config::SshAlias;
use remote_sandbox_core::ssh_config::{
    Asked, ConfigFile, ConfigPlace, Hop, HostOptions, Local, effective_options, listed,
};

fuzz_target!(|bytes: &[u8]| {
    let alias = SshAlias::parse("host").expect("a fixed name is well formed");
    let local = Local {
        home: Some("/home/me".into()),
        user: Some("me".into()),
        ..Local::default()
    };
    let mut answer = b"hostname h\nuser u\nport 22\n".to_vec();
    answer.extend(bytes);
    for text in [bytes, &answer] {
        let _ = HostOptions::read(text, &alias, &local);
    }
    let found = listed(bytes);
    assert!(found.hosts.iter().all(|host| SshAlias::parse(host).is_ok()));
    let asked = Asked {
        alias: alias.clone(),
        user: None,
        port: None,
        hops: Vec::new(),
    };
    let file = ConfigFile {
        place: ConfigPlace::User,
        text: bytes.to_vec(),
    };
    let mut include = |place, pattern: &str| {
        let text = pattern.as_bytes().to_vec();
        vec![ConfigFile { place, text }]
    };
    if let Ok(text) = effective_options(&[file], &asked, &local, &mut include) {
        let _ = HostOptions::read(text.as_bytes(), &alias, &local);
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(hops) = Hop::parse_list(text)
    {
        assert_eq!(Hop::parse_list(&Hop::list(&hops)), Ok(hops));
    }
});
