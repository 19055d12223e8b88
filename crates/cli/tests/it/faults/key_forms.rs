//! Every form in which `openssl` and `ssh-keygen` write a private key, used to log in.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use remote_sandbox_testkit::keys::{ClientKey, KeyFormat, KeyType};
use remote_sandbox_testkit::sshd::Sshd;
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::credentials::{PASSPHRASE, assert_logged_in};
use crate::support::{entry, exec_with, serve, with};

/// One way to write a key: a line of shell over `$IN`, `$OUT` and `$WORD`.
struct Form {
    line: String,
    sealed: bool,
}

fn form(line: impl Into<String>) -> Form {
    let line = line.into();
    Form {
        sealed: line.contains("$WORD"),
        line,
    }
}

/// How one key is written in many forms.
fn conversions(kind: KeyType) -> Vec<Form> {
    let pkcs8 = "openssl pkcs8 -topk8 -in $IN -out $OUT";
    let mut forms = vec![form(format!("{pkcs8} -nocrypt"))];
    for sealing in [
        "-v2 aes-128-cbc",
        "-v2 aes-256-cbc",
        "-v2 des3",
        "-scrypt",
        "-v2prf hmacWithSHA1",
        "-v2prf hmacWithSHA512",
    ] {
        forms.push(form(format!("{pkcs8} {sealing} -passout pass:$WORD")));
    }
    if kind != KeyType::Ed25519 {
        let old = "openssl pkey -traditional -in $IN -out $OUT";
        forms.push(form(old));
        for cipher in ["-aes128", "-aes192", "-aes256", "-des3"] {
            forms.push(form(format!("{old} {cipher} -passout pass:$WORD")));
        }
        for format in ["PEM", "PKCS8", "RFC4716"] {
            for word in ["''", "$WORD"] {
                forms.push(form(format!(
                    "cp $IN $OUT && chmod 600 $OUT && ssh-keygen -q -p -P '' -N {word} -m {format} -f $OUT"
                )));
            }
        }
    }
    forms
}

/// How new keys are made.
fn generators(kind: KeyType) -> Vec<Form> {
    let mut lines: Vec<String> = Vec::new();
    let ciphers = [
        "",
        "-aes128 -passout pass:$WORD",
        "-aes256 -passout pass:$WORD",
        "-des3 -passout pass:$WORD",
    ];
    match kind {
        KeyType::Rsa => {
            for cipher in ciphers {
                lines.push(format!("openssl genrsa {cipher} -out $OUT 2048"));
                lines.push(format!(
                    "openssl genrsa -traditional {cipher} -out $OUT 2048"
                ));
            }
        }
        KeyType::Ecdsa => {
            for curve in ["prime256v1", "secp384r1", "secp521r1"] {
                lines.push(format!("openssl ecparam -genkey -name {curve} -out $OUT"));
                let made =
                    format!("openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:{curve}");
                lines.extend(ciphers.map(|cipher| generated(&made, cipher)));
            }
        }
        KeyType::Dsa => {
            // SSH knows DSA with 160 bits for q alone.
            let sizes = "-pkeyopt dsa_paramgen_bits:1024 -pkeyopt dsa_paramgen_q_bits:160";
            let made = format!("openssl genpkey -genparam -algorithm DSA {sizes} -out $OUT.p &&");
            for cipher in ciphers {
                lines.push(generated(
                    &format!("{made} openssl genpkey -paramfile $OUT.p"),
                    cipher,
                ));
                lines.push(format!("{made} openssl gendsa {cipher} -out $OUT $OUT.p"));
            }
        }
        KeyType::Ed25519 => {}
    }
    for format in ["PEM", "PKCS8", "RFC4716"] {
        for word in ["''", "$WORD"] {
            let kind = kind.keygen_name();
            lines.push(format!(
                "ssh-keygen -q -t {kind} -N {word} -m {format} -f $OUT"
            ));
        }
    }
    lines.into_iter().map(form).collect()
}

/// `genpkey` has another word for the passphrase than all its siblings.
fn generated(made: &str, cipher: &str) -> String {
    format!("{made} {} -out $OUT", cipher.replace("-passout", "-pass"))
}

fn write(form: &Form, given: &Path, out: &Path) {
    let output = Command::new("sh")
        .args(["-c", &form.line])
        .env("IN", given)
        .env("OUT", out)
        .env("WORD", PASSPHRASE)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}: {output:?}", form.line);
    fs::set_permissions(out, fs::Permissions::from_mode(0o600)).unwrap();
}

fn public_line(form: &Form, path: &Path) -> String {
    let word = if form.sealed { PASSPHRASE } else { "" };
    let output = Command::new("ssh-keygen")
        .args(["-y", "-P", word, "-f"])
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}: {output:?}", form.line);
    String::from_utf8(output.stdout).unwrap()
}

#[rstest]
#[tokio::test]
async fn key_in_every_form_of_the_tools_logs_in(
    #[values(KeyType::Ed25519, KeyType::Ecdsa, KeyType::Rsa, KeyType::Dsa)] kind: KeyType,
) {
    let folder = TempDir::new().unwrap();
    let base = ClientKey::generate(folder.path(), "base", kind, KeyFormat::Pkcs8, None);
    let Some(base) = base else { return };
    let mut server = Sshd::builder().authorize(&base);
    if kind == KeyType::Dsa {
        server = server.extra_config("PubkeyAcceptedAlgorithms +ssh-dss");
    }
    let sshd = server.start();
    let mut forms = conversions(kind);
    let converted = forms.len();
    forms.extend(generators(kind));
    let mut entries: Vec<Value> = Vec::new();
    let mut lines = fs::read_to_string(sshd.dir().join("authorized_keys")).unwrap();
    for (index, form) in forms.iter().enumerate() {
        let path = folder.path().join(format!("id{index}"));
        write(form, base.private_path(), &path);
        if index >= converted {
            lines.push_str(&public_line(form, &path));
        }
        let mut more = json!({"key_file": path});
        if form.sealed {
            more["key_passphrase"] = json!(PASSPHRASE);
        }
        entries.push(with(entry(&format!("box{index}"), &sshd), more));
    }
    fs::write(sshd.dir().join("authorized_keys"), lines).unwrap();
    let client = serve(&entries).await;
    for (index, form) in forms.iter().enumerate() {
        let more = json!({"sandbox_name": format!("box{index}")});
        let reply = exec_with(&client, "echo in", more).await;
        assert!(!reply.is_error, "{}: {}", form.line, reply.text);
        assert_logged_in(&reply);
    }
    assert_eq!(sshd.accepted_auth_count(), forms.len());
    assert_eq!(sshd.failed_auth_count(), 0, "{}", sshd.log());
}
