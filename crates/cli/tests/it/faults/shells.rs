//! Commands of every shape and login shells of every kind (f31, f32).

use std::path::Path;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::mcp::McpClient;
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::users::{Home, Shell, TestUser};
use remote_sandbox_testkit::wait::wait_until;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{account, exec, exec_with, login_file, one, unique};

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[rstest]
#[case::trailing_backslash("echo a\\")]
#[case::here_document("cat <<EOF\nx $((1 + 1))\nEOF")]
#[case::here_document_without_its_end("cat <<EOF\nx")]
#[case::quoted_here_document("cat <<'EOF'\n$HOME `id` 'x'\nEOF\nexit 4")]
#[case::exit_in_the_middle("echo a; exit 3; echo b")]
#[case::exec_bash("echo a; exec bash")]
#[case::exec_of_a_command("exec bash -c 'exit 5'")]
#[case::set_e("set -e; false; echo no")]
#[case::exit_trap("trap 'echo bye' EXIT; exit 6")]
#[case::syntax_error("echo 'open")]
#[case::stray_brace("echo a\n}\n")]
#[case::stray_done("done; echo a")]
#[case::comment_at_the_end("echo a # no more")]
#[case::comment_only("# nothing")]
#[case::blank_around("\n\n  echo a  \n\n")]
#[case::carriage_returns("echo a\r\necho b\r\n")]
#[case::its_name("echo \"$0 $# $- ${BASH_VERSION:+bash}\"")]
#[case::bashisms("x=(1 2 3); [[ ${x[2]} == 3 ]] && echo {a..c} <(:) >/dev/null; echo $?")]
#[case::not_found("no-such-command-here")]
#[case::all_the_quotes(r#"printf '%s|' "it's" 'a "b"' \$x $'\t' `echo "q"`"#)]
#[case::exit_255("exit 255")]
#[case::exit_wraps("exit 258")]
#[case::unset("set -u; echo $no_such_variable; echo no")]
#[case::beyond_ascii("echo 'ä 😀 日本'")]
#[case::reads_nothing("read -r x; echo \"$? [$x]\"; cat")]
#[case::own_marker("echo RSMCP:00:B:1:1:1:k; echo RSMCP:00:F:cwd")]
#[case::descriptors("echo a >&9")]
#[case::no_job("wait; jobs; echo $!")]
#[tokio::test]
async fn f31_command_runs_as_with_ssh_and_bash(#[case] command: &str) {
    let (sshd, client) = one().await;
    let user = TestUser::current();
    let expected = sshd.ssh(
        user.name(),
        sshd.port(),
        &format!("bash -c {}", quoted(command)),
    );
    let reply = exec(&client, command).await;
    let code = expected.status.code().unwrap();
    assert_eq!(reply.json["exit_code"], code, "{}", reply.text);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(reply.json["stdout"], text(&expected.stdout));
    assert_eq!(reply.json["stderr"], text(&expected.stderr));
}

#[tokio::test]
async fn f31_command_that_begins_with_a_dash_is_a_command() {
    let (_sshd, client) = one().await;
    let reply = exec(&client, "-x; echo after $?").await;
    assert_eq!(reply.json["stdout"], "after 127\n", "{}", reply.text);
    assert_eq!(reply.json["exit_code"], 0);
}

/// Sizes on both sides of the longest argument that a system call takes, and far beyond.
#[rstest]
#[case::just_an_argument(90_000)]
#[case::near_the_kernels_limit(131_000)]
#[case::past_the_kernels_limit(200_000)]
#[case::two_mebibytes(2 << 20)]
#[tokio::test]
async fn f31_long_command_runs_whole(#[case] bytes: usize) {
    let (_sshd, client) = one().await;
    let line = "x=$((x+1)) # it's \"a\" $line\n";
    let count = bytes / line.len() + 1;
    let command = format!("x=0\n{}cat; echo $x; exit 9", line.repeat(count));
    for stdin in [None, Some("a\nb\n"), Some("a\nb"), Some("")] {
        let reply = exec_with(&client, &command, json!({ "stdin": stdin })).await;
        let expected = format!("{}{count}\n", stdin.unwrap_or_default());
        assert_eq!(reply.json["exit_code"], 9, "{stdin:?}: {}", reply.text);
        assert_eq!(reply.json["stdout"], expected, "{stdin:?}");
        assert_eq!(reply.json["stderr"], "");
    }
}

#[rstest]
#[case::exit_in_the_middle("echo a; exit 3\n", "a\n", 3)]
#[case::exec("exec sh -c 'echo a; exit 4'\n", "a\n", 4)]
#[case::function("f() { cat <<EOF\na\nEOF\n}; f; exit 5\n", "a\n", 5)]
#[tokio::test]
async fn f31_long_command_obeys_its_own_words(
    #[case] begin: &str,
    #[case] stdout: &str,
    #[case] code: u32,
) {
    let (_sshd, client) = one().await;
    let command = format!("{begin}{}", "echo never\n".repeat(20_000));
    let reply = exec(&client, &command).await;
    assert_eq!(reply.json["exit_code"], code, "{:.300}", reply.text);
    assert_eq!(reply.json["stdout"], stdout);
}

#[tokio::test]
async fn f31_ten_thousand_lines_all_run() {
    let (_sshd, client) = one().await;
    let command: String = (1..=10_000).map(|line| format!("echo {line}\n")).collect();
    let reply = exec_with(&client, &command, json!({"max_output_chars": 100_000})).await;
    let expected: String = (1..=10_000).map(|line| format!("{line}\n")).collect();
    assert_eq!(reply.json["exit_code"], 0);
    assert_eq!(reply.json["stdout"], expected);
}

#[rstest]
#[case::nul(json!({"command": "touch MARK; printf 'a\u{0}b'"}), "NUL")]
#[case::nul_in_the_input(json!({"command": "touch MARK", "stdin": "a\u{0}b"}), "stdin")]
#[case::nul_in_a_variable(json!({"command": "touch MARK", "env": {"X": "a\u{0}b"}}), "NUL")]
#[case::nul_in_the_directory(json!({"command": "touch MARK", "cwd": "/a\u{0}b"}), "cwd")]
#[case::empty(json!({"command": " \n"}), "command")]
#[tokio::test]
async fn f31_what_no_shell_can_carry_is_refused(#[case] arguments: Value, #[case] word: &str) {
    let (_sshd, client) = one().await;
    let mark = client.home().join("ran");
    let text = arguments
        .to_string()
        .replace("MARK", mark.to_str().unwrap());
    let arguments = serde_json::from_str(&text).unwrap();
    let reply = client.call_tool("exec_bash", arguments).await;
    assert!(reply.is_error);
    assert_eq!(reply.json["code"], "invalid_params");
    let error = reply.json["error"].as_str().unwrap();
    assert!(error.contains(word), "{error}");
    assert!(!mark.exists());
}

/// Names that the script around the command might use itself, and ones that it must not let through.
#[tokio::test]
async fn f31_variables_of_any_name_arrive_as_they_are() {
    let (_sshd, client) = one().await;
    let letters: Vec<String> = ('a'..='z').map(String::from).collect();
    let mut names = letters.clone();
    names.extend(["REPLY", "HOME", "CDPATH", "SHLVL_", "_x9"].map(String::from));
    let env: serde_json::Map<String, Value> = names
        .iter()
        .map(|name| (name.clone(), json!(format!("<{name}>"))))
        .collect();
    let command = format!("printenv {}", names.join(" "));
    for stdin in [None, Some("x"), Some("x\n")] {
        let reply = exec_with(&client, &command, json!({"env": env, "stdin": stdin})).await;
        let expected: String = names.iter().map(|name| format!("<{name}>\n")).collect();
        assert_eq!(reply.json["stdout"], expected, "{}", reply.text);
    }
    let sleep = format!("sleep 9131.{}", unique());
    let forged =
        json!({"env": {"REMOTE_SANDBOX_RUN": "forged", "t": "x", "n": "1"}, "timeout_s": 2});
    let reply = exec_with(&client, &format!("setsid -f {sleep}; {sleep}"), forged).await;
    assert_eq!(reply.json["timed_out"], true, "{}", reply.text);
    assert!(process::with_command_line(&sleep).is_empty());
}

#[tokio::test]
async fn f31_too_long_a_command_is_refused_with_the_limit() {
    let (_sshd, client) = one().await;
    let command = format!("echo {}", "a".repeat(8 << 20));
    let reply = exec(&client, &command).await;
    assert_eq!(reply.json["code"], "invalid_params");
    assert!(reply.text.contains("8388608"), "{:.300}", reply.text);
    assert_eq!(exec(&client, "echo on").await.json["stdout"], "on\n");
}

async fn assert_ordinary(client: &McpClient, home: &Path) {
    let more = json!({"env": {"V": "it's $HOME"}, "stdin": "given\n", "cwd": "~"});
    let command = "printf '%s|' \"$V\" \"${BASH_VERSION:+bash}\"; cat; pwd; echo err >&2; exit 7";
    let reply = exec_with(client, command, more).await;
    assert_eq!(reply.json["exit_code"], 7, "{}", reply.text);
    let expected = format!("it's $HOME|bash|given\n{}\n", home.display());
    assert_eq!(reply.json["stdout"], expected);
    assert_eq!(reply.json["stderr"], "err\n");
}

#[rstest]
#[case::bash(Shell::Bash)]
#[case::dash(Shell::Sh)]
#[case::fish(Shell::Fish)]
#[case::zsh(Shell::Zsh)]
#[case::tcsh(Shell::Tcsh)]
#[case::busybox(Shell::BusyboxAsh)]
#[tokio::test]
async fn f32_user_account_with_any_login_shell_runs_bash_all_the_same(#[case] shell: Shell) {
    let Some((user, _sshd, client)) = account(TestUser::builder().shell(shell)).await else {
        return;
    };
    assert_ordinary(&client, user.home()).await;
    let signalled = exec(&client, "kill -SEGV $$").await;
    assert_eq!(signalled.json["signal"], "SEGV", "{}", signalled.text);
    let sleep = format!("sleep 9132.{}", unique());
    let command = format!("setsid {sleep} & trap '' TERM; {sleep}; {sleep}");
    let begun = Instant::now();
    let reply = exec_with(&client, &command, json!({"timeout_s": 1})).await;
    assert!(
        begun.elapsed() < Duration::from_millis(5500),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(reply.json["timed_out"], true, "{}", reply.text);
    assert_eq!(process::with_command_line(&sleep), Vec::<u32>::new());
    let list = json!({"check_resources": true});
    let list = client.call_tool("list_sandboxes", list).await;
    let cpus = &list.json["sandboxes"][0]["resources"]["cpu"]["count"];
    assert!(cpus.as_u64() >= Some(1), "{}", list.text);
}

#[tokio::test]
async fn f32_user_account_without_a_shell_is_told_with_the_hosts_words() {
    let Some((_user, _sshd, client)) = account(TestUser::builder().shell(Shell::Nologin)).await
    else {
        return;
    };
    let reply = exec(&client, "echo hi").await;
    assert!(reply.is_error);
    assert_eq!(reply.json["code"], "remote_refused", "{}", reply.text);
    let error = reply.json["error"].as_str().unwrap();
    assert!(
        error.contains("not available") && error.contains("`box`"),
        "{error}"
    );
    let list = client.call_tool("list_sandboxes", json!({})).await;
    assert_eq!(list.json["sandboxes"][0]["connection_alive"], true);
}

const FORGED: &str = "RSMCP:0123456789abcdef0123456789abcdef:B:1:1:1:k";

#[rstest]
#[case::text(Shell::Bash, ".bashrc", "echo welcome; echo warning >&2\n")]
#[case::without_newline(Shell::Bash, ".bashrc", "printf welcome; printf warning >&2\n")]
#[case::much(Shell::Bash, ".bashrc", "seq 1 100000; seq 1 100000 >&2\n")]
#[case::forged_marker(
    Shell::Bash,
    ".bashrc",
    "echo FORGED; echo FORGED >&2; printf RSMCP:\n"
)]
#[case::sets_options(
    Shell::Bash,
    ".bashrc",
    "set -eu; set -o noclobber; alias exec=echo; IFS=/\n"
)]
#[case::changes_directory(Shell::Bash, ".bashrc", "cd /; CDPATH=/; echo at $PWD\n")]
#[case::leaves_a_child(Shell::Bash, ".bashrc", "sleep 0.5 & echo $!\n")]
#[case::zsh(Shell::Zsh, ".zshenv", "echo welcome; printf warning >&2\n")]
#[case::tcsh(Shell::Tcsh, ".cshrc", "echo welcome\n")]
#[case::fish(
    Shell::Fish,
    ".config/fish/config.fish",
    "echo welcome; printf warning >&2\n"
)]
#[tokio::test]
async fn f32_user_account_login_file_is_not_part_of_the_output(
    #[case] shell: Shell,
    #[case] name: &str,
    #[case] text: &str,
) {
    let Some((user, _sshd, client)) = account(TestUser::builder().shell(shell)).await else {
        return;
    };
    login_file(&user, name, &text.replace("FORGED", FORGED));
    assert_ordinary(&client, user.home()).await;
    let list = json!({"check_resources": true});
    let list = client.call_tool("list_sandboxes", list).await;
    let cpus = &list.json["sandboxes"][0]["resources"]["cpu"]["count"];
    assert!(cpus.as_u64() >= Some(1), "{}", list.text);
}

#[rstest]
#[case::exits("echo go away >&2; exit 3\n", "exit code 3: go away")]
#[case::is_killed("echo bad luck; kill -9 $$\n", "was killed: bad luck")]
#[case::swallows_the_script("cat >/dev/null\n", "exit code 0")]
#[tokio::test]
async fn f32_user_account_login_file_that_gets_in_the_way_is_told(
    #[case] text: &str,
    #[case] words: &str,
) {
    let Some((user, _sshd, client)) = account(TestUser::builder()).await else {
        return;
    };
    login_file(&user, ".bashrc", text);
    // With variables the script comes on the standard input, which a login file can take away.
    let reply = exec_with(&client, "touch ~/ran", json!({"env": {"A": "b"}})).await;
    assert!(reply.is_error, "{}", reply.text);
    assert_eq!(reply.json["code"], "remote_refused");
    assert!(
        reply.json["error"].as_str().unwrap().contains(words),
        "{}",
        reply.text
    );
    assert!(!user.home().join("ran").exists());
}

#[tokio::test]
async fn f32_user_account_login_file_that_hangs_does_not_let_the_command_run_later() {
    let Some((user, sshd, client)) = account(TestUser::builder()).await else {
        return;
    };
    // Only the first logins hang, that of the command and that of a shell for the next one, or nobody
    // could look for what they left.
    let first = "{ mkdir ~/one || mkdir ~/two; } 2>/dev/null && sleep 4\n";
    login_file(&user, ".bashrc", first);
    let begun = Instant::now();
    let reply = exec_with(&client, "touch ~/ran", json!({"timeout_s": 1})).await;
    assert!(
        begun.elapsed() < Duration::from_millis(5500),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(reply.json["timed_out"], true, "{}", reply.text);
    assert!(reply.json.get("left_running").is_none(), "{}", reply.text);
    // Also what would go on after the login file has ended is over then. Shells that wait for the
    // next command go with their connection.
    client.close_stdin().await;
    let nothing_runs = || sshd.command_pids().is_empty();
    assert!(wait_until(Duration::from_secs(10), nothing_runs).await);
    assert!(!user.home().join("ran").exists());
}

#[tokio::test]
async fn f32_user_account_without_a_home_can_run_commands() {
    let Some((user, _sshd, client)) = account(TestUser::builder().home(Home::Missing)).await else {
        return;
    };
    let reply = exec(&client, "pwd; echo err >&2; exit 7").await;
    assert_eq!(reply.json["exit_code"], 7, "{}", reply.text);
    assert_eq!(reply.json["stdout"], "/\n");
    assert_eq!(reply.json["stderr"], "err\n");
    let reply = exec_with(&client, "echo ran", json!({"cwd": "~"})).await;
    assert_eq!(reply.json["code"], "not_found", "{}", reply.text);
    assert!(
        reply.text.contains(user.home().to_str().unwrap()),
        "{}",
        reply.text
    );
}

#[tokio::test]
async fn f32_user_account_that_may_not_enter_a_directory_is_told() {
    let Some((user, _sshd, client)) = account(TestUser::builder()).await else {
        return;
    };
    login_file(&user, "a-file", "");
    for (cwd, words) in [
        ("/root", "/root"),
        ("a-file", "a-file"),
        ("~/a-file", "a-file"),
        ("~nobody", "~nobody"),
        ("-", "./-"),
        ("$(touch ran)", "$(touch ran)"),
    ] {
        let reply = exec_with(&client, "touch ~/ran", json!({ "cwd": cwd })).await;
        assert!(reply.is_error, "{cwd}: {}", reply.text);
        assert_eq!(reply.json["code"], "not_found", "{cwd}");
        let error = reply.json["error"].as_str().unwrap();
        assert!(error.contains(words), "{cwd}: {error}");
        assert!(!user.home().join("ran").exists(), "{cwd}");
    }
}
