use std::fmt::Write as _;

use rstest::rstest;

use super::*;
use crate::config::testing::*;
use crate::config::{Config, SandboxEntry};

#[test]
fn local_has_its_defaults_when_the_table_is_absent() {
    for config in [
        from_toml(""),
        from_json("{}"),
        from_json(r#"{"local":null}"#),
        from_json(&format!("[{ENTRY}]")),
    ] {
        let local = &config.local;
        assert_eq!(*local, LocalSettings::default());
        assert_eq!(local.isolation, Isolation::Auto);
        assert_eq!(local.network, Network::On);
        assert_eq!(local.limits.processes, Some(4096));
        assert_eq!(local.limits.memory_mb, None);
        assert_eq!(local.limits.cpu_percent, None);
        assert!(!local.is_given);
        assert!(config.problems.is_empty(), "{:?}", messages(&config));
    }
}

#[test]
fn local_is_given_when_the_table_is_empty() {
    for config in [from_toml("[local]\n"), from_json(r#"{"local":{}}"#)] {
        let expected = LocalSettings {
            is_given: true,
            ..LocalSettings::default()
        };
        assert_eq!(config.local, expected);
        assert!(config.problems.is_empty());
    }
}

fn complete() -> LocalSettings {
    LocalSettings {
        isolation: Isolation::Landlock,
        network: Network::Off,
        readable: ["/h/data", "/opt/models", "/h/x"].map(PathBuf::from).into(),
        limits: Limits {
            memory_mb: Some(2048),
            processes: Some(16),
            cpu_percent: Some(250),
        },
        surroundings: Surroundings {
            variables: vec![(
                crate::shell::EnvironmentName::parse("HF_HOME").unwrap(),
                "/data/hf".to_owned(),
            )],
            init: Some("umask 077".to_owned()),
            workdir: Some("~/work".to_owned()),
            shell: crate::shell::ShellProgram::parse("zsh").ok(),
        },
        tags: vec!["near".to_owned()],
        is_given: true,
    }
}

#[test]
fn local_takes_every_key_from_toml() {
    let config = from_toml(
        r#"
        [local]
        isolation = "landlock"
        network = "off"
        readable = ["~/data", "/opt//models/", "x", "~/data/."]
        memory_mb = 2048
        processes = 16
        cpu_percent = 250
        init = "umask 077"
        workdir = "~/work"
        shell = "zsh"
        tags = ["near", "near"]
        env = { HF_HOME = "/data/hf" }
        [[sandbox]]
        ssh_alias = "g"
        "#,
    );
    assert_eq!(config.local, complete());
    assert_eq!(summary(&config), ["g"]);
    assert!(config.problems.is_empty(), "{:?}", messages(&config));
}

#[test]
fn local_takes_every_key_from_json() {
    let config = from_json(
        r#"{"local":{"isolation":"landlock","network":"off","readable":["~/data","/opt/models","~/x"],
        "memory_mb":"2048","processes":16,"cpu_percent":250,"env":{"HF_HOME":"/data/hf","NO":null},
        "init":"umask 077","workdir":"~/work","shell":"zsh","tags":"near"}}"#,
    );
    assert_eq!(config.local, complete());
    assert!(config.problems.is_empty(), "{:?}", messages(&config));
}

#[test]
fn isolation_and_network_are_known_by_every_word() {
    for (word, isolation) in Isolation::WORDS {
        let config = from_toml(&format!("[local]\nisolation='{word}'\n"));
        assert_eq!(config.local.isolation, isolation);
        assert!(config.problems.is_empty());
        assert!(WANTED_ISOLATION.contains(&format!("\"{word}\"")));
    }
    for network in [Network::On, Network::Off] {
        let config = from_toml(&format!("[local]\nnetwork='{}'\n", network.word()));
        assert_eq!(config.local.network, network);
        assert!(config.problems.is_empty());
    }
}

#[rstest]
#[case("isolation='landlok'", "isolation", WANTED_ISOLATION)]
#[case("isolation='None'", "isolation", WANTED_ISOLATION)]
#[case("isolation='none '", "isolation", WANTED_ISOLATION)]
#[case("isolation=false", "isolation", WANTED_ISOLATION)]
#[case("isolation=['none']", "isolation", WANTED_ISOLATION)]
#[case("network='none'", "network", WANTED_NETWORK)]
#[case("network=false", "network", WANTED_NETWORK)]
#[case("readable=7", "readable", "a path or a list of paths")]
#[case("readable=['/a','']", "readable", "a path or a list of paths")]
#[case("readable=['/a',['/b']]", "readable", "a path or a list of paths")]
#[case("readable='/'", "readable", WANTED_READABLE)]
#[case("readable=['/a','//.']", "readable", WANTED_READABLE)]
#[case("readable='/srv/../etc'", "readable", WANTED_READABLE)]
#[case("readable='~/..'", "readable", WANTED_READABLE)]
#[case(r#"readable="/a\nb""#, "readable", "a path without control characters")]
#[case("memory_mb=15", "memory_mb", WANTED_MEMORY)]
#[case("memory_mb=0", "memory_mb", WANTED_MEMORY)]
#[case("memory_mb=-1", "memory_mb", WANTED_MEMORY)]
#[case("memory_mb=1000000001", "memory_mb", WANTED_MEMORY)]
#[case("memory_mb='8 GB'", "memory_mb", WANTED_MEMORY)]
#[case("memory_mb=64.5", "memory_mb", WANTED_MEMORY)]
#[case("processes=15", "processes", WANTED_PROCESSES)]
#[case("processes=-16", "processes", WANTED_PROCESSES)]
#[case("processes=4194305", "processes", WANTED_PROCESSES)]
#[case("processes=true", "processes", WANTED_PROCESSES)]
#[case("cpu_percent=0", "cpu_percent", WANTED_CPU)]
#[case("cpu_percent=1000001", "cpu_percent", WANTED_CPU)]
#[case("cpu_percent=[100]", "cpu_percent", WANTED_CPU)]
#[case("init=7", "init", "text in quotes")]
#[case("shell=7", "shell", "text in quotes")]
#[case("workdir=['w']", "workdir", "text in quotes")]
fn wrong_key_is_named_with_its_line_and_the_rest_holds(
    #[case] line: &str,
    #[case] key: &str,
    #[case] wanted: &str,
) {
    let config = from_toml(&format!(
        "result_style='text'\n[local]\n{line}\n[local.env]\nA='1'\n[[sandbox]]\nssh_alias='g'\n"
    ));
    let message = format!("/c.toml:3: `local.{key}`: must be {wanted}");
    assert_eq!(messages(&config), [message]);
    assert_eq!(summary(&config), ["g"]);
    let network = match key {
        "network" => Network::Off,
        _ => Network::On,
    };
    let expected = LocalSettings {
        network,
        surroundings: config.local.surroundings.clone(),
        is_given: true,
        ..LocalSettings::default()
    };
    assert_eq!(config.local, expected);
    assert_eq!(config.local.surroundings.variables.len(), 1);
}

#[rstest]
#[case("readable='~root/x'", "/c.toml:2: `local.readable`: `~` is only")]
#[case("shell='bash -l'", "/c.toml:2: `local.shell`: must be the name")]
#[case("workdir='~root/x'", "/c.toml:2: `local.workdir`: `~` is only")]
#[case("tags=['a b']", "/c.toml:2: `local.tags`: must be at most 32")]
#[case("env='A=1'", "/c.toml:2: `local.env`: must be a table of at most")]
fn wrong_surroundings_are_named_as_in_an_entry(#[case] line: &str, #[case] message: &str) {
    let config = from_toml(&format!("[local]\n{line}\ninit='umask 077'\n"));
    let messages = messages(&config);
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].starts_with(message), "{messages:?}");
    assert_eq!(config.local.surroundings.init.as_deref(), Some("umask 077"));
}

#[test]
fn every_wrong_key_is_told_at_once_and_json_names_it_without_a_line() {
    let config = from_json(
        r#"{"local":{"isolation":"x","memory_mb":1,"env":{"2C":"x","A":"1","B":[1],"D":2},"tags":["t"],"init":7}}"#,
    );
    let messages = messages(&config);
    let starts: Vec<_> = messages
        .iter()
        .map(|message| message.rsplit_once(": ").unwrap().0)
        .collect();
    assert_eq!(
        starts,
        [
            "/c.json: `local.isolation`",
            "/c.json: `local.memory_mb`",
            "/c.json: `local.env.2C`: is no name for an environment variable",
            "/c.json: `local.env.B`",
            "/c.json: `local.init`",
        ]
    );
    let variables = &config.local.surroundings.variables;
    let names: Vec<_> = variables.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["A", "D"]);
    assert_eq!(config.local.tags, ["t"]);
}

#[test]
fn wrong_variable_of_local_names_its_line() {
    let config = from_toml("[local]\nnetwork='on'\n[local.env]\nA='1'\nB=[1]\n");
    let messages = messages(&config).concat();
    assert!(
        messages.starts_with("/c.toml:5: `local.env.B`: must be text"),
        "{messages}"
    );
}

#[rstest]
#[case("processes=0", None, None)]
#[case("processes=16", Some(16), None)]
#[case("processes=4194304", Some(4_194_304), None)]
#[case("memory_mb=16", Some(4096), Some(16))]
#[case("memory_mb=1000000000", Some(4096), Some(1_000_000_000))]
fn limits_are_taken_up_to_their_edges(
    #[case] line: &str,
    #[case] processes: Option<u64>,
    #[case] memory_mb: Option<u64>,
) {
    let config = from_toml(&format!("[local]\n{line}\n"));
    assert_eq!(config.local.limits.processes, processes);
    assert_eq!(config.local.limits.memory_mb, memory_mb);
    assert!(config.problems.is_empty(), "{:?}", messages(&config));
}

fn readable_paths(count: usize) -> Config {
    let mut list = String::new();
    for index in 0..count {
        write!(list, "'/p/{index}',").unwrap();
    }
    from_toml(&format!("[local]\nreadable=[{list}'/p/0']\n"))
}

#[test]
fn readable_is_bounded_in_number_and_length() {
    let fitting = readable_paths(64);
    assert_eq!(fitting.local.readable.len(), 64);
    assert!(fitting.problems.is_empty());
    let too_many = readable_paths(65);
    assert!(too_many.local.readable.is_empty());
    assert_eq!(too_many.problems.len(), 1);
    for (length, problems) in [(4095, 0), (4096, 1)] {
        let config = from_toml(&format!("[local]\nreadable='/{}'\n", "x".repeat(length)));
        assert_eq!(config.problems.len(), problems, "{length}");
    }
}

#[rstest]
#[case("local=7\n", "/c.toml:1: `local`: must be a table ([local] in TOML)")]
#[case(
    "\n[[local]]\nisolation='none'\n",
    "/c.toml:2: `local`: must be a table"
)]
fn local_that_is_no_table_is_a_problem_and_opens_nothing(
    #[case] text: &str,
    #[case] message: &str,
) {
    let config = from_toml(&format!("{text}[[sandbox]]\nssh_alias='g'\n"));
    let messages = messages(&config);
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].starts_with(message), "{messages:?}");
    assert_eq!(summary(&config), ["g"]);
    assert_eq!(config.local.isolation, Isolation::Auto);
    assert_eq!(config.local.network, Network::Off);
    assert!(!config.local.is_given);
}

#[test]
fn unknown_key_of_local_is_noted_with_the_known_ones_and_the_rest_holds() {
    let config = from_toml("[local]\nmemory_mb=64\nmemroy=3\n");
    assert_eq!(
        messages(&config),
        [
            "/c.toml:3: `local`: unknown key `memroy`, known keys: isolation, network, readable, memory_mb, processes, cpu_percent, env, init, workdir, shell, tags"
        ]
    );
    assert_eq!(config.local.limits.memory_mb, Some(64));
    let many: String = (0..50).fold(String::from("[local]\n"), |mut text, index| {
        writeln!(text, "k{index}=1").unwrap();
        text
    });
    assert_eq!(from_toml(&many).problems.len(), 20);
}

#[test]
fn local_is_no_sandbox_entry_and_no_key_of_one() {
    let config = from_toml("[[sandbox]]\nssh_alias='g'\n[sandbox.local]\nisolation='none'\n");
    assert!(matches!(
        config.sandboxes[..],
        [SandboxEntry::Disabled { .. }]
    ));
    assert_eq!(config.local, LocalSettings::default());
}

#[rstest]
#[case("HF_TOKEN='hf_0123456'", "hf_0123456", true)]
#[case("api_key=12345678", "12345678", true)]
#[case("HF_TOKEN='short'", "short", false)]
#[case("HF_HOME='/data/hugging'", "/data/hugging", false)]
fn variable_of_local_is_masked_when_its_name_says_so(
    #[case] line: &str,
    #[case] value: &str,
    #[case] wanted: bool,
) {
    // Also when another key of the table is wrong.
    for more in ["", "isolation='x'"] {
        let config = from_toml(&format!("[local]\n{more}\n[local.env]\n{line}\n"));
        assert_eq!(config.secrets().any(|secret| secret == value), wanted);
    }
}
