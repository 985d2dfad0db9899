//! A client in virtual time: what QEMU says for a guest, in its order, and again after each lost connection.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use base::{Buf, Nanos, View};
use env::net::{Address, Stream};
use env::shared::Descriptor;
use front::vhost::encode;
use front::vhost::message::{Addresses, HEADER, InflightArea, Message, Notifies, protocol};

use crate::guest::{Guest, SIZE};

/// Bits that tests name.
pub mod feature {
    pub const FLUSH: u64 = 1 << 9;
    pub const EVENT_IDX: u64 = 1 << 29;
}

/// Before it connects again.
const AGAIN: Nanos = Nanos::millis(10);

/// How descriptors are handed to the process that serves.
pub type Handing = Rc<dyn Fn(&Descriptor) -> Descriptor>;

/// See the module's head.
pub struct Client {
    // Fixed.
    pub guest: Rc<Guest>,
    pub address: Address,
    /// Features that its driver leaves out.
    pub without: u64,
    /// Does it keep a record of what is in flight, where that is offered?
    pub keeps_record: bool,
    /// Does it read the configuration before it hands the guest over?
    pub looks: bool,
    /// Does it begin with a queue that the guest never used?
    pub idle_first: bool,
    // As it goes.
    pub handing: RefCell<Handing>,
    pub record: RefCell<Option<(Descriptor, InflightArea)>>,
    /// The capacity that it was told last, in sectors.
    pub capacity: Cell<u64>,
    pub connected: Cell<u64>,
    /// It asks for a change of the cache's mode on each connection.
    pub write_back: Cell<Option<bool>>,
    stream: RefCell<Option<Rc<Stream>>>,
}

impl Client {
    pub fn new(guest: &Rc<Guest>, address: &str) -> Client {
        Client {
            guest: Rc::clone(guest),
            address: address.parse().unwrap(),
            without: match guest.event_idx {
                true => 0,
                false => feature::EVENT_IDX,
            },
            keeps_record: true,
            looks: true,
            idle_first: false,
            handing: RefCell::new(Rc::new(Descriptor::clone)),
            record: RefCell::default(),
            capacity: Cell::default(),
            connected: Cell::default(),
            write_back: Cell::default(),
            stream: RefCell::default(),
        }
    }

    /// Connects, and again whenever the connection ends.
    pub async fn stay(self: Rc<Self>) {
        loop {
            // Nothing listens while no daemon lives.
            if let Ok(stream) = self.connect().await {
                // Until it ends.
                let _ = stream.read_exact(Buf::for_read(1)).await;
            }
            env::sleep(AGAIN).await;
        }
    }

    /// Sends a message and awaits its answer.
    pub async fn ask(&self, message: &Message, with: &[&Descriptor]) -> io::Result<Vec<u8>> {
        let stream = self.stream.borrow().clone().expect("connected");
        let handing = self.handing.borrow().clone();
        let with = with.iter().map(|it| handing(it)).collect();
        let bytes = View::copy_of(&encode(message, true));
        stream.write_all_with(bytes, with).await?;
        let (header, came) = stream.read_exact_with(Buf::for_read(HEADER)).await?;
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!(word(4), 5, "an answer of version 1");
        assert_eq!(word(0).to_le_bytes(), encode(message, true)[..4]);
        let payload = stream.read_exact(Buf::for_read(word(8) as usize)).await?;
        if let Some(record) = came.into_iter().next() {
            let area = InflightArea::decode(&payload).expect("an area");
            *self.record.borrow_mut() = Some((record, area));
        }
        Ok(payload.to_vec())
    }

    async fn number(&self, message: &Message) -> io::Result<u64> {
        let payload = self.ask(message, &[]).await?;
        Ok(u64::from_le_bytes(payload.try_into().expect("eight")))
    }

    /// Says something that has to succeed.
    async fn say(&self, message: Message, with: &[&Descriptor]) -> io::Result<()> {
        let payload = self.ask(&message, with).await?;
        match payload[..] == [0; 8] {
            true => Ok(()),
            false => Err(io::Error::other(format!("{message:?} was refused"))),
        }
    }

    /// Connects and hands the guest over.
    pub async fn connect(&self) -> io::Result<Rc<Stream>> {
        let stream = Rc::new(Stream::connect(&self.address).await?);
        *self.stream.borrow_mut() = Some(Rc::clone(&stream));
        // Answers to all that follows are agreed on first.
        let bytes = encode(&Message::GetProtocolFeatures, false);
        stream.write_all(vec![View::copy_of(&bytes)]).await?;
        let answer = stream.read_exact(Buf::for_read(HEADER + 8)).await?;
        let offered = u64::from_le_bytes(answer[HEADER..].try_into().unwrap());
        assert!(offered & protocol::REPLY_ACK != 0);
        let bytes = encode(&Message::SetProtocolFeatures(offered), false);
        stream.write_all(vec![View::copy_of(&bytes)]).await?;
        let features = self.number(&Message::GetFeatures).await?;
        self.say(Message::SetOwner, &[]).await?;
        self.number(&Message::GetQueueNum).await?;
        if self.looks {
            self.look().await?;
        }
        if self.keeps_record && offered & protocol::INFLIGHT_SHMFD != 0 {
            self.hand_record().await?;
        }
        self.say(Message::SetFeatures(features & !self.without), &[])
            .await?;
        let regions = Guest::regions();
        let memory = vec![&self.guest.memory; regions.len()];
        self.say(Message::SetMemTable(regions), &memory).await?;
        if self.idle_first {
            // A queue that the guest never used.
            let kick = Descriptor::event()?;
            self.begin_ring(1, 0, Guest::idle_addresses(), &kick)
                .await?;
        }
        self.begin_queue(0).await?;
        if let Some(write_back) = self.write_back.get() {
            self.set_write_back(write_back).await?;
        }
        self.connected.set(self.connected.get() + 1);
        Ok(stream)
    }

    /// Looks at the configuration space.
    pub async fn look(&self) -> io::Result<()> {
        let config = Message::GetConfig { offset: 0, len: 60 };
        let config = self.ask(&config, &[]).await?;
        let capacity = u64::from_le_bytes(config[12..20].try_into().unwrap());
        self.capacity.set(capacity);
        Ok(())
    }

    pub async fn set_write_back(&self, on: bool) -> io::Result<()> {
        let config = Message::SetConfig {
            offset: 32,
            bytes: vec![u8::from(on)],
        };
        self.say(config, &[]).await
    }

    async fn hand_record(&self) -> io::Result<()> {
        if self.record.borrow().is_none() {
            let wanted = InflightArea {
                len: 0,
                offset: 0,
                queues: 1,
                size: SIZE,
            };
            self.ask(&Message::GetInflight(wanted), &[]).await?;
        }
        let record = self.record.borrow().clone();
        let (record, area) = record.expect("it was just made");
        self.say(Message::SetInflight(area), &[&record]).await
    }

    pub async fn begin_queue(&self, queue: u16) -> io::Result<()> {
        let index = self.guest.used_index().into();
        let kick = &self.guest.kick;
        self.begin_ring(queue, index, Guest::addresses(), kick)
            .await
    }

    async fn begin_ring(
        &self,
        queue: u16,
        index: u32,
        at: Addresses,
        kick: &Descriptor,
    ) -> io::Result<()> {
        let size = SIZE.into();
        self.say(Message::SetVringNum { queue, size }, &[]).await?;
        self.say(Message::SetVringBase { queue, index }, &[])
            .await?;
        self.say(Message::SetVringAddr { queue, at }, &[]).await?;
        for (what, descriptor) in [(Notifies::Call, &self.guest.call), (Notifies::Kick, kick)] {
            let given = true;
            let notifier = Message::SetVringNotifier { queue, what, given };
            self.say(notifier, &[descriptor]).await?;
        }
        self.say(Message::SetVringEnable { queue, on: true }, &[])
            .await
    }

    /// Stops a queue; where it stands.
    pub async fn stop_queue(&self, queue: u16) -> io::Result<u32> {
        let payload = self.ask(&Message::GetVringBase { queue }, &[]).await?;
        Ok(u32::from_le_bytes(payload[4..8].try_into().unwrap()))
    }

    pub fn hang_up(&self) {
        if let Some(stream) = self.stream.take() {
            stream.abort();
        }
    }
}
