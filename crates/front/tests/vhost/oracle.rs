//! Another program's client: crate `vhost` speaks to this server over a real socket, with real memory and eventfds.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use base::{Bytes, Sector};
use device::{Device, DeviceExt, Memory};
use env::net::{Address, Listener};
use env::{RealConfig, Runtime};
use front::vhost::{Server, inflight};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

use crate::{SIZE, Same};

/// Where in its memory the client has its ring and its request.
const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const HEADER: u64 = 0x3000;
const STATUS: u64 = 0x3100;
const DATA: u64 = 0x4000;
const MEMORY: u64 = 0x10000;
/// Its own address of it.
const HERE: u64 = 0x7f00_0000_0000;

/// Writes one sector of sevens to sector 8, as a driver does.
fn write_a_sector(memory: &std::fs::File) {
    let put = |at: u64, bytes: &[u8]| memory.write_all_at(bytes, at).unwrap();
    let mut header = [0; 16];
    header[0] = 1;
    header[8] = 8;
    put(HEADER, &header);
    put(DATA, &[7; 512]);
    put(STATUS, &[0xff]);
    for (number, (at, len, flags)) in [(HEADER, 16, 1), (DATA, 512, 1), (STATUS, 1, 2)]
        .into_iter()
        .enumerate()
    {
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&u64::to_le_bytes(at));
        descriptor[8..12].copy_from_slice(&u32::to_le_bytes(len));
        descriptor[12] = flags;
        descriptor[14] = number as u8 + 1;
        put(DESCRIPTORS + 16 * number as u64, &descriptor);
    }
    put(AVAILABLE + 4, &[0, 0]);
    put(AVAILABLE + 2, &[1, 0]);
}

/// A client with one queue that is served, its record, and its notifiers: kick and call.
fn begun(socket: &Path, memory: &std::fs::File) -> (Frontend, std::fs::File, [EventFd; 2]) {
    let mut client = Frontend::connect(socket, 64).unwrap();
    let features = client.get_features().unwrap();
    client.set_owner().unwrap();
    client.set_features(features).unwrap();
    let protocol = client.get_protocol_features().unwrap();
    for needed in [
        VhostUserProtocolFeatures::MQ,
        VhostUserProtocolFeatures::REPLY_ACK,
        VhostUserProtocolFeatures::CONFIG,
        VhostUserProtocolFeatures::INFLIGHT_SHMFD,
    ] {
        assert!(protocol.contains(needed), "{protocol:?}");
    }
    client.set_protocol_features(protocol).unwrap();
    client.set_hdr_flags(vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY);
    assert_eq!(client.get_queue_num().unwrap(), 64);
    let writable = VhostUserConfigFlags::WRITABLE;
    let (_, config) = client.get_config(0, 60, writable, &[0; 60]).unwrap();
    let capacity = u64::from_le_bytes(config[..8].try_into().unwrap());
    assert_eq!(capacity, SIZE.0 / 512);
    client.set_config(32, writable, &[0]).unwrap();
    let (_, config) = client.get_config(32, 1, writable, &[0]).unwrap();
    assert_eq!(config, [0]);
    let asked = VhostUserInflight::new(0, 0, 1, 128);
    let (area, record) = client.get_inflight_fd(&asked).unwrap();
    let ours = inflight::area(1, 128);
    assert_eq!((area.mmap_size, area.queue_size), (ours.len, 128));
    client.set_inflight_fd(&area, record.as_raw_fd()).unwrap();
    let half = |number: u64| VhostUserMemoryRegionInfo {
        guest_phys_addr: number * MEMORY / 2,
        memory_size: MEMORY / 2,
        userspace_addr: HERE + number * MEMORY / 2,
        mmap_offset: number * MEMORY / 2,
        mmap_handle: memory.as_raw_fd(),
    };
    client.set_mem_table(&[half(0), half(1)]).unwrap();
    let (kick, call) = (EventFd::new(0).unwrap(), EventFd::new(0).unwrap());
    let ring = VringConfigData {
        queue_max_size: 128,
        queue_size: 128,
        flags: 0,
        desc_table_addr: HERE + DESCRIPTORS,
        used_ring_addr: HERE + USED,
        avail_ring_addr: HERE + AVAILABLE,
        log_addr: None,
    };
    client.set_vring_num(0, 128).unwrap();
    client.set_vring_base(0, 0).unwrap();
    client.set_vring_addr(0, &ring).unwrap();
    client.set_vring_call(0, &call).unwrap();
    client.set_vring_err(0, &EventFd::new(0).unwrap()).unwrap();
    client.set_vring_kick(0, &kick).unwrap();
    client.set_vring_enable(0, true).unwrap();
    (client, record, [kick, call])
}

fn client(socket: &Path, memory: &std::fs::File) {
    let (client, _, [kick, call]) = begun(socket, memory);
    write_a_sector(memory);
    kick.write(1).unwrap();
    let mut used = [0; 2];
    while used != [1, 0] {
        // Called once when the notifier was given, and for the answer.
        call.read().unwrap();
        memory.read_exact_at(&mut used, USED + 2).unwrap();
    }
    let mut status = [0xff];
    memory.read_exact_at(&mut status, STATUS).unwrap();
    assert_eq!(status, [0]);
    assert_eq!(client.get_vring_base(0).unwrap(), 1);
}

#[test]
fn a_client_of_another_program_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("vm.sock");
    let memory = tempfile::tempfile_in("/dev/shm").unwrap();
    memory.set_len(MEMORY).unwrap();
    let runtime = Runtime::real(RealConfig::default()).unwrap();
    runtime.block_on(async move {
        let disk = Memory::new("disk", SIZE);
        let source = Same {
            device: disk.clone(),
            read_only: false,
            found_all: true,
            identity: 1,
            book: std::rc::Rc::default(),
        };
        let server = Server::new("vol0", std::rc::Rc::new(source));
        server.serve(Listener::bind(&Address::Unix(socket.clone())).unwrap());
        let (poster, mut mailbox) = env::mailbox();
        let thread = std::thread::Builder::new();
        let thread = thread.spawn(move || {
            client(&socket, &memory);
            let _ = poster.post(());
        });
        let ended = mailbox.receive().await;
        thread.unwrap().join().unwrap();
        assert!(ended.is_ok());
        let sector = disk.read_at(Sector(8), Bytes(512)).await.unwrap();
        assert_eq!(sector[..], [7; 512]);
        server.drain().await;
        assert_eq!(server.snapshot().requests.answered, 1);
    });
}

/// Zeroes that stand for what a client took away are not written, nor is the request noted as answered.
#[test]
fn a_write_from_memory_that_is_cut_short_is_not_carried_out() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("vm.sock");
    let memory = tempfile::tempfile_in("/dev/shm").unwrap();
    memory.set_len(MEMORY).unwrap();
    let runtime = Runtime::real(RealConfig::default()).unwrap();
    runtime.block_on(async move {
        let disk = Memory::new("disk", SIZE);
        let before = base::View::copy_of(&[5; 512]);
        let plain = device::WriteFlags::default();
        disk.write(Sector(8), before, plain).await.unwrap();
        let source = Same {
            device: disk.clone(),
            read_only: false,
            found_all: true,
            identity: 1,
            book: std::rc::Rc::default(),
        };
        let server = Server::new("vol0", std::rc::Rc::new(source));
        server.serve(Listener::bind(&Address::Unix(socket.clone())).unwrap());
        let (poster, mut mailbox) = env::mailbox();
        let client = move || {
            let (client, record, [kick, _call]) = begun(&socket, &memory);
            write_a_sector(&memory);
            memory.set_len(DATA).unwrap();
            kick.write(1).unwrap();
            while client.get_features().is_ok() {}
            let mut in_flight = [0];
            record.read_exact_at(&mut in_flight, 16).unwrap();
            let _ = poster.post(in_flight);
        };
        let thread = std::thread::Builder::new().spawn(client).unwrap();
        let in_flight = mailbox.receive().await.unwrap();
        thread.join().unwrap();
        assert_eq!(in_flight, [1], "the record keeps it");
        let sector = disk.read_at(Sector(8), Bytes(512)).await.unwrap();
        assert_eq!(sector[..], [5; 512]);
        server.drain().await;
        let snapshot = server.snapshot();
        assert_eq!(
            (snapshot.requests.answered, snapshot.requests.under_way),
            (0, 0)
        );
    });
}

/// Files in memory are long for nothing, and the addresses of this process are shared by all its clients.
#[test]
fn a_client_maps_no_more_than_any_machine_has() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("vm.sock");
    let memory = tempfile::tempfile_in("/dev/shm").unwrap();
    let most = env::shared::SharedMemory::most();
    memory.set_len(2 * most).unwrap();
    let runtime = Runtime::real(RealConfig::default()).unwrap();
    runtime.block_on(async move {
        let source = Same {
            device: Memory::new("disk", SIZE),
            read_only: false,
            found_all: true,
            identity: 1,
            book: std::rc::Rc::default(),
        };
        let server = Server::new("vol0", std::rc::Rc::new(source));
        server.serve(Listener::bind(&Address::Unix(socket.clone())).unwrap());
        let (poster, mut mailbox) = env::mailbox();
        let client = move || {
            let (client, _, _) = begun(&socket, &memory);
            let region = |number: u64, len: u64| VhostUserMemoryRegionInfo {
                guest_phys_addr: number * most,
                memory_size: len,
                userspace_addr: HERE + number * most,
                mmap_offset: 0,
                mmap_handle: memory.as_raw_fd(),
            };
            client.get_vring_base(0).unwrap();
            let all = client.set_mem_table(&[region(0, most)]);
            let more = client.set_mem_table(&[region(0, most), region(1, 4096)]);
            let _ = poster.post((all.is_ok(), more.is_ok()));
        };
        let thread = std::thread::Builder::new().spawn(client).unwrap();
        let taken = mailbox.receive().await.unwrap();
        thread.join().unwrap();
        assert_eq!(taken, (true, false));
        server.drain().await;
    });
}
