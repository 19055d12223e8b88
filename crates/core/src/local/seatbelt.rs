//! The profile for the sandbox of macOS.

use std::fmt::Write as _;
use std::path::Path;

use super::{Network, SystemPath, View};

/// Where the system's programs and libraries are on macOS.
const SYSTEM: [&str; 9] = [
    "/System",
    "/Library",
    "/usr",
    "/bin",
    "/sbin",
    "/opt",
    "/Applications",
    "/private/etc",
    "/private/var/db",
];

/// The network with names and certificates. Sockets in files belong to other programs of this user,
/// which are not behind the wall, so only the one for names is among them.
const NETWORK: &str = "\
(allow network* (remote ip) (local ip))
(allow network-outbound (literal \"/private/var/run/mDNSResponder\"))
(allow mach-lookup (global-name \"com.apple.SystemConfiguration.configd\") (global-name \"com.apple.trustd\") (global-name \"com.apple.dnssd.service\"))
";

/// Text in the profile's own quotes.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let mut quoted = String::from("\"");
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted.push('"');
    quoted
}

/// Everything is denied but what stands here. `program` is the supervisor's own program.
pub fn seatbelt_profile(view: &View, program: &Path) -> String {
    let mut profile = String::from(
        "(version 1)\n\
         (deny default)\n\
         (allow process-fork process-exec)\n\
         (allow signal process-info* (target same-sandbox))\n\
         (allow sysctl-read)\n\
         (allow mach-lookup (global-name \"com.apple.system.opendirectoryd.libinfo\"))\n\
         (allow ipc-posix-shm ipc-posix-sem pseudo-tty)\n\
         (allow file-read-metadata)\n\
         (allow file-read* file-write* (literal \"/dev/null\") (literal \"/dev/zero\") (literal \"/dev/tty\") (literal \"/dev/ptmx\"))\n\
         (allow file-read* (literal \"/\") (literal \"/dev/random\") (literal \"/dev/urandom\"))\n",
    );
    let system = SYSTEM.iter().map(Path::new);
    let more = view.system.iter().filter_map(|entry| match entry {
        SystemPath::Real(path) => Some(path.as_path()),
        SystemPath::Link { .. } => None,
    });
    let readable = view.readable.iter().map(std::path::PathBuf::as_path);
    for path in system.chain(more).chain(readable) {
        let _ = writeln!(profile, "(allow file-read* (subpath {}))", quoted(path));
    }
    for hidden in &view.hidden {
        let path = quoted(&hidden.path);
        let _ = writeln!(profile, "(deny file-read* (subpath {path}))");
    }
    for path in [&view.home, &view.temporary] {
        let path = quoted(path);
        let _ = writeln!(profile, "(allow file-read* file-write* (subpath {path}))");
    }
    let _ = writeln!(profile, "(allow file-read* (literal {}))", quoted(program));
    if view.network == Network::On {
        profile.push_str(NETWORK);
    }
    let home = quoted(&view.home);
    let temporary = quoted(&view.temporary);
    let _ = writeln!(
        profile,
        "(allow network* (local unix-socket (subpath {home})) (remote unix-socket (subpath {home})) \
         (local unix-socket (subpath {temporary})) (remote unix-socket (subpath {temporary})))"
    );
    profile
}
