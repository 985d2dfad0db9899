//! Caps of hybrids, exports and virtual disks, as NBD clients find them.

use std::path::Path;
use std::rc::Rc;

use base::{Buf, Instant, Nanos, Sector, View};
use device::{Class, Device, WriteFlags};
use env::{RealConfig, Runtime};
use front::nbd::Client;
use serde_json::Value;

use crate::common::{Daemon, SMALL, connect, json, run, stderr, text};

/// [`SMALL`] with caps of the hybrid and of a view of it, and a virtual disk beside it.
fn capped() -> String {
    let hybrid = SMALL.replace(
        "name = \"vol0\"\nslow",
        "name = \"vol0\"\nmax_read = \"4MB/s\"\nslow",
    );
    assert_ne!(hybrid, SMALL);
    let more = "[[export]]\ndevice = \"vol0\"\nname = \"slow-writer\"\nnbd = \"unix:gated.sock\"\ngates = 2\nmax_write_iops = 20\n\
                [[device]]\nname = \"d1\"\nmemory = true\nsize = \"64MiB\"\n\
                [[store]]\nname = \"s1\"\ndevice = \"d1\"\nlisten = \"unix:s1.sock\"\ncreate = true\n\
                [cluster]\nnode = \"n1\"\nnbd = \"unix:disks.sock\"\n[admin]";
    hybrid.replace("[admin]", more)
}

async fn let_in(dir: &Path, socket: &str, export: &str) -> Rc<Client> {
    Rc::new(
        connect(dir, socket, export)
            .await
            .unwrap_or_else(|error| panic!("{error}")),
    )
}

/// What a client with this many requests of 64 KiB under way has done when `time` is over, and how long that took.
async fn work(client: &Rc<Client>, depth: u64, writes: bool, time: Nanos) -> (u64, Nanos) {
    let begun = env::now();
    let end = begun + time;
    let worker = async |number: u64| {
        let (mut done, at) = (0, Sector(128 * number));
        while env::now() < end {
            match writes {
                true => {
                    let data = View::copy_of(&[7; 65536]);
                    let flags = WriteFlags::default();
                    client.write(at, data, flags).await.unwrap();
                }
                false => {
                    let buf = Buf::for_read(65536);
                    client.read(at, buf, Class::Foreground).await.unwrap();
                }
            }
            done += 1;
        }
        done
    };
    let done = env::sync::join_all((0..depth).map(worker)).await;
    (done.iter().sum(), since(begun))
}

fn since(begun: Instant) -> Nanos {
    env::now().since(begun)
}

/// No more than the cap and its burst, whatever the machine was doing.
fn check(done: u64, unit: u64, rate: u64, took: Nanos) {
    let most = rate as f64 * took.secs_f64() + rate as f64;
    assert!((done * unit) as f64 <= most, "{done} x {unit} in {took:?}");
}

fn caps_of(dir: &Path, kind: &str, name: &str) -> Value {
    let status = json(dir, &["status", "--json"]);
    let all = status[kind].as_array().expect("a list");
    let found = all.iter().find(|it| it["name"] == name);
    found.expect("it is there")["caps"].clone()
}

#[test]
fn clients_get_no_more_than_caps_of_volumes_and_exports() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &capped());
    let second = Nanos::secs(1);
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    let own = dir.to_owned();
    runtime.block_on(async move {
        let dir = &*own;
        // The hybrid's, by its own export.
        let client = let_in(dir, "vol0.sock", "vol0").await;
        let (done, took) = work(&client, 16, false, second * 2).await;
        check(done, 65536, 4_000_000, took);
        let caps = caps_of(dir, "volumes", "vol0");
        assert_eq!(
            (&caps["max_read"], &caps["max_write"]),
            (&4_000_000.into(), &Value::Null)
        );
        assert!(caps["read"]["waited"].as_u64().unwrap() > 0, "{caps}");
        assert_eq!(caps["read"]["requests"], done);

        // It is changed under a client with requests waiting.
        let changing = async {
            env::sleep(Nanos::millis(300)).await;
            text(
                dir,
                &["volume", "set", "vol0", "max_read=off", "max_read_iops=30"],
            );
        };
        let begun = env::now();
        let both = async { (work(&client, 16, false, second * 2).await, changing.await).0 };
        let (done, _) = both.await;
        check(done, 1, 62 + 30, since(begun));
        text(dir, &["volume", "set", "vol0", "max_read_iops=off"]);
        assert_eq!(caps_of(dir, "volumes", "vol0"), Value::Null);
        let (free, _) = work(&client, 16, false, second).await;
        assert!(free > 93, "nothing holds it back: {free}");

        // An export's own, behind gates: two clients share it.
        let one = let_in(dir, "gated.sock", "slow-writer").await;
        let other = let_in(dir, "gated.sock", "slow-writer").await;
        let begun = env::now();
        let both = [
            work(&one, 8, true, second * 2),
            work(&other, 8, true, second * 2),
        ];
        let done: u64 = env::sync::join_all(both)
            .await
            .iter()
            .map(|(done, _)| done)
            .sum();
        check(done, 1, 20, since(begun));
        assert_eq!(
            caps_of(dir, "exports", "slow-writer")["write"]["requests"],
            done
        );
        assert_eq!(caps_of(dir, "exports", "vol0"), Value::Null);

        virtual_disk(dir).await;
    });
    let (status, log) = daemon.stop();
    assert_eq!(status, Some(0), "{log}");
}

async fn virtual_disk(dir: &Path) {
    text(dir, &["volume", "create", "vm1", "--size", "32MiB"]);
    let client = let_in(dir, "disks.sock", "vm1").await;
    let set = [
        "volume",
        "set",
        "vm1",
        "--max-read",
        "4MB/s",
        "--max-write-iops",
        "20",
    ];
    let said = text(dir, &set);
    assert!(
        said.contains("its clients get at most: reads 4 MB/s, writes 20 IOPS"),
        "{said}"
    );
    let begun = env::now();
    let (done, _) = work(&client, 16, true, Nanos::secs(2)).await;
    check(done, 1, 20, since(begun));
    let (done, took) = work(&client, 16, false, Nanos::secs(2)).await;
    check(done, 65536, 4_000_000, took);
    let disk = json(dir, &["volume", "show", "vm1", "--json"]);
    assert!(
        disk["caps"]["read"]["waited"].as_u64().unwrap() > 0,
        "{disk}"
    );
    let page = text(dir, &["volume", "show", "vm1"]);
    assert!(page.contains("reads 4 MB/s, writes 20 IOPS; "), "{page}");

    // What the holder has booked at this node's store is not to be capped away.
    let book = [
        "reserve", "add", "--store", "s1", "--read", "10MB/s", "--for", "1h", "--holder", "ann",
        "--scope", "x/",
    ];
    text(dir, &book);
    text(
        dir,
        &[
            "volume",
            "set",
            "vm1",
            "--max-read",
            "10MB/s",
            "--holder",
            "ann",
        ],
    );
    let below = run(dir, &["volume", "set", "vm1", "max_read=9MB/s"]);
    assert_eq!(below.status.code(), Some(5));
    let said = stderr(&below);
    assert!(
        said.contains("a cap of 9 MB/s of reads is below the 10 MB/s that are booked"),
        "{said}"
    );
    let nothing = run(dir, &["volume", "set", "vm1", "max_read=0B/s"]);
    assert!(
        stderr(&nothing).contains("less than one block"),
        "{}",
        stderr(&nothing)
    );
    text(
        dir,
        &[
            "volume",
            "set",
            "vm1",
            "--max-read",
            "off",
            "--max-write-iops",
            "off",
        ],
    );
    let disk = json(dir, &["volume", "show", "vm1", "--json"]);
    assert_eq!(disk["caps"], Value::Null);
}
