//! Host keys and the known_hosts files that say which of them to trust, judged as OpenSSH judges them.
//!
//! Everything here is pure: the caller reads the files (and bounds their size), this module gives the verdict.
//!
//! Where the verdict is stricter than OpenSSH's, always towards refusing:
//! - a `@revoked` line counts when its marker is followed by a tab (OpenSSH skips such a line), and when it names the
//!   host without its port;
//! - a host whose only line is broken is [`Verdict::Broken`], and so is a host with a broken `@revoked` line, even
//!   beside a matching key (OpenSSH skips broken lines, so that the host looks new or the revocation is lost);
//! - a byte order mark does not hide the first line;
//! - a certificate that its authority gave, but not for now or not for this host, does not make the host look new: the
//!   caller sees a [`CertificateFault`] beside [`Verdict::Unknown`].
//!
//! `@cert-authority` lines never match a plain key, as in OpenSSH, so a host known only through one is
//! [`Verdict::Unknown`] when it offers a plain key.

mod address;
mod certificate;
mod key;
mod known_hosts;
mod pattern;
mod verdict;

pub use address::{AddressError, HostAddress};
pub use certificate::{
    CertificateFault, CertificateVerdict, HostCertificate, has_authority, judge_certificate,
};
pub use key::{HostKey, KeyError};
pub use known_hosts::{KnownHosts, LineFault, MAX_LINE_BYTES};
pub use verdict::{MAX_RECORDED, Recorded, Verdict, judge, record_line, recorded_algorithms};

#[cfg(test)]
mod samples;
