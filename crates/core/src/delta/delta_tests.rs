use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::*;
use crate::ids::RunToken;
use crate::sync::Mtime;

fn mark() -> RunToken {
    RunToken::from_uuid_bytes([3; 16])
}

/// What a host would say of a file, in our own words.
fn said(old: &[u8], block: u32) -> Vec<u8> {
    said_of(old, block, "17.1000.-5")
}

fn said_of(old: &[u8], block: u32, stamp: &str) -> Vec<u8> {
    let mut said = format!("RSMCP:{}:signature:{}:{stamp}\n", mark(), old.len()).into_bytes();
    for block in old.chunks(block as usize) {
        said.extend(rolling::Sum::of(block).value().to_be_bytes());
        said.extend(&Sha256::digest(block)[..16]);
    }
    said.extend(format!("RSMCP:{}:end\n", mark()).bytes());
    said
}

fn signature(old: &[u8], block: u32) -> Signature {
    read(&said(old, block), BlockLength::short(block), 1000).unwrap()
}

fn read(said: &[u8], block: BlockLength, piece: usize) -> Result<Signature, SignatureError> {
    let mut reader = SignatureReader::new(&mark(), block);
    for piece in said.chunks(piece) {
        reader.feed(piece)?;
    }
    reader.finish()?;
    let mut signature = reader.begun().ok_or(SignatureError::NotBegun)?;
    signature.learn(&reader.take());
    Ok(signature)
}

fn delta(signature: &Signature, new: &[u8], piece: usize) -> Vec<Instruction> {
    let mut instructions = Vec::new();
    let mut matcher = Matcher::new(signature.clone());
    for piece in new.chunks(piece) {
        matcher.feed(piece, &mut |instruction| instructions.push(instruction));
    }
    matcher.finish(&mut |instruction| instructions.push(instruction));
    instructions
}

/// Carries instructions out; data comes from the new content at the place where it is due.
fn applied(old: &[u8], new: &[u8], instructions: &[Instruction]) -> Vec<u8> {
    let mut built = Vec::new();
    for instruction in instructions {
        let (source, offset, length) = match *instruction {
            Instruction::Copy { offset, length } => (old, offset, length),
            Instruction::Data { offset, length } => {
                assert_eq!(offset, built.len() as u64);
                (new, offset, length)
            }
        };
        built.extend(&source[offset as usize..(offset + length) as usize]);
    }
    built
}

fn new_bytes(instructions: &[Instruction]) -> u64 {
    let data = |instruction: &Instruction| match instruction {
        Instruction::Data { length, .. } => *length,
        Instruction::Copy { .. } => 0,
    };
    instructions.iter().map(data).sum()
}

/// Bytes without a pattern.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(next).collect()
}

#[derive(Debug, Clone)]
enum Edit {
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Move(usize, usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        (any::<usize>(), prop::collection::vec(any::<u8>(), 0..90))
            .prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (any::<usize>(), 0..120_usize).prop_map(|(at, length)| Edit::Remove(at, length)),
        (any::<usize>(), any::<usize>()).prop_map(|(from, to)| Edit::Move(from, to)),
    ];
    prop::collection::vec(edit, 0..6)
}

fn edited(old: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut new = old.to_vec();
    for edit in edits {
        let place = |at: usize, new: &[u8]| at % (new.len() + 1);
        match edit {
            Edit::Insert(at, bytes) => {
                let at = place(*at, &new);
                new.splice(at..at, bytes.iter().copied());
            }
            Edit::Remove(at, length) => {
                let at = place(*at, &new);
                let end = (at + length).min(new.len());
                new.drain(at..end);
            }
            Edit::Move(from, to) => {
                let from = place(*from, &new);
                let tail = new.split_off(from);
                let to = place(*to, &new);
                new.splice(to..to, tail);
            }
        }
    }
    new
}

proptest! {
    #[test]
    fn delta_applied_to_the_old_file_is_the_new_one(
        // Few letters, so that blocks repeat and sums collide.
        old in prop::collection::vec(0_u8..3, 0..900),
        edits in edits(), block in 1_u32..70, piece in 1_usize..200,
    ) {
        let new = edited(&old, &edits);
        let instructions = delta(&signature(&old, block), &new, piece);
        prop_assert!(applied(&old, &new, &instructions) == new);
    }

    #[test]
    fn blocks_that_become_known_on_the_way_are_used_and_never_harm(
        old in prop::collection::vec(0_u8..4, 0..800),
        edits in edits(),
        pieces in prop::collection::vec((0_usize..9, 1_usize..60), 1..40),
    ) {
        let new = edited(&old, &edits);
        let whole = said(&old, 16);
        let mut reader = SignatureReader::new(&mark(), BlockLength::short(16));
        reader.feed(&whole).unwrap();
        let (mut blocks, mut content) = (reader.take().into_iter(), new.as_slice());
        let mut matcher = Matcher::new(reader.begun().unwrap());
        let mut instructions = Vec::new();
        let mut tell = |instruction| instructions.push(instruction);
        for (told, read) in pieces.into_iter().cycle().take(2000) {
            let told: Vec<_> = blocks.by_ref().take(told).collect();
            matcher.learn(&told);
            let (piece, rest) = content.split_at(read.min(content.len()));
            matcher.feed(piece, &mut tell);
            content = rest;
        }
        matcher.feed(content, &mut tell);
        matcher.learn(&blocks.collect::<Vec<_>>());
        prop_assert!(matcher.signature().is_complete());
        matcher.finish(&mut tell);
        prop_assert_eq!(applied(&old, &new, &instructions), new);
    }

    #[test]
    fn signature_reader_takes_anything_without_harm(
        noise in prop::collection::vec(any::<u8>(), 0..300), old in prop::collection::vec(any::<u8>(), 0..300),
        cut in any::<usize>(), piece in 1_usize..50,
    ) {
        let mut said = said(&old, 16);
        said.truncate(cut % (said.len() + 1));
        said.extend(noise);
        if let Ok(signature) = read(&said, BlockLength::short(16), piece) {
            prop_assert_eq!(signature.size_bytes(), old.len() as u64);
        }
        let _ = parse_apply(&mark(), &said);
        let _ = parse_ranges(&mark(), &said);
    }
}

#[test]
fn insertion_and_deletion_cost_no_more_than_the_blocks_they_touch() {
    let old = noise(400_000, 1);
    let mut new = old.clone();
    new.splice(100_000..100_000, noise(104, 2));
    new.drain(300_000..300_050);
    let instructions = delta(&signature(&old, 1024), &new, 10_000);
    assert!(applied(&old, &new, &instructions) == new);
    assert!(
        new_bytes(&instructions) < 104 + 3 * 1024,
        "{instructions:?}"
    );
    assert!(instructions.len() <= 5, "{instructions:?}");
}

#[test]
fn equal_files_are_one_copy_and_foreign_ones_one_piece_of_data() {
    let old = noise(50_100, 1);
    let signature = signature(&old, 4096);
    assert_eq!(
        delta(&signature, &old, 999),
        [Instruction::Copy {
            offset: 0,
            length: 50_100
        }]
    );
    let foreign = noise(60_000, 2);
    assert_eq!(
        delta(&signature, &foreign, 999),
        [Instruction::Data {
            offset: 0,
            length: 60_000
        }]
    );
    assert_eq!(delta(&signature, &[], 1), []);
}

#[test]
fn file_of_equal_blocks_is_searched_without_delay() {
    let old = vec![0; 4_000_000];
    let signature = signature(&old, 64);
    let mut new = old.clone();
    new[2_000_001] = 1;
    let instructions = delta(&signature, &new, 65_536);
    assert!(applied(&old, &new, &instructions) == new);
    assert!(new_bytes(&instructions) <= 128, "{instructions:?}");
}

#[test]
fn block_length_follows_the_size_and_ends_with_it() {
    let bytes = |size| BlockLength::for_size(size).map(BlockLength::bytes);
    assert_eq!(bytes(8 << 20), Some(4096));
    assert_eq!(bytes(256 << 20), Some(16 * 1024));
    let large = bytes(1 << 40).unwrap();
    assert!((1_u64 << 40).div_ceil(u64::from(large)) <= MOST_BLOCKS);
    assert_eq!(bytes(1 << 50), None);
}

#[test]
fn signature_is_refused_when_it_lies_or_breaks_off() {
    let block = BlockLength::short(16);
    let whole = said(&noise(100, 1), 16);
    assert!(read(&whole, block, 7).is_ok());
    let shorter = &whole[..whole.len() - 1];
    assert_eq!(
        read(shorter, block, 7).unwrap_err(),
        SignatureError::BrokenOff
    );
    let longer = [whole.as_slice(), b"x"].concat();
    assert_eq!(
        read(&longer, block, 7).unwrap_err(),
        SignatureError::BrokenOff
    );
    let lie = format!("RSMCP:{}:signature:{}:1.2.3\n", mark(), u64::MAX);
    let error = read(lie.as_bytes(), block, 7).unwrap_err();
    assert_eq!(error, SignatureError::TooLarge(u64::MAX));
    let long = format!("5:{}", "1".repeat(81));
    for words in ["none", "5", "5:", "5:a b", "x:1.2.3", &long] {
        let none = format!("RSMCP:{}:signature:{words}\n", mark());
        assert_eq!(
            read(none.as_bytes(), block, 7).unwrap_err(),
            SignatureError::NoFile,
            "{words}"
        );
    }
    let talk = vec![b'x'; MOST_NOISE + 1];
    assert_eq!(
        read(&talk, block, 9999).unwrap_err(),
        SignatureError::NotBegun
    );
}

/// Runs a script as `sh -c`, in another home, with the given input.
fn run(script: &str, home: &Path, path: Option<&Path>, input: &[u8]) -> Vec<u8> {
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg(script)
        .env("HOME", home)
        .current_dir("/");
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to_child = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || drop(to_child.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output.stdout
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

#[test]
fn host_tells_the_blocks_of_a_file() {
    if !has_python() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let old = noise(100_000, 1);
    let path = home.path().join(std::ffi::OsStr::from_bytes(ODD_NAME));
    fs::write(&path, &old).unwrap();
    let block = BlockLength::for_size(100_000).unwrap();
    let relative = [b"./", ODD_NAME].concat();
    for name in [path.as_os_str().as_bytes(), &relative] {
        let output = run(
            &signature_script(name, block, &mark()),
            home.path(),
            None,
            b"",
        );
        assert!(output == said_of(&old, block.bytes(), &stamp_of(&path)));
    }
    // Longer than what is read at once, and not a whole number of it.
    let old = noise(9_000_001, 2);
    fs::write(&path, &old).unwrap();
    let block = BlockLength::for_size(9_000_001).unwrap();
    let script = signature_script(&relative, block, &mark());
    let output = run(&script, home.path(), None, b"");
    assert!(output == said_of(&old, block.bytes(), &stamp_of(&path)));
    // What may never answer is not opened.
    let pipe = home.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let script = signature_script(pipe.as_os_str().as_bytes(), block, &mark());
    let output = run(&script, home.path(), None, b"");
    assert_eq!(read(&output, block, 7).unwrap_err(), SignatureError::NoFile);
}

fn frames(new: &[u8], instructions: &[Instruction]) -> Vec<u8> {
    let mut frames = Vec::new();
    for instruction in instructions {
        match *instruction {
            Instruction::Copy { offset, length } => frames.extend(copy_frame(offset, length)),
            Instruction::Data { offset, length } => {
                frames.extend(data_head(length as u32));
                frames.extend(&new[offset as usize..(offset + length) as usize]);
            }
        }
    }
    frames
}

#[test]
fn host_builds_the_new_file_and_checks_it() {
    if !has_python() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let old = noise(3_000_000, 1);
    let mut new = old.clone();
    new.splice(1_000_000..1_000_100, noise(333, 2));
    let old_path = home.path().join("old");
    let new_path = home.path().join(std::ffi::OsStr::from_bytes(ODD_NAME));
    fs::write(&old_path, &old).unwrap();
    let request = ApplyRequest {
        old: b"./old",
        new: new_path.as_os_str().as_bytes(),
        size_bytes: new.len() as u64,
        mode: 0o751,
        mtime: Mtime::exact(1_000_000_007, 123_456_789).unwrap(),
    };
    let block = BlockLength::short(4096);
    let signed = || read(&said_of(&old, 4096, &stamp_of(&old_path)), block, 1000).unwrap();
    let signature = signed();
    let instructions = delta(&signature, &new, 65_536);
    let frames = frames(&new, &instructions);
    let mut sum = Checksum::new();
    sum.update(&new);
    let whole = [frames.as_slice(), &end_frame(&sum, signature.stamp())].concat();
    let verdict = |input: &[u8]| {
        let output = run(&apply_script(&request, &mark()), home.path(), None, input);
        parse_apply(&mark(), &output)
    };
    assert_eq!(verdict(&whole), Some(ApplyVerdict::Done));
    assert!(fs::read(&new_path).unwrap() == new);
    let found = fs::metadata(&new_path).unwrap();
    assert_eq!(found.permissions().mode() & 0o7777, 0o751);
    assert_eq!(
        (found.mtime(), found.mtime_nsec()),
        (1_000_000_007, 123_456_789)
    );
    // Whatever goes wrong, nothing is left under the name.
    assert_eq!(verdict(&frames), Some(ApplyVerdict::CutOff));
    assert!(!new_path.exists());
    let wrong = end_frame(&Checksum::new(), signature.stamp());
    let wrong = [frames.as_slice(), &wrong].concat();
    assert_eq!(verdict(&wrong), Some(ApplyVerdict::OtherContent));
    // Somebody wrote into the old file, and set its time back.
    let before = fs::metadata(&old_path).unwrap().modified().unwrap();
    fs::write(&old_path, &old).unwrap();
    let file = fs::File::options().write(true).open(&old_path).unwrap();
    file.set_modified(before).unwrap();
    assert_eq!(verdict(&whole), Some(ApplyVerdict::OtherContent));
    let whole = [frames.as_slice(), &end_frame(&sum, signed().stamp())].concat();
    let beyond = copy_frame(2_999_000, 5000);
    assert_eq!(verdict(&beyond), Some(ApplyVerdict::NoOld));
    let endless = [copy_frame(0, 3_000_000), copy_frame(0, 3_000_000)].concat();
    assert_eq!(verdict(&endless), Some(ApplyVerdict::OtherContent));
    assert!(!new_path.exists());
    // A link that somebody put there is replaced, not followed.
    let precious = home.path().join("precious");
    fs::write(&precious, "mine").unwrap();
    std::os::unix::fs::symlink(&precious, &new_path).unwrap();
    assert_eq!(verdict(&whole), Some(ApplyVerdict::Done));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    fs::remove_file(&old_path).unwrap();
    assert_eq!(verdict(&whole), Some(ApplyVerdict::NoOld));
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
        let found = parse_ranges(&mark(), &run(&script, home.path(), path, b""));
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
        parse_ranges(&mark(), &run(&script, home.path(), None, b"")),
        None
    );
}
