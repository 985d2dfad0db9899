//! How many transactions does each meta store do in a second?
//!
//! ```text
//! cargo bench -p vdisk --bench meta -- [--seconds N] [--etcd URL,...]
//!
//! put of 256 bytes, one after another | from 64 tasks at once, each on its own key
//! ```
//!
//! The file is in the working directory. etcd is measured where its URLs are given. Real time, by the runtime's clock.
#![allow(clippy::print_stdout)]

use std::cell::Cell;
use std::rc::Rc;

use base::Nanos;
use env::{RealConfig, Runtime};
use vdisk::meta::{Etcd, EtcdConfig, MemoryMetaStore, MetaStore, Op, Outcome, Redb};

/// Transactions per second of `tasks` at once.
async fn rate(meta: Rc<dyn MetaStore>, tasks: usize, span: Nanos) -> f64 {
    let done = Rc::new(Cell::new(0u64));
    let begun = env::now();
    let running = (0..tasks).map(|task| {
        let (meta, done) = (Rc::clone(&meta), Rc::clone(&done));
        env::spawn(async move {
            while env::now().since(begun) < span {
                let put = Op::Put {
                    key: format!("bench/{task}"),
                    value: vec![task as u8; 256],
                    lease: None,
                };
                let outcome = meta.txn(vec![], vec![put]).await;
                assert!(matches!(outcome, Ok(Outcome::Done(_))), "{outcome:?}");
                done.set(done.get() + 1);
            }
        })
    });
    let running: Vec<_> = running.collect();
    env::sync::join_all(running).await;
    done.get() as f64 / env::now().since(begun).secs_f64()
}

async fn both(name: &'static str, meta: Rc<dyn MetaStore>, span: Nanos) {
    let serial = rate(Rc::clone(&meta), 1, span).await;
    let many = rate(meta, 64, span).await;
    println!("{name:<8} {serial:>10.0} one by one {many:>10.0} from 64 tasks   transactions/s");
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|it| it == name)?;
        arguments.get(at + 1).cloned()
    };
    let seconds = value("--seconds").map_or(3, |text| text.parse().expect("a number of seconds"));
    let span = Nanos::secs(seconds);
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime
        .block_on(async move { both("memory", MemoryMetaStore::new("twin").client(), span).await });
    let directory = tempfile::tempdir_in(".").expect("a directory");
    let file = Redb::open(&directory.path().join("meta.redb")).expect("a file");
    let handle = file.handle();
    runtime.block_on(async move { both("file", handle.client(), span).await });
    if let Some(urls) = value("--etcd") {
        let config = EtcdConfig {
            endpoints: urls.split(',').map(str::to_owned).collect(),
            ..EtcdConfig::default()
        };
        let etcd = Etcd::new(&config).expect("endpoints");
        let handle = etcd.handle();
        runtime.block_on(async move { both("etcd", handle.client(), span).await });
    }
}
