//! What a plan comes to, before any of it is carried out.

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sync::plan::{Action, PlanError, Summary, Word};
use remote_sandbox_core::sync::safety::{DeleteRequest, RootPlace, allow_deletes};
use remote_sandbox_core::sync::{Entry, RelPath};

use super::request::Way;
use super::sides::Sides;
use super::standing::Standing;

/// Entries of the target, in the order of a plan.
pub(super) type Entries<'a> = Box<dyn Iterator<Item = Result<Entry, Failure>> + Send + 'a>;

/// A plan in numbers, and what has to be known before it is carried out.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) summary: Summary,
    /// Directories of the target that give way to something else.
    replaced: Tops,
    something_gives_way: bool,
    /// Set when all of the target stays as it is.
    all_kept: Option<AllKept>,
    source_files: u64,
    target_files: u64,
}

/// A plan that leaves everything as it is.
#[derive(Debug)]
struct AllKept {
    /// Files and links in it.
    files: u64,
    /// The name of the set, where what is remembered of it can stay as it is.
    standing: Option<Option<String>>,
}

impl Decision {
    /// Goes through the plan once.
    pub(super) fn of(sides: &Sides) -> Result<Decision, Failure> {
        let mut plan = sides.plan();
        let mut summary = Summary::default();
        let mut replaced = Vec::new();
        let mut something_gives_way = false;
        let mut all_kept = Some((0, Standing::new(sides)));
        for action in plan.by_ref() {
            let action = action.map_err(|error| out_of_order(&error))?;
            summary.add(&action);
            all_kept = match (&action, all_kept) {
                (Action::Keep { entry }, Some((files, standing))) => Some((
                    files + u64::from(!entry.kind.is_directory()),
                    standing.and_then(|standing| standing.with(entry)),
                )),
                _ => None,
            };
            if let Some(target) = gives_way(&action) {
                something_gives_way = true;
                if target.kind.is_directory() {
                    replaced.push(target.path.clone());
                }
            }
        }
        let seen = plan.seen();
        Ok(Decision {
            summary,
            replaced: Tops::new(replaced),
            something_gives_way,
            all_kept: all_kept.map(|(files, standing)| AllKept {
                files,
                standing: standing.map(Standing::revision),
            }),
            source_files: seen.source_files,
            target_files: seen.target_files,
        })
    }

    /// How many files and links there are, when nothing at all has to be done.
    pub(super) fn all_kept(&self) -> Option<u64> {
        self.all_kept.as_ref().map(|kept| kept.files)
    }

    /// The name of the set, where there is nothing to be done and nothing to be remembered anew.
    pub(super) fn standing(&self) -> Option<&Option<String>> {
        self.all_kept.as_ref()?.standing.as_ref()
    }

    /// What has to be removed before anything is sent: what stands where something of another kind comes, and what is
    /// in it, content before directories.
    pub(super) fn giving_way<'a>(&'a self, sides: &'a Sides) -> Entries<'a> {
        let plan = self.something_gives_way.then(|| sides.plan());
        let entries = plan.into_iter().flatten().filter_map(|action| {
            let action = match action {
                Ok(action) => action,
                Err(error) => return Some(Err(out_of_order(&error))),
            };
            match action {
                Action::Delete { target } => self.is_cleared(&target.path).then_some(Ok(target)),
                action => gives_way(&action).cloned().map(Ok),
            }
        });
        Box::new(entries)
    }

    /// What is deleted because the source does not have it, content before directories.
    pub(super) fn deletions<'a>(&'a self, sides: &'a Sides) -> Entries<'a> {
        let plan = (self.summary.deleted() > 0).then(|| sides.plan());
        let entries = plan
            .into_iter()
            .flatten()
            .filter_map(|action| match action {
                Ok(Action::Delete { target }) => {
                    (!self.is_cleared(&target.path)).then_some(Ok(target))
                }
                Ok(_) => None,
                Err(error) => Some(Err(out_of_order(&error))),
            });
        Box::new(entries)
    }

    /// Whether a path is removed with a directory that gives way.
    pub(super) fn is_cleared(&self, path: &RelPath) -> bool {
        self.replaced.hold(path)
    }

    /// Files and links to be sent.
    pub(super) fn files(&self) -> u64 {
        let count = |word| self.summary.of(word).count;
        count(Word::SendFile) + count(Word::SendLink) + count(Word::CompareContent)
    }

    /// Their bytes.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = |word| self.summary.of(word).bytes;
        bytes(Word::SendFile) + bytes(Word::CompareContent)
    }

    /// Bytes of what is certainly sent.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.summary.of(Word::SendFile).bytes
    }

    /// Whether what would be deleted may be.
    pub(super) fn allow_deletes(&self, sides: &Sides) -> Result<(), Failure> {
        if !sides.request.delete_extras && self.summary.deleted() == 0 {
            return Ok(());
        }
        let here = sides.local_root.as_path().as_os_str().as_encoded_bytes();
        let there = sides.far_location();
        let home = sides.rules.home();
        let local = RootPlace {
            location: here,
            home: home.map(|home| home.as_path().as_os_str().as_encoded_bytes()),
        };
        let remote = RootPlace {
            location: &there,
            home: Some(&sides.far_home),
        };
        let (source, target) = match sides.request.way {
            Way::Up => (local, remote),
            Way::Down => (remote, local),
        };
        let request = DeleteRequest {
            source: Some(source),
            target,
            source_files: self.source_files,
            target_files: self.target_files,
            scan_problems: sides.problem_count,
            confirmed: sides.request.confirm_delete,
        };
        allow_deletes(&request, &self.summary).map_err(|refusal| {
            let first = self.summary.first_deleted();
            let first: Vec<&str> = first
                .iter()
                .take(5)
                .map(|path| path.text.as_str())
                .collect();
            let mut text = refusal.to_string();
            if !first.is_empty() {
                text = format!("{text} (first: {})", first.join(", "));
            }
            Failure::new(Code::DeleteRefused, text).hint(refusal.hint())
        })
    }
}

/// Directories, sorted, none of them within another.
#[derive(Debug)]
struct Tops(Vec<RelPath>);

impl Tops {
    fn new(mut directories: Vec<RelPath>) -> Self {
        directories.sort_unstable();
        directories.dedup_by(|later, kept| later == kept || later.is_below(kept));
        Tops(directories)
    }

    /// Whether a path lies in one of them. In the order of paths that one is the last before it: only what lies in a
    /// directory comes between the two.
    fn hold(&self, path: &RelPath) -> bool {
        let before = self.0.partition_point(|top| top < path);
        let nearest = before.checked_sub(1).and_then(|at| self.0.get(at));
        nearest.is_some_and(|top| path.is_below(top))
    }
}

/// What an action removes first, because a rename does not replace it.
fn gives_way(action: &Action) -> Option<&Entry> {
    match action {
        Action::SendFile {
            replaces: Some(target),
            ..
        }
        | Action::SendLink {
            replaces: Some(target),
            ..
        } => Some(target).filter(|target| target.kind.is_directory()),
        Action::MakeDirectory {
            replaces: Some(target),
            ..
        } => Some(target),
        _ => None,
    }
}

/// A side that contradicts itself.
pub(super) fn out_of_order(error: &PlanError) -> Failure {
    Failure::new(Code::RemoteRefused, error.to_string())
        .hint("nothing was changed; look at the folder with list_remote_files")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn tops_hold_what_lies_in_them_at_any_depth_and_nothing_beside() {
        let tops = Tops::new(["m/n", "a", "m", "a", "a-b", "z/y"].map(path).to_vec());
        for inside in ["a/x", "a/x/y", "a-b/c", "m/n", "m/n/o", "m/z", "z/y/x"] {
            assert!(tops.hold(&path(inside)), "{inside}");
        }
        for outside in [
            "a", "a.b", "a-", "ab/x", "m", "l", "n/o", "z", "z/x", "z/yy",
        ] {
            assert!(!tops.hold(&path(outside)), "{outside}");
        }
        assert!(!Tops::new(Vec::new()).hold(&path("a")));
    }

    #[test]
    fn tops_answer_for_a_hundred_thousand_paths_without_looking_at_all_each_time() {
        let name = |number: u32| path(&format!("d{number:06}"));
        let tops = Tops::new((0..100_000).map(name).collect());
        let began = Instant::now();
        let held = (0..100_000).filter(|number| tops.hold(&name(*number).join(b"x").unwrap()));
        assert_eq!(held.count(), 100_000);
        // One by one it would be five thousand million comparisons.
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}
