//! One connection of a client: its messages, and their answers.
//!
//! ```text
//! header -> payload, descriptors -> Message -> the guest, or an answer
//! connection lost: no request is taken, the guest's memory is left alone, what was under way ends
//! ```
//!
//! Always true: a message that cannot be carried out ends the connection, after its answer.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Nanos, View};
use device::Info;
use env::net::Stream;
use env::shared::Descriptor;

use super::block::{self, WRITE_BACK};
use super::error::SessionError;
use super::guest::{Guest, QUEUES};
use super::inflight;
use super::last::{Last, Offer};
use super::message::{self, CONFIG_MAX, HEADER, Header, InflightArea, Message, protocol};
use super::queue::Disk;
use super::ring::SIZE_MAX;
use super::{decode, put_config};

/// Between two looks at the size of the device.
const LOOK_EVERY: Nanos = Nanos::secs(1);

/// How long the end of requests is waited for before a client is cut off.
const DRAIN: Nanos = Nanos::secs(30);
/// How long a message may take that was begun, and the first one to begin.
const MESSAGE: Nanos = Nanos::secs(10);

/// See the module's head.
pub(super) struct Session {
    // Fixed.
    stream: Rc<Stream>,
    disk: Rc<Disk>,
    found_all: bool,
    guest: Guest,
    // As it goes.
    protocol: Cell<u64>,
    /// Where this side speaks first.
    back: RefCell<Option<Rc<Stream>>>,
}

/// What a message is answered with.
enum Answer {
    /// Nothing, but where the client asks for one.
    Done,
    /// This.
    Payload(Vec<u8>),
    /// This, and a descriptor.
    With(Vec<u8>, Descriptor),
}

/// A message as it came: its header, its payload, and what was handed over with it.
type Received = (Header, Buf, Vec<Descriptor>);

/// Were all of these offered?
fn check(asked: u64, offered: u64) -> Result<(), SessionError> {
    match asked & !offered {
        0 => Ok(()),
        _ => Err(SessionError::Features { asked, offered }),
    }
}

fn number(value: u64) -> Answer {
    Answer::Payload(value.to_le_bytes().to_vec())
}

impl Session {
    pub fn new(stream: Rc<Stream>, disk: Rc<Disk>, offer: Offer) -> Rc<Session> {
        Rc::new(Session {
            stream,
            found_all: offer.found_all,
            guest: Guest::new(Rc::clone(&disk), offer),
            disk,
            protocol: Cell::default(),
            back: RefCell::default(),
        })
    }

    fn info(&self) -> Info {
        self.disk.pieces.device().info()
    }

    /// Serves the client until its connection ends, then waits for what is under way. Why it ended, and what is left for the
    /// next connection.
    pub async fn run(self: Rc<Self>) -> (SessionError, Option<Rc<Last>>) {
        let watching = env::spawn(Rc::clone(&self).watch_size());
        let watching = env::cancel_scope(watching);
        let breaking = env::spawn(Rc::clone(&self).watch_memory());
        let breaking = env::cancel_scope(breaking);
        let first = env::timeout(MESSAGE, self.next()).await;
        let first = first.unwrap_or(Err(SessionError::Silent));
        let error = match first {
            Err(error) => error,
            Ok(()) => loop {
                if let Err(error) = self.next().await {
                    break error;
                }
            },
        };
        drop((watching, breaking));
        let error = match self.disk.is_broken.get() {
            true => SessionError::Broken,
            false => error,
        };
        self.disk.is_gone.set(true);
        self.guest.wait_quiet().await;
        // A guest that may not go on is not known the next time either; it may have changed the disk.
        let left = self.guest.take_left(error.makes_unknown());
        (error, left)
    }

    /// Takes no more requests, and waits for the end of those that were taken, which are answered.
    pub async fn drain(&self) {
        self.guest.end();
        let quiet = self.guest.wait_quiet();
        if env::timeout(DRAIN, quiet).await.is_err() {
            tracing::warn!(
                "requests of a virtual machine do not end; the next daemon repeats them"
            );
            self.disk.is_gone.set(true);
        }
        self.stream.abort();
    }

    /// Reads the next message. A guest at work has its client say nothing for days; what is begun has to end soon.
    async fn receive(&self) -> Result<Received, SessionError> {
        let first = self.stream.read_exact_with(Buf::for_read(1)).await;
        let (first, descriptors) = first.map_err(SessionError::Lost)?;
        let rest = self.receive_rest(first[0], descriptors);
        let rest = env::timeout(MESSAGE, rest).await;
        rest.unwrap_or(Err(SessionError::Slow))
    }

    /// Reads a message behind its first byte, with which its descriptors came, or most of them.
    async fn receive_rest(
        &self,
        first: u8,
        mut descriptors: Vec<Descriptor>,
    ) -> Result<Received, SessionError> {
        let mut read = async |len: usize| {
            let (bytes, more) = self.stream.read_exact_with(Buf::for_read(len)).await?;
            descriptors.extend(more);
            Ok(bytes)
        };
        let mut header = [first; HEADER];
        let bytes = read(HEADER - 1).await.map_err(SessionError::Lost)?;
        header[1..].copy_from_slice(&bytes);
        let header = Header::decode(&header)?;
        let payload = match header.len {
            0 => Buf::for_read(0),
            len => read(len).await.map_err(SessionError::Lost)?,
        };
        Ok((header, payload, descriptors))
    }

    /// Carries out the next message.
    async fn next(&self) -> Result<(), SessionError> {
        let (header, payload, descriptors) = self.receive().await?;
        let decoded = decode(&header, &payload, descriptors.len());
        let outcome = match decoded {
            Ok(message) => self.carry_out(message, descriptors).await,
            Err(error) => Err(error.into()),
        };
        let wants = header.need_reply && self.protocol.get() & protocol::REPLY_ACK != 0;
        let (payload, with) = match (&outcome, wants) {
            (Ok(Answer::Payload(payload)), _) => (payload.clone(), None),
            (Ok(Answer::With(payload, with)), _) => (payload.clone(), Some(with.clone())),
            (Ok(Answer::Done), true) => (0u64.to_le_bytes().to_vec(), None),
            (Err(_), true) => (1u64.to_le_bytes().to_vec(), None),
            (Ok(Answer::Done) | Err(_), false) => {
                return outcome.map(drop);
            }
        };
        let reply = View::copy_of(&message::reply(header.request, &payload));
        let with = with.into_iter().collect();
        let sent = self.stream.write_all_with(reply, with).await;
        sent.map_err(SessionError::Lost)?;
        match outcome {
            // It was asked whether it is known, and has its answer.
            Err(SessionError::Unknown(_)) => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    async fn carry_out(
        &self,
        message: Message,
        mut descriptors: Vec<Descriptor>,
    ) -> Result<Answer, SessionError> {
        match message {
            Message::GetFeatures => return Ok(number(self.offered())),
            Message::SetFeatures(asked) => {
                check(asked, self.offered())?;
                self.guest.set_features(asked);
            }
            Message::SetOwner | Message::ResetOwner => {}
            Message::GetProtocolFeatures => return Ok(number(self.offered_protocol())),
            Message::SetProtocolFeatures(asked) => {
                check(asked, self.offered_protocol())?;
                self.protocol.set(asked);
            }
            Message::GetQueueNum => return Ok(number(QUEUES.into())),
            Message::SetMemTable(regions) => self.guest.set_table(regions, &descriptors)?,
            Message::SetVringNum { queue, size } => {
                self.guest.set_up(queue, |it| it.size = Some(size))?
            }
            Message::SetVringAddr { queue, at } => {
                self.guest.set_up(queue, |it| it.at = Some(at))?
            }
            Message::SetVringBase { queue, index } => {
                self.guest.set_up(queue, |it| it.base = index)?
            }
            Message::GetVringBase { queue } => {
                let next = self.guest.stop(queue).await;
                let mut payload = u32::from(queue).to_le_bytes().to_vec();
                payload.extend(next.to_le_bytes());
                return Ok(Answer::Payload(payload));
            }
            Message::SetVringNotifier { queue, what, .. } => {
                self.guest.set_notifier(queue, what, descriptors.pop())?;
            }
            Message::SetVringEnable { queue, on } => self.guest.enable(queue, on)?,
            Message::SetBackendReq => {
                let stream = descriptors.pop().as_ref().map(Stream::of_descriptor);
                let stream = stream.transpose().map_err(SessionError::Descriptor)?;
                *self.back.borrow_mut() = stream.map(Rc::new);
            }
            Message::GetConfig { offset, len } => return Ok(self.get_config(offset, len)),
            Message::SetConfig { offset, bytes } => self.set_config(offset as usize, &bytes),
            Message::GetInflight(asked) => return self.new_area(asked),
            Message::SetInflight(area) => self.guest.set_area(area, descriptors.pop())?,
            Message::Other(request) => return Err(SessionError::Unknown(request)),
        }
        Ok(Answer::Done)
    }

    fn offered(&self) -> u64 {
        block::features(&self.info(), self.disk.read_only)
    }

    fn offered_protocol(&self) -> u64 {
        let all = protocol::MQ | protocol::REPLY_ACK | protocol::BACKEND_REQ | protocol::CONFIG;
        match self.found_all {
            true => all | protocol::INFLIGHT_SHMFD,
            false => all,
        }
    }

    // --- configuration ------------------------------------------------------------------------------

    fn config(&self) -> [u8; CONFIG_MAX] {
        block::config(&self.info(), QUEUES, self.guest.write_back())
    }

    fn get_config(&self, offset: u32, len: u32) -> Answer {
        let range = offset as usize..(offset + len) as usize;
        if range.contains(&WRITE_BACK) {
            self.guest.look();
        }
        let mut payload = Vec::new();
        put_config(&mut payload, offset, &self.config()[range]);
        Answer::Payload(payload)
    }

    fn set_config(&self, offset: usize, bytes: &[u8]) {
        // Nothing else can be changed.
        if let Some(value) = WRITE_BACK.checked_sub(offset).and_then(|at| bytes.get(at)) {
            self.guest.set_write_back(*value != 0);
        }
    }

    /// Ends the connection of a client that takes memory away.
    async fn watch_memory(self: Rc<Self>) {
        while !self.disk.is_broken.get() {
            self.disk.broke.wait().await;
        }
        self.stream.abort();
    }

    /// Tells the client when the device has another size.
    async fn watch_size(self: Rc<Self>) {
        let mut size = self.info().size;
        loop {
            env::sleep(LOOK_EVERY).await;
            let now = self.info().size;
            let back = self.back.borrow().clone();
            let Some(back) = back.filter(|_| now != size) else {
                continue;
            };
            size = now;
            let notice = View::copy_of(&message::config_changed());
            if let Err(error) = back.write_all(vec![notice]).await {
                tracing::debug!(%error, "a client does not hear of the new size");
            }
        }
    }

    // --- records of what is in flight ---------------------------------------------------------------

    fn new_area(&self, asked: InflightArea) -> Result<Answer, SessionError> {
        let area = inflight::area(asked.queues.min(QUEUES), asked.size.min(SIZE_MAX));
        let memory = Descriptor::memory(area.len as usize).map_err(SessionError::Descriptor)?;
        Ok(Answer::With(area.encode().to_vec(), memory))
    }
}
