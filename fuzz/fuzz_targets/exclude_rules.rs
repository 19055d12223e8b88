#![no_main]
//! Any bytes as exclude rules and as paths: a directory that need not be walked holds nothing that is included.

use libfuzzer_sys::fuzz_target;
use remote_sandbox_core::sync::{Filter, RelPath, Verdict};

fuzz_target!(|input: (&[u8], &[u8], &[u8])| {
    let (rules, gitignore, path) = input;
    let Ok(path) = RelPath::parse(path) else {
        return;
    };
    let mut filters = vec![Filter::default()];
    filters.extend(Filter::new(Some(rules), &[]));
    for mut filter in filters {
        let _ = filter.add_gitignore(None, gitignore);
        let _ = filter.prunes();
        let mut judge = filter.judge();
        let verdict = judge.verdict(&path, false);
        let mut above = path.parent();
        while let Some(directory) = above {
            if judge.verdict(&directory, true) == Verdict::Excluded {
                assert_eq!(verdict, Verdict::Excluded);
            }
            above = directory.parent();
        }
        assert_eq!(judge.verdict(&path, false), verdict);
        assert_eq!(filter.judge().verdict(&path, false), verdict);
    }
});
