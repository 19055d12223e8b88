use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use rstest::rstest;

use super::super::ignore::{Filter, Prune};
use super::super::samples::path;
use super::super::temporary::temporary_name;
use super::super::{Entry, EntryList, Kind, RelPath};
use super::testing::{Host, hosts, mark, plant, read, run, truth};
use super::*;

fn request(root: &HostPath, scanner: Scanner) -> ScanRequest<'_> {
    ScanRequest {
        root,
        scanner,
        prunes: &[],
        follow_links: false,
        sorted_by: SortedBy::Reader,
        depth: ScanDepth::Tree,
        lone_file: LoneFile::Unlisted,
    }
}

fn sorted(entries: &[Entry]) -> Vec<Entry> {
    let mut list = EntryList::default();
    for entry in entries {
        list.push(entry.clone()).unwrap();
    }
    let list = list.sorted();
    assert_eq!(list.misplaced(), []);
    list.iter().collect()
}

pub(super) fn paths(entries: &[Entry]) -> Vec<RelPath> {
    entries.iter().map(|entry| entry.path.clone()).collect()
}

#[rstest]
#[case::plain(b"root")]
#[case::dash(b"-root")]
#[case::newline(b"ro\not\n")]
#[case::not_utf8(b"r\xff 'x'")]
#[case::not_utf8_and_newline(b"r\xff\n\n")]
fn every_scanner_lists_the_true_tree(#[case] root: &[u8]) {
    for (scanner, host) in hosts() {
        plant(&host, root);
        let mut expected = Vec::new();
        truth(&host.at(root), b"", &mut expected);
        expected.sort_by(|one, other| one.path.cmp(&other.path));
        let whole = [host.home.path().as_os_str().as_bytes(), b"/", root].concat();
        for written in [root.to_vec(), [b"~/", root].concat(), whole] {
            let host_path = HostPath::parse(&written).unwrap();
            let (entries, problems, summary) = host.scan(&request(&host_path, scanner));
            let found = sorted(&entries);
            assert_eq!(paths(&found), paths(&expected), "{scanner:?}");
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found.kind, expected.kind, "{scanner:?}");
                if let Kind::Link { .. } = found.kind {
                    continue;
                }
                assert_eq!(found.mode, expected.mode, "{scanner:?} {found:?}");
                assert_eq!(
                    found.size_bytes, expected.size_bytes,
                    "{scanner:?} {found:?}"
                );
                assert!(found.mtime.agrees(expected.mtime), "{scanner:?} {found:?}");
                let is_exact = matches!(scanner, Scanner::Find | Scanner::Python);
                assert_eq!(found.mtime.nanoseconds().is_some(), is_exact, "{scanner:?}");
                assert!(found.identity.is_some());
            }
            assert_eq!(problems, [], "{scanner:?}");
            assert_eq!(summary.root, RootKind::Directory);
            assert_eq!(
                summary.home,
                fs::canonicalize(host.home.path())
                    .unwrap()
                    .as_os_str()
                    .as_bytes()
            );
            assert!(
                summary.location.starts_with(&summary.home)
                    && summary.location.len() > summary.home.len()
            );
        }
    }
}

#[test]
fn python_perl_and_sort_on_the_host_give_the_order_of_paths() {
    for (scanner, host) in hosts() {
        if !scanner.comes_sorted(SortedBy::Host) {
            continue;
        }
        plant(&host, b"root");
        let root = HostPath::parse(b"root").unwrap();
        let mut request = request(&root, scanner);
        request.sorted_by = SortedBy::Host;
        let (entries, problems, _) = host.scan(&request);
        assert_eq!(problems, []);
        assert_eq!(paths(&entries), paths(&sorted(&entries)), "{scanner:?}");
        assert!(entries.len() > 30);
    }
}

#[test]
fn pruned_directory_is_listed_without_its_content() {
    for (scanner, host) in hosts() {
        for name in [
            "node_modules/x",
            "d/node_modules/x/y",
            "data/x",
            "d/data/x",
            "sta*r/x",
            "star/x",
            "a/b/c",
            "nod/x",
        ] {
            host.write(format!("r/{name}").as_bytes(), "");
        }
        host.write(b"r/\xfe/x", "");
        host.write(b"r/data/node_modules", "");
        let filter = Filter::new(None, &[b"/data", br"sta\*r", b"\xfe", b"a/b"]).unwrap();
        let prunes = filter.prunes();
        assert!(prunes.contains(&Prune::Name(b"\xfe".as_slice().into())));
        let root = HostPath::parse(b"r").unwrap();
        let mut request = request(&root, scanner);
        request.prunes = &prunes;
        let (entries, problems, _) = host.scan(&request);
        let mut expected = [
            "a",
            "a/b",
            "d",
            "d/data",
            "d/data/x",
            "d/node_modules",
            "data",
            "nod",
            "nod/x",
            "node_modules",
            "sta*r",
            "star",
            "star/x",
        ]
        .map(path)
        .to_vec();
        expected.push(RelPath::parse(b"\xfe").unwrap());
        assert_eq!(problems, []);
        assert_eq!(paths(&sorted(&entries)), expected, "{scanner:?}");
    }
}

#[test]
fn temporary_files_of_ours_are_not_listed() {
    for (scanner, host) in hosts() {
        let staging = temporary_name(&mark(), 1);
        host.write(format!("r/{staging}/deep/file").as_bytes(), "");
        host.write(format!("r/d/{}", temporary_name(&mark(), 2)).as_bytes(), "");
        host.write(b"r/.rsmcp-sync-notes", "");
        let root = HostPath::parse(b"r").unwrap();
        let (entries, _, _) = host.scan(&request(&root, scanner));
        assert_eq!(
            paths(&sorted(&entries)),
            [".rsmcp-sync-notes", "d"].map(path),
            "{scanner:?}"
        );
        assert!(
            !host
                .run(&scan_script(&request(&root, scanner), &mark()))
                .windows(9)
                .any(|word| word == b"deep/file")
        );
    }
}

#[test]
fn links_are_followed_on_request_and_a_circle_ends() {
    for (scanner, host) in hosts() {
        host.write(b"r/d/f", "123");
        host.write(b"far/g", "12345");
        symlink("../far", host.at(b"r/out")).unwrap();
        symlink("..", host.at(b"r/d/up")).unwrap();
        symlink("gone", host.at(b"r/broken")).unwrap();
        let root = HostPath::parse(b"r").unwrap();
        let mut request = request(&root, scanner);
        request.follow_links = true;
        let (entries, problems, _) = host.scan(&request);
        let through = entries
            .iter()
            .find(|entry| entry.path == path("out/g"))
            .unwrap();
        assert_eq!(
            (&through.kind, through.size_bytes),
            (&Kind::File, 5),
            "{scanner:?}"
        );
        let broken = entries
            .iter()
            .find(|entry| entry.path == path("broken"))
            .unwrap();
        assert!(matches!(broken.kind, Kind::Link { .. }), "{scanner:?}");
        assert!(entries.len() < 300, "{scanner:?} {}", entries.len());
        if scanner != Scanner::FindStat {
            assert!(!problems.is_empty(), "{scanner:?}");
        }
    }
}

#[rstest]
#[case(b"file", RootKind::File)]
#[case(b"gone", RootKind::Missing)]
#[case(b"link", RootKind::File)]
#[case(b"to-dir", RootKind::Directory)]
fn root_is_told_for_what_it_is(#[case] name: &[u8], #[case] expected: RootKind) {
    for (scanner, host) in hosts() {
        host.write(b"file", "");
        fs::create_dir(host.at(b"dir")).unwrap();
        symlink("dir", host.at(b"to-dir")).unwrap();
        symlink("nowhere", host.at(b"link")).unwrap();
        let root = HostPath::parse(name).unwrap();
        let (entries, problems, summary) = host.scan(&request(&root, scanner));
        assert_eq!(
            (entries.len(), problems.len(), summary.root),
            (0, 0, expected),
            "{scanner:?}"
        );
        assert_eq!(
            summary.location.ends_with(b"/dir"),
            expected == RootKind::Directory
        );
    }
}

#[rstest]
#[case::missing(b"gone", b"/gone", false)]
#[case::missing_below_a_link(b"to-dir/new/er/", b"/dir\n/new/er", false)]
#[case::link_to_a_link(b"again/new", b"/dir\n/new", false)]
#[case::file(b"file", b"/file", false)]
#[case::file_below_a_link(b"to-dir/x\n", b"/dir\n/x\n", false)]
#[case::dangling_link_below_a_link(b"to-dir/broken", b"/dir\n/broken", false)]
#[case::dots_that_lead_somewhere(b"to-dir/..//./new", b"/new", false)]
#[case::dots_behind_a_link(b"deep/../new", b"/dir\n/new", false)]
#[case::dots_that_lead_back(b"to-dir/gone/.././/file", b"/dir\n/file", true)]
#[case::dots_that_lead_far_back(b"to-dir/gone/../../new", b"/new", true)]
#[case::not_utf8(b"to-dir/\xff", b"/dir\n/\xff", false)]
fn root_is_told_where_it_lies_or_would_lie(
    #[case] written: &[u8],
    #[case] expected: &[u8],
    #[case] is_detour: bool,
) {
    for (scanner, host) in hosts() {
        host.write(b"file", "");
        host.write(b"dir\n/x\n", "");
        fs::create_dir(host.at(b"dir\n/below")).unwrap();
        symlink("dir\n", host.at(b"to-dir")).unwrap();
        symlink("to-dir", host.at(b"again")).unwrap();
        symlink("dir\n/below", host.at(b"deep")).unwrap();
        symlink("nowhere", host.at(b"dir\n/broken")).unwrap();
        let home = fs::canonicalize(host.home.path()).unwrap();
        let home = home.as_os_str().as_bytes();
        for above in [b"".as_slice(), &[home, b"/"].concat()] {
            let root = HostPath::parse(&[above, written].concat()).unwrap();
            let (_, problems, summary) = host.scan(&request(&root, scanner));
            assert_eq!(problems, [], "{scanner:?}");
            let found = String::from_utf8_lossy(&summary.location).into_owned();
            let expected = [home, expected].concat();
            assert_eq!(found, String::from_utf8_lossy(&expected), "{scanner:?}");
            assert_eq!(summary.is_detour, is_detour, "{scanner:?}");
        }
    }
}

/// Runs a script as somebody who is not allowed everything.
fn run_without_rights(host: &Host, script: &str) -> Vec<u8> {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return host.run(script);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.args(host.shell);
    command.env("HOME", host.home.path()).current_dir("/");
    if let Some(programs) = &host.programs {
        fs::set_permissions(programs.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", programs.path().display());
        command.env("PATH", path);
    }
    run(command, script)
}

#[test]
fn unreadable_directory_is_a_problem_and_the_rest_is_listed() {
    for (scanner, host) in hosts() {
        host.write(b"r/shut/x", "");
        host.write(b"r/open/x", "");
        let shut = host.at(b"r/shut");
        fs::set_permissions(&shut, fs::Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(host.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let scan = |root: &[u8]| {
            let root = HostPath::parse(root).unwrap();
            let script = scan_script(&request(&root, scanner), &mark());
            read(scanner, &run_without_rights(&host, &script))
        };
        let (entries, problems, _) = scan(b"r");
        let (_, _, summary) = scan(b"r/shut");
        fs::set_permissions(&shut, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(
            paths(&sorted(&entries)),
            ["open", "open/x", "shut"].map(path),
            "{scanner:?}"
        );
        let expected = ScanProblem::Unreadable {
            shown: "shut".to_owned(),
        };
        assert!(problems.contains(&expected), "{scanner:?} {problems:?}");
        assert_eq!(summary.root, RootKind::Unreadable, "{scanner:?}");
    }
}

#[test]
fn host_is_asked_once_what_it_lists_with() {
    let whole = Host::new();
    let found = parse_scanners(&mark(), &whole.run(&scanners_script(&mark())));
    assert_eq!(
        found,
        Some(Scanners {
            scanner: Some(Scanner::Find),
            sorts: true
        })
    );
    if let Some(small) = Host::busybox() {
        let found = parse_scanners(&mark(), &small.run(&scanners_script(&mark())));
        assert_eq!(
            found,
            Some(Scanners {
                scanner: Some(Scanner::FindStat),
                sorts: true
            })
        );
    }
    assert_eq!(parse_scanners(&mark(), b"RSMCP:other:scanner:find\n"), None);
}

#[test]
fn level_is_listed_without_looking_below() {
    for (scanner, host) in hosts() {
        plant(&host, b"root");
        let root = HostPath::parse(b"root").unwrap();
        let whole = sorted(&host.scan(&request(&root, scanner)).0);
        let mut level = request(&root, scanner);
        level.depth = ScanDepth::Level;
        let script = scan_script(&level, &mark());
        let output = host.run(&script);
        assert!(
            !output.windows(5).any(|word| word == b"inner"),
            "{scanner:?}"
        );
        let (entries, problems, _) = read(scanner, &output);
        let expected: Vec<Entry> = whole
            .into_iter()
            .filter(|entry| entry.path.parent().is_none())
            .collect();
        assert_eq!(sorted(&entries), expected, "{scanner:?}");
        assert_eq!(problems, [], "{scanner:?}");
    }
}

#[rstest]
#[case(b"root/-rf", b"-rf")]
#[case(b"~/root/new\nline\n", b"new\nline\n")]
#[case(b"root/\xff\xfe", b"\xff\xfe")]
#[case(b"root/dangling", b"dangling")]
#[case(b"root/to-file", b"to-file")]
#[case(b"root/pipe", b"pipe")]
fn lone_file_is_listed_when_that_is_wanted(#[case] path: &[u8], #[case] name: &[u8]) {
    for (scanner, host) in hosts() {
        plant(&host, b"root");
        let root = HostPath::parse(b"root").unwrap();
        let (whole, _, _) = host.scan(&request(&root, scanner));
        let expected = whole
            .into_iter()
            .find(|entry| entry.path.as_bytes() == name);
        let root = HostPath::parse(path).unwrap();
        let mut lone = request(&root, scanner);
        lone.lone_file = LoneFile::AsItIs;
        let (entries, problems, summary) = host.scan(&lone);
        assert_eq!(entries, [expected.unwrap()], "{scanner:?}");
        assert_eq!((problems.len(), summary.root), (0, RootKind::File));
    }
}

#[rstest]
#[case::file(b"root/-rf", Some(b"-rf".as_slice()))]
#[case::link(b"root/to-file", Some(b"-rf".as_slice()))]
#[case::pipe(b"root/pipe", Some(b"pipe".as_slice()))]
#[case::link_to_nothing(b"root/dangling", None)]
fn lone_file_is_listed_as_what_it_leads_to(#[case] path: &[u8], #[case] leads_to: Option<&[u8]>) {
    for (scanner, host) in hosts() {
        plant(&host, b"root");
        let root = HostPath::parse(b"root").unwrap();
        let (whole, _, _) = host.scan(&request(&root, scanner));
        let name = path.strip_prefix(b"root/").unwrap();
        let named = |name: &[u8]| whole.iter().find(|entry| entry.path.as_bytes() == name);
        let mut expected = named(leads_to.unwrap_or(name)).unwrap().clone();
        expected.path = RelPath::parse(name).unwrap();
        let root = HostPath::parse(path).unwrap();
        let mut lone = request(&root, scanner);
        lone.lone_file = LoneFile::Followed;
        let (entries, problems, summary) = host.scan(&lone);
        assert_eq!(entries, [expected], "{scanner:?}");
        assert_eq!((problems.len(), summary.root), (0, RootKind::File));
    }
}

#[test]
fn lone_link_in_a_circle_is_no_file() {
    for (scanner, host) in hosts() {
        plant(&host, b"root");
        let root = HostPath::parse(b"root/round").unwrap();
        let mut lone = request(&root, scanner);
        lone.lone_file = LoneFile::Followed;
        let (entries, _, summary) = host.scan(&lone);
        assert_eq!(summary.root, RootKind::File, "{scanner:?}");
        let is_link = |entry: &Entry| matches!(entry.kind, Kind::Link { .. });
        assert!(entries.iter().all(is_link), "{scanner:?} {entries:?}");
    }
}

#[test]
fn root_behind_a_directory_that_cannot_be_entered_is_not_missing() {
    for (scanner, host) in hosts() {
        host.write(b"shut/r/x", "");
        let shut = host.at(b"shut");
        fs::set_permissions(&shut, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(host.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let root = |path: &[u8]| {
            let root = HostPath::parse(path).unwrap();
            let script = scan_script(&request(&root, scanner), &mark());
            read(scanner, &run_without_rights(&host, &script)).2.root
        };
        let (behind, gone) = (root(b"shut/r/x"), root(b"gone/r/x"));
        fs::set_permissions(&shut, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(behind, RootKind::Unreadable, "{scanner:?}");
        assert_eq!(gone, RootKind::Missing, "{scanner:?}");
    }
}
