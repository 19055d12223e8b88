//! The tables of known_hosts files that `ssh` and the core are both asked about.

/// What `ssh` said, or what it would say to our verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Trusted,
    Unknown,
    Changed,
    Revoked,
    /// Only ours: `ssh` passes over broken lines.
    Broken,
}

/// One host, its two files, the answer of `ssh`, and ours where it is stricter.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) host: &'static str,
    pub(super) user: &'static str,
    pub(super) system: &'static str,
    pub(super) ssh: Answer,
    pub(super) ours: Option<Answer>,
}

const fn same(host: &'static str, user: &'static str, ssh: Answer) -> Row {
    Row {
        host,
        user,
        system: "",
        ssh,
        ours: None,
    }
}

const fn stricter(host: &'static str, user: &'static str, ssh: Answer, ours: Answer) -> Row {
    Row {
        host,
        user,
        system: "",
        ssh,
        ours: Some(ours),
    }
}

const fn two_files(user: &'static str, system: &'static str, ssh: Answer) -> Row {
    Row {
        host: "box",
        user,
        system,
        ssh,
        ours: None,
    }
}

pub(super) const DEFAULT_PORT_ROWS: [Row; 37] = [
    same("box", "", Answer::Unknown),
    same("box", "box OFFERED", Answer::Trusted),
    same("box", "box OTHER", Answer::Changed),
    same(
        "box",
        "# c\n\nbox OTHER\nbox SECOND\nbox OFFERED",
        Answer::Trusted,
    ),
    // ssh asks for the recorded algorithm first, but a host that answers with another has changed to it as well.
    same("box", "box SECOND", Answer::Changed),
    same("box", "box OTHER_SECOND", Answer::Changed),
    same("BOX", "Box OFFERED", Answer::Trusted),
    same("BOX", "bOX OTHER", Answer::Changed),
    same("box", "\tbox\t \tOFFERED\tcomment", Answer::Trusted),
    same("box", "\r\n# c\r\nbox OFFERED\r\n", Answer::Trusted),
    stricter("box", "box OFFERED#", Answer::Unknown, Answer::Broken),
    same("box", "a,b*,c OFFERED", Answer::Trusted),
    same("box", "b?x OTHER", Answer::Changed),
    same("box", "*,!box OFFERED", Answer::Unknown),
    same("box", "!box,* OTHER", Answer::Unknown),
    same("box", "[box]:2222 OFFERED", Answer::Unknown),
    same("box", "[box]:22 OFFERED", Answer::Unknown),
    same("box", "@revoked * OFFERED\nbox OFFERED", Answer::Revoked),
    stricter(
        "box",
        "box OFFERED\n@revoked\tbox OFFERED",
        Answer::Trusted,
        Answer::Revoked,
    ),
    same("box", "@revoked box OTHER", Answer::Unknown),
    same(
        "box",
        "@revoked other OFFERED\nbox OFFERED",
        Answer::Trusted,
    ),
    same(
        "box",
        "@revoked *,!box OFFERED\nbox OFFERED",
        Answer::Trusted,
    ),
    same("box", "@cert-authority * OTHER", Answer::Unknown),
    same("box", "@cert-authority * OFFERED", Answer::Unknown),
    same(
        "box",
        "@cert-authority * OTHER\nbox OFFERED",
        Answer::Trusted,
    ),
    same("box", "box BAD\nbox OFFERED", Answer::Trusted),
    same("box", "box BAD\nbox OTHER", Answer::Changed),
    same("box", "other BAD\nbox OFFERED", Answer::Trusted),
    same("box", "|1|AAAA|AAAA OFFERED\nbox OFFERED", Answer::Trusted),
    stricter("box", "box BAD", Answer::Unknown, Answer::Broken),
    stricter("box", "box ssh-rsa BLOB", Answer::Unknown, Answer::Broken),
    stricter(
        "box",
        "@unknown box OFFERED",
        Answer::Unknown,
        Answer::Broken,
    ),
    stricter(
        "box",
        "@revoked box BAD\nbox OFFERED",
        Answer::Trusted,
        Answer::Broken,
    ),
    stricter("box", "\u{feff}box OTHER", Answer::Unknown, Answer::Changed),
    two_files("box OTHER", "box OFFERED", Answer::Trusted),
    two_files("box OFFERED", "@revoked * OFFERED", Answer::Revoked),
    two_files("", "box OTHER", Answer::Changed),
];

pub(super) const OTHER_PORT_ROWS: [Row; 16] = [
    same("127.0.0.1", "", Answer::Unknown),
    same("127.0.0.1", "[127.0.0.1]:PORT OFFERED", Answer::Trusted),
    same("127.0.0.1", "[127.0.0.1]:PORT OTHER", Answer::Changed),
    same("127.0.0.1", "[127.0.0.1]:PORT SECOND", Answer::Changed),
    same("127.0.0.1", "[127.0.0.1]:1 OTHER", Answer::Unknown),
    same("127.1", "[127.0.0.1]:PORT OTHER", Answer::Changed),
    same("0x7f.0.1", "[127.0.0.1]:PORT OFFERED", Answer::Trusted),
    // A line without port is enough for trust and never a reason to call the host changed.
    same("127.0.0.1", "127.0.0.1 OFFERED", Answer::Trusted),
    same("127.0.0.1", "127.0.0.1 OTHER", Answer::Unknown),
    same(
        "127.0.0.1",
        "[127.0.0.1]:PORT OTHER\n127.0.0.1 OFFERED",
        Answer::Changed,
    ),
    same("127.0.0.1", "*,![127.0.0.1]:PORT OFFERED", Answer::Trusted),
    same("127.0.0.1", "*,!*127.0.0.1* OFFERED", Answer::Unknown),
    same("LocalHost", "[LOCALhost]:PORT OTHER", Answer::Changed),
    same("127.0.0.1", "@revoked 127.0.0.1 OFFERED", Answer::Revoked),
    stricter(
        "127.0.0.1",
        "@revoked 127.0.0.1 OFFERED\n[127.0.0.1]:PORT OFFERED",
        Answer::Trusted,
        Answer::Revoked,
    ),
    stricter(
        "127.0.0.1",
        "[127.0.0.1]:PORT BAD\n127.0.0.1 OFFERED",
        Answer::Trusted,
        Answer::Broken,
    ),
];
