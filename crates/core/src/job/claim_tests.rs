use std::fs;

use super::super::testing::*;
use super::*;

/// Where claims on a session name lie.
fn place(host: &Host, name: &str) -> std::path::PathBuf {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let claims = format!(".remote-sandbox-mcp/claims/{}/session-{name}", boot.trim());
    host.home.path().join(claims)
}

/// Puts a claim there whose job is long over.
fn stale(host: &Host, name: &str, number: u32) {
    fs::create_dir_all(place(host, name)).unwrap();
    let claim = format!("{} 1 999999999 1\n", job("true").job);
    fs::write(place(host, name).join(number.to_string()), claim).unwrap();
}

fn claims(host: &Host, name: &str) -> Vec<String> {
    let entries = fs::read_dir(place(host, name)).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A start that is slow to take its number must not take it from somebody who came and went and came meanwhile.
#[test]
fn slow_starter_that_breaks_a_stale_claim_gives_way_to_whoever_has_the_name_by_then() {
    let mut host = Host::full("dash", &["dash"]);
    // Waits before it takes a number for the job that is named in a file.
    host.install(
        "ln",
        "#!/bin/sh\n\
         if [ -e ~/slow ] && [ \"${2#*/claims/}\" != \"$2\" ] && grep -q \"$(cat ~/slow)\" \"$1\"; then\n\
         : >~/waits\n\
         until [ -e ~/go ]; do sleep 0.02; done\n\
         fi\n\
         exec /bin/ln \"$@\"\n",
    );
    stale(&host, "race", 5);
    let slow = job("echo slow >>ran; sleep 60").in_session(named("race"));
    let passing = job("true")
        .in_session(named("race"))
        .with_gpus(GpuWish::parse("99").unwrap());
    let holder = job("echo holder >>ran; sleep 60").in_session(named("race"));
    host.write("slow", slow.job.as_str());
    std::thread::scope(|scope| {
        let held = scope.spawn(|| host.start(&slow));
        until("the slow one is about to take its number", || {
            host.home.path().join("waits").exists()
        });
        // Takes the number, removes the stale claim, and withdraws its own.
        let refusal = host.refused(&passing);
        assert!(
            matches!(refusal, StartRefusal::NoFreeGpu { .. }),
            "{refusal:?}"
        );
        // Finds no claim at all and begins with the first number.
        host.started(&holder);
        host.write("go", "");
        let expected = StartRefusal::SessionTaken {
            holder: Some(holder.job.clone()),
        };
        assert_eq!(held.join().unwrap(), StartVerdict::Refused(expected));
    });
    let ran = host.home.path().join("ran");
    until("the holder speaks", || ran.exists());
    assert_eq!(fs::read_to_string(ran).unwrap(), "holder\n");
    assert_eq!(claims(&host, "race"), ["1"]);
}

#[test]
fn of_many_who_break_a_stale_claim_one_has_the_name() {
    let Some(host) = Host::sparse("dash alone", "dash") else {
        return;
    };
    for round in 0..4 {
        let name = format!("stale{round}");
        stale(&host, &name, 3);
        stale(&host, &name, 4);
        let specs: Vec<JobSpec> = (0..6)
            .map(|_| job("sleep 60").in_session(named(&name)))
            .collect();
        let verdicts: Vec<StartVerdict> = std::thread::scope(|scope| {
            let threads: Vec<_> = specs
                .iter()
                .map(|spec| scope.spawn(|| host.start(spec)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let started = verdicts
            .iter()
            .filter(|verdict| matches!(verdict, StartVerdict::Started(_)));
        assert_eq!(started.count(), 1, "{verdicts:?}");
        assert_eq!(claims(&host, &name).len(), 1);
    }
}

#[test]
fn claim_below_one_of_a_starter_that_was_killed_still_holds() {
    let host = Host::full("dash", &["dash"]);
    let holder = job("sleep 60").in_session(named("low"));
    host.started(&holder);
    // What a starter leaves that was killed between taking a number and giving way.
    stale(&host, "low", 7);
    let late = job("true").in_session(named("low"));
    let expected = StartRefusal::SessionTaken {
        holder: Some(holder.job.clone()),
    };
    assert_eq!(host.refused(&late), expected);
    assert_eq!(claims(&host, "low"), ["1", "7"]);
}

#[test]
fn of_two_who_want_a_name_one_has_it_where_files_cannot_be_linked() {
    for mut host in Host::all() {
        host.install("ln", "#!/bin/sh\nexit 1\n");
        let first = job("sleep 60").in_session(named("mine"));
        host.started(&first);
        let second = job("sleep 60").in_session(named("mine"));
        let expected = StartRefusal::SessionTaken {
            holder: Some(first.job.clone()),
        };
        assert_eq!(host.refused(&second), expected);
    }
}
