//! Users of a volume: their class and fairness reach the stores, and nothing else changes.

use std::cell::Cell;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span};
use device::meter::OpSnapshot;
use device::{Class, Device, DeviceError, DeviceExt, WriteFlags};
use env::sync::join_all;
use policy::place::{Class as Priority, ClientId, Permille, State};

use super::cluster::{Cluster, Server};
use super::single::{filled, healthy, read};
use crate::volume::{Mutation, User, UserVolume, Volume};

/// A user with a class of its own.
fn user(client: u64, class: Priority) -> User {
    User {
        client: ClientId(client),
        class: Some(class),
        other: None,
    }
}

/// The tokens of the volume's connections.
fn marks(volume: &Volume) -> Vec<u64> {
    let replicas = volume.core.replicas.values();
    replicas.map(|replica| replica.token().0).collect()
}

/// Has the store's next connection a greater token when a change on a user's connection was indeterminate?
async fn an_indeterminate_change_taints_the_store(mutation: Option<Mutation>) -> bool {
    let cluster = Cluster::new(1, 1, 1, Bytes::mib(64)).await;
    let volume = cluster
        .open(1, cluster.meta_store.client(), mutation)
        .await
        .unwrap();
    let user = volume.for_user(user(2, Priority::High)).await;
    user.write_at(Sector(0), filled(1, 4096)).await.unwrap();
    // The map is committed by then: the volume's own connection has nothing to do.
    env::sleep(Nanos::secs(1)).await;
    let before = marks(&volume);
    // What is asked is done, and the answer is lost.
    cluster.servers[0].deaf.set(1.0);
    let late = Rc::clone(&user);
    let late = env::spawn(async move { late.write_at(Sector(0), filled(2, 4096)).await });
    env::sleep(Nanos::millis(100)).await;
    cluster.servers[0].deaf.set(0.0);
    late.await.unwrap();
    assert_eq!(read(&volume, 0, 4096).await[..], [2; 4096]);
    let after = marks(&volume);
    volume.close().await.unwrap();
    after[0] > before[0]
}

#[test]
fn an_indeterminate_change_of_a_client_session_raises_the_stores_token() {
    let remembered = |mutation| {
        env::Runtime::simulated(61).block_on(an_indeterminate_change_taints_the_store(mutation))
    };
    assert!(remembered(None));
    assert!(
        !remembered(Some(Mutation::UntaintedByClients)),
        "the planted bug is seen"
    );
}

#[test]
fn requests_are_counted_with_their_time_by_operation_and_class_of_the_client() {
    env::Runtime::simulated(63).block_on(async {
        let cluster = Cluster::new(3, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let high = volume.for_user(user(3, Priority::High)).await;
        let begun = env::now();
        high.write_at(Sector(0), filled(1, 65_536)).await.unwrap();
        let took = env::now().since(begun);
        high.flush().await.unwrap();
        read(&volume, 0, 4096).await;
        for server in &cluster.servers {
            server.crash();
        }
        let buf = Buf::for_read(4096);
        let failed = high.read(Sector(0), buf, Class::Foreground).await;
        assert!(failed.is_err());
        let requests = volume.requests();
        let of = |it: &OpSnapshot| {
            (
                it.op.clone(),
                it.class.clone(),
                it.requests,
                it.bytes,
                it.errors,
            )
        };
        let rows: Vec<_> = requests.operations.iter().map(of).collect();
        let row = |op: &str, class: &str, requests, bytes, errors| {
            (op.to_owned(), class.to_owned(), requests, bytes, errors)
        };
        assert_eq!(
            rows,
            [
                row("read", "normal", 1, 4096, 0),
                row("read", "high", 1, 0, 1),
                row("write", "high", 1, 65_536, 0),
                row("flush", "high", 1, 0, 0),
            ]
        );
        assert_eq!(requests.operations[2].latency.sum_ns, took.0);
        assert_eq!(requests.in_flight, 0);
    });
}

#[test]
fn a_user_reads_and_writes_while_its_own_connections_break_or_are_missing() {
    env::Runtime::simulated(62).block_on(async {
        let cluster = Cluster::new(3, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let low = volume.for_user(user(2, Priority::Low)).await;
        let high = volume.for_user(user(3, Priority::High)).await;
        for round in 0..12_u8 {
            let at = u64::from(round % 3) * (4 << 20);
            low.write_at(Sector(at / 512), filled(round + 1, 65_536))
                .await
                .unwrap();
            let buf = Buf::for_read(65_536);
            let seen = high.read(Sector(at / 512), buf, Class::Foreground).await;
            assert_eq!(seen.unwrap()[..], vec![round + 1; 65_536][..]);
            let span = Span::bytes(at, 4096);
            high.write_zeroes(span, WriteFlags::default())
                .await
                .unwrap();
            assert_eq!(read(&volume, at, 4096).await[..], [0; 4096]);
            let server = &cluster.servers[usize::from(round % 3)];
            match round % 4 {
                0 => server.crash(),
                1 => {
                    cluster.heal().await;
                    // Until there are connections to it again a write may put a store out that counts as in sync.
                    env::sleep(Nanos::secs(1)).await;
                    healthy(&volume).await;
                }
                _ => {}
            }
        }
        cluster.heal().await;
        healthy(&volume).await;
        low.flush().await.unwrap();
        volume.close().await.unwrap();
        let over = high.write_at(Sector(0), filled(1, 512)).await;
        assert!(matches!(over, Err(DeviceError::Gone { .. })));
    });
}

async fn read_some(user: &UserVolume, at: u64) {
    let buf = Buf::for_read(65_536);
    let read = user.read(Sector(at / 512), buf, Class::Foreground).await;
    assert_eq!(read.unwrap()[..], [5; 65_536]);
}

/// How many of 60 reads of a user of low class a busy store does before 16 of one of `class` who came later.
async fn done_before(class: Priority, wire: bool) -> usize {
    let cluster = Cluster::new(1, 1, 1, Bytes::mib(64)).await;
    cluster.servers[0].listen().await;
    let meta = cluster.meta_store.client();
    let volume = match wire {
        true => cluster.open_over_the_wire(1, meta).await.unwrap(),
        false => cluster.open_here(1, meta).await.unwrap(),
    };
    let data = filled(5, 4 << 20);
    volume.write_at(Sector(0), data).await.unwrap();
    let low = volume.for_user(user(2, Priority::Low)).await;
    let late = volume.for_user(user(3, class)).await;
    cluster.servers[0].slow(Nanos::millis(2));
    let done = Rc::new(Cell::new(0));
    let reads: Vec<_> = (0..60)
        .map(|nth| {
            let (low, done) = (Rc::clone(&low), Rc::clone(&done));
            env::spawn(async move {
                read_some(&low, nth * 65_536).await;
                done.set(done.get() + 1);
            })
        })
        .collect();
    env::sleep(Nanos::millis(7)).await;
    let before = done.get();
    assert!(before < 20, "they wait: {before}");
    let later = (0..16).map(|nth| read_some(&late, nth * 65_536));
    join_all(later.collect::<Vec<_>>()).await;
    let meanwhile = done.get() - before;
    join_all(reads).await;
    meanwhile
}

#[test]
fn a_preferred_users_reads_overtake_another_users_queue_on_one_volume() {
    for wire in [false, true] {
        let [same, normal, high] = Priority::ALL
            .map(|class| env::Runtime::simulated(63).block_on(done_before(class, wire)));
        // One of the same class does not wait behind the whole queue either: it has a line of its own.
        let less = high < normal && normal < same;
        assert!(less && high <= 10 && same <= 30, "{high} {normal} {same}");
    }
}

/// Bytes that sessions of this priority got at a store.
fn delivered(server: &Server, priority: &str) -> u64 {
    let sessions = server.node().sessions();
    let of = sessions.iter().filter(|it| it.priority == priority);
    of.map(|it| it.delivery.delivered_bytes).sum()
}

#[test]
fn what_a_store_that_comes_back_lacks_is_copied_behind_what_clients_ask_for() {
    env::Runtime::simulated(64).block_on(async {
        const EXTENTS: u64 = 3;
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        for server in &cluster.servers {
            server.listen().await;
        }
        let meta = cluster.meta_store.client();
        let volume = cluster.open_over_the_wire(1, meta).await.unwrap();
        cluster.servers[1].crash();
        for index in 0..EXTENTS {
            let data = filled(1 + index as u8, 1 << 20);
            volume
                .write_at(Sector(index * (4 << 20) / 512), data)
                .await
                .unwrap();
        }
        let from = &cluster.servers[0];
        let before = (delivered(from, "low"), delivered(from, "normal"));
        assert_eq!(before.0, 0);
        cluster.heal().await;
        cluster.servers[1].listen().await;
        healthy(&volume).await;
        let all = EXTENTS << 20;
        assert!(delivered(from, "low") >= all);
        assert!(delivered(&cluster.servers[1], "low") >= all);
        // Maps and dirty bits are the volume's.
        assert!(delivered(from, "normal") - before.1 < 1 << 20);
        for index in 0..EXTENTS {
            let seen = read(&volume, index * (4 << 20), 1 << 20).await;
            assert!(seen[..] == vec![1 + index as u8; 1 << 20][..]);
        }
    });
}

/// The queue of a disk that seeks 2 ms, with 20 reads of two users in it by turns; a seek behind the other one counts `other`.
async fn queue_of_two(other: u32, wire: bool) -> State {
    let cluster = Cluster::new(1, 1, 1, Bytes::mib(64)).await;
    let server = &cluster.servers[0];
    server.seek.set(Nanos::millis(2));
    server.crash();
    server.start().await;
    server.listen().await;
    let meta = cluster.meta_store.client();
    let volume = match wire {
        true => cluster.open_over_the_wire(1, meta).await.unwrap(),
        false => cluster.open_here(1, meta).await.unwrap(),
    };
    let data = filled(5, 4 << 20);
    volume.write_at(Sector(0), data).await.unwrap();
    let mut users = Vec::new();
    for client in [2, 3] {
        let user = User {
            other: Some(Permille(other)),
            ..user(client, Priority::Normal)
        };
        users.push(volume.for_user(user).await);
    }
    server.slow(Nanos::millis(50));
    let reads = (0..20_u64).map(|nth| {
        let user = Rc::clone(&users[nth as usize % 2]);
        env::spawn(async move { read_some(&user, nth * 7 % 20 * 131_072).await })
    });
    let reads: Vec<_> = reads.collect();
    env::sleep(Nanos::millis(5)).await;
    let state = server.node().state();
    join_all(reads).await;
    state
}

#[test]
fn fairness_of_users_is_in_the_cost_that_a_store_tells_of_its_queue() {
    for wire in [false, true] {
        let [alone, fair] = [1_000, 8_000]
            .map(|other| env::Runtime::simulated(64).block_on(queue_of_two(other, wire)));
        assert_eq!((alone.requests, fair.requests), (20, 20));
        // What the disk has to do is the same.
        assert_eq!(alone.work, fair.work);
        // Each seek behind another client is 7 times more: all of them here, those where one connection's batch ends
        // there.
        let (more, seek) = (fair.cost.saturating_sub(alone.cost), fair.weights.seek * 7);
        let turns = more.0 / seek.0;
        let expected = if wire { 1..=20 } else { 19..=20 };
        assert!(
            more == seek * turns && expected.contains(&turns),
            "{turns}, {more}"
        );
    }
}
