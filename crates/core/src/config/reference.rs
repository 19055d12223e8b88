//! Every variable and every key, declared once: the checks and the reference page both come from here.

use std::fmt::Write as _;

use super::keys::KEYS;

/// An environment variable that has a meaning.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What counts when it is unset or empty.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

/// A key of the configuration file or of an entry in the list of sandboxes.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Where it may stand.
    pub place: KeyPlace,
    /// The form of its value.
    pub form: &'static str,
    /// What counts when it is absent.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

/// Where a key may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPlace {
    /// At the top of the configuration file.
    TopLevel,
    /// In the entry of a sandbox.
    Sandbox,
    /// In the table `[local]` of the configuration file.
    Local,
    /// In the table `[sync]` of the configuration file.
    Sync,
    /// In the table `[watchdog]` of the configuration file.
    Watchdog,
    /// In an entry of `[[watchdog.notifiers]]`.
    Notifier,
}

const fn variable(name: &'static str, default: &'static str, meaning: &'static str) -> Variable {
    Variable {
        name,
        default,
        meaning,
    }
}

/// Every environment variable that is read.
pub const VARIABLES: &[Variable] = &[
    variable(
        "REMOTE_SANDBOX_LIST",
        "none",
        "JSON array of sandboxes with the keys below. Unknown keys are ignored and noted.",
    ),
    variable(
        "REMOTE_HOST",
        "none",
        "Host of a single sandbox, which is also its name. This and the five variables below count only when `REMOTE_SANDBOX_LIST` is unset or empty.",
    ),
    variable("REMOTE_PORT", "`22`", "Port of the single sandbox."),
    variable("REMOTE_USER", "required", "User of the single sandbox."),
    variable(
        "REMOTE_PASSWORD",
        "none",
        "Password of the single sandbox. Without this and `REMOTE_KEY_FILE` the agent and the usual keys are used.",
    ),
    variable(
        "REMOTE_KEY_FILE",
        "none",
        "Private key of the single sandbox.",
    ),
    variable(
        "REMOTE_KEY_PASSPHRASE",
        "none",
        "Passphrase of the private key of the single sandbox.",
    ),
    variable(
        "REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS",
        "off",
        "`1`, `true`, `yes` or `on` offers the advanced tools.",
    ),
    variable(
        "REMOTE_SANDBOX_INLINE_SYNC_MAX_FILES",
        "`200`",
        "A sync that has more files to send goes to the background. Zero or less sends every sync there.",
    ),
    variable(
        "REMOTE_SANDBOX_INLINE_SYNC_MAX_BYTES",
        "`67108864`",
        "A sync that has more bytes to send goes to the background. Zero or less sends every sync there.",
    ),
    variable(
        "REMOTE_SANDBOX_RESULT_STYLE",
        "`json`",
        "Form of tool results: `json` or `text`.",
    ),
    variable(
        "REMOTE_SANDBOX_TOOLSETS",
        "none named",
        "Groups of tools that are offered, separated by commas: `containers` (`create_sandbox` and `delete_sandbox`), `advanced` (those that are rarely needed).",
    ),
    variable(
        "REMOTE_SANDBOX_WATCHDOG",
        "on",
        "`0`, `false`, `no` or `off`: the watchdog is neither started nor set up, and watches are only written down.",
    ),
    variable(
        "REMOTE_SANDBOX_IMPORT_SSH_CONFIG",
        "none",
        "Patterns of host names in the SSH configuration that are sandboxes too, separated by commas.",
    ),
    variable(
        "REMOTE_SANDBOX_SSH_CONFIG",
        "`~/.ssh/config` and `/etc/ssh/ssh_config`",
        "Path of an SSH configuration file that counts instead of both, as `ssh -F` does.",
    ),
    variable(
        "REMOTE_SANDBOX_CONFIG",
        "none",
        "Path of the configuration file, which must then exist. A relative path starts at the home directory.",
    ),
    variable(
        "REMOTE_SANDBOX_MCP_HOME",
        "none",
        "State directory. An absolute path, or one that begins with `~/`.",
    ),
    variable(
        "XDG_CONFIG_HOME",
        "`~/.config`",
        "Folder of the configuration file on Linux. A relative path is ignored.",
    ),
    variable(
        "XDG_STATE_HOME",
        "`~/.local/state`",
        "Folder of the state directory on Linux. A relative path is ignored.",
    ),
    variable(
        "HOME",
        "none",
        "Home directory: what `~` means, and where relative paths in the configuration start.",
    ),
];

/// What the Python package writes beside the sandboxes that it keeps for its watchdog; nothing here follows from it.
const OF_THE_PACKAGE: [&str; 2] = ["schema_version", "saved_at"];

pub(super) fn is_known(place: KeyPlace, name: &str) -> bool {
    let is_listed = KEYS
        .iter()
        .any(|key| key.place == place && key.name == name);
    is_listed || (place == KeyPlace::TopLevel && OF_THE_PACKAGE.contains(&name))
}

pub(super) fn known_keys(place: KeyPlace) -> String {
    let names: Vec<_> = keys(place).map(|key| key.name).collect();
    names.join(", ")
}

fn keys(place: KeyPlace) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.place == place)
}

/// The reference page of the configuration.
pub fn reference_markdown() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("\n## Environment variables\n\nAn empty variable counts as unset.\n\n");
    page.push_str("| Variable | Default | Meaning |\n|---|---|---|\n");
    for Variable {
        name,
        default,
        meaning,
    } in VARIABLES
    {
        push_row(&mut page, &[&format!("`{name}`"), default, meaning]);
    }
    page.push_str("\n## Keys at the top of the file\n\n");
    push_keys(&mut page, KeyPlace::TopLevel);
    page.push_str(
        "\n## Keys of a sandbox\n\nIn the file and in `REMOTE_SANDBOX_LIST` alike. Empty text counts as absent. \
         Seconds may have a fraction and go up to 3600; numbers may be written as text.\n\n",
    );
    push_keys(&mut page, KeyPlace::Sandbox);
    page.push_str(LOCAL);
    push_keys(&mut page, KeyPlace::Local);
    page.push_str(SYNC);
    push_keys(&mut page, KeyPlace::Sync);
    page.push_str(WATCHDOG);
    push_keys(&mut page, KeyPlace::Watchdog);
    page.push_str("\nKeys of a notifier:\n\n");
    push_keys(&mut page, KeyPlace::Notifier);
    page.push_str(ENDING);
    page
}

fn push_keys(page: &mut String, place: KeyPlace) {
    page.push_str("| Key | Value | Default | Meaning |\n|---|---|---|---|\n");
    for key in keys(place) {
        let name = format!("`{}`", key.name);
        push_row(page, &[&name, key.form, key.default, key.meaning]);
    }
}

fn push_row(page: &mut String, cells: &[&str]) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

const INTRODUCTION: &str = r#"# Configuration

<!-- Generated from the code. Run the tests with UPDATE_REFERENCE=1 to write it anew. -->

Sandboxes and settings come from environment variables and from one optional file. Both may be used together.

## Which file is read

1. `--config PATH`. The file must exist.
2. `REMOTE_SANDBOX_CONFIG`. The file must exist.
3. The first that exists of `config.toml` and `config.json` in the user's folder: `$XDG_CONFIG_HOME/remote-sandbox-mcp`
   (`~/.config/remote-sandbox-mcp` when unset) on Linux, `~/Library/Application Support/remote-sandbox-mcp` on macOS.

The working directory is never searched. The extension, `.toml` or `.json`, says the format. A file has at most 1 MiB.

```toml
[[sandbox]]
name = "gpu1"
host = "10.0.0.1"
user = "ubuntu"
key_file = "~/.ssh/id_ed25519"

[[sandbox]]
name = "build"
host = "build.example.org"
user = "ci"
password_command = ["pass", "show", "build"]

[[sandbox]]
ssh_alias = "gpu2"
tags = ["a100", "lab"]
workdir = "~/experiment"
init = "source ~/miniconda3/bin/activate exp"
env = { HF_HOME = "/data/hf", OMP_NUM_THREADS = 8 }
```

```json
{"sandboxes": [{"name": "gpu1", "host": "10.0.0.1", "user": "ubuntu", "password_env": "GPU1_PASSWORD"}]}
```

A `.json` file may also hold only the list, in the form of `REMOTE_SANDBOX_LIST`.

## What wins

1. A setting in the environment wins over the same setting in the file.
2. A sandbox in the environment wins over a sandbox with the same name in the file; the file's entry is noted on it.
3. In one source, the later of two sandboxes with the same name wins; the earlier is listed as disabled.
4. `REMOTE_SANDBOX_LIST` wins over `REMOTE_HOST` and its companions, also when it cannot be read.
5. A key in a sandbox's entry wins over the same key at the top of the file.

This is decided by name alone. When the winner has an error, the name is disabled: no command goes to a host that was meant to be replaced.

## What is an error

A mistake disables the sandbox it is in, and nothing else. A list or file that cannot be read as a whole contributes nothing, and the other sources are used.
An unknown key disables the sandbox in a file, and is only noted in `REMOTE_SANDBOX_LIST`. At most 1,000 sandboxes are kept.
Messages name the file and line or the variable, the entry and the key. They quote names of sandboxes, keys and variables, and no other value.
"#;

const LOCAL: &str = r#"
## Keys of the table `local`

What holds for all sandboxes on this machine: how they are walled off, and what their commands find. Only the file has this table.

```toml
[local]
network = "off"
readable = ["~/datasets", "/opt/models"]
memory_mb = 16384
cpu_percent = 400
```

A wrong key is noted and the others hold. A wrong `isolation` counts as `auto`. A wrong `network` counts as `off`, and so does a `local` that is no table.
Unknown keys are noted. Empty text counts as absent, and numbers may be written as text.

"#;

const SYNC: &str = r#"
## Keys of the table `sync`

Which folders of this machine a sync may read from and write to. Only the file has this table.

```toml
[sync]
roots = ["~/projects", "/data/experiments"]
```

Without it these are the working directory of the server, unless it is `/`, the home directory or above it; the folder for temporary files; and the folders
in the home directory whose names do not begin with a dot, except `Library`. Where keys lie (`~/.ssh` and the like) and where this program keeps its
own files is never used, whatever the roots are. A wrong value counts as an empty list, which allows nothing. Unknown keys are noted.

"#;

const WATCHDOG: &str = r#"
## Keys of the table `watchdog`

What callers may have done on this machine at events of background jobs, and who else is told of them
([guide](../guides/notifications.md)). Only the file has this table.

```toml
[watchdog]
event_commands = ["~/bin/on-event"]
webhook_hosts = ["hooks.example.org"]
webhook_secret_secret = "webhook"

[[watchdog.notifiers]]
name = "phone"
kind = "ntfy"
url = "https://ntfy.sh/a-topic-that-nobody-guesses"
events = ["completed", "interrupted", "exhausted"]
```

`event_command`, `webhook_url`, `codex_command` and `claude_command` are arguments that an agent can set. With `config-only` a call that names
something which is not listed here fails, and nothing is started. `codex_wakeup` and `claude_wakeup` with their usual commands are always allowed.
Link-local, metadata, multicast and unspecified addresses are never posted to; this machine only where its name is listed.
A job whose `webhook_url` names one of them, or a host of which every address is one, is not started.
A secret has the four keys of a password: `webhook_secret`, `webhook_secret_env`, `webhook_secret_command` and `webhook_secret_secret`; those of a
notifier are `url`, `url_env`, `url_command`, `url_secret` and `secret`, `secret_env`, `secret_command`, `secret_secret`.
A wrong value counts as an empty list or as `config-only`; a wrong notifier is left out, a wrong `webhook_secret` stops posts to webhooks.
Unknown keys are noted.

"#;

const ENDING: &str = r#"
## Who logs in

Give at most one of `password`, `password_env`, `password_command` and `password_secret`, and at most one of `key_passphrase`,
`key_passphrase_env`, `key_passphrase_command` and `key_passphrase_secret`.
An entry with `host` that has neither `key_file` nor a password logs in as `ssh` would: with the keys of the SSH agent in `SSH_AUTH_SOCK`, and with
the usual private keys in `~/.ssh`.

## Hosts of the SSH configuration

An entry with `ssh_alias` takes everything from the user's SSH configuration, under that name. `port`, `user`, `key_file`, passwords, passphrases,
`host_key_policy`, `known_hosts_files`, the timeouts and the signs of life are needed only where the entry shall differ from it; `host` is refused,
because both say where the host is. The host key policy of the SSH configuration counts unless the entry names one, or the file one other than
`accept-new`.

`import_ssh_config = ["gpu*", "!gpu-old"]` makes a sandbox of every host named in the SSH configuration that a pattern fits: `*` is any text, `?` any
character, and a host that fits a pattern with `!` is left out. Names with wildcards are not imported. A sandbox configured under the same name, even one
that is disabled, keeps the name. Imported sandboxes come last and have no settings of their own; those at the top of the file hold for them.

## Which program connects

`transport = "openssh"` runs the system's `ssh`, for hosts that ask for a second factor: it reuses the shared connection (ControlMaster) that the user opened.
With `require_existing_master = true` it never logs in by itself. Passwords and passphrases are refused beside it, because that `ssh` logs in by itself.

## Surroundings of commands

`env`, `init`, `workdir` and `shell` hold for every command and every job of the sandbox; what a call names itself wins. Numbers with a fraction are
written as text in `env`, so that `"3.10"` stays what it is.
A value in `env` of at least 8 characters is masked in all output when its name contains `TOKEN`, `SECRET`, `PASSWORD`, `PASSWD`, `API_KEY`, `APIKEY`,
`CREDENTIAL`, `ACCESS_KEY` or `PRIVATE_KEY`, in capitals or not.

## Where the state is

`REMOTE_SANDBOX_MCP_HOME` when set; else `$XDG_STATE_HOME/remote-sandbox-mcp` (`~/.local/state/remote-sandbox-mcp` when unset) on Linux,
`~/Library/Application Support/remote-sandbox-mcp` on macOS.
"#;

#[cfg(test)]
#[path = "reference_tests.rs"]
mod tests;
