//! All states within the bounds, and that each planted mistake is among them.

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::rules::{self, Action, Bounds, Mutation, Rules};
use super::world::{Broken, World};

struct Volume {
    rules: Rules,
    all: Vec<Action>,
}

impl Model for Volume {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let Bounds {
            min_isr, faults, ..
        } = self.rules.bounds;
        vec![World::new(min_isr, faults)]
    }

    fn actions(&self, _: &World, actions: &mut Vec<Action>) {
        actions.extend_from_slice(&self.all);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        self.rules.after(world, action)
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.record.generation.0 <= u64::from(self.rules.bounds.generations)
    }

    fn properties(&self) -> Vec<Property<Volume>> {
        vec![
            Property::always("what was answered or read stays", |_, world: &World| {
                world.broken != Some(Broken::WentBack)
            }),
            Property::always("two writers never both answer", |_, world: &World| {
                world.broken != Some(Broken::BothAnswer)
            }),
            Property::always(
                "no in-sync store missed an answered write",
                |_, world: &World| world.counted_on().all(|store| store.value >= world.known),
            ),
            Property::always("some in-sync store has it", |_, world: &World| {
                world.counted_on().any(|store| store.value >= world.known)
            }),
        ]
    }
}

/// Explores everything; how many states there are, and the first broken promise with the way to it.
fn explored(bounds: Bounds, mutation: Option<Mutation>) -> (usize, Option<String>) {
    let model = Volume {
        rules: Rules { bounds, mutation },
        all: rules::all(),
    };
    let checker = model.checker().threads(2);
    let checker = checker.finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let found = checker.discoveries().into_iter().next();
    let broken = found.map(|(name, path)| {
        let last = path.last_state().clone();
        let steps = path.into_actions();
        let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
        format!("not so: {name}:\n  {}\n{last:#?}", steps.join("\n  "))
    });
    (checker.unique_state_count(), broken)
}

const fn bounds(writes: u8, openings: u8, faults: u8, generations: u8) -> Bounds {
    Bounds {
        min_isr: 1,
        writes,
        openings,
        faults,
        generations,
    }
}

/// Every promise holds in every state within `bounds`, and there are so many of them: fewer would be a step that cannot be taken any
/// more, and is not explored.
fn holds(bounds: Bounds, expected: usize) {
    let (states, broken) = explored(bounds, None);
    if let Some(broken) = broken {
        panic!("{bounds:?}: {broken}");
    }
    println!("{bounds:?}: {states} states");
    assert_eq!(states, expected, "{bounds:?}");
}

#[test]
fn the_promises_hold_in_every_state_of_one_writer_one_fault_and_two_writes() {
    holds(bounds(2, 1, 1, 6), 842_539);
}

#[test]
fn the_promises_hold_in_every_state_of_one_writer_and_two_faults() {
    holds(bounds(1, 1, 2, 5), 2_345_990);
}

#[test]
fn the_promises_hold_in_every_state_of_two_writers_and_one_fault() {
    holds(bounds(1, 2, 1, 4), 344_364);
}

#[test]
fn the_promises_hold_in_every_state_where_writes_must_reach_both_copies() {
    let min_isr = 2;
    let bounds = bounds(2, 1, 1, 5);
    holds(Bounds { min_isr, ..bounds }, 441_817);
}

#[test]
fn the_promises_hold_within_the_bounds_of_the_environment() {
    let Ok(asked) = std::env::var("TANADA_BOUNDS") else {
        return;
    };
    let numbers: Vec<u8> = asked
        .split_whitespace()
        .map(|number| number.parse().expect("a small number"))
        .collect();
    let [writes, openings, faults, generations] = numbers[..] else {
        panic!("TANADA_BOUNDS has four numbers: writes, openings, faults, generations");
    };
    let bounds = bounds(writes, openings, faults, generations);
    let (states, broken) = explored(bounds, None);
    println!("{bounds:?}: {states} states");
    assert!(broken.is_none(), "{}", broken.unwrap_or_default());
}

/// A mutation must be found, or the exploration is blind.
fn found(mutation: Mutation, bounds: Bounds) {
    let (states, broken) = explored(bounds, Some(mutation));
    let broken = broken.unwrap_or_else(|| panic!("{mutation:?} went unseen in {states} states"));
    println!("{mutation:?}, {states} states: {broken}");
}

#[test]
fn stores_that_are_not_sealed_are_found() {
    found(Mutation::NoSeal, bounds(1, 2, 1, 6));
}

#[test]
fn an_answer_before_the_record_is_changed_is_found() {
    found(Mutation::AnswerBeforeSwap, bounds(2, 1, 1, 6));
}

#[test]
fn a_lease_that_its_holder_counts_in_full_is_found() {
    found(Mutation::WholeLease, bounds(1, 2, 1, 6));
}

#[test]
fn a_resync_that_misses_a_change_is_found() {
    found(Mutation::ResyncMisses, bounds(2, 1, 2, 7));
}

#[test]
fn a_store_that_joins_too_early_is_found() {
    found(Mutation::JoinsEarly, bounds(2, 1, 1, 7));
}

#[test]
fn a_removed_last_copy_is_found() {
    found(Mutation::DropsTheLastCopy, bounds(1, 2, 2, 7));
}

#[test]
fn an_extent_that_is_not_noted_as_dirty_is_found() {
    found(Mutation::NoDirtyBit, bounds(1, 2, 1, 6));
}

#[test]
fn a_connection_with_the_token_of_an_indeterminate_one_is_found() {
    found(Mutation::SameToken, bounds(2, 1, 1, 7));
}

#[test]
fn a_change_of_the_record_that_comes_about_too_late_is_found() {
    found(Mutation::LetsItLand, bounds(2, 1, 3, 7));
}

#[test]
fn copies_that_keep_an_old_stamp_are_found() {
    found(Mutation::OldStamp, bounds(1, 1, 2, 6));
}
