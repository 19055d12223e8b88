//! The script that removes what jobs which are over have left on their host.

use std::fmt::Write as _;

use super::JobId;
use super::script::{COMMON, bare, marked};
use crate::ids::RunToken;

const PRUNE: &str = include_str!("prune.sh");

/// Most jobs that one script removes.
pub const MOST_PRUNED: usize = 200;

/// Builds the script; it removes the folders of these jobs where nothing of them lives, and the claims of all jobs that
/// are gone. Logs stay.
pub fn prune_script(jobs: &[JobId], mark: &RunToken) -> String {
    let mut script = String::with_capacity(4096 + jobs.len() * 48);
    let _ = writeln!(script, "{{\n_rm={mark}");
    script.push_str(&bare(COMMON));
    script.push_str(&bare(PRUNE));
    for job in jobs.iter().take(MOST_PRUNED) {
        let _ = writeln!(script, "prune {job}");
    }
    script.push_str("sweep_claims\nexit 0\n}\n");
    script
}

/// Reads what [`prune_script`] says: the jobs of which nothing is left.
pub fn parse_prune(mark: &RunToken, answer: &[u8]) -> Vec<JobId> {
    marked(mark.as_str(), answer)
        .iter()
        .filter_map(|(line, _)| JobId::parse(line.strip_prefix("gone:")?).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn folders_of_jobs_that_are_over_are_removed_and_those_of_others_stay() {
        for host in Host::all() {
            let (over, live, unknown) = (job("echo done"), job("sleep 343"), job("true"));
            let log = host.started(&over).log_file;
            host.end_of(&over, &log);
            host.started(&live);
            let jobs = [&over, &live, &unknown].map(|spec| spec.job().clone());
            let answer = host.run(&prune_script(&jobs, &mark()));
            let gone = parse_prune(&mark(), &answer);
            let expected = [over.job().clone(), unknown.job().clone()];
            assert_eq!(gone, expected, "{}", host.name);
            assert!(!host.folder(&over).exists(), "{}", host.name);
            assert!(host.folder(&live).exists(), "{}", host.name);
            assert!(std::path::Path::new(&log).exists(), "{}", host.name);
        }
    }

    #[test]
    fn claims_go_with_their_jobs_and_those_of_others_stay() {
        for host in Host::all() {
            let over = job("true").in_session(named("over"));
            let live = job("exec sleep 344").in_session(named("live"));
            let log = host.started(&over).log_file;
            host.end_of(&over, &log);
            host.started(&live);
            let claims = host.home.path().join(".remote-sandbox-mcp/claims");
            let boot = std::fs::read_dir(&claims).unwrap().next().unwrap().unwrap();
            // As a boot before this one would have left it.
            let before = claims.join("00000000-1111-2222-3333-444444444444");
            std::fs::create_dir_all(before.join("gpu-0")).unwrap();
            let old = boot.path().join("session-over/1");
            std::fs::copy(&old, before.join("gpu-0/3")).unwrap();
            assert!(old.exists(), "{}", host.name);
            host.run(&prune_script(&[over.job().clone()], &mark()));
            assert!(!old.exists() && !before.exists(), "{}", host.name);
            let kept = boot.path().join("session-live/1");
            assert!(kept.exists(), "{}", host.name);
        }
    }
}
