//! The cases: what they need beforehand, and one round of each.

use std::error::Error;
use std::time::Duration;

use crate::load::{Asked, Done, End, list, read_whole, run, write_whole};
use crate::rounds::{Rounds, STORE, Unit};
use crate::servers::{BUCKET, DURABLE, PLAIN, Server, Servers};

const MIB: u64 = 1 << 20;
const SMALL: usize = 4096;
const LARGE: u64 = 8 * MIB;
/// Keys of a folder, and of a page of a listing.
const PAGE: u64 = 1000;
/// Connections at once.
const CONNECTIONS: [usize; 2] = [1, 16];
/// What is filled is filled so.
const FILLING: usize = 16;
/// Where versitygw's pages were not dropped.
const CACHED: &str = "versitygw, cached";

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Case {
    Whole,
    Small,
    Large,
    List,
}

impl Case {
    pub const ALL: [Case; 4] = [Case::Whole, Case::Small, Case::Large, Case::List];

    pub fn name(self) -> &'static str {
        match self {
            Case::Whole => "whole",
            Case::Small => "small",
            Case::Large => "large",
            Case::List => "list",
        }
    }
}

/// How much of everything.
pub struct Size {
    /// MiB of the one object.
    whole: u64,
    /// How long small ones are put, and got.
    small: Duration,
    /// Objects of 8 MiB.
    large: u64,
    /// Keys.
    keys: u64,
}

impl Size {
    pub fn of(quick: bool) -> Size {
        match quick {
            true => Size {
                whole: 256,
                small: Duration::from_millis(500),
                large: 32,
                keys: 5000,
            },
            false => Size {
                whole: 1024,
                small: Duration::from_secs(3),
                large: 128,
                keys: 100_000,
            },
        }
    }
}

type Answer = Result<(), Box<dyn Error>>;

/// Puts what the rounds of a case read.
pub fn fill(case: Case, servers: &Servers, size: &Size) -> Answer {
    match case {
        Case::Small => {}
        Case::Whole => {
            write_whole(&servers.store, size.whole * MIB)?;
            let body = vec![7; (size.whole * MIB) as usize];
            put(&servers.gateway, 1, &|_| format!("{BUCKET}/whole"), &body)?;
        }
        Case::Large => {
            for server in servers.beside() {
                let body = vec![7; LARGE as usize];
                put(&server, size.large, &large, &body)?;
            }
        }
        Case::List => {
            for server in servers.beside() {
                let key = |nth| format!("{BUCKET}/list/{:03}/{:03}", nth / PAGE, nth % PAGE);
                put(&server, size.keys, &key, b"listed")?;
            }
        }
    }
    Ok(())
}

fn large(nth: u64) -> String {
    format!("{BUCKET}/large/{nth:03}")
}

fn put(server: &Server, count: u64, path: &(dyn Fn(u64) -> String + Sync), body: &[u8]) -> Answer {
    let asked = Asked {
        method: "PUT",
        path,
        body,
        answer: 0,
    };
    run(
        server,
        FILLING.min(count as usize),
        End::Requests(count),
        &asked,
    )?;
    Ok(())
}

/// The `nth` round of a case; the methods take turns in the other order every second time.
pub fn round(
    case: Case,
    servers: &Servers,
    size: &Size,
    nth: usize,
    rounds: &mut Rounds,
) -> Answer {
    let mut beside = match case {
        Case::Small => servers.all(),
        _ => servers.beside(),
    };
    if nth % 2 == 1 {
        beside.reverse();
    }
    match case {
        Case::Whole => whole(servers, size, nth, rounds),
        Case::Small => small(&beside, size, nth, rounds),
        Case::Large => large_ones(servers, &beside, size, rounds),
        Case::List => {
            let unit = Unit {
                name: "keys/s",
                each: size.keys as f64 / size.keys.div_ceil(PAGE) as f64,
            };
            for server in &beside {
                let done = list(server, (BUCKET, "list"), PAGE, size.keys)?;
                rounds.add("list by 1,000", server.name, unit, done);
            }
            Ok(())
        }
    }
}

fn whole(servers: &Servers, size: &Size, nth: usize, rounds: &mut Rounds) -> Answer {
    let bytes = size.whole * MIB;
    let unit = Unit {
        name: "MiB/s",
        each: size.whole as f64,
    };
    let case = match size.whole % 1024 {
        0 => format!("GET {} GiB", size.whole / 1024),
        _ => format!("GET {} MiB", size.whole),
    };
    let path = |_| format!("{BUCKET}/whole");
    let asked = Asked {
        method: "GET",
        path: &path,
        body: &[],
        answer: bytes,
    };
    let gateway = || run(&servers.gateway, 1, End::Requests(1), &asked);
    let store = || read_whole(&servers.gateway, &servers.store, bytes);
    let (ours, beside) = match nth % 2 {
        0 => (gateway()?, store()?),
        _ => {
            let beside = store()?;
            (gateway()?, beside)
        }
    };
    rounds.add(&case, servers.gateway.name, unit, ours);
    rounds.add(&case, STORE, unit, beside);
    Ok(())
}

fn small(beside: &[Server], size: &Size, nth: usize, rounds: &mut Rounds) -> Answer {
    let unit = Unit {
        name: "requests/s",
        each: 1.0,
    };
    let body = [7; SMALL];
    for connections in CONNECTIONS {
        let mut put = Vec::new();
        for server in beside {
            let path = |key: u64| format!("{BUCKET}/small/{nth}/{connections}/{key:06}");
            let asked = Asked {
                method: "PUT",
                path: &path,
                body: &body,
                answer: 0,
            };
            let done = run(server, connections, End::After(size.small), &asked)?;
            rounds.add(
                &format!("PUT 4 KiB x {connections}"),
                server.name,
                unit,
                done,
            );
            put.push(done.requests);
        }
        // Where writes are durable, reads are what they are elsewhere.
        let readers = beside.iter().zip(put);
        for (server, count) in readers.filter(|it| it.0.name != DURABLE) {
            // Not in the order in which they came: a prime far from any count.
            let path = |key: u64| {
                format!(
                    "{BUCKET}/small/{nth}/{connections}/{:06}",
                    key * 7919 % count
                )
            };
            let asked = Asked {
                method: "GET",
                path: &path,
                body: &[],
                answer: SMALL as u64,
            };
            let done = run(server, connections, End::After(size.small), &asked)?;
            rounds.add(
                &format!("GET 4 KiB x {connections}"),
                server.name,
                unit,
                done,
            );
        }
    }
    Ok(())
}

fn large_ones(servers: &Servers, beside: &[Server], size: &Size, rounds: &mut Rounds) -> Answer {
    let unit = Unit {
        name: "MiB/s",
        each: (LARGE / MIB) as f64,
    };
    for connections in CONNECTIONS {
        let case = format!("GET 8 MiB x {connections}");
        let asked = Asked {
            method: "GET",
            path: &large,
            body: &[],
            answer: LARGE,
        };
        let once = |server: &Server| -> Result<Done, String> {
            run(server, connections, End::Requests(size.large), &asked)
        };
        for server in beside {
            if server.name == PLAIN {
                servers.drop_pages("large")?;
            }
            rounds.add(&case, server.name, unit, once(server)?);
            if server.name == PLAIN {
                rounds.add(&case, CACHED, unit, once(server)?);
            }
        }
    }
    Ok(())
}
