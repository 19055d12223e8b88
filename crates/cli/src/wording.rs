//! What the engine says of tools and their parameters, said of commands and their options.

/// The program in words that somebody may type.
const PROGRAM: &str = "remote-sandbox-mcp";

/// Parameters of tools, and what stands for them on the command line.
const OPTIONS: [(&str, &str); 20] = [
    ("checksum", "--checksum"),
    ("confirm_delete", "--confirm-delete"),
    ("delete_extras", "--delete-extras"),
    ("dry_run", "--dry-run"),
    ("exclude_file", "--exclude-file"),
    ("excludes", "--exclude"),
    ("follow_links", "--follow-links"),
    ("gpus", "--gpus"),
    ("keep_dirlinks", "--keep-dirlinks"),
    ("local_path", "LOCAL"),
    ("log_file", "--log-file"),
    ("max_log_bytes", "--max-log-bytes"),
    ("metadata_json", "--metadata-json"),
    ("overwrite", "--overwrite"),
    ("remote_path", "NAME:REMOTE"),
    ("resume_command", "--resume-command"),
    ("session_name", "--session"),
    ("task_id", "ID"),
    ("timeout_s", "--timeout"),
    ("use_gitignore", "--use-gitignore"),
];

/// Tools, and the commands that do the same.
const COMMANDS: [(&str, &str); 9] = [
    ("cancel_file_transfer_task", "transfers --cancel"),
    ("check_background_task", "job show"),
    ("check_file_transfer_task", "transfers"),
    ("exec_bash", "exec"),
    ("exec_bash_background", "job start"),
    ("list_background_watches", "watch list"),
    ("list_remote_files", "ls"),
    ("list_sandboxes", "list"),
    ("read_remote_file", "cat"),
];

/// A hint for somebody at the command line.
pub(crate) fn hint(text: &str) -> String {
    let mut said = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, word, after)) = next_word(rest) {
        said.push_str(before);
        rest = translate(&mut said, word, after);
    }
    said.push_str(rest);
    said
}

/// A message for somebody at the command line. Only its first word can be a parameter: what follows may be names of files.
pub(crate) fn message(text: &str) -> String {
    let Some((before, word, after)) = next_word(text) else {
        return text.to_owned();
    };
    let mut said = before.to_owned();
    let rest = translate(&mut said, word, after);
    said.push_str(rest);
    said
}

/// What stands before the next word, the word, and what follows.
fn next_word(text: &str) -> Option<(&str, &str, &str)> {
    let is_part = |character: char| character == '_' || character.is_ascii_alphanumeric();
    let (before, from) = text.split_at(text.find(is_part)?);
    let end = from.find(|character| !is_part(character));
    let (word, after) = from.split_at(end.unwrap_or(from.len()));
    Some((before, word, after))
}

/// Adds a word in the language of the command line, and gives what is left to be said.
fn translate<'a>(said: &mut String, word: &str, after: &'a str) -> &'a str {
    let of = |table: &[(&str, &'static str)]| {
        let found = table.iter().find(|(name, _)| *name == word);
        found.map(|(_, words)| *words)
    };
    let is_quoted = said.ends_with('`');
    if let Some(command) = of(&COMMANDS) {
        let quote = if is_quoted { "" } else { "`" };
        said.push_str(&format!("{quote}{PROGRAM} {command}{quote}"));
        return after;
    }
    let set = after.strip_prefix(": true");
    let number = after.strip_prefix(": ");
    let number = number.filter(|value| value.starts_with(|first: char| first.is_ascii_digit()));
    // `checksum` and its like are words of everyday language, too.
    let is_meant = word.contains('_') || is_quoted || set.is_some() || said.ends_with("with ");
    let is_meant = is_meant || said.ends_with("without ");
    match of(&OPTIONS).filter(|_| is_meant) {
        None => {
            said.push_str(word);
            after
        }
        Some(option) => {
            said.push_str(option);
            match (set, number) {
                (Some(rest), _) => rest,
                (None, Some(value)) => {
                    said.push(' ');
                    value
                }
                (None, None) => after,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use rstest::rstest;

    use super::*;
    use crate::arguments::Arguments;

    #[rstest]
    #[case::deletions(
        "look at them with `dry_run: true`; if they are to go, call again with `confirm_delete: 30`, or without `delete_extras`",
        "look at them with `--dry-run`; if they are to go, call again with `--confirm-delete 30`, or without `--delete-extras`"
    )]
    #[case::bare(
        "call again without use_gitignore, and with excludes",
        "call again without --use-gitignore, and with --exclude"
    )]
    #[case::switch("call again with overwrite: true", "call again with --overwrite")]
    #[case::tool(
        "list_remote_files shows what is there",
        "`remote-sandbox-mcp ls` shows what is there"
    )]
    #[case::quoted_tool("see `list_remote_files`", "see `remote-sandbox-mcp ls`")]
    #[case::place(
        "check local_path and its permissions",
        "check LOCAL and its permissions"
    )]
    #[case::everyday(
        "the checksum of an overwrite: truly odd",
        "the checksum of an overwrite: truly odd"
    )]
    #[case::other_language("größer als `dry_run`", "größer als `--dry-run`")]
    #[case::nothing("", "")]
    fn hint_speaks_of_options_and_commands(#[case] hint_of_tool: &str, #[case] expected: &str) {
        assert_eq!(hint(hint_of_tool), expected);
    }

    #[test]
    fn message_keeps_names_of_files_as_they_are() {
        assert_eq!(
            message("exclude_file does not exist: /tmp/exclude_file"),
            "--exclude-file does not exist: /tmp/exclude_file"
        );
        assert_eq!(
            message("`confirm_delete` is 3, but 5 entries would be deleted (first: dry_run)"),
            "`--confirm-delete` is 3, but 5 entries would be deleted (first: dry_run)"
        );
        assert_eq!(
            message("`/srv/local_path` is a file"),
            "`/srv/local_path` is a file"
        );
    }

    #[test]
    fn every_option_and_command_that_is_named_exists() {
        let program = Arguments::command();
        let all = all_options(&program);
        for (_, option) in OPTIONS
            .iter()
            .filter(|(_, option)| option.starts_with("--"))
        {
            assert!(all.contains(&option[2..].to_owned()), "{option}");
        }
        for (_, words) in COMMANDS {
            let mut names = words.split(' ').filter(|word| !word.starts_with("--"));
            let found = names.try_fold(&program, |command, name| command.find_subcommand(name));
            assert!(found.is_some(), "{words}");
        }
    }

    fn all_options(command: &clap::Command) -> Vec<String> {
        let own = command
            .get_arguments()
            .filter_map(|option| option.get_long());
        let below = command.get_subcommands().flat_map(all_options);
        own.map(str::to_owned).chain(below).collect()
    }
}
