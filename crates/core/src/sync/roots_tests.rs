use rstest::rstest;

use super::*;

fn clean(text: &str) -> CleanPath {
    CleanPath::parse(Path::new(text)).unwrap()
}

fn places(working_directory: &str) -> LocalPlaces {
    LocalPlaces {
        working_directory: Some(clean(working_directory)),
        temporary: vec![clean("/tmp")],
        home: Some(clean("/home/ann")),
        own: vec![
            clean("/home/ann/.local/state/remote-sandbox-mcp"),
            clean("/tmp/own"),
        ],
        keys: vec![clean("/home/ann/dots/ssh")],
        configured: None,
    }
}

/// `allowed`, or the name of the refusal.
fn verdict(places: LocalPlaces, path: &str) -> String {
    match LocalRoots::new(places).judge(&clean(path)) {
        Ok(_) => "allowed".to_owned(),
        Err(refusal) => format!("{refusal:?}").split(' ').next().unwrap().to_owned(),
    }
}

#[rstest]
#[case::working_directory("/srv/project", "/srv/project", "allowed")]
#[case::in_working_directory("/srv/project", "/srv/project/a/.hidden", "allowed")]
#[case::beside_working_directory("/srv/project", "/srv/projector", "Outside")]
#[case::temporary("/srv/project", "/tmp/x", "allowed")]
#[case::in_home("/srv/project", "/home/ann/project/.env", "allowed")]
#[case::home_itself("/srv/project", "/home/ann", "WholeHome")]
#[case::hidden("/srv/project", "/home/ann/.config/x", "Hidden")]
#[case::start_file("/srv/project", "/home/ann/.bashrc", "Hidden")]
#[case::library("/srv/project", "/home/ann/Library/Mail", "Hidden")]
#[case::library_further_down("/srv/project", "/home/ann/x/Library", "allowed")]
#[case::keys("/srv/project", "/home/ann/.ssh/id_ed25519", "Keys")]
#[case::own_state(
    "/srv/project",
    "/home/ann/.local/state/remote-sandbox-mcp/tasks",
    "Own"
)]
#[case::own_state_in_an_open_root("/srv/project", "/tmp/own", "Own")]
#[case::system("/srv/project", "/etc/shadow", "Outside")]
#[case::through_proc("/srv/project", "/proc/self/root/etc", "Outside")]
#[case::other_home("/srv/project", "/home/bob/x", "Outside")]
#[case::top("/srv/project", "/", "Outside")]
#[case::working_at_the_top("/", "/etc", "Outside")]
#[case::working_above_home("/home", "/home/bob", "Outside")]
#[case::working_at_home("/home/ann", "/home/ann/.bashrc", "Hidden")]
#[case::working_in_hidden_folder("/home/ann/.tool/project", "/home/ann/.tool/project/x", "allowed")]
#[case::working_among_keys("/home/ann/.ssh", "/home/ann/.ssh/config", "Keys")]
fn path_is_judged_by_the_default_roots(
    #[case] working_directory: &str,
    #[case] path: &str,
    #[case] expected: &str,
) {
    assert_eq!(verdict(places(working_directory), path), expected);
}

#[rstest]
#[case("/data/sets/x", "allowed")]
#[case("/home/ann/.config/tool", "allowed")]
#[case("/srv/project", "Outside")]
#[case("/tmp/x", "Outside")]
#[case("/home/ann/project", "Outside")]
#[case("/home/ann/.ssh", "Keys")]
#[case("/home/ann/.local/state/remote-sandbox-mcp", "Own")]
fn configured_roots_are_the_only_ones(#[case] path: &str, #[case] expected: &str) {
    let configured = [
        "/data/sets",
        "/home/ann/.config",
        "/home/ann/.local",
        "/home/ann/.ssh",
    ]
    .map(clean);
    let places = LocalPlaces {
        configured: Some(configured.to_vec()),
        ..places("/srv/project")
    };
    assert_eq!(verdict(places, path), expected);
}

#[test]
fn keys_are_refused_where_their_place_in_the_home_leads_to() {
    let roots = LocalRoots::new(places("/srv/project"));
    for path in ["/home/ann/dots/ssh", "/home/ann/dots/ssh/id_ed25519"] {
        let refused = roots.judge(&clean(path)).unwrap_err();
        assert!(matches!(refused, RootRefusal::Keys { .. }), "{refused}");
    }
    let allowed = roots.judge(&clean("/home/ann/dots")).unwrap();
    assert!(allowed.avoid.contains(&clean("/home/ann/dots/ssh")));
}

#[test]
fn allowed_path_says_what_in_it_must_be_left_alone() {
    let configured = Some(vec![clean("/home")]);
    let roots = LocalRoots::new(LocalPlaces {
        configured,
        ..places("/srv/project")
    });
    let allowed = roots.judge(&clean("/home/ann")).unwrap();
    assert_eq!(allowed.root, clean("/home"));
    assert!(allowed.avoid.contains(&clean("/home/ann/.ssh")));
    assert!(
        allowed
            .avoid
            .contains(&clean("/home/ann/.local/state/remote-sandbox-mcp"))
    );
    assert!(!allowed.avoid.contains(&clean("/tmp/own")));
}

#[test]
fn refusal_names_the_path_and_the_roots() {
    let refusal = LocalRoots::new(places("/srv/project"))
        .judge(&clean("/etc/shadow"))
        .unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "/etc/shadow lies outside the folders that a sync may use: /srv/project, /tmp, folders in /home/ann"
    );
    assert!(refusal.hint().contains("configuration"));
    let nothing = LocalRoots::new(LocalPlaces::default())
        .judge(&clean("/a"))
        .unwrap_err();
    assert!(nothing.to_string().ends_with(": none"));
}

#[test]
fn path_is_clean_only_when_it_is_absolute_and_has_no_way_up() {
    assert_eq!(clean("//a/./b//c/"), clean("/a/b/c"));
    assert!(matches!(
        CleanPath::parse(Path::new("a/b")),
        Err(CleanPathError::Relative { .. })
    ));
    assert!(matches!(
        CleanPath::parse(Path::new("/a/../b")),
        Err(CleanPathError::Parent { .. })
    ));
}

#[rstest]
#[case::beside_the_home("/tmp/lab/project", true)]
#[case::folder_at_home("/tmp/lab/home/project", true)]
#[case::hidden_at_home("/tmp/lab/home/.config/x", false)]
#[case::keys_at_home("/tmp/lab/home/.ssh", false)]
#[case::home("/tmp/lab/home", false)]
#[case::above_the_home("/tmp/lab", false)]
#[case::all_of_it("/tmp", false)]
fn home_in_the_folder_for_temporary_files_keeps_its_rules(
    #[case] path: &str,
    #[case] is_allowed: bool,
) {
    let rules = LocalRoots::new(LocalPlaces {
        temporary: vec![clean("/tmp")],
        home: Some(clean("/tmp/lab/home")),
        ..LocalPlaces::default()
    });
    let judged = rules.judge(&clean(path));
    assert_eq!(judged.is_ok(), is_allowed, "{judged:?}");
}
