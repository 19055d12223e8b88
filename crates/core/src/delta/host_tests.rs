//! The programs of this room, run as a host runs them.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::tests::{delta, mark, noise, read, said_of};
use super::*;
use crate::sync::Mtime;

/// Begins a script as `sh -c`, in another home.
fn begin(script: &str, home: &Path, path: Option<&Path>) -> Child {
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg(script)
        .env("HOME", home)
        .current_dir("/");
    if let Some(path) = path {
        command.env("PATH", path);
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok();
    if !found {
        println!("skipped: this machine has no python3");
    }
    found
}

const ODD_NAME: &[u8] = b"-o'dd \xff$(id)\n";

fn stamp_of(path: &Path) -> String {
    let found = fs::metadata(path).unwrap();
    let time = |seconds: i64, nanoseconds: i64| seconds * 1_000_000_000 + nanoseconds;
    format!(
        "{}.{}.{}",
        found.ino(),
        time(found.mtime(), found.mtime_nsec()),
        time(found.ctime(), found.ctime_nsec())
    )
}

/// Whether the link is cut behind what is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    Stands,
    IsCut,
}

/// A host with an old file of which a new one is built.
struct Host {
    home: TempDir,
    block: BlockLength,
    size_bytes: u64,
    /// What a shell is told before.
    limits: &'static str,
}

impl Host {
    fn with(old: &[u8], block: BlockLength, size_bytes: usize) -> Self {
        let home = TempDir::new().unwrap();
        fs::write(home.path().join("old"), old).unwrap();
        Host {
            home,
            block,
            size_bytes: size_bytes as u64,
            limits: "",
        }
    }

    fn old_file(&self) -> PathBuf {
        self.home.path().join("old")
    }

    fn new_file(&self) -> PathBuf {
        self.home.path().join(std::ffi::OsStr::from_bytes(ODD_NAME))
    }

    fn begin(&self, old: &[u8]) -> Child {
        let new = self.new_file();
        let request = RebuildRequest {
            old,
            new: new.as_os_str().as_bytes(),
            block: self.block,
            size_bytes: self.size_bytes,
            mode: 0o751,
            mtime: Mtime::exact(1_000_000_007, 123_456_789).unwrap(),
        };
        let script = format!("{}\n{}", self.limits, rebuild_script(&request, &mark()));
        begin(&script, self.home.path(), None)
    }

    /// What it tells of its old file, and how it goes when it is then sent these frames. A file that was built gets
    /// another name before the program ends, as it does in earnest.
    fn rebuild(&self, old: &[u8], frames: &[u8], link: Link) -> (Vec<u8>, Option<RebuildVerdict>) {
        let mut child = self.begin(old);
        let mut output = child.stdout.take().unwrap();
        let told = until(&mut output, |told| {
            told.ends_with(format!("RSMCP:{}:end\n", mark()).as_bytes())
        });
        let mut input = child.stdin.take().unwrap();
        let frames = frames.to_vec();
        // It may end before it has read all of it.
        let writer = std::thread::spawn(move || {
            let _ = input.write_all(&frames);
            (link == Link::Stands).then_some(input)
        });
        let words = until(&mut output, |words| parse_rebuild(&mark(), words).is_some());
        let verdict = parse_rebuild(&mark(), &words);
        if verdict == Some(RebuildVerdict::Done) {
            fs::rename(self.new_file(), self.named_file()).unwrap();
        }
        drop(writer.join().unwrap());
        child.wait().unwrap();
        assert!(!self.new_file().exists());
        (told, verdict)
    }

    fn verdict(&self, frames: &[u8], link: Link) -> Option<RebuildVerdict> {
        self.rebuild(b"./old", frames, link).1
    }

    fn named_file(&self) -> PathBuf {
        self.home.path().join("named")
    }

    fn names(&self) -> usize {
        fs::read_dir(self.home.path()).unwrap().count()
    }
}

/// Reads until it is enough, or up to the end.
fn until(output: &mut impl Read, is_enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let (mut told, mut buffer) = (Vec::new(), [0; 8192]);
    while !is_enough(&told) {
        match output.read(&mut buffer).unwrap() {
            0 => break,
            count => told.extend(&buffer[..count]),
        }
    }
    told
}

#[test]
fn host_tells_the_blocks_of_a_file_whatever_its_name() {
    if !has_python() {
        return;
    }
    let old = noise(100_000, 1);
    let block = BlockLength::for_size(100_000).unwrap();
    let host = Host::with(b"", block, 100_000);
    // The new one stands beside it under this name.
    let odd = [b"x", ODD_NAME].concat();
    let path = host.home.path().join(std::ffi::OsStr::from_bytes(&odd));
    fs::write(&path, &old).unwrap();
    let expected = said_of(&old, block.bytes(), &stamp_of(&path));
    let relative = [b"./", odd.as_slice()].concat();
    for name in [path.as_os_str().as_bytes(), &relative] {
        assert!(host.rebuild(name, b"", Link::IsCut).0 == expected);
    }
    // Longer than what is read at once, and not a whole number of it.
    let old = noise(9_000_001, 2);
    fs::write(&path, &old).unwrap();
    let block = BlockLength::for_size(9_000_001).unwrap();
    let host = Host { block, ..host };
    let expected = said_of(&old, block.bytes(), &stamp_of(&path));
    assert!(host.rebuild(&relative, b"", Link::IsCut).0 == expected);
}

#[test]
fn host_that_cannot_open_the_old_file_says_so_and_makes_nothing() {
    if !has_python() {
        return;
    }
    let block = BlockLength::short(4096);
    let host = Host::with(b"", block, 5000);
    let pipe = host.home.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let before = host.names();
    // What may never answer is not opened.
    for name in [b"./pipe".as_slice(), b"./none"] {
        let (told, _) = host.rebuild(name, b"", Link::IsCut);
        assert_eq!(read(&told, block, 7).unwrap_err(), SignatureError::NoFile);
        assert_eq!(host.names(), before);
    }
}

fn frames(new: &[u8], instructions: &[Instruction]) -> Vec<u8> {
    let mut frames = Vec::new();
    for instruction in instructions {
        match *instruction {
            Instruction::Copy { from, to, .. } if from == to => {}
            Instruction::Copy { from, to, length } => frames.extend(copy_frame(from, to, length)),
            Instruction::Data { offset, length } => {
                frames.extend(data_head(offset, length as u32));
                frames.extend(&new[offset as usize..(offset + length) as usize]);
            }
        }
    }
    frames
}

/// A host, and all that is sent to it so that it builds this.
fn sent(old: &[u8], new: &[u8]) -> (Host, Vec<u8>) {
    let host = Host::with(old, BlockLength::short(4096), new.len());
    let whole = sent_again(&host, old, new);
    (host, whole)
}

fn sent_again(host: &Host, old: &[u8], new: &[u8]) -> Vec<u8> {
    let said = said_of(old, 4096, &stamp_of(&host.old_file()));
    let signature = read(&said, host.block, 1000).unwrap();
    let (instructions, copied) = delta(&signature, new, 65_536);
    [
        frames(new, &instructions),
        end_frame(&copied, signature.stamp()),
    ]
    .concat()
}

/// A file, and another one in which something was put in the place of something shorter.
fn moved() -> (Vec<u8>, Vec<u8>) {
    let old = noise(3_000_000, 1);
    let mut new = old.clone();
    new.splice(1_000_000..1_000_100, noise(333, 2));
    (old, new)
}

#[test]
fn host_builds_the_new_file() {
    if !has_python() {
        return;
    }
    let (old, moved) = moved();
    let mut edited = old.clone();
    edited[1_234_567] ^= 1;
    let longer = [old.as_slice(), &noise(70_000, 3)].concat();
    let shorter = old[..2_345_678].to_vec();
    let swapped = [&old[1_500_000..], &old[..1_500_000]].concat();
    for new in [moved, edited, longer, shorter, swapped, old.clone()] {
        let (host, whole) = sent(&old, &new);
        assert_eq!(
            host.verdict(&whole, Link::Stands),
            Some(RebuildVerdict::Done)
        );
        assert!(fs::read(host.named_file()).unwrap() == new);
        let found = fs::metadata(host.named_file()).unwrap();
        assert_eq!(found.permissions().mode() & 0o7777, 0o751);
        assert_eq!(
            (found.mtime(), found.mtime_nsec()),
            (1_000_000_007, 123_456_789)
        );
    }
}

#[test]
fn edit_in_place_sends_little_more_than_itself() {
    let old = noise(3_000_000, 1);
    let mut new = old.clone();
    new[1_234_567] ^= 1;
    let (_host, whole) = sent(&old, &new);
    assert!(whole.len() < 4096 + 200, "{}", whole.len());
}

#[test]
fn nothing_is_left_under_the_name_when_it_is_not_the_new_file() {
    if !has_python() {
        return;
    }
    let (old, new) = moved();
    let (host, whole) = sent(&old, &new);
    let is_refused = |frames: &[u8], verdict| {
        assert_eq!(host.verdict(frames, Link::Stands), Some(verdict));
    };
    let cut_off = Some(RebuildVerdict::CutOff);
    assert_eq!(
        host.verdict(&whole[..whole.len() - 1], Link::IsCut),
        cut_off
    );
    assert_eq!(host.verdict(b"", Link::IsCut), cut_off);
    let beyond = copy_frame(2_999_000, 0, 5000);
    is_refused(&beyond, RebuildVerdict::NoOld);
    let too_far = copy_frame(0, 2_999_000, 5000);
    is_refused(&too_far, RebuildVerdict::OtherContent);
    is_refused(&data_head(u64::MAX, 1), RebuildVerdict::OtherContent);
    // The sum of what was copied is another one.
    let foreign = copy_frame(5, 6, 7);
    is_refused(
        &[foreign, whole.clone()].concat(),
        RebuildVerdict::OtherContent,
    );
    // Somebody wrote into the old file, and set its time back.
    let before = fs::metadata(host.old_file()).unwrap().modified().unwrap();
    fs::write(host.old_file(), &old).unwrap();
    let file = fs::File::options()
        .write(true)
        .open(host.old_file())
        .unwrap();
    file.set_modified(before).unwrap();
    is_refused(&whole, RebuildVerdict::OtherContent);
}

#[test]
fn what_stays_is_what_was_told_whatever_becomes_of_the_old_file() {
    if !has_python() {
        return;
    }
    let old = noise(5_000_000, 1);
    let (host, _) = sent(&old, &old);
    let mut child = host.begin(b"./old");
    let mut output = child.stdout.take().unwrap();
    let end = format!("RSMCP:{}:end\n", mark());
    let told = until(&mut output, |told| told.ends_with(end.as_bytes()));
    assert!(read(&told, host.block, 1000).is_ok());
    // Nobody sees this by the time of the file: it is written through a map of it, or has its time set back.
    fs::write(host.old_file(), noise(5_000_000, 2)).unwrap();
    assert!(fs::read(host.new_file()).unwrap() == old);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn host_that_cannot_write_on_says_so_at_once_and_leaves_nothing() {
    if !has_python() {
        return;
    }
    let old = noise(5_000_000, 1);
    let (host, _) = sent(&old, &old);
    let host = Host {
        limits: "ulimit -f 2000",
        ..host
    };
    let mut child = host.begin(b"./old");
    let mut output = child.stdout.take().unwrap();
    // Its input stays open: nobody has told it to end.
    let words = until(&mut output, |words| parse_rebuild(&mark(), words).is_some());
    assert_eq!(parse_rebuild(&mark(), &words), Some(RebuildVerdict::NoOld));
    assert!(!host.new_file().exists());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn file_that_gets_no_name_goes_with_the_program() {
    if !has_python() {
        return;
    }
    let (old, new) = moved();
    let (host, whole) = sent(&old, &new);
    let mut child = host.begin(b"./old");
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    let end = format!("RSMCP:{}:end\n", mark());
    until(&mut output, |told| told.ends_with(end.as_bytes()));
    input.write_all(&whole).unwrap();
    let words = until(&mut output, |words| parse_rebuild(&mark(), words).is_some());
    assert_eq!(parse_rebuild(&mark(), &words), Some(RebuildVerdict::Done));
    assert!(host.new_file().exists());
    drop(input);
    child.wait().unwrap();
    assert!(!host.new_file().exists());
}

#[test]
fn link_that_has_the_name_of_the_new_file_is_replaced_and_not_followed() {
    if !has_python() {
        return;
    }
    let (old, new) = moved();
    let (host, whole) = sent(&old, &new);
    let precious = host.home.path().join("precious");
    fs::write(&precious, "mine").unwrap();
    std::os::unix::fs::symlink(&precious, host.new_file()).unwrap();
    assert_eq!(
        host.verdict(&whole, Link::Stands),
        Some(RebuildVerdict::Done)
    );
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
}

fn run(script: &str, home: &Path, path: Option<&Path>) -> Vec<u8> {
    let output = begin(script, home, path).wait_with_output();
    output.unwrap().stdout
}

#[test]
fn parts_of_a_file_are_hashed_with_what_the_host_has() {
    let home = tempfile::tempdir().unwrap();
    let content = noise(RANGE_BYTES as usize + 5000, 1);
    let path = home.path().join("part");
    fs::write(&path, &content).unwrap();
    let hexadecimal = |bytes: &[u8]| -> String {
        let digest = Sha256::digest(bytes);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let (first, second) = content.split_at(RANGE_BYTES as usize);
    let expected = [hexadecimal(first), hexadecimal(second)];
    let script = range_hashes_script(b"./part", 2, &mark());
    for programs in [&[][..], &["dd", "sha256sum"], &["dd", "md5sum"], &["dd"]] {
        let folder = tempfile::tempdir().unwrap();
        for program in programs {
            let real = ["/usr/bin", "/bin"].map(|place| Path::new(place).join(program));
            let real = real.iter().find(|path| path.exists()).unwrap();
            std::os::unix::fs::symlink(real, folder.path().join(program)).unwrap();
        }
        let path = (!programs.is_empty()).then(|| folder.path());
        let found = parse_ranges(&mark(), &run(&script, home.path(), path));
        match programs.last() {
            Some(&"dd") => assert_eq!(found, None),
            Some(&"md5sum") => {
                let found = found.unwrap();
                assert_eq!((found.digest, found.hashes.len()), (RangeDigest::Md5, 2));
            }
            _ => {
                let found = found.unwrap();
                assert_eq!(found.digest, RangeDigest::Sha256);
                assert_eq!(found.hashes, expected);
            }
        }
    }
    let script = range_hashes_script(b"./none", 2, &mark());
    assert_eq!(
        parse_ranges(&mark(), &run(&script, home.path(), None)),
        None
    );
}
