//! Serves one disk over NBD until it is killed: the smallest program around `front::nbd`, and what
//! benchmarks of the protocol alone run against.
//!
//! ```text
//! cargo run --release -p front --example serve_nbd -- unix:/tmp/nbd.sock memory 1GiB
//! cargo run --release -p front --example serve_nbd -- 127.0.0.1:10809 disk.img 4GiB
//! ```

use std::error::Error;
use std::rc::Rc;

use base::Bytes;
use device::{Device, File, FileOptions, Memory};
use env::net::{Address, Listener};
use front::nbd::{Config, Export, Server};

async fn serve(address: Address, what: String, size: Bytes) -> Result<(), Box<dyn Error>> {
    let device: Rc<dyn Device> = match what.as_str() {
        "memory" => Memory::new("memory", size),
        path => {
            let options = FileOptions {
                create: Some(size),
                ..FileOptions::default()
            };
            File::open("file", path, options)?
        }
    };
    let server = Server::new(Config::default());
    server.add_export(Export {
        name: "disk".into(),
        description: what,
        device,
        read_only: false,
    })?;
    let listener = Listener::bind(&address)?;
    println!("serving at {}", listener.address());
    server.serve(listener);
    std::future::pending().await
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, what, size] = &arguments[..] else {
        return Err(
            "expected: ADDRESS memory|PATH SIZE, such as unix:/tmp/nbd.sock memory 1GiB".into(),
        );
    };
    let (address, what, size) = (address.parse()?, what.clone(), size.parse()?);
    let runtime = env::Runtime::real(env::RealConfig::default())?;
    runtime.block_on(serve(address, what, size))
}
