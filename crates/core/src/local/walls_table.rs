//! The table of walls for the documents.

use std::fmt::Write as _;

use super::{Level, Wall, walls};

/// A Landlock that can do all that is made use of.
const NEW_LANDLOCK: u32 = u32::MAX;

/// The oldest Landlock that counts as a wall.
const OLD_LANDLOCK: u32 = 3;

/// Each level with a new kernel and with an old one.
const LEVELS: [(Level, Level); 4] = [
    (
        Level::Bubblewrap {
            landlock: NEW_LANDLOCK,
        },
        Level::Bubblewrap {
            landlock: OLD_LANDLOCK,
        },
    ),
    (
        Level::Landlock {
            landlock: NEW_LANDLOCK,
        },
        Level::Landlock {
            landlock: OLD_LANDLOCK,
        },
    ),
    (Level::Seatbelt, Level::Seatbelt),
    (Level::None, Level::None),
];

/// What each level keeps apart, as a table in Markdown.
pub fn walls_table() -> String {
    let columns: Vec<(Vec<Wall>, Vec<Wall>)> = LEVELS
        .iter()
        .map(|(new, old)| (walls(*new), walls(*old)))
        .collect();
    let mut page = String::from("| kept apart |");
    for (level, _) in LEVELS {
        let _ = write!(page, " `{}` |", level.word());
    }
    let _ = writeln!(page, "\n|---|{}", "---|".repeat(LEVELS.len()));
    for row in walls(Level::None) {
        let _ = write!(page, "| {} |", row.name.words());
        for (new, old) in &columns {
            let of = |walls: &[Wall]| walls.iter().copied().find(|wall| wall.name == row.name);
            let _ = write!(page, " {} |", cell(of(new), of(old)));
        }
        page.push('\n');
    }
    page
}

fn cell(new: Option<Wall>, old: Option<Wall>) -> String {
    let words = |wall: Wall| match wall.holds {
        true => format!("yes: {}", wall.note),
        false => format!("**no**: {}", wall.note),
    };
    match (new, old) {
        (Some(new), Some(old)) if new != old => {
            format!("{}. Older kernels: {}", words(new), words(old))
        }
        (Some(new), _) => words(new),
        (None, _) => "**no**".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const BEGIN: &str =
        "<!-- walls: made from the code, see UPDATE_REFERENCE in CONTRIBUTING.md -->\n\n";
    const END: &str = "\n<!-- end of walls -->";

    #[test]
    fn table_has_a_row_for_every_wall_and_tells_old_kernels_apart() {
        let table = walls_table();
        assert_eq!(table.lines().count(), 2 + walls(Level::None).len());
        assert!(
            table.starts_with("| kept apart | `bubblewrap` | `landlock` | `seatbelt` | `none` |\n")
        );
        assert!(
            table.lines().all(|line| line.matches('|').count() == 6),
            "{table}"
        );
        let signals = table.lines().find(|line| line.contains("signals to"));
        assert!(
            signals
                .unwrap()
                .contains("yes: refused. Older kernels: **no**")
        );
        let disk = table.lines().last().unwrap();
        assert_eq!(disk.matches("**no**").count(), 4, "{disk}");
    }

    #[test]
    fn page_about_local_sandboxes_has_the_table_of_the_code() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/concepts/local-sandbox.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = page.split_once(BEGIN).expect("the mark before the table");
        let (found, after) = rest.split_once(END).expect("the mark after the table");
        let wanted = walls_table();
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(&path, format!("{before}{BEGIN}{wanted}{END}{after}")).unwrap();
            return;
        }
        assert_eq!(
            found, wanted,
            "write it anew: UPDATE_REFERENCE=1 cargo test walls"
        );
    }
}
