use super::*;

fn list(gpus: usize, processes: usize) -> Value {
    let process =
        json!({"pid": 1_234_567, "name": "python3", "mem_used_mb": 70_000, "user": "somebody"});
    let part = json!({"profile": "1g.10gb", "processes": vec![process.clone(); processes]});
    let gpu =
        json!({"index": 0, "util_pct": 1.0, "processes": vec![process; processes], "mig": [part]});
    json!({"sandboxes": [{"name": "a"}, {"name": "b", "resources": {"gpu": vec![gpu; gpus]}}]})
}

#[test]
fn list_of_usual_size_is_left_whole() {
    let whole = list(4, 8);
    assert_eq!(fitted(whole.clone()), whole);
}

#[test]
fn long_list_loses_processes_and_keeps_their_count() {
    let short = fitted(list(16, 8));
    assert!(short.to_string().len() <= LONGEST_LIST);
    let gpu = &short["sandboxes"][1]["resources"]["gpu"][0];
    assert_eq!(gpu["process_count"], 8);
    assert_eq!(gpu["util_pct"], 1.0);
    let shown = gpu["processes"].as_array().unwrap().len();
    assert!((1..8).contains(&shown), "{shown}");
    assert_eq!(gpu["mig"][0]["process_count"], 8);
}

#[test]
fn count_of_an_already_shortened_list_stays() {
    let mut device = json!({"processes": [1, 2, 3], "process_count": 64});
    shorten_processes(&mut device, 1);
    assert_eq!(device, json!({"processes": [1], "process_count": 64}));
}
