//! Puts walls around this process and all it will start. What is taken away never comes back.

use std::collections::BTreeMap;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, PathFdError,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use remote_sandbox_core::local::{Grant, Limits, Network};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Landlock that can tell which sockets in files may be reached.
const TELLS_SOCKETS: u32 = 9;

/// Landlock that keeps signals and abstract sockets in.
const SCOPES: u32 = 6;

/// Landlock that can allow moving files between folders.
const MOVES_FILES: u32 = 2;

/// Why a wall could not be put up; then nothing runs.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Landlock refused.
    #[error("Landlock refused")]
    Landlock(#[from] RulesetError),
    /// Landlock took the rules and did not put them up.
    #[error("Landlock did not take effect")]
    NotEnforced,
    /// A path of the plan cannot be opened.
    #[error("a path cannot be opened")]
    Path(#[from] PathFdError),
    /// The filter of system calls is wrong.
    #[error("the filter of system calls cannot be made")]
    Filter(#[from] seccompiler::BackendError),
    /// The kernel refused the filter.
    #[error("the filter of system calls was refused")]
    Refused(#[from] seccompiler::Error),
    /// A right could not be given up.
    #[error("a right cannot be given up")]
    Rights(#[from] rustix::io::Errno),
}

/// How much of Landlock this kernel has; 0 for nothing. Asking restricts nobody.
pub fn landlock_version() -> u32 {
    let versions = [
        (9, ABI::V9),
        (6, ABI::V6),
        (5, ABI::V5),
        (3, ABI::V3),
        (2, ABI::V2),
        (1, ABI::V1),
    ];
    let works = |abi: ABI| {
        let set = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(abi));
        let set = match set {
            Ok(set) if abi >= ABI::V6 => set.scope(Scope::from_all(abi)),
            set => set,
        };
        set.and_then(Ruleset::create).is_ok()
    };
    let found = versions.into_iter().find(|(_, abi)| works(*abi));
    found.map_or(0, |(version, _)| version)
}

/// Within bubblewrap: keeps signals and abstract sockets in, and lets this process read files only where
/// a grant says so, where the kernel can. Without grants it may read whatever it sees.
pub(super) fn keep_in(grants: &[Grant], version: u32) -> Result<(), ConfineError> {
    // Moving files between folders is refused to whoever does not ask for it; it must be asked for in
    // the same set, for one set refuses what another allows.
    let both = AccessFs::ReadFile | AccessFs::Refer;
    let keeps_reading = !grants.is_empty() && version >= MOVES_FILES;
    let mut set = Ruleset::default();
    if version >= SCOPES {
        set = set.scope(Scope::from_all(ABI::V6))?;
    }
    if keeps_reading {
        set = set.handle_access(both)?;
    } else if version < SCOPES {
        return Ok(());
    }
    let mut rules = set.create()?;
    for grant in grants.iter().filter(|_| keeps_reading) {
        let path = match grant {
            Grant::List(_) => continue,
            Grant::Read(path) | Grant::Write(path) | Grant::Device(path) => path,
        };
        let Ok(opened) = PathFd::new(path) else {
            continue;
        };
        let access = if path.is_dir() {
            both
        } else {
            AccessFs::ReadFile.into()
        };
        rules = rules.add_rule(PathBeneath::new(opened, access))?;
    }
    enforced(rules)
}

/// Lets this process do with files what the grants say and nothing else.
pub(super) fn keep_to_grants(grants: &[Grant], version: u32) -> Result<(), ConfineError> {
    let abi = if version >= TELLS_SOCKETS {
        ABI::V9
    } else {
        ABI::V6
    };
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?;
    for grant in grants {
        let (path, access): (_, BitFlags<AccessFs>) = match grant {
            Grant::Read(path) => (path, AccessFs::from_read(abi)),
            Grant::List(path) => (path, AccessFs::ReadDir.into()),
            Grant::Write(path) => (path, AccessFs::from_all(abi)),
            Grant::Device(path) => (
                path,
                AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
            ),
        };
        // What is not there any more cannot be reached either.
        let Ok(opened) = PathFd::new(path) else {
            continue;
        };
        let access = if path.is_dir() {
            access
        } else {
            access & AccessFs::from_file(abi)
        };
        rules = rules.add_rule(PathBeneath::new(opened, access))?;
    }
    enforced(rules)
}

/// Puts the rules up, and fails where the kernel did not.
fn enforced(rules: RulesetCreated) -> Result<(), ConfineError> {
    match rules.restrict_self()?.ruleset {
        RulesetStatus::NotEnforced => Err(ConfineError::NotEnforced),
        _ => Ok(()),
    }
}

/// Gives up every right that only root has.
pub(super) fn give_up_rights() -> Result<(), ConfineError> {
    rustix::thread::set_no_new_privs(true)?;
    let nothing = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, nothing)?;
    Ok(())
}

/// System calls that nothing in a sandbox needs and that reach past its walls, or widen the ground
/// on which the kernel can be attacked.
const NEVER: [libc::c_long; 46] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_io_uring_setup,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_quotactl,
    // Memory, queues and semaphores that belong to a user and not to a folder.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// The bit that marks calls of the third form that some kernels for 64-bit PCs know, and the numbers
/// that are different there: those of `ioctl`, `ptrace`, `kexec_load`, `process_vm_readv` and `_writev`.
#[cfg(target_arch = "x86_64")]
const OTHER_FORM: i64 = 0x4000_0000;
#[cfg(target_arch = "x86_64")]
const OTHER_NUMBERS: [i64; 5] = [514, 521, 528, 539, 540];

/// Refuses every call of another form than the usual one that would be judged in this one.
#[cfg(target_arch = "x86_64")]
fn refuse_other_form(rules: &mut BTreeMap<i64, Vec<SeccompRule>>) {
    let others = rules.keys().copied().chain(OTHER_NUMBERS);
    let others: Vec<i64> = others.map(|call| call | OTHER_FORM).collect();
    rules.extend(others.into_iter().map(|call| (call, Vec::new())));
}

#[cfg(not(target_arch = "x86_64"))]
fn refuse_other_form(_: &mut BTreeMap<i64, Vec<SeccompRule>>) {}

/// Refuses system calls that reach past Landlock: other processes, other namespaces, and sockets.
pub(super) fn filter_calls(network: Network, version: u32) -> Result<(), ConfineError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        NEVER.iter().map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_socket, families(network, version)?);
    rules.insert(libc::SYS_clone, vec![new_user_namespace(0)?]);
    rules.insert(libc::SYS_ioctl, vec![typing_for_others()?]);
    rules.insert(libc::SYS_prlimit64, vec![about_others(0)?]);
    rules.insert(libc::SYS_setpriority, vec![about_others(1)?]);
    rules.insert(libc::SYS_ioprio_set, vec![about_others(1)?]);
    for (call, argument) in CHANGES_OF_MODE {
        rules.insert(call, rights_of_another(argument)?);
    }
    refuse_other_form(&mut rules);
    // What a new process shares lies in memory where the filter cannot look; every library asks for
    // a clone of the old form then.
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let architecture = std::env::consts::ARCH.try_into()?;
    apply(SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        refused,
        architecture,
    )?)?;
    let mut rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    refuse_other_form(&mut rules);
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    apply(SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        unknown,
        architecture,
    )?)
}

fn apply(filter: SeccompFilter) -> Result<(), ConfineError> {
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)?;
    Ok(())
}

/// Within bubblewrap: refuses what no namespace keeps apart, the keys that the kernel holds for the user
/// and kinds of sockets that lead past a network namespace.
pub(super) fn filter_past_namespaces() -> Result<(), ConfineError> {
    let keys = [libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        keys.iter().map(|call| (*call, Vec::new())).collect();
    let allowed = [
        libc::AF_UNIX,
        libc::AF_INET,
        libc::AF_INET6,
        libc::AF_NETLINK,
    ];
    rules.insert(libc::SYS_socket, only(&allowed)?);
    refuse_other_form(&mut rules);
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let architecture = std::env::consts::ARCH.try_into()?;
    apply(SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        refused,
        architecture,
    )?)
}

/// The families of sockets that are left at the Landlock level.
fn families(network: Network, version: u32) -> Result<Vec<SeccompRule>, ConfineError> {
    let mut allowed = Vec::new();
    if network == Network::On {
        allowed.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
    }
    if version >= TELLS_SOCKETS {
        allowed.push(libc::AF_UNIX);
    }
    only(&allowed)
}

/// The calls that change the mode of a file, and the argument that holds it.
const CHANGES_OF_MODE: [(libc::c_long, u8); 4] = [
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(not(target_arch = "x86_64"))]
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
];

/// The newest of them; its number is the same everywhere.
const FCHMODAT2: libc::c_long = 452;

/// A mode by which whoever runs the file becomes its owner. Landlock does not guard modes, and for root
/// that would be a way out.
fn rights_of_another(argument: u8) -> Result<Vec<SeccompRule>, ConfineError> {
    let bits = [libc::S_ISUID, libc::S_ISGID].map(u64::from);
    let rules = bits.into_iter().map(|bit| {
        let has = SeccompCmpOp::MaskedEq(bit);
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, has, bit)?;
        Ok(SeccompRule::new(vec![condition])?)
    });
    rules.collect()
}

/// Rules that refuse all families of sockets but the allowed ones.
fn only(allowed: &[libc::c_int]) -> Result<Vec<SeccompRule>, ConfineError> {
    let other = |family: &libc::c_int| {
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *family as u64)
    };
    let conditions: Result<Vec<_>, _> = allowed.iter().map(other).collect();
    let conditions = conditions?;
    if conditions.is_empty() {
        // No rule at all means: refused whatever it is.
        return Ok(Vec::new());
    }
    Ok(vec![SeccompRule::new(conditions)?])
}

fn new_user_namespace(argument: u8) -> Result<SeccompRule, ConfineError> {
    let flag = libc::CLONE_NEWUSER as u64;
    let condition = SeccompCondition::new(
        argument,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::MaskedEq(flag),
        flag,
    )?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// Text that is put into a terminal as if somebody had typed it.
fn typing_for_others() -> Result<SeccompRule, ConfineError> {
    let condition =
        SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, libc::TIOCSTI)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// Limits and priorities of another process than the caller: one without any time left ends, as by a
/// signal. `argument` is the one that names the process.
fn about_others(argument: u8) -> Result<SeccompRule, ConfineError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// Bounds what each process may use up, for what follows; `groups` says that the kernel counts them
/// all together already, `own_users` that nobody else's processes count.
pub(super) fn bound(limits: &Limits, groups: bool, own_users: bool) -> Result<(), ConfineError> {
    let set = |resource, most: u64| {
        let found = rustix::process::getrlimit(resource);
        let most = found.maximum.map_or(most, |maximum| maximum.min(most));
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        rustix::process::setrlimit(resource, limit)
    };
    // A memory image may hold what nobody shall find later.
    set(Resource::Core, 0)?;
    if let Some(most) = limits.processes.filter(|_| !groups && own_users) {
        set(Resource::Nproc, most)?;
    }
    if let Some(most) = limits.memory_mb.filter(|_| !groups) {
        set(Resource::Data, most.saturating_mul(1 << 20))?;
    }
    Ok(())
}
