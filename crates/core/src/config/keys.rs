//! Every key of the configuration file and of an entry, declared once.

use super::{Key, KeyPlace};

const fn key(
    place: KeyPlace,
    name: &'static str,
    form: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    Key {
        name,
        place,
        form,
        default,
        meaning,
    }
}

const fn top(
    name: &'static str,
    form: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    key(KeyPlace::TopLevel, name, form, default, meaning)
}

const fn sandbox(
    name: &'static str,
    form: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    key(KeyPlace::Sandbox, name, form, default, meaning)
}

const fn local(
    name: &'static str,
    form: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    key(KeyPlace::Local, name, form, default, meaning)
}

const fn sync(
    name: &'static str,
    form: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    key(KeyPlace::Sync, name, form, default, meaning)
}

const fn watchdog(
    name: &'static str,
    form: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    key(KeyPlace::Watchdog, name, form, default, meaning)
}

const fn notifier(
    name: &'static str,
    form: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    key(KeyPlace::Notifier, name, form, default, meaning)
}

/// Every key that is understood.
pub const KEYS: &[Key] = &[
    top(
        "sandboxes",
        "list of tables",
        "empty",
        "The sandboxes. `sandbox` means the same, so that TOML files can say `[[sandbox]]`.",
    ),
    top(
        "sandbox",
        "list of tables",
        "empty",
        "The same as `sandboxes`.",
    ),
    top(
        "advanced_tools",
        "true or false",
        "`false`",
        "Offers the advanced tools.",
    ),
    top(
        "inline_sync_max_files",
        "whole number",
        "`200`",
        "A sync that has more files to send goes to the background. Zero or less sends every sync there.",
    ),
    top(
        "inline_sync_max_bytes",
        "whole number",
        "`67108864`",
        "A sync that has more bytes to send goes to the background. Zero or less sends every sync there.",
    ),
    top(
        "result_style",
        "text",
        "`json`",
        "Form of tool results: `json` or `text`.",
    ),
    top(
        "host_key_policy",
        "text",
        "`accept-new`",
        "Policy of every sandbox, of the environment too, that names none of its own.",
    ),
    top(
        "import_ssh_config",
        "text or list of texts",
        "none",
        "Patterns of host names in the SSH configuration that are sandboxes too, see below.",
    ),
    top(
        "toolsets",
        "text or list of texts",
        "none named",
        "Groups of tools that are offered: `containers` (`create_sandbox` and `delete_sandbox`), `advanced` (those that are rarely needed).",
    ),
    top(
        "local",
        "table",
        "empty",
        "What holds for sandboxes on this machine, see below.",
    ),
    top(
        "sync",
        "table",
        "empty",
        "Which folders of this machine a sync may use, see below.",
    ),
    top(
        "watchdog",
        "table",
        "empty",
        "What callers may have done at events, and who is told of them, see below.",
    ),
    sandbox(
        "name",
        "text",
        "the host or alias",
        "Name by which the sandbox is called: 1 to 64 characters, no control characters, no blank at either end. A longer host or alias is cut.",
    ),
    sandbox(
        "host",
        "text",
        "required without `ssh_alias`",
        "Name or address of the host. An IPv6 address may stand in brackets.",
    ),
    sandbox(
        "ssh_alias",
        "text",
        "none",
        "Host of the SSH configuration, in the place of `host`: see below.",
    ),
    sandbox("port", "whole number", "`22`", "TCP port, 1 to 65535."),
    sandbox("user", "text", "required with `host`", "User to log in as."),
    sandbox("password", "text", "none", "Password in clear text."),
    sandbox(
        "password_env",
        "text",
        "none",
        "Name of an environment variable that holds the password.",
    ),
    sandbox(
        "password_command",
        "list of texts",
        "none",
        "Program and arguments that print the password. Started without a shell.",
    ),
    sandbox(
        "password_secret",
        "text",
        "none",
        "Name under which `remote-sandbox-mcp secret set` keeps the password.",
    ),
    sandbox(
        "key_file",
        "path",
        "none",
        "Private key. `~/` is the home directory, and a relative path starts there.",
    ),
    sandbox(
        "key_passphrase",
        "text",
        "none",
        "Passphrase of the private key in clear text.",
    ),
    sandbox(
        "key_passphrase_env",
        "text",
        "none",
        "Name of an environment variable that holds the passphrase.",
    ),
    sandbox(
        "key_passphrase_command",
        "list of texts",
        "none",
        "Program and arguments that print the passphrase. Started without a shell.",
    ),
    sandbox(
        "key_passphrase_secret",
        "text",
        "none",
        "Name under which `remote-sandbox-mcp secret set` keeps the passphrase.",
    ),
    sandbox(
        "host_key_policy",
        "text",
        "that of the file",
        "`accept-new` trusts a host seen for the first time and refuses a changed key, `strict` refuses every unknown key, `insecure` checks nothing.",
    ),
    sandbox(
        "known_hosts_files",
        "path or list of paths",
        "the user's own",
        "Files with known host keys.",
    ),
    sandbox(
        "connect_timeout_s",
        "seconds",
        "`10`",
        "Time for the name lookup and the TCP connection.",
    ),
    sandbox(
        "banner_timeout_s",
        "seconds",
        "`10`",
        "Time for the first line of the server.",
    ),
    sandbox(
        "key_exchange_timeout_s",
        "seconds",
        "`15`",
        "Time for the key exchange.",
    ),
    sandbox("auth_timeout_s", "seconds", "`20`", "Time for the login."),
    sandbox(
        "keepalive_s",
        "seconds",
        "`15`",
        "Pause between two signs of life.",
    ),
    sandbox(
        "keepalive_max",
        "whole number",
        "`3`",
        "How many unanswered signs of life mean that the link is dead, 1 to 100.",
    ),
    sandbox(
        "transport",
        "text",
        "`builtin`",
        "`builtin` connects by itself, `openssh` runs the system's `ssh`.",
    ),
    sandbox(
        "require_existing_master",
        "true or false",
        "`false`",
        "With `openssh`: refuses instead of logging in when no shared connection is there.",
    ),
    sandbox(
        "env",
        "table",
        "empty",
        "Environment variables of every command: at most 256, each text of at most 64 KiB, a whole number, or true or false.",
    ),
    sandbox(
        "init",
        "text",
        "none",
        "Shell text that runs before each command, in its shell. At most 64 KiB.",
    ),
    sandbox(
        "workdir",
        "text",
        "the home directory",
        "Directory on the host for commands that name none: absolute, `~/x`, or relative to the home.",
    ),
    sandbox(
        "shell",
        "text",
        "`bash`, else `sh`",
        "Shell for commands that name none: a name or an absolute path, without arguments.",
    ),
    sandbox(
        "tags",
        "text or list of texts",
        "none",
        "Words by which sandboxes are chosen: at most 32, each of 1 to 64 letters, digits, `.`, `_` or `-`.",
    ),
    local(
        "isolation",
        "text",
        "`auto`",
        "The wall: `auto` takes the best that this machine has; `bubblewrap`, `landlock` or `seatbelt` take that one or refuse; `none` puts up no wall, so that commands can do all that you can.",
    ),
    local(
        "network",
        "text",
        "`on`",
        "Whether commands reach the network where a sandbox says nothing else: `on` or `off`.",
    ),
    local(
        "readable",
        "path or list of paths",
        "none",
        "What commands may read beyond the system: at most 64 paths, absolute, `~/x`, or relative to the home directory, without `..`, and not `/` itself.",
    ),
    local(
        "memory_mb",
        "whole number",
        "not bounded",
        "Memory that commands may use, in MB: 16 to 1000000000.",
    ),
    local(
        "processes",
        "whole number",
        "`4096`",
        "Processes and threads that commands may have: 16 to 4194304, or 0 for no bound.",
    ),
    local(
        "cpu_percent",
        "whole number",
        "not bounded",
        "Processor time that commands may use: 1 to 1000000, where 100 is one processor.",
    ),
    local(
        "env",
        "table",
        "empty",
        "Environment variables of every command, as in a sandbox. A wrong one is left out.",
    ),
    local(
        "init",
        "text",
        "none",
        "Shell text that runs before each command, in its shell. At most 64 KiB.",
    ),
    local(
        "workdir",
        "text",
        "the sandbox's home",
        "Directory for commands that name none: absolute, `~/x`, or relative to the sandbox's home.",
    ),
    local(
        "shell",
        "text",
        "`bash`, else `sh`",
        "Shell for commands that name none: a name or an absolute path, without arguments.",
    ),
    local(
        "tags",
        "text or list of texts",
        "none",
        "Words by which sandboxes are chosen, as in a sandbox.",
    ),
    sync(
        "roots",
        "path or list of paths",
        "see above",
        "The folders that a sync may use, instead of the usual ones: at most 64 paths, absolute, `~/x`, or relative to the home directory, without `..`, and not `/` itself.",
    ),
    watchdog(
        "enabled",
        "true or false",
        "true",
        "Whether the watchdog is started and may be set up; `REMOTE_SANDBOX_WATCHDOG` wins.",
    ),
    watchdog(
        "allow_event_command",
        "text",
        "`config-only`",
        "Which commands and hosts a call may name: `config-only` those listed here, `any` all.",
    ),
    watchdog(
        "event_commands",
        "text or list of texts",
        "none",
        "Commands that a call may give as `event_command`, `codex_command` or `claude_command`, word for word; at most 64.",
    ),
    watchdog(
        "webhook_hosts",
        "text or list of texts",
        "none",
        "Hosts that a call may name in `webhook_url`: `host` or `host:port`; at most 64.",
    ),
    watchdog(
        "webhook_secret",
        "text",
        "none: posts are not signed",
        "Secret with which posts to webhooks are signed (HMAC-SHA256).",
    ),
    watchdog(
        "webhook_secret_env",
        "text",
        "none",
        "Environment variable that holds it.",
    ),
    watchdog(
        "webhook_secret_command",
        "list of texts",
        "none",
        "Program with arguments that prints it; started without a shell.",
    ),
    watchdog(
        "webhook_secret_secret",
        "text",
        "none",
        "Name under which it is kept (`remote-sandbox-mcp secret set NAME`).",
    ),
    watchdog(
        "notifiers",
        "list of tables",
        "none",
        "Services that are told of the events of every watch; at most 32.",
    ),
    notifier(
        "name",
        "text",
        "required",
        "Its name in lists and errors: letters, digits, `.`, `_`, `-`.",
    ),
    notifier(
        "kind",
        "text",
        "required",
        "`ntfy`, `slack`, `feishu`, `dingtalk` or `wecom`.",
    ),
    notifier(
        "url",
        "text",
        "required",
        "Its address as the service gives it; for ntfy it ends with the topic.",
    ),
    notifier(
        "url_env",
        "text",
        "none",
        "Environment variable that holds the address.",
    ),
    notifier(
        "url_command",
        "list of texts",
        "none",
        "Program with arguments that prints the address; started without a shell.",
    ),
    notifier(
        "url_secret",
        "text",
        "none",
        "Name under which the address is kept.",
    ),
    notifier(
        "secret",
        "text",
        "none",
        "What `feishu` and `dingtalk` sign with; the access token of `ntfy`.",
    ),
    notifier(
        "secret_env",
        "text",
        "none",
        "Environment variable that holds the secret.",
    ),
    notifier(
        "secret_command",
        "list of texts",
        "none",
        "Program with arguments that prints the secret; started without a shell.",
    ),
    notifier(
        "secret_secret",
        "text",
        "none",
        "Name under which the secret is kept.",
    ),
    notifier(
        "events",
        "text or list of texts",
        "all types",
        "Types of events that it is told.",
    ),
];
