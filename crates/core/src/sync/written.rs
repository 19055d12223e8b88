//! A path as a caller wrote it, of this machine or of a sandbox: any bytes.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::path::{Shown, shown};

/// A path as it was written, before anybody has looked what it means.
///
/// In a record it is text where it is text, as it always was, else a list of its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct WrittenPath(Vec<u8>);

impl WrittenPath {
    /// The bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same path where relative ones begin in the home: `x` for `~/x` and `./x`.
    pub fn from_home(&self) -> WrittenPath {
        let mut rest = self.0.strip_prefix(b"~/").unwrap_or(&self.0);
        while let Some(shorter) = rest.strip_prefix(b"./").or(rest.strip_prefix(b"/")) {
            if self.0.starts_with(b"/") {
                break;
            }
            rest = shorter;
        }
        // Nothing at all, and the home of somebody else, mean something else.
        match rest.first() {
            None | Some(b'~') => self.clone(),
            Some(_) => WrittenPath::from(rest),
        }
    }

    /// The path as text for a reader.
    pub fn shown(&self) -> Shown {
        shown(&self.0)
    }

    /// The bytes without slashes at the end, for those to whom they mean nothing.
    pub fn without_end_slashes(&self) -> &[u8] {
        let length = self.0.iter().rposition(|byte| *byte != b'/');
        self.0
            .get(..length.map_or(0, |last| last + 1))
            .unwrap_or_default()
    }
}

impl From<&str> for WrittenPath {
    fn from(text: &str) -> Self {
        WrittenPath(text.as_bytes().to_vec())
    }
}

impl From<String> for WrittenPath {
    fn from(text: String) -> Self {
        WrittenPath(text.into_bytes())
    }
}

impl From<&[u8]> for WrittenPath {
    fn from(bytes: &[u8]) -> Self {
        WrittenPath(bytes.to_vec())
    }
}

impl fmt::Debug for WrittenPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "WrittenPath({})", self.shown())
    }
}

impl Serialize for WrittenPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => self.0.serialize(serializer),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Record {
    Text(String),
    Bytes(Vec<u8>),
}

impl<'de> Deserialize<'de> for WrittenPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Record::deserialize(deserializer)? {
            Record::Text(text) => WrittenPath::from(text),
            Record::Bytes(bytes) => WrittenPath(bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_path_comes_back_from_a_record_whatever_its_bytes_are() {
        for (bytes, record) in [
            (b"~/a b".as_slice(), r#""~/a b""#),
            (b"", r#""""#),
            (b"/x\xff", "[47,120,255]"),
        ] {
            let path = WrittenPath::from(bytes);
            assert_eq!(serde_json::to_string(&path).unwrap(), record);
            let back: WrittenPath = serde_json::from_str(record).unwrap();
            assert_eq!(back, path);
        }
        assert!(serde_json::from_str::<WrittenPath>("[47,300]").is_err());
    }

    #[test]
    fn slashes_at_the_end_can_be_left_out() {
        for (written, rest) in [("a//", "a"), ("/a/b", "/a/b"), ("/", ""), ("", "")] {
            let path = WrittenPath::from(written);
            assert_eq!(path.without_end_slashes(), rest.as_bytes());
        }
    }

    #[test]
    fn path_in_the_home_has_one_spelling() {
        let plain = |text: &str| WrittenPath::from(text).from_home().shown().text;
        for same in ["b", "~/b", "./b", "~/./b", "~//b"] {
            assert_eq!(plain(same), "b", "{same}");
        }
        for other in ["~", "~/", "/b", "//b", "./~b", ".", "~user/b", "b/"] {
            assert_eq!(plain(other), other);
        }
    }
}
