//! The `.gitignore` files of a tree that is not on this machine.

use std::fmt::Write as _;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sync::ignore::MOST_GITIGNORE_BYTES;
use remote_sandbox_core::sync::scan::Scanner;
use remote_sandbox_core::sync::{Filter, RelPath};

use super::far::Far;
use super::far_files;
use crate::listing::Listing;
use crate::mark::new_mark;

/// The file with rules of a directory.
const NAME: &[u8] = b".gitignore";

/// More of them than this is no project.
const MOST_FILES: usize = 2000;

/// Reads them in one go and adds their rules, those of outer directories first.
pub(super) async fn collect(
    far: &Far<'_>,
    entries: &Listing,
    filter: &mut Filter,
) -> Result<(), Failure> {
    let files = entries
        .iter()
        .filter(|entry| entry.kind.is_file() && entry.path.name() == NAME);
    let files: Vec<RelPath> = files.map(|entry| entry.path).take(MOST_FILES + 1).collect();
    if files.len() > MOST_FILES {
        let text = format!("there are more than {MOST_FILES} .gitignore files");
        return Err(far
            .failure(Code::Unsupported, &text)
            .hint("call again without use_gitignore, and with excludes"));
    }
    if files.is_empty() {
        return Ok(());
    }
    let parts = match far.scanner {
        Scanner::Files => far_files::read(far, &files, MOST_GITIGNORE_BYTES).await?,
        _ => read(far, &files).await?,
    };
    let mut parts = parts.into_iter();
    for path in &files {
        let Some(rules) = parts.next() else {
            let text = format!(
                "`{}` could not be read whole, or is larger than {MOST_GITIGNORE_BYTES} bytes",
                path.shown()
            );
            return Err(far
                .failure(Code::RemoteRefused, &text)
                .hint("call again without use_gitignore"));
        };
        let directory = path.parent();
        let added = filter.add_gitignore(directory.as_ref(), &rules);
        added.map_err(|error| far.failure(Code::InvalidParams, &Failure::chain(&error)))?;
    }
    Ok(())
}

/// The content of the files, up to the first that cannot be read.
async fn read(far: &Far<'_>, files: &[RelPath]) -> Result<Vec<Vec<u8>>, Failure> {
    let list = remote_sandbox_core::sync::chores::path_list(files.iter());
    let mark = new_mark();
    let (said, _) = far.converse(&script(far, &mark), &list).await?;
    let border = format!("RSMCP:{mark}:next\n").into_bytes();
    Ok(split(&said, &border).map(<[u8]>::to_vec).collect())
}

fn script(far: &Far<'_>, mark: &remote_sandbox_core::ids::RunToken) -> String {
    let mut script = remote_sandbox_core::sync::chores::enter(&far.root, mark);
    let _ = writeln!(
        script,
        "xargs -0 sh -c 'for f; do [ -r \"$f\" ] && [ \"$(wc -c <\"$f\")\" -le {MOST_GITIGNORE_BYTES} ] || exit 255; cat \"$f\"; printf \"RSMCP:{mark}:next\\n\"; done' sh"
    );
    script
}

/// The parts before each border.
fn split<'a>(bytes: &'a [u8], border: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let at = rest
            .windows(border.len())
            .position(|window| window == border)?;
        let part = rest.get(..at)?;
        rest = rest.get(at + border.len()..)?;
        Some(part)
    })
}
