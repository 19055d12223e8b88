//! Two hundred random syncs with random cuts, kills and full disks; both trees are then what a model says.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::proxy::Direction;
use serde_json::{Value, json};

use super::obstacles::Disk;
use super::stage::{Random, Stage, Way, contents};

/// What a tree should hold.
type Model = BTreeMap<String, Vec<u8>>;

/// What goes wrong with a sync.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    None,
    Cut,
    KillServer,
    KillWorker,
    FullDisk,
}

fn number_of(variable: &str, usual: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn name(random: &mut Random) -> String {
    let folder = ["", "a/", "a/b/", "c d/"][random.below(4) as usize];
    format!("{folder}f{}", random.below(25))
}

/// Changes a tree and the model of it in the same way.
fn edit(random: &mut Random, root: &Path, model: &mut Model) {
    for _ in 0..=random.below(12) {
        let name = name(random);
        let path = root.join(&name);
        if random.below(4) == 0 {
            if model.remove(&name).is_some() {
                fs::remove_file(&path).unwrap();
            }
            continue;
        }
        let size = match random.below(12) {
            0 => 9_000_000,
            1 => 0,
            2..6 => 100_000,
            _ => 300,
        };
        let length = usize::try_from(size + random.below(50)).unwrap();
        let content = random.bytes(length);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &content).unwrap();
        model.insert(name, content);
    }
}

fn as_model(root: &Path) -> Model {
    let found = contents(root).into_iter();
    found
        .map(|(name, content)| (name.to_str().unwrap().to_owned(), content))
        .collect()
}

fn assert_is(root: &Path, model: &Model, round: u64) {
    let found = as_model(root);
    let names = |model: &Model| model.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(model), "round {round}");
    for (name, content) in &found {
        assert!(model.get(name) == Some(content), "round {round}: {name}");
    }
}

/// Nothing but what was there before or comes with the sync.
fn assert_old_or_new(root: &Path, old: &Model, new: &Model, round: u64) {
    for (name, content) in as_model(root) {
        let is_known = old.get(&name) == Some(&content) || new.get(&name) == Some(&content);
        assert!(is_known, "round {round}: {name} is neither old nor new");
    }
}

async fn trouble(stage: &mut Stage, random: &mut Random, way: Way, trouble: Trouble) {
    let more = match way {
        Way::Up => json!({}),
        Way::Down => json!({"overwrite": true}),
    };
    match trouble {
        Trouble::None => {}
        Trouble::Cut => {
            let direction = match way {
                Way::Up => Direction::ToServer,
                Way::Down => Direction::ToClient,
            };
            stage
                .proxy
                .cut_after(1 + random.below(4_000_000), direction);
            to_its_end(stage, way, more).await;
            stage.proxy.cut_after(u64::MAX, direction);
        }
        Trouble::KillServer => {
            stage.begin(way, more).await;
            tokio::time::sleep(Duration::from_millis(random.below(400))).await;
            stage.restart().await;
        }
        Trouble::KillWorker => {
            let reply = stage.call(way, more).await;
            tokio::time::sleep(Duration::from_millis(random.below(400))).await;
            if let Some(pid) = reply.json["pid"].as_u64() {
                process::kill_and_wait(&[u32::try_from(pid).unwrap()]);
            }
        }
        Trouble::FullDisk => {
            let ballast = stage.target(way).join(".ballast-of-the-test");
            let room = 1 + random.below(400_000);
            fill(&ballast, room);
            to_its_end(stage, way, more).await;
            fs::remove_file(&ballast).unwrap();
        }
    }
}

/// Syncs and waits for the end, whatever that is; a further call would only find one that still works.
async fn to_its_end(stage: &Stage, way: Way, more: Value) {
    let reply = stage.call(way, more).await;
    if let Some(task) = reply.json["task_id"].as_u64() {
        stage.wait(task).await;
    }
}

/// Leaves about so many bytes on the disk of a file.
fn fill(ballast: &Path, room: u64) {
    let folder = ballast.parent().unwrap();
    let found = rustix::fs::statvfs(folder).unwrap();
    let free = found.f_bavail * found.f_frsize;
    let _ = fs::write(
        ballast,
        vec![1; usize::try_from(free.saturating_sub(room)).unwrap()],
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "root: full disks; minutes: two hundred random syncs"]
async fn two_hundred_random_syncs_leave_both_trees_as_the_model_says() {
    let seed = number_of("SYNC_SEED", u64::from(std::process::id()));
    let rounds = number_of("SYNC_ROUNDS", 200);
    println!("SYNC_SEED={seed} SYNC_ROUNDS={rounds}");
    let mut random = Random::new(seed);
    let mut calls = Stage::with_large_calls().await;
    let mut workers = Stage::in_background().await;
    let mut disks = Vec::new();
    for stage in [&calls, &workers] {
        for root in [&stage.here, &stage.there] {
            let Some(disk) = Disk::mount(root, 700_000_000) else {
                return;
            };
            disks.push(disk);
        }
    }
    let mut models = [Model::new(), Model::new()];
    for round in 0..rounds {
        let number = random.below(2) as usize;
        let stage = if number == 0 {
            &mut calls
        } else {
            &mut workers
        };
        let way = [Way::Up, Way::Down][random.below(2) as usize];
        let old = models[number].clone();
        edit(&mut random, stage.source(way), &mut models[number]);
        let new = &models[number];
        let kind = match (random.below(6), number) {
            (0 | 1, _) => Trouble::Cut,
            (2, 0) => Trouble::KillServer,
            (2 | 3, 1) => Trouble::KillWorker,
            (4, _) => Trouble::FullDisk,
            _ => Trouble::None,
        };
        println!("round {round}: {way:?} {kind:?} in {number}");
        trouble(stage, &mut random, way, kind).await;
        assert_old_or_new(stage.target(way), &old, new, round);
        settle(stage, way, round).await;
        assert_is(stage.source(way), new, round);
        assert_is(stage.target(way), new, round);
        assert_eq!(
            super::stage::unfinished(stage.target(way)),
            Vec::<std::path::PathBuf>::new(),
            "round {round}"
        );
    }
    calls.assert_same();
    workers.assert_same();
}

/// Syncs until it is done, as a user would; deletions are agreed to.
async fn settle(stage: &Stage, way: Way, round: u64) {
    let mut more = json!({"delete_extras": true});
    if way == Way::Down {
        more["overwrite"] = json!(true);
    }
    let mut dry = more.clone();
    dry["dry_run"] = json!(true);
    let plan = stage.call(way, dry).await;
    more["confirm_delete"] = plan.json["deletes"].clone();
    for attempt in 0.. {
        let reply = stage.call(way, more.clone()).await;
        let end = match reply.json["task_id"].as_u64() {
            Some(task) => stage.wait(task).await,
            None => reply.json.clone(),
        };
        let is_done = !reply.is_error && end["error"].is_null();
        if is_done {
            let result = if end["result"].is_object() {
                &end["result"]
            } else {
                &end
            };
            assert_eq!(result["problem_count"], 0, "round {round}: {end}");
            return;
        }
        assert!(attempt < 3, "round {round}: {} {end}", reply.text);
    }
}
