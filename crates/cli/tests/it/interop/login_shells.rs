//! Login shells that are not bash, each with a login file that prints, sets a variable and takes its time.

use std::time::{Duration, Instant};

use remote_sandbox_testkit::users::{Shell, TestUser};
use rstest::rstest;

use super::{assert_commands, out};
use crate::support::{account, login_file, shells_wait};

#[rstest]
#[case::fish(
    Shell::Fish,
    ".config/fish/config.fish",
    "echo welcome; echo warning >&2; set -gx FLAVOUR old; sleep 0.8\n",
    "set -gx FLAVOUR new"
)]
#[case::fish_part(
    Shell::Fish,
    ".config/fish/conf.d/own.fish",
    "echo welcome; echo warning >&2; set -gx FLAVOUR old; sleep 0.8\n",
    "set -gx FLAVOUR new"
)]
#[case::zsh(
    Shell::Zsh,
    ".zshenv",
    "echo welcome; echo warning >&2; export FLAVOUR=old; sleep 0.8\n",
    "export FLAVOUR=new"
)]
#[case::tcsh(
    Shell::Tcsh,
    ".tcshrc",
    "echo welcome; setenv FLAVOUR old; sleep 0.8\n",
    "setenv FLAVOUR new"
)]
#[case::csh_file_of_tcsh(
    Shell::Tcsh,
    ".cshrc",
    "echo welcome; setenv FLAVOUR old; sleep 0.8\n",
    "setenv FLAVOUR new"
)]
#[tokio::test]
async fn login_file_is_waited_for_once_and_its_edit_is_seen(
    #[case] shell: Shell,
    #[case] name: &str,
    #[case] text: &str,
    #[case] change: &str,
) {
    let Some((user, sshd, client)) = account(TestUser::builder().shell(shell)).await else {
        return;
    };
    login_file(&user, name, text);
    assert_eq!(out(&client, "echo $FLAVOUR").await, "old");
    assert!(shells_wait(&sshd, 2).await);
    let begun = Instant::now();
    assert_eq!(out(&client, "echo $FLAVOUR").await, "old");
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(750), "{took:?}");
    // One waits and one is still in its login file, which it has read before the change: neither will do.
    out(&client, &format!("echo '{change}' >> ~/{name}")).await;
    for _ in 0..2 {
        assert_eq!(out(&client, "echo $FLAVOUR").await, "new");
    }
}

/// dash reads no file for a login without a terminal, but what PAM and sshd read counts for it too.
#[rstest]
#[case::dash(Shell::Sh)]
#[case::fish(Shell::Fish)]
#[case::zsh(Shell::Zsh)]
#[case::tcsh(Shell::Tcsh)]
#[tokio::test]
async fn login_shell_changes_nothing_about_codes_signals_and_quotes(#[case] shell: Shell) {
    let Some((user, _sshd, client)) = account(TestUser::builder().shell(shell)).await else {
        return;
    };
    assert_commands(&client, user.home()).await;
}
