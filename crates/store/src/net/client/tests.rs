//! A client and servers that lie.

use std::rc::Rc;

use base::{Buf, View};
use device::Memory;
use env::Runtime;
use env::net::{Address, Listener, Stream};
use policy::share::{BytesPerSec, Costs};

use super::{Client, ClientError, ClientOptions, Credentials};
use crate::Settings;
use crate::net::server::{Limits, Server};
use crate::net::wire::{HEADER_LEN, SERVER_HELLO_LEN};
use crate::object::store::Store;
use crate::object::types::Change;
use crate::ops::ObjectCalls;
use crate::qos::manager::{Manager, ManagerOptions};

/// What an honest server sends to the calls of `calls`.
async fn honest() -> (Rc<Server>, Address) {
    let device = Memory::new("disk", base::Bytes::mib(32));
    let formatted = Store::format(device.clone(), Settings::default()).await;
    formatted.unwrap().close().await.unwrap();
    let options = ManagerOptions {
        unauthenticated: true,
        ..ManagerOptions::new(Costs::flat(BytesPerSec::mb(1000)), [9; 32])
    };
    let manager = Manager::open(device, options).await.unwrap();
    let server = Server::new(manager, Limits::default());
    let address: Address = "127.0.0.1:7400".parse().unwrap();
    server.serve(Listener::bind(&address).unwrap()).unwrap();
    (server, address)
}

/// Passes on what client and server say, with the bytes from the server changed on their way.
async fn changed(to: Address, port: u16, change: impl Fn(usize, &mut [u8]) + 'static) -> Address {
    let address: Address = format!("127.0.0.1:{port}").parse().unwrap();
    let listener = Listener::bind(&address).unwrap();
    env::spawn(async move {
        let near = Rc::new(listener.accept().await.unwrap());
        let far = Rc::new(Stream::connect(&to).await.unwrap());
        let there = {
            let (near, far) = (Rc::clone(&near), Rc::clone(&far));
            env::spawn(async move {
                let mut buf = Buf::for_read(65_536);
                while let Ok((len @ 1.., back)) = near.read(buf).await {
                    if far
                        .write_all(vec![View::copy_of(&back[..len])])
                        .await
                        .is_err()
                    {
                        break;
                    }
                    buf = back;
                }
                far.shutdown_write();
            })
        };
        let mut seen = 0;
        let mut buf = Buf::for_read(65_536);
        while let Ok((len @ 1.., mut back)) = far.read(buf).await {
            change(seen, &mut back[..len]);
            seen += len;
            if near
                .write_all(vec![View::copy_of(&back[..len])])
                .await
                .is_err()
            {
                break;
            }
            buf = back;
        }
        near.shutdown_write();
        there.await;
    });
    address
}

async fn calls(client: &Client) -> Result<(), ClientError> {
    let data = View::copy_of(b"hello, sea");
    client.write("a", 0, data, Change::FUA.creating()).await?;
    let read = client.read("a", 0, 100).await?;
    assert_eq!(&read[..], b"hello, sea");
    assert_eq!(client.stat("a").await?.size, 10);
    assert_eq!(client.list("", None, 10).await?.objects.len(), 1);
    Ok(())
}

#[test]
fn a_changed_byte_from_a_server_is_refused() {
    Runtime::simulated(1).block_on(async {
        let (_server, address) = honest().await;
        let mut total = 0;
        let mut refused = 0;
        for at in 0usize.. {
            let near = changed(address.clone(), 8000 + at as u16, move |seen, bytes| {
                if let Some(byte) = at.checked_sub(seen).and_then(|at| bytes.get_mut(at)) {
                    *byte ^= 1 << (at % 8);
                }
            })
            .await;
            let options = ClientOptions {
                opening: base::Nanos::secs(5),
                timeout: base::Nanos::secs(5),
                ..ClientOptions::default()
            };
            let said = match Client::connect_with(&near, Credentials::Open, &options).await {
                Ok(client) => calls(&client).await,
                Err(error) => Err(error),
            };
            total += 1;
            match said {
                Err(_) => refused += 1,
                // Behind the last byte of the conversation.
                Ok(()) => break,
            }
        }
        assert_eq!(refused, total - 1);
        assert!(total > SERVER_HELLO_LEN + 5 * HEADER_LEN, "{total}");
    });
}

#[test]
fn a_server_that_hangs_up_anywhere_is_an_error_and_no_wait() {
    Runtime::simulated(2).block_on(async {
        let (_server, address) = honest().await;
        for at in 0..SERVER_HELLO_LEN + 3 * HEADER_LEN {
            let listener: Address = format!("127.0.0.1:{}", 9000 + at).parse().unwrap();
            let bound = Listener::bind(&listener).unwrap();
            let to = address.clone();
            env::spawn(async move {
                let near = Rc::new(bound.accept().await.unwrap());
                let far = Rc::new(Stream::connect(&to).await.unwrap());
                let forth = {
                    let (near, far) = (Rc::clone(&near), Rc::clone(&far));
                    env::spawn(async move {
                        let mut buf = Buf::for_read(4096);
                        while let Ok((len @ 1.., back)) = near.read(buf).await {
                            let _ = far.write_all(vec![View::copy_of(&back[..len])]).await;
                            buf = back;
                        }
                    })
                };
                let mut left = at;
                while left > 0 {
                    let Ok((len @ 1.., back)) = far.read(Buf::for_read(left)).await else {
                        break;
                    };
                    let _ = near.write_all(vec![View::copy_of(&back[..len])]).await;
                    left -= len;
                }
                near.shutdown_write();
                env::sleep(base::Nanos::secs(1)).await;
                near.abort();
                forth.await;
            });
            let said = match Client::connect(&listener, Credentials::Open).await {
                Ok(client) => calls(&client).await,
                Err(error) => Err(error),
            };
            assert!(said.is_err(), "cut at {at}");
        }
    });
}
