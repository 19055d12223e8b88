//! What must hold, whatever happened: what was acknowledged is there, nothing runs twice, and what is over stays so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::watchdog::stored::{open, rows};

/// An attempt by the name of its job and its number.
pub(super) type Attempt = (String, u32);

/// The store as it is now.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// The jobs with how often each may be resumed by the watchdog, the oldest first.
    pub(super) jobs: Vec<(String, u32)>,
    /// The state of each attempt, and whether it is over.
    pub(super) attempts: BTreeMap<Attempt, (Value, bool)>,
    /// Job, status and phase of each watch.
    pub(super) watches: Vec<(String, String, Value)>,
    /// Type and number of the events of each job.
    pub(super) events: BTreeMap<(String, String), usize>,
}

impl Stored {
    /// Reads a store, which may not be there yet.
    pub(super) fn read(path: &Path) -> Self {
        let mut stored = Stored::default();
        let Some(connection) = open(path) else {
            return stored;
        };
        let rows = |query: &str| rows(&connection, query);
        for row in rows("SELECT id, coalesce(name, '0') FROM jobs ORDER BY created, id") {
            stored.jobs.push((row[0].clone(), row[1].parse().unwrap()));
        }
        let attempts = "SELECT job, cast(number AS text), state, cast(ended IS NOT NULL AS text) FROM attempts";
        for row in rows(attempts) {
            let state = serde_json::from_str(&row[2]).unwrap();
            let key = (row[0].clone(), row[1].parse().unwrap());
            stored.attempts.insert(key, (state, row[3] == "1"));
        }
        for row in rows("SELECT coalesce(job, ''), status, history FROM watches") {
            let history: Value = serde_json::from_str(&row[2]).unwrap();
            let phase = history["phase"].clone();
            stored.watches.push((row[0].clone(), row[1].clone(), phase));
        }
        for row in rows("SELECT w.job, e.type FROM events e JOIN watches w ON w.id = e.watch") {
            let key = (row[0].clone(), row[1].clone());
            *stored.events.entry(key).or_default() += 1;
        }
        stored
    }

    /// The last attempt of a job: number, state and whether it is over.
    pub(super) fn last(&self, job: &str) -> Option<(u32, &Value, bool)> {
        let of_job = self.attempts.iter().filter(|((one, _), _)| one == job);
        let ((_, number), (state, over)) = of_job.max_by_key(|((_, number), _)| *number)?;
        Some((*number, state, *over))
    }

    /// Whether the watchdog has nothing left to do about a job that is gone.
    pub(super) fn is_settled(&self) -> bool {
        let is_open = |(_, status, phase): &(String, String, Value)| {
            let word = phase["phase"].as_str().unwrap_or_default();
            let is_due = word == "interrupted" && !phase["due"].is_null();
            status == "active" && (is_due || word == "resuming")
        };
        let is_starting = |(state, _): &(Value, bool)| state["state"] == "starting";
        !self.watches.iter().any(is_open) && !self.attempts.values().any(is_starting)
    }
}

/// Has so much time pass for the watchdog that every look and every resume is due.
pub(super) fn pass_time(path: &Path) {
    let Some(connection) = open(path) else {
        return;
    };
    let change = "UPDATE watches SET next_check = 0 WHERE status = 'active';
        UPDATE watches SET history = json_set(history, '$.phase.due', 0)
        WHERE status = 'active' AND json_extract(history, '$.phase.due') IS NOT NULL";
    connection.execute_batch(change).unwrap();
}

/// What the processes of the jobs themselves wrote down.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// How often each attempt began.
    pub(super) begun: BTreeMap<Attempt, usize>,
    /// Those that came to their end.
    pub(super) ended: BTreeSet<Attempt>,
    /// Those that found another one alive.
    pub(super) overlapping: Vec<String>,
}

impl Marks {
    pub(super) fn read(path: &Path) -> Self {
        let mut marks = Marks::default();
        let text = std::fs::read_to_string(path).unwrap_or_default();
        for line in text.lines() {
            let (word, name) = line.split_once(' ').unwrap();
            match (word, attempt(name)) {
                ("begin", Some(attempt)) => *marks.begun.entry(attempt).or_default() += 1,
                ("end", Some(attempt)) => {
                    marks.ended.insert(attempt);
                }
                _ => marks.overlapping.push(line.to_owned()),
            }
        }
        marks
    }
}

/// The attempt that `REMOTE_SANDBOX_JOB` names.
pub(super) fn attempt(name: &str) -> Option<Attempt> {
    let (job, number) = name.rsplit_once('.')?;
    Some((job.to_owned(), number.parse().ok()?))
}

/// What is known of the jobs of a history besides what is stored.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// The jobs whose start was answered.
    pub(super) acknowledged: BTreeSet<String>,
    /// How often somebody asked for a resume by hand and may have got it.
    pub(super) by_hand: BTreeMap<String, usize>,
    /// The attempts that are over, with their last word.
    over: BTreeMap<Attempt, Value>,
}

macro_rules! must {
    ($holds:expr, $($words:tt)*) => {
        if !$holds {
            return Err(format!($($words)*));
        }
    };
}

impl Model {
    /// Checks what holds at every time. `living` are the attempts of which a process lives.
    pub(super) fn check(
        &mut self,
        stored: &Stored,
        marks: &Marks,
        living: &BTreeSet<Attempt>,
    ) -> Result<(), String> {
        let is_stored = |job: &String| stored.jobs.iter().any(|(one, _)| one == job);
        for job in &self.acknowledged {
            must!(
                is_stored(job),
                "I1: the acknowledged job {job} is not stored"
            );
        }
        must!(
            marks.overlapping.is_empty(),
            "I2: two at once: {:?}",
            marks.overlapping
        );
        for (attempt, times) in &marks.begun {
            must!(*times == 1, "I2: {attempt:?} began {times} times");
            must!(
                stored.attempts.contains_key(attempt),
                "{attempt:?} is not written down"
            );
        }
        let mut jobs: Vec<_> = living.iter().map(|(job, _)| job).collect();
        jobs.dedup();
        must!(
            jobs.len() == living.len(),
            "I2: more than one lives: {living:?}"
        );
        for (attempt, (state, over)) in &stored.attempts {
            if let Some(before) = self.over.get(attempt) {
                let same = *over && before == state;
                must!(same, "I3: {attempt:?} was {before} and is {state}");
            } else if *over {
                self.over.insert(attempt.clone(), state.clone());
            }
        }
        for attempt in self.over.keys() {
            let is_there = stored.attempts.contains_key(attempt);
            must!(
                is_there,
                "I3: {attempt:?} was over and is not stored any more"
            );
        }
        self.check_limits(stored, marks)
    }

    fn check_limits(&self, stored: &Stored, marks: &Marks) -> Result<(), String> {
        for (job, resumes) in &stored.jobs {
            let by_hand = self.by_hand.get(job).copied().unwrap_or(0);
            let most = *resumes as usize + by_hand;
            let begun = marks.begun.keys().filter(|(one, _)| one == job).count();
            must!(
                begun <= 1 + most,
                "{job} began {begun} times, {most} resumes were allowed"
            );
            let told = |word: &str| stored.events.get(&(job.clone(), word.to_owned())).copied();
            let resumed = told("resume_started").unwrap_or(0);
            must!(
                resumed <= most,
                "{job}: {resumed} resumes were told of {most}"
            );
            for word in ["completed", "exhausted"] {
                let times = told(word).unwrap_or(0);
                must!(times <= 1 + by_hand, "{job}: {word} was told {times} times");
            }
        }
        Ok(())
    }

    /// Checks what holds when the link is good and everybody has had time.
    pub(super) fn check_end(
        &self,
        stored: &Stored,
        marks: &Marks,
        living: &BTreeSet<Attempt>,
        listed: &[Value],
    ) -> Result<(), String> {
        let mut ids: Vec<_> = listed
            .iter()
            .filter_map(|task| task["task_id"].as_str())
            .collect();
        ids.sort_unstable();
        let mut jobs: Vec<_> = stored.jobs.iter().map(|(job, _)| job.as_str()).collect();
        jobs.sort_unstable();
        must!(ids == jobs, "I1: listed are {ids:?} of {jobs:?}");
        must!(stored.is_settled(), "something is left undone: {stored:#?}");
        for job in jobs {
            let Some((number, state, over)) = stored.last(job) else {
                return Err(format!("{job} has no attempt"));
            };
            let alive = living.iter().find(|(one, _)| one == job);
            match alive {
                Some((_, lives)) => {
                    let is_known = *lives == number && state["state"] == "running";
                    must!(is_known, "{job}.{lives} lives, {number} is {state}");
                }
                None => must!(over, "{job}.{number} lives no more and is {state}"),
            }
        }
        for (attempt, (state, _)) in &stored.attempts {
            let begun = marks.begun.contains_key(attempt);
            match state["state"].as_str().unwrap_or_default() {
                "not_started" => must!(!begun, "{attempt:?} began, and is {state}"),
                "exited" => {
                    let ended = begun && marks.ended.contains(attempt) && state["code"] == 7;
                    must!(ended, "{attempt:?} did not end, and is {state}");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// A job that was resumed once, as often as it may be, and runs.
    struct Seen {
        model: Model,
        stored: Stored,
        marks: Marks,
        living: BTreeSet<Attempt>,
    }

    fn named(number: u32) -> Attempt {
        ("job_a".to_owned(), number)
    }

    fn seen() -> Seen {
        let lost = (json!({"state": "lost"}), true);
        let running = (json!({"state": "running"}), false);
        let mut seen = Seen {
            model: Model::default(),
            stored: Stored {
                jobs: vec![("job_a".to_owned(), 1)],
                attempts: BTreeMap::from([(named(1), lost), (named(2), running)]),
                ..Stored::default()
            },
            marks: Marks {
                begun: BTreeMap::from([(named(1), 1), (named(2), 1)]),
                ..Marks::default()
            },
            living: BTreeSet::from([named(2)]),
        };
        seen.model.acknowledged.insert("job_a".to_owned());
        let listed = [json!({"task_id": "job_a"})];
        let Seen {
            model,
            stored,
            marks,
            living,
        } = &mut seen;
        assert_eq!(model.check(stored, marks, living), Ok(()));
        assert_eq!(model.check_end(stored, marks, living, &listed), Ok(()));
        seen
    }

    #[rstest]
    #[case::lost_job(|seen: &mut Seen| seen.stored.jobs.clear(), "I1")]
    #[case::two_at_once(|seen: &mut Seen| seen.marks.overlapping.push("overlap x".to_owned()), "I2")]
    #[case::begun_twice(|seen: &mut Seen| { seen.marks.begun.insert(named(2), 2); }, "I2")]
    #[case::two_living(|seen: &mut Seen| { seen.living.insert(named(1)); }, "I2")]
    #[case::unwritten(|seen: &mut Seen| { seen.marks.begun.insert(named(3), 1); }, "not written down")]
    #[case::changed_end(|seen: &mut Seen| { seen.stored.attempts.insert(named(1), (json!({"state": "stopped"}), true)); }, "I3")]
    #[case::undone_end(|seen: &mut Seen| { seen.stored.attempts.remove(&named(1)); seen.marks.begun.remove(&named(1)); }, "I3")]
    #[case::too_many(|seen: &mut Seen| seen.stored.jobs[0].1 = 0, "began 2 times")]
    fn model_notices_what_must_not_be(#[case] breach: fn(&mut Seen), #[case] words: &str) {
        let mut seen = seen();
        breach(&mut seen);
        let found = seen.model.check(&seen.stored, &seen.marks, &seen.living);
        let found = found.expect_err("a breach");
        assert!(found.contains(words), "{found}");
    }

    #[rstest]
    #[case::unlisted(|seen: &mut Seen| seen.stored.jobs.push(("job_b".to_owned(), 0)), "I1")]
    #[case::dead_and_running(|seen: &mut Seen| seen.living.clear(), "lives no more")]
    #[case::alive_and_over(|seen: &mut Seen| { seen.stored.attempts.insert(named(2), (json!({"state": "lost"}), true)); }, "lives, 2 is")]
    #[case::begun_and_not_started(|seen: &mut Seen| { seen.stored.attempts.insert(named(1), (json!({"state": "not_started"}), true)); }, "began, and is")]
    #[case::exited_without_an_end(|seen: &mut Seen| { seen.stored.attempts.insert(named(1), (json!({"state": "exited", "code": 7}), true)); }, "did not end")]
    #[case::undone(|seen: &mut Seen| { seen.stored.attempts.insert(named(2), (json!({"state": "starting"}), false)); }, "undone")]
    fn model_notices_an_end_that_is_not_true(#[case] breach: fn(&mut Seen), #[case] words: &str) {
        let mut seen = seen();
        breach(&mut seen);
        let listed = [json!({"task_id": "job_a"})];
        let Seen {
            model,
            stored,
            marks,
            living,
        } = &seen;
        let found = model.check_end(stored, marks, living, &listed);
        let found = found.expect_err("a breach");
        assert!(found.contains(words), "{found}");
    }
}
