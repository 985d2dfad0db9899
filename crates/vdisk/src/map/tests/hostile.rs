//! Bytes that this code did not write: all are refused, or are a node that is written again as it was.

use base::crc::crc32c;
use proptest::prelude::*;

use super::*;
use crate::map::NodeRef;
use crate::map::node::{FANOUT, LEVEL_MAX, NODE, Node, NodeError, Place};
use crate::names::NodeName;

const NAME: NodeName = NodeName {
    owner: VolumeId(5),
    born: Generation(77),
    number: 3,
};

fn reference(crc: u32) -> NodeRef {
    NodeRef {
        owner: NAME.owner,
        born: NAME.born,
        number: NAME.number,
        stores: Stores::new(&[StoreNumber(0), StoreNumber(65_535)]).unwrap(),
        crc,
    }
}

fn leaf() -> Vec<u8> {
    let mut node = Node::empty(Place { level: 0, nth: 9 });
    for slot in [0, 1, 509] {
        node.set_entry(
            slot,
            Some(Entry::overlay(layer(70 + slot as u64 % 7), layer(3))),
        );
    }
    node.encode(NAME).0.to_vec()
}

fn above() -> Vec<u8> {
    let mut node = Node::empty(Place { level: 1, nth: 0 });
    node.set_child(4, Some(reference(9)));
    node.encode(NAME).0.to_vec()
}

/// With the checksum that these bytes should have.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() >= 16 {
        bytes[12..16].fill(0);
        let crc = crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    }
    bytes
}

fn refused(mut bytes: Vec<u8>, at: usize, new: &[u8]) -> NodeError {
    bytes[at..at + new.len()].copy_from_slice(new);
    Node::parse(&sealed(bytes)).err().expect("it is refused")
}

#[test]
fn each_field_that_cannot_be_is_refused_by_name() {
    let elsewhere = |error| matches!(error, NodeError::Elsewhere { .. });
    assert!(matches!(refused(leaf(), 0, b"T!"), NodeError::Magic(_)));
    assert_eq!(refused(leaf(), 8, &[2]), NodeError::Version(2));
    assert_eq!(
        refused(leaf(), 36, &[4]),
        NodeError::Count { says: 4, has: 3 }
    );
    assert_eq!(refused(leaf(), 63, &[1]), NodeError::NotZero("the header"));
    assert!(elsewhere(refused(leaf(), 38, &[LEVEL_MAX + 1])));
    assert!(elsewhere(refused(leaf(), 32, &[255; 4])));
    assert!(matches!(refused(leaf(), 29, &[1]), NodeError::NotZero(_)));
    let why = |error| match error {
        NodeError::Entry { why, .. } => why,
        other => panic!("{other}"),
    };
    // In the first entry: copies of the top, the third store, all of the top, the base's name, its birth.
    assert_eq!(why(refused(leaf(), 64 + 9, &[4])), "more than three stores");
    assert_eq!(why(refused(leaf(), 64 + 9, &[0])), "a layer on no store");
    assert_eq!(
        why(refused(leaf(), 64 + 14, &[1])),
        "a store behind the last one"
    );
    assert_eq!(
        why(refused(leaf(), 64 + 12, &[0])),
        "a store that is there twice"
    );
    assert_eq!(why(refused(leaf(), 64, &[0; 16])), "a base without a top");
    assert_eq!(
        why(refused(leaf(), 64 + 16 + 4, &[70])),
        "an object above itself"
    );
    assert_eq!(
        why(refused(leaf(), 64 + 4, &[78])),
        "what it refers to was born after the node"
    );
    let child = 64 + 4 * 32;
    assert_eq!(
        why(refused(above(), child + 24, &[1])),
        "bytes that should be zero are not"
    );
    assert_eq!(
        why(refused(above(), child, &[0; 16])),
        "a child on no store"
    );
    // The last leaf there can be covers extents behind the last one.
    let last = u32::MAX / FANOUT;
    assert_eq!(
        why(refused(leaf(), 32, &last.to_le_bytes())),
        "it lies behind all extents there can be"
    );
}

#[test]
fn a_whole_node_in_another_ones_place_is_refused() {
    let bytes = leaf();
    let right = reference(crc32c(&bytes));
    let place = Place { level: 0, nth: 9 };
    assert!(Node::decode(&right, place, &bytes).is_ok());
    let wrong = |reference: NodeRef, place| {
        let error = Node::decode(&reference, place, &bytes)
            .err()
            .expect("refused");
        error.to_string()
    };
    let number = NodeRef { number: 4, ..right };
    assert_eq!(
        wrong(number, place),
        "it is another node: number is 3 and should be 4"
    );
    let elsewhere = Place { level: 0, nth: 10 };
    assert_eq!(
        wrong(right, elsewhere),
        "it is another node: place is 9 and should be 10"
    );
    let crc = NodeRef { crc: 1, ..right };
    assert!(wrong(crc, place).ends_with("should be 00000001"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_bytes_a_node_is_refused_or_written_again_as_it_was(
        changes in prop::collection::vec((prop_oneof![0..200_usize, 0..NODE], any::<u8>()), 0..4),
        upper in any::<bool>(),
        len in prop_oneof![9 => Just(NODE), 1 => 0..2 * NODE],
    ) {
        let mut bytes = if upper { above() } else { leaf() };
        for (at, new) in changes {
            bytes[at] = new;
        }
        bytes.resize(len, 0);
        let bytes = sealed(bytes);
        let Ok(node) = Node::parse(&bytes) else {
            return Ok(());
        };
        let name = NodeName {
            owner: VolumeId(u32::from_le_bytes(bytes[16..20].try_into().unwrap())),
            number: u32::from_le_bytes(bytes[20..24].try_into().unwrap()),
            born: Generation(u64::from_le_bytes(bytes[24..32].try_into().unwrap())),
        };
        for slot in 0..FANOUT as usize {
            match node.place().level {
                0 => drop(node.entry(slot)),
                _ => drop(node.child(slot).map(|_| node.place().child(slot))),
            }
        }
        prop_assert_eq!(&node.encode(name).0[..], &bytes[..]);
    }
}
