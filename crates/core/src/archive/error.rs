//! What can be wrong with an archive.

use super::read::MOST_EXTENSIONS;
use crate::sync::path::PathError;

/// Why an archive cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// The checksum of a header is wrong, so this is no archive or a damaged one.
    #[error("the archive has a header with a wrong checksum")]
    Checksum,
    /// A number in a header makes no sense.
    #[error("the archive has an entry `{shown}` with a wrong {field}")]
    Number {
        /// The name of the entry, escaped.
        shown: String,
        /// Which number.
        field: &'static str,
    },
    /// A name leads out of the target, or is none.
    #[error("the archive has an entry that is refused")]
    Path(#[from] PathError),
    /// A link says nothing, or too much.
    #[error("the link `{shown}` in the archive has a wrong target")]
    LinkTarget {
        /// The name of the link, escaped.
        shown: String,
    },
    /// An extension is larger than any real one.
    #[error("the archive has an extension of {size_bytes} bytes")]
    ExtensionTooLarge {
        /// What it says about its size.
        size_bytes: u64,
    },
    /// Extensions follow each other without an entry.
    #[error("the archive has more than {MOST_EXTENSIONS} extensions before one entry")]
    TooManyExtensions,
    /// A pax extension makes no sense.
    #[error("the archive has a pax extension that cannot be understood")]
    Pax,
    /// The file is stored as a map of its holes.
    #[error("the archive has a sparse entry, which is not supported")]
    Sparse,
    /// The entry is of a kind this program has no use for.
    #[error("the archive has an entry `{shown}` of the unknown type {letter:#04x}")]
    UnknownType {
        /// The name of the entry, escaped.
        shown: String,
        /// The type.
        letter: u8,
    },
    /// Something that is no file has content.
    #[error("the archive has content for `{shown}`, which is no file")]
    UnexpectedContent {
        /// The name of the entry, escaped.
        shown: String,
    },
    /// The root of the archive would become something else.
    #[error("the archive has its root as something that is no directory")]
    RootNotDirectory,
    /// The archive stops in the middle.
    #[error("the archive breaks off before its end")]
    BrokenOff,
}
