use std::process::Stdio;

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use super::*;
use crate::shell::{NotTaken, Signal};

/// A shell of this machine as the other side.
struct Said {
    child: Child,
    output: Option<ChildStdout>,
    errors: Option<ChildStderr>,
    ended: bool,
    closed: bool,
}

impl Incoming for Said {
    async fn next(&mut self) -> Option<Heard> {
        let mut chunk = BytesMut::with_capacity(4096);
        if let Some(output) = &mut self.output {
            if output.read_buf(&mut chunk).await.unwrap() > 0 {
                return Some(Heard::Out(chunk.freeze()));
            }
            self.output = None;
        }
        if let Some(errors) = &mut self.errors {
            if errors.read_buf(&mut chunk).await.unwrap() > 0 {
                return Some(Heard::Err(chunk.freeze()));
            }
            self.errors = None;
            return Some(Heard::NoMoreOutput);
        }
        if !self.ended {
            self.ended = true;
            let code = self.child.wait().await.unwrap().code().unwrap();
            return Some(Heard::Exited(u32::try_from(code).unwrap()));
        }
        (!std::mem::replace(&mut self.closed, true)).then_some(Heard::Closed)
    }
}

struct Told(Mutex<Option<ChildStdin>>);

impl Outgoing for Told {
    async fn send_bytes(&self, bytes: Bytes) -> Result<(), NotTaken> {
        let mut input = self.0.lock().await;
        let input = input.as_mut().ok_or(NotTaken)?;
        input.write_all(&bytes).await.map_err(|_| NotTaken)
    }

    async fn finish(&self) -> Result<(), NotTaken> {
        self.0.lock().await.take();
        Ok(())
    }

    async fn signal(&self, _: Signal) -> Result<(), NotTaken> {
        Err(NotTaken)
    }
}

fn shell() -> (Said, Told) {
    let mut child = Command::new("sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let told = Told(Mutex::new(child.stdin.take()));
    let said = Said {
        output: child.stdout.take(),
        errors: child.stderr.take(),
        child,
        ended: false,
        closed: false,
    };
    (said, told)
}

#[tokio::test]
async fn bytes_go_through_a_program_in_both_directions_at_the_same_time() {
    let (said, told) = shell();
    let mut stream = open_stream(said, told, (), &["cat"]).await.unwrap();
    let sent: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let (mut input, mut output) = (stream.input, stream.output);
    let expected = sent.clone();
    let writing = tokio::spawn(async move {
        input.write_all(&sent).await.unwrap();
        input.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    output.read_to_end(&mut received).await.unwrap();
    writing.await.unwrap();
    assert!(received == expected, "{} bytes", received.len());
    (stream.input, stream.output) = tokio::io::duplex(1);
    assert_eq!(stream.end().await.unwrap().exit_code, Some(0));
}

#[tokio::test]
async fn exit_code_and_complaints_of_a_program_are_told() {
    let (said, told) = shell();
    let arguments = ["sh", "-c", "echo no room >&2; cat >/dev/null; exit 3"];
    let mut stream = open_stream(said, told, (), &arguments).await.unwrap();
    stream.input.write_all(b"unread").await.unwrap();
    let end = stream.end().await.unwrap();
    let expected = StreamEnd {
        exit_code: Some(3),
        words: "no room".to_owned(),
    };
    assert_eq!(end, expected);
}

#[tokio::test]
async fn program_that_is_not_there_ends_with_127() {
    let (said, told) = shell();
    let stream = open_stream(said, told, (), &["no-such-program"]).await;
    let end = stream.unwrap().end().await.unwrap();
    assert_eq!(end.exit_code, Some(127));
    assert!(end.words.contains("not found"), "{end:?}");
}

#[tokio::test]
async fn stream_that_is_dropped_lets_go_of_the_program() {
    struct Held(std::sync::mpsc::Sender<()>);
    impl Drop for Held {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (said, told) = shell();
    let (tell, told_so) = std::sync::mpsc::channel();
    let stream = open_stream(said, told, Held(tell), &["yes"]).await.unwrap();
    drop(stream);
    let gone = || told_so.try_recv().is_ok();
    assert!(remote_sandbox_testkit::wait_until(Duration::from_secs(5), gone).await);
}
