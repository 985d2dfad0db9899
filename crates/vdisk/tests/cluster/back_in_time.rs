//! A store whose disk was put back to an earlier state, and how it is replaced.

use super::*;

const ALL: usize = 64 << 20;

async fn contents(disk: &Rc<Memory>) -> Vec<Buf> {
    let mut all = Vec::new();
    for at in (0..ALL).step_by(1 << 20) {
        let piece = disk.read(
            Sector(at as u64 / 512),
            Buf::for_read(1 << 20),
            Class::Foreground,
        );
        all.push(piece.await.unwrap());
    }
    all
}

/// The store is started again, on a disk that has these contents.
async fn start_on(places: &Places, called: &str, contents: &[Buf]) {
    let before = Rc::clone(&places.0.borrow()[called]);
    let disk = Memory::new(called, Bytes(ALL as u64));
    for (number, piece) in contents.iter().enumerate() {
        let at = Sector((number as u64) << 11);
        disk.write_at(at, View::copy_of(piece)).await.unwrap();
    }
    let options = ManagerOptions {
        node_key: Some([7; 32]),
        scrub: None,
        ..ManagerOptions::new(Costs::flat(BytesPerSec::mb(1000)), [9; 32])
    };
    let node = Manager::open(disk.clone(), options).await.unwrap();
    let place = Place {
        number: before.number,
        node,
        disk,
        down: Cell::new(false),
        address: RefCell::new(before.address.borrow().clone()),
    };
    let mut places = places.0.borrow_mut();
    places.insert(called.to_owned(), Rc::new(place));
}

/// Writes to a volume, which is closed then.
async fn written(cluster: &Cluster, called: &str, byte: u8) {
    let in_use = cluster.openings.open(&name(called)).await.unwrap();
    write(in_use.volume(), 0, byte).await;
    drop(in_use);
    env::sleep(Nanos::secs(10)).await;
}

async fn has_all(cluster: &Cluster, called: &str, byte: u8) {
    let in_use = cluster.openings.open(&name(called)).await.unwrap();
    for _ in 0..20 {
        assert_eq!(read(in_use.volume(), 0).await, byte);
    }
}

#[test]
fn a_store_that_was_put_back_is_taken_out_by_the_commands_that_it_names() {
    env::Runtime::simulated(401).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        for called in ["vm1", "vm2"] {
            cluster.volumes.create(&vm(called)).await.unwrap();
            written(&cluster, called, 1).await;
        }
        let disk = Rc::clone(&places.0.borrow()["b"].disk);
        let old = contents(&disk).await;
        for called in ["vm1", "vm2"] {
            written(&cluster, called, 2).await;
        }
        start_on(&places, "b", &old).await;
        has_all(&cluster, "vm1", 2).await;
        let seen = cluster.view.overview(&name("vm1")).await.unwrap();
        assert_eq!(seen.health.condition, Condition::Degraded);
        let why = &seen.health.why;
        assert!(
            why.contains("store b was put back to an earlier state"),
            "{why}"
        );
        assert!(why.contains("`tanada node delete b --lost`"), "{why}");
        // A volume that was not opened since counts it as in sync, and goes on without it.
        cluster.membership.remove(&name("b"), true).await.unwrap();
        // As it is it does not come back.
        let uuid = places.0.borrow()["b"].node.store().uuid();
        let again = cluster
            .stores
            .register(&registration("b", uuid, "db"))
            .await;
        let refused = again.map(drop).unwrap_err().to_string();
        assert!(refused.contains("it was removed as lost"), "{refused}");
        assert!(
            refused.contains("`tanada store create DEVICE --name b --force`"),
            "{refused}"
        );
        // Made anew, it gets the copies that are missing.
        places.add(&cluster, "b", "db").await;
        for called in ["vm1", "vm2"] {
            let repaired = cluster
                .repairs
                .repair(&name(called), Some(Nanos::secs(60)), false)
                .await;
            let repaired = repaired.unwrap();
            assert_eq!(
                repaired.health.condition,
                Condition::Healthy,
                "{}",
                repaired.health.why
            );
            assert_eq!(repaired.losses.len(), 0);
        }
        env::sleep(Nanos::secs(10)).await;
        places.0.borrow()["a"].down.set(true);
        for called in ["vm1", "vm2"] {
            has_all(&cluster, called, 2).await;
        }
    });
}

#[test]
fn a_store_put_back_is_used_again_when_its_newer_disk_returns() {
    env::Runtime::simulated(402).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        written(&cluster, "vm1", 1).await;
        let disk = Rc::clone(&places.0.borrow()["b"].disk);
        let old = contents(&disk).await;
        written(&cluster, "vm1", 2).await;
        let newer = contents(&disk).await;
        start_on(&places, "b", &old).await;
        written(&cluster, "vm1", 3).await;
        start_on(&places, "b", &newer).await;
        let repaired = cluster
            .repairs
            .repair(&name("vm1"), Some(Nanos::secs(60)), false)
            .await;
        assert_eq!(repaired.unwrap().health.condition, Condition::Healthy);
        env::sleep(Nanos::secs(10)).await;
        places.0.borrow()["a"].down.set(true);
        has_all(&cluster, "vm1", 3).await;
    });
}
