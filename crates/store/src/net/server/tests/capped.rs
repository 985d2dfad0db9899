//! Requests that wait for the cap of an account while their connection, or the daemon, ends.

use device::AccountCaps;
use policy::share::cap::{Caps, Limit};

use super::*;

const BLOCK: usize = 65536;

/// One block a second may be written.
fn slow() -> BTreeMap<String, Caps> {
    let write = Limit {
        bytes: Some(BytesPerSec(BLOCK as u64)),
        requests: None,
    };
    let caps = Caps {
        write,
        ..Caps::default()
    };
    BTreeMap::from([("band".to_owned(), caps)])
}

async fn capped_site(caps: &Rc<AccountCaps>) -> Site {
    let device = Memory::new("disk", Bytes::mib(64));
    let options = ManagerOptions {
        node_key: Some(KEY),
        account_caps: Some(Rc::clone(caps)),
        ..options()
    };
    let (device, server) = sim::on_host(host(1), async move {
        let server = Server::new(manager(&device, options).await, Limits::default());
        let listener = Listener::bind(&"0.0.0.0:7400".parse().unwrap()).unwrap();
        server.serve(listener).unwrap();
        (device, server)
    })
    .await;
    Site {
        server,
        device,
        address: "10.0.0.1:7400".parse().unwrap(),
    }
}

/// A client of the account `band`.
async fn of_band(site: &Site, token: &str) -> Client {
    let credentials = Credentials::Capability(token.to_owned());
    Client::connect(&site.address, credentials).await.unwrap()
}

async fn write(client: &Client, byte: u8) -> Result<Version, ClientError> {
    let data = View::copy_of(&[byte; BLOCK]);
    client
        .write("songs/a", 0, data, Change::FUA.creating())
        .await
}

fn in_flight(site: &Site) -> u64 {
    let connections = site.server.figures().connections;
    connections.iter().map(|it| it.in_flight).sum()
}

#[test]
fn what_waits_for_a_cap_is_not_done_after_its_client_has_gone_nor_at_the_end() {
    in_virtual_time(60, async {
        let caps = Rc::new(AccountCaps::default());
        let site = capped_site(&caps).await;
        let nodes = client(&site).await;
        let slot = Slot::new(site.server.manager.now(), 3600);
        let wanted = ReservationRequest::new(Direction::Write, BytesPerSec::mb(5), slot)
            .scope("songs/")
            .holder("band");
        let (_, token) = reserved(&nodes, &wanted).await;
        caps.set_all(slow());
        let now = async || nodes.read("songs/a", 0, 1).await.unwrap()[0];
        let old = of_band(&site, &token).await;
        write(&old, 1).await.expect("the burst lets it pass");
        // A second one waits, and its client hangs up.
        let given_up = env::timeout(Nanos::millis(100), write(&old, 2)).await;
        assert!(given_up.is_err() && in_flight(&site) == 1, "{given_up:?}");
        drop(old);
        env::sleep(Nanos::millis(100)).await;
        assert_eq!(in_flight(&site), 0, "given up long before it is due");
        env::sleep(Nanos::secs(10)).await;
        assert_eq!(now().await, 1);
        // What waits and is wanted still is done.
        let new = of_band(&site, &token).await;
        write(&new, 3).await.expect("it is full again");
        write(&new, 4).await.expect("a second later");
        assert_eq!(now().await, 4);
        // The daemon stops.
        let late = {
            let new = new.clone();
            env::spawn(async move { write(&new, 5).await })
        };
        env::sleep(Nanos::millis(100)).await;
        caps.lift();
        let refused = late.await.expect_err("it was not begun");
        assert!(refused.to_string().contains("not begun"), "{refused}");
        assert_eq!(now().await, 4);
        // And where the server is drained alone.
        caps.set_all(slow());
        let other = of_band(&site, &token).await;
        write(&other, 6).await.expect("the burst lets it pass");
        let late = env::spawn(async move { drop(write(&other, 7).await) });
        env::sleep(Nanos::millis(100)).await;
        assert_eq!(in_flight(&site), 1);
        let drained = env::now();
        site.server.drain().await;
        late.await;
        assert!(env::now().since(drained) < Nanos::millis(500));
        let stored = site
            .server
            .manager
            .store()
            .read("songs/a", 0, 1, Class::Foreground)
            .await;
        assert_eq!(stored.unwrap()[0], 6);
    });
}
