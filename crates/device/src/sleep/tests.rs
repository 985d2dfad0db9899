//! A disk's rest against drives that answer as real ones do, in virtual time.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

use base::Nanos;
use env::Runtime;
use env::scsi::ScsiAnswer;

use super::command::Command;
use super::drive::{Dialect, Drive, Transport};
use super::{LOOK_EVERY, Mode, Obstacle, Sleeper};

/// What a drive is like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// SATA, behind a layer that takes commands of 16 bytes, or of 12 alone.
    Ata {
        twelve: bool,
    },
    /// SATA without power modes.
    AtaAlwaysOn,
    /// SATA behind a bridge that takes no ATA commands.
    Bridged,
    /// SAS with power conditions.
    Sas,
    /// SAS that can be stopped alone.
    Plain,
    /// A bridge that refuses to stop what is behind it.
    Stubborn,
    /// Says yes and turns on.
    Deaf,
    Tape,
    /// Answers with too few bytes.
    Short,
}

/// A drive, and what it was sent.
pub(crate) struct Fake {
    kind: Kind,
    mode: Cell<Mode>,
    /// The first byte of each command, and the ATA command in it.
    sent: RefCell<Vec<u8>>,
    /// It has this to say first.
    attention: Cell<bool>,
    /// The kernel refuses with this.
    errno: Cell<Option<i32>>,
    /// How long it takes to stop or start.
    turns: Nanos,
}

const REFUSED: [u8; 3] = [5, 0x20, 0];

impl Fake {
    fn new(kind: Kind) -> Rc<Fake> {
        Fake::turning(kind, Nanos::secs(5))
    }

    /// One that takes so long to stop or start.
    pub(crate) fn turning(kind: Kind, turns: Nanos) -> Rc<Fake> {
        Rc::new(Fake {
            kind,
            mode: Cell::new(Mode::Awake),
            sent: RefCell::default(),
            attention: Cell::new(true),
            errno: Cell::new(None),
            turns,
        })
    }

    fn data(data: Vec<u8>) -> ScsiAnswer {
        ScsiAnswer {
            data,
            ..ScsiAnswer::default()
        }
    }

    fn fixed([key, code, qualifier]: [u8; 3]) -> Vec<u8> {
        let mut sense = vec![0; 18];
        (sense[0], sense[2], sense[7]) = (0x70, key, 10);
        (sense[12], sense[13]) = (code, qualifier);
        sense
    }

    fn check(sense: Vec<u8>) -> ScsiAnswer {
        ScsiAnswer {
            status: 2,
            driver: 8,
            sense,
            ..ScsiAnswer::default()
        }
    }

    fn is_ata(&self) -> bool {
        let kind = self.kind;
        matches!(kind, Kind::Ata { .. } | Kind::AtaAlwaysOn | Kind::Bridged)
    }

    fn inquiry(&self, bytes: &[u8]) -> ScsiAnswer {
        if bytes[1] == 0 {
            let mut data = vec![0; 36];
            data[0] = u8::from(self.kind == Kind::Tape);
            data[8..16].copy_from_slice(if self.is_ata() {
                b"ATA     "
            } else {
                b"SEAGATE "
            });
            data.truncate(if self.kind == Kind::Short { 5 } else { 36 });
            return Fake::data(data);
        }
        let listed: &[u8] = match self.kind {
            Kind::Sas => &[0x00, 0x80, 0x8A],
            // The kernel's ATA layer lists it, a bridge does not.
            Kind::Ata { twelve: false } | Kind::AtaAlwaysOn => &[0x00, 0x80, 0x89],
            _ => &[0x00, 0x80],
        };
        match bytes[2] {
            0x00 => Fake::data([&[0, 0, 0, listed.len() as u8], listed].concat()),
            0x89 => {
                let mut page = vec![0; 572];
                (page[1], page[60 + 167]) = (0x89, 0x40);
                page[60 + 164] = if self.kind == Kind::AtaAlwaysOn { 0 } else { 8 };
                Fake::data(page)
            }
            0x8A => Fake::data(vec![0, 0x8A, 0, 14, 3, 7]),
            _ => Fake::check(Fake::fixed([5, 0x24, 0])),
        }
    }

    async fn start_stop(&self, bytes: &[u8]) -> ScsiAnswer {
        let (condition, start) = (bytes[4] >> 4, bytes[4] & 1);
        let mode = match (self.kind, condition, start) {
            (Kind::Stubborn, ..) => return Fake::check(Fake::fixed(REFUSED)),
            (Kind::Deaf, ..) | (_, 0, 1) => Mode::Awake,
            (_, 0, _) => Mode::Stopped,
            (Kind::Sas, 3, _) => Mode::Standby,
            _ => return Fake::check(Fake::fixed([5, 0x24, 0])),
        };
        if mode != self.mode.get() {
            env::sleep(self.turns).await;
        }
        self.mode.set(mode);
        ScsiAnswer::default()
    }

    async fn ata(&self, bytes: &[u8]) -> ScsiAnswer {
        let taken = match self.kind {
            Kind::Ata { twelve } => twelve == (bytes.len() == 12),
            _ => false,
        };
        let command = if bytes.len() == 12 {
            bytes[9]
        } else {
            bytes[14]
        };
        match command {
            _ if !taken => Fake::check(Fake::fixed(REFUSED)),
            0xE0 => {
                env::sleep(self.turns).await;
                self.mode.set(Mode::Standby);
                ScsiAnswer::default()
            }
            0xE5 => {
                let count = if self.mode.get() == Mode::Awake {
                    0xFF
                } else {
                    0
                };
                let mut sense = vec![0x72, 1, 0, 0x1D, 0, 0, 0, 14, 9, 12];
                sense.extend([0, 0, 0, count, 0, 0, 0, 0, 0, 0, 0, 0x50]);
                Fake::check(sense)
            }
            other => panic!("ATA command {other:#x}"),
        }
    }

    async fn answer(&self, bytes: &[u8]) -> ScsiAnswer {
        let not_ready = Fake::fixed([2, 0x04, 0x02]);
        match (bytes[0], self.mode.get()) {
            (0x12, _) => self.inquiry(bytes),
            (0x00, _) if self.attention.replace(false) => Fake::check(Fake::fixed([6, 0x29, 0])),
            (0x00, Mode::Stopped) => Fake::check(not_ready),
            (0x00, _) => ScsiAnswer::default(),
            (0x03, Mode::Stopped) => Fake::data(not_ready),
            (0x03, Mode::Standby) => Fake::data(Fake::fixed([0, 0x5E, 0x04])),
            (0x03, Mode::Awake) => Fake::data(Fake::fixed([0, 0, 0])),
            (0x1B, _) => self.start_stop(bytes).await,
            (0x85 | 0xA1, _) => self.ata(bytes).await,
            (other, _) => panic!("command {other:#x}"),
        }
    }

    /// What a request of a user would do.
    fn is_read(&self) -> bool {
        match self.mode.get() {
            Mode::Stopped => false,
            Mode::Awake | Mode::Standby => {
                self.mode.set(Mode::Awake);
                true
            }
        }
    }

    fn times(&self, code: u8) -> usize {
        self.sent.borrow().iter().filter(|it| **it == code).count()
    }
}

impl Transport for Rc<Fake> {
    fn send<'a>(
        &'a self,
        command: &'a Command,
    ) -> Pin<Box<dyn Future<Output = io::Result<ScsiAnswer>> + 'a>> {
        Box::pin(async move {
            if let Some(errno) = self.errno.get() {
                return Err(io::Error::from_raw_os_error(errno));
            }
            self.sent.borrow_mut().push(command.bytes[0]);
            Ok(self.answer(&command.bytes).await)
        })
    }
}

async fn probe(fake: &Rc<Fake>) -> Result<Drive, Obstacle> {
    Drive::probe(Box::new(Rc::clone(fake)), "/dev/sdx".to_owned()).await
}

async fn sleeper(fake: &Rc<Fake>) -> Rc<Sleeper> {
    let drive = probe(fake).await.expect("it can sleep");
    Sleeper::new(drive).await.expect("it answers")
}

fn run(work: impl Future<Output = ()> + 'static) {
    Runtime::simulated(1).block_on(work);
}

#[test]
fn a_disk_is_spoken_to_as_it_answers() {
    run(async {
        use super::command::Wrapping::{Sixteen, Twelve};
        for (kind, dialect) in [
            (Kind::Ata { twelve: false }, Dialect::Ata(Sixteen)),
            (Kind::Ata { twelve: true }, Dialect::Ata(Twelve)),
            (Kind::Bridged, Dialect::Stop),
            (Kind::Sas, Dialect::Standby),
            (Kind::Plain, Dialect::Stop),
        ] {
            let drive = probe(&Fake::new(kind)).await.expect("it can sleep");
            assert_eq!(drive.dialect(), dialect);
        }
    });
}

#[test]
fn a_disk_that_stands_still_is_asked_and_not_started() {
    run(async {
        for (kind, mode) in [
            (Kind::Ata { twelve: false }, Mode::Standby),
            (Kind::Sas, Mode::Standby),
            (Kind::Plain, Mode::Stopped),
        ] {
            let fake = Fake::new(kind);
            fake.mode.set(mode);
            let sleeper = sleeper(&fake).await;
            assert!(sleeper.spindle().asleep);
            env::sleep(LOOK_EVERY).await;
            sleeper.look().await;
            assert_eq!((fake.mode.get(), fake.times(0x1B)), (mode, 0));
        }
    });
}

#[test]
fn what_cannot_sleep_says_what_stands_in_the_way_and_what_to_do() {
    run(async {
        let refusal = async |kind| {
            let refused = probe(&Fake::new(kind)).await;
            refused.err().expect("it cannot sleep").to_string()
        };
        let stubborn = refusal(Kind::Stubborn).await;
        assert_eq!(
            stubborn,
            "/dev/sdx refuses START STOP UNIT (start): the disk's sense key is 0x5, code 20/00; a bridge (USB, RAID) may \
             hide the disk's: attach it to a SATA or SAS port"
        );
        let always_on = refusal(Kind::AtaAlwaysOn).await;
        assert!(always_on.contains("it says that it has no power modes"));
        let tape = refusal(Kind::Tape).await;
        assert!(tape.contains("SCSI device of type 0x1"), "{tape}");
        let short = refusal(Kind::Short).await;
        assert!(short.contains("5 bytes where at least 36"), "{short}");
        for (errno, words) in [
            (libc::ENOTTY, "takes no SCSI commands"),
            (libc::EPERM, "give it the capability CAP_SYS_RAWIO"),
            (libc::EIO, "look in the kernel's log"),
        ] {
            let fake = Fake::new(Kind::Plain);
            fake.errno.set(Some(errno));
            let refused = probe(&fake).await.err().expect("no command comes through");
            assert!(refused.to_string().contains(words), "{refused}");
        }
    });
}

#[test]
fn a_sleeping_disk_is_awake_from_the_first_request_on() {
    run(async {
        for kind in [Kind::Ata { twelve: false }, Kind::Sas, Kind::Plain] {
            let fake = Fake::new(kind);
            let sleeper = sleeper(&fake).await;
            let begun = env::now();
            assert!(!sleeper.spindle().asleep);
            env::sleep(Nanos::secs(30)).await;
            let started = fake.times(0x1B);
            assert!(sleeper.begin_to_fall());
            assert!(!sleeper.begin_to_fall(), "once is enough");
            let asleep = sleeper.spindle();
            assert_eq!(
                (asleep.asleep, asleep.since),
                (true, begun + Nanos::secs(30))
            );
            sleeper.fall(async { true }).await;
            assert_ne!(fake.mode.get(), Mode::Awake);
            assert_eq!(sleeper.spindle(), asleep, "since it fell");
            env::sleep(Nanos::secs(55)).await;
            // All that come at once wait for one start.
            let reads = (0..5).map(|_| {
                let (sleeper, fake) = (Rc::clone(&sleeper), Rc::clone(&fake));
                env::spawn(async move {
                    sleeper.request().await;
                    assert!(fake.is_read(), "no request meets a stopped disk");
                })
            });
            for read in reads.collect::<Vec<_>>() {
                read.await;
            }
            let spindle = sleeper.spindle();
            assert!(!spindle.asleep && spindle.since >= asleep.since + Nanos::secs(60));
            let starts = fake.times(0x1B) - started;
            let due = match kind {
                Kind::Plain => 2,
                Kind::Sas => 1,
                _ => 0,
            };
            assert_eq!(starts, due);
        }
    });
}

#[test]
fn a_request_that_comes_while_the_disk_falls_is_sent_when_it_turns() {
    run(async {
        for wait in [Nanos(0), Nanos::millis(1), Nanos::secs(2), Nanos::secs(20)] {
            let fake = Fake::new(Kind::Plain);
            let sleeper = sleeper(&fake).await;
            assert!(sleeper.begin_to_fall());
            let falling = env::spawn({
                let sleeper = Rc::clone(&sleeper);
                async move {
                    let flush = async {
                        env::sleep(Nanos::secs(1)).await;
                        true
                    };
                    sleeper.fall(flush).await;
                }
            });
            if wait > Nanos(0) {
                env::sleep(wait).await;
            }
            sleeper.request().await;
            assert!(fake.is_read(), "after {wait}");
            falling.await;
            assert!(!sleeper.spindle().asleep);
            // One that came before the flush had ended kept it awake.
            let stopped = !fake.sent.borrow().is_empty() && fake.times(0x1B) == 3;
            assert_eq!(stopped, wait > Nanos::secs(1), "after {wait}");
        }
    });
}

#[test]
fn a_disk_with_something_unflushed_or_that_does_not_obey_stays_awake() {
    run(async {
        let fake = Fake::new(Kind::Plain);
        let sleeper = sleeper(&fake).await;
        assert!(sleeper.begin_to_fall());
        sleeper.fall(async { false }).await;
        assert!(!sleeper.spindle().asleep);
        assert_eq!(fake.mode.get(), Mode::Awake);
        let deaf = self::sleeper(&Fake::new(Kind::Deaf)).await;
        assert!(deaf.begin_to_fall());
        deaf.fall(async { true }).await;
        assert!(!deaf.spindle().asleep);
    });
}

#[test]
fn what_others_do_to_the_disk_is_seen_at_the_next_look() {
    run(async {
        let fake = Fake::new(Kind::Ata { twelve: false });
        let sleeper = sleeper(&fake).await;
        for (mode, asleep) in [(Mode::Standby, true), (Mode::Awake, false)] {
            env::sleep(LOOK_EVERY).await;
            fake.mode.set(mode);
            let before = sleeper.spindle();
            assert_eq!(before.asleep, !asleep);
            sleeper.look().await;
            let after = sleeper.spindle();
            assert_eq!((after.asleep, after.since), (asleep, env::now()));
        }
        // Where requests come there is nothing to ask.
        let asked = fake.times(0x85);
        sleeper.request().await;
        sleeper.look().await;
        assert_eq!(fake.times(0x85), asked);
        sleeper.look().await;
        assert_eq!(fake.times(0x85), asked + 1);
    });
}
