//! f48: random histories of jobs, with crashes, cuts and races, against a model of what must hold.
//!
//! Plain `proptest` with shrinking, and not a state machine of it: that wants a reference that foretells each state,
//! while here a killed process or a cut link may have done its work or not, and the model can only learn which.
//! A crash is the end of a real process, because whoever looks later believes in nothing but dead processes.

mod model;
mod processes;
mod steps;
mod world;

use std::time::Instant;

use proptest::test_runner::{
    Config, FileFailurePersistence, RngSeed, TestCaseError, TestError, TestRunner,
};

use super::site::{Kind, Site};
use steps::{Step, history};
use world::World;

/// Histories that failed once, as `proptest` writes them; they are played first.
const KEPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/proptest-regressions/histories.txt"
);

/// How often a failed history is made shorter; each try is a whole history.
const MOST_SHRINKS: u32 = 60;

/// Where histories are played at the same time; most of their time is waiting.
const LANES: [Kind; 5] = [Kind::Bare, Kind::Tmux, Kind::Bare, Kind::Local, Kind::Tmux];

fn number_of(variable: &str, usual: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Plays a history and says what did not hold.
async fn play(site: &Site, steps: &[Step]) -> Result<(), String> {
    let mut world = World::new(site).await;
    for (place, step) in steps.iter().enumerate() {
        world.take(step).await;
        let found = world.check();
        found.map_err(|wrong| world.account(place, step, &wrong))?;
    }
    let settled = world.settle().await;
    settled.map_err(|wrong| world.account(steps.len(), &"the end", &wrong))
}

/// Plays so many histories of one seed on one host.
fn play_some(seed: u64, count: u64, kind: Kind) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let site = Site::start(kind);
    let mut runner = TestRunner::new(Config {
        cases: u32::try_from(count).unwrap(),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(KEPT))),
        max_shrink_iters: MOST_SHRINKS,
        rng_seed: RngSeed::Fixed(seed),
        ..Config::default()
    });
    let result = runner.run(&history(), |steps| {
        let played = runtime.block_on(play(&site, &steps));
        played.map_err(TestCaseError::fail)
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, steps)) => panic!("seed {seed}, {kind:?}: {why}\n{steps:#?}"),
        Err(error) => panic!("seed {seed}, {kind:?}: {error}"),
    }
}

fn play_all(seed: u64, count: u64) {
    println!("HISTORY_SEED={seed} HISTORY_COUNT={count}");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let lanes = LANES.len() as u64;
        let some = move |lane: u64| count / lanes + u64::from(lane < count % lanes);
        let lanes: Vec<_> = (0..)
            .zip(LANES)
            .map(|(lane, kind)| scope.spawn(move || play_some(seed + lane, some(lane), kind)))
            .collect();
        let failed: Vec<_> = lanes
            .into_iter()
            .filter_map(|lane| lane.join().err())
            .collect();
        if let Some(first) = failed.into_iter().next() {
            println!("HISTORY_SEED={seed} HISTORY_COUNT={count} plays them again");
            std::panic::resume_unwind(first);
        }
    });
    println!("{count} histories in {:?}", begun.elapsed());
}

#[test]
fn f48_random_histories_lose_no_job_run_none_twice_and_change_no_end() {
    play_all(number_of("HISTORY_SEED", 1), 15);
}

#[test]
#[ignore = "minutes: a thousand random histories"]
fn f48_a_thousand_random_histories_lose_no_job_run_none_twice_and_change_no_end() {
    let seed = number_of("HISTORY_SEED", u64::from(std::process::id()));
    play_all(seed, number_of("HISTORY_COUNT", 1000));
}
