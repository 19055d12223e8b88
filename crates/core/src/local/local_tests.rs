use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rstest::rstest;

use super::wire::{Reply, Request, line_of, parse_line};
use super::*;

fn reachable(bubblewrap: bool, landlock: u32, seatbelt: bool) -> Reachable {
    let tell = |stands: bool| if stands { Ok(()) } else { Err("no".to_owned()) };
    Reachable {
        bubblewrap: tell(bubblewrap),
        landlock: if landlock > 0 {
            Ok(landlock)
        } else {
            Err("none".to_owned())
        },
        seatbelt: tell(seatbelt),
    }
}

#[rstest]
#[case(Isolation::Auto, reachable(true, 7, false), Ok("bubblewrap"))]
#[case(Isolation::Auto, reachable(false, 7, false), Ok("landlock"))]
#[case(Isolation::Auto, reachable(false, 0, true), Ok("seatbelt"))]
#[case(Isolation::Auto, reachable(false, 2, false), Err("version 2"))]
#[case(Isolation::Auto, reachable(false, 0, false), Err("bubblewrap: no"))]
#[case(Isolation::Landlock, reachable(true, 7, true), Ok("landlock"))]
#[case(
    Isolation::Bubblewrap,
    reachable(false, 7, true),
    Err("bubblewrap: no")
)]
#[case(Isolation::Seatbelt, reachable(true, 7, false), Err("seatbelt: no"))]
#[case(Isolation::None, reachable(true, 7, true), Ok("none"))]
fn level_is_the_best_that_stands_and_never_none_by_itself(
    #[case] wanted: Isolation,
    #[case] found: Reachable,
    #[case] expected: Result<&str, &str>,
) {
    match (choose_level(wanted, &found), expected) {
        (Ok(level), Ok(word)) => assert_eq!(level.word(), word),
        (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
        (chosen, expected) => panic!("{chosen:?} instead of {expected:?}"),
    }
}

#[rstest]
#[case("scratch", true)]
#[case("a.b_c-1", true)]
#[case("", false)]
#[case(".", false)]
#[case("..", false)]
#[case("-x", false)]
#[case(".x", false)]
#[case("a/b", false)]
#[case("a b", false)]
#[case("gerät", false)]
#[case("a23456789b123456789c123456789d123456789e", true)]
#[case("a23456789b123456789c123456789d123456789ef", false)]
fn name_is_safe_as_a_folder(#[case] text: &str, #[case] good: bool) {
    assert_eq!(LocalName::parse(text).is_ok(), good);
}

fn view(network: Network) -> View {
    View {
        system: vec![
            SystemPath::Real("/usr".into()),
            SystemPath::Link {
                path: "/bin".into(),
                target: "usr/bin".into(),
            },
        ],
        hidden: vec![
            Hidden {
                path: "/etc/shadow".into(),
                is_folder: false,
            },
            Hidden {
                path: "/etc/keys".into(),
                is_folder: true,
            },
        ],
        devices: vec!["/dev/nvidia0".into()],
        readable: vec!["/data/models".into()],
        home: "/s/one/home".into(),
        temporary: "/s/one/tmp".into(),
        network,
    }
}

fn joined(view: &View, no_nesting: bool) -> String {
    let words = bubblewrap_arguments(view, Path::new("/prog"), no_nesting);
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

#[test]
fn bubblewrap_shows_the_system_read_only_and_its_own_folders_writable() {
    let line = joined(&view(Network::On), true);
    for part in [
        "--ro-bind /usr /usr",
        "--symlink usr/bin /bin",
        "--ro-bind /dev/null /etc/shadow",
        "--tmpfs /etc/keys --remount-ro /etc/keys",
        "--dev-bind-try /dev/nvidia0 /dev/nvidia0",
        "--ro-bind-try /data/models /data/models",
        "--bind /s/one/home /s/one/home",
        "--bind /s/one/tmp /tmp",
        "--disable-userns",
        "--cap-drop ALL",
        "--as-pid-1",
        "--remount-ro /",
        "--proc /proc --ro-bind /proc/sys /proc/sys",
    ] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    assert!(!line.contains("--unshare-net"));
    assert!(!joined(&view(Network::On), false).contains("--disable-userns"));
    assert!(joined(&view(Network::Off), true).contains("--unshare-net"));
    let writable: Vec<_> = line.match_indices("--bind ").collect();
    assert_eq!(writable.len(), 3, "{line}");
}

#[rstest]
#[case("/home/u/state/one/home", None)]
#[case("/tmpfiles/one/home", None)]
#[case(
    "/tmp/state/one/home",
    Some("--tmpfs /tmp/state --bind /tmp/state/one/home")
)]
#[case(
    "/var/tmp/s/one/home",
    Some("--tmpfs /var/tmp/s --bind /var/tmp/s/one/home")
)]
fn bubblewrap_covers_what_commands_may_have_put_in_the_way_to_their_home(
    #[case] home: &str,
    #[case] expected: Option<&str>,
) {
    let mut view = view(Network::On);
    view.home = home.into();
    let line = joined(&view, true);
    match expected {
        Some(part) => assert!(line.contains(&format!("{part} ")), "{line}"),
        None => assert!(!line.contains("--tmpfs /tmp"), "{line}"),
    }
}

#[test]
fn seatbelt_denies_what_is_not_named_and_quotes_paths() {
    let mut off = view(Network::Off);
    off.home = "/s/a\"b\\c/home".into();
    let profile = seatbelt_profile(&off, Path::new("/prog"));
    assert!(profile.starts_with("(version 1)\n(deny default)\n"));
    assert!(
        profile.contains(r#"(subpath "/s/a\"b\\c/home")"#),
        "{profile}"
    );
    assert!(profile.contains(r#"(deny file-read* (subpath "/etc/shadow"))"#));
    assert!(!profile.contains("remote ip"));
    let on = seatbelt_profile(&view(Network::On), Path::new("/prog"));
    assert!(on.contains("(remote ip)"));
    for text in [&profile, &on] {
        let depth = text.chars().fold(0_i32, |depth, next| match next {
            '(' => depth + 1,
            ')' => depth - 1,
            _ => depth,
        });
        assert_eq!(depth, 0, "{text}");
    }
}

#[test]
fn hidden_files_are_left_out_of_leave_to_read() {
    let hidden: BTreeSet<PathBuf> = ["/etc/shadow", "/etc/ssh/key"].map(PathBuf::from).into();
    let mut entries = |folder: &Path| -> Vec<PathBuf> {
        match folder.to_str() {
            Some("/etc") => ["/etc/passwd", "/etc/shadow", "/etc/ssh", "/etc/sshx"]
                .map(PathBuf::from)
                .into(),
            Some("/etc/ssh") => ["/etc/ssh/config", "/etc/ssh/key"]
                .map(PathBuf::from)
                .into(),
            other => panic!("{other:?} need not be listed"),
        }
    };
    let grants = readable_grants(Path::new("/etc"), &hidden, &mut entries);
    let read = |path: &str| Grant::Read(path.into());
    let list = |path: &str| Grant::List(path.into());
    assert_eq!(
        grants,
        [
            list("/etc"),
            read("/etc/passwd"),
            list("/etc/ssh"),
            read("/etc/ssh/config"),
            read("/etc/sshx")
        ]
    );
    let none = readable_grants(Path::new("/usr"), &hidden, &mut entries);
    assert_eq!(none, [read("/usr")]);
}

#[test]
fn every_level_says_something_about_every_wall() {
    let names = |level| -> Vec<_> { walls(level).into_iter().map(|wall| wall.name).collect() };
    let all = names(Level::None);
    for landlock in [0, 3, 7] {
        assert_eq!(names(Level::Bubblewrap { landlock }), all);
        assert_eq!(names(Level::Landlock { landlock }), all);
    }
    assert_eq!(names(Level::Seatbelt), all);
    let holding = walls(Level::None).into_iter().filter(|wall| wall.holds);
    assert_eq!(holding.count(), 1, "only the environment");
}

#[test]
fn bounds_are_told_as_they_are() {
    let limits = Limits {
        memory_mb: Some(100),
        processes: Some(50),
        cpu_percent: Some(150),
    };
    let texts = |groups, own_users| -> Vec<_> {
        let bounds = bounds(&limits, groups, own_users);
        bounds.into_iter().map(|bound| bound.text).collect()
    };
    let together = ["100 MB together", "50 together", "150 % of one processor"];
    assert_eq!(texts(true, false), together);
    let without = "not bounded: no delegated cgroup";
    assert_eq!(
        texts(false, false),
        ["100 MB each process", without, without]
    );
    assert_eq!(texts(false, true)[1], "50 together");
    let nothing = bounds(&Limits::default(), true, true);
    assert!(nothing.iter().all(|bound| bound.text == "not bounded"));
}

#[test]
fn record_is_read_as_it_was_written_and_a_newer_one_is_refused() {
    let name = LocalName::parse("one").unwrap();
    let variable = crate::shell::EnvironmentName::parse("A").unwrap();
    let variables = vec![(variable, "secret value".to_owned())];
    let record = LocalRecord::new(
        name,
        "2026-01-02T03:04:05Z".into(),
        Some(Network::Off),
        variables,
    );
    let text = record.text().unwrap();
    assert_eq!(LocalRecord::parse(&text).unwrap(), record);
    assert!(!format!("{record:?}").contains("secret"));
    let newer = String::from_utf8(text)
        .unwrap()
        .replace("\"form\":1", "\"form\":2");
    let error = LocalRecord::parse(newer.as_bytes()).unwrap_err();
    assert!(matches!(error, RecordError::Newer(2)), "{error}");
    let outside = newer
        .replace("\"form\":2", "\"form\":1")
        .replace("\"one\"", "\"../x\"");
    assert!(LocalRecord::parse(outside.as_bytes()).is_err());
}

proptest! {
    #[test]
    fn no_line_makes_the_reader_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_line::<Request>(&line);
        let _ = parse_line::<Reply>(&line);
    }
}

#[test]
fn messages_are_read_as_they_were_written() {
    for request in [Request::Shell, Request::Leave, Request::Kill] {
        let line = line_of(&request).unwrap();
        assert_eq!(parse_line::<Request>(&line).unwrap(), request);
    }
    let reply = Reply::Signalled {
        name: "KILL".to_owned(),
    };
    let line = line_of(&reply).unwrap();
    assert_eq!(parse_line::<Reply>(&line).unwrap(), reply);
}

#[test]
fn plan_is_read_as_it_was_written() {
    let plan = SupervisorPlan {
        level: Level::Landlock { landlock: 7 },
        network: Network::Off,
        home: "/h".into(),
        grants: vec![
            Grant::Read("/usr".into()),
            Grant::Device("/dev/null".into()),
        ],
        limits: Limits::default(),
        terms: "landlock-1".to_owned(),
    };
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<SupervisorPlan>(&text).unwrap(), plan);
}

#[test]
fn terms_differ_where_anything_that_was_asked_for_does() {
    let limits = Limits::default();
    let level = Level::Bubblewrap { landlock: 6 };
    let usual = terms_of(level, Network::On, &[], &limits);
    assert_eq!(usual, terms_of(level, Network::On, &[], &limits));
    let fewer = Limits {
        processes: Some(50),
        ..limits
    };
    let others = [
        terms_of(Level::None, Network::On, &[], &limits),
        terms_of(level, Network::Off, &[], &limits),
        terms_of(level, Network::On, &["/data".into()], &limits),
        terms_of(level, Network::On, &[], &fewer),
    ];
    assert!(others.iter().all(|other| *other != usual), "{others:?}");
}

#[test]
fn file_for_names_of_hosts_is_shown_also_where_it_lies_below_run() {
    let mut view = view(Network::On);
    view.system
        .push(SystemPath::Real("/run/resolved/resolv.conf".into()));
    let line = joined(&view, true);
    let (run, file) = (
        line.find("--tmpfs /run"),
        line.find("--ro-bind /run/resolved"),
    );
    assert!(run.is_some() && run < file, "{line}");
}

#[test]
fn folder_that_hides_all_sandboxes_is_closed_when_the_home_is_there() {
    let mut view = view(Network::On);
    view.hidden = vec![Hidden {
        path: "/s".into(),
        is_folder: true,
    }];
    let line = joined(&view, true);
    let at = |part: &str| {
        line.find(part)
            .unwrap_or_else(|| panic!("{part} in {line}"))
    };
    assert!(at("--tmpfs /s ") < at("--bind /s/one/home "));
    assert!(at("--bind /s/one/home ") < at("--remount-ro /s "));
    assert!(at("--ro-bind-try /data/models") < at("--tmpfs /s "));
}
