//! Hashes of the parts of an unfinished file, by which it is known what is right of it.

use std::fmt::Write as _;

use super::beginning;
use crate::ids::RunToken;

/// Bytes of a part that is hashed; the last one may be shorter.
pub const RANGE_BYTES: u64 = 4 * 1024 * 1024;

/// Most parts that are hashed at once.
pub const MOST_RANGES: u64 = 40_000;

/// Hexadecimal digits of the longest hash.
const LONGEST_HASH: usize = 64;

/// What a host hashes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeDigest {
    /// SHA-256.
    Sha256,
    /// MD5, where there is nothing better. It tells what was left of our own writing, not what somebody forged.
    Md5,
}

/// The hashes of the first parts of a file, as far as they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeHashes {
    /// What they were made with.
    pub digest: RangeDigest,
    /// The hashes in lower-case hexadecimal digits, in the order of the parts.
    pub hashes: Vec<String>,
}

/// Tries what a host may have; the hash of `x` says whether it is there and works.
const HASH: &str = r#"say() { printf 'RSMCP:%s:ranges:%s\n' "$m" "$1"; }
[ -f "$file" ] && [ -r "$file" ] || { say none; exit 0; }
if [ "$(python3 -S -c 'print(3)' 2>/dev/null)" = 3 ]; then
say sha256
exec python3 -S -c '
import hashlib, os, sys
file = open(os.fsencode(sys.argv[1]), "rb", 0)
block, count = int(sys.argv[2]), int(sys.argv[3])
buffer = memoryview(bytearray(1 << 20))
for number in range(count):
    whole, left = hashlib.sha256(), block
    while left:
        got = file.readinto(buffer[:min(left, len(buffer))])
        if not got:
            break
        whole.update(buffer[:got])
        left -= got
    print(number, whole.hexdigest(), flush=True)
print("end")
' "$file" "$block" "$count"
fi
is() { case "$(printf x | "$@" 2>/dev/null)" in "$expected"*) return 0 ;; esac; return 1; }
expected=2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881 kind=sha256
if is sha256sum; then hash() { sha256sum; }
elif is shasum -a 256; then hash() { shasum -a 256; }
elif is sha256 -q; then hash() { sha256 -q; }
else
expected=9dd4e461268c8034f5c8564e155c67a6 kind=md5
if is md5sum; then hash() { md5sum; }
elif is md5 -q; then hash() { md5 -q; }
else say none; exit 0; fi
fi
say "$kind"
number=0 step=$((block / 1048576))
while [ "$number" -lt "$count" ]; do
value=$(dd if="$file" bs=1048576 skip=$((number * step)) count="$step" 2>/dev/null | hash) || exit 1
printf '%s %s\n' "$number" "${value%% *}"
number=$((number + 1))
done
echo end
exit 0
}
"#;

/// Builds the script that hashes the first `count` parts of a file with whatever the host has.
pub fn range_hashes_script(path: &[u8], count: u64, mark: &RunToken) -> String {
    let mut script = beginning(mark, &[("file", path)]);
    let _ = writeln!(
        script,
        "block={RANGE_BYTES} count={}",
        count.min(MOST_RANGES)
    );
    script.push_str(HASH);
    script
}

/// Reads the hashes, up to the first that is none; no answer where the host cannot hash or has no such file.
pub fn parse_ranges(mark: &RunToken, output: &[u8]) -> Option<RangeHashes> {
    let text = String::from_utf8_lossy(output);
    let begin = format!("RSMCP:{mark}:ranges:");
    let mut lines = text.lines();
    let digest = match lines.find_map(|line| line.split_once(&begin).map(|(_, word)| word))? {
        "sha256" => RangeDigest::Sha256,
        "md5" => RangeDigest::Md5,
        _ => return None,
    };
    let hashes = lines
        .zip(0_u64..MOST_RANGES)
        .map_while(|(line, expected)| {
            let (number, hash) = line.split_once(' ')?;
            let is_hash = hash.len() <= LONGEST_HASH
                && hash.len() >= 32
                && hash
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            (is_hash && number.parse() == Ok(expected)).then(|| hash.to_owned())
        })
        .collect();
    Some(RangeHashes { digest, hashes })
}
