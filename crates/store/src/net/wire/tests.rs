//! What is written is read back, and nothing else is.

use base::{Buf, Bytes, Nanos, Span, View};
use device::{Class, DeviceError, Op as DeviceOp};
use env::Rng;
use policy::place::{self, ClientId, Origin, Penalties, Permille, Weights};
use policy::share::calendar::{BookingId, Offer, State};
use policy::share::{BytesPerSec, Direction, Probability, Second, Slot};

use super::*;
use crate::object::damage::Damage;
use crate::object::error::StoreError;
use crate::object::types::ReservationId;
use crate::object::types::{
    AllocatedRange, Change, Condition, Listing, SpaceFigures, Stat, Version,
};
use crate::ops;
use crate::qos::load_report::ClientTag;
use crate::qos::manager::{
    Decision, Group, PartName, PartState, Quote, ReservationRequest, Reserved,
};

fn text(rng: &mut Rng) -> String {
    let len = [0, 1, 7, 40, 1024][rng.below(5) as usize];
    (0..len)
        .map(|_| ['a', '/', 'ü', '\u{0}', '星'][rng.below(5) as usize])
        .collect()
}

fn bytes(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0; rng.below(200) as usize];
    rng.fill(&mut bytes);
    bytes
}

fn number(rng: &mut Rng) -> u64 {
    match rng.below(3) {
        0 => 0,
        1 => rng.below(1000),
        _ => rng.bits(),
    }
}

fn change(rng: &mut Rng) -> Change {
    Change {
        class: Class::Foreground,
        fua: rng.chance(0.5),
        condition: match rng.below(3) {
            0 => Condition::Any,
            1 => Condition::Version(Version(number(rng))),
            _ => Condition::StampAtMost(number(rng)),
        },
        stamp: rng.chance(0.5).then(|| number(rng)),
        reservation: None,
        create: rng.chance(0.5),
    }
}

fn wanted(rng: &mut Rng) -> ReservationRequest {
    ReservationRequest {
        direction: [Direction::Read, Direction::Write][rng.below(2) as usize],
        rate: BytesPerSec(number(rng)),
        window: Nanos(number(rng)),
        probability: Probability(number(rng) as u32),
        slot: Slot {
            start: Second(number(rng)),
            end: Second(number(rng)),
        },
        space: Bytes(number(rng)),
        scope: text(rng),
        holder: text(rng),
    }
}

fn group(rng: &mut Rng) -> Group {
    Group {
        id: u128::from(rng.bits()) << 64 | u128::from(number(rng)),
        stores: (0..rng.below(4)).map(|_| u128::from(rng.bits())).collect(),
    }
}

fn request(op: Op, rng: &mut Rng) -> Request {
    let object = text(rng);
    let (offset, len) = (number(rng), number(rng));
    match op {
        Op::Open => Request::Open(match rng.below(3) {
            0 => Proof::Open,
            1 => Proof::NodeKey([rng.bits() as u8; 32]),
            _ => Proof::Capability(text(rng)),
        }),
        Op::Ping => Request::Ping,
        Op::Create => Request::Object(ops::Request::Create {
            object,
            attributes: (0..rng.below(4)).map(|_| (text(rng), bytes(rng))).collect(),
            change: change(rng),
        }),
        Op::Write => Request::Object(ops::Request::Write {
            data: View::empty(),
            object,
            offset,
            change: change(rng),
        }),
        Op::Read => Request::Object(ops::Request::Read {
            class: Class::Foreground,
            object,
            offset,
            len: u64::from(len as u32),
        }),
        Op::Truncate => Request::Object(ops::Request::Truncate {
            object,
            size: len,
            change: change(rng),
        }),
        Op::Punch => Request::Object(ops::Request::Punch {
            object,
            offset,
            len,
            change: change(rng),
        }),
        Op::Delete => Request::Object(ops::Request::Delete {
            object,
            change: change(rng),
        }),
        Op::Rename => Request::Object(ops::Request::Rename {
            object,
            to: text(rng),
            replace: rng.chance(0.5),
            change: change(rng),
        }),
        Op::List => Request::Object(ops::Request::List {
            prefix: object,
            after: rng.chance(0.5).then(|| text(rng)),
            most: len as u32 as usize,
        }),
        Op::Attributes => Request::Object(ops::Request::Attributes { object }),
        Op::SetAttributes => Request::Object(ops::Request::SetAttributes {
            object,
            changes: (0..rng.below(4))
                .map(|_| (text(rng), rng.chance(0.5).then(|| bytes(rng))))
                .collect(),
            change: change(rng),
        }),
        Op::Stat => Request::Object(ops::Request::Stat { object }),
        Op::AllocatedRanges => Request::Object(ops::Request::AllocatedRanges {
            object,
            offset,
            len,
        }),
        Op::Damage => Request::Object(ops::Request::Damage {
            prefix: text(rng),
            object,
            offset,
            most: objects::DAMAGE_MAX,
        }),
        Op::Flush => Request::Object(ops::Request::Flush),
        Op::Space => Request::Object(ops::Request::Space),
        Op::Fence => Request::Fence {
            object,
            token: offset,
        },
        Op::Seal => Request::Seal {
            object,
            token: offset,
        },
        Op::ClientTag => Request::ClientTag {
            tag: ClientTag {
                origin: Origin {
                    client: ClientId(number(rng)),
                    class: place::Class::High,
                },
                penalties: Penalties {
                    other: Permille(rng.below(1_000_000_001) as u32),
                    ..Penalties::default()
                },
            },
            every: Nanos(number(rng)),
        },
        Op::AttachReservation => Request::AttachReservation {
            holder: rng.chance(0.5).then(|| text(rng)),
        },
        Op::Offer => Request::Offer(wanted(rng)),
        Op::Quote => {
            let mut all: Vec<_> = (0..rng.below(4)).map(|_| wanted(rng)).collect();
            // They are for one slot.
            if let Some(slot) = all.first().map(|it| it.slot) {
                all.iter_mut().for_each(|it| it.slot = slot);
            }
            Request::Quote(all)
        }
        Op::Amend => Request::Amend {
            id: BookingId(number(rng)),
            wanted: wanted(rng),
            group: rng.chance(0.5).then(|| group(rng)),
            until: Second(number(rng)),
        },
        Op::Hold => Request::Hold {
            wanted: wanted(rng),
            group: rng.chance(0.5).then(|| group(rng)),
            until: Second(number(rng)),
        },
        Op::HoldWithin => Request::HoldWithin {
            within: u128::from(rng.bits()),
            wanted: wanted(rng),
            group: Group {
                id: u128::from(rng.bits()),
                stores: vec![u128::from(rng.bits())],
            },
            until: Second(number(rng)),
        },
        Op::Look => Request::Look(part(rng)),
        Op::Commit => Request::Commit(BookingId(number(rng)).into()),
        Op::Release => Request::Release(BookingId(number(rng)).into()),
        Op::CommitPart => Request::Commit(part(rng)),
        Op::ReleasePart => Request::Release(part(rng)),
        Op::Reservations => Request::Reservations {
            after: rng.chance(0.5).then(|| BookingId(number(rng))),
        },
        Op::Capability => Request::Capability(BookingId(number(rng))),
        Op::Undecided => Request::Undecided,
        Op::Decision => Request::Decision {
            group: u128::from(rng.bits()),
        },
        Op::Decide => Request::Decide {
            id: BookingId(number(rng)),
            decision: decision(rng),
        },
        Op::Report => Request::Report,
    }
}

fn part(rng: &mut Rng) -> PartName {
    PartName::of(BookingId(number(rng)), u128::from(rng.bits()))
}

fn decision(rng: &mut Rng) -> Decision {
    [Decision::Committed, Decision::Aborted][rng.below(2) as usize]
}

fn stat(rng: &mut Rng) -> Stat {
    Stat {
        name: text(rng),
        size: number(rng),
        version: Version(number(rng)),
        born: Version(number(rng)),
        stamp: number(rng),
    }
}

fn response(op: Op, rng: &mut Rng) -> Response {
    match op {
        Op::Open => Response::Opened(Opened {
            name: text(rng),
            proof: [rng.bits() as u8; 32],
            memory: Bytes(number(rng)),
            wall_clock: Nanos(number(rng)),
        }),
        Op::Ping
        | Op::Fence
        | Op::AttachReservation
        | Op::Seal
        | Op::Offer
        | Op::Release
        | Op::ReleasePart
        | Op::Decide => Response::Done,
        Op::Delete | Op::Flush => Response::Object(ops::Response::Done),
        Op::Create | Op::Write | Op::Truncate | Op::Punch | Op::Rename | Op::SetAttributes => {
            Response::Object(ops::Response::Version(Version(number(rng))))
        }
        Op::Read => Response::Object(ops::Response::Data(View::copy_of(&bytes(rng)))),
        Op::Report => Response::Report(View::copy_of(&bytes(rng))),
        Op::List => Response::Object(ops::Response::Listing(Listing {
            objects: (0..rng.below(5)).map(|_| stat(rng)).collect(),
            next: rng.chance(0.5).then(|| text(rng)),
        })),
        Op::Attributes => Response::Object(ops::Response::Attributes(
            (0..rng.below(5)).map(|_| (text(rng), bytes(rng))).collect(),
        )),
        Op::Stat => Response::Object(ops::Response::Stat(stat(rng))),
        Op::AllocatedRanges => Response::Object(ops::Response::AllocatedRanges {
            allocated_ranges: (0..rng.below(5))
                .map(|_| AllocatedRange {
                    offset: number(rng),
                    len: number(rng),
                    data: rng.chance(0.5),
                    version: Version(number(rng)),
                })
                .collect(),
            more: rng.chance(0.5),
        }),
        Op::Space => Response::Object(ops::Response::Space(SpaceFigures {
            total: Bytes(number(rng)),
            used: Bytes(number(rng)),
            spare: Bytes(number(rng)),
            objects: number(rng),
            table_max: Bytes(number(rng)),
            ..SpaceFigures::default()
        })),
        Op::Damage => Response::Object(ops::Response::Damage {
            damage: (0..rng.below(5))
                .map(|_| Damage {
                    object: text(rng),
                    offset: number(rng),
                    len: number(rng),
                })
                .collect(),
            more: rng.chance(0.5),
        }),
        Op::Look => Response::Look(PartState {
            now: Second(number(rng)),
            unused: number(rng),
        }),
        Op::Hold | Op::HoldWithin | Op::Amend => Response::Booking(BookingId(number(rng))),
        Op::Quote => Response::Quote(Quote {
            earliest: rng.chance(0.5).then(|| Second(number(rng))),
            refused: rng.chance(0.5).then(|| text(rng)),
        }),
        Op::Commit | Op::CommitPart | Op::Capability => {
            Response::Capability(rng.chance(0.5).then(|| text(rng)))
        }
        Op::Reservations => Response::Reservations {
            reservations: (0..rng.below(4))
                .map(|_| Reserved {
                    id: BookingId(number(rng)),
                    request: wanted(rng),
                    state: match rng.chance(0.5) {
                        true => State::Committed,
                        false => State::Tentative {
                            until: Second(number(rng)),
                        },
                    },
                    group: rng.chance(0.5).then(|| group(rng)),
                    space_left: Bytes(number(rng)),
                    made: Second(number(rng)),
                })
                .collect(),
            more: rng.chance(0.5),
        },
        Op::Undecided => Response::Undecided(
            (0..rng.below(4))
                .map(|_| (BookingId(number(rng)), group(rng)))
                .collect(),
        ),
        Op::Decision => Response::Decision(decision(rng)),
        Op::ClientTag => Response::State(rng.chance(0.5).then(|| place::State {
            work: Nanos(rng.below(1_000_000_000)),
            requests: number(rng) as u32,
            ..place::State::idle(Weights::default())
        })),
    }
}

/// One of every error there is.
pub(crate) fn failures() -> Vec<Failure> {
    let (store, object) = ("s0".to_owned(), "songs/1".to_owned());
    let device = || "sda".to_owned();
    let why = || "the cable fell out".to_owned();
    let span = Span::bytes(4096, 8192);
    let op = DeviceOp::WriteZeroes;
    let devices = [
        DeviceError::OutOfRange {
            device: device(),
            op: DeviceOp::Read,
            at: 1,
            len: 2,
            size: 3,
        },
        DeviceError::Io {
            device: device(),
            op: DeviceOp::Flush,
            span,
            why: why(),
        },
        DeviceError::Corrupt {
            device: device(),
            span,
            why: why(),
        },
        DeviceError::ReadOnly {
            device: device(),
            op: DeviceOp::Write,
        },
        DeviceError::FlushFailed {
            device: device(),
            why: why(),
        },
        DeviceError::NoSpace {
            device: device(),
            op: DeviceOp::Discard,
            why: why(),
        },
        DeviceError::Gone {
            device: device(),
            op,
            why: why(),
        },
    ];
    let mut all: Vec<Failure> = vec![
        StoreError::NotFound {
            store: store.clone(),
            object: object.clone(),
        }
        .into(),
        StoreError::Exists {
            store: store.clone(),
            object: object.clone(),
        }
        .into(),
        StoreError::Request {
            what: "dance".to_owned(),
            why: why(),
        }
        .into(),
        StoreError::NoSpace {
            store: store.clone(),
            asked: Bytes(1),
            available: Bytes(2),
            total: Bytes(3),
        }
        .into(),
        StoreError::Reservation {
            store: store.clone(),
            reservation: ReservationId(7),
            asked: Bytes(8),
            left: Bytes(9),
        }
        .into(),
        StoreError::NoReservation {
            store: store.clone(),
            reservation: ReservationId(7),
        }
        .into(),
        StoreError::TableFull {
            store: store.clone(),
            live: Bytes(1),
            most: Bytes(2),
        }
        .into(),
        StoreError::Damaged {
            store: store.clone(),
            object: object.clone(),
            offset: 4096,
            len: Bytes(4096),
            device: device(),
            span,
        }
        .into(),
        StoreError::Failed {
            store: store.clone(),
            why: why(),
        }
        .into(),
        StoreError::Fenced {
            store: store.clone(),
            object: "g/7".to_owned(),
            stamp: 8,
            found: 9,
        }
        .into(),
        StoreError::Closed {
            store: store.clone(),
        }
        .into(),
    ];
    let conditions = [
        Condition::Any,
        Condition::Version(Version(3 << 40 | 5)),
        Condition::StampAtMost(9),
    ];
    all.extend(conditions.map(|asked| {
        Failure::Store(StoreError::Condition {
            store: store.clone(),
            object: object.clone(),
            asked,
            found: Version(17),
            stamp: 23,
        })
    }));
    for (source, what) in devices
        .into_iter()
        .zip(["read", "write", "scrub"].into_iter().cycle())
    {
        all.push(
            StoreError::Device {
                store: store.clone(),
                what,
                object: object.clone(),
                source: Box::new(source),
            }
            .into(),
        );
    }
    let slot = Slot::new(Second(5), 10);
    let offers = [
        (None, None),
        (Some(slot), None),
        (None, Some(1)),
        (Some(slot), Some(2)),
    ];
    let offers = offers.map(|(earliest, rate)| {
        Some(Offer {
            earliest,
            largest: rate.map(BytesPerSec),
        })
    });
    for (number, kind) in failure::RefusedKind::ALL.into_iter().enumerate() {
        let offer = [None]
            .into_iter()
            .chain(offers)
            .cycle()
            .nth(number)
            .flatten();
        all.push(Failure::Refused {
            kind,
            text: why(),
            offer,
        });
    }
    all
}

fn reread(op: Op, response: &Response) -> Response {
    let (status, meta, data) = response.parts();
    Response::decode(op, status, &meta, Buf::copy_of(&data)).expect("what was written is read")
}

#[test]
fn every_request_and_answer_comes_back_as_it_was_written() {
    let mut rng = Rng::from_seed(5);
    for round in 0..2000 {
        let op = Op::ALL[round % Op::ALL.len()];
        let asked = request(op, &mut rng);
        let meta = asked.encode();
        assert_eq!(asked.op(), op);
        assert_eq!(Request::decode(op, &meta).as_ref(), Ok(&asked));
        let answered = response(op, &mut rng);
        assert_eq!(reread(op, &answered), answered);
    }
}

#[test]
fn every_error_comes_back_word_for_word() {
    for failure in failures() {
        let response = Response::Failed(failure.clone());
        let Response::Failed(read) = reread(Op::Write, &response) else {
            panic!("{failure:?} came back as no failure");
        };
        assert_eq!(read, failure);
        assert_eq!(read.to_string(), failure.to_string());
    }
}

#[test]
fn what_decodes_has_one_encoding_and_what_is_cut_off_has_none() {
    let mut rng = Rng::from_seed(6);
    let (mut taken, mut refused) = (0, 0);
    for round in 0..6000 {
        let op = Op::ALL[round % Op::ALL.len()];
        let mut meta = request(op, &mut rng).encode();
        if meta.is_empty() {
            continue;
        }
        let cut = rng.below(meta.len() as u64) as usize;
        assert!(
            Request::decode(op, &meta[..cut]).is_err(),
            "{op:?} cut at {cut}"
        );
        let at = rng.below(meta.len() as u64) as usize;
        meta[at] ^= 1 << rng.below(8);
        match Request::decode(op, &meta) {
            Ok(other) => {
                assert_eq!(other.encode(), meta);
                taken += 1;
            }
            Err(why) => {
                assert!(why.to_string().contains(op.name()), "{why}");
                refused += 1;
            }
        }
        let (status, mut meta, data) = response(op, &mut rng).parts();
        if !meta.is_empty() {
            let at = rng.below(meta.len() as u64) as usize;
            meta[at] ^= 1 << rng.below(8);
            match Response::decode(op, status, &meta, Buf::copy_of(&data)) {
                // Read as far as it is understood, and cut to what can be.
                Ok(Response::State(_)) => {}
                Ok(other) => assert_eq!(other.parts().1, meta),
                Err(_) => {}
            }
        }
    }
    assert!(
        taken > 500 && refused > 500,
        "{taken} taken, {refused} refused"
    );
}

#[test]
fn failures_that_were_changed_on_their_way_decode_to_one_encoding_or_none() {
    let mut rng = Rng::from_seed(7);
    let all = failures();
    for round in 0..6000 {
        let (status, mut meta, _) = Response::Failed(all[round % all.len()].clone()).parts();
        let at = rng.below(meta.len() as u64) as usize;
        meta[at] ^= 1 << rng.below(8);
        if let Ok(Response::Failed(other)) =
            Response::decode(Op::Read, status, &meta, Buf::for_read(0))
        {
            let (again, fields, _) = Response::Failed(other).parts();
            assert_eq!((again, fields), (status, meta));
        }
    }
}

#[test]
fn a_header_with_any_bit_changed_is_refused() {
    let header = Header::of(Op::Write as u16, 0, 77, b"fields", b"data");
    let bytes = header.encode(Kind::Request);
    assert_eq!(Header::parse(&bytes, Kind::Request), Ok(header));
    assert!(Header::parse(&bytes, Kind::Response).is_err());
    for bit in 0..HEADER_LEN * 8 {
        let mut changed = bytes;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(Header::parse(&changed, Kind::Request).is_err(), "bit {bit}");
    }
    assert!(header.check_meta(b"fields").is_ok() && header.check_data(b"data").is_ok());
    assert!(header.check_meta(b"fieldz").is_err() && header.check_data(b"date").is_err());
}

#[test]
fn hellos_come_back_and_any_bit_changed_is_refused() {
    let client = ClientHello {
        version_min: 1,
        version_max: 3,
        data_max: 1 << 20,
        nonce: [9; 32],
    };
    let bytes = client.encode();
    assert_eq!(ClientHello::parse(&bytes), Ok(client));
    for bit in 0..CLIENT_HELLO_LEN * 8 {
        let mut changed = bytes;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(ClientHello::parse(&changed).is_err(), "bit {bit}");
    }
    let server = ServerHello {
        version: 1,
        version_min: 1,
        version_max: 1,
        ways: Ways {
            open: false,
            node_key: true,
            capability: true,
        },
        nonce: [3; 32],
        store: 1 << 100 | 5,
        data_max: 1 << 24,
        requests_max: 256,
        write_max: 4 << 20,
        idle_ms: 120_000,
    };
    let bytes = server.encode();
    assert_eq!(ServerHello::parse(&bytes), Ok(server));
    for bit in 0..SERVER_HELLO_LEN * 8 {
        let mut changed = bytes;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(ServerHello::parse(&changed).is_err(), "bit {bit}");
    }
}

#[test]
fn a_proof_is_good_for_one_side_of_one_pair_of_hellos_and_one_key() {
    let challenge = |client: u8, server: u8| Challenge {
        client: [client; CLIENT_HELLO_LEN],
        server: [server; SERVER_HELLO_LEN],
    };
    let (key, other) = (NodeKey([1; 32]), NodeKey([2; 32]));
    let (here, elsewhere) = (challenge(1, 2), [challenge(1, 3), challenge(2, 2)]);
    let proof = key.client_proof(&here);
    assert!(key.is_client(&here, &proof));
    assert!(!other.is_client(&here, &proof));
    assert!(
        !key.is_server(&here, &proof),
        "a client's proof shown back to it"
    );
    assert!(elsewhere.iter().all(|there| !key.is_client(there, &proof)));
    assert!(key.is_server(&here, &key.server_proof(&here)));
}

#[test]
fn a_listing_is_cut_to_what_one_answer_holds() {
    let long = |n: usize| Stat {
        name: format!("{n:01000}"),
        size: 0,
        version: Version(1),
        born: Version(1),
        stamp: 0,
    };
    let listing = Listing {
        objects: (0..1000).map(long).collect(),
        next: None,
    };
    let cut = fitting(listing);
    assert_eq!(cut.objects.len(), 507);
    assert_eq!(cut.next, Some(cut.objects[506].name.clone()));
    let (_, meta, _) = Response::Object(ops::Response::Listing(cut)).parts();
    assert!(meta.len() <= RESPONSE_META_MAX);
}
