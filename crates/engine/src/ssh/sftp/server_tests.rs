use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use remote_sandbox_core::sftp::{
    Attributes, EntryName, Extension, FileKind, OpenFlags, RemotePath, StatusCode, Times,
};
use remote_sandbox_testkit::SftpServer;
use tempfile::TempDir;

use super::*;

/// OpenSSH's server in a folder of its own, and a client of it.
pub(super) struct Host {
    pub(super) folder: TempDir,
    pub(super) server: SftpServer,
    pub(super) client: Client,
}

impl Host {
    pub(super) async fn start() -> Option<Self> {
        Self::start_with(Options::default()).await
    }

    pub(super) async fn start_with(options: Options) -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let (server, read, write) = SftpServer::start(folder.path())?;
        let client = Client::start_with(read, write, options).await.unwrap();
        Some(Host {
            folder,
            server,
            client,
        })
    }

    pub(super) fn local(&self, name: &[u8]) -> PathBuf {
        self.folder.path().join(OsStr::from_bytes(name))
    }

    pub(super) async fn create(&self, name: &str) -> File {
        let flags = OpenFlags::REPLACE.and(OpenFlags::READ);
        self.client
            .open(&path(name), flags, Attributes::default())
            .await
            .unwrap()
    }

    pub(super) async fn open(&self, name: &str) -> Result<File, SftpError> {
        self.client
            .open(&path(name), OpenFlags::READ, Attributes::default())
            .await
    }
}

pub(super) fn path(bytes: impl AsRef<[u8]>) -> RemotePath {
    RemotePath::new(bytes.as_ref()).unwrap()
}

/// Bytes that repeat nowhere soon.
pub(super) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 11) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[tokio::test]
async fn server_of_openssh_offers_all_that_is_known_here() {
    let Some(host) = Host::start().await else {
        return;
    };
    for extension in Extension::ALL {
        assert!(host.client.extensions().has(extension), "{extension:?}");
    }
    assert!(host.client.limits().read_bytes >= 32 * 1024);
    assert!(host.client.limits().open_handles > 0);
    assert_eq!(host.client.read_length(), 128 * 1024);
    let home = host.client.realpath(&path(".")).await.unwrap();
    let folder = host.folder.path().canonicalize().unwrap();
    assert_eq!(home.as_bytes(), folder.as_os_str().as_bytes());
    let expanded = host.client.expand_path(&path("~")).await.unwrap();
    assert!(expanded.as_bytes().starts_with(b"/"));
}

#[tokio::test]
async fn name_is_kept_when_it_is_no_ordinary_text() {
    let Some(host) = Host::start().await else {
        return;
    };
    let long = vec![b'x'; 255];
    let names: [&[u8]; 9] = [
        b"new\nline",
        b"not \xff\xfe utf-8",
        b"\x80",
        b"-rf",
        "日本 é".as_bytes(),
        b" spaces  ",
        b"\x1b[2J",
        b"back\\slash",
        &long,
    ];
    for name in names {
        let file = host
            .client
            .open(&path(name), OpenFlags::NEW, Attributes::default())
            .await
            .unwrap();
        file.write(0, name).await.unwrap();
        file.close().await.unwrap();
        assert_eq!(fs::read(host.local(name)).unwrap(), name);
    }
    let mut listing = host.client.read_dir(&path("."), 100).await.unwrap();
    let batch = listing.collect().await.unwrap();
    let mut listed: Vec<&[u8]> = batch.entries.iter().map(|e| e.name.as_bytes()).collect();
    let mut expected = names.to_vec();
    listed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    assert_eq!(batch.refused, []);
    for entry in &batch.entries {
        assert_eq!(entry.attributes.kind(), Some(FileKind::File));
        let whole = path(".").join(&entry.name).unwrap();
        let size = host.client.lstat(&whole).await.unwrap().size_bytes;
        assert_eq!(size, Some(entry.name.as_bytes().len() as u64));
        host.client.remove(&whole).await.unwrap();
    }
    assert_eq!(fs::read_dir(host.folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn large_file_is_the_same_after_the_way_up_and_down() {
    let Some(host) = Host::start().await else {
        return;
    };
    for length in [0, 1, 128 * 1024, 128 * 1024 + 1, 10_000_019] {
        let content = noise(length);
        let file = host.create("big").await;
        let sent = file.write_range(0, &mut content.as_slice()).await.unwrap();
        assert_eq!(sent, length as u64);
        assert!(fs::read(host.local(b"big")).unwrap() == content, "{length}");
        let mut back = Vec::new();
        let read = file.read_range(0, u64::MAX, &mut back).await.unwrap();
        assert_eq!(read, length as u64);
        assert!(back == content, "{length}");
        file.close().await.unwrap();
    }
}

#[tokio::test]
async fn range_is_exactly_what_was_asked_for() {
    let Some(host) = Host::start().await else {
        return;
    };
    let content = noise(1_000_000);
    fs::write(host.local(b"f"), &content).unwrap();
    let file = host.open("f").await.unwrap();
    for (offset, length, window) in [
        (0, 1, 1),
        (7, 300_000, 1),
        (999_999, 10, 1 << 20),
        (500_000, 200_001, 150_000),
    ] {
        let mut reader = file.reader(offset, length).window(window);
        let mut place = offset;
        while let Some((at, data)) = reader.next().await.unwrap() {
            assert_eq!(at, place);
            let expected = &content[place as usize..place as usize + data.len()];
            assert!(data == expected);
            place += data.len() as u64;
        }
        assert_eq!(place, (offset + length).min(content.len() as u64));
    }
    assert!(file.read(1_000_000, 10).await.unwrap().is_empty());
    assert_eq!(file.read(999_995, 10).await.unwrap(), content[999_995..]);
    assert!(file.reader(2_000_000, 5).next().await.unwrap().is_none());
}

#[tokio::test]
async fn part_of_a_file_is_written_where_it_belongs() {
    let Some(host) = Host::start().await else {
        return;
    };
    fs::write(host.local(b"f"), noise(300_000)).unwrap();
    let mut expected = noise(300_000);
    expected[100_000..250_000].fill(b'x');
    let file = host
        .client
        .open(&path("f"), OpenFlags::WRITE, Attributes::default())
        .await
        .unwrap();
    let mut writer = file.writer(100_000).window(1);
    let mut data = Bytes::from(vec![b'x'; 150_000]);
    writer.send(&mut data).await.unwrap();
    assert!(data.is_empty());
    assert_eq!(writer.finish().await.unwrap(), 250_000);
    assert!(fs::read(host.local(b"f")).unwrap() == expected);
    let too_long = vec![0; 1 << 20];
    let error = file.write(0, &too_long).await.unwrap_err();
    assert!(matches!(error, SftpError::TooLong { .. }), "{error:?}");
}

#[tokio::test]
async fn thousands_of_small_files_are_under_way_at_once() {
    let Some(host) = Host::start().await else {
        return;
    };
    let (client, count) = (&host.client, 3000);
    let write = |number: usize| async move {
        let name = path(format!("f{number}"));
        let file = client
            .open(&name, OpenFlags::NEW, Attributes::permissions(0o640))
            .await?;
        file.write(0, format!("content {number}").as_bytes())
            .await?;
        file.close().await
    };
    let all = futures::stream::iter(0..count).map(|number| Ok(write(number)));
    let all: Result<(), SftpError> = all.try_buffer_unordered(500).try_collect().await;
    all.unwrap();
    let read = |number: usize| async move {
        let name = path(format!("f{number}"));
        let file = client
            .open(&name, OpenFlags::READ, Attributes::default())
            .await
            .unwrap();
        let data = file.read(0, 100).await.unwrap();
        assert_eq!(data, format!("content {number}"));
        // Held for as long as there are handles whose bytes are no text.
        (number < 400).then_some(file)
    };
    let files = futures::stream::iter(0..count).map(read);
    let held: Vec<_> = files.buffer_unordered(500).collect().await;
    let held: Vec<&File> = held.iter().flatten().collect();
    assert_eq!(held.len(), 400);
    assert!(host.server.open_files() >= 400);
    for file in held {
        let data = file.read(8, 100).await.unwrap();
        assert!(file.path().as_bytes().ends_with(&data), "{file:?} {data:?}");
    }
    let metadata = fs::metadata(host.local(b"f7")).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
}

#[tokio::test]
async fn large_directory_is_listed_in_batches() {
    let Some(host) = Host::start().await else {
        return;
    };
    let folder = host.local(b"many");
    fs::create_dir(&folder).unwrap();
    for number in 0..5000 {
        fs::write(folder.join(format!("entry {number}")), "").unwrap();
    }
    let mut listing = host.client.read_dir(&path("many"), 5000).await.unwrap();
    let (mut names, mut batches) = (Vec::new(), 0);
    while let Some(batch) = listing.next_batch().await.unwrap() {
        batches += 1;
        names.extend(batch.entries.into_iter().map(|entry| entry.name));
    }
    assert!(batches > 10, "{batches}");
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 5000);
    assert!(names.contains(&EntryName::new(b"entry 4999".as_slice()).unwrap()));
    let mut listing = host.client.read_dir(&path("many"), 150).await.unwrap();
    let mut seen = 0;
    let error = loop {
        match listing.next_batch().await {
            Ok(batch) => seen += batch.unwrap().entries.len(),
            Err(error) => break error,
        }
    };
    assert_eq!(seen, 150);
    assert!(error.to_string().contains("more than 150"), "{error}");
}

#[tokio::test]
async fn rename_replaces_only_when_that_was_asked_for() {
    let Some(host) = Host::start().await else {
        return;
    };
    fs::write(host.local(b"old"), "old").unwrap();
    fs::write(host.local(b"new"), "new").unwrap();
    let (old, new) = (path("old"), path("new"));
    let error = host.client.rename(&new, &old).await.unwrap_err();
    assert_eq!(error.code(), Some(StatusCode::Failure));
    assert_eq!(fs::read(host.local(b"old")).unwrap(), b"old");
    host.client.posix_rename(&new, &old).await.unwrap();
    assert_eq!(fs::read(host.local(b"old")).unwrap(), b"new");
    assert!(!host.local(b"new").exists());
    host.client.rename(&old, &path("free")).await.unwrap();
    assert!(host.local(b"free").exists());
}

#[tokio::test]
async fn attributes_are_set_on_files_and_on_links_themselves() {
    let Some(host) = Host::start().await else {
        return;
    };
    let client = &host.client;
    let at = |modified_s| {
        Attributes::at(Times {
            accessed_s: 1,
            modified_s,
        })
    };
    let file = host.create("target").await;
    file.write(0, b"0123456789").await.unwrap();
    file.fsync().await.unwrap();
    file.setstat(Attributes::permissions(0o751)).await.unwrap();
    file.setstat(at(1_000_000_000)).await.unwrap();
    let seen = file.stat().await.unwrap();
    assert_eq!(seen.size_bytes, Some(10));
    assert_eq!(seen.mode, Some(0o100_751));
    client
        .symlink(&path("link"), &path("target"))
        .await
        .unwrap();
    assert_eq!(
        fs::read_link(host.local(b"link")).unwrap(),
        PathBuf::from("target")
    );
    assert_eq!(
        client.readlink(&path("link")).await.unwrap(),
        path("target")
    );
    client
        .lsetstat(&path("link"), at(1_234_567_890))
        .await
        .unwrap();
    let modified = |name: &[u8]| fs::symlink_metadata(host.local(name)).unwrap().mtime();
    assert_eq!(modified(b"link"), 1_234_567_890);
    assert_eq!(modified(b"target"), 1_000_000_000);
    client.setstat(&path("link"), at(5)).await.unwrap();
    assert_eq!(modified(b"target"), 5);
    let kind = |attributes: Attributes| attributes.kind();
    let lstat = client.lstat(&path("link")).await.unwrap();
    assert_eq!(kind(lstat), Some(FileKind::Link));
    let stat = client.stat(&path("link")).await.unwrap();
    assert_eq!(kind(stat), Some(FileKind::File));
}

#[tokio::test]
async fn directories_links_copies_and_space_work() {
    let Some(host) = Host::start().await else {
        return;
    };
    let client = &host.client;
    client
        .mkdir(&path("d"), Attributes::permissions(0o700))
        .await
        .unwrap();
    assert_eq!(
        fs::metadata(host.local(b"d")).unwrap().mode() & 0o777,
        0o700
    );
    let mut empty = client.read_dir(&path("d"), 0).await.unwrap();
    assert_eq!(empty.collect().await.unwrap(), Batch::default());
    client.rmdir(&path("d")).await.unwrap();
    assert!(!host.local(b"d").exists());

    let content = noise(700_000);
    fs::write(host.local(b"from"), &content).unwrap();
    let (from, to) = (host.open("from").await.unwrap(), host.create("to").await);
    from.copy_data(100, 0, &to, 0).await.unwrap();
    assert!(fs::read(host.local(b"to")).unwrap() == content[100..]);
    let Some(other) = Host::start().await else {
        return;
    };
    let error = from.copy_data(0, 1, &other.create("to").await, 0).await;
    assert!(matches!(error, Err(SftpError::Apart { .. })), "{error:?}");

    client
        .hardlink(&path("from"), &path("second"))
        .await
        .unwrap();
    assert_eq!(fs::metadata(host.local(b"second")).unwrap().nlink(), 2);
    let space = client.statvfs(&path(".")).await.unwrap();
    assert!(space.fragment_bytes > 0 && space.blocks >= space.blocks_available);
    assert!(space.available_bytes() > 0 && space.longest_name >= 255);
}

#[tokio::test]
async fn refusal_names_the_file_and_the_reason() {
    let Some(host) = Host::start().await else {
        return;
    };
    let missing = path("not\nthere");
    let errors = [
        host.client.stat(&missing).await.map(drop),
        host.client.remove(&missing).await,
        host.client.readlink(&missing).await.map(drop),
        host.client.read_dir(&missing, 5).await.map(drop),
        host.open("not\nthere").await.map(drop),
    ];
    for result in errors {
        let error = result.unwrap_err();
        assert_eq!(error.code(), Some(StatusCode::NoSuchFile), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("`not\\nthere`: no such file"), "{text}");
    }
    assert!(host.client.loss().is_none());
}

#[tokio::test]
async fn refusal_says_so_when_permission_is_missing() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("secret"), "s").unwrap();
    fs::set_permissions(
        folder.path().join("secret"),
        fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let Some((_server, read, write)) = SftpServer::start_as_nobody(folder.path()) else {
        return;
    };
    let client = Client::start(read, write).await.unwrap();
    for (name, flags) in [("secret", OpenFlags::READ), ("new", OpenFlags::CREATE)] {
        let opened = client
            .open(&path(name), flags, Attributes::default())
            .await
            .unwrap_err();
        assert_eq!(
            opened.code(),
            Some(StatusCode::PermissionDenied),
            "{opened:?}"
        );
    }
}

#[tokio::test]
async fn writer_tells_how_far_it_came_when_the_server_refuses() {
    let Some(host) = Host::start().await else {
        return;
    };
    fs::write(host.local(b"f"), "old").unwrap();
    let file = host.open("f").await.unwrap();
    let error = file.write_range(0, &mut noise(400_000).as_slice()).await;
    assert!(error.unwrap_err().code().is_some());
    let mut writer = file.writer(0);
    let sent = writer.send(&mut Bytes::from_static(b"new")).await;
    assert!(sent.is_ok());
    assert!(writer.finish().await.is_err());
    assert!(writer.finish().await.is_err());
    assert_eq!(writer.confirmed(), 0);
    assert_eq!(fs::read(host.local(b"f")).unwrap(), b"old");
}
