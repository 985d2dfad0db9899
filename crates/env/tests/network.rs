//! The simulated network: what is lost, late, doubled, overtaken, cut and reset.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use base::{Buf, Instant, Nanos, View};
use env::net::sim::{self, Delay, Link, on_host};
use env::net::{Datagram, Listener, Stream};
use env::{Runtime, now, sleep, spawn, timeout};

fn hosts() -> [IpAddr; 3] {
    ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|ip| ip.parse().unwrap())
}

const PLAIN: Link = Link {
    delay: Delay::Fixed(Nanos::millis(1)),
    bandwidth: None,
    loss: 0.0,
    duplication: 0.0,
    reordering: 0.0,
    held_back: Nanos::millis(5),
};

fn run<T: 'static>(program: impl Future<Output = T> + 'static) -> T {
    Runtime::simulated(11).block_on(async {
        sim::set_default_link(PLAIN);
        program.await
    })
}

fn socket(port: u16) -> Datagram {
    Datagram::bind(SocketAddr::new("0.0.0.0".parse().unwrap(), port)).unwrap()
}

/// Sends `count` numbered datagrams from one host to another, one a microsecond; what came, and when.
async fn send_numbers(from: IpAddr, to: IpAddr, count: u32) -> Vec<(u32, Instant)> {
    let receiver = on_host(to, async { socket(7) }).await;
    let heard = spawn(async move {
        let mut heard = Vec::new();
        while let Ok(letter) = timeout(Nanos::secs(1), receiver.receive(Buf::for_read(4))).await {
            let (len, sender, buf) = letter.unwrap();
            assert_eq!((len, sender.ip()), (4, from));
            heard.push((u32::from_le_bytes(buf[..].try_into().unwrap()), now()));
        }
        heard
    });
    on_host(from, async move {
        let sender = socket(0);
        for number in 0..count {
            let to = SocketAddr::new(to, 7);
            sender.send_to(&number.to_le_bytes(), to).await.unwrap();
            sleep(Nanos::micros(1)).await;
        }
    })
    .await;
    heard.await
}

#[test]
fn on_a_plain_link_every_datagram_comes_once_in_order_after_the_delay() {
    let [a, b, _] = hosts();
    let heard = run(send_numbers(a, b, 1000));
    let expected: Vec<_> = (0..1000u32)
        .map(|number| {
            (
                number,
                Instant(0) + Nanos::millis(1) + Nanos::micros(number.into()),
            )
        })
        .collect();
    assert_eq!(heard, expected);
}

#[test]
fn a_lossy_link_loses_its_share_and_keeps_the_order_of_the_rest() {
    let [a, b, _] = hosts();
    let heard = run(async move {
        sim::set_link(a, b, Link { loss: 0.3, ..PLAIN });
        send_numbers(a, b, 10_000).await
    });
    // Mean 7,000, standard deviation 46.
    assert!((6_770..7_230).contains(&heard.len()), "{}", heard.len());
    assert!(heard.windows(2).all(|pair| pair[0].0 < pair[1].0));
}

#[test]
fn a_doubling_link_brings_its_share_twice() {
    let [a, b, _] = hosts();
    let heard = run(async move {
        let link = Link {
            duplication: 0.2,
            ..PLAIN
        };
        sim::set_link(a, b, link);
        send_numbers(a, b, 10_000).await
    });
    // Mean 2,000, standard deviation 40.
    assert!((11_800..12_200).contains(&heard.len()), "{}", heard.len());
    let mut numbers: Vec<u32> = heard.iter().map(|letter| letter.0).collect();
    numbers.dedup();
    assert_eq!(numbers, (0..10_000).collect::<Vec<_>>());
}

#[test]
fn a_reordering_link_lets_later_datagrams_overtake_but_loses_none() {
    let [a, b, _] = hosts();
    let heard = run(async move {
        let link = Link {
            reordering: 0.1,
            ..PLAIN
        };
        sim::set_link(a, b, link);
        send_numbers(a, b, 5_000).await
    });
    let mut numbers: Vec<u32> = heard.iter().map(|letter| letter.0).collect();
    let overtaken = numbers.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(overtaken > 100, "{overtaken}");
    let longest = heard
        .iter()
        .map(|(number, at)| at.since(Instant(0) + Nanos::micros(u64::from(*number))));
    let longest = longest.max().unwrap();
    assert!(
        longest > Nanos::millis(2) && longest <= Nanos::millis(6),
        "{longest}"
    );
    numbers.sort_unstable();
    assert_eq!(numbers, (0..5_000).collect::<Vec<_>>());
}

#[test]
fn a_random_delay_stays_in_its_range_and_uses_all_of_it() {
    let [a, b, _] = hosts();
    for (delay, mean) in [
        (
            Delay::Uniform(Nanos::micros(100), Nanos::micros(300)),
            200_000.0,
        ),
        (
            Delay::Exponential {
                least: Nanos::micros(100),
                tail: Nanos::micros(50),
            },
            150_000.0,
        ),
    ] {
        let delays = run(async move {
            sim::set_link(a, b, Link { delay, ..PLAIN });
            let receiver = on_host(b, async { socket(7) }).await;
            let sender = on_host(a, async { socket(0) }).await;
            let mut delays = Vec::new();
            for _ in 0..4000 {
                let start = now();
                sender.send_to(b"x", SocketAddr::new(b, 7)).await.unwrap();
                receiver.receive(Buf::for_read(1)).await.unwrap();
                delays.push(now().since(start).0);
            }
            delays
        });
        let sum: u64 = delays.iter().sum();
        let found = sum as f64 / delays.len() as f64;
        assert!((found / mean - 1.0).abs() < 0.03, "{delay:?}: mean {found}");
        assert!(*delays.iter().min().unwrap() >= 100_000);
        if let Delay::Uniform(_, most) = delay {
            assert!(*delays.iter().max().unwrap() <= most.0);
        }
    }
}

#[test]
fn a_cut_way_loses_datagrams_and_the_way_back_still_works() {
    let [a, b, c] = hosts();
    run(async move {
        let [at_a, at_b] = [
            on_host(a, async { socket(7) }).await,
            on_host(b, async { socket(7) }).await,
        ];
        let at_c = on_host(c, async { socket(7) }).await;
        sim::cut(a, b);
        at_a.send_to(b"lost", SocketAddr::new(b, 7)).await.unwrap();
        at_a.send_to(b"past", SocketAddr::new(c, 7)).await.unwrap();
        at_b.send_to(b"back", SocketAddr::new(a, 7)).await.unwrap();
        let (_, from, heard) = at_a.receive(Buf::for_read(4)).await.unwrap();
        assert_eq!((from.ip(), &heard[..]), (b, &b"back"[..]));
        assert_eq!(
            &at_c.receive(Buf::for_read(4)).await.unwrap().2[..],
            b"past"
        );
        sim::heal_way(a, b);
        at_a.send_to(b"next", SocketAddr::new(b, 7)).await.unwrap();
        let heard = at_b.receive(Buf::for_read(4)).await.unwrap().2;
        assert_eq!(&heard[..], b"next", "what the cut lost stays lost");
    });
}

#[test]
fn members_of_a_group_hear_it_each_by_its_own_link() {
    let [a, b, c] = hosts();
    run(async move {
        let group: SocketAddr = "239.1.2.3:7000".parse().unwrap();
        let members = [
            on_host(b, async move { Datagram::join(group).unwrap() }).await,
            on_host(c, async move { Datagram::join(group).unwrap() }).await,
        ];
        let sender = on_host(a, async { socket(0) }).await;
        sim::cut(a, c);
        sender.send_to(b"one", group).await.unwrap();
        sim::heal();
        sender.send_to(b"two", group).await.unwrap();
        for (member, first) in members.iter().zip([b"one", b"two"]) {
            let heard = member.receive(Buf::for_read(3)).await.unwrap().2;
            assert_eq!(&heard[..], first);
        }
    });
}

// --- streams ----------------------------------------------------------------------------------------

/// A connection from `a` to port 9 of `b`: both ends.
async fn connected(a: IpAddr, b: IpAddr) -> (Stream, Stream) {
    let listener = on_host(b, async {
        Listener::bind(&"0.0.0.0:9".parse().unwrap()).unwrap()
    })
    .await;
    let accepted = spawn(async move { listener.accept().await.unwrap() });
    let address = format!("{b}:9").parse().unwrap();
    let ours = on_host(a, async move { Stream::connect(&address).await.unwrap() }).await;
    (ours, accepted.await)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

#[test]
fn a_stream_over_a_bad_link_keeps_every_byte_in_order_but_is_late() {
    let [a, b, _] = hosts();
    run(async move {
        let (ours, theirs) = connected(a, b).await;
        sim::set_default_link(Link {
            delay: Delay::Uniform(Nanos::micros(10), Nanos::millis(10)),
            loss: 0.2,
            duplication: 0.5,
            reordering: 0.5,
            ..PLAIN
        });
        let start = now();
        let sent = spawn(async move {
            for piece in bytes(5_000_000).chunks(12_345) {
                ours.write_all(vec![View::copy_of(piece)]).await.unwrap();
            }
        });
        let heard = theirs.read_exact(Buf::for_read(5_000_000)).await.unwrap();
        assert!(heard[..] == bytes(5_000_000));
        assert!(
            now().since(start) > Nanos::millis(200),
            "some were sent again"
        );
        assert_eq!(theirs.read(Buf::for_read(1)).await.unwrap().0, 0);
        sent.await;
    });
}

#[test]
fn a_link_of_limited_bandwidth_takes_its_time() {
    let [a, b, _] = hosts();
    run(async move {
        let (ours, theirs) = connected(a, b).await;
        sim::set_link(
            a,
            b,
            Link {
                bandwidth: Some(1_000_000),
                ..PLAIN
            },
        );
        let start = now();
        let sent = spawn(async move {
            let data = View::copy_of(&bytes(3_000_000));
            ours.write_all(vec![data]).await.unwrap();
            ours
        });
        theirs.read_exact(Buf::for_read(3_000_000)).await.unwrap();
        // Three seconds to send, one millisecond under way.
        let taken = now().since(start);
        assert!(
            taken >= Nanos::secs(3) && taken < Nanos::millis(3_010),
            "{taken}"
        );
        sent.await;
    });
}

#[test]
fn a_writer_waits_for_a_reader_that_does_not_read() {
    let [a, b, _] = hosts();
    run(async move {
        let (ours, theirs) = connected(a, b).await;
        let sent = spawn(async move {
            let data = View::copy_of(&bytes(10 << 20));
            ours.write_all(vec![data]).await.unwrap();
        });
        sleep(Nanos::secs(100)).await;
        assert!(!sent.is_done());
        let heard = theirs.read_exact(Buf::for_read(10 << 20)).await.unwrap();
        assert!(heard[..] == bytes(10 << 20));
        sent.await;
    });
}

#[test]
fn a_partition_stalls_a_stream_until_it_heals_and_loses_nothing() {
    let [a, b, c] = hosts();
    run(async move {
        let (ours, theirs) = connected(a, b).await;
        sim::partition(&[a, c], &[b]);
        ours.write_all(vec![View::copy_of(b"hello")]).await.unwrap();
        let early = timeout(Nanos::secs(3600), theirs.read(Buf::for_read(5))).await;
        assert!(early.is_err());
        sim::heal();
        let healed = now();
        let heard = theirs.read_exact(Buf::for_read(5)).await.unwrap();
        assert_eq!(&heard[..], b"hello");
        assert_eq!(now().since(healed), Nanos::millis(1));
    });
}

#[test]
fn with_only_the_way_back_cut_data_arrive_until_the_window_is_full() {
    let [a, b, _] = hosts();
    run(async move {
        let (ours, theirs) = connected(a, b).await;
        sim::cut(b, a);
        let sent = spawn(async move {
            let data = View::copy_of(&bytes(4 << 20));
            ours.write_all(vec![data]).await.unwrap();
            ours
        });
        let theirs = Rc::new(theirs);
        let reader = Rc::clone(&theirs);
        let read = spawn(async move { reader.read_exact(Buf::for_read(4 << 20)).await.unwrap() });
        sleep(Nanos::secs(100)).await;
        assert!(!sent.is_done() && !read.is_done());
        sim::heal();
        assert!(read.await[..] == bytes(4 << 20));
        sent.await;
    });
}

#[test]
fn connecting_waits_for_a_partition_to_heal_but_not_for_ever() {
    let [a, b, _] = hosts();
    run(async move {
        let _listener = on_host(b, async {
            Listener::bind(&"0.0.0.0:9".parse().unwrap()).unwrap()
        })
        .await;
        sim::cut(b, a);
        let late = on_host(a, async {
            Stream::connect(&"10.0.0.2:9".parse().unwrap()).await
        });
        assert_eq!(late.await.err().unwrap().kind(), ErrorKind::TimedOut);
        assert_eq!(now(), Instant(0) + Nanos::secs(30));
        let soon = spawn(on_host(a, async {
            Stream::connect(&"10.0.0.2:9".parse().unwrap()).await
        }));
        sleep(Nanos::secs(10)).await;
        sim::heal();
        assert!(soon.await.is_ok());
        assert_eq!(now(), Instant(0) + Nanos::secs(40) + Nanos::millis(2));
    });
}

#[test]
fn a_refusal_takes_a_round_trip_and_a_closed_port_is_one() {
    let [a, b, _] = hosts();
    run(async move {
        let refused = on_host(a, async {
            Stream::connect(&"10.0.0.2:9".parse().unwrap()).await
        });
        assert_eq!(
            refused.await.err().unwrap().kind(),
            ErrorKind::ConnectionRefused
        );
        assert_eq!(now(), Instant(0) + Nanos::millis(2));
        // Bound to loopback: for its own host only.
        let local = on_host(b, async {
            Listener::bind(&"127.0.0.1:9".parse().unwrap()).unwrap()
        })
        .await;
        let refused = on_host(a, async {
            Stream::connect(&"10.0.0.2:9".parse().unwrap()).await
        });
        assert_eq!(
            refused.await.err().unwrap().kind(),
            ErrorKind::ConnectionRefused
        );
        let own = on_host(b, async {
            Stream::connect(&"127.0.0.1:9".parse().unwrap()).await
        });
        assert!(own.await.is_ok());
        drop(local);
        let elsewhere = on_host(a, async {
            Listener::bind(&"10.0.0.2:9".parse().unwrap()).err()
        });
        assert_eq!(elsewhere.await.unwrap().kind(), ErrorKind::AddrNotAvailable);
    });
}

#[test]
fn a_reset_ends_both_ends_with_an_error_and_leaves_others_alone() {
    let [a, b, c] = hosts();
    run(async move {
        let (ours, theirs) = connected(a, b).await;
        let (other, far) = connected(a, c).await;
        let read = spawn(async move { theirs.read(Buf::for_read(1)).await.map(drop) });
        sleep(Nanos(1)).await;
        sim::reset_streams(b, a);
        assert_eq!(read.await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let write = ours.write_all(vec![View::copy_of(b"x")]).await;
        assert_eq!(write.unwrap_err().kind(), ErrorKind::ConnectionReset);
        other.write_all(vec![View::copy_of(b"y")]).await.unwrap();
        assert_eq!(&far.read_exact(Buf::for_read(1)).await.unwrap()[..], b"y");
    });
}

#[test]
fn an_abort_is_an_error_here_at_once_and_a_reset_there_after_the_delay() {
    let [a, b, _] = hosts();
    run(async move {
        let (ours, theirs) = connected(a, b).await;
        let ours = Rc::new(ours);
        let reader = Rc::clone(&ours);
        let read = spawn(async move { reader.read(Buf::for_read(1)).await.map(drop) });
        env::yield_now().await;
        let start = now();
        ours.abort();
        assert_eq!(read.await.unwrap_err().kind(), ErrorKind::ConnectionAborted);
        assert_eq!(now(), start);
        let there = theirs.read(Buf::for_read(1)).await.err().unwrap();
        assert_eq!(there.kind(), ErrorKind::ConnectionReset);
        assert_eq!(now(), start + Nanos::millis(1));
    });
}

#[test]
fn a_closed_stream_gives_what_was_sent_then_its_end_and_takes_no_more() {
    let [a, b, _] = hosts();
    run(async move {
        let (ours, theirs) = connected(a, b).await;
        ours.write_all(vec![View::copy_of(b"last words")])
            .await
            .unwrap();
        drop(ours);
        assert_eq!(
            &theirs.read_exact(Buf::for_read(10)).await.unwrap()[..],
            b"last words"
        );
        assert_eq!(theirs.read(Buf::for_read(1)).await.unwrap().0, 0);
        let write = theirs.write_all(vec![View::copy_of(b"x")]).await;
        assert_eq!(write.unwrap_err().kind(), ErrorKind::BrokenPipe);

        let (ours, theirs) = connected(a, b).await;
        ours.shutdown_write();
        assert_eq!(theirs.read(Buf::for_read(1)).await.unwrap().0, 0);
        theirs
            .write_all(vec![View::copy_of(b"still")])
            .await
            .unwrap();
        assert_eq!(
            &ours.read_exact(Buf::for_read(5)).await.unwrap()[..],
            b"still"
        );
        let write = ours.write_all(vec![View::copy_of(b"x")]).await;
        assert_eq!(write.unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn reads_come_short_now_and_then_as_on_a_real_network() {
    let [a, b, _] = hosts();
    let shorts = run(async move {
        let (ours, theirs) = connected(a, b).await;
        let mut shorts = 0;
        for _ in 0..1000 {
            ours.write_all(vec![View::copy_of(&[7; 100])])
                .await
                .unwrap();
            let mut left = 100;
            while left > 0 {
                let (count, _) = theirs.read(Buf::for_read(left)).await.unwrap();
                shorts += u32::from(count < left);
                left -= count;
            }
        }
        shorts
    });
    assert!(shorts > 50, "{shorts}");
}

// --- crashes ----------------------------------------------------------------------------------------

#[test]
fn a_crashed_host_is_silent_forgets_everything_and_can_start_again() {
    let [a, b, _] = hosts();
    run(async move {
        let serve = || async {
            let listener = Listener::bind(&"0.0.0.0:9".parse().unwrap()).unwrap();
            let _socket = socket(7);
            loop {
                let stream = listener.accept().await.unwrap();
                spawn(async move {
                    while let Ok((count, mut buf)) = stream.read(Buf::for_read(10)).await {
                        if count == 0 {
                            return;
                        }
                        buf.truncate(count);
                        stream.write_all(vec![buf.freeze()]).await.unwrap();
                    }
                });
            }
        };
        let address: env::net::Address = "10.0.0.2:9".parse().unwrap();
        let server = spawn(on_host(b, serve()));
        env::yield_now().await;
        let to = address.clone();
        let stream = on_host(a, async move { Stream::connect(&to).await.unwrap() }).await;
        stream
            .write_all(vec![View::copy_of(b"ping")])
            .await
            .unwrap();
        assert_eq!(
            &stream.read_exact(Buf::for_read(4)).await.unwrap()[..],
            b"ping"
        );

        sim::crash_host(b);
        let silence = timeout(Nanos::secs(1000), stream.read(Buf::for_read(4))).await;
        assert!(silence.is_err(), "no word comes from a crashed host");
        assert!(!server.is_done());
        stream
            .write_all(vec![View::copy_of(b"ping")])
            .await
            .unwrap();
        let reset = stream.read(Buf::for_read(4)).await.err().unwrap();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        let to = address.clone();
        let refused = on_host(a, async move { Stream::connect(&to).await });
        assert_eq!(
            refused.await.err().unwrap().kind(),
            ErrorKind::ConnectionRefused
        );

        spawn(on_host(b, serve()));
        env::yield_now().await;
        let stream = on_host(a, async move { Stream::connect(&address).await.unwrap() }).await;
        stream
            .write_all(vec![View::copy_of(b"pong")])
            .await
            .unwrap();
        assert_eq!(
            &stream.read_exact(Buf::for_read(4)).await.unwrap()[..],
            b"pong"
        );
    });
}

#[test]
fn a_writer_that_waits_for_a_host_that_crashes_learns_of_it() {
    let [a, b, _] = hosts();
    run(async move {
        let (ours, theirs) = connected(a, b).await;
        let sent = spawn(async move {
            let data = View::copy_of(&bytes(10 << 20));
            ours.write_all(vec![data]).await
        });
        sleep(Nanos::secs(1)).await;
        sim::crash_host(b);
        assert_eq!(sent.await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        drop(theirs);
    });
}

#[test]
fn tasks_are_born_on_the_host_of_their_parent() {
    let [a, b, _] = hosts();
    run(async move {
        let born = on_host(a, async {
            let child = spawn(async { (sim::host(), spawn(async { sim::host() }).await) });
            env::yield_now().await;
            (sim::host(), child.await)
        })
        .await;
        assert_eq!(born, (a, (a, a)));
        assert_eq!(sim::host(), "127.0.0.1".parse::<IpAddr>().unwrap());
        let nested = on_host(a, async move {
            (on_host(b, async { sim::host() }).await, sim::host())
        });
        assert_eq!(nested.await, (b, a));
    });
}

#[test]
fn the_traffic_of_one_link_does_not_change_what_happens_on_another() {
    let [a, b, c] = hosts();
    let lossy = Link { loss: 0.5, ..PLAIN };
    let heard = |noise: bool| {
        run(async move {
            sim::set_default_link(lossy);
            if noise {
                let sender = on_host(a, async { socket(0) }).await;
                let _receiver = on_host(c, async { socket(7) }).await;
                for _ in 0..77 {
                    sender
                        .send_to(b"noise", SocketAddr::new(c, 7))
                        .await
                        .unwrap();
                }
            }
            let heard = send_numbers(a, b, 100).await;
            heard.into_iter().map(|letter| letter.0).collect::<Vec<_>>()
        })
    };
    assert_eq!(heard(false), heard(true));
}

#[test]
fn clocks_of_hosts_drift_apart_and_what_travels_keeps_true_time() {
    let [a, b, _] = hosts();
    run(async move {
        sim::set_drift(a, 250_000);
        sim::set_drift(b, -500_000);
        let slept = |host| {
            on_host(host, async {
                let start = now();
                sleep(Nanos::secs(1)).await;
                now().since(start)
            })
        };
        let start = now();
        assert_eq!(slept(a).await, Nanos::secs(1));
        assert_eq!(now().since(start), Nanos::millis(800));
        assert_eq!(slept(b).await, Nanos::secs(1));
        assert_eq!(now().since(start), Nanos::millis(2800));
        // Clocks never jump when their pace changes, and sleeps that have begun end as they would have.
        let sleeping = spawn(slept(b));
        env::yield_now().await;
        let before = on_host(b, async { now() }).await;
        sim::set_drift(b, 0);
        assert_eq!(on_host(b, async { now() }).await, before);
        let start = now();
        assert_eq!(sleeping.await, Nanos::secs(2));
        assert_eq!(now().since(start), Nanos::secs(2));
        // One millisecond under way, by a clock that is right.
        sim::set_link(a, b, PLAIN);
        let receiver = on_host(b, async { socket(7) }).await;
        let start = now();
        let send = async { socket(0).send_to(&[1], SocketAddr::new(b, 7)).await };
        on_host(a, send).await.unwrap();
        receiver.receive(Buf::for_read(4)).await.unwrap();
        assert_eq!(now().since(start), Nanos::millis(1));
    });
}
