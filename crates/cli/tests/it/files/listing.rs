//! `list_remote_files` on every kind of sandbox.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use remote_sandbox_testkit::{Sshd, process, wait_until};
use rstest::rstest;
use serde_json::{Value, json};

use super::{Ground, Kind, mkfifo, paths, write};
use crate::support::{audit, entry, one, serve, with};

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn list_is_sorted_and_tells_type_size_mode_time_and_target(#[case] kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.write("d/run.sh", "12345");
    ground.write("d/sub/inner", "");
    ground.write("d/a", "");
    fs::set_permissions(ground.at("d/run.sh"), PermissionsExt::from_mode(0o750)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
    let file = fs::File::open(ground.at("d/run.sh")).unwrap();
    file.set_modified(time).unwrap();
    symlink("sub", ground.at("d/link")).unwrap();
    mkfifo(&ground.at("d/pipe"));
    let list = ground.list(json!({"remote_path": "d"})).await;
    assert_eq!(
        paths(&list),
        ["d/a", "d/link", "d/pipe", "d/run.sh", "d/sub"]
    );
    assert_eq!(list["truncated"], false);
    assert!(list.get("notes").is_none(), "{list:#}");
    let of = |at: usize, field: &str| list["entries"][at][field].clone();
    let types: Vec<Value> = (0..5).map(|at| of(at, "type")).collect();
    assert_eq!(types, ["file", "link", "fifo", "file", "directory"]);
    let directories: Vec<Value> = (0..5).map(|at| of(at, "is_dir")).collect();
    assert_eq!(directories, [false, false, false, false, true]);
    assert_eq!(
        (of(3, "size"), of(3, "mode"), of(3, "mtime")),
        (json!(5), json!("0750"), json!(1_600_000_000))
    );
    assert_eq!(of(1, "target"), "sub");
    assert_eq!(of(0, "target"), Value::Null);
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn list_of_a_file_shows_that_file_and_an_empty_directory_is_an_empty_list(
    #[case] kind: Kind,
) {
    let ground = Ground::new(kind).await;
    ground.write("d/-f", "123");
    fs::create_dir(ground.at("d/empty")).unwrap();
    symlink("nowhere", ground.at("d/broken")).unwrap();
    let file = ground.list(json!({"remote_path": "d/-f"})).await;
    assert_eq!(paths(&file), ["d/-f"]);
    assert_eq!(file["entries"][0]["size"], 3);
    let broken = ground.list(json!({"remote_path": "d/broken"})).await;
    assert_eq!(broken["entries"][0]["target"], "nowhere");
    let empty = ground.list(json!({"remote_path": "d/empty"})).await;
    assert_eq!(
        (&empty["entries"], &empty["truncated"]),
        (&json!([]), &json!(false))
    );
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn list_is_truncated_only_when_something_was_left_out(#[case] kind: Kind) {
    let ground = Ground::new(kind).await;
    for name in ["e", "b", "d", "a", "c"] {
        ground.write(format!("d/{name}"), "");
    }
    let some = |most: u32, recursive: bool| {
        ground.list(json!({"remote_path": "d", "max_entries": most, "recursive": recursive}))
    };
    for recursive in [false, true] {
        assert_eq!(some(5, recursive).await["truncated"], false);
        let cut = some(3, recursive).await;
        assert_eq!(cut["truncated"], true);
        assert_eq!(paths(&cut), ["d/a", "d/b", "d/c"]);
    }
}

/// Weakness 4 of the package: one such name made the whole list fail.
#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn list_names_files_whose_names_are_no_text_escaped(#[case] kind: Kind) {
    let ground = Ground::new(kind).await;
    for name in [b"d/a\xffb".as_slice(), b"d/new\nline", b"d/gr\xc3\xbcn"] {
        ground.write(name, "");
    }
    symlink("x\u{202e}y", ground.at("d/link")).unwrap();
    let list = ground.list(json!({"remote_path": "d"})).await;
    assert_eq!(
        paths(&list),
        [r"d/a\xffb", "d/gr\u{fc}n", "d/link", r"d/new\x0aline"]
    );
    let escaped: Vec<bool> = (0..4)
        .map(|at| list["entries"][at]["escaped"] == true)
        .collect();
    assert_eq!(escaped, [true, false, true, true]);
    assert_eq!(list["entries"][2]["target"], r"x\u{202e}y");
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn paths_begin_at_home_or_workdir_and_stand_for_themselves(#[case] kind: Kind) {
    let ground = Ground::new(kind).await;
    write(&ground.home.join("in home/-x"), "home");
    ground.write("in begin/f", "begin");
    for (path, expected) in [
        ("~/in home", "~/in home/-x"),
        ("~/in home/", "~/in home/-x"),
        ("in begin", "in begin/f"),
        ("./in begin", "./in begin/f"),
    ] {
        let list = ground.list(json!({"remote_path": path})).await;
        assert_eq!(paths(&list), [expected]);
    }
    let home = ground.list(json!({"remote_path": "~"})).await;
    assert!(paths(&home).contains(&"~/in home"), "{home:#}");
    let begin = ground.list(json!({})).await;
    assert!(paths(&begin).contains(&"./in begin"), "{begin:#}");
    for odd in ["-rf", "a b ", "new\nline\n", "$(id) `x` 'y' \"z\"", "*"] {
        ground.write(format!("odd/{odd}/f"), odd);
        let path = format!("odd/{odd}");
        let list = ground.list(json!({"remote_path": path})).await;
        assert_eq!(list["entries"].as_array().unwrap().len(), 1, "{list:#}");
        let path = format!("odd/{odd}/f");
        let read = ground.read(json!({"remote_path": path})).await;
        assert_eq!(read["content"], odd);
    }
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn recursive_list_goes_down_and_a_glob_picks(#[case] kind: Kind) {
    let ground = Ground::new(kind).await;
    for name in ["a.py", "src/b.py", "src/deep/c.py", "src/d.txt", "a-b"] {
        ground.write(format!("d/{name}"), "");
    }
    let list = |more: Value| ground.list(with(json!({"remote_path": "d"}), more));
    let all = list(json!({"recursive": true})).await;
    assert_eq!(
        paths(&all),
        [
            "d/a-b",
            "d/a.py",
            "d/src",
            "d/src/b.py",
            "d/src/d.txt",
            "d/src/deep",
            "d/src/deep/c.py"
        ]
    );
    let names = list(json!({"recursive": true, "glob": "*.py"})).await;
    assert_eq!(paths(&names), ["d/a.py", "d/src/b.py", "d/src/deep/c.py"]);
    let picked = list(json!({"recursive": true, "glob": "src/*.py", "max_entries": 1})).await;
    assert_eq!(paths(&picked), ["d/src/b.py"]);
    assert_eq!(picked["truncated"], false);
    assert_eq!(paths(&list(json!({"glob": "*.py"})).await), ["d/a.py"]);
    let wrong = json!({"glob": "[a"});
    let wrong = ground.call("list_remote_files", wrong).await;
    assert_eq!(wrong.json["code"], "invalid_params", "{}", wrong.text);
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn missing_path_is_named(#[case] kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.write("file", "");
    for path in ["no such/dir", "file/"] {
        let reply = ground
            .call("list_remote_files", json!({"remote_path": path}))
            .await;
        assert!(reply.is_error, "{}", reply.text);
        assert_eq!(reply.json["code"], "not_found", "{}", reply.text);
        assert!(reply.json["error"].as_str().unwrap().contains(path));
    }
    for wrong in [json!({"remote_path": ""}), json!({"max_entries": 0})] {
        let reply = ground.call("list_remote_files", wrong).await;
        assert_eq!(reply.json["code"], "invalid_params", "{}", reply.text);
    }
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn directory_that_is_larger_than_one_answer_is_listed(#[case] kind: Kind) {
    let ground = Ground::new(kind).await;
    fs::create_dir(ground.at("large")).unwrap();
    let name = |number: u32| format!("large/{number:05}{}", "x".repeat(230));
    for number in 0..20_000 {
        fs::write(ground.at(name(number)), "").unwrap();
    }
    for recursive in [false, true] {
        let arguments = json!({"remote_path": "large", "max_entries": 3, "recursive": recursive});
        let list = ground.list(arguments).await;
        assert_eq!(list["truncated"], true);
        assert_eq!(paths(&list), [name(0), name(1), name(2)]);
    }
    let arguments = json!({"remote_path": "large", "max_entries": 20_000});
    let list = ground.list(arguments).await;
    assert_eq!(list["truncated"], false);
    assert_eq!(paths(&list).len(), 20_000);
}

#[tokio::test]
async fn list_that_is_cancelled_leaves_nothing_running_and_the_next_one_works() {
    let (sshd, client) = one().await;
    let finds = || {
        let mut pids = sshd.command_pids();
        pids.retain(|pid| process::name(*pid).as_deref() == Some("find"));
        pids
    };
    let everything = json!({"remote_path": "/", "recursive": true});
    let call = client.start_call("list_remote_files", everything).await;
    let limit = Duration::from_secs(10);
    assert!(wait_until(limit, || !finds().is_empty()).await);
    client.cancel(call).await;
    assert!(wait_until(limit, || finds().is_empty()).await);
    assert!(!client.has_reply(call));
    let next = client.call_tool("list_remote_files", json!({})).await;
    assert!(!next.is_error, "{}", next.text);
}

#[tokio::test]
async fn relative_paths_begin_in_the_workdir_of_the_entry() {
    let sshd = Sshd::start();
    write(&sshd.dir().join("home/w/f"), "content");
    let client = serve(&[with(entry("box", &sshd), json!({"workdir": "~/w"}))]).await;
    let list = client.call_tool("list_remote_files", json!({})).await;
    assert_eq!(paths(&list.json), ["./f"]);
    let read = json!({"remote_path": "f"});
    let read = client.call_tool("read_remote_file", read).await;
    assert_eq!(read.json["content"], "content");
    let home = json!({"remote_path": "~"});
    let home = client.call_tool("list_remote_files", home).await;
    assert!(paths(&home.json).contains(&"~/w"), "{}", home.text);
    let rows = audit(&client);
    let tools: Vec<&Value> = rows.iter().map(|row| &row["tool"]).collect();
    assert_eq!(
        tools,
        ["list_remote_files", "read_remote_file", "list_remote_files"]
    );
    assert_eq!(rows[1]["command"], "f");
}
