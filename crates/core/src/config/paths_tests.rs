use std::path::{Path, PathBuf};

use rstest::rstest;

use super::*;
use crate::config::Format;

fn environment(pairs: &[(&str, &str)]) -> Environment {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn user_files(folder: &str) -> FileChoice {
    FileChoice::Optional(vec![
        PathBuf::from(format!("{folder}/remote-sandbox-mcp/config.toml")),
        PathBuf::from(format!("{folder}/remote-sandbox-mcp/config.json")),
    ])
}

const HOME: (&str, &str) = ("HOME", "/h");

#[rstest]
#[case::home(Platform::Linux, &[HOME], user_files("/h/.config"))]
#[case::xdg(Platform::Linux, &[HOME, ("XDG_CONFIG_HOME", "/c")], user_files("/c"))]
#[case::xdg_without_home(Platform::Linux, &[("XDG_CONFIG_HOME", "/c")], user_files("/c"))]
#[case::relative_xdg(Platform::Linux, &[HOME, ("XDG_CONFIG_HOME", "c")], user_files("/h/.config"))]
#[case::empty_xdg(Platform::Linux, &[HOME, ("XDG_CONFIG_HOME", "")], user_files("/h/.config"))]
#[case::mac(Platform::MacOs, &[HOME, ("XDG_CONFIG_HOME", "/c")], user_files("/h/Library/Application Support"))]
#[case::nowhere(Platform::Linux, &[], FileChoice::None)]
#[case::relative_home(Platform::MacOs, &[("HOME", "h")], FileChoice::None)]
#[case::variable(Platform::Linux, &[HOME, ("REMOTE_SANDBOX_CONFIG", "/x.json")], FileChoice::Required("/x.json".into()))]
#[case::variable_tilde(Platform::Linux, &[HOME, ("REMOTE_SANDBOX_CONFIG", "~/x.json")], FileChoice::Required("/h/x.json".into()))]
#[case::variable_relative(Platform::Linux, &[HOME, ("REMOTE_SANDBOX_CONFIG", "x.json")], FileChoice::Required("/h/x.json".into()))]
#[case::variable_empty(Platform::Linux, &[HOME, ("REMOTE_SANDBOX_CONFIG", "")], user_files("/h/.config"))]
fn config_file_location_follows_the_environment(
    #[case] platform: Platform,
    #[case] pairs: &[(&str, &str)],
    #[case] wanted: FileChoice,
) {
    assert_eq!(
        config_file_location(None, &environment(pairs), platform),
        wanted
    );
}

#[rstest]
#[case("/f.toml", "/f.toml")]
#[case("f.toml", "f.toml")]
#[case("~/f.toml", "/h/f.toml")]
fn config_file_location_prefers_the_flag(#[case] flag: &str, #[case] wanted: &str) {
    let environment = environment(&[HOME, ("REMOTE_SANDBOX_CONFIG", "/x.json")]);
    assert_eq!(
        config_file_location(Some(Path::new(flag)), &environment, Platform::Linux),
        FileChoice::Required(wanted.into())
    );
}

#[rstest]
#[case::home(Platform::Linux, &[HOME], Ok("/h/.local/state/remote-sandbox-mcp"))]
#[case::xdg(Platform::Linux, &[HOME, ("XDG_STATE_HOME", "/s")], Ok("/s/remote-sandbox-mcp"))]
#[case::relative_xdg(Platform::Linux, &[HOME, ("XDG_STATE_HOME", "s")], Ok("/h/.local/state/remote-sandbox-mcp"))]
#[case::mac(Platform::MacOs, &[HOME], Ok("/h/Library/Application Support/remote-sandbox-mcp"))]
#[case::variable(Platform::MacOs, &[HOME, ("REMOTE_SANDBOX_MCP_HOME", "/m")], Ok("/m"))]
#[case::tilde(Platform::Linux, &[HOME, ("REMOTE_SANDBOX_MCP_HOME", "~/m")], Ok("/h/m"))]
#[case::relative(Platform::Linux, &[HOME, ("REMOTE_SANDBOX_MCP_HOME", "m")], Err(PathError::RelativeStateDirectory))]
#[case::nowhere(Platform::Linux, &[], Err(PathError::NoStateDirectory))]
fn state_dir_follows_the_environment(
    #[case] platform: Platform,
    #[case] pairs: &[(&str, &str)],
    #[case] wanted: Result<&str, PathError>,
) {
    assert_eq!(
        state_dir(&environment(pairs), platform),
        wanted.map(PathBuf::from)
    );
}

#[rstest]
#[case("/a/b", Ok("/a/b"))]
#[case("~", Ok("/h"))]
#[case("~/", Ok("/h"))]
#[case("~/a", Ok("/h/a"))]
#[case("~//a", Ok("/h/a"))]
#[case("a/b", Ok("/h/a/b"))]
#[case("~root/a", Err(HomeError::OtherUser))]
fn absolute_starts_at_home(#[case] text: &str, #[case] wanted: Result<&str, HomeError>) {
    assert_eq!(
        absolute(text, &environment(&[HOME])),
        wanted.map(PathBuf::from)
    );
}

#[test]
fn format_is_told_by_the_extension() {
    assert_eq!(Format::from_path(Path::new("/a.toml")), Ok(Format::Toml));
    assert_eq!(Format::from_path(Path::new("/a.json")), Ok(Format::Json));
    for other in ["/a.yaml", "/a", "/toml"] {
        let error = Format::from_path(Path::new(other)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the configuration file {other} must end in .toml or .json")
        );
    }
}
