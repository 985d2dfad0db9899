//! Files, sockets and other threads, on io_uring and on the thread pool alike.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::task::Poll;

use base::{Buf, Bytes, Nanos, View};
use env::fs::{Direct, File, Options};
use env::net::{Address, Datagram, Listener, Stream};
use env::sync::{Closed, join_all};
use env::{Choice, Polling, RealConfig, Runtime, mailbox, sleep, spawn};

/// One runtime of each driver that this system offers; small rings, so that they run full.
fn runtimes() -> Vec<Runtime> {
    let made = |thread_pool, polling| {
        Runtime::real(RealConfig {
            seed: Some(7),
            ring_entries: 8,
            thread_pool,
            polling,
        })
        .unwrap()
    };
    let pool = made(Choice::Always, Polling::Off);
    assert_eq!(pool.driver_name(), "thread pool");
    let auto = made(Choice::Auto, Polling::Off);
    if auto.driver_name() == "thread pool" {
        println!("skipped: this system refuses io_uring; only the thread pool is tested");
        return vec![pool];
    }
    assert_eq!(auto.driver_name(), "io_uring");
    let spinning = Polling::UpTo(Nanos::micros(50));
    vec![auto, made(Choice::Auto, spinning), pool]
}

/// Bytes that name their place.
fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8)
        .collect()
}

fn options(size: Bytes) -> Options {
    Options {
        create: Some(size),
        ..Options::default()
    }
}

// --- files ------------------------------------------------------------------------------------------

#[test]
fn what_is_written_is_read_and_lands_in_the_file() {
    for runtime in runtimes() {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("disk");
        for direct in [Direct::Auto, Direct::No] {
            let path = path.clone();
            runtime.block_on(async move {
                let options = Options {
                    direct,
                    ..options(Bytes::mib(4))
                };
                let file = Rc::new(File::open(&path, &options).unwrap());
                assert_eq!(file.size(), Bytes::mib(4));
                assert!(!file.is_block_device());
                assert!(4096usize.is_multiple_of(file.dio_align()));
                assert_eq!(file.direct(), file.dio_align() > 1);
                // More at once than the ring has entries.
                let writes = (0..200usize).map(|block| {
                    let file = Rc::clone(&file);
                    async move {
                        let data = View::copy_of(&pattern(block * 4096, 4096));
                        let dsync = block % 50 == 0;
                        file.write_at(data, block as u64 * 4096, dsync).await
                    }
                });
                for answer in join_all(writes).await {
                    answer.unwrap();
                }
                file.sync().await.unwrap();
                let reads =
                    (0..200u64).map(|block| file.read_at(Buf::for_read(4096), block * 4096));
                for (block, read) in join_all(reads).await.into_iter().enumerate() {
                    assert_eq!(read.unwrap()[..], pattern(block * 4096, 4096)[..]);
                }
                let large = file.read_at(Buf::for_read(200 * 4096), 0).await.unwrap();
                assert_eq!(large[..], pattern(0, 200 * 4096)[..]);
                let rest = file.read_at(Buf::for_read(4096), 200 * 4096).await.unwrap();
                assert!(
                    rest.iter().all(|byte| *byte == 0),
                    "a sparse file reads zeros"
                );
            });
        }
        let mut found = vec![0; 200 * 4096];
        let file = std::fs::File::open(&path).unwrap();
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, pattern(0, 200 * 4096));
    }
}

#[test]
fn holes_and_zeroed_ranges_read_zeros_and_holes_give_space_back() {
    use std::os::unix::fs::MetadataExt;
    for runtime in runtimes() {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("disk");
        runtime.block_on(async move {
            let file = File::open(&path, &options(Bytes::mib(2))).unwrap();
            let full = View::copy_of(&[9; 2 << 20]);
            file.write_at(full, 0, true).await.unwrap();
            let before = std::fs::metadata(&path).unwrap().blocks();
            file.punch_hole(0, 1 << 20).await.unwrap();
            let after = std::fs::metadata(&path).unwrap().blocks();
            assert!(after <= before - (1 << 20) / 512, "{before} {after}");
            file.zero_range(1 << 20, 64 << 10).await.unwrap();
            let read = file.read_at(Buf::for_read(2 << 20), 0).await.unwrap();
            let zeros = (1 << 20) + (64 << 10);
            assert!(read[..zeros].iter().all(|byte| *byte == 0));
            assert!(read[zeros..].iter().all(|byte| *byte == 9));
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 << 20);
        });
    }
}

#[test]
fn a_future_dropped_early_neither_stops_its_write_nor_harms_memory() {
    for runtime in runtimes() {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("disk");
        let seen = path.clone();
        let driver = runtime.driver_name();
        runtime.block_on(async move {
            let file = File::open(&path, &options(Bytes::mib(4))).unwrap();
            for block in 0..500u64 {
                let data = View::copy_of(&[block as u8 | 1; 4096]);
                let mut write = Box::pin(file.write_at(data, block * 4096, false));
                let mut read = Box::pin(file.read_at(Buf::for_read(64 << 10), 3 << 20));
                // Both start, then both are dropped.
                std::future::poll_fn(|cx| {
                    let _ = write.as_mut().poll(cx);
                    let _ = read.as_mut().poll(cx);
                    Poll::Ready(())
                })
                .await;
                drop((write, read));
                if block % 20 == 0 {
                    env::yield_now().await;
                }
            }
        });
        // Waits for what is under way.
        drop(runtime);
        let file = std::fs::File::open(seen).unwrap();
        for block in 0..500 {
            let mut found = [0; 4096];
            file.read_exact_at(&mut found, block * 4096).unwrap();
            let written = [block as u8 | 1; 4096];
            assert!(found == written, "block {block} by {driver}: {}", found[0]);
        }
    }
}

#[test]
fn what_cannot_be_done_is_refused_with_its_reason() {
    for runtime in runtimes() {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("disk");
        let nowhere = folder.path().join("nowhere");
        runtime.block_on(async move {
            let missing = File::open(&nowhere, &Options::default()).err().unwrap();
            assert_eq!(missing.kind(), ErrorKind::NotFound);
            let folder = File::open(nowhere.parent().unwrap(), &Options::default());
            assert!(folder.is_err());
            let null = File::open(&PathBuf::from("/dev/null"), &Options::default());
            let refusal = null.err().unwrap().to_string();
            assert!(
                refusal.contains("regular file or a block device"),
                "{refusal}"
            );

            let file = File::open(&path, &options(Bytes::kib(64))).unwrap();
            let end = file.read_at(Buf::for_read(8192), 60 << 10).await;
            let end = end.err().unwrap();
            assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
            assert!(end.to_string().contains("4096 bytes on"), "{end}");
            // Created once; opened as it is the second time.
            let again = File::open(&path, &options(Bytes::mib(1))).unwrap();
            assert_eq!(again.size(), Bytes::kib(64));

            let read_only = Options {
                read_only: true,
                ..Options::default()
            };
            let read_only = File::open(&path, &read_only).unwrap();
            let data = View::copy_of(&[0; 4096]);
            let refusal = read_only.write_at(data, 0, false).await.err().unwrap();
            assert_eq!(refusal.raw_os_error(), Some(9), "EBADF: {refusal}");
        });
    }
    let refusal = Runtime::simulated(1).block_on(async {
        File::open(&PathBuf::from("/tmp/x"), &Options::default())
            .err()
            .unwrap()
            .to_string()
    });
    assert!(refusal.contains("simulated runtime"), "{refusal}");
}

// --- streams ----------------------------------------------------------------------------------------

/// A TCP and a Unix address to listen at, and the folder of the latter.
fn places() -> (Vec<Address>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let tcp = "127.0.0.1:0".parse().unwrap();
    (vec![tcp, Address::Unix(path)], folder)
}

async fn echo(stream: Stream) {
    loop {
        let (count, mut buf) = stream.read(Buf::for_read(100_000)).await.unwrap();
        if count == 0 {
            return;
        }
        buf.truncate(count);
        stream.write_all(vec![buf.freeze()]).await.unwrap();
    }
}

#[test]
fn large_transfers_come_back_whole_with_reader_and_writer_at_once() {
    const LEN: usize = 24 << 20;
    for runtime in runtimes() {
        let (places, _folder) = places();
        for place in places {
            runtime.block_on(async move {
                let listener = Listener::bind(&place).unwrap();
                let address = listener.address().clone();
                spawn(async move { echo(listener.accept().await.unwrap()).await });
                let stream = Rc::new(Stream::connect(&address).await.unwrap());
                let writer = Rc::clone(&stream);
                let writes = spawn(async move {
                    let mut at = 0;
                    let mut chance = env::rng("sizes");
                    while at < LEN {
                        // Far more pieces than one sendmsg takes, and empty ones among them.
                        let pieces: Vec<View> = (0..1 + chance.below(2500))
                            .map(|_| {
                                let len = (chance.below(2000) as usize).min(LEN - at);
                                at += len;
                                View::copy_of(&pattern(at - len, len))
                            })
                            .collect();
                        writer.write_all(pieces).await.unwrap();
                    }
                    writer.shutdown_write();
                });
                let mut at = 0;
                while at < LEN {
                    let len = (LEN - at).min(777_777);
                    let buf = stream.read_exact(Buf::for_read(len)).await.unwrap();
                    assert!(buf[..] == pattern(at, len)[..], "differs within {at}+{len}");
                    at += len;
                }
                let end = stream.read(Buf::for_read(1)).await.unwrap();
                assert_eq!(end.0, 0);
                writes.await;
            });
        }
    }
}

#[test]
fn one_write_larger_than_any_socket_buffer_arrives_whole_at_a_slow_reader() {
    const LEN: usize = 16 << 20;
    for runtime in runtimes() {
        let (places, _folder) = places();
        for place in places {
            runtime.block_on(async move {
                let listener = Listener::bind(&place).unwrap();
                let address = listener.address().clone();
                let received = spawn(async move {
                    let stream = listener.accept().await.unwrap();
                    let mut all = Vec::new();
                    loop {
                        let (count, buf) = stream.read(Buf::for_read(300_000)).await.unwrap();
                        if count == 0 {
                            return all;
                        }
                        all.extend_from_slice(&buf[..count]);
                        sleep(Nanos::micros(100)).await;
                    }
                });
                let stream = Stream::connect(&address).await.unwrap();
                let whole = View::copy_of(&pattern(0, LEN));
                stream.write_all(vec![whole]).await.unwrap();
                drop(stream);
                assert!(received.await == pattern(0, LEN));
            });
        }
    }
}

#[test]
fn a_read_dropped_early_loses_no_byte() {
    for runtime in runtimes() {
        let (places, _folder) = places();
        for place in places {
            runtime.block_on(async move {
                let listener = Listener::bind(&place).unwrap();
                let address = listener.address().clone();
                let sent = spawn(async move {
                    let stream = listener.accept().await.unwrap();
                    for number in 0..200usize {
                        sleep(Nanos::micros(150)).await;
                        let piece = View::copy_of(&pattern(number * 100, 100));
                        stream.write_all(vec![piece]).await.unwrap();
                    }
                });
                let stream = Stream::connect(&address).await.unwrap();
                let (mut all, mut dropped) = (Vec::new(), 0);
                while all.len() < 20_000 {
                    // Buffers smaller and larger than the one whose future was dropped.
                    let len = 1 + all.len() % 150;
                    let read = stream.read(Buf::for_read(len));
                    match env::timeout(Nanos::micros(50), read).await {
                        Ok(read) => {
                            let (count, buf) = read.unwrap();
                            assert!(count > 0);
                            all.extend_from_slice(&buf[..count]);
                        }
                        Err(_) => dropped += 1,
                    }
                }
                assert!(dropped > 0, "no read was ever dropped");
                assert!(all == pattern(0, 20_000));
                sent.await;
            });
        }
    }
}

#[test]
fn an_abort_ends_pending_reads_and_writes_with_an_error() {
    for runtime in runtimes() {
        let (places, _folder) = places();
        for place in places {
            runtime.block_on(async move {
                let listener = Listener::bind(&place).unwrap();
                let stream = Rc::new(Stream::connect(listener.address()).await.unwrap());
                let peer = listener.accept().await.unwrap();
                let reader = Rc::clone(&stream);
                let read = spawn(async move { reader.read(Buf::for_read(10)).await.map(drop) });
                let writer = Rc::clone(&stream);
                let write = spawn(async move {
                    // The peer does not read: the socket fills up.
                    writer.write_all(vec![View::copy_of(&[0; 16 << 20])]).await
                });
                sleep(Nanos::millis(5)).await;
                assert!(!read.is_done() && !write.is_done());
                stream.abort();
                assert_eq!(read.await.unwrap_err().kind(), ErrorKind::ConnectionAborted);
                assert_eq!(
                    write.await.unwrap_err().kind(),
                    ErrorKind::ConnectionAborted
                );
                let late = stream.write_all(vec![View::copy_of(b"x")]).await;
                assert_eq!(late.unwrap_err().kind(), ErrorKind::ConnectionAborted);
                // The peer sees an end or an error, not silence.
                loop {
                    match peer.read(Buf::for_read(1 << 20)).await {
                        Ok((0, _)) | Err(_) => break,
                        Ok(_) => {}
                    }
                }
            });
        }
    }
}

#[test]
fn a_stream_dropped_with_a_read_under_way_closes_at_once() {
    for runtime in runtimes() {
        let (places, _folder) = places();
        for place in places {
            runtime.block_on(async move {
                let listener = Listener::bind(&place).unwrap();
                let stream = Stream::connect(listener.address()).await.unwrap();
                let peer = listener.accept().await.unwrap();
                let read = env::timeout(Nanos::millis(1), stream.read(Buf::for_read(10))).await;
                assert!(read.is_err());
                drop(stream);
                assert_eq!(peer.read(Buf::for_read(1)).await.unwrap().0, 0);
            });
        }
    }
}

#[test]
fn a_message_cut_short_is_an_error_that_says_how_much_came() {
    for runtime in runtimes() {
        let (places, _folder) = places();
        for place in places {
            runtime.block_on(async move {
                let listener = Listener::bind(&place).unwrap();
                let stream = Stream::connect(listener.address()).await.unwrap();
                let peer = listener.accept().await.unwrap();
                stream
                    .write_all(vec![View::copy_of(&[1; 700])])
                    .await
                    .unwrap();
                drop(stream);
                let cut = peer.read_exact(Buf::for_read(1000)).await.err().unwrap();
                assert_eq!(cut.kind(), ErrorKind::UnexpectedEof);
                assert!(cut.to_string().contains("700 bytes into"), "{cut}");
            });
        }
    }
}

#[test]
fn without_a_listener_a_connection_is_refused() {
    for runtime in runtimes() {
        let (places, _folder) = places();
        for place in places {
            runtime.block_on(async move {
                let address = Listener::bind(&place).unwrap().address().clone();
                let refusal = Stream::connect(&address).await.err().unwrap();
                assert!(
                    matches!(
                        refusal.kind(),
                        ErrorKind::ConnectionRefused | ErrorKind::NotFound
                    ),
                    "{refusal}"
                );
                assert!(
                    refusal.to_string().contains(&address.to_string()),
                    "{refusal}"
                );
            });
        }
    }
}

#[test]
fn the_mode_of_a_socket_is_given_to_no_file_that_a_link_in_its_place_names() {
    use std::os::unix::fs::{MetadataExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("secret"), folder.path().join("sock"));
    std::fs::write(&file, "x").unwrap();
    symlink(&file, &link).unwrap();
    let before = std::fs::metadata(&file).unwrap().mode();
    let refused = env::net::give_socket_mode(&link, 0o777).unwrap_err();
    assert!(refused.to_string().contains("was replaced"), "{refused}");
    assert_eq!(std::fs::metadata(&file).unwrap().mode(), before);
    let socket = folder.path().join("own");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    env::net::give_socket_mode(&socket, 0o600).unwrap();
    assert_eq!(std::fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn a_stale_unix_socket_is_replaced_a_live_one_or_a_plain_file_is_not() {
    for runtime in runtimes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        runtime.block_on(async move {
            let address = Address::Unix(path.clone());
            // The standard library leaves its file behind, as a killed process does.
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            assert!(path.exists());
            let first = Listener::bind(&address).unwrap();
            let second = Listener::bind(&address).err().unwrap();
            assert_eq!(second.kind(), ErrorKind::AddrInUse);
            assert!(second.to_string().contains("another process"), "{second}");
            drop(first);
            assert!(!path.exists(), "its own file is removed");

            std::fs::write(&path, "precious").unwrap();
            let refusal = Listener::bind(&address).err().unwrap();
            assert_eq!(refusal.kind(), ErrorKind::AddrInUse);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
            std::fs::remove_file(&path).unwrap();

            let first = Listener::bind(&address).unwrap();
            std::fs::remove_file(&path).unwrap();
            let _second = Listener::bind(&address).unwrap();
            drop(first);
            assert!(path.exists(), "another's file is left alone");
        });
    }
}

#[test]
fn an_accept_dropped_early_loses_no_connection() {
    for runtime in runtimes() {
        let (places, _folder) = places();
        for place in places {
            runtime.block_on(async move {
                let listener = Listener::bind(&place).unwrap();
                for _ in 0..20 {
                    let early = env::timeout(Nanos::micros(100), listener.accept()).await;
                    assert!(early.is_err());
                }
                let stream = Stream::connect(listener.address()).await.unwrap();
                let peer = listener.accept().await.unwrap();
                stream
                    .write_all(vec![View::copy_of(b"hello")])
                    .await
                    .unwrap();
                let heard = peer.read_exact(Buf::for_read(5)).await.unwrap();
                assert_eq!(&heard[..], b"hello");
                assert!(!peer.peer().is_empty());
            });
        }
    }
}

#[test]
fn a_program_that_knows_nothing_of_us_can_connect() {
    for runtime in runtimes() {
        runtime.block_on(async move {
            let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
            let Address::Tcp(at) = *listener.address() else {
                panic!("bound to TCP");
            };
            let client = std::thread::Builder::new()
                .spawn(move || {
                    let mut client = std::net::TcpStream::connect(at).unwrap();
                    client.write_all(&pattern(0, 3_000_000)).unwrap();
                    let mut answer = [0; 4];
                    client.read_exact(&mut answer).unwrap();
                    answer
                })
                .unwrap();
            let stream = listener.accept().await.unwrap();
            let heard = stream.read_exact(Buf::for_read(3_000_000)).await.unwrap();
            assert!(heard[..] == pattern(0, 3_000_000));
            stream
                .write_all(vec![View::copy_of(b"done")])
                .await
                .unwrap();
            assert_eq!(&client.join().unwrap(), b"done");
        });
    }
}

// --- datagrams --------------------------------------------------------------------------------------

#[test]
fn datagrams_carry_messages_and_their_sender() {
    for runtime in runtimes() {
        runtime.block_on(async move {
            let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
            let (a, b) = (Datagram::bind(any).unwrap(), Datagram::bind(any).unwrap());
            let early = env::timeout(Nanos::micros(100), b.receive(Buf::for_read(10))).await;
            assert!(early.is_err());
            a.send_to(b"hello", b.address()).await.unwrap();
            let (count, from, buf) = b.receive(Buf::for_read(100)).await.unwrap();
            assert_eq!((&buf[..count], from), (&b"hello"[..], a.address()));
        });
    }
}

#[test]
fn every_member_of_a_group_hears_what_is_sent_to_it() {
    for runtime in runtimes() {
        runtime.block_on(async move {
            let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
            let sender = Datagram::bind(any).unwrap();
            // A port that is free, since the sender has it.
            let group = SocketAddr::new("239.255.77.7".parse().unwrap(), sender.address().port());
            drop(sender);
            let members = match (Datagram::join(group), Datagram::join(group)) {
                (Ok(first), Ok(second)) => [first, second],
                (Err(error), _) | (_, Err(error)) => {
                    println!("skipped: this system has no multicast route ({error})");
                    return;
                }
            };
            let sender = Datagram::bind(any).unwrap();
            sender.send_to(b"hello", group).await.unwrap();
            for member in members {
                let (count, _, buf) = member.receive(Buf::for_read(100)).await.unwrap();
                assert_eq!(&buf[..count], b"hello");
            }
        });
    }
}

#[test]
fn a_group_is_a_multicast_address() {
    for runtime in runtimes() {
        runtime.block_on(async move {
            let refusal = Datagram::join("127.0.0.1:7000".parse().unwrap())
                .err()
                .unwrap();
            assert_eq!(refusal.kind(), ErrorKind::InvalidInput);
        });
    }
}

// --- other threads ----------------------------------------------------------------------------------

#[test]
fn letters_of_many_threads_all_arrive_each_threads_in_order() {
    const LETTERS: u32 = 20_000;
    for runtime in runtimes() {
        let (poster, mut mailbox) = mailbox();
        let threads: Vec<_> = (0..4u32)
            .map(|thread| {
                let poster = poster.clone();
                std::thread::Builder::new()
                    .spawn(move || {
                        for number in 0..LETTERS {
                            poster.post((thread, number)).unwrap();
                            if number % 100 == 0 {
                                // Lets the executor fall asleep now and then.
                                std::thread::yield_now();
                            }
                        }
                    })
                    .unwrap()
            })
            .collect();
        drop(poster);
        let counts = runtime.block_on(async move {
            let mut next = [0; 4];
            while let Ok((thread, number)) = mailbox.receive().await {
                assert_eq!(number, next[thread as usize]);
                next[thread as usize] += 1;
            }
            next
        });
        assert_eq!(counts, [LETTERS; 4]);
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

#[test]
fn two_runtimes_wake_each_other_back_and_forth() {
    const ROUNDS: u32 = 2_000;
    let (there, mut here) = mailbox();
    let (back, mut answers) = mailbox();
    let other = std::thread::Builder::new()
        .spawn(move || {
            let runtime = Runtime::real(RealConfig::default()).unwrap();
            runtime.block_on(async move {
                while let Ok(number) = here.receive().await {
                    if back.post(number + 1).is_err() {
                        return;
                    }
                }
            });
        })
        .unwrap();
    Runtime::real(RealConfig::default())
        .unwrap()
        .block_on(async move {
            for round in 0..ROUNDS {
                there.post(round).unwrap();
                assert_eq!(answers.receive().await, Ok(round + 1));
            }
            drop(there);
            assert_eq!(answers.receive().await, Err(Closed));
        });
    other.join().unwrap();
}

#[test]
fn a_waker_used_on_another_thread_wakes_its_task_in_a_sleeping_executor() {
    for runtime in runtimes() {
        runtime.block_on(async {
            for _ in 0..50 {
                let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
                let mut thread = None;
                std::future::poll_fn(|cx| {
                    if done.load(std::sync::atomic::Ordering::Acquire) {
                        return Poll::Ready(());
                    }
                    let (waker, done) = (cx.waker().clone(), std::sync::Arc::clone(&done));
                    thread.get_or_insert_with(|| {
                        std::thread::Builder::new()
                            .spawn(move || {
                                done.store(true, std::sync::atomic::Ordering::Release);
                                waker.wake();
                            })
                            .unwrap()
                    });
                    Poll::Pending
                })
                .await;
                thread.unwrap().join().unwrap();
            }
        });
    }
}

#[test]
fn a_mailbox_that_is_gone_hands_letters_back() {
    let (poster, mailbox) = mailbox();
    drop(mailbox);
    assert_eq!(poster.post(7), Err(7));
}

// --- time -------------------------------------------------------------------------------------------

#[test]
fn real_sleeps_last_at_least_as_long_as_asked_and_end_in_order() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let sleeps = (0..20u64).map(|number| async move {
                let (start, span) = (env::now(), Nanos::micros(number * 200));
                sleep(span).await;
                assert!(env::now().since(start) >= span);
            });
            join_all(sleeps).await;
        });
    }
}

#[test]
fn a_runtime_goes_on_where_an_earlier_block_on_left_its_tasks() {
    for runtime in runtimes() {
        let (sender, mut receiver) = env::sync::channel();
        runtime.block_on(async move {
            spawn(async move {
                sleep(Nanos::millis(1)).await;
                let _ = env::fs::nop().await;
                sender.send(7).unwrap();
            });
            env::yield_now().await;
        });
        assert_eq!(
            runtime.block_on(async move { receiver.receive().await }),
            Ok(7)
        );
    }
}
