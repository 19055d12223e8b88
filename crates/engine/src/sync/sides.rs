//! The two sides of a sync, looked through at the same time.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::path;
use remote_sandbox_core::sync::plan::Planner;
use remote_sandbox_core::sync::receive::new_root_mode;
use remote_sandbox_core::sync::roots::{CleanPath, LocalRoots};
use remote_sandbox_core::sync::scan::{
    HostPath, LoneFile, RootKind, ScanDepth, ScanProblem, ScanRequest, Scanner, SortedBy,
};
use remote_sandbox_core::sync::{Entry, Filter, RelPath, WrittenPath};

use sha2::{Digest, Sha256};

use super::dirlinks::look_behind;
use super::far::Far;
use super::far_scan::{FarTree, scan};
use super::gitignores;
use super::local_side::{LocalSide, look_here, rules_at_top};
use super::lone::Lone;
use super::pairs::{Pair, Recalled};
use super::refusals::{
    file_here, file_there, missing_here, missing_there, unreadable_here, unreadable_there,
};
use super::request::{SyncRequest, Way};
use super::roots::{LocalPaths, Resolved};
use super::rules;
use crate::beneath::Tree;
use crate::listing::Listing;
use crate::sandbox::Sandbox;

/// The folder for entries that do not fit into memory, in the state folder.
pub(super) const SPOOL: &str = "spool";

/// The plan of a sync, as a stream of actions.
pub(super) type Plan<'a> =
    Planner<'a, crate::listing::Reading<'a>, crate::listing::Reading<'a>, Recalled>;

/// What both sides hold.
pub(super) struct Sides {
    pub(super) request: SyncRequest,
    pub(super) sandbox: Arc<dyn Sandbox>,
    pub(super) scanner: Scanner,
    pub(super) filter: Filter,
    pub(super) rules: LocalRoots,
    /// Places below the directory here that no sync touches.
    pub(super) avoid: Vec<CleanPath>,
    /// The directory here.
    pub(super) local_root: CleanPath,
    /// The same, open; none when it has to be made.
    pub(super) tree: Option<Tree>,
    pub(super) local: Listing,
    pub(super) far: Listing,
    /// The directory there.
    pub(super) far_root: HostPath,
    pub(super) far_home: Vec<u8>,
    pub(super) far_device: Option<u64>,
    /// The permissions of the root there, where it is known.
    pub(super) far_mode: Option<u32>,
    pub(super) far_mounts: Vec<RelPath>,
    /// Links there that were looked behind.
    pub(super) far_links: Vec<RelPath>,
    /// What earlier syncs there left unfinished.
    pub(super) far_leftovers: Vec<Entry>,
    /// The same of this machine.
    pub(super) local_leftovers: Vec<RelPath>,
    /// Whether there is a directory there.
    pub(super) far_exists: bool,
    /// A single file: its name here and its name there.
    pub(super) lone: Option<Lone>,
    pub(super) problems: Vec<(String, String)>,
    pub(super) problem_count: u64,
    pub(super) state: PathBuf,
}

/// What has to be known before anything is looked at.
pub(super) struct Setting<'a> {
    pub(super) sandbox: Arc<dyn Sandbox>,
    pub(super) scanner: Scanner,
    pub(super) paths: &'a LocalPaths,
    pub(super) state: &'a Path,
    /// Whether nothing may be changed by looking.
    pub(super) only_looks: bool,
}

impl Sides {
    /// Looks through both sides.
    pub(super) async fn look(
        setting: &Setting<'_>,
        request: &SyncRequest,
    ) -> Result<Sides, Failure> {
        let local = setting.paths.resolve(&request.local_path)?;
        let remote = far_path(setting.sandbox.as_ref(), &request.remote_path)?;
        let is_lone_up = request.way == Way::Up && local.kind == RootKind::File;
        match (request.way, local.kind) {
            (Way::Up, RootKind::Missing) => return Err(missing_here(&local)),
            (_, RootKind::Unreadable) => return Err(unreadable_here(&local)),
            _ => {}
        }
        if is_lone_up {
            return Sides::look_at_file_here(setting, request, &local, &remote).await;
        }
        let filter = rules::filter(request, setting.paths)?;
        let cancelled = Arc::new(AtomicBool::new(false));
        let _ending = SetOnDrop(cancelled.clone());
        let prunes = rules_at_top(request, &local, filter.clone())?.prunes();
        let here = look_here(setting, request, &local, filter, cancelled);
        let spool = setting.state.join(SPOOL);
        let follow_links = request.follow_links && request.way == Way::Down;
        let scanner = match setting.scanner {
            // Its `find` goes round in circles.
            Scanner::FindStat if follow_links && setting.sandbox.has_conversations() => {
                Scanner::Files
            }
            scanner => scanner,
        };
        let scan_request = ScanRequest {
            root: &remote,
            scanner,
            prunes: &prunes,
            follow_links,
            sorted_by: SortedBy::Reader,
            depth: ScanDepth::Tree,
            lone_file: match request.way {
                Way::Up => LoneFile::Unlisted,
                Way::Down => LoneFile::Followed,
            },
        };
        let there = scan(setting.sandbox.as_ref(), &scan_request, &spool);
        let (here, there) = tokio::try_join!(here, there)?;
        let mut sides = Sides::of_trees(setting, request, &local, &remote, here, there)?;
        if request.way == Way::Up && request.keep_dirlinks {
            look_behind(&mut sides).await?;
        }
        sides.with_far_gitignores().await
    }

    fn of_trees(
        setting: &Setting<'_>,
        request: &SyncRequest,
        local: &Resolved,
        remote: &HostPath,
        here: LocalSide,
        there: FarTree,
    ) -> Result<Sides, Failure> {
        let sandbox = setting.sandbox.as_ref();
        match (request.way, there.summary.root) {
            (_, RootKind::Unreadable) => return Err(unreadable_there(sandbox, request)),
            (Way::Down, RootKind::Missing) => return Err(missing_there(sandbox, request)),
            (Way::Down, RootKind::File) => {
                return Sides::of_file_there(setting, request, local, remote, there);
            }
            (Way::Up, RootKind::File) => return Err(file_there(sandbox, request)),
            _ => {}
        }
        if request.way == Way::Down && local.kind == RootKind::File {
            return Err(file_here(local));
        }
        let far_root = there.place(remote);
        let mut sides = Sides::new(setting, request, local.path.clone(), far_root);
        sides.take_far(&there);
        sides.avoid.clone_from(&local.allowed.avoid);
        sides.filter = here.filter;
        sides.tree = here.tree;
        sides.local = here.entries;
        sides.local_leftovers = here.temporaries;
        sides.note(&here.problems, here.problem_count);
        sides.far = there.entries;
        Ok(sides)
    }

    pub(super) fn new(
        setting: &Setting<'_>,
        request: &SyncRequest,
        local_root: CleanPath,
        far_root: HostPath,
    ) -> Sides {
        Sides {
            request: request.clone(),
            sandbox: setting.sandbox.clone(),
            scanner: setting.scanner,
            filter: Filter::default(),
            rules: setting.paths.rules().clone(),
            avoid: Vec::new(),
            local_root,
            tree: None,
            local: none(),
            far: none(),
            far_root,
            far_home: Vec::new(),
            far_device: None,
            far_mode: None,
            far_mounts: Vec::new(),
            far_links: Vec::new(),
            far_leftovers: Vec::new(),
            local_leftovers: Vec::new(),
            far_exists: false,
            lone: None,
            problems: Vec::new(),
            problem_count: 0,
            state: setting.state.to_owned(),
        }
    }

    /// Takes what the scan there said; from then on the path of the root is a whole one.
    pub(super) fn take_far(&mut self, there: &FarTree) {
        let summary = &there.summary;
        self.far_home.clone_from(&summary.home);
        self.far_device = summary.device;
        self.far_mode = summary.mode;
        self.far_mounts.clone_from(&summary.mounts);
        self.far_leftovers.clone_from(&summary.temporaries);
        self.far_exists = summary.root == RootKind::Directory;
        // Not every program begins in the same directory.
        if let Ok(absolute) = HostPath::parse(&self.far_location()) {
            self.far_root = absolute;
        }
        self.note(&there.problems, there.problem_count);
    }

    fn note(&mut self, problems: &[ScanProblem], count: u64) {
        self.problem_count += count;
        let named = problems.iter();
        self.problems
            .extend(named.map(|problem| (problem.path(), Failure::chain(problem))));
    }

    /// The `.gitignore` files of a source that is not on this machine.
    async fn with_far_gitignores(mut self) -> Result<Sides, Failure> {
        if self.request.way == Way::Down && self.request.use_gitignore && self.lone.is_none() {
            let mut filter = std::mem::take(&mut self.filter);
            gitignores::collect(&self.far_side(), &self.far, &mut filter).await?;
            self.filter = filter;
        }
        Ok(self)
    }

    /// The other side as a place to work on.
    pub(super) fn far_side(&self) -> Far<'_> {
        let is_new = self.request.way == Way::Up && !self.far_exists && self.lone.is_none();
        let source = self.tree.as_ref().filter(|_| is_new);
        Far {
            sandbox: self.sandbox.as_ref(),
            root: self.far_root.clone(),
            scanner: self.scanner,
            spool: self.state.join(SPOOL),
            links: self.far_links.clone(),
            new_mode: source.and_then(Tree::mode).map(new_root_mode),
        }
    }

    /// Whether a sync may write everywhere in the tree here.
    pub(super) fn avoids_nothing(&self) -> bool {
        self.avoid.is_empty()
    }

    /// Whether a path of the tree here lies where no sync writes.
    pub(super) fn is_avoided(&self, path: &RelPath) -> bool {
        if self.avoid.is_empty() {
            return false;
        }
        let name = std::ffi::OsStr::from_bytes(path.as_bytes());
        let whole = self.local_root.as_path().join(name);
        let holds = |place: &CleanPath| whole.starts_with(place.as_path());
        self.avoid.iter().any(holds)
    }

    /// Whether a scan has named this path as a problem.
    pub(super) fn is_told(&self, path: &RelPath) -> bool {
        let shown = path.shown().text;
        self.problems.iter().any(|(told, _)| *told == shown)
    }

    /// The plan, from its beginning.
    pub(super) fn plan(&self) -> Plan<'_> {
        let (source, target) = match self.request.way {
            Way::Up => (&self.local, &self.far),
            Way::Down => (&self.far, &self.local),
        };
        let options = self.request.plan_options();
        let base = self.pair().recall();
        Planner::new(options, &self.filter, source.iter(), target.iter(), base)
    }

    /// What is remembered of the two.
    pub(super) fn pair(&self) -> Pair {
        let (state, sandbox) = (&self.state, &self.request.sandbox);
        let (here, there) = (self.local_root.as_path(), self.far_location());
        match &self.lone {
            // What the tree holds is remembered by one name for both sides, and this file has two.
            Some(lone) if lone.here != lone.there => {
                let here = here.join(std::ffi::OsStr::from_bytes(lone.here.as_bytes()));
                let there = path::inside(&there, lone.there.as_bytes());
                let called = lone.called(self.request.way);
                Pair::of_file(state, sandbox, &here, &there, called.clone())
            }
            _ => Pair::new(state, sandbox, here, &there),
        }
    }

    /// The absolute path of the root there, as far as it is known.
    pub(super) fn far_location(&self) -> Vec<u8> {
        let mut rest = self.far_root.as_bytes();
        while let Some(shorter) = rest
            .strip_suffix(b"/")
            .filter(|shorter| !shorter.is_empty())
        {
            rest = shorter;
        }
        if rest.starts_with(b"/") {
            return rest.to_vec();
        }
        while let Some(shorter) = rest.strip_prefix(b"./") {
            rest = shorter;
        }
        match rest {
            b"" | b"." => self.far_home.clone(),
            rest => path::inside(&self.far_home, rest),
        }
    }

    /// What a file that can be continued has in its name: this installation and this pair. Whoever has both holds the
    /// lock of the pair, so two syncs never write into one such file at the same time.
    pub(super) fn owner(&self) -> Result<Vec<u8>, Failure> {
        let mut owner = super::token::installation(&self.state)?;
        owner.extend_from_slice(self.pair().name().as_bytes());
        Ok(owner)
    }

    /// The mark of everything that this sync writes. Its first half is the same for each sync of this installation to
    /// this target, so that the next one finds what was left; the second half is drawn by lot, for what an
    /// earlier one still writes must never meet what this one does.
    pub(super) fn token(&self) -> Result<RunToken, Failure> {
        let mut hasher = Sha256::new();
        hasher.update(super::token::installation(&self.state)?);
        let target = match self.request.way {
            Way::Up => self.far_location(),
            Way::Down => self
                .local_root
                .as_path()
                .as_os_str()
                .as_encoded_bytes()
                .to_vec(),
        };
        for part in [self.request.sandbox.as_bytes(), &target] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        let mut bytes = [0; 16];
        let lot = uuid::Uuid::now_v7().into_bytes();
        let halves = hasher
            .finalize()
            .into_iter()
            .take(8)
            .chain(lot.into_iter().skip(8));
        for (byte, half) in bytes.iter_mut().zip(halves) {
            *byte = half;
        }
        Ok(RunToken::from_uuid_bytes(bytes))
    }
}

/// Sets a flag when it goes.
struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) fn none() -> Listing {
    Listing::default()
}

pub(super) fn far_path(sandbox: &dyn Sandbox, written: &WrittenPath) -> Result<HostPath, Failure> {
    let workdir = sandbox.surroundings().workdir.as_deref();
    HostPath::parse_from(workdir, written.as_bytes()).map_err(|error| {
        Failure::new(Code::InvalidParams, error.to_string())
            .hint("paths are absolute, ~/x, or relative to the home or the sandbox's workdir")
    })
}
