//! The small project that the demo puts into its sandbox.

/// A file of the project.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProjectFile {
    /// What it is called.
    pub(super) name: &'static str,
    pub(super) text: &'static str,
}

/// All files.
pub(super) const FILES: [ProjectFile; 5] = [
    ProjectFile {
        name: "primes.sh",
        text: include_str!("project/primes.sh"),
    },
    ProjectFile {
        name: "test_primes.sh",
        text: include_str!("project/test_primes.sh"),
    },
    ProjectFile {
        name: "test_primes.py",
        text: include_str!("project/test_primes.py"),
    },
    ProjectFile {
        name: "count.sh",
        text: include_str!("project/count.sh"),
    },
    ProjectFile {
        name: "train.sh",
        text: include_str!("project/train.sh"),
    },
];

/// The command that tests it with nothing but a shell.
pub(super) const SHELL_TESTS: &str = "sh test_primes.sh";

/// The command that says whether Python can test it too.
pub(super) const HAS_PYTHON: &str = "python3 -c 'import unittest'";

/// The command that tests it with Python.
pub(super) const PYTHON_TESTS: &str = "python3 -m unittest";

/// The command that takes longer than one wants to wait in a call.
pub(super) const LONG: &str = "sh count.sh";

/// All that it prints.
pub(super) const LONG_OUTPUT: &str = "\
up to 100: 25 primes
up to 200: 46 primes
up to 300: 62 primes
result.txt is written
";

/// The command that can be interrupted, and goes on from its checkpoint when it is run again. No shell waits for it, which
/// would have its own words about its end.
pub(super) const TRAINING: &str = "exec sh train.sh";

/// How many steps it has.
pub(super) const TRAINING_STEPS: u32 = 6;

/// Where it writes how far it is.
pub(super) const CHECKPOINT: &str = "checkpoint";

/// Where it writes its process.
pub(super) const TRAINING_PROCESS: &str = "train.pid";

/// The file that the long command leaves.
pub(super) const RESULT: &str = "result.txt";

/// What that holds.
pub(super) const RESULT_OUTPUT: &str = "62 primes up to 300, the largest is 293\n";
