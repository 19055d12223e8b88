//! Certificates for users: public keys for which an authority vouches.

use std::path::{Path, PathBuf};
use std::time::Duration;

use russh::keys::Certificate;
use russh::keys::ssh_key;
use russh::keys::ssh_key::certificate::CertType;

use crate::clock;
use crate::fsio::{self, FileError};

/// A certificate file is never larger than this.
const LARGEST_CERTIFICATE: u64 = 64 * 1024;

/// Why a certificate is passed over.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    /// The file could not be read.
    #[error("the certificate cannot be read")]
    File(#[from] FileError),
    /// The file holds no certificate.
    #[error("`{}` holds no certificate", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        #[source]
        source: ssh_key::Error,
    },
    /// It is meant for hosts.
    #[error("the certificate {0} is for hosts, not for users")]
    NotForUsers(String),
    /// Its time has not come.
    #[error("the certificate {name} is not valid before {from}")]
    NotYetValid {
        /// Which one.
        name: String,
        /// When its time comes.
        from: String,
    },
    /// Its time is over.
    #[error("the certificate {name} expired at {until}")]
    Expired {
        /// Which one.
        name: String,
        /// When its time was over.
        until: String,
    },
}

/// Where the certificate of a key lies by custom.
pub(super) fn beside(key_file: &Path) -> PathBuf {
    let mut name = key_file.as_os_str().to_owned();
    name.push("-cert.pub");
    name.into()
}

/// Reads a certificate that can be used now; `None` when there is no such file.
pub(super) fn load(path: &Path) -> Result<Option<Certificate>, CertificateError> {
    let Some(content) = fsio::read_bounded(path, LARGEST_CERTIFICATE)? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&content);
    let certificate =
        Certificate::from_openssh(text.trim()).map_err(|source| CertificateError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
    check(&certificate, format!("`{}`", path.display()), clock::wall())?;
    Ok(Some(certificate))
}

/// Whether a certificate can be used at a time since the Unix epoch.
pub(super) fn check(
    certificate: &Certificate,
    name: String,
    now: Duration,
) -> Result<(), CertificateError> {
    let written = |seconds| clock::format_timestamp(Duration::from_secs(seconds));
    if certificate.cert_type() != CertType::User {
        return Err(CertificateError::NotForUsers(name));
    }
    if now.as_secs() < certificate.valid_after() {
        let from = written(certificate.valid_after());
        return Err(CertificateError::NotYetValid { name, from });
    }
    if now.as_secs() >= certificate.valid_before() {
        let until = written(certificate.valid_before());
        return Err(CertificateError::Expired { name, until });
    }
    Ok(())
}
