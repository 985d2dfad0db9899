//! Good `[cluster]`s, and what is said about bad ones.

use vdisk::cluster::opened::Terms;
use vdisk::record::PriorityClass;
use vdisk::replica::broadcast::Route;

use super::super::{Config, Mistake, read};
use super::*;

const STORES: &str = r#"
[[device]]
name = "d0"
memory = true
size = "64MiB"
[[device]]
name = "d1"
memory = true
size = "64MiB"
[[store]]
name = "s0"
device = "d0"
listen = "127.0.0.1:4001"
[[store]]
name = "s1"
device = "d1"
listen = "127.0.0.1:4002"
"#;
const ETCD: &str = "meta = { etcd = [\"http://127.0.0.1:2379\"] }\n";

fn with(cluster: &str) -> String {
    format!("{STORES}[cluster]\n{cluster}")
}

fn good(cluster: &str) -> ClusterConfig {
    let config: Config =
        read(&with(cluster), "test", None).unwrap_or_else(|error| panic!("{error}"));
    config.cluster.expect("there is one")
}

/// The only mistake.
fn mistake(text: &str) -> String {
    match read(text, "test", None) {
        Ok(config) => panic!("this was taken for good: {config:#?}"),
        Err(error) => {
            let all: Vec<String> = error.mistakes.iter().map(Mistake::to_string).collect();
            assert_eq!(all.len(), 1, "{all:#?}");
            all[0].clone()
        }
    }
}

fn says(cluster: &str, said: &str) {
    let found = mistake(&with(cluster));
    assert!(found.contains(said), "{found}");
}

#[test]
fn a_node_by_itself_needs_a_name_and_nothing_else() {
    let cluster = good("node = \"n1\"\n");
    assert_eq!(cluster.stores, ["s0", "s1"]);
    assert_eq!(cluster.domains["s1"], "s1");
    assert!(matches!(cluster.meta, MetaConfig::Redb(_)));
    assert_eq!((cluster.announce, cluster.nbd.len()), (None, 0));
}

#[test]
fn replicas_are_chosen_by_any_policy_but_one_that_needs_exact_states() {
    assert_eq!(good("node = \"n1\"\n").replica_choice, Kind::Tanada);
    for kind in Kind::selectable() {
        let cluster = good(&format!("node = \"n1\"\nreplica_choice = \"{kind}\"\n"));
        assert_eq!(cluster.replica_choice, kind);
    }
    for wrong in ["nearest", "oracle"] {
        says(
            &format!("node = \"n1\"\nreplica_choice = \"{wrong}\"\n"),
            &format!(
                "[cluster] replica_choice: '{wrong}' is no policy for replicas; choose one of round-robin, random, \
                 local-first, clbs, least-outstanding, queue-cost, c3, md-raid1, tanada"
            ),
        );
    }
}

#[test]
fn a_policy_by_load_reports_alone_needs_nodes_that_send_them() {
    let wanted = format!("node = \"n1\"\n{ETCD}replica_choice = \"queue-cost\"\n");
    says(&wanted, "replica_choice: queue-cost goes by load reports");
    let cluster = good(&(wanted + "announce = \"239.1.2.3:10882\"\n"));
    assert_eq!(cluster.replica_choice, Kind::QueueCost);
}

#[test]
fn with_etcd_a_node_fails_as_a_whole_unless_a_domain_says_otherwise() {
    let cluster = good(&format!("node = \"n1\"\n{ETCD}"));
    assert_eq!(cluster.domains["s0"], "n1");
    let cluster = good(&format!("node = \"n1\"\ndomain = \"rack4\"\n{ETCD}"));
    assert_eq!(cluster.domains["s1"], "rack4");
}

#[test]
fn a_volume_that_does_not_exist_yet_is_exported_under_any_name() {
    let text = with("node = \"n1\"\n")
        + "[[export]]\ndevice = \"volume:vm1\"\nnbd = \"unix:a\"\n\
           [[export]]\ndevice = \"volume:vm1\"\nname = \"look\"\nnbd = \"unix:a\"\nread_only = true\npriority = \"low\"\nfairness = 2.5\n";
    let config = read(&text, "test", None).unwrap_or_else(|error| panic!("{error}"));
    let [one, look] = &config.exports[..] else {
        panic!("there are two");
    };
    assert_eq!((&*one.name, one.read_only), ("vm1", false));
    assert_eq!((&*look.name, look.read_only), ("look", true));
    let low = Terms {
        priority: Some(PriorityClass::Low),
        fairness: Some("2.5".parse().expect("it is one")),
    };
    for (export, terms) in [(one, Terms::default()), (look, low)] {
        let volume = export.volume.as_ref().expect("it is one");
        assert_eq!(volume.name.as_str(), "vm1");
        assert_eq!(volume.terms, terms);
    }
}

#[test]
fn an_export_of_a_volume_that_cannot_be_is_refused_with_what_to_do() {
    let export = |device: &str| format!("[[export]]\ndevice = \"{device}\"\nnbd = \"unix:x\"\n");
    let alone = mistake(&format!("{STORES}{}", export("volume:vm1")));
    assert!(
        alone.contains("there is no [cluster] here; add one (docs/virtual-disks.md begins"),
        "{alone}"
    );
    // A cluster that is wrong is one all the same.
    let broken = mistake(&(with("node = \"a/b\"\n") + &export("volume:vm1")));
    assert!(broken.contains("[cluster] node: "), "{broken}");
    let good = with("node = \"n1\"\nnbd = \"unix:y\"\n");
    for (device, said) in [
        (
            "volume:vm1@monday",
            "clone it (`tanada snapshot clone vm1@monday NEW`) and write volume:NEW",
        ),
        ("volume:a/b", "write such as volume:vm1"),
        ("volume:", "write such as volume:vm1"),
        ("volumes:a", "called \"volumes:a\""),
    ] {
        let found = mistake(&(good.clone() + &export(device)));
        assert!(found.contains(said), "{found}");
    }
    let odd = format!("{}priority = \"urgent\"\n", export("volume:vm1"));
    let odd = mistake(&(good.clone() + &odd));
    let said = "priority: 'urgent' is no priority; write low, normal or high";
    assert!(odd.contains(said), "{odd}");
    let odd = format!("{}fairness = 0.5\n", export("volume:vm1"));
    let odd = mistake(&(good.clone() + &odd));
    let said = "fairness: 0.5 is no fairness; write 1 (clients are not kept apart) to 100";
    assert!(odd.contains(said), "{odd}");
    let device = "[[device]]\nname = \"d9\"\nmemory = true\nsize = \"64MiB\"\n";
    let plain = format!("{device}{}priority = \"low\"\n", export("d9"));
    let plain = mistake(&(good.clone() + &plain));
    assert!(
        plain.contains("priority: only volumes of the cluster have one"),
        "{plain}"
    );
    let plain = format!("{device}{}fairness = 4\n", export("d9"));
    let plain = mistake(&(good.clone() + &plain));
    let said = "fairness: only volumes of the cluster have one";
    assert!(plain.contains(said), "{plain}");
    let taken = good + &export("volume:vm1").replace("unix:x", "unix:y");
    let taken = mistake(&taken);
    assert!(
        taken.contains("unix:y is where \"vm1\" is exported; volumes have addresses of their own"),
        "{taken}"
    );
}

#[test]
fn a_node_without_a_valid_name_or_without_stores_is_refused() {
    says(
        "",
        "[cluster]: node is missing; say what this node is called",
    );
    says("node = \"a/b\"\n", "node: ");
    let bare = mistake("[cluster]\nnode = \"n1\"\n");
    assert!(
        bare.contains("stores: a cluster of one node needs a store"),
        "{bare}"
    );
    says(
        "node = \"n1\"\nstores = [\"s0\", \"s2\"]\n",
        "stores: there is no [[store]] called \"s2\"",
    );
    says(
        "node = \"n1\"\nnods = \"n2\"\n",
        "nods: there is no such key; did you mean node?",
    );
}

#[test]
fn the_records_are_in_one_place_and_what_goes_together_is_given_together() {
    let meta = |meta: &str| format!("node = \"n1\"\nmeta = {{ {meta} }}\n");
    says(&meta(""), "say where the records are: redb =");
    says(&meta("etcd = []"), "say where the records are: redb =");
    says(
        &meta("redb = \"m\", etcd = [\"http://a:1\"]"),
        "in a file (redb) or in etcd, not in both",
    );
    says(
        &meta("redb = \"m\", redbb = 1"),
        "redbb: there is no such key",
    );
    says(
        &meta("etcd = [\"http://a:1\"], key = \"k.pem\""),
        "certificate and key go together",
    );
    says(
        &meta("etcd = [\"http://a:1\"], user = \"ann\""),
        "user and password_file go together",
    );
    let found = read(&with(&meta("etcd = [\"10.0.0.1:2379\"]")), "test", None).unwrap_err();
    let found = found.mistakes[0].to_string();
    assert!(
        found.contains("'10.0.0.1:2379' is no endpoint; write such as"),
        "{found}"
    );
    says(
        "node = \"n1\"\nmeta = \"etcd\"\n",
        "meta: expected a table, found a string",
    );
}

#[test]
fn no_other_listener_has_an_address_where_volumes_are_exported() {
    let nbd = |at: &str| format!("node = \"n1\"\nnbd = \"{at}\"\n");
    says(
        &nbd("127.0.0.1:4002"),
        "nbd: 127.0.0.1:4002 is where the store \"s1\" listens",
    );
    says(&nbd("127.0.0.1:10880"), "is where the admin API listens");
    says(&nbd("nowhere"), "nbd: ");
    let taken = format!(
        "{}[[device]]\nname = \"d2\"\nmemory = true\nsize = \"1MiB\"\n[[export]]\ndevice = \"d2\"\nnbd = \
         \"127.0.0.1:4009\"\n",
        with(&nbd("127.0.0.1:4009"))
    );
    let found = mistake(&taken);
    assert!(
        found.contains("is where \"d2\" is exported; volumes have addresses"),
        "{found}"
    );
}

#[test]
fn a_store_that_others_cannot_find_is_a_mistake_in_a_cluster_of_several() {
    let text = with(&format!("node = \"n1\"\n{ETCD}"));
    let all = "\"tls:0.0.0.0:4001\"";
    let found = mistake(&text.replace("\"127.0.0.1:4001\"", all));
    assert!(
        found.contains("the store \"s0\" listens on all addresses"),
        "{found}"
    );
    let single = with("node = \"n1\"\n").replace("\"127.0.0.1:4001\"", all);
    assert!(read(&single, "test", None).is_ok());
}

#[test]
fn queues_are_announced_to_a_group_or_to_each_node_by_itself() {
    let announce = |rest: &str| good(&format!("node = \"n1\"\n{ETCD}announce = {rest}\n")).announce;
    let group = announce("\"239.1.2.3:10882\"\nannounce_every = \"50ms\"").expect("it is on");
    assert_eq!(
        group.route,
        Route::Multicast("239.1.2.3:10882".parse().unwrap())
    );
    assert_eq!(group.every, Nanos::millis(50));
    // The same list on all nodes: no node announces to itself.
    let each = "{ listen = \"10.0.0.1:1\", peers = [\"10.0.0.1:1\", \"10.0.0.2:1\"] }";
    let each = announce(each).expect("it is on");
    let peers = vec!["10.0.0.2:1".parse().unwrap()];
    let own = "10.0.0.1:1".parse().unwrap();
    assert_eq!(each.route, Route::Unicast { own, peers });
    assert_eq!(each.every, ANNOUNCE_EVERY);
}

#[test]
fn an_announcement_without_a_receiver_is_a_mistake() {
    let announce = |given: &str, said: &str| {
        says(&format!("node = \"n1\"\n{ETCD}announce = {given}\n"), said);
    };
    announce(
        "\"10.0.0.1:1\"",
        "announce: 10.0.0.1:1 is no multicast group",
    );
    announce("\"239.1.2.3\"", "'239.1.2.3' is no address; write IP:PORT");
    announce(
        "\"239.1.2.3:0\"",
        "port 0 is none that others could send to",
    );
    announce("7", "expected a multicast group, such as");
    let each = |peers: &str| format!("{{ listen = \"10.0.0.1:1\", peers = [{peers}] }}");
    announce(&each(""), "peers names no other node");
    announce(&each("\"10.0.0.1:1\""), "peers names no other node");
    announce(
        &each("\"239.1.2.3:1\""),
        "is a multicast group; write announce =",
    );
    announce(&each("\"[::1]:1\""), "are of two kinds; use IPv4 or IPv6");
    announce(
        &each("\"0.0.0.0:1\""),
        "0.0.0.0:1 is no address of another node",
    );
    announce(
        "{ listen = \"10.0.0.1:1\" }",
        "expected a multicast group, such as",
    );
    announce(
        "\"239.1.2.3:1\"\nannounce_every = \"2s\"",
        "announce_every: ",
    );
    says(
        &format!("node = \"n1\"\n{ETCD}announce_every = \"5ms\"\n"),
        "announce_every: no node hears them",
    );
    says(
        "node = \"n1\"\nannounce = \"239.1.2.3:1\"\n",
        "announce: a cluster with its records in a file has one node",
    );
    let many: Vec<String> = (0..300)
        .map(|n| format!("\"10.0.{}.{}:1\"", 1 + n / 200, n % 200))
        .collect();
    announce(
        &each(&many.join(", ")),
        "300 peers are more than 256; use a multicast group",
    );
}
