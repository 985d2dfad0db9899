//! Good configurations, and what is said about bad ones.

use base::{Bytes, Nanos};

use super::scheduling::Scheduling;
use env::net::Address;

use super::*;

const TWO: &str = r#"
[[device]]
name = "slow"
memory = true
size = "64MiB"
[[device]]
name = "fast"
memory = true
size = "16MiB"
"#;

fn good(text: &str) -> Config {
    read(text, "test", None).unwrap_or_else(|error| panic!("{error}"))
}

/// The mistakes, one line each.
fn mistakes(text: &str) -> Vec<String> {
    match read(text, "test", None) {
        Ok(config) => panic!("this was taken for good: {config:#?}"),
        Err(error) => error.mistakes.iter().map(Mistake::to_string).collect(),
    }
}

fn with_two(rest: &str) -> String {
    format!("{TWO}{rest}")
}

#[test]
fn values_out_of_range_are_reported_with_all_other_mistakes() {
    let text = "[[device]]\nname = \"a\"\nmemory = true\nsize = \"8MiB\"\n\
                [[hybrid]]\nname = \"v\"\nslow = \"a\"\nfast = \"none\"\nblock = \"5000B\"\n\
                dirty_low = 80\ndirty_high = 70\nwrite = \"through\"\nmode = \"tier\"\n";
    let said = read(text, "test", None).unwrap_err().to_string();
    for part in [
        "called \"none\"",
        "block = ",
        "dirty_low = 80 %",
        "mode = tier",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
}

#[test]
fn the_default_is_a_good_configuration() {
    let dir = Path::new("some \"odd\" place");
    let config = good(&default_text(dir));
    assert_eq!(config.data_dir, dir);
    let names: Vec<&str> = config
        .devices
        .iter()
        .map(|device| device.name.as_str())
        .collect();
    assert_eq!(names, ["hdd0", "ssd0"]);
    let Kind::Model { size, backing, .. } = &config.devices[1].kind else {
        panic!("{:?}", config.devices[1]);
    };
    assert_eq!(*size, Bytes::gib(4));
    assert_eq!(*backing, Backing::File(dir.join("ssd0.img")));
    assert_eq!(config.hybrids[0].name(), "vol0");
    assert_eq!(config.exports[0].nbd.len(), 2);
    let socket = format!("unix:{}/admin.sock", dir.display());
    assert_eq!(config.admin.listen[0].to_string(), socket);
    assert_eq!(config.admin.web[0].to_string(), WEB);
    assert!(config.admin.addresses().all(is_local) && !config.admin.web_named);
}

#[test]
fn what_is_not_said_has_a_sensible_value() {
    let config = good(&with_two(
        "[[hybrid]]\nname = \"vol\"\nslow = \"slow\"\nfast = \"fast\"\n\
         [[export]]\ndevice = \"vol\"\nnbd = \"unix:v.sock\"\n",
    ));
    assert_eq!(config.data_dir, Path::new(DATA_DIR));
    let usual = hybrid::Settings::default();
    let settings = &config.hybrids[0].settings;
    assert_eq!(
        (&settings.policy, settings.block),
        (&usual.policy, usual.block)
    );
    // That of a new hybrid; an older one keeps its own.
    assert_eq!(
        (settings.mode, config.hybrids[0].mode_named),
        (hybrid::Mode::Both, false)
    );
    assert_eq!(config.exports[0].name, "vol");
    assert_eq!(config.admin.addresses().count(), 2);
}

#[test]
fn a_new_hybrid_is_a_cache_where_a_tier_does_not_suit_its_other_settings() {
    let modes = ["through", "around", "only-writes", "pass", "back"].map(|write| {
        let text = format!(
            "[[hybrid]]\nname = \"vol\"\nslow = \"slow\"\nfast = \"fast\"\nwrite = \"{write}\"\n"
        );
        good(&with_two(&text)).hybrids[0].settings.mode.to_string()
    });
    assert_eq!(modes, ["cache", "cache", "cache", "cache", "both"]);
}

#[test]
fn every_setting_of_a_hybrid_arrives() {
    let config = good(
        "[[device]]\nname = \"hdd\"\nmodel = \"hdd-7200-sata\"\nsize = \"1GiB\"\nmemory = true\n\
         standby_after = \"90s\"\n\
         [[device]]\nname = \"ssd\"\nmemory = true\nsize = \"64MiB\"\n\
         [[hybrid]]\nname = \"vol\"\nslow = \"hdd\"\nfast = \"ssd\"\nmode = \"cache\"\npolicy = \"arc\"\n\
         write = \"through\"\nblock = \"64KiB\"\nadmission = \"always\"\nsequential_bypass = \"off\"\n\
         dirty_low = 5\ndirty_high = 50\nenergy = true\nage_limit = \"10m\"\n\
         flash_writes_per_day = \"100GB\"\nfast_size = \"32MiB\"\n",
    );
    let settings = &config.hybrids[0].settings;
    assert_eq!(settings.policy.to_string(), "arc");
    assert_eq!(settings.write, hybrid::WriteMode::Through);
    assert_eq!(settings.admission, hybrid::Admission::Always);
    assert_eq!(settings.block, Bytes::kib(64));
    assert_eq!(settings.sequential_bypass, None);
    assert_eq!((settings.dirty_low, settings.dirty_high), (5, 50));
    let energy = settings.energy.unwrap();
    assert_eq!(energy.age_limit, Nanos::secs(600));
    assert_eq!(energy.standby_after, Nanos::secs(90));
    assert_eq!(settings.flash_writes_per_day, Some(Bytes(100_000_000_000)));
    assert_eq!(settings.fast_bytes, Some(Bytes::mib(32)));
}

#[test]
fn all_mistakes_are_found_at_once_each_with_its_line_and_key() {
    let found = mistakes(
        r#"
[[device]]
name = "hdd0"
model = "hdd-7200-sata"
size = "many"
memory = true

[[device]]
name = "ssd0"
memory = true
size = "1GiB"
colour = "red"

[[hybrid]]
name = "vol0"
slow = "hdd0"
fast = "sdd0"
mode = "tiers"
polcy = "lru"

[[export]]
device = "vol0"
nbd = "127.0.0.1"
"#,
    );
    assert_eq!(
        found,
        [
            &format!(
                "line 5: [[device]] \"hdd0\" size: {}",
                "many".parse::<Bytes>().unwrap_err()
            ),
            "line 12: [[device]] \"ssd0\" colour: there is no such key; the keys here are name, path, \
             model, size, file, memory, direct, force, read_only, standby_after",
            "line 17: [[hybrid]] \"vol0\" fast: there is no [[device]], [[stripe]] or [[hybrid]] called \"sdd0\"; \
             did you mean ssd0?",
            "line 18: [[hybrid]] \"vol0\" mode: 'tiers' is not a mode; choose one of cache, tier, both",
            "line 19: [[hybrid]] \"vol0\" polcy: there is no such key; did you mean policy?",
            "line 23: [[export]] \"vol0\" nbd: '127.0.0.1' is not an address: the port is missing; \
             write an IP address and a port such as 127.0.0.1:10809 or [::1]:10809, or unix:/path",
        ]
    );
}

#[test]
fn a_text_that_is_not_toml_is_refused_with_its_line() {
    let found = mistakes("[[device]]\nname = \n");
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("line 2: this is not TOML: "),
        "{found:?}"
    );
}

#[test]
fn a_configuration_of_comments_alone_is_good_and_serves_nothing() {
    let config = good("# [[device]]\n# name = \"sdb\"\n");
    assert!(config.devices.is_empty() && config.exports.is_empty());
    assert_eq!(config.data_dir, Path::new(DATA_DIR));
    let found = mistakes("[[devices]]\nname = \"sdb\"\n");
    assert!(found[0].contains("there is no such key"), "{found:?}");
}

#[test]
fn a_configuration_in_etc_tanada_has_its_data_and_socket_where_packages_do() {
    let packaged = "/etc/tanada/tanada.toml";
    let (var, run) = ("/var/lib/tanada", "/run/tanada/admin.sock");
    let own = "data_dir = \"/srv/t\"";
    let listen = "[admin]\nlisten = \"unix:/srv/a.sock\"";
    for (origin, text, option, data_dir, socket) in [
        (packaged, "", None, var, run),
        ("/etc/tanada/second.toml", "", None, var, run),
        (packaged, own, None, "/srv/t", run),
        (packaged, own, Some("here"), "here", run),
        (packaged, listen, None, var, "/srv/a.sock"),
        (packaged, "[admin]\ntcp = \"127.0.0.1:1\"", None, var, run),
        ("tanada.toml", "", None, DATA_DIR, "tanada-data/admin.sock"),
        ("/etc/tanada.toml", own, None, "/srv/t", "/srv/t/admin.sock"),
        (
            "the built-in configuration",
            "",
            None,
            DATA_DIR,
            "tanada-data/admin.sock",
        ),
    ] {
        let config = read(text, origin, option.map(Path::new)).expect("it is good");
        assert_eq!(config.data_dir, Path::new(data_dir), "{origin} {text}");
        let first = config.admin.listen[0].to_string();
        assert_eq!(first, format!("unix:{socket}"), "{origin} {text}");
    }
}

/// (what is added to two memory devices, what is said about it)
const REFUSALS: &[(&str, &str)] = &[
    (
        "[[device]]\nname = \"x\"",
        "[[device]] \"x\": what is it? write one of path",
    ),
    (
        "[[device]]\nname = \"slow\"\nmemory = true\nsize = 4096",
        "[[device]] \"slow\" name: \"slow\" is taken already",
    ),
    (
        "[[device]]\nname = \"a/b\"\nmemory = true\nsize = 4096",
        "[[device]] \"a/b\" name: 'a/b' is not a name",
    ),
    (
        "[[device]]\nname = \"x\"\nmemory = true\nsize = 5000",
        "[[device]] \"x\" size: 5000 bytes is not a positive multiple of 4096",
    ),
    (
        "[[device]]\nname = \"x\"\npath = \"/dev/x\"\nmodel = \"hdd-7200-sata\"",
        "[[device]] \"x\" model: goes not together with path",
    ),
    (
        "[[device]]\nname = \"x\"\nmodel = \"hdd-7200\"\nsize = \"1GiB\"\nmemory = true",
        "[[device]] \"x\" model: ",
    ),
    (
        "[[device]]\nname = \"x\"\npath = \"f\"\n[[device]]\nname = \"y\"\npath = \"f\"",
        "[[device]] \"y\" path: f is used by device \"x\" already",
    ),
    (
        "[[hybrid]]\nname = \"v\"\nslow = \"slow\"\nfast = \"slow\"",
        "[[hybrid]] \"v\" fast: \"slow\" is the slow and the fast device",
    ),
    (
        "[[hybrid]]\nname = \"v\"\nslow = \"slow\"\nfast = \"fast\"\n\
         [[hybrid]]\nname = \"w\"\nslow = \"v\"\nfast = \"fast\"",
        "[[hybrid]] \"w\" fast: \"fast\" is part of [[hybrid]] \"v\" already",
    ),
    (
        "[[hybrid]]\nname = \"v\"\nslow = \"w\"\nfast = \"fast\"\n\
         [[hybrid]]\nname = \"w\"\nslow = \"v\"\nfast = \"slow\"",
        "\"v\" is made of itself, by way of v, w",
    ),
    (
        "[[hybrid]]\nname = \"v\"\nslow = \"slow\"\nfast = \"fast\"\nwrite = \"writeback\"",
        "[[hybrid]] \"v\" write: 'writeback' is not a write mode",
    ),
    (
        "[[hybrid]]\nname = \"v\"\nslow = \"slow\"\nfast = \"fast\"\ndirty_low = 70",
        "[[hybrid]] \"v\": dirty_low = 70 %, dirty_high = 60 %",
    ),
    (
        "[[hybrid]]\nname = \"v\"\nslow = \"slow\"\nfast = \"fast\"\nage_limit = \"1h\"",
        "[[hybrid]] \"v\" age_limit: has a meaning only in energy mode",
    ),
    (
        "[[hybrid]]\nname = \"v\"\nslow = \"slow\"\nfast = \"fast\"\n\
         [[export]]\ndevice = \"slow\"\nnbd = \"unix:s\"",
        "[[export]] \"slow\" device: \"slow\" is part of [[hybrid]] \"v\"",
    ),
    (
        "[[export]]\ndevice = \"slow\"",
        "[[export]] \"slow\": nbd is missing",
    ),
    (
        "[[export]]\ndevice = \"slow\"\nnbd = \"unix:s\"\n[[export]]\ndevice = \"fast\"\nname = \"slow\"\nnbd = \"unix:s\"",
        "name: \"slow\" is exported at unix:s already",
    ),
    (
        "[[export]]\ndevice = \"slow\"\nnbd = \"127.0.0.1:10880\"",
        "nbd: 127.0.0.1:10880 is where the admin API listens",
    ),
    (
        "[[export]]\ndevice = \"slow\"\nnbd = \"unix:s\"\ntls = { certificate = \"c.pem\" }",
        "tls: certificate and key are both needed",
    ),
    (
        "[export]\ndevice = \"slow\"",
        "export: write [[export]] (two brackets)",
    ),
    (
        "[admin]\nlisten = \"0.0.0.0:10880\"",
        "[admin] listen: 0.0.0.0:10880 can be reached from other machines",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"",
        "[[store]] \"s0\": listen is missing; say where clients connect",
    ),
    (
        "[[store]]\nname = \"s0\"\nlisten = \"unix:s\"",
        "[[store]] \"s0\": device is missing",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slo\"\nlisten = \"unix:s\"",
        "[[store]] \"s0\" device: there is no [[device]], [[stripe]] or [[hybrid]] called \"slo\"; did you mean slow?",
    ),
    (
        "[[store]]\nname = \"slow\"\ndevice = \"slow\"\nlisten = \"unix:s\"",
        "[[store]] \"slow\" name: \"slow\" is taken already",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\nscheduler = \"edf\"",
        "[[store]] \"s0\" scheduler: 'edf' is no scheduler; choose one of fifo, rounds, rounds-join, tags",
    ),
    (
        "[[hybrid]]\nname = \"v\"\nslow = \"slow\"\nfast = \"fast\"\ndepth = 4",
        "[[hybrid]] \"v\" depth: says how the queue before the slow device is run, and there is none; add queue = true",
    ),
    (
        "[[hybrid]]\nname = \"v\"\nslow = \"slow\"\nfast = \"fast\"\nqueue = true\nenergy = true",
        "[[hybrid]] \"v\" queue: with energy = true the slow device may be asleep",
    ),
    (
        "[[hybrid]]\nname = \"v\"\nslow = \"slow\"\nfast = \"fast\"\nqueue = true\n\
         [[store]]\nname = \"s0\"\ndevice = \"v\"\nlisten = \"unix:s\"",
        "[[hybrid]] \"v\" has queue = true and is part of [[store]] \"s0\"; rates are promised to exports",
    ),
    (
        "[[hybrid]]\nname = \"v\"\nslow = \"slow\"\nfast = \"fast\"\nmax_read = \"fast\"",
        "[[hybrid]] \"v\" max_read: 'fast' is no rate; write a size and '/s', such as 85MB/s or 64MiB/s, or \"off\"",
    ),
    (
        "[[export]]\ndevice = \"slow\"\nnbd = \"unix:s\"\nmax_write_iops = 0",
        "[[export]] \"slow\" max_write_iops: a cap of no request in a second stops everything",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\nround = 64",
        "[[store]] \"s0\" round: the scheduler tags has no rounds; take it out, or write scheduler = \"rounds\"",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\nscheduler = \"rounds\"\nround = 0",
        "[[store]] \"s0\" round: a round has 1 to 4096 I/Os of one unit each",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\nscheduler = \"rounds\"\nquantum = \"64KiB\"",
        "[[store]] \"s0\" quantum: the scheduler rounds sends whole requests; take it out, or write scheduler = \"tags\"",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\nquantum = \"100KiB\"",
        "[[store]] \"s0\" quantum: 100.0 KiB is not a power of two from 16.0 KiB to 4.0 MiB",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\ndepth = 65",
        "[[store]] \"s0\" depth: 65 is not from 1 to 64",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\ndepth = \"deep\"",
        "[[store]] \"s0\" depth: 'deep' is no depth; write \"auto\" or a number from 1 to 64",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\nscheduler = \"fifo\"\ndepth = \"auto\"",
        "[[store]] \"s0\" depth: the scheduler fifo does not look for a depth by itself; write a number from 1 to 64",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\nunit = \"3MiB\"",
        "[[store]] \"s0\" unit: 3.0 MiB is not a power of two from 64 KiB to 16 MiB",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\nscrub = \"fast\"",
        "[[store]] \"s0\" scrub: 'fast' is no rate; write a size and '/s', such as 85MB/s or 64MiB/s, or \"off\"",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\nfloor = \"9MB/s\"\nceiling = \"8MB/s\"",
        "[[store]] \"s0\" ceiling: 8 MB/s is below the floor of 9 MB/s",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\nmemory = \"1MiB\"",
        "[[store]] \"s0\" memory: 1.0 MiB is too little for one client; write at least 8.0 MiB",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = [\"unix:s\", \"0.0.0.0:1\"]\nunauthenticated = true",
        "[[store]] \"s0\" unauthenticated: 0.0.0.0:1 can be reached from other machines",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"127.0.0.1:10880\"",
        "[[store]] \"s0\" listen: 127.0.0.1:10880 is where the admin API listens",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\n\
         [[store]]\nname = \"s1\"\ndevice = \"fast\"\nlisten = \"unix:s\"",
        "[[store]] \"s1\" listen: unix:s is where the store \"s0\" listens",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\n\
         [[store]]\nname = \"s1\"\ndevice = \"slow\"\nlisten = \"unix:t\"",
        "[[store]] \"s1\" device: \"slow\" is part of [[store]] \"s0\" already",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\n\
         [[export]]\ndevice = \"slow\"\nnbd = \"unix:t\"",
        "[[export]] \"slow\" device: \"slow\" is part of [[store]] \"s0\", and a write to one part would break \
         the whole; clients reach the store at its listen",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\n\
         [[export]]\ndevice = \"fast\"\nnbd = \"unix:s\"",
        "[[export]] \"fast\" nbd: unix:s is where the store \"s0\" listens",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\n\
         [[hybrid]]\nname = \"v\"\nslow = \"s0\"\nfast = \"fast\"",
        "[[hybrid]] \"v\" slow: there is no [[device]], [[stripe]] or [[hybrid]] called \"s0\"",
    ),
    (
        "[admin]\nlisten = 10880",
        "[admin] listen: expected one text or a list of texts",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = [\"unix:s\", \"10.0.0.1:10881\"]",
        "[[store]] \"s0\" listen: 10.0.0.1:10881 can be reached from other machines, and in the clear who is on the way reads \
         all data, takes capabilities over and changes requests; write listen = \"tls:10.0.0.1:10881\" and make \
         certificates (`tanada cluster ca init`, then `tanada node create`)",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"tls:10.0.0.1:10881\"\nunauthenticated = true",
        "[[store]] \"s0\" unauthenticated: tls:10.0.0.1:10881 can be reached from other machines",
    ),
    (
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\ninsecure = true",
        "[[store]] \"s0\" insecure: a store no longer speaks in the clear where other machines reach it; take the line out",
    ),
    (
        "[[export]]\ndevice = \"slow\"\nnbd = \"tls:127.0.0.1:10809\"",
        "[[export]] \"slow\" nbd: tls:127.0.0.1:10809: only stores and the admin API listen at tls: addresses; write 127.0.0.1:10809 here",
    ),
    (
        "[admin]\nallow_remote = true",
        "[admin] allow_remote: is gone: other machines reach the admin API in TLS alone",
    ),
];

#[test]
fn a_store_says_where_it_stands_and_who_may_come_in() {
    let config = good(&with_two(
        "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"tls:0.0.0.0:10881\"\n\
         [[store]]\nname = \"s1\"\ndevice = \"fast\"\nlisten = [\"127.0.0.1:1\", \"unix:s\"]\n\
         scheduler = \"rounds-join\"\nround = 32\ndepth = 2\nunit = \"4MiB\"\ncreate = true\nscrub = \"20MB/s\"\nfloor = \"1MB/s\"\n\
         ceiling = \"9MB/s\"\nmemory = \"16MiB\"\ndiscard = false\nclock_skew = \"1m\"\nnode_key_file = \"k\"\nunauthenticated = true\n",
    ));
    let usual = &config.stores[0];
    assert_eq!(usual.scheduling, Scheduling::default());
    assert_eq!((usual.unit, usual.memory), (Bytes::mib(1), store::MEMORY));
    assert_eq!((usual.scrub, usual.create), (None, false));
    assert_eq!(
        usual.access.node_key_file,
        Path::new("tanada-data/keys/s0.node"),
        "keys are kept with the data"
    );
    let all = &config.stores[1];
    assert_eq!(all.scheduling.kind.name(), "rounds-join");
    assert_eq!(
        (all.scheduling.round, all.scheduling.depth),
        (Some(32), Some(2))
    );
    assert_eq!(all.listen.len(), 2);
    assert!(all.create && all.access.unauthenticated);
    assert!(usual.discard && !all.discard);
    assert_eq!(all.scrub.unwrap().to_string(), "20 MB/s");
    assert_eq!(all.background.floor.unwrap().to_string(), "1 MB/s");
    assert_eq!(all.background.ceiling.unwrap().to_string(), "9 MB/s");
    assert_eq!(all.access.clock_skew, Nanos::secs(60));
    assert_eq!(all.access.node_key_file, Path::new("k"));
}

#[test]
fn caps_and_a_queue_of_a_hybrid_are_read_as_they_are_written() {
    let config = good(&with_two(
        "[[hybrid]]\nname = \"v\"\nslow = \"slow\"\nfast = \"fast\"\nmax_read = \"100MB/s\"\nqueue = true\n\
         scheduler = \"rounds\"\nround = 8\nread_speed = \"90MB/s\"\n\
         [[export]]\ndevice = \"v\"\nnbd = \"unix:s\"\nmax_write_iops = 500\nmax_read_iops = \"off\"",
    ));
    let hybrid = &config.hybrids[0];
    assert_eq!(hybrid.caps.read.bytes.unwrap().to_string(), "100 MB/s");
    assert!(hybrid.caps.write.is_none());
    let queue = hybrid.queue.unwrap();
    assert_eq!(queue.scheduling.round, Some(8));
    assert_eq!(queue.assumed.read_speed.unwrap().to_string(), "90 MB/s");
    let caps = config.exports[0].caps;
    assert_eq!((caps.write.requests, caps.read.requests), (Some(500), None));
}

#[test]
fn the_queue_of_a_store_is_built_as_the_configuration_says() {
    use policy::share::{BytesPerSec, Costs};
    let queue_of = |keys: &str| {
        let store = "[[store]]\nname = \"s0\"\ndevice = \"slow\"\nlisten = \"unix:s\"\n";
        let config = good(&with_two(&format!("{store}{keys}")));
        let mut queue = ::store::qos::queue::QueueOptions::new(Costs::flat(BytesPerSec::mb(100)));
        let of = &config.stores[0];
        of.scheduling.put_into(of.unit, &mut queue);
        queue
    };
    let published = queue_of("scheduler = \"rounds\"\nunit = \"64KiB\"");
    let rounds = published.share.rounds;
    assert_eq!(published.kind, policy::share::Kind::Rounds);
    assert_eq!((rounds.round_ios, rounds.depth), (64, 1), "as published");
    assert_eq!((rounds.unit, rounds.join), (Bytes::kib(64), false));
    let rounds = queue_of("scheduler = \"rounds\"\nround = 16\ndepth = 4")
        .share
        .rounds;
    assert_eq!((rounds.round_ios, rounds.depth), (16, 4));
    assert_eq!(rounds.unit, Bytes::mib(1), "the unit of the store");
    let tags = queue_of("quantum = \"16KiB\"\ndepth = 3").share.tags;
    assert_eq!(
        (tags.quantum, tags.piece_min),
        (Bytes::kib(16), Bytes::kib(16))
    );
    assert_eq!((tags.depth.min, tags.depth.max), (3, 3));
    let tags = queue_of("depth = \"auto\"").share.tags;
    assert_eq!(tags, policy::share::TagsOptions::default());
    assert_eq!(
        queue_of("scheduler = \"fifo\"\ndepth = 8").share.fifo_depth,
        8
    );
}

#[test]
fn what_makes_no_sense_is_refused_by_its_key() {
    for (added, said) in REFUSALS {
        let found = mistakes(&with_two(added));
        assert_eq!(found.len(), 1, "{added}\n{found:#?}");
        assert!(
            found[0].contains(said),
            "{added}\nsaid {found:#?}\nexpected {said}"
        );
    }
}

#[test]
fn a_hybrid_may_stand_on_a_later_one() {
    let config = good(&with_two(
        "[[device]]\nname = \"faster\"\nmemory = true\nsize = \"4MiB\"\n\
         [[hybrid]]\nname = \"top\"\nslow = \"bottom\"\nfast = \"faster\"\n\
         [[hybrid]]\nname = \"bottom\"\nslow = \"slow\"\nfast = \"fast\"\n",
    ));
    let order: Vec<&str> = config.hybrids.iter().map(HybridConfig::name).collect();
    assert_eq!(order, ["bottom", "top"]);
}

#[test]
fn nbd_in_the_clear_beyond_this_machine_takes_saying_so() {
    let export = |rest: &str| {
        with_two(&format!(
            "[[export]]\ndevice = \"slow\"\nnbd = [\"unix:s\", \"0.0.0.0:10809\"]\n{rest}"
        ))
    };
    let found = mistakes(&export(""));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0]
            .contains("[[export]] \"slow\" nbd: 0.0.0.0:10809 can be reached from other machines")
            && found[0].contains("insecure = true"),
        "{found:#?}"
    );
    good(&export("insecure = true"));
    let tls = "tls = { certificate = \"c\", key = \"k\", client_ca = \"a\", clients = { \"h\" = [\"slow\"] } }";
    let config = good(&export(tls));
    let clients = config.exports[0].tls.clone().and_then(|tls| tls.clients);
    assert_eq!(clients.unwrap()["h"], ["slow"]);
    let found = mistakes(&export(&tls.replace("client_ca = \"a\", ", "")));
    assert!(found[0].contains("add client_ca"), "{found:#?}");
}

#[test]
fn the_log_says_as_much_as_its_level() {
    assert_eq!(good(TWO).log, LogLevel::Info);
    let at = |level: &str| with_two(&format!("[log]\nlevel = \"{level}\"\n"));
    assert_eq!(good(&at("warn")).log, LogLevel::Warn);
    let found = mistakes(&at("loud"));
    assert!(
        found[0].contains("write error, warn, info, debug or trace"),
        "{found:?}"
    );
    let found = mistakes(&with_two("[log]\nfile = \"x\"\n"));
    assert!(found[0].contains("file"), "{found:?}");
}

#[test]
fn sockets_are_open_to_owner_and_group_unless_said_otherwise() {
    assert_eq!(good(TWO).socket_mode, 0o660);
    for (text, mode) in [("0600", 0o600), ("666", 0o666)] {
        let config = good(&format!("socket_mode = \"{text}\"\n{TWO}"));
        assert_eq!(config.socket_mode, mode);
    }
    for wrong in ["0680", "rw", "1777", ""] {
        let found = mistakes(&format!("socket_mode = \"{wrong}\"\n{TWO}"));
        assert!(found[0].contains("is no set of permissions"), "{found:#?}");
    }
}

#[test]
fn data_threads_poll_adaptively_unless_said_otherwise() {
    assert_eq!(good(TWO).poll, Setting::Adaptive);
    for setting in [Setting::Off, Setting::Adaptive, Setting::Always] {
        assert_eq!(good(&format!("poll = \"{setting}\"\n{TWO}")).poll, setting);
        let export =
            format!("{TWO}[[export]]\ndevice = \"slow\"\nnbd = \"unix:s\"\npoll = \"{setting}\"\n");
        assert_eq!(good(&export).exports[0].poll, Some(setting));
    }
    let found = mistakes(&format!("poll = \"sometimes\"\n{TWO}"));
    assert_eq!(
        found,
        ["line 1: poll: 'sometimes' is no way to wait; write off, adaptive or always"]
    );
}

#[test]
fn commands_are_taken_at_a_socket_and_the_rest_is_seen_at_a_port() {
    let of = |text: &str| {
        let admin = good(&with_two(text)).admin;
        let all = |of: &[Address]| {
            of.iter()
                .map(Address::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        };
        (all(&admin.listen), all(&admin.web), admin.web_named)
    };
    let socket = format!("unix:{DATA_DIR}/admin.sock");
    assert_eq!(of(""), (socket.clone(), WEB.to_owned(), false));
    assert_eq!(
        of("[admin]\nhosts = \"a\""),
        (socket.clone(), WEB.to_owned(), false)
    );
    let tcp = of("[admin]\nlisten = \"unix:a\"\ntcp = \"127.0.0.1:1\"");
    assert_eq!(
        tcp,
        ("unix:a 127.0.0.1:1".to_owned(), WEB.to_owned(), false)
    );
    // As it was written before there was [web].
    let both = of("[admin]\nlisten = [\"127.0.0.1:10880\", \"unix:a\"]");
    assert_eq!(
        both,
        ("127.0.0.1:10880 unix:a".to_owned(), String::new(), false)
    );
    let web = of("[web]\nlisten = [\"127.0.0.1:1\", \"tls:10.0.0.1:1\"]");
    assert_eq!(
        web,
        (
            socket.clone(),
            "127.0.0.1:1 tls:10.0.0.1:1".to_owned(),
            true
        )
    );
    assert_eq!(of("[web]\nlisten = []"), (socket, String::new(), true));
    for (text, said) in [
        ("[web]\nlisten = \"10.0.0.1:1\"", "write \"tls:10.0.0.1:1\""),
        ("[admin]\ntcp = \"10.0.0.1:1\"", "write \"tls:10.0.0.1:1\""),
        ("[admin]\ntcp = \"unix:a\"", "write it into listen"),
        (
            "[admin]\ntcp = \"127.0.0.1:1\"\n[web]\nlisten = \"127.0.0.1:1\"",
            "stands in [admin], too",
        ),
    ] {
        let found = mistakes(&with_two(text));
        assert!(found[0].contains(said), "{text}: {found:#?}");
    }
}

#[test]
fn other_machines_reach_the_admin_api_in_tls_alone() {
    let config = good(&with_two(
        "[admin]\nlisten = \"tls:0.0.0.0:10880\"\nhosts = \"nas.example\"",
    ));
    assert_eq!(config.admin.hosts, ["nas.example"]);
    assert!(!is_local(&config.admin.listen[0]));
    // Commands of the owner still have their socket.
    let socket = config.admin.listen[1].to_string();
    assert_eq!(socket, format!("unix:{DATA_DIR}/admin.sock"));
    good(&with_two(
        "[admin]\nlisten = [\"127.0.0.1:10880\", \"tls:127.0.0.1:10881\"]",
    ));
    for (text, said) in [
        (
            "listen = \"10.0.0.1:10880\"",
            "write \"tls:10.0.0.1:10880\"",
        ),
        (
            "listen = \"[::]:10880\"\nallow_remote = true",
            "write \"tls:[::]:10880\"",
        ),
        ("allow_remote = true", "is gone: other machines"),
        ("allow_remote = false", "tcp = \"tls:10.0.0.1:10881\""),
    ] {
        let found = mistakes(&with_two(&format!("[admin]\n{text}")));
        assert!(
            found.iter().any(|it| it.contains(said)),
            "{text}: {found:#?}"
        );
    }
}

#[test]
fn a_stripe_is_a_device_of_devices() {
    let stripe = |devices: &str, rest: &str| {
        with_two(&format!(
            "[[stripe]]\nname = \"raid\"\ndevices = [{devices}]\n{rest}"
        ))
    };
    let config = good(&stripe("\"slow\", \"fast\"", ""));
    let made = &config.devices[2];
    let members = vec!["slow".to_owned(), "fast".to_owned()];
    let chunk = Bytes::kib(64);
    assert_eq!(made.name, "raid");
    assert_eq!(made.kind, Kind::Striped { members, chunk });
    let config = good(&stripe("\"slow\", \"fast\"", "chunk = \"1MiB\"\n"));
    assert!(
        matches!(config.devices[2].kind, Kind::Striped { chunk, .. } if chunk == Bytes::mib(1))
    );

    let export = "[[export]]\ndevice = \"slow\"\nnbd = \"unix:x\"\n";
    let hybrid = "[[hybrid]]\nname = \"vol\"\nslow = \"raid\"\nfast = \"fast\"\n";
    for (text, said) in [
        (stripe("\"slow\"", ""), "made of at least two devices"),
        (stripe("\"slow\", \"slow\"", ""), "\"slow\" is named twice"),
        (stripe("\"slow\", \"fats\"", ""), "did you mean fast?"),
        (stripe("\"slow\", \"raid\"", ""), "a stripe itself"),
        (
            stripe("\"slow\", \"fast\"", "chunk = 5000\n"),
            "not a power of two",
        ),
        (
            stripe("\"slow\", \"fast\"", "chunks = 5000\n"),
            "did you mean chunk?",
        ),
        (
            stripe("\"slow\", \"fast\"", export),
            "export the stripe instead",
        ),
        (
            stripe("\"slow\", \"fast\"", hybrid),
            "part of [[stripe]] \"raid\" already",
        ),
    ] {
        let found = mistakes(&text);
        assert!(
            found.iter().any(|mistake| mistake.contains(said)),
            "{said}: {found:?}"
        );
    }
}

#[test]
fn a_disk_of_virtual_machines_has_a_socket_of_its_own() {
    let export = |device: &str, rest: &str| format!("[[export]]\ndevice = \"{device}\"\n{rest}\n");
    let machine = "vhost-user = \"/run/vm.sock\"";
    let config = good(&with_two(&export("slow", machine)));
    let [only] = &config.exports[..] else {
        panic!("{config:?}");
    };
    let socket = "unix:/run/vm.sock".parse().unwrap();
    assert_eq!(
        (only.vhost_user.as_ref(), only.nbd.len()),
        (Some(&socket), 0)
    );
    for (text, what) in [
        (
            export("slow", "vhost-user = \"unix:\""),
            "the path is empty",
        ),
        (
            export("slow", machine) + &export("fast", machine),
            "export \"slow\" is; a virtual machine's disk has a socket of its own",
        ),
        (
            export("slow", &format!("nbd = \"unix:/run/vm.sock\"\n{machine}")),
            "its own NBD clients connect",
        ),
        (
            export("slow", machine) + &export("fast", "nbd = \"unix:/run/vm.sock\""),
            "virtual machines connect to export \"slow\"",
        ),
        (
            export("slow", machine) + "[admin]\nlisten = \"unix:/run/vm.sock\"\n",
            "the admin API listens",
        ),
    ] {
        let found = mistakes(&with_two(&text));
        assert!(
            found.iter().any(|it| it.contains(what)),
            "{what}: {found:?}"
        );
    }
}

#[test]
fn gates_are_counted_and_need_nbd_clients() {
    let export = |rest: &str| format!("{TWO}[[export]]\ndevice = \"slow\"\n{rest}\n");
    let nbd = "nbd = \"unix:s\"\n";
    assert_eq!(good(&export(nbd)).exports[0].gates, 0);
    assert_eq!(
        good(&export(&format!("{nbd}gates = 4"))).exports[0].gates,
        4
    );
    let found = mistakes(&export(&format!("{nbd}gates = 65")));
    assert!(found[0].contains("65 are too many"), "{found:#?}");
    let found = mistakes(&export("ublk = true\ngates = 2"));
    assert!(found[0].contains("has no nbd"), "{found:#?}");
}

#[test]
fn two_disks_of_virtual_machines_have_two_names() {
    let export = |name: &str, socket: &str| {
        format!("[[export]]\ndevice = \"slow\"\nname = \"{name}\"\nvhost-user = \"{socket}\"\n")
    };
    let two = |second: &str| {
        format!(
            "{TWO}{}{}",
            export("vm", "/run/a"),
            export(second, "/run/b")
        )
    };
    assert_eq!(good(&two("vm2")).exports.len(), 2);
    let found = mistakes(&two("vm"));
    assert!(found[0].contains("kept by its name"), "{found:#?}");
}

#[test]
fn every_relative_path_of_a_file_begins_at_its_folder() {
    let text = r#"
data_dir = "rel/data"
[[device]]
name = "d"
path = "rel/d.img"
size = "64MiB"
[[device]]
name = "m"
model = "hdd-7200-sata"
size = "64MiB"
file = "rel/m.img"
[[device]]
name = "f"
memory = true
size = "16MiB"
[[device]]
name = "o"
memory = true
size = "64MiB"
[[hybrid]]
name = "v"
slow = "d"
fast = "f"
trace = "rel/trace"
[[store]]
name = "s"
device = "o"
listen = "unix:rel/s.sock"
node_key_file = "rel/node.key"
[cluster]
node = "n"
nbd = "unix:rel/n.sock"
meta = { etcd = "http://127.0.0.1:2379", authority = "rel/ca.pem", certificate = "rel/c.pem", key = "rel/c.key", user = "u", password_file = "rel/p" }
[[export]]
device = "v"
nbd = ["unix:rel/v.sock", "127.0.0.1:10809"]
vhost-user = "rel/v.vhost"
[export.tls]
certificate = "rel/e.pem"
key = "rel/e.key"
client_ca = "rel/e.ca"
[admin]
listen = "unix:rel/admin.sock"
"#;
    let config = read(text, "/etc/x/t.toml", None).unwrap_or_else(|error| panic!("{error}"));
    let shown = format!("{config:?}");
    let (all, begun) = (shown.matches("rel/"), shown.matches("/etc/x/rel/"));
    let (all, begun) = (all.count(), begun.count());
    assert_eq!(all, begun, "{shown}");
    assert!(begun >= text.matches("rel/").count(), "{begun} in {shown}");
    let usual = read("", "/srv/t.toml", None).unwrap();
    assert_eq!(
        usual.data_dir,
        Path::new(DATA_DIR),
        "not written in the file"
    );
    let chosen = read("", "/srv/t.toml", Some(Path::new("here"))).unwrap();
    assert_eq!(chosen.data_dir, Path::new("here"), "typed where it begins");
}
