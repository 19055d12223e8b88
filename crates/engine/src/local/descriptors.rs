//! Hands descriptors from one process to another over a socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The streams of a shell: input, output, errors.
const STREAMS: usize = 3;

/// What comes must not be inherited by what is started.
#[cfg(target_os = "linux")]
const RECEIVE: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const RECEIVE: RecvFlags = RecvFlags::empty();

/// Sends a line with the streams of a shell.
pub(super) async fn send_with_streams(
    socket: &UnixStream,
    line: &[u8],
    streams: [BorrowedFd<'_>; STREAMS],
) -> io::Result<()> {
    let sent = socket
        .async_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            if !beside.push(SendAncillaryMessage::ScmRights(&streams)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let flags = SendFlags::NOSIGNAL;
            Ok(sendmsg(
                socket.as_fd(),
                &[IoSlice::new(line)],
                &mut beside,
                flags,
            )?)
        })
        .await?;
    // A line is far shorter than any buffer, so a part of it means that something is wrong.
    if sent == line.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// Takes the next bytes and the descriptors that came with them.
pub(super) async fn receive(
    socket: &UnixStream,
    bytes: &mut Vec<u8>,
    most: usize,
) -> io::Result<Vec<OwnedFd>> {
    let (chunk, descriptors) = socket
        .async_io(Interest::READABLE, || {
            let mut chunk = vec![0_u8; most];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            let received = recvmsg(
                socket.as_fd(),
                &mut [IoSliceMut::new(&mut chunk)],
                &mut beside,
                RECEIVE,
            )?;
            let mut descriptors = Vec::new();
            for message in beside.drain() {
                if let RecvAncillaryMessage::ScmRights(given) = message {
                    descriptors.extend(given);
                }
            }
            if received.flags.contains(ReturnFlags::CTRUNC) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            chunk.truncate(received.bytes);
            Ok((chunk, descriptors))
        })
        .await?;
    for descriptor in &descriptors {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
    }
    bytes.extend_from_slice(&chunk);
    Ok(descriptors)
}
