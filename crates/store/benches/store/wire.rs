//! A server of a store on a thread of its own, and a client of it at 127.0.0.1.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use base::{Bytes, Nanos};
use env::net::{Address, Listener};
use env::{Polling, RealConfig, Runtime};
use policy::share::{BytesPerSec, Costs};
use store::Store;
use store::net::client::{Client, Credentials};
use store::net::server::{Limits, Server};
use store::qos::manager::{Manager, ManagerOptions};

use crate::{MIB, forced, open};

const KEY: [u8; 32] = [7; 32];

/// How long a server that polls looks for work before it sleeps.
pub const POLL: Polling = Polling::UpTo(Nanos::micros(100));

/// What `work` finds with a client of a new store on the file at `path`, a device of `speed` MiB/s, where
/// both threads wait as `polling` says.
pub fn with_client<T: 'static>(
    path: &Path,
    speed: u64,
    polling: Polling,
    work: impl AsyncFnOnce(Client) -> T + 'static,
) -> T {
    let (place, known) = channel();
    let (end, is_over) = channel();
    let path = path.to_owned();
    let serving = std::thread::spawn(move || {
        runtime(polling).block_on(serve(path, speed, place, is_over));
    });
    let found = runtime(polling).block_on(async move {
        let address: Address = known.recv().expect("it is served");
        let client = Client::connect(&address, Credentials::NodeKey(KEY)).await;
        let client = client.expect("let in");
        let found = work(client.clone()).await;
        client.close().await;
        found
    });
    drop(end);
    serving.join().expect("it ended well");
    found
}

fn runtime(polling: Polling) -> Runtime {
    let config = RealConfig {
        polling,
        ..RealConfig::default()
    };
    Runtime::real(config).expect("a runtime")
}

/// Until the other end of `is_over` is gone.
async fn serve(path: PathBuf, speed: u64, place: Sender<Address>, is_over: Receiver<()>) {
    let device = open(&path);
    let store = Store::format(device.clone(), forced()).await;
    store.expect("a store").close().await.expect("a close");
    let costs = Costs::flat(BytesPerSec(speed * MIB));
    let options = ManagerOptions {
        node_key: Some(KEY),
        scrub: None,
        memory: Bytes::mib(64),
        ..ManagerOptions::new(costs, [9; 32])
    };
    let manager = Manager::open(device, options).await.expect("just made");
    let server = Server::new(manager.clone(), Limits::default());
    let address = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(&address).expect("a free port");
    place
        .send(listener.address().clone())
        .expect("the client waits");
    server.serve(listener).expect("served");
    while is_over.try_recv() == Err(TryRecvError::Empty) {
        env::sleep(Nanos::millis(5)).await;
    }
    server.drain().await;
    manager.close().await.expect("a close");
}
