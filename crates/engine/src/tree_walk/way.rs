//! How one came into a directory through links, by which a circle is known.

use std::sync::Arc;

use remote_sandbox_core::sync::RelPath;

/// The real directories that were gone through, from the last link on and before it.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// Where it begins, without links; nothing stands for `/`.
    real: Vec<u8>,
    /// How long the path below the root is there; none is the root.
    begins: Option<usize>,
    /// The way before the link, and the real directory that the link lies in.
    before: Option<(Arc<Way>, Vec<u8>)>,
}

impl Way {
    /// One that begins at the root.
    pub(super) fn from_root(location: &[u8]) -> Self {
        Way {
            real: without_slash(location),
            begins: None,
            before: None,
        }
    }

    /// The way behind a link that leads to this real directory; none when one has come through that already.
    pub(super) fn behind(way: &Arc<Way>, link: &RelPath, real: &[u8]) -> Option<Way> {
        let real = without_slash(real);
        let here = way.real_of(link.parent_bytes());
        if way.leads_through(&real, &here) {
            return None;
        }
        Some(Way {
            real,
            begins: Some(link.as_bytes().len()),
            before: Some((way.clone(), here)),
        })
    }

    /// Where a directory on this way really lies.
    fn real_of(&self, path: Option<&[u8]>) -> Vec<u8> {
        let (Some(path), slash) = (path, b"/".as_slice()) else {
            return self.real.clone();
        };
        match self.begins {
            None => [&self.real, slash, path].concat(),
            Some(begins) => [&self.real, path.get(begins..).unwrap_or_default()].concat(),
        }
    }

    /// Whether a real directory was gone through on the way to another one.
    fn leads_through(&self, real: &[u8], last: &[u8]) -> bool {
        let (mut way, mut last) = (self, last);
        loop {
            if is_within(real, &way.real) && is_within(last, real) {
                return true;
            }
            match &way.before {
                Some((before, left)) => (way, last) = (before, left),
                None => return false,
            }
        }
    }
}

fn without_slash(path: &[u8]) -> Vec<u8> {
    path.strip_suffix(b"/").unwrap_or(path).to_vec()
}

fn is_within(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn link_to_a_directory_above_is_a_circle_and_one_aside_is_not() {
        let root = Arc::new(Way::from_root(b"/r"));
        for back in ["/r", "/r/", "/r/a", "/r/a/b"] {
            assert!(Way::behind(&root, &path("a/b/link"), back.as_bytes()).is_none());
        }
        for aside in ["/", "/r/a/b/c", "/r/a/bb", "/x", "/rr"] {
            let way = Way::behind(&root, &path("a/b/link"), aside.as_bytes());
            assert!(way.is_some(), "{aside}");
        }
        let top = Arc::new(Way::from_root(b"/"));
        assert!(Way::behind(&top, &path("a/link"), b"/").is_none());
        assert!(Way::behind(&top, &path("a/link"), b"/a").is_none());
    }

    #[test]
    fn circle_over_two_links_is_known() {
        let root = Arc::new(Way::from_root(b"/r"));
        let first = Way::behind(&root, &path("a/one"), b"/x").unwrap();
        let first = Arc::new(first);
        // In `a/one/d`, which is `/x/d`, links lead on.
        let behind = |real: &[u8]| Way::behind(&first, &path("a/one/d/two"), real);
        assert!(behind(b"/x").is_none() && behind(b"/x/d").is_none());
        assert!(behind(b"/r").is_none() && behind(b"/r/a").is_none());
        assert!(behind(b"/r/b").is_some() && behind(b"/x/e").is_some());
        let second = Arc::new(behind(b"/r/b").unwrap());
        assert!(Way::behind(&second, &path("a/one/d/two/l"), b"/x/d").is_none());
        assert!(Way::behind(&second, &path("a/one/d/two/l"), b"/r/b").is_none());
        assert!(Way::behind(&second, &path("a/one/d/two/l"), b"/r/c").is_some());
    }
}
