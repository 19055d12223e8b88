//! Other file systems and directory links within the target.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use serde_json::json;

use super::obstacles::Disk;
use super::stage::{Random, Stage, Way};
use super::{problems, snapshot};

#[tokio::test]
async fn mount_within_the_target_is_written_to_like_the_rest() {
    let stage = Stage::new().await;
    let Some(_disk) = Disk::mount(&stage.there.join("data"), 40_000_000) else {
        return;
    };
    stage.write(Way::Up, "a", "1");
    stage.write(Way::Up, "data/small", "2");
    stage.write(Way::Up, "data/deep/er/small", "3");
    stage.write(Way::Up, "data/large", Random::new(1).bytes(9_000_000));
    for content in ["first", "second"] {
        stage.write(Way::Up, "data/small", content);
        let done = stage.sync(Way::Up, json!({})).await;
        assert_eq!(done["problem_count"], 0, "{done}");
        stage.assert_same();
    }
    let device = |name: &str| fs::metadata(stage.there.join(name)).unwrap().dev();
    assert_ne!(device("a"), device("data/deep/er/small"));
}

#[tokio::test]
async fn directory_link_to_another_disk_is_followed_on_request_and_stays() {
    let stage = Stage::new().await;
    let elsewhere = stage.there.with_file_name("elsewhere");
    let Some(_disk) = Disk::mount(&elsewhere, 40_000_000) else {
        return;
    };
    fs::create_dir_all(&stage.there).unwrap();
    symlink(&elsewhere, stage.there.join("data")).unwrap();
    stage.write(Way::Up, "a", "1");
    stage.write(Way::Up, "data/d/small", "2");
    stage.write(Way::Up, "data/large", Random::new(1).bytes(9_000_000));
    let kept = stage.sync(Way::Up, json!({})).await;
    assert!(problems(&kept).contains_key("data"), "{kept}");
    assert_eq!(snapshot(&elsewhere).len(), 0);
    let done = stage.sync(Way::Up, json!({"keep_dirlinks": true})).await;
    assert_eq!(done["problem_count"], 0, "{done}");
    assert_eq!(snapshot(&elsewhere), snapshot(&stage.here.join("data")));
    assert!(stage.there.join("data").is_symlink());
}
