//! Short words about an event for people, and how the services that carry them want them.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::address::WebAddress;
use super::event::{EventRecord, EventType};
use super::first_bytes;
use crate::output::clean_line;
use crate::secret::Secret;

/// Longest text of a notice in bytes; the narrowest service takes 2048.
const LONGEST_TEXT: usize = 1800;

/// Longest title of a notice, in bytes.
const LONGEST_TITLE: usize = 200;

/// Longest line of a notice, in characters.
const LONGEST_LINE: usize = 600;

/// Longest words of a service about what it did not like, in characters.
const LONGEST_WORDS: usize = 200;

/// A few words for people. No line of a log is among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// What it is about.
    pub title: String,
    /// What happened.
    pub text: String,
    /// Whether it is good news, bad news, or something to act on.
    pub weight: Weight,
}

/// How much a notice matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Good to know.
    Low,
    /// As it was hoped for.
    Usual,
    /// Somebody should look.
    High,
}

/// What a person is told of an event.
pub fn text_for_people(event: &EventRecord) -> Notice {
    let line = |text: &str| clean_line(text, LONGEST_LINE);
    let names = ["name", "run_id", "tmux_session"].map(|key| event.watch_text(key));
    let task = line(
        names
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default(),
    );
    let mut text = line(&event.summary);
    let log = line(event.watch_text("log_file"));
    if !log.is_empty() {
        let _ = write!(text, "\nlog: {log}");
    }
    let _ = write!(text, "\nwatch: {}", event.watch_id);
    let failed = event.payload.get("exit_code").and_then(Value::as_i64);
    let weight = match event.event_type {
        EventType::RunningRestored | EventType::ResumeStarted => Weight::Low,
        EventType::Completed if failed.unwrap_or(0) == 0 => Weight::Usual,
        _ => Weight::High,
    };
    let title = format!("{}: {task}", event.event_type.word().replace('_', " "));
    Notice {
        title: first_bytes(&title, LONGEST_TITLE).to_owned(),
        text: first_bytes(&text, LONGEST_TEXT).to_owned(),
        weight,
    }
}

/// A service that carries notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotifierKind {
    /// ntfy, of ntfy.sh or one's own.
    Ntfy,
    /// An incoming webhook of Slack.
    Slack,
    /// A bot of a Feishu (Lark) group.
    Feishu,
    /// A bot of a DingTalk group.
    DingTalk,
    /// A bot of a WeCom group.
    WeCom,
}

impl NotifierKind {
    /// Reads the spelling used in the configuration.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "ntfy" => NotifierKind::Ntfy,
            "slack" => NotifierKind::Slack,
            "feishu" | "lark" => NotifierKind::Feishu,
            "dingtalk" => NotifierKind::DingTalk,
            "wecom" => NotifierKind::WeCom,
            _ => return None,
        })
    }

    /// Whether it can use a secret.
    pub fn takes_secret(self) -> bool {
        matches!(
            self,
            NotifierKind::Ntfy | NotifierKind::Feishu | NotifierKind::DingTalk
        )
    }

    /// The parts of an address of this service that must not be shown also where they stand alone. The topic of ntfy is
    /// a word that people choose, and hiding it everywhere would spoil other texts.
    pub fn tokens(self, address: &WebAddress) -> impl Iterator<Item = &str> {
        address.tokens().filter(move |_| self != NotifierKind::Ntfy)
    }

    /// Whether the answer to a post says that it was taken. Three of the services answer 200 to everything.
    pub fn judge(self, body: &[u8]) -> Result<(), ServiceReply> {
        let keys: &[&str] = match self {
            NotifierKind::Ntfy | NotifierKind::Slack => return Ok(()),
            NotifierKind::Feishu => &["code", "StatusCode"],
            NotifierKind::DingTalk | NotifierKind::WeCom => &["errcode"],
        };
        let reply: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut codes = keys.iter().filter_map(|key| reply.get(key)?.as_i64());
        let words = ["msg", "StatusMessage", "errmsg"];
        let words = words.iter().find_map(|key| reply.get(key)?.as_str());
        match codes.next() {
            Some(0) => Ok(()),
            Some(code) => Err(ServiceReply::Refused {
                code,
                words: clean_line(words.unwrap_or_default(), LONGEST_WORDS),
            }),
            None => Err(ServiceReply::Unclear),
        }
    }
}

/// What a service that answered did not like.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceReply {
    /// It says so.
    #[error("the service refused it with its code {code}: {words}")]
    Refused {
        /// Its own code.
        code: i64,
        /// Its own words.
        words: String,
    },
    /// It says something that is not its usual answer.
    #[error("the answer of the service is not the one that it documents")]
    Unclear,
}

/// Why nothing can be posted to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The address has no topic.
    #[error("the address of an ntfy notifier must end with a topic: letters, digits, `-` and `_`")]
    Topic,
}

/// What is posted to a service, in JSON.
#[derive(Debug)]
pub struct NotifierRequest {
    /// Where to.
    pub address: WebAddress,
    /// What proves who we are, for the header `Authorization`.
    pub authorization: Option<Secret<String>>,
    /// What.
    pub body: Value,
}

impl NotifierRequest {
    /// A notice as a service wants it; `now_ms` is the time since 1970, which some sign.
    pub fn new(
        kind: NotifierKind,
        address: WebAddress,
        secret: Option<&str>,
        notice: &Notice,
        now_ms: u64,
    ) -> Result<Self, RequestError> {
        let text = format!("{}\n{}", notice.title, notice.text);
        let mut request = NotifierRequest {
            address,
            authorization: None,
            body: Value::Null,
        };
        match kind {
            NotifierKind::Ntfy => request.ntfy(secret, notice)?,
            NotifierKind::Slack => request.body = json!({"text": escaped(&text)}),
            NotifierKind::Feishu => {
                let mut body = json!({"msg_type": "text", "content": {"text": unmarked(&text)}});
                if let Some(secret) = secret {
                    let seconds = now_ms / 1000;
                    // The key is the text and nothing is signed with it: that is how this service has it.
                    let key = format!("{seconds}\n{secret}");
                    body["timestamp"] = json!(seconds.to_string());
                    body["sign"] = json!(STANDARD.encode(hmac(key.as_bytes(), &[])));
                }
                request.body = body;
            }
            NotifierKind::DingTalk => {
                request.body = json!({"msgtype": "text", "text": {"content": text}});
                if let Some(secret) = secret {
                    let signed = format!("{now_ms}\n{secret}");
                    let sign = STANDARD.encode(hmac(secret.as_bytes(), signed.as_bytes()));
                    let sign = sign
                        .replace('+', "%2B")
                        .replace('/', "%2F")
                        .replace('=', "%3D");
                    let query = format!("timestamp={now_ms}&sign={sign}");
                    request.address = request.address.with_query(&query);
                }
            }
            NotifierKind::WeCom => {
                request.body = json!({"msgtype": "text", "text": {"content": unmarked(&text)}});
            }
        }
        Ok(request)
    }

    /// In JSON to the folder of the topic, because a header cannot carry every letter.
    fn ntfy(&mut self, secret: Option<&str>, notice: &Notice) -> Result<(), RequestError> {
        let target = self.address.target().to_owned();
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, format!("?{query}")),
            None => (target.as_str(), String::new()),
        };
        let (folder, topic) = path.rsplit_once('/').ok_or(RequestError::Topic)?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if topic.is_empty() || topic.len() > 64 || !topic.bytes().all(is_plain) {
            return Err(RequestError::Topic);
        }
        let (priority, tag) = match notice.weight {
            Weight::Low => (2, "information_source"),
            Weight::Usual => (3, "white_check_mark"),
            Weight::High => (4, "warning"),
        };
        self.body = json!({
            "topic": topic,
            "title": notice.title,
            "message": notice.text,
            "priority": priority,
            "tags": [tag],
        });
        let folder = format!("{folder}/{query}");
        self.address = self.address.clone().with_target(&folder);
        self.authorization = secret.map(|secret| Secret::new(format!("Bearer {secret}")));
        Ok(())
    }
}

/// Slack reads these three as its own marks.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A text in which no tag calls everybody of a group.
fn unmarked(text: &str) -> String {
    let text = text.replace('<', "‹").replace('>', "›");
    first_bytes(&text, LONGEST_TEXT + LONGEST_TITLE).to_owned()
}

/// The signature of a webhook, in hexadecimal: HMAC-SHA256 over `timestamp.event_id.body`.
pub fn signature(secret: &str, timestamp: u64, event_id: u64, body: &[u8]) -> String {
    let mut signed = format!("{timestamp}.{event_id}.").into_bytes();
    signed.extend_from_slice(body);
    let mut text = String::new();
    for byte in hmac(secret.as_bytes(), &signed) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    // A key of any length is taken, so that this cannot fail.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return Vec::new();
    };
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
#[path = "notice_tests.rs"]
mod tests;
