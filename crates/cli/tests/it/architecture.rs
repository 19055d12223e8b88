//! The directions between crates and modules, read from the manifests and the sources.

mod rules;
mod sources;

use std::path::{Path, PathBuf};

use serde_json::Value;

use rules::{LONGEST_FILE, broken_rules, wrong_dependencies};
use sources::{Module, module_tree, rust_files};

const CRATES: [&str; 5] = ["core", "engine", "server", "cli", "testkit"];

fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).expect("a workspace").to_owned()
}

fn modules(name: &str) -> Vec<Module> {
    let source = root().join("crates").join(name).join("src");
    let start = ["lib.rs", "main.rs"].map(|file| source.join(file));
    let start = start.into_iter().find(|file| file.exists());
    module_tree(&start.expect("a crate has a root"))
}

#[test]
fn crates_depend_on_each_other_in_one_direction_only() {
    let output = std::process::Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{output:?}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(metadata["packages"].as_array().unwrap().len() >= CRATES.len());
    assert_eq!(wrong_dependencies(&metadata), Vec::<String>::new());
}

#[test]
fn modules_name_only_what_they_may_know() {
    let mut seen = 0;
    for name in CRATES {
        for module in modules(name) {
            seen += usize::from(!module.is_test);
            assert_eq!(
                broken_rules(name, &module),
                Vec::<String>::new(),
                "{}",
                module.file.display()
            );
        }
    }
    assert!(seen > 40, "only {seen} modules were found");
}

#[test]
fn files_stay_short() {
    for name in CRATES {
        for module in modules(name).into_iter().filter(|module| !module.is_test) {
            let lines = module.text.lines().count();
            assert!(
                lines <= LONGEST_FILE,
                "{}: {lines} lines",
                module.file.display()
            );
        }
    }
}

#[test]
fn every_source_file_is_part_of_its_crate() {
    for name in CRATES {
        let reached: Vec<PathBuf> = modules(name)
            .into_iter()
            .map(|module| module.file)
            .collect();
        for file in rust_files(&root().join("crates").join(name).join("src")) {
            assert!(
                reached.contains(&file),
                "{} is in no module",
                file.display()
            );
        }
    }
}
