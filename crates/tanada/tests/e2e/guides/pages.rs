//! Each page's table: what a reader has before, what runs in place of what stands there, and why.

/// What becomes of a command that contains certain words.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    /// It is left out.
    Skip,
    /// Other words take their place.
    Instead(&'static str),
}

/// A row of a table.
#[derive(Debug)]
pub struct Row {
    pub words: &'static str,
    pub way: Way,
    /// Why it is not run as it stands.
    pub why: &'static str,
}

/// Where a configuration that the page shows is saved.
#[derive(Debug)]
pub struct Saved {
    /// Which of the page's configurations, from 0.
    pub block: usize,
    pub name: &'static str,
    /// It takes the place of the file's end, from this line on.
    pub in_place_of: Option<&'static str>,
}

/// A page with commands.
#[derive(Debug)]
pub struct Page {
    /// Its path in the project.
    pub file: &'static str,
    /// Makes what the page takes for granted: images, disks.
    pub before: &'static str,
    /// A daemon that runs before the first command, and what is asked of it.
    pub daemon: Option<(&'static str, &'static str)>,
    pub files: &'static [Saved],
    /// Devices and folders of a machine, and files in their place.
    pub paths: &'static [(&'static str, &'static str)],
    pub rows: &'static [Row],
}

const fn row(words: &'static str, way: Way, why: &'static str) -> Row {
    Row { words, way, why }
}

const fn instead(words: &'static str, other: &'static str, why: &'static str) -> Row {
    row(words, Way::Instead(other), why)
}

const fn skip(words: &'static str, why: &'static str) -> Row {
    row(words, Way::Skip, why)
}

const fn saved(block: usize, name: &'static str, in_place_of: Option<&'static str>) -> Saved {
    Saved {
        block,
        name,
        in_place_of,
    }
}

const ONCE: Row = instead(
    "tanada top ",
    "tanada top --once ",
    "a live page wants a terminal",
);

pub const ALL: [&Page; 9] = [
    &README,
    &STORE,
    &VIRTUAL_DISKS,
    &TIER,
    &PREDICTION,
    &ADMIN,
    &ACCESS,
    &NBD,
    &RESERVATIONS,
];

const KERNEL_CLIENT: Row = skip(
    "tanada client connect",
    "it wants the kernel's NBD module; a guest in the lab runs it",
);

pub const README: Page = Page {
    file: "README.md",
    before: "head -c 48M /dev/urandom > some.img && head -c 2M /dev/urandom > big.tar && mkdir disk run && chmod 755 disk \
             && truncate -s 1G slow.img && truncate -s 256M fast.img",
    daemon: None,
    files: &[saved(0, "tanada.toml", None)],
    paths: &[
        ("/var/lib/tanada", "var"),
        ("/dev/sdb", "slow.img"),
        ("/dev/nvme0n1p3", "fast.img"),
        ("/run/tanada", "run/tanada"),
    ],
    rows: &[
        instead(
            "cargo run --release -- ",
            "tanada ",
            "the program is built already",
        ),
        skip(
            "cargo build --release -p lab",
            "the laboratory is built already, with the tests",
        ),
        skip(
            "cargo xtask",
            "the project's chores have tests of their own; one of them runs this test",
        ),
        skip(
            "qemu-system-x86_64",
            "a virtual machine without a system never ends",
        ),
        KERNEL_CLIENT,
        skip(
            "apt install",
            "the package is tried on a machine of its own (packaging/test-package)",
        ),
        instead("sudo ", "", "the test runs as who it is, on files"),
        ONCE,
        instead(
            "trace generate src1-0",
            "trace generate src1-0 --for 20s",
            "twenty seconds of the hundred minutes, so that an unoptimised build is done in seconds",
        ),
        instead(
            "advise t.csv.zst",
            "advise t.csv.zst --replay 4000",
            "fewer requests through the engine, for the same reason",
        ),
        instead(
            "experiment run replica",
            "experiment run replica --quick",
            "the full run takes minutes",
        ),
        skip(
            "predict-loop",
            "it mounts disks as root; it has a test of its own",
        ),
        instead(
            "experiment run truth",
            "experiment run truth --quick --cases streams",
            "seconds of one case; the full run takes most of an hour",
        ),
        instead(
            "bench app /mnt/nvme0",
            "bench app disk --records 2000 --workloads a --runs 1 --ramp 0s --time 1s --clients 2 --log 8MiB",
            "a folder here, and a second in place of minutes",
        ),
    ],
};

pub const STORE: Page = Page {
    file: "docs/store.md",
    before: "head -c 2M /dev/urandom > big.tar && truncate -s 1G nvme.img",
    daemon: None,
    files: &[],
    paths: &[],
    rows: &[
        instead("/dev/nvme0n1p4", "nvme.img", "a file in place of a device"),
        instead(
            "tanada object get results/run7",
            "tanada object put big.tar results/run7 --node-key tanada-data/keys/s0.node && tanada object get results/run7",
            "the object that ann made before",
        ),
        skip(
            "--read 50MB/s --for 1h",
            "the refusal is of a disk that does 100 MB/s; this one is said to do 2 GB/s",
        ),
        skip("store calibrate", "a quarter of an hour"),
        ONCE,
        skip(
            "store check disk.img",
            "it wants the daemon stopped; crates/tanada/tests/e2e/store.rs runs it",
        ),
    ],
};

pub const VIRTUAL_DISKS: Page = Page {
    file: "docs/virtual-disks.md",
    before: "true",
    daemon: None,
    files: &[
        saved(0, "node.toml", None),
        saved(1, "node.toml", Some("[cluster]")),
        saved(2, "node.toml", Some("[cluster]")),
        saved(3, "n1.toml", None),
    ],
    paths: &[],
    rows: &[instead(
        "tanada volume create vm1 --size 10GiB --copies 3",
        "n=0; until [ $(tanada node list --admin unix:n1/admin.sock | grep -c ' up ') = 3 ] || [ $n = 100 ]; \
         do n=$((n + 1)); sleep 0.2; done; tanada volume create vm1 --size 10GiB --copies 3",
        "three nodes hear of each other within seconds; a reader types more slowly",
    )],
};

pub const TIER: Page = Page {
    file: "docs/tier-guide.md",
    before: "true",
    daemon: Some(("tanada serve", "tanada status")),
    files: &[],
    paths: &[],
    rows: &[ONCE],
};

pub const PREDICTION: Page = Page {
    file: "docs/prediction.md",
    before: "head -c 8M /dev/urandom > nvme.img && mkdir folder disk && chmod 755 disk && \
             printf '[OVERALL], Throughput(ops/sec), 990.5\\n[READ], Operations, 100\\n[READ], AverageLatency(us), 812.5\\n' > ycsb-nvme0-1.txt",
    daemon: None,
    files: &[],
    paths: &[],
    rows: &[
        instead(
            "bench device /dev/nvme0n1",
            "bench device nvme.img --sizes 4KiB --time 1s --ramp 0s --runs 1",
            "a file in place of a device, and one of the grid's points",
        ),
        instead(
            "bench device /dev/nullb0",
            "bench device nvme.img --sizes 4KiB --time 1s --ramp 0s --runs 1",
            "a file in place of a device, and one of the grid's points",
        ),
        instead(
            "bench device /mnt/nvme0",
            "bench device folder --size 8MiB --sizes 4KiB --time 1s --ramp 0s --runs 1",
            "a folder here, and one of the grid's points",
        ),
        instead(
            "bench app /mnt/nvme0",
            "bench app disk --records 2000 --workloads a --runs 1 --ramp 0s --time 1s --clients 2 --log 8MiB",
            "a folder here, and a second in place of minutes",
        ),
    ],
};

pub const ADMIN: Page = Page {
    file: "docs/admin-api.md",
    before: "true",
    daemon: Some(("tanada serve", "tanada status")),
    files: &[],
    paths: &[],
    rows: &[
        skip(
            "tls:10.0.0.7:10880",
            "this daemon has no certificate; crates/tanada/tests/e2e/admin_tls.rs asks one that has",
        ),
        instead(
            "TANADA_ADMIN_TOKEN_FILE=admin.token",
            "TANADA_ADMIN_TOKEN_FILE=tanada-data/admin.token",
            "the token was not carried to another machine",
        ),
    ],
};

pub const ACCESS: Page = Page {
    file: "docs/access.md",
    before: "true",
    daemon: Some(("tanada serve", "tanada status")),
    files: &[],
    paths: &[],
    rows: &[],
};

pub const NBD: Page = Page {
    file: "docs/nbd.md",
    before: "true",
    daemon: Some(("tanada serve", "tanada status")),
    files: &[],
    paths: &[],
    rows: &[
        skip(
            "client delete",
            "no client is connected; crates/tanada/tests/e2e/daemon.rs sends one away",
        ),
        KERNEL_CLIENT,
    ],
};

pub const RESERVATIONS: Page = Page {
    file: "docs/reservations.md",
    before: "true",
    daemon: None,
    files: &[saved(0, "node.toml", None)],
    paths: &[],
    rows: &[],
};
