//! Words in a log that somebody should hear of at once.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder};
use serde::{Deserialize, Serialize};

/// What may be wrong with a task that still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Alarm {
    /// Memory ran out, on the host or on a GPU.
    OutOfMemory,
    /// The loss of a training is not a number.
    NanLoss,
    /// A disk, or the user's share of it, is full.
    DiskFull,
    /// A GPU or its library failed.
    GpuError,
    /// The log grows past its bound, and the file system gives nothing back.
    LogUnbounded,
    /// The checkpoint is there but cannot be read.
    CheckpointUnreadable,
    /// What the host has written down about the task cannot be used.
    RecordUnreadable,
    /// Looks come to another host, which shares its home with that of the task.
    OtherNode,
    /// The watchdog itself cannot look at the task, whatever its host does.
    NotLookedAt,
}

impl Alarm {
    /// What is said about it.
    pub fn sentence(self) -> &'static str {
        match self {
            Alarm::OutOfMemory => "the log tells of memory that ran out",
            Alarm::NanLoss => "the log tells of a loss that is not a number",
            Alarm::DiskFull => "the log tells of a full disk",
            Alarm::GpuError => "the log tells of an error of a GPU",
            Alarm::LogUnbounded => {
                "the log grows past max_log_bytes and its middle cannot be given back"
            }
            Alarm::CheckpointUnreadable => "the checkpoint cannot be read",
            Alarm::RecordUnreadable => "the records of the task on the host cannot be used",
            Alarm::OtherNode => {
                "looks come to another node with the same home, which sees none of its processes"
            }
            Alarm::NotLookedAt => "the watchdog cannot look at the task",
        }
    }
}

const WORDS: [(&str, Alarm); 22] = [
    ("out of memory", Alarm::OutOfMemory),
    ("outofmemory", Alarm::OutOfMemory),
    ("cannot allocate memory", Alarm::OutOfMemory),
    ("memoryerror", Alarm::OutOfMemory),
    ("std::bad_alloc", Alarm::OutOfMemory),
    ("oom-kill", Alarm::OutOfMemory),
    ("oom_kill", Alarm::OutOfMemory),
    ("no space left on device", Alarm::DiskFull),
    ("disk quota exceeded", Alarm::DiskFull),
    ("enospc", Alarm::DiskFull),
    ("cuda error", Alarm::GpuError),
    ("cuda runtime error", Alarm::GpuError),
    ("cudnn_status_", Alarm::GpuError),
    ("cudnn error", Alarm::GpuError),
    ("cublas_status_", Alarm::GpuError),
    ("cublas error", Alarm::GpuError),
    ("nccl error", Alarm::GpuError),
    ("device-side assert", Alarm::GpuError),
    ("hip error", Alarm::GpuError),
    ("uncorrectable ecc error", Alarm::GpuError),
    ("npu error", Alarm::GpuError),
    ("nan loss", Alarm::NanLoss),
];

static FINDER: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let mut builder = AhoCorasickBuilder::new();
    builder.ascii_case_insensitive(true);
    builder.build(WORDS.map(|(word, _)| word)).ok()
});

/// The alarms in a piece of a log, each once, in a fixed order. A piece should be made of whole lines.
pub fn alarms_in(text: &[u8]) -> Vec<Alarm> {
    let mut found: Vec<Alarm> = Vec::new();
    if let Some(finder) = &*FINDER {
        for hit in finder.find_overlapping_iter(text) {
            let word = WORDS.get(hit.pattern().as_usize());
            // CUDA_ERROR_... is a name; "cuda error" stands on its own. Words must not be parts of longer ones in front.
            let before = hit.start().checked_sub(1).and_then(|at| text.get(at));
            let begins_a_word = before.is_none_or(|byte| !byte.is_ascii_lowercase());
            if let Some((_, alarm)) = word
                && begins_a_word
                && !found.contains(alarm)
            {
                found.push(*alarm);
            }
        }
    }
    if !found.contains(&Alarm::NanLoss) && text.split(|byte| *byte == b'\n').any(tells_nan_loss) {
        found.push(Alarm::NanLoss);
    }
    found.sort();
    found
}

/// The extended regular expression by which a host finds what [`alarms_in`] judges: every word with the byte before it, and a
/// loss that is not a number with the byte after it.
pub(super) fn alarm_pattern() -> String {
    let words = WORDS.map(|(word, _)| word).join("|");
    format!(".?({words}|loss[^[:alnum:]]{{1,8}}(is )?nan.?)")
}

/// Whether a line gives `nan` as the value of a loss, such as `loss: nan`, `train_loss=NaN` or `"loss": NaN,`.
fn tells_nan_loss(line: &[u8]) -> bool {
    let lower = line.to_ascii_lowercase();
    let mut rest = lower.as_slice();
    while let Some(at) = rest.windows(4).position(|window| window == b"loss") {
        rest = rest.get(at + 4..).unwrap_or_default();
        let gap = rest
            .iter()
            .take_while(|byte| !byte.is_ascii_alphanumeric())
            .count();
        let value = rest.get(gap..).unwrap_or_default();
        let value = value.strip_prefix(b"is ").unwrap_or(value);
        let is_nan = value.starts_with(b"nan")
            && !value
                .get(3)
                .is_some_and(|next| next.is_ascii_alphanumeric() || *next == b'_');
        if gap > 0 && gap <= 8 && is_nan {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", &[Alarm::OutOfMemory])]
    #[case("MemoryError", &[Alarm::OutOfMemory])]
    #[case("bash: fork: Cannot allocate memory", &[Alarm::OutOfMemory])]
    #[case("OSError: [Errno 28] No space left on device", &[Alarm::DiskFull])]
    #[case("RuntimeError: CUDA error: device-side assert triggered", &[Alarm::GpuError])]
    #[case("CUDNN_STATUS_EXECUTION_FAILED", &[Alarm::GpuError])]
    #[case("step 10 loss: nan lr 0.1", &[Alarm::NanLoss])]
    #[case("{\"train_loss\": NaN}", &[Alarm::NanLoss])]
    #[case("loss is nan", &[Alarm::NanLoss])]
    #[case("loss=0.31 name=nancy", &[])]
    #[case("loss: nano", &[])]
    #[case("lossless nan", &[])]
    #[case("epoch 3 loss 0.2", &[])]
    #[case("downloading nan.csv", &[])]
    fn alarms_are_heard_and_plain_words_are_not(#[case] line: &str, #[case] alarms: &[Alarm]) {
        assert_eq!(alarms_in(line.as_bytes()), alarms);
    }

    #[test]
    fn alarm_is_heard_once_however_often_it_stands() {
        let text = "No space left on device\n".repeat(100) + "loss: nan\nloss: nan\n";
        assert_eq!(
            alarms_in(text.as_bytes()),
            [Alarm::NanLoss, Alarm::DiskFull]
        );
    }

    proptest! {
        #[test]
        fn alarms_survive_anything(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = alarms_in(&bytes);
        }
    }
}
