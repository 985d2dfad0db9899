//! Descriptors over streams: the same on the simulated and the real network.

use base::{Buf, Nanos, View};
use env::net::{Address, Listener, Stream};
use env::shared::Descriptor;
use env::{RealConfig, Runtime};

async fn pair(address: Address) -> [Stream; 2] {
    let listener = Listener::bind(&address).unwrap();
    let connecting = env::spawn(async move { Stream::connect(&address).await.unwrap() });
    let accepted = listener.accept().await.unwrap();
    [connecting.await, accepted]
}

/// Each message's descriptors come with it, also where messages follow each other at once.
async fn descriptors_travel(address: Address) {
    let [one, other] = pair(address).await;
    let memory = Descriptor::memory(4096).unwrap();
    let events = [Descriptor::event().unwrap(), Descriptor::event().unwrap()];
    let first = View::copy_of(b"first");
    let with = vec![memory.clone(), events[0].clone()];
    one.write_all_with(first, with).await.unwrap();
    one.write_all(vec![View::copy_of(b"second")]).await.unwrap();
    let third = View::copy_of(b"third");
    one.write_all_with(third, vec![events[1].clone()])
        .await
        .unwrap();

    let (data, mut first) = other.read_exact_with(Buf::for_read(5)).await.unwrap();
    assert_eq!((&data[..], first.len()), (&b"first"[..], 2));
    let (data, none) = other.read_exact_with(Buf::for_read(6)).await.unwrap();
    assert_eq!((&data[..], none.len()), (&b"second"[..], 0));
    let (data, third) = other.read_exact_with(Buf::for_read(5)).await.unwrap();
    assert_eq!((&data[..], third.len()), (&b"third"[..], 1));

    let event = first.pop().unwrap().notifier().unwrap();
    let waiting = env::spawn(async move { event.wait().await });
    env::sleep(Nanos::millis(1)).await;
    events[0].notifier().unwrap().notify().unwrap();
    waiting.await.unwrap();
    assert_eq!(first[0].identity().unwrap(), memory.identity().unwrap());
    memory.map(0, 4096).unwrap().write(8, b"shared");
    let mut seen = [0; 6];
    first[0].map(0, 4096).unwrap().read(8, &mut seen);
    assert_eq!(&seen, b"shared");
    drop(one);
    assert!(other.read_exact_with(Buf::for_read(1)).await.is_err());
}

#[test]
fn descriptors_travel_with_their_message() {
    Runtime::simulated(1).block_on(descriptors_travel("unix:/vm.sock".parse().unwrap()));
    let dir = tempfile::tempdir().unwrap();
    let address = Address::Unix(dir.path().join("vm.sock"));
    let runtime = Runtime::real(RealConfig::default()).unwrap();
    runtime.block_on(descriptors_travel(address));
}

#[test]
fn a_simulated_stream_travels_as_a_descriptor() {
    Runtime::simulated(1).block_on(async {
        let [one, other] = pair("unix:/vm.sock".parse().unwrap()).await;
        let [ours, theirs] = pair("unix:/back.sock".parse().unwrap()).await;
        let carried = theirs.into_descriptor();
        one.write_all_with(View::copy_of(b"x"), vec![carried])
            .await
            .unwrap();
        let (_, came) = other.read_exact_with(Buf::for_read(1)).await.unwrap();
        let theirs = Stream::of_descriptor(&came[0]).unwrap();
        theirs
            .write_all(vec![View::copy_of(b"news")])
            .await
            .unwrap();
        assert_eq!(
            &ours.read_exact(Buf::for_read(4)).await.unwrap()[..],
            b"news"
        );
        assert!(Stream::of_descriptor(&came[0]).is_err(), "it was taken");
    });
}
