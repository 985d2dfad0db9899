//! Whose names are left out of what stores and hybrids say, and for whom.

use access::caller::{Caller, How};
use access::role::Role;
use access::token::TokenId;
use serde_json::json;

use super::*;

/// A store whose session, past promises and bad pages name an account, a holder and an object.
fn store() -> Store {
    let windows = json!({"kept": 1, "no_demand": 0, "capacity": 0, "scheduler": 0});
    let stretch = json!({"from": 1, "until": 2, "sessions": 1, "reads": 5, "writes": 0,
        "promised_percent": 1.0, "headroom_percent": 2.0});
    let node = json!({
        "store": "s0", "uuid": "00", "device": "hdd0", "now": 1, "scheduler": "tags", "depth": 1, "in_flight": 0,
        "shed": "nothing", "read_bytes": 0, "written_bytes": 0, "metadata_bytes": 0, "best_effort_bytes": 0,
        "background_bytes": 0,
        "space": {"total_bytes": 9, "used_bytes": 0, "reserved_bytes": 0, "free_bytes": 9, "objects": 0},
        "capacity": {"read": 1, "write": 1, "source": "configured", "read_speed_percent": null,
            "write_speed_percent": null, "samples": [0, 0, 0], "calibrated": null, "calibrated_device": null,
            "calibration_due": false},
        "calendar": {"held": 0, "committed": 1, "now": stretch, "floors_percent": 1.0, "overcommitted": []},
        "sessions": 1, "memory_bytes": 1,
        "scrub": {"rate": 0, "rounds": 0, "read_bytes": 0, "bad": 0, "round_ended": null},
        "delivered": [{"reservation": 2, "holder": "astro", "delivered_bytes": 5, "windows": windows}],
        "ended": [{"reservation": 1, "holder": "astro", "direction": "read", "promised": 5, "from": 1, "until": 2,
            "ended": 2, "why": "its time was over", "delivered_bytes": 5, "windows": windows}],
        "log": [],
    });
    let session = json!({
        "session": 1, "reservation": 1, "holder": "astro", "account": "astro", "scope": "results/", "direction": "read",
        "phase": "open", "priority": "normal", "promised": 5, "delivered_bytes": 5, "requests": 1,
        "outstanding_bytes": 0, "window_ns": 1, "windows": windows, "memory_bytes": 1, "peers": [], "opened": 1,
        "closed": null,
    });
    let store = json!({
        "name": "s0", "device": "hdd0", "listen": [], "unauthenticated": false, "unit_bytes": 1, "page_bytes": 4096,
        "table_bytes": 1, "table_max_bytes": 2, "memory_bytes": 1, "node": node, "sessions": [session],
        "scrub": api_default::<crate::api::store::Scrub>(),
        "calibrating": api_default::<crate::api::store::Calibrating>(),
        "bad_blocks": 1, "first_bad": ["results/run1: page 3 is damaged"],
        "server": api_default::<crate::api::store::Server>(),
    });
    serde_json::from_value(store).expect("a store")
}

fn api_default<T: Default + serde::Serialize>() -> serde_json::Value {
    serde_json::to_value(T::default()).expect("plain data")
}

fn account(name: &str, role: Role) -> Caller {
    Caller {
        account: Some(name.parse().expect("a name")),
        role: Some(role),
        how: How::Token(TokenId(1)),
        ..Caller::nothing()
    }
}

/// What of the store's names the caller is answered.
fn answered(caller: &Caller) -> Vec<&'static str> {
    let mut store = store();
    hide_in_store(caller, &mut store);
    let text = serde_json::to_string(&store).expect("plain data");
    let all = [
        "\"holder\":\"astro\",\"account\"",
        "\"account\":\"astro\"",
        "\"scope\":\"results/\"",
        "\"holder\":\"astro\",\"direction\"",
        "results/run1",
    ];
    all.into_iter().filter(|it| text.contains(it)).collect()
}

#[test]
fn without_a_role_no_name_of_an_account_a_holder_or_an_object_is_answered() {
    assert_eq!(answered(&Caller::nothing()), [""; 0]);
}

#[test]
fn an_account_is_answered_its_own_names_and_an_operator_all() {
    assert_eq!(answered(&account("bio", Role::Booker)), ["results/run1"]);
    let own = answered(&account("astro", Role::Reader));
    assert_eq!(own.len(), 5, "{own:?}");
    assert_eq!(answered(&account("bio", Role::Operator)).len(), 5);
    assert_eq!(answered(&Caller::local(0)).len(), 5);
}

#[test]
fn who_muted_a_code_is_named_to_operators() {
    let by = |caller: &Caller| {
        let mute = json!({"code": "DIRTY_OLD", "until_unix_seconds": 1, "who": "account astro, operator", "about": [],
            "severity": "warning"});
        let health = json!({"status": "HEALTH_OK", "checks": [], "mutes": [mute]});
        let mut health = serde_json::from_value(health).expect("a verdict");
        hide_in_health(caller, &mut health);
        health.mutes[0].who.clone()
    };
    assert_eq!(by(&Caller::nothing()), "");
    assert_eq!(by(&account("bio", Role::Reader)), "");
    assert_eq!(
        by(&account("bio", Role::Operator)),
        "account astro, operator"
    );
}

#[test]
fn the_queue_of_a_hybrid_names_no_holder_either() {
    let mut queue = store().node;
    hide_in_manager(&Caller::nothing(), &mut queue);
    assert_eq!(queue.ended[0].holder, "");
    assert_eq!(queue.delivered[0].holder, "");
    assert_eq!(queue.ended[0].delivered_bytes, 5, "figures stay");
}

#[test]
fn who_deleted_a_volume_is_named_to_itself_and_to_operators() {
    let by = |caller: &Caller| {
        let volume = json!({"name": "vm1", "id": "deleted.00000001", "size_bytes": 1, "snapshots": 0,
            "health": "healthy", "why": "", "deleted_by": "astro", "deleting": false});
        let mut volume = serde_json::from_value(volume).expect("a deleted volume");
        hide_in_trash(caller, &mut volume);
        volume.deleted_by
    };
    assert_eq!(by(&account("bio", Role::Reader)), None);
    for sees in [
        account("astro", Role::Reader),
        account("bio", Role::Operator),
    ] {
        assert_eq!(by(&sees).as_deref(), Some("astro"));
    }
}
