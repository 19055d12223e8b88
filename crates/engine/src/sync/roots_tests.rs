use std::os::unix::fs::symlink;

use rstest::rstest;

use super::*;

struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for place in [
            "home/.ssh",
            "home/.config/remote-sandbox-mcp",
            "home/.local/state/remote-sandbox-mcp",
            "home/project/src",
            "home/Library",
            "etc",
            "tmp",
            "work",
        ] {
            std::fs::create_dir_all(folder.path().join(place)).unwrap();
        }
        for file in [
            "etc/shadow",
            "home/.ssh/id_ed25519",
            "home/project/src/a.py",
        ] {
            std::fs::write(folder.path().join(file), "x").unwrap();
        }
        Machine { folder }
    }

    fn at(&self, path: &str) -> PathBuf {
        std::fs::canonicalize(self.folder.path())
            .unwrap()
            .join(path)
    }

    fn written(&self, path: &str) -> String {
        self.at(path).to_str().unwrap().to_owned()
    }

    fn paths(&self, working: &str, roots: Option<&[&str]>) -> LocalPaths {
        let environment: Environment = [("HOME", "home"), ("TMPDIR", "tmp")]
            .into_iter()
            .map(|(name, path)| (name.to_owned(), self.written(path)))
            .collect();
        let roots = roots.map(|roots| roots.iter().map(|root| self.at(root)).collect());
        let settings = SyncSettings { roots };
        LocalPaths::new(&settings, &environment, Some(self.at(working)))
    }
}

fn refused(paths: &LocalPaths, written: &str) -> String {
    let failure = paths.resolve(&WrittenPath::from(written)).unwrap_err();
    assert_eq!(failure.code, Code::PathRefused, "{written}");
    assert!(!failure.hint.is_empty());
    failure.message
}

#[test]
fn path_is_resolved_from_home_and_working_directory() {
    let machine = Machine::new();
    let paths = machine.paths("work", None);
    for (written, place, kind) in [
        ("~/project", "home/project", RootKind::Directory),
        (
            "~//project/src/a.py",
            "home/project/src/a.py",
            RootKind::File,
        ),
        (".", "work", RootKind::Directory),
        ("new/deep", "work/new/deep", RootKind::Missing),
        ("../tmp/./x", "tmp/x", RootKind::Missing),
        (
            "~/project/../project/src/",
            "home/project/src",
            RootKind::Directory,
        ),
    ] {
        let resolved = paths.resolve(&WrittenPath::from(written)).unwrap();
        assert_eq!(resolved.path.as_path(), machine.at(place), "{written}");
        assert_eq!(resolved.kind, kind, "{written}");
        assert_eq!(resolved.is_written_as_directory, written.ends_with('/'));
    }
}

#[rstest]
#[case("../etc/shadow")]
#[case("~/.ssh/id_ed25519")]
#[case("~/.ssh/new")]
#[case("~/.config/remote-sandbox-mcp/config.toml")]
#[case("~/.local/state/remote-sandbox-mcp/tasks.sqlite3")]
#[case("~/.cache")]
#[case("~/Library/x")]
#[case("~/project/../.ssh")]
#[case("~")]
#[case("~root/x")]
#[case("/")]
#[case("/etc/shadow")]
#[case("")]
#[case("a\0b")]
#[case("nowhere/../../etc")]
fn path_outside_the_roots_is_refused(#[case] written: &str) {
    let machine = Machine::new();
    refused(&machine.paths("work", None), written);
}

#[test]
fn link_is_judged_by_where_it_leads() {
    let machine = Machine::new();
    let paths = machine.paths("work", None);
    symlink(machine.at("etc"), machine.at("work/out")).unwrap();
    symlink(machine.at("home/project"), machine.at("work/in")).unwrap();
    symlink(machine.at("home/.ssh"), machine.at("home/project/keys")).unwrap();
    symlink("/nowhere/at/all", machine.at("work/dangling")).unwrap();
    symlink("round", machine.at("work/round")).unwrap();
    assert!(refused(&paths, "out/shadow").contains("outside the folders"));
    refused(&paths, "out/new");
    assert!(refused(&paths, "~/project/keys/id_ed25519").contains("keys"));
    assert!(refused(&paths, "dangling").contains("leads nowhere"));
    refused(&paths, "dangling/x");
    refused(&paths, "round");
    let resolved = paths.resolve(&WrittenPath::from("in/src/a.py")).unwrap();
    assert_eq!(resolved.path.as_path(), machine.at("home/project/src/a.py"));
}

#[cfg(target_os = "linux")]
#[test]
fn detour_through_proc_is_judged_by_the_real_place() {
    let machine = Machine::new();
    let paths = machine.paths("work", None);
    refused(&paths, "/proc/self/root/etc/shadow");
    let detour = format!("/proc/self/root{}", machine.written("home/.ssh/id_ed25519"));
    assert!(refused(&paths, &detour).contains("keys"));
    let detour = format!("/proc/self/root{}", machine.written("work"));
    let resolved = paths.resolve(&WrittenPath::from(detour.as_str())).unwrap();
    assert_eq!(resolved.path.as_path(), machine.at("work"));
}

#[test]
fn configured_roots_are_the_only_ones() {
    let machine = Machine::new();
    let paths = machine.paths("work", Some(&["etc", "home"]));
    assert!(
        paths
            .resolve(&WrittenPath::from(machine.written("etc/shadow")))
            .is_ok()
    );
    refused(&paths, ".");
    refused(&paths, &machine.written("tmp/x"));
    refused(&paths, "~/.ssh/id_ed25519");
    refused(&paths, "~/.local/state/remote-sandbox-mcp");
    let home = paths.resolve(&WrittenPath::from("~")).unwrap();
    let avoid: Vec<_> = home.allowed.avoid.iter().map(CleanPath::as_path).collect();
    assert!(avoid.contains(&machine.at("home/.ssh").as_path()));
    assert!(avoid.contains(&machine.at("home/.local/state/remote-sandbox-mcp").as_path()));
    refused(&machine.paths("work", Some(&[])), ".");
}

#[test]
fn server_started_at_home_or_above_gives_none_of_it_away() {
    let machine = Machine::new();
    for working in ["home", ""] {
        let paths = machine.paths(working, None);
        refused(&paths, ".");
        refused(&paths, &machine.written("home/.bashrc"));
        assert!(
            paths
                .resolve(&WrittenPath::from(machine.written("home/project")))
                .is_ok()
        );
    }
}

#[test]
fn named_configuration_file_is_never_used_but_its_neighbours_are() {
    let machine = Machine::new();
    let environment = Environment::from([("HOME".to_owned(), machine.written("home"))]);
    let flag = machine.at("work/sandboxes.toml");
    let settings = SyncSettings::default();
    let working = Some(machine.at("work"));
    let paths = LocalPaths::new(&settings, &environment, working).with_config_file(&flag);
    refused(&paths, "sandboxes.toml");
    let folder = paths.resolve(&WrittenPath::from(".")).unwrap();
    assert_eq!(folder.allowed.avoid.len(), 1);
    assert!(paths.resolve(&WrittenPath::from("a.py")).is_ok());
}

#[test]
fn path_of_any_bytes_is_resolved_and_judged_by_where_it_lies() {
    let machine = Machine::new();
    let odd = OsStr::from_bytes(b"odd\xff");
    std::fs::create_dir(machine.at("home/project").join(odd)).unwrap();
    let paths = machine.paths("work", None);
    let resolved = paths.resolve(&WrittenPath::from(b"~/project/odd\xff/".as_slice()));
    let resolved = resolved.unwrap();
    assert_eq!(
        resolved.path.as_path(),
        machine.at("home/project").join(odd)
    );
    assert!(resolved.is_written_as_directory && resolved.kind == RootKind::Directory);
    let missing = paths
        .resolve(&WrittenPath::from(b"new\xfe".as_slice()))
        .unwrap();
    assert_eq!(
        missing.path.as_path(),
        machine.at("work").join(OsStr::from_bytes(b"new\xfe"))
    );
    for refused in [
        b"/etc/\xff".as_slice(),
        b"~/.ssh/\xff",
        b"~\xff",
        b"a\xff\0",
    ] {
        let failure = paths.resolve(&WrittenPath::from(refused)).unwrap_err();
        assert_eq!(failure.code, Code::PathRefused, "{failure:?}");
    }
}
