//! The first line of a server: which program it is, and how old.

use super::{Step, StepName};
use crate::output::clean_line;

/// The first OpenSSH release of each year.
const OPENSSH_YEARS: [((u32, u32), u32); 18] = [
    ((5, 0), 2008),
    ((5, 2), 2009),
    ((5, 4), 2010),
    ((5, 7), 2011),
    ((6, 0), 2012),
    ((6, 2), 2013),
    ((6, 5), 2014),
    ((6, 8), 2015),
    ((7, 2), 2016),
    ((7, 5), 2017),
    ((7, 7), 2018),
    ((8, 0), 2019),
    ((8, 2), 2020),
    ((8, 5), 2021),
    ((8, 9), 2022),
    ((9, 2), 2023),
    ((9, 7), 2024),
    ((10, 0), 2025),
];

/// The newest OpenSSH release in the table; of later ones the year is not known here.
const NEWEST_OPENSSH: (u32, u32) = (10, 2);

/// What releases before the named one cannot do.
const OPENSSH_LACKS: [((u32, u32), &str); 3] = [
    (
        (6, 5),
        "no Ed25519 keys, no RSA signatures with SHA-2 and none of the key exchanges in use today",
    ),
    (
        (7, 2),
        "no RSA signatures with SHA-2, so that RSA keys are of no use: log in with Ed25519 or ECDSA",
    ),
    ((8, 2), "no keys on security tokens (FIDO)"),
];

/// The same for Dropbear, whose releases are counted by year.
const DROPBEAR_LACKS: [((u32, u32), &str); 3] = [
    ((2013, 61), "no elliptic curves at all"),
    (
        (2020, 79),
        "no Ed25519 keys and no RSA signatures with SHA-2: log in with ECDSA",
    ),
    ((2022, 82), "no keys on security tokens (FIDO)"),
];

const UPGRADE: &str = "upgrade the SSH server of the host";

/// Says which server a banner tells of, when it was released, and what it lacks.
pub fn judge_banner(banner: &str) -> Step {
    let shown = clean_line(banner.trim_end(), 200);
    let software = banner.splitn(3, '-').nth(2).unwrap_or_default();
    let (released, lacks) = if let Some(rest) = software.strip_prefix("OpenSSH_") {
        let rest = rest.strip_prefix("for_Windows_").unwrap_or(rest);
        let version = version(rest);
        (
            version.and_then(openssh_release),
            version.and_then(|version| first_above(&OPENSSH_LACKS, version)),
        )
    } else if let Some(rest) = software.strip_prefix("dropbear_") {
        let version = version(rest);
        (
            version.map(|(year, _)| match year {
                ..2011 => "released before 2011".to_owned(),
                _ => format!("released in {year}"),
            }),
            version.and_then(|version| first_above(&DROPBEAR_LACKS, version)),
        )
    } else {
        (None, None)
    };
    let released = released.map_or_else(String::new, |released| format!(", {released}"));
    match lacks {
        Some(lacks) => Step::warning(
            StepName::Banner,
            &format!("{shown}{released}: old, {lacks}"),
            UPGRADE,
        ),
        None => Step::ok(StepName::Banner, &format!("{shown}{released}")),
    }
}

fn openssh_release(version: (u32, u32)) -> Option<String> {
    if version > NEWEST_OPENSSH {
        return Some("released after 2025-10".to_owned());
    }
    let newest_first = OPENSSH_YEARS.iter().rev();
    let year = newest_first
        .into_iter()
        .find(|(first, _)| *first <= version)
        .map(|(_, year)| format!("released in {year}"));
    Some(year.unwrap_or_else(|| "released before 2008".to_owned()))
}

fn first_above(table: &[((u32, u32), &'static str)], version: (u32, u32)) -> Option<&'static str> {
    let lacking = table.iter().find(|(first, _)| version < *first);
    lacking.map(|(_, lacks)| *lacks)
}

/// Major and minor number at the beginning of a text.
fn version(text: &str) -> Option<(u32, u32)> {
    let (major, rest) = text.split_once('.')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit());
    let minor = rest.get(..digits.unwrap_or(rest.len()))?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::Status;
    use super::judge_banner;

    #[rstest]
    #[case("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u10", "released in 2023")]
    #[case("SSH-2.0-OpenSSH_8.9p1", "released in 2022")]
    #[case("SSH-2.0-OpenSSH_10.0", "released in 2025")]
    #[case("SSH-2.0-OpenSSH_11.4", "released after 2025-10")]
    #[case("SSH-2.0-OpenSSH_for_Windows_9.5", "released in 2023")]
    #[case("SSH-2.0-dropbear_2022.83\r\n", "released in 2022")]
    fn banner_tells_the_year_when_the_server_is_new_enough(
        #[case] banner: &str,
        #[case] released: &str,
    ) {
        let step = judge_banner(banner);
        assert_eq!(step.status, Status::Ok, "{step:?}");
        assert!(step.detail.ends_with(released), "{step:?}");
        assert!(step.detail.starts_with("SSH-2.0-"), "{step:?}");
    }

    #[rstest]
    #[case("SSH-2.0-OpenSSH_8.1p1", "released in 2019", "FIDO")]
    #[case("SSH-2.0-OpenSSH_7.1", "released in 2015", "RSA keys are of no use")]
    #[case("SSH-1.99-OpenSSH_5.3", "released in 2009", "no Ed25519")]
    #[case("SSH-2.0-OpenSSH_4.3", "released before 2008", "no Ed25519")]
    #[case("SSH-2.0-dropbear_2019.78", "released in 2019", "no Ed25519")]
    #[case("SSH-2.0-dropbear_0.52", "released before 2011", "no elliptic curves")]
    fn banner_is_a_warning_when_the_server_is_old(
        #[case] banner: &str,
        #[case] released: &str,
        #[case] lacks: &str,
    ) {
        let step = judge_banner(banner);
        assert_eq!(step.status, Status::Warning, "{step:?}");
        assert!(step.detail.contains(released), "{step:?}");
        assert!(step.detail.contains(lacks), "{step:?}");
        assert!(step.fix.is_some());
    }

    #[rstest]
    #[case("SSH-2.0-Go")]
    #[case("SSH-2.0-dropbear")]
    #[case("SSH-2.0-OpenSSH_x.y")]
    #[case("SSH-2.0-OpenSSH_99999999999.1")]
    #[case("SSH")]
    #[case("")]
    fn banner_of_an_unknown_server_is_no_fault(#[case] banner: &str) {
        let step = judge_banner(banner);
        assert_eq!((step.status, &*step.detail), (Status::Ok, banner));
    }

    #[test]
    fn banner_is_cleaned_before_it_is_shown() {
        let step = judge_banner("SSH-2.0-\x1b[31mred");
        assert!(!step.detail.contains('\x1b'), "{step:?}");
    }
}
