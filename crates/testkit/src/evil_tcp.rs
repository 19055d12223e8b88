//! Servers that accept TCP connections and never speak proper SSH.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

const BANNER: &[u8] = b"SSH-2.0-OpenSSH_9.9\r\n";
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
const MSG_DISCONNECT: u8 = 1;
const MSG_KEXINIT: u8 = 20;

/// What a hostile server does with every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpBehaviour {
    /// Accepts and never sends a byte.
    Silent,
    /// Sends lines that may precede a banner, without end.
    EndlessLines,
    /// Sends one line of 1 MiB without its end, then nothing.
    LongLine,
    /// Sends a banner one byte per second.
    SlowBanner,
    /// Sends a banner and then a packet that claims a length of 4 GiB.
    HugePacket,
    /// Sends a banner and then key exchange packets full of noise, without end.
    KexGarbage,
    /// Sends a banner and closes.
    BannerThenClose,
    /// Sends a banner, a sound disconnect message, and closes.
    BannerThenDisconnect,
    /// Sends a banner and never anything else.
    BannerThenSilence,
    /// Closes at once.
    CloseAtOnce,
    /// Answers as a web server would.
    HttpAnswer,
}

/// A hostile server on a loopback port.
#[derive(Debug)]
pub struct EvilTcp {
    port: u16,
    counters: Arc<Counters>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

impl EvilTcp {
    /// Starts on a free port.
    pub async fn start(behaviour: TcpBehaviour) -> Self {
        Self::start_on(0, behaviour).await
    }

    /// Starts on the given port; 0 means a free one.
    pub async fn start_on(port: u16, behaviour: TcpBehaviour) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .unwrap_or_else(|error| panic!("cannot listen on port {port}: {error}"));
        let port = listener.local_addr().expect("a bound socket").port();
        let counters = Arc::new(Counters::default());
        let task = tokio::spawn(accept_loop(listener, behaviour, Arc::clone(&counters)));
        Self {
            port,
            counters,
            task,
        }
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections were taken.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.counters.connections.load(Ordering::SeqCst)
    }

    /// How many bytes clients sent.
    #[must_use]
    pub fn bytes_received(&self) -> u64 {
        self.counters.received.load(Ordering::SeqCst)
    }

    /// How many bytes clients took.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.counters.sent.load(Ordering::SeqCst)
    }
}

impl Drop for EvilTcp {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept_loop(listener: TcpListener, behaviour: TcpBehaviour, counters: Arc<Counters>) {
    // Dropped with this task, which ends every conversation.
    let mut conversations = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        counters.connections.fetch_add(1, Ordering::SeqCst);
        while conversations.try_join_next().is_some() {}
        conversations.spawn(converse(stream, behaviour, Arc::clone(&counters)));
    }
}

async fn converse(stream: TcpStream, behaviour: TcpBehaviour, counters: Arc<Counters>) {
    let (mut from, to) = stream.into_split();
    let listen = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count) = from.read(&mut buffer).await {
            if count == 0 {
                break;
            }
            counters.received.fetch_add(count as u64, Ordering::SeqCst);
        }
    };
    let mut speaker = Speaker {
        to,
        counters: &counters,
    };
    let speak = async {
        // An error means that the client had enough.
        if speaker.speak(behaviour).await.is_err() {
            return;
        }
        if !closes(behaviour) {
            std::future::pending::<()>().await;
        }
        // Closing with unread input resets the connection and takes the last words with it.
        let _ = speaker.to.shutdown().await;
        tokio::time::sleep(CLOSE_LIMIT).await;
    };
    tokio::select! {
        () = listen => {}
        () = speak => {}
    }
}

fn closes(behaviour: TcpBehaviour) -> bool {
    matches!(
        behaviour,
        TcpBehaviour::BannerThenClose
            | TcpBehaviour::BannerThenDisconnect
            | TcpBehaviour::CloseAtOnce
            | TcpBehaviour::HttpAnswer
    )
}

struct Speaker<'a> {
    to: OwnedWriteHalf,
    counters: &'a Counters,
}

impl Speaker<'_> {
    async fn speak(&mut self, behaviour: TcpBehaviour) -> std::io::Result<()> {
        match behaviour {
            TcpBehaviour::Silent | TcpBehaviour::CloseAtOnce => Ok(()),
            TcpBehaviour::EndlessLines => loop {
                self.send(&b"this is not a banner yet\r\n".repeat(100))
                    .await?;
            },
            TcpBehaviour::LongLine => self.send(&vec![b'a'; 1 << 20]).await,
            TcpBehaviour::SlowBanner => {
                for byte in BANNER {
                    self.send(&[*byte]).await?;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                Ok(())
            }
            TcpBehaviour::HugePacket => {
                self.send(BANNER).await?;
                self.send(&[0xff, 0xff, 0xff, 0xff, 4, MSG_KEXINIT]).await?;
                self.send(&vec![0x41; 64 << 10]).await
            }
            TcpBehaviour::KexGarbage => {
                self.send(BANNER).await?;
                let mut noise = vec![0xa5; 1000];
                noise.insert(0, MSG_KEXINIT);
                let packet = plain_packet(&noise);
                loop {
                    self.send(&packet).await?;
                }
            }
            TcpBehaviour::BannerThenClose | TcpBehaviour::BannerThenSilence => {
                self.send(BANNER).await
            }
            TcpBehaviour::BannerThenDisconnect => {
                self.send(BANNER).await?;
                let mut message = vec![MSG_DISCONNECT, 0, 0, 0, 12];
                for text in ["too many connections", ""] {
                    message.extend_from_slice(&(text.len() as u32).to_be_bytes());
                    message.extend_from_slice(text.as_bytes());
                }
                self.send(&plain_packet(&message)).await
            }
            TcpBehaviour::HttpAnswer => {
                self.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                    .await
            }
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = self.to.write(rest).await?;
            self.counters.sent.fetch_add(count as u64, Ordering::SeqCst);
            rest = &rest[count..];
        }
        Ok(())
    }
}

/// Frames a payload as a packet before encryption starts (RFC 4253, section 6).
fn plain_packet(payload: &[u8]) -> Vec<u8> {
    let padding = 8 - (payload.len() + 5) % 8 + 8;
    let length = payload.len() + padding + 1;
    let mut packet = (length as u32).to_be_bytes().to_vec();
    packet.push(padding as u8);
    packet.extend_from_slice(payload);
    packet.resize(4 + length, 0);
    packet
}
