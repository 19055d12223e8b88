//! How a secret gets in: hidden on a terminal, or from a pipe; never as an argument, which others see.

use std::io::{self, IsTerminal, Read, Stdin};

use remote_sandbox_core::secret::{Secret, SecretName};
use remote_sandbox_engine::secrets::LONGEST_SECRET;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::{Zeroize as _, Zeroizing};

use crate::report::{Failed, INTERRUPTED, ask};

/// Reads the secret from wherever standard input comes from.
pub(crate) fn read(name: &SecretName) -> Result<Secret<String>, Failed> {
    let input = io::stdin();
    let bytes = if input.is_terminal() {
        ask(&format!("Secret `{name}` (not shown): "));
        let typed = typed(&input);
        ask("\n");
        typed?
    } else {
        piped(input.lock())?
    };
    checked(&bytes)
}

/// Everything up to the end, without the line break that `echo` and editors add.
fn piped(input: impl Read) -> Result<Zeroizing<Vec<u8>>, Failed> {
    let most = LONGEST_SECRET + 2;
    // As much room from the start as it can take: growing would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(most + 1));
    let mut bounded = input.take(most as u64);
    bounded.read_to_end(&mut bytes).map_err(Failed::Input)?;
    let ends = [&b"\r\n"[..], b"\n"];
    if let Some(end) = ends.into_iter().find(|end| bytes.ends_with(end)) {
        let length = bytes.len() - end.len();
        bytes.truncate(length);
    }
    Ok(bytes)
}

fn checked(bytes: &[u8]) -> Result<Secret<String>, Failed> {
    if bytes.is_empty() {
        return Err(Failed::UnfitInput("an empty secret is not kept"));
    }
    if bytes.len() > LONGEST_SECRET {
        return Err(Failed::UnfitInput("a secret has at most 16 KiB"));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(Secret::new(text.to_owned())),
        _ => Err(Failed::UnfitInput("a secret is UTF-8 text without NUL")),
    }
}

/// A terminal that shows nothing and hands on every key; it is as before when this is dropped.
struct Hidden<'a> {
    terminal: &'a Stdin,
    before: Termios,
}

impl<'a> Hidden<'a> {
    fn new(terminal: &'a Stdin) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut hidden = before.clone();
        // Keys for signals too: ended in mid-word, the terminal would stay mute.
        hidden.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        tcsetattr(terminal, OptionalActions::Flush, &hidden)?;
        Ok(Hidden { terminal, before })
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
    }
}

fn typed(terminal: &Stdin) -> Result<Zeroizing<Vec<u8>>, Failed> {
    let _hidden = Hidden::new(terminal).map_err(Failed::Input)?;
    line(terminal.lock())
}

/// One line with the keys that edit it.
fn line(mut keys: impl Read) -> Result<Zeroizing<Vec<u8>>, Failed> {
    let mut typed = Zeroizing::new(Vec::with_capacity(LONGEST_SECRET + 1));
    let mut key = [0];
    loop {
        if keys.read(&mut key).map_err(Failed::Input)? == 0 {
            return Ok(typed);
        }
        match key[0] {
            b'\n' | b'\r' => return Ok(typed),
            // Ctrl-C, Ctrl-\
            0x03 | 0x1c => return Err(Failed::Interrupted(INTERRUPTED)),
            // Ctrl-D ends an empty line, as it does elsewhere.
            0x04 if typed.is_empty() => return Ok(typed),
            0x04 => {}
            // Ctrl-U
            0x15 => typed.zeroize(),
            0x08 | 0x7f => remove_character(&mut typed),
            other if typed.len() <= LONGEST_SECRET => typed.push(other),
            _ => {}
        }
    }
}

fn remove_character(typed: &mut Vec<u8>) {
    while let Some(byte) = typed.pop() {
        if byte & 0xc0 != 0x80 {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn piped_secret_loses_one_line_break_only() {
        for (given, kept) in [
            ("word\n", "word"),
            ("word\r\n", "word"),
            ("word", "word"),
            ("two\nlines\n\n", "two\nlines\n"),
            (" blanks \n", " blanks "),
        ] {
            let bytes = piped(given.as_bytes()).unwrap();
            assert_eq!(checked(&bytes).unwrap().expose(), kept, "{given:?}");
        }
    }

    #[test]
    fn unfit_secret_is_refused() {
        let long = "x".repeat(LONGEST_SECRET + 1);
        for given in [&b"\n"[..], b"", b"a\0b", b"\xff\xfe", long.as_bytes()] {
            let bytes = piped(given).unwrap();
            assert!(checked(&bytes).is_err());
        }
        let longest = "x".repeat(LONGEST_SECRET);
        assert!(checked(&piped(longest.as_bytes()).unwrap()).is_ok());
    }

    #[test]
    fn typed_line_can_be_edited_and_given_up() {
        assert_eq!(*line(&b"wro\x15pa\xc3\xa9\x7fss\r"[..]).unwrap(), b"pass");
        assert_eq!(*line(&b"\x04"[..]).unwrap(), b"");
        let given_up = line(&b"pass\x03\r"[..]);
        assert!(matches!(given_up, Err(Failed::Interrupted(INTERRUPTED))));
    }
}
