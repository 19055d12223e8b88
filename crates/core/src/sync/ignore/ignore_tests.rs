use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use rstest::rstest;

use super::super::samples::path;
use super::*;

fn filter(patterns: &[&str]) -> Filter {
    let patterns: Vec<&[u8]> = patterns.iter().map(|text| text.as_bytes()).collect();
    Filter::new(None, &patterns).unwrap()
}

/// A path as it stands in a table: a slash at its end makes it a directory.
fn verdict(filter: &Filter, text: &str) -> Verdict {
    let name = text.trim_end_matches('/');
    filter.judge().verdict(&path(name), text.ends_with('/'))
}

fn words(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn reference_page_says_what_happens() {
    let page = include_str!("../../../../../docs/reference/excludes.md");
    let (_, examples) = page.split_once("## Examples").unwrap();
    let (examples, _) = examples.split_once("\n## ").unwrap();
    let rows: Vec<&str> = examples
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    assert!(rows.len() > 20);
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [patterns, excluded, kept] = cells[..] else {
            panic!("{row}");
        };
        let filter = filter(&words(patterns));
        for text in words(excluded) {
            assert!(!verdict(&filter, text).is_included(), "{text} in {row}");
        }
        for text in words(kept) {
            assert!(verdict(&filter, text).is_included(), "{text} in {row}");
        }
    }
    for built_in in BUILT_IN {
        assert!(page.contains(&format!("`{built_in}`")));
    }
}

#[rstest]
#[case(&["d/"], "d/", Verdict::Excluded)]
#[case(&["d/", "!d/keep.txt"], "d/", Verdict::Opened)]
#[case(&["d/", "!d/keep.txt"], "d/e/", Verdict::Excluded)]
#[case(&["d/", "!d/**/keep.txt"], "d/e/f/", Verdict::Opened)]
#[case(&["d/", "!keep.txt"], "d/", Verdict::Excluded)]
#[case(&["!d/keep.txt", "d/"], "d/", Verdict::Excluded)]
#[case(&["!node_modules/mine/"], "node_modules/", Verdict::Opened)]
#[case(&["!node_modules/mine/"], "node_modules/mine/deep/", Verdict::Included)]
#[case(&["!node_modules/mine/"], "x/node_modules/", Verdict::Excluded)]
fn directory_is_walked_only_when_something_in_it_may_be_taken_back(
    #[case] patterns: &[&str],
    #[case] text: &str,
    #[case] expected: Verdict,
) {
    assert_eq!(verdict(&filter(patterns), text), expected);
}

#[rstest]
#[case::class(None, &["a", "[x"], "the exclude pattern `[x` has a `[` without its `]`; write `\\[` for the character itself")]
#[case::empty(None, &[""], "the exclude pattern `` is empty")]
#[case::only_slash(None, &["/"], "the exclude pattern `/` is empty")]
#[case::dots(None, &["../x"], "the exclude pattern `../x` has `.` or `..` in it, which no entry below the root is called")]
#[case::slashes(None, &["a//b"], "the exclude pattern `a//b` has two slashes in a row")]
#[case::nul(None, &["a\0"], "the exclude pattern `a\\x00` has a NUL byte in it")]
#[case::line(Some("# c\n\na\\"), &[], "line 3 of the exclude file, `a\\`, ends in a backslash that escapes nothing")]
fn pattern_that_cannot_be_read_is_named(
    #[case] file: Option<&str>,
    #[case] patterns: &[&str],
    #[case] expected: &str,
) {
    let patterns: Vec<&[u8]> = patterns.iter().map(|text| text.as_bytes()).collect();
    let error = Filter::new(file.map(str::as_bytes), &patterns).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn values_come_after_the_file_and_only_the_file_has_comments() {
    let file = b"\xef\xbb\xbf*.txt\r\n# no\n\n!a.txt  \nend\\ \n";
    let filter = Filter::new(Some(file), &[b"a.txt", b"#x", b"\xff*"]).unwrap();
    for excluded in ["a.txt", "b.txt", "#x", "end "] {
        assert_eq!(verdict(&filter, excluded), Verdict::Excluded, "{excluded}");
    }
    assert_eq!(verdict(&filter, "# no"), Verdict::Included);
    let not_utf8 = super::super::RelPath::parse(b"d/\xffz").unwrap();
    assert_eq!(filter.judge().verdict(&not_utf8, false), Verdict::Excluded);
}

#[test]
fn gitignore_speaks_for_its_directory_and_is_overruled_by_a_pattern() {
    let mut filter = filter(&["!dist", "!out/keep.js"]);
    filter
        .add_gitignore(None, b"dist/\nout/\n*.tmp\n[broken\n!*/\n")
        .unwrap();
    filter
        .add_gitignore(Some(&path("d")), b"!a.tmp\n/only\n")
        .unwrap();
    for (text, expected) in [
        ("dist/", Verdict::Included),
        ("dist/x", Verdict::Included),
        ("b.tmp", Verdict::Excluded),
        ("d/a.tmp", Verdict::Included),
        ("d/b.tmp", Verdict::Excluded),
        ("d/only", Verdict::Excluded),
        ("d/e/only", Verdict::Included),
        ("only", Verdict::Included),
        // `!*/` takes back `out` for git, and git knows nothing of what is built in.
        ("out/x", Verdict::Included),
        ("node_modules/", Verdict::Excluded),
        (".git/", Verdict::Excluded),
    ] {
        assert_eq!(verdict(&filter, text), expected, "{text}");
    }
}

#[test]
fn pattern_takes_back_from_within_what_gitignore_leaves_out() {
    let mut filter = filter(&["!out/keep.js"]);
    filter
        .add_gitignore(None, b"out/\n!out/other.js\n")
        .unwrap();
    assert_eq!(verdict(&filter, "out/"), Verdict::Opened);
    assert_eq!(verdict(&filter, "out/keep.js"), Verdict::Included);
    assert_eq!(verdict(&filter, "out/other.js"), Verdict::Excluded);
}

#[rstest]
#[case(&[], &[], &[".git", ".idea", ".vscode", "__pycache__", "node_modules"], &[])]
#[case(&["data/", "/big", "a/b"], &[], &[".git", ".idea", ".vscode", "__pycache__", "data", "node_modules"], &["a/b", "big"])]
#[case(&["!node_modules/mine", "!.git", "!*scode", "!?idea"], &[], &["__pycache__"], &[])]
#[case(&["!x/**/y", "!keep"], &[], &[], &[])]
#[case(&["!*/node_modules/keep"], &[], &[".git", ".idea", ".vscode", "__pycache__", "node_modules"], &[])]
#[case(&["!out/x"], &["target/", "out", "/a/b", "*.o", "kept", "!kept"], &[".git", ".idea", ".vscode", "__pycache__", "node_modules"], &["target"])]
fn prunes_are_the_literals_that_nothing_takes_back(
    #[case] patterns: &[&str],
    #[case] gitignore: &[&str],
    #[case] names: &[&str],
    #[case] paths: &[&str],
) {
    let mut filter = filter(patterns);
    filter
        .add_gitignore(None, gitignore.join("\n").as_bytes())
        .unwrap();
    let expected: Vec<Prune> = names
        .iter()
        .map(|name| Prune::Name(name.as_bytes().into()))
        .chain(paths.iter().map(|text| Prune::Path(path(text))))
        .collect();
    assert_eq!(filter.prunes(), expected);
}

/// The rules of the reference page once more, slowly and without any of the real code.
mod naive {
    pub(super) struct Line {
        pub(super) includes: bool,
        directories_only: bool,
        names: Vec<String>,
        place: bool,
    }

    pub(super) fn line(text: &str) -> Line {
        let (includes, text) = text
            .strip_prefix('!')
            .map_or((false, text), |rest| (true, rest));
        let directories_only = text.ends_with('/');
        let body = text.trim_end_matches('/');
        let is_path = body.contains('/');
        let body = body.trim_start_matches('/');
        let mut names: Vec<String> = body.split('/').map(str::to_owned).collect();
        if !is_path {
            if names[0] == "**" {
                names[0] = "*".to_owned();
            }
            names.insert(0, "**".to_owned());
        }
        let place = is_path && !names[0].contains('*');
        Line {
            includes,
            directories_only,
            names,
            place,
        }
    }

    fn name_matches(pattern: &[char], name: &[char]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some(('*', rest)) => (0..=name.len()).any(|at| name_matches(rest, &name[at..])),
            Some((wanted, rest)) => name.first() == Some(wanted) && name_matches(rest, &name[1..]),
        }
    }

    fn matches(pattern: &[String], names: &[&str]) -> bool {
        match pattern.split_first() {
            None => names.is_empty(),
            Some((first, [])) if first == "**" => !names.is_empty(),
            Some((first, rest)) if first == "**" => {
                (0..=names.len()).any(|at| matches(rest, &names[at..]))
            }
            Some((first, rest)) => names.split_first().is_some_and(|(name, others)| {
                let (pattern, name): (Vec<char>, Vec<char>) =
                    (first.chars().collect(), name.chars().collect());
                name_matches(&pattern, &name) && matches(rest, others)
            }),
        }
    }

    /// Whether the entry is left out; what lies above it is asked first.
    pub(super) fn excluded_by(lines: &[Line], names: &[&str], is_directory: bool) -> Option<usize> {
        let above = match names {
            [] | [_] => None,
            [above @ .., _] => excluded_by(lines, above, true),
        };
        let mut result = above;
        for (index, line) in lines.iter().enumerate() {
            let speaks = matches(&line.names, names) && (is_directory || !line.directories_only);
            let is_early = above.is_some_and(|above| index <= above);
            if !speaks || is_early || (above.is_some() && line.includes && !line.place) {
                continue;
            }
            result = if line.includes { None } else { Some(index) };
        }
        result
    }
}

/// Every path of a small tree: each name at each depth, as a directory and as a file.
fn tree() -> Vec<(String, bool)> {
    let names = ["a", "b", "ab"];
    let mut all: Vec<String> = names.map(str::to_owned).to_vec();
    let mut last = all.clone();
    for _ in 0..2 {
        last = last
            .iter()
            .flat_map(|above| names.map(|name| format!("{above}/{name}")))
            .collect();
        all.extend(last.clone());
    }
    let both = |path: String| [(path.clone(), true), (path, false)];
    all.into_iter().flat_map(both).collect()
}

fn any_pattern() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "ab", "*", "a*", "*b", "**"]);
    let names = prop::collection::vec(name, 1..4);
    let flag =
        |text: &'static str| prop::option::of(Just(text)).prop_map(Option::unwrap_or_default);
    (flag("!"), flag("/"), names, flag("/")).prop_map(|(takes_back, top, names, end)| {
        format!("{takes_back}{top}{}{end}", names.join("/"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn f67_filter_agrees_with_a_naive_walker(patterns in prop::collection::vec(any_pattern(), 0..6)) {
        let texts: Vec<&str> = patterns.iter().map(String::as_str).collect();
        let filter = filter(&texts);
        let lines: Vec<naive::Line> = texts.iter().map(|text| naive::line(text)).collect();
        let mut judge = filter.judge();
        let mut included = BTreeSet::new();
        for (text, is_directory) in tree() {
            let names: Vec<&str> = text.split('/').collect();
            let expected = naive::excluded_by(&lines, &names, is_directory).is_none();
            let found = judge.verdict(&path(&text), is_directory);
            prop_assert_eq!(found.is_included(), expected, "{} with {:?}", text, patterns);
            if expected {
                included.insert(text);
            }
        }
        // What need not be walked holds nothing, and neither does what a host is told to pass over.
        let prunes = filter.prunes();
        for (text, _) in tree() {
            let below = format!("{text}/");
            let holds = included.iter().any(|other| other.starts_with(&below));
            let found = judge.verdict(&path(&text), true);
            prop_assert!(found != Verdict::Excluded || !holds, "{} with {:?}", text, patterns);
            let name = text.rsplit('/').next().unwrap();
            let is_pruned = prunes.iter().any(|prune| match prune {
                Prune::Name(pruned) => **pruned == *name.as_bytes(),
                Prune::Path(pruned) => *pruned == path(&text),
            });
            prop_assert!(!is_pruned || (found == Verdict::Excluded && !holds), "{} with {:?}", text, patterns);
        }
    }
}

/// What git says about each path of the tree, in a repository with this one `.gitignore`.
fn ignored_by_git(repository: &std::path::Path, gitignore: &str, paths: &[String]) -> Vec<bool> {
    std::fs::write(repository.join(".gitignore"), gitignore).unwrap();
    let mut child = Command::new("git")
        .args([
            "-c",
            "core.excludesFile=/dev/null",
            "check-ignore",
            "--no-index",
            "-z",
            "-v",
            "-n",
            "--stdin",
        ])
        .current_dir(repository)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input: String = paths.iter().map(|path| format!("{path}\0")).collect();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap().stdout;
    let fields: Vec<&[u8]> = output.split(|byte| *byte == 0).collect();
    // Source, line, pattern and path; a `!` pattern is reported, too.
    fields
        .chunks_exact(4)
        .map(|fields| !fields[2].is_empty() && !fields[2].starts_with(b"!"))
        .collect()
}

#[test]
fn gitignore_is_read_as_git_reads_it() {
    let repository = tempfile::tempdir().unwrap();
    let made = Command::new("git")
        .args(["init", "-q"])
        .current_dir(repository.path())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        println!("skipped: this machine has no git");
        return;
    }
    // Whether a path is a directory is what git finds on disk.
    let mut paths = Vec::new();
    for top in ["a", "b", "ab"] {
        for middle in ["a", "b", "ab"] {
            let folder = format!("{top}/{middle}");
            std::fs::create_dir_all(repository.path().join(&folder)).unwrap();
            for name in ["a", "b", "ab"] {
                let file = format!("{folder}/{name}");
                std::fs::write(repository.path().join(&file), "").unwrap();
                paths.push(file);
            }
            paths.push(folder);
        }
        paths.push(top.to_owned());
    }
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(60));
    runner
        .run(&prop::collection::vec(any_pattern(), 1..5), |patterns| {
            let text = patterns.join("\n");
            let expected = ignored_by_git(repository.path(), &text, &paths);
            prop_assert_eq!(expected.len(), paths.len());
            let mut filter = Filter::default();
            filter.add_gitignore(None, text.as_bytes()).unwrap();
            let mut judge = filter.judge();
            for (text, expected) in paths.iter().zip(expected) {
                let is_directory = text.split('/').count() < 3;
                let found = !judge.verdict(&path(text), is_directory).is_included();
                prop_assert_eq!(found, expected, "{} with {:?}", text, &patterns);
            }
            Ok(())
        })
        .unwrap();
}
#[test]
fn prunes_fit_into_a_script() {
    let many = |length: usize| -> Vec<Prune> {
        let rules: Vec<String> = (0..900)
            .map(|number| format!("/{number:0length$}/"))
            .collect();
        let rules: Vec<&[u8]> = rules.iter().map(|rule| rule.as_bytes()).collect();
        Filter::new(None, &rules).unwrap().prunes()
    };
    assert_eq!(many(5).len(), 500);
    let bytes = |prunes: &[Prune]| -> usize {
        let lengths = prunes.iter().map(|prune| match prune {
            Prune::Name(name) => name.len(),
            Prune::Path(path) => path.as_bytes().len(),
        });
        lengths.sum()
    };
    let long = many(200);
    assert!(
        !long.is_empty() && bytes(&long) <= 8 * 1024,
        "{}",
        bytes(&long)
    );
}
