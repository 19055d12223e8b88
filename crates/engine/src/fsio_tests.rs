use super::*;
use std::os::unix::fs::PermissionsExt;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn written_files_are_private_from_the_first_instant() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("a/b");
    private_directory(&inner).unwrap();
    append_private(&inner.join("log")).unwrap();
    write_atomically(&inner.join("record"), b"x").unwrap();
    assert_eq!(mode(&inner), 0o700);
    assert_eq!(mode(&inner.join("log")), 0o600);
    assert_eq!(mode(&inner.join("record")), 0o600);
}

#[test]
fn fresh_directory_is_private_and_another_one_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let one = fresh_directory(folder.path(), "x-").unwrap();
    let other = fresh_directory(folder.path(), "x-").unwrap();
    assert_ne!(one, other);
    assert_eq!(mode(&one), 0o700);
    let error = fresh_directory(&folder.path().join("none"), "x-").unwrap_err();
    assert_eq!(error.action, "make");
}

#[test]
fn appending_refuses_a_symlink() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    std::fs::write(&target, b"").unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert!(append_private(&link).is_err());
}

#[test]
fn writing_atomically_leaves_no_temporary_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record");
    write_atomically(&path, b"old").unwrap();
    write_atomically(&path, b"new").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn reading_does_not_hang_on_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let error = read_bounded(&path, 10).unwrap_err();
    assert_eq!(error.source.to_string(), "it is a pipe");
}

#[test]
fn reading_refuses_what_is_too_large() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big");
    std::fs::write(&path, [0; 11]).unwrap();
    assert!(read_bounded(&path, 10).is_err());
    assert_eq!(read_bounded(&path, 11).unwrap().unwrap().len(), 11);
    assert!(
        read_bounded(&folder.path().join("none"), 1)
            .unwrap()
            .is_none()
    );
}
