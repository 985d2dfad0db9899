//! What the rule promises, over any sequence of waits, and what it makes of the waits it is for.

use super::*;
use proptest::prelude::*;

const SECOND: Nanos = Nanos::secs(1);

/// Plays waits one after another, as a thread has them.
struct Played {
    rule: Adaptive,
    now: Instant,
    last_request: Option<Instant>,
    preempted_until: Instant,
    /// What was spun in vain: from, how long.
    in_vain: Vec<(Instant, Nanos)>,
}

/// One turn of a thread: work, then a wait.
#[derive(Clone, Debug)]
struct Turn {
    work: Nanos,
    request_ended: bool,
    preempted: bool,
    under_way: bool,
    /// When something comes, from the begin of the wait.
    comes: Comes,
}

#[derive(Clone, Debug)]
enum Comes {
    After(Nanos),
    /// Just when the thread has given up, or so much later: the worst that can happen.
    TooLate(Nanos),
    /// In the very moment that it begins to look.
    AtOnce,
    /// Nothing: a timer ends the wait.
    Timer(Nanos),
}

impl Played {
    fn new(start: Instant) -> Played {
        Played {
            rule: Adaptive::default(),
            now: start,
            last_request: None,
            preempted_until: Instant(0),
            in_vain: Vec::new(),
        }
    }

    /// The wait's length, and how long the thread looked: never in silence, never after it lost its processor.
    fn turn(&mut self, turn: &Turn) -> (Nanos, Nanos) {
        self.now = self.now + turn.work;
        if turn.request_ended {
            self.rule.request_ended(self.now);
            self.last_request = Some(self.now);
        }
        if turn.preempted {
            self.rule.preempted(self.now);
            self.preempted_until = self.now + PREEMPTED_PAUSE;
        }
        let began = self.now;
        let look = self.rule.spin(began, turn.under_way);
        if look > Nanos(0) {
            let last = self.last_request.expect("nothing is granted before");
            assert!(began + look <= last + RECENT, "{look} at {began:?}");
            assert!(began >= self.preempted_until, "{look} at {began:?}");
        }
        let (time, came) = match turn.comes {
            Comes::After(time) => (time, true),
            Comes::TooLate(by) => (look + Nanos(1) + by, true),
            Comes::AtOnce => (Nanos(0), true),
            Comes::Timer(time) => (time, false),
        };
        let found = came && look > Nanos(0) && time <= look;
        let spun = look.min(time);
        if !found && spun > Nanos(0) {
            self.in_vain.push((began, spun));
        }
        self.now = began + time;
        self.rule.waited(&Wait {
            began,
            ended: self.now,
            spun,
            found,
            came,
            under_way: turn.under_way,
        });
        (time, spun)
    }

    fn vain_within(&self, from: Instant, to: Instant) -> Nanos {
        let part = |(began, spun): &(Instant, Nanos)| {
            let end = (*began + *spun).min(to);
            end.since((*began).max(from)).0
        };
        Nanos(self.in_vain.iter().map(part).sum())
    }

    /// The most in vain of any second. The sum over a window that slides is greatest where it begins or ends with a spin.
    fn worst_second(&self) -> Nanos {
        let begins = self.in_vain.iter().map(|(began, _)| *began);
        let ends = self.in_vain.iter().map(|(began, spun)| *began + *spun);
        let from_begins = begins.map(|at| self.vain_within(at, at + SECOND));
        let to_ends = ends.map(|at| self.vain_within(at - SECOND, at));
        from_begins.chain(to_ends).max().unwrap_or_default()
    }
}

fn comes() -> impl Strategy<Value = Comes> {
    let span = |most: u64| (0..most).prop_map(Nanos);
    prop_oneof![
        4 => span(200_000).prop_map(Comes::After),
        4 => span(1_000).prop_map(Comes::TooLate),
        1 => span(30_000_000).prop_map(Comes::TooLate),
        4 => Just(Comes::AtOnce),
        1 => span(200_000).prop_map(Comes::Timer),
    ]
}

fn turn() -> impl Strategy<Value = Turn> {
    let work = prop_oneof![8 => 0..50_000u64, 1 => 0..20_000_000u64];
    (
        work,
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.005),
        any::<bool>(),
        comes(),
    )
        .prop_map(|(work, request_ended, preempted, under_way, comes)| Turn {
            work: Nanos(work),
            request_ended,
            preempted,
            under_way,
            comes,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A few turns again and again for seconds, so that a pattern that cheats the rule has time to do so.
    #[test]
    fn no_second_has_more_than_five_percent_in_vain(
        turns in prop::collection::vec(turn(), 1..12),
        start in 0..3_000_000_000u64,
        windows in prop::collection::vec(0.0..1.0f64, 20),
    ) {
        let mut played = Played::new(Instant(start));
        let most = Nanos(SECOND.0 * VAIN_SHARE / 100);
        for turn in turns.iter().cycle().take(20_000) {
            played.turn(turn);
            if played.now > Instant(start) + Nanos::secs(4) {
                break;
            }
        }
        prop_assert!(played.worst_second() <= most, "{}", played.worst_second());
        // Windows that begin wherever chance has it.
        let whole = played.now.since(Instant(start));
        for window in windows {
            let from = Instant(start) + Nanos((whole.0 as f64 * window) as u64);
            let vain = played.vain_within(from, from + SECOND);
            prop_assert!(vain <= most, "{vain} from {from:?} on");
        }
    }
}

fn quick(comes: Comes) -> Turn {
    Turn {
        work: Nanos::micros(5),
        request_ended: true,
        preempted: false,
        under_way: false,
        comes,
    }
}

#[test]
fn the_budget_is_what_bounds_a_rule_that_is_right_every_other_time() {
    let mut played = Played::new(Instant(77));
    while played.now < Instant(3_000_000_000) {
        played.turn(&quick(Comes::AtOnce));
        played.turn(&quick(Comes::TooLate(Nanos(0))));
    }
    let worst = played.worst_second();
    assert!(worst <= Nanos::millis(50), "{worst}");
    assert!(
        worst > Nanos::millis(45),
        "{worst}: the bound is not reached, so this test shows nothing"
    );
}

#[test]
fn short_waits_are_looked_through_and_long_ones_slept_through() {
    let mut played = Played::new(Instant(0));
    for _ in 0..1000 {
        let (wait, spun) = played.turn(&quick(Comes::After(Nanos::micros(8))));
        assert_eq!(wait, spun);
    }
    assert!(played.in_vain.is_empty());
    let mut played = Played::new(Instant(0));
    let mut spun_in_all = Nanos(0);
    for _ in 0..100_000 {
        spun_in_all += played.turn(&quick(Comes::After(Nanos::micros(120)))).1;
    }
    // A trial every 128 ms, beside a few at the start.
    let share = spun_in_all.0 as f64 / played.now.0 as f64;
    assert!(share < 0.0005, "{share}");
}

#[test]
fn a_client_that_is_only_late_because_the_processor_slept_is_found_out() {
    let mut played = Played::new(Instant(0));
    for _ in 0..100 {
        let began = played.now;
        played.rule.waited(&Wait {
            began,
            ended: began + Nanos::micros(90),
            spun: Nanos(0),
            found: false,
            came: true,
            under_way: false,
        });
        played.now = began + Nanos::micros(100);
    }
    let mut looked = 0;
    for _ in 0..1000 {
        // Awake the wait takes 10 us; asleep it takes 90.
        played.now = played.now + Nanos::micros(5);
        played.rule.request_ended(played.now);
        let awake = played.rule.clone().spin(played.now, false) > Nanos(0);
        let comes = if awake { 10 } else { 90 };
        played.turn(&quick(Comes::After(Nanos::micros(comes))));
        looked += u32::from(awake);
    }
    assert!(looked > 990, "{looked}");
}

#[test]
fn a_fast_client_of_a_slow_device_is_waited_for_awake() {
    let mut played = Played::new(Instant(0));
    let (mut for_clients, mut for_devices) = (Nanos(0), Nanos(0));
    for _ in 0..20_000 {
        let device = Turn {
            request_ended: false,
            under_way: true,
            ..quick(Comes::After(Nanos::micros(90)))
        };
        for_devices += played.turn(&device).1;
        let (wait, spun) = played.turn(&quick(Comes::After(Nanos::micros(10))));
        assert_eq!(wait, spun, "the client is waited for awake");
        for_clients += spun;
    }
    assert!(
        for_devices.0 * 50 < for_clients.0,
        "{for_devices} {for_clients}"
    );
}

#[test]
fn who_shares_a_processor_with_its_client_stops_looking() {
    // Nothing comes until the thread sleeps, and then at once.
    let mut played = Played::new(Instant(0));
    let mut turns = 0;
    while played.now < Instant(1_000_000_000) {
        let mut looks = played.rule.clone();
        looks.request_ended(played.now + Nanos::micros(5));
        let look = looks.spin(played.now + Nanos::micros(5), false);
        played.turn(&quick(Comes::After(look + Nanos::micros(8))));
        turns += 1;
    }
    let vain: u64 = played.in_vain.iter().map(|(_, spun)| spun.0).sum();
    assert!(vain < 2_000_000, "{vain} ns of a second");
    assert!(turns > 70_000, "{turns}");
}

#[test]
fn silence_and_a_lost_processor_end_it() {
    let mut played = Played::new(Instant(0));
    let short = quick(Comes::After(Nanos::micros(8)));
    for _ in 0..100 {
        assert!(played.turn(&short).1 > Nanos(0));
    }
    let last = played.last_request.unwrap();
    // Just before the silence: no longer than until it begins.
    let almost = last + RECENT - Nanos::micros(3);
    assert_eq!(played.rule.spin(almost, false), Nanos::micros(3));
    assert_eq!(played.rule.spin(last + RECENT, false), Nanos(0));
    let other = Turn {
        preempted: true,
        ..short.clone()
    };
    assert_eq!(played.turn(&other).1, Nanos(0));
    let stopped = played.now;
    let mut spun = played.turn(&short).1;
    while spun == Nanos(0) {
        spun = played.turn(&short).1;
    }
    let pause = played.now.since(stopped);
    assert!(pause >= PREEMPTED_PAUSE - Nanos::micros(20), "{pause}");
    assert!(pause <= PREEMPTED_PAUSE + Nanos::micros(20), "{pause}");
}

#[test]
fn one_silence_does_not_outweigh_many_short_waits() {
    let mut played = Played::new(Instant(0));
    played.turn(&quick(Comes::After(Nanos::secs(60))));
    let mut until_it_looks = 0;
    while played.turn(&quick(Comes::After(Nanos::micros(8)))).1 < Nanos::micros(8) {
        until_it_looks += 1;
    }
    assert!(until_it_looks < 300, "{until_it_looks}");
}

#[test]
fn a_setting_is_read_as_it_is_written() {
    for setting in [Setting::Off, Setting::Adaptive, Setting::Always] {
        assert_eq!(setting.name().parse(), Ok(setting));
    }
    let error = "sometimes".parse::<Setting>().unwrap_err();
    assert_eq!(
        error,
        "'sometimes' is no way to wait; write off, adaptive or always"
    );
}
