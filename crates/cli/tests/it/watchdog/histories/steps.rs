//! What can happen in a history.

use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop_oneof};
use proptest::sample::select;

/// What goes wrong while a process does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    None,
    /// It ends itself at this place.
    Crash(&'static str),
    /// It is killed after so many milliseconds.
    Kill(u64),
    /// The link is cut after so many bytes to the host.
    CutThere(u64),
    /// The link is cut after so many bytes from the host.
    CutBack(u64),
}

/// Something that happens. Jobs are named by a number that is taken modulo those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A job is asked for that the watchdog may resume so often.
    Start { resumes: u32, trouble: Trouble },
    /// A job is to be ended.
    Stop { job: usize, trouble: Trouble },
    /// All processes of a job are killed and nobody writes down how.
    Die { job: usize },
    /// Only the process that waits for the command is killed.
    Orphan { job: usize },
    /// The command of a job ends by itself.
    End { job: usize },
    /// The host is booted again.
    Reboot,
    /// The watchdog looks at everything.
    Tick { trouble: Trouble },
    /// Two watchdogs look at the same time.
    TwoTicks,
    /// Somebody resumes a job by hand.
    Resume { job: usize, trouble: Trouble },
    /// Somebody resumes a job by hand while the watchdog looks.
    Race { job: usize, pause_ms: u64 },
    /// Somebody asks how all jobs stand.
    List,
    /// The host cannot be reached from now on.
    LinkDown,
    /// The host can be reached again.
    LinkUp,
    /// The server is killed.
    KillServer,
}

const START_SEAMS: &[&str] = &[
    "job_unrecorded",
    "job_recorded",
    "job_launched",
    "job_unanswered",
];

const TICK_SEAMS: &[&str] = &[
    "resume_decided",
    "resume_recorded",
    "resume_launched",
    "resume_noted",
    "event_written",
];

const RESUME_SEAMS: &[&str] = &["resume_launched", "resume_noted"];

fn trouble(seams: &'static [&'static str]) -> BoxedStrategy<Trouble> {
    prop_oneof![
        4 => Just(Trouble::None),
        3 => select(seams).prop_map(Trouble::Crash),
        2 => (0..900_u64).prop_map(Trouble::Kill),
        // A login takes about four thousand bytes, a start about ten thousand more.
        2 => (1..30_000_u64).prop_map(Trouble::CutThere),
        1 => (1..8_000_u64).prop_map(Trouble::CutBack),
    ]
    .boxed()
}

fn start() -> BoxedStrategy<Step> {
    (0..3_u32, trouble(START_SEAMS))
        .prop_map(|(resumes, trouble)| Step::Start { resumes, trouble })
        .boxed()
}

fn step() -> BoxedStrategy<Step> {
    let job = || 0..3_usize;
    let stop =
        prop_oneof![3 => Just(Trouble::None), 1 => (1..9000_u64).prop_map(Trouble::CutThere)];
    prop_oneof![
        4 => start(),
        2 => (job(), stop).prop_map(|(job, trouble)| Step::Stop { job, trouble }),
        6 => job().prop_map(|job| Step::Die { job }),
        1 => job().prop_map(|job| Step::Orphan { job }),
        2 => job().prop_map(|job| Step::End { job }),
        1 => Just(Step::Reboot),
        8 => trouble(TICK_SEAMS).prop_map(|trouble| Step::Tick { trouble }),
        1 => Just(Step::TwoTicks),
        3 => (job(), trouble(RESUME_SEAMS)).prop_map(|(job, trouble)| Step::Resume { job, trouble }),
        2 => (job(), 0..300_u64).prop_map(|(job, pause_ms)| Step::Race { job, pause_ms }),
        2 => Just(Step::List),
        1 => Just(Step::LinkDown),
        2 => Just(Step::LinkUp),
        1 => Just(Step::KillServer),
    ]
    .boxed()
}

/// A job or two, then anything.
pub(super) fn history() -> BoxedStrategy<Vec<Step>> {
    let first = |resumes| Step::Start {
        resumes,
        trouble: Trouble::None,
    };
    (
        0..3_u32,
        any::<bool>(),
        proptest::collection::vec(step(), 2..9),
    )
        .prop_map(move |(resumes, is_two, rest)| {
            let mut steps = vec![first(resumes)];
            steps.extend(is_two.then(|| first(1)));
            steps.extend(rest);
            steps
        })
        .boxed()
}
