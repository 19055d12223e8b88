//! One connection to the hostile SSH server: logins are noted, channels follow the script.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use russh::keys::PublicKey;
use russh::server::{
    Auth, ChannelOpenHandle, Handle, Handler, Msg, PublicKeyOffer, Response, Session,
    VerifiedPublicKey,
};
use russh::{Channel, ChannelId, ChannelOpenFailure, ChannelWriteHalf, Disconnect};

use crate::evil_ssh::{ChannelPolicy, ExecScript, Offer, Shared};

const FLOOD_CHUNK: Bytes = Bytes::from_static(&[b'x'; 32 << 10]);

/// The handler of one connection.
pub(crate) struct EvilSession {
    shared: Arc<Shared>,
    prompt_round: usize,
    opened: usize,
    channels: HashMap<ChannelId, ChannelWriteHalf<Msg>>,
    unanswered: Vec<ChannelOpenHandle>,
}

impl EvilSession {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            prompt_round: 0,
            opened: 0,
            channels: HashMap::new(),
            unanswered: Vec::new(),
        }
    }

    fn judge(&self) -> Auth {
        if self.shared.judge_attempt() {
            Auth::Accept
        } else {
            Auth::reject()
        }
    }
}

impl Handler for EvilSession {
    type Error = russh::Error;

    async fn auth_none(&mut self, user: &str) -> Result<Auth, Self::Error> {
        self.shared.note_offer(Offer::Nothing {
            user: user.to_owned(),
        });
        Ok(Auth::reject())
    }

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Self::Error> {
        self.shared.note_offer(Offer::Password {
            user: user.to_owned(),
            password: password.to_owned(),
        });
        Ok(self.judge())
    }

    async fn auth_publickey_offered(
        &mut self,
        user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, Self::Error> {
        self.shared.note_offer(Offer::Key {
            user: user.to_owned(),
            public_key: key_text(offer.public_key),
        });
        Ok(Auth::Accept)
    }

    async fn auth_publickey(
        &mut self,
        user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, Self::Error> {
        self.shared.note_offer(Offer::Signature {
            user: user.to_owned(),
            public_key: key_text(key.public_key),
        });
        Ok(self.judge())
    }

    async fn auth_keyboard_interactive<'a>(
        &'a mut self,
        user: &str,
        _submethods: &str,
        response: Option<Response<'a>>,
    ) -> Result<Auth, Self::Error> {
        let user = user.to_owned();
        match response {
            None => {
                self.prompt_round = 0;
                self.shared.note_offer(Offer::Interactive { user });
            }
            Some(answers) => {
                let answers = answers
                    .map(|answer| String::from_utf8_lossy(&answer).into_owned())
                    .collect();
                self.shared.note_offer(Offer::Answers { user, answers });
            }
        }
        let Some(round) = self.shared.plan.prompts.get(self.prompt_round) else {
            return Ok(self.judge());
        };
        self.prompt_round += 1;
        let prompts: Vec<(Cow<'static, str>, bool)> = round
            .iter()
            .map(|(text, echo)| (Cow::Owned(text.clone()), *echo))
            .collect();
        Ok(Auth::Partial {
            name: Cow::Borrowed(""),
            instructions: Cow::Borrowed(""),
            prompts: Cow::Owned(prompts),
        })
    }

    async fn authentication_banner(&mut self) -> Result<Option<String>, Self::Error> {
        Ok(self.shared.plan.banner.clone())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.shared.record().channels += 1;
        match self.shared.plan.channels {
            ChannelPolicy::NeverAnswer => self.unanswered.push(reply),
            ChannelPolicy::RefuseAfter(limit) if self.opened >= limit => {
                reply.reject(ChannelOpenFailure::ResourceShortage).await;
            }
            ChannelPolicy::Open | ChannelPolicy::RefuseAfter(_) => {
                self.opened += 1;
                let (_, write_half) = channel.split();
                self.channels.insert(write_half.id(), write_half);
                reply.accept().await;
            }
        }
        Ok(())
    }

    async fn channel_close(
        &mut self,
        channel: ChannelId,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.channels.remove(&channel);
        Ok(())
    }

    async fn data(
        &mut self,
        _channel: ChannelId,
        data: &[u8],
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.shared.record().received_bytes += data.len() as u64;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let script = self.shared.note_command(&String::from_utf8_lossy(data));
        match script {
            ExecScript::NeverAnswer => return Ok(()),
            ExecScript::Refuse => return session.channel_failure(channel),
            _ => session.channel_success(channel)?,
        }
        // Outside of the handler, or a flood would keep the session from reading.
        if let Some(writer) = self.channels.remove(&channel) {
            tokio::spawn(perform(script, writer, session.handle()));
        }
        Ok(())
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.shared.record().subsystems.push(name.to_owned());
        session.channel_failure(channel)
    }
}

/// Plays a script on an open channel; an error means that the client is gone.
async fn perform(script: ExecScript, writer: ChannelWriteHalf<Msg>, handle: Handle) {
    let _ = play(script, &writer, &handle).await;
}

async fn play(
    script: ExecScript,
    writer: &ChannelWriteHalf<Msg>,
    handle: &Handle,
) -> Result<(), russh::Error> {
    let id = writer.id();
    match script {
        ExecScript::NeverAnswer | ExecScript::Refuse => Ok(()),
        ExecScript::Reply {
            stdout,
            stderr,
            status,
        } => {
            writer.data_bytes(stdout).await?;
            writer.extended_data_bytes(1, stderr).await?;
            send_status(handle, id, status).await?;
            writer.eof().await?;
            writer.close().await
        }
        ExecScript::Hang(output) => writer.data_bytes(output).await,
        ExecScript::CloseWithoutStatus(output) => {
            writer.data_bytes(output).await?;
            writer.close().await
        }
        ExecScript::StatusWithoutClose(status) => send_status(handle, id, status).await,
        ExecScript::Signal(signal) => {
            handle
                .exit_signal_request(id, signal, false, String::new(), String::new())
                .await
                .map_err(|()| russh::Error::SendError)?;
            writer.close().await
        }
        ExecScript::Flood => loop {
            writer.data_bytes(FLOOD_CHUNK).await?;
        },
        ExecScript::DataAfterEof(output) => {
            writer.eof().await?;
            writer.data_bytes(output).await?;
            send_status(handle, id, 0).await?;
            writer.close().await
        }
        ExecScript::Disconnect(output) => {
            writer.data_bytes(output).await?;
            let reason = "going away".to_owned();
            handle
                .disconnect(Disconnect::ByApplication, reason, String::new())
                .await
        }
    }
}

async fn send_status(handle: &Handle, id: ChannelId, status: u32) -> Result<(), russh::Error> {
    handle
        .exit_status_request(id, status)
        .await
        .map_err(|()| russh::Error::SendError)
}

fn key_text(key: &PublicKey) -> String {
    let line = key.to_openssh().unwrap_or_default();
    line.split(' ').take(2).collect::<Vec<_>>().join(" ")
}
