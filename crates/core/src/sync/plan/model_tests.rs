//! Random trees, planned and then carried out on a model of the target.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::ignore::Filter;
use super::super::samples::{directory, fifo, file, link, path};
use super::super::{Entry, EntryList, Kind, LinkEnd, RelPath};
use super::*;

type Tree = BTreeMap<RelPath, Entry>;

#[derive(Debug, Clone)]
enum Node {
    File(u64, i64),
    Link(bool),
    Fifo,
    Directory(Vec<(String, Node)>),
}

fn any_node() -> impl Strategy<Value = Node> {
    let leaf = prop_oneof![
        4 => (0_u64..3, 0_i64..3).prop_map(|(size, seconds)| Node::File(size, seconds)),
        1 => any::<bool>().prop_map(Node::Link),
        1 => Just(Node::Fifo),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        any_children(inner).prop_map(Node::Directory)
    })
}

fn any_children(node: impl Strategy<Value = Node>) -> impl Strategy<Value = Vec<(String, Node)>> {
    let name = prop::sample::select(vec!["a", "a-", "b", "keep", "skip"]).prop_map(str::to_owned);
    prop::collection::btree_map(name, node, 0..5)
        .prop_map(|children| children.into_iter().collect())
}

fn any_tree() -> impl Strategy<Value = Tree> {
    any_children(any_node()).prop_map(|children| {
        let mut tree = Tree::new();
        grow(&mut tree, "", &children);
        tree
    })
}

fn grow(tree: &mut Tree, above: &str, children: &[(String, Node)]) {
    for (name, node) in children {
        let at = if above.is_empty() {
            name.clone()
        } else {
            format!("{above}/{name}")
        };
        let entry = match node {
            Node::File(size, seconds) => file(&at, *size, *seconds),
            Node::Link(to_directory) => link(
                &at,
                "t",
                if *to_directory {
                    LinkEnd::Directory
                } else {
                    LinkEnd::Nothing
                },
            ),
            Node::Fifo => fifo(&at),
            Node::Directory(children) => {
                grow(tree, &at, children);
                directory(&at)
            }
        };
        tree.insert(path(&at), entry);
    }
}

fn actions(options: PlanOptions, filter: &Filter, source: &Tree, target: &Tree) -> Vec<Action> {
    let list = |tree: &Tree| {
        let mut list = EntryList::default();
        for entry in tree.values() {
            list.push(entry.clone()).unwrap();
        }
        list.sorted()
    };
    let (source, target) = (list(source), list(target));
    Planner::new(
        options,
        filter,
        source.iter(),
        target.iter(),
        std::iter::empty(),
    )
    .map(Result::unwrap)
    .collect()
}

fn children(tree: &Tree, directory: &RelPath) -> usize {
    tree.keys().filter(|path| path.is_below(directory)).count()
}

/// Carries an action out as a file system would, and fails where one would refuse.
fn carry_out(tree: &mut Tree, action: &Action) {
    let path = action.path();
    let put = |tree: &mut Tree, entry: &Entry, replaces: &Option<Entry>| {
        let parent = path.parent();
        let is_parent = parent.is_none_or(|parent| {
            tree.get(&parent)
                .is_some_and(|above| above.kind.is_directory())
        });
        assert!(is_parent, "no directory for {path:?}");
        assert_eq!(
            tree.get(path),
            replaces.as_ref(),
            "what gives way is what was seen"
        );
        assert_eq!(children(tree, path), 0, "{path:?} is not empty");
        tree.insert(path.clone(), entry.clone());
    };
    match action {
        Action::MakeDirectory { entry, replaces } | Action::SendLink { entry, replaces } => {
            put(tree, entry, replaces)
        }
        Action::SendFile {
            entry, replaces, ..
        } => put(tree, entry, replaces),
        Action::SetAttributes { entry, target } => {
            assert_eq!(tree.get(path), Some(target));
            tree.insert(path.clone(), entry.clone());
        }
        Action::Delete { target } => {
            assert_eq!(tree.remove(path).as_ref(), Some(target));
            assert_eq!(children(tree, path), 0, "{path:?} is not empty");
        }
        Action::CompareContent { .. }
        | Action::Keep { .. }
        | Action::Conflict { .. }
        | Action::Skip { .. } => {}
    }
}

fn is_like(one: &Entry, other: &Entry) -> bool {
    let is_same_kind = match (&one.kind, &other.kind) {
        (Kind::Link { target: one, .. }, Kind::Link { target: other, .. }) => one == other,
        (one, other) => one == other,
    };
    is_same_kind && (!one.kind.is_file() || one.stamp() == other.stamp())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn plan_makes_the_target_like_the_source_and_touches_nothing_excluded(
        source in any_tree(),
        target in any_tree(),
        delete_extras in any::<bool>(),
        patterns in prop::sample::select(vec![vec![], vec!["skip"], vec!["skip/"], vec!["a/", "!a/keep"], vec!["/b", "!b/a/*"]]),
    ) {
        let patterns: Vec<&[u8]> = patterns.iter().map(|text| text.as_bytes()).collect();
        let filter = Filter::new(None, &patterns).unwrap();
        let options = PlanOptions { delete_extras, ..PlanOptions::new(Direction::Up) };
        let mut result = target.clone();
        let plan = actions(options, &filter, &source, &target);
        for action in &plan {
            carry_out(&mut result, action);
        }
        let is_conflict = |path: &RelPath| plan.iter().any(|action| {
            matches!(action, Action::Conflict { .. }) && action.path() == path
        });
        let mut judge = filter.judge();
        for (path, entry) in &source {
            let is_included = judge.verdict(path, entry.kind.is_directory()).is_included();
            let is_special = matches!(entry.kind, Kind::Special(_));
            if is_included && !is_special && !is_conflict(path) {
                prop_assert!(result.get(path).is_some_and(|found| is_like(found, entry)), "{:?} of {:?}", path, plan);
            }
        }
        for (path, entry) in &target {
            let stays = !judge.verdict(path, entry.kind.is_directory()).is_included()
                || matches!(entry.kind, Kind::Special(_))
                || (!delete_extras && !source.contains_key(path) && !source.keys().any(|other| path.is_below(other) && !source[other].kind.is_directory()));
            if stays {
                prop_assert_eq!(result.get(path).map(|found| &found.kind), Some(&entry.kind), "{:?} of {:?}", path, plan);
            } else if delete_extras && !source.contains_key(path) && children(&result, path) == 0 && !is_special_above(&source, path) {
                prop_assert!(!result.contains_key(path), "{:?} is extra after {:?}", path, plan);
            }
        }
        // Done twice, there is nothing left to do but what was not possible.
        let again = actions(options, &filter, &source, &result);
        let work = |plan: &[Action]| plan.iter().filter(|action| {
            !matches!(action, Action::Keep { .. } | Action::Conflict { .. } | Action::Skip { .. })
        }).count();
        prop_assert_eq!(work(&again), 0, "{:?} after {:?}", again, plan);
    }
}

/// Whether something that is never sent has the place of a directory above the path.
fn is_special_above(source: &Tree, path: &RelPath) -> bool {
    source
        .iter()
        .any(|(other, entry)| path.is_below(other) && !entry.kind.is_directory())
}
