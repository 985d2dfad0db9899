//! What is measured: which servers, over what, under which load.

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Group {
    File,
    Memory,
}

impl Group {
    pub(super) fn name(self) -> &'static str {
        match self {
            Group::File => "file",
            Group::Memory => "memory",
        }
    }

    pub(super) fn methods(self) -> &'static [Method] {
        match self {
            Group::File => &[Method::Tanada, Method::Qemu, Method::Nbdkit, Method::Bare],
            Group::Memory => &[Method::Tanada, Method::Nbdkit],
        }
    }

    /// Whom the aims compare with.
    pub(super) fn peer(self) -> Method {
        match self {
            Group::File => Method::Qemu,
            Group::Memory => Method::Nbdkit,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Tanada,
    Qemu,
    Nbdkit,
    Bare,
}

impl Method {
    pub(super) fn name(self) -> &'static str {
        match self {
            Method::Tanada => "tanada",
            Method::Qemu => "qemu-storage-daemon",
            Method::Nbdkit => "nbdkit",
            Method::Bare => "bare-io_uring",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) rw: &'static str,
    pub(super) block: &'static str,
    pub(super) depth: u32,
}

pub(super) const CASES: [Case; 6] = [
    case("4k-randread-qd1", "randread", "4k", 1),
    case("4k-randread-qd32", "randread", "4k", 32),
    case("4k-randwrite-qd1", "randwrite", "4k", 1),
    case("4k-randwrite-qd32", "randwrite", "4k", 32),
    case("1m-read-qd4", "read", "1m", 4),
    case("1m-write-qd4", "write", "1m", 4),
];

const fn case(name: &'static str, rw: &'static str, block: &'static str, depth: u32) -> Case {
    Case {
        name,
        rw,
        block,
        depth,
    }
}
