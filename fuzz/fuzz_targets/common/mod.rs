//! What the targets that attack a whole server share.

use std::rc::Rc;

use base::{Buf, View};
use env::net::{Address, Stream};

/// Sends `bytes` to the server at `address` in pieces of 2 to the power of `pieces` (4096 at most), reading what it
/// answers meanwhile, and hangs up.
pub async fn send(address: &Address, bytes: &[u8], pieces: u8) {
    let stream = Rc::new(Stream::connect(address).await.expect("connected"));
    let reading = {
        let stream = Rc::clone(&stream);
        env::spawn(async move {
            let mut buf = Buf::for_read(65_536);
            while let Ok((len @ 1.., back)) = stream.read(buf).await {
                assert!(len <= back.len());
                buf = back;
            }
        })
    };
    for piece in bytes.chunks(1 << pieces.min(12)) {
        if stream.write_all(vec![View::copy_of(piece)]).await.is_err() {
            break;
        }
    }
    stream.shutdown_write();
    reading.await;
}
