use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn store() -> (tempfile::TempDir, SecretStore) {
    let state = tempfile::tempdir().unwrap();
    let store = SecretStore::new(&state.path().join("state")).in_files();
    (state, store)
}

fn name(text: &str) -> SecretName {
    SecretName::parse(text).unwrap()
}

fn secret(text: &str) -> Secret<String> {
    Secret::new(text.to_owned())
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path)
        .unwrap()
        .permissions()
        .mode()
        & 0o7777
}

#[test]
fn secret_is_kept_listed_replaced_and_removed() {
    let (_state, store) = store();
    assert!(store.list().unwrap().is_empty());
    let kept = store.set(&name("gpu1"), &secret("first")).unwrap();
    assert_eq!(
        (kept.place, kept.no_keychain.is_none()),
        (Keeping::File, true)
    );
    store.set(&name("gpu1"), &secret("sécond\n")).unwrap();
    store.set(&name("a"), &secret("x")).unwrap();
    assert_eq!(store.get(&name("gpu1")).unwrap().expose(), "sécond\n");
    let names: Vec<_> = store.list().unwrap();
    assert_eq!(
        names,
        [(name("a"), Keeping::File), (name("gpu1"), Keeping::File)]
    );
    assert_eq!(store.remove(&name("gpu1")).unwrap(), Keeping::File);
    assert!(matches!(
        store.get(&name("gpu1")),
        Err(StoreError::Unknown(_))
    ));
    assert!(matches!(
        store.remove(&name("gpu1")),
        Err(StoreError::Unknown(_))
    ));
    assert!(!store.folder().join("gpu1").exists());
}

#[test]
fn secret_named_like_our_own_files_does_no_harm() {
    let (_state, store) = store();
    for odd in ["secrets.json", "index", "secrets.lock"] {
        store.set(&name(odd), &secret(odd)).unwrap();
    }
    assert_eq!(store.list().unwrap().len(), 3);
    assert_eq!(
        store.get(&name("secrets.json")).unwrap().expose(),
        "secrets.json"
    );
}

#[test]
fn list_of_names_holds_no_value() {
    let (state, store) = store();
    store.set(&name("gpu1"), &secret("canary-value")).unwrap();
    let listed = std::fs::read_to_string(state.path().join("state/secrets.json")).unwrap();
    assert_eq!(listed, r#"{"gpu1":"file"}"#);
}

#[test]
fn folder_that_others_may_enter_is_closed_before_a_secret_is_written() {
    let (_state, store) = store();
    std::fs::create_dir_all(store.folder()).unwrap();
    std::fs::set_permissions(store.folder(), std::fs::Permissions::from_mode(0o777)).unwrap();
    store.set(&name("gpu1"), &secret("value")).unwrap();
    assert_eq!(mode(store.folder()), 0o700);
    assert_eq!(mode(&store.folder().join("gpu1")), 0o600);
}

#[test]
fn links_are_never_followed() {
    let (state, store) = store();
    let elsewhere = state.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::create_dir(state.path().join("state")).unwrap();
    symlink(&elsewhere, store.folder()).unwrap();
    let refused = store.set(&name("gpu1"), &secret("value"));
    assert!(matches!(refused, Err(StoreError::File { .. })));
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);

    std::fs::remove_file(store.folder()).unwrap();
    store.set(&name("gpu1"), &secret("value")).unwrap();
    let (target, file) = (state.path().join("target"), store.folder().join("gpu1"));
    std::fs::write(&target, "other").unwrap();
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::remove_file(&file).unwrap();
    symlink(&target, &file).unwrap();
    assert!(matches!(
        store.get(&name("gpu1")),
        Err(StoreError::File { .. })
    ));
    store.set(&name("gpu1"), &secret("new")).unwrap();
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "other");
    assert_eq!(store.get(&name("gpu1")).unwrap().expose(), "new");
}

#[test]
fn secret_file_that_others_may_read_is_not_trusted() {
    let (_state, store) = store();
    store.set(&name("gpu1"), &secret("value")).unwrap();
    let file = store.folder().join("gpu1");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = store.get(&name("gpu1")).unwrap_err();
    let text = remote_sandbox_core::failure::Failure::chain(&error);
    assert!(
        text.contains("chmod 600") && text.contains("gpu1"),
        "{text}"
    );
    assert!(!format!("{error:?}{text}").contains("value"));
}

#[test]
fn secret_is_told_gone_when_its_file_is() {
    let (_state, store) = store();
    store.set(&name("gpu1"), &secret("value")).unwrap();
    std::fs::remove_file(store.folder().join("gpu1")).unwrap();
    let error = store.get(&name("gpu1")).unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::Gone {
                place: Keeping::File,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(store.remove(&name("gpu1")).unwrap(), Keeping::File);
}

#[test]
fn list_that_was_cut_off_is_an_error_that_names_it() {
    let (state, store) = store();
    store.set(&name("gpu1"), &secret("value")).unwrap();
    std::fs::write(state.path().join("state/secrets.json"), "{\"gpu1\":").unwrap();
    let error = store.get(&name("gpu1")).unwrap_err();
    let text = remote_sandbox_core::failure::Failure::chain(&error);
    assert!(text.contains("secrets.json"), "{text}");
}

#[test]
fn several_writers_lose_no_name() {
    let (_state, store) = store();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let store = &store;
            scope.spawn(move || {
                store
                    .set(&name(&format!("n{number}")), &secret("value"))
                    .unwrap();
            });
        }
    });
    assert_eq!(store.list().unwrap().len(), 8);
}

/// Set in the copy of this test that runs beside a keyring of its own.
const INSIDE: &str = "TEST_KEYCHAIN_STATE";

#[test]
fn secret_is_found_again_in_a_real_keychain() {
    if let Some(state) = std::env::var_os(INSIDE) {
        let store = SecretStore::new(Path::new(&state));
        let kept = store.set(&name("gpu1"), &secret("sécret")).unwrap();
        assert_eq!(kept.place, Keeping::Keychain, "{:?}", kept.no_keychain);
        assert_eq!(store.get(&name("gpu1")).unwrap().expose(), "sécret");
        assert_eq!(store.remove(&name("gpu1")).unwrap(), Keeping::Keychain);
        assert!(matches!(
            store.get(&name("gpu1")),
            Err(StoreError::Unknown(_))
        ));
        store.set(&name("gpu2"), &secret("value")).unwrap();
        Keychain.remove(&name("gpu2")).unwrap();
        let gone = store.get(&name("gpu2")).unwrap_err();
        assert!(
            matches!(
                gone,
                StoreError::Gone {
                    place: Keeping::Keychain,
                    ..
                }
            ),
            "{gone}"
        );
        return;
    }
    for needed in ["dbus-run-session", "gnome-keyring-daemon"] {
        if std::process::Command::new(needed)
            .arg("--version")
            .output()
            .is_err()
        {
            remote_sandbox_testkit::skip(format!("there is no `{needed}`"));
            return;
        }
    }
    let state = tempfile::tempdir().unwrap();
    // The bus is asked, not the keyring: a call to the keyring would have the bus start another one,
    // locked and without a password, and on a busy machine that one is first.
    let script = "printf test | gnome-keyring-daemon --foreground --unlock --components=secrets >/dev/null 2>&1 &
        keyring=$!; trap 'kill $keyring 2>/dev/null' EXIT
        n=0; until dbus-send --session --print-reply --dest=org.freedesktop.DBus /org/freedesktop/DBus \
            org.freedesktop.DBus.NameHasOwner string:org.freedesktop.secrets 2>/dev/null | grep -q 'boolean true'; do
            n=$((n+1)); [ $n -lt 100 ] || exit 99; sleep 0.1
        done
        \"$0\" --exact --nocapture secrets::tests::secret_is_found_again_in_a_real_keychain";
    let output = std::process::Command::new("dbus-run-session")
        .args(["--", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .env("HOME", state.path())
        .env("XDG_RUNTIME_DIR", state.path())
        .env(INSIDE, state.path().join("state"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{output:?}"
    );
}
