//! Client and host keys of every type and file format that users have, made by the real tools.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use russh::keys::ssh_key::PublicKey;
use russh::keys::ssh_key::public::{Ed25519PublicKey, KeyData};

use crate::wait::skip;

/// The algorithm of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// Ed25519.
    Ed25519,
    /// ECDSA on NIST P-256.
    Ecdsa,
    /// RSA with 2048 bits.
    Rsa,
    /// DSA with 1024 bits, gone from newer OpenSSH.
    Dsa,
}

impl KeyType {
    /// The word `ssh-keygen -t` takes.
    #[must_use]
    pub fn keygen_name(self) -> &'static str {
        match self {
            Self::Ed25519 => "ed25519",
            Self::Ecdsa => "ecdsa",
            Self::Rsa => "rsa",
            Self::Dsa => "dsa",
        }
    }
}

/// The format of a private key file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyFormat {
    /// `BEGIN OPENSSH PRIVATE KEY`.
    OpenSsh,
    /// `BEGIN RSA PRIVATE KEY` and its kin.
    Pem,
    /// `BEGIN PRIVATE KEY` or `BEGIN ENCRYPTED PRIVATE KEY`.
    Pkcs8,
}

/// A key pair in files, made for one test.
#[derive(Clone, Debug)]
pub struct ClientKey {
    private_path: PathBuf,
    public_line: String,
    passphrase: Option<String>,
}

impl ClientKey {
    /// Makes a key pair `dir/name` and `dir/name.pub`; `None` (and a printed reason) when the tools here cannot.
    #[must_use]
    pub fn generate(
        dir: &Path,
        name: &str,
        key_type: KeyType,
        format: KeyFormat,
        passphrase: Option<&str>,
    ) -> Option<Self> {
        let path = dir.join(name);
        let made = match (key_type, format) {
            (KeyType::Ed25519, KeyFormat::Pem) => Err("Ed25519 has no PEM format".to_owned()),
            (KeyType::Ed25519, KeyFormat::Pkcs8) => ed25519_pkcs8(&path, passphrase),
            _ => keygen(&path, key_type, format, passphrase),
        };
        match made {
            Ok(public_line) => Some(Self {
                private_path: path,
                public_line,
                passphrase: passphrase.map(str::to_owned),
            }),
            Err(reason) => {
                skip(format_args!(
                    "no {key_type:?} key in {format:?} format: {reason}"
                ));
                None
            }
        }
    }

    /// An Ed25519 key in OpenSSH format without passphrase.
    #[must_use]
    pub fn ed25519(dir: &Path, name: &str) -> Self {
        Self::generate(dir, name, KeyType::Ed25519, KeyFormat::OpenSsh, None)
            .expect("ssh-keygen makes an Ed25519 key")
    }

    /// The private key file.
    #[must_use]
    pub fn private_path(&self) -> &Path {
        &self.private_path
    }

    /// The public key file.
    #[must_use]
    pub fn public_path(&self) -> PathBuf {
        let mut name = self.private_path.clone().into_os_string();
        name.push(".pub");
        name.into()
    }

    /// The public key as one `authorized_keys` line without line end.
    #[must_use]
    pub fn public_line(&self) -> &str {
        &self.public_line
    }

    /// The passphrase the private key is encrypted with.
    #[must_use]
    pub fn passphrase(&self) -> Option<&str> {
        self.passphrase.as_deref()
    }
}

fn keygen(
    path: &Path,
    key_type: KeyType,
    format: KeyFormat,
    passphrase: Option<&str>,
) -> Result<String, String> {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", key_type.keygen_name(), "-C", "testkit", "-N"]);
    command.arg(passphrase.unwrap_or(""));
    match format {
        KeyFormat::OpenSsh => {}
        KeyFormat::Pem => {
            command.args(["-m", "PEM"]);
        }
        KeyFormat::Pkcs8 => {
            command.args(["-m", "PKCS8"]);
        }
    }
    if key_type == KeyType::Rsa {
        command.args(["-b", "2048"]);
    }
    run(command.arg("-f").arg(path))?;
    let public = fs::read_to_string(path.with_file_name(format!(
        "{}.pub",
        path.file_name().unwrap_or_default().to_string_lossy()
    )));
    Ok(public
        .map_err(|error| error.to_string())?
        .trim_end()
        .to_owned())
}

/// `ssh-keygen` always writes Ed25519 in its own format, so this one comes from `openssl`.
fn ed25519_pkcs8(path: &Path, passphrase: Option<&str>) -> Result<String, String> {
    let mut generate = Command::new("openssl");
    generate.args(["genpkey", "-algorithm", "ed25519", "-out"]);
    generate.arg(path);
    if let Some(passphrase) = passphrase {
        generate.args(["-aes-256-cbc", "-pass", &format!("pass:{passphrase}")]);
    }
    run(&mut generate)?;
    set_mode(path, 0o600);

    let mut export = Command::new("openssl");
    export.args(["pkey", "-pubout", "-outform", "DER", "-in"]);
    export.arg(path);
    if let Some(passphrase) = passphrase {
        export.args(["-passin", &format!("pass:{passphrase}")]);
    }
    let der = run(&mut export)?;
    let point: &[u8; 32] = der
        .last_chunk()
        .ok_or_else(|| "openssl printed no public key".to_owned())?;
    let key = PublicKey::new(KeyData::Ed25519(Ed25519PublicKey(*point)), "testkit");
    let line = key.to_openssh().map_err(|error| error.to_string())?;
    let mut public_name = path.as_os_str().to_owned();
    public_name.push(".pub");
    fs::write(public_name, format!("{line}\n")).map_err(|error| error.to_string())?;
    Ok(line)
}

/// Runs a program to its end and gives its stdout, or what it complained about.
fn run(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start {:?}: {error}", command.get_program()))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

/// Sets the permission bits of a file or directory.
pub(crate) fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .unwrap_or_else(|error| panic!("cannot set the mode of {}: {error}", path.display()));
}
