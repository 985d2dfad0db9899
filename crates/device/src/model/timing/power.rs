//! Power: how long was a device in which state, and what did that cost?
//!
//! ```text
//! spin down > spin up > seek > write > read      active states, the first one under way counts
//!                 | none is under way
//! idle -> idle b -> idle c -> spin down -> standby      by time at rest, or on request
//! ```
//!
//! Always true:
//! 1. The times of all states add up to the time the meter has run, to the nanosecond.
//! 2. The energy is the sum of time in state times watts of that state, nothing else.

use base::{Instant, Nanos};
use serde::Serialize;

use super::parameters::PowerSpec;
use crate::Spindle;

/// What a device spent in one power state.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spent {
    /// The state.
    pub state: State,
    /// What the device draws in it, in watts.
    pub watts: f64,
    /// How long it was in it, in nanoseconds.
    #[serde(rename = "nanos", serialize_with = "as_number")]
    pub time: Nanos,
}

fn as_number<S: serde::Serializer>(time: &Nanos, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_u64(time.0)
}

/// The power states of all kinds of device; active ones in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The spindle slows down, or the electronics go to sleep.
    SpinDown,
    /// The spindle gathers speed, or the electronics wake.
    SpinUp,
    /// The arm moves to read.
    SeekRead,
    /// The arm moves to write.
    SeekWrite,
    /// Writing, programming or erasing; on a disk also waiting for the sector to come round.
    Write,
    /// Reading; on a disk also waiting for the sector to come round.
    Read,
    /// Ready and doing nothing.
    Idle,
    /// At rest for a while: part of the electronics is off.
    IdleB,
    /// At rest for longer: heads parked, or slower rotation.
    IdleC,
    /// Not spinning, or asleep.
    Standby,
}

const STATES: usize = 10;
const ACTIVE: usize = State::Idle as usize;

/// A step on the way from idle to standby: from `after` at rest on, the device is in `state` and needs
/// `recovery` to answer again.
#[derive(Debug, Clone, Copy)]
struct Rung {
    after: Nanos,
    state: State,
    recovery: Nanos,
}

/// Accounts for every nanosecond of a device. A moment may be passed in late, never backwards.
#[derive(Debug, Clone)]
pub struct PowerMeter {
    watts: [f64; STATES],
    spin_up: Nanos,
    /// The way down by timers, and the way down on request.
    by_time: Vec<Rung>,
    on_request: Vec<Rung>,

    spent: [u64; STATES],
    /// Everything before this moment is accounted for.
    at: Instant,
    /// Until when each active state is under way.
    until: [Instant; ACTIVE],
    asleep_from: Option<Instant>,
    spin_ups: u64,
    /// When it was woken last.
    woken: Instant,
    /// Has it a standby state at all?
    sleeps: bool,
}

impl PowerMeter {
    /// A meter that starts idle at `start`.
    pub fn new(spec: &PowerSpec, start: Instant) -> PowerMeter {
        let mut watts = [0.0; STATES];
        let mut set = |state: State, value: f64| watts[state as usize] = value;
        set(State::SpinDown, spec.spin_down_watts);
        set(State::SpinUp, spec.spin_up_watts);
        set(State::SeekRead, spec.seek_watts.unwrap_or(spec.read_watts));
        let seek_write = spec.seek_write_watts.or(spec.seek_watts);
        set(State::SeekWrite, seek_write.unwrap_or(spec.write_watts));
        set(State::Write, spec.write_watts);
        set(State::Read, spec.read_watts);
        set(State::Idle, spec.idle_watts);
        set(State::IdleB, spec.idle_b.map_or(0.0, |step| step.watts));
        set(State::IdleC, spec.idle_c.map_or(0.0, |step| step.watts));
        set(State::Standby, spec.standby_watts.unwrap_or(0.0));

        let spin_down = Nanos::from_secs_f64(spec.spin_down_s);
        let spin_up = Nanos::from_secs_f64(spec.spin_up_s);
        let rung = |after: Nanos, state, recovery| Rung {
            after,
            state,
            recovery,
        };
        let mut by_time = vec![rung(Nanos(0), State::Idle, Nanos(0))];
        for (step, state) in [(spec.idle_b, State::IdleB), (spec.idle_c, State::IdleC)] {
            if let Some(step) = step {
                let recovery = Nanos::from_secs_f64(step.recovery_ms / 1e3);
                by_time.push(rung(Nanos::from_secs_f64(step.after_s), state, recovery));
            }
        }
        let down = |from: Nanos| {
            [
                rung(from, State::SpinDown, spin_up),
                rung(from + spin_down, State::Standby, spin_up),
            ]
        };
        if spec.standby_after_s > 0.0 {
            let after = Nanos::from_secs_f64(spec.standby_after_s);
            by_time.retain(|rung| rung.after < after);
            by_time.extend(down(after));
        }
        PowerMeter {
            watts,
            spin_up,
            by_time,
            on_request: down(Nanos(0)).to_vec(),
            spent: [0; STATES],
            at: start,
            until: [start; ACTIVE],
            asleep_from: None,
            spin_ups: 0,
            woken: start,
            sleeps: spec.standby_watts.is_some(),
        }
    }

    /// The device is in `state` until `until` (at least), from now on. Of several active states the one
    /// that stands first in [`State`] counts.
    pub fn busy(&mut self, state: State, until: Instant) {
        let slot = &mut self.until[state as usize];
        *slot = (*slot).max(until);
        self.asleep_from = None;
    }

    /// What was announced for `state` ends at `until`, no later.
    pub fn cut(&mut self, state: State, until: Instant) {
        let slot = &mut self.until[state as usize];
        *slot = (*slot).min(until);
    }

    /// When the last active state ends.
    fn busy_until(&self) -> Instant {
        self.until.iter().copied().max().unwrap_or_default()
    }

    /// The rung of a device at rest since `busy_until`, at moment `at`, and when the next one begins.
    fn rung(&self, at: Instant) -> (Rung, Instant, Option<Instant>) {
        let (ladder, from) = match self.asleep_from {
            Some(from) if from <= at => (&self.on_request, from),
            _ => (&self.by_time, self.busy_until()),
        };
        let rested = at.since(from);
        let next = ladder.iter().position(|rung| rung.after > rested);
        let here = next.unwrap_or(ladder.len()) - 1;
        let mut end = next.map(|next| from + ladder[next].after);
        if let Some(asleep) = self.asleep_from
            && asleep > at
        {
            end = Some(end.map_or(asleep, |end| end.min(asleep)));
        }
        (ladder[here], from, end)
    }

    /// Accounts for everything up to `now`.
    pub fn settle(&mut self, now: Instant) {
        while self.at < now {
            let active = (0..ACTIVE).find(|&state| self.until[state] > self.at);
            let (state, end) = match active {
                Some(state) => (state, self.until[state]),
                None => {
                    let (rung, _, end) = self.rung(self.at);
                    (rung.state as usize, end.unwrap_or(now))
                }
            };
            let end = end.min(now);
            self.spent[state] += end.since(self.at).0;
            self.at = end;
        }
    }

    /// A request arrives: wakes the device where it sleeps. Returns when it can begin to work.
    pub fn wake(&mut self, now: Instant) -> Instant {
        let busy_until = self.busy_until();
        if busy_until >= now {
            self.asleep_from = None;
            return now;
        }
        self.settle(now);
        let (rung, _, end) = self.rung(now);
        let ready = match rung.state {
            State::SpinDown | State::Standby => {
                let down = match rung.state {
                    State::SpinDown => end.unwrap_or(now),
                    _ => now,
                };
                self.busy(State::SpinDown, down);
                self.busy(State::SpinUp, down + self.spin_up);
                self.spin_ups += 1;
                self.woken = now;
                down + self.spin_up
            }
            _ => now + rung.recovery,
        };
        self.asleep_from = None;
        ready
    }

    /// Has the device a standby state?
    pub fn sleeps(&self) -> bool {
        self.sleeps
    }

    /// Goes to standby once the active states have ended (true if it has a standby state).
    pub fn sleep(&mut self, now: Instant) -> bool {
        self.settle(now);
        if self.sleeps && !self.is_down(now) {
            self.asleep_from = Some(self.busy_until().max(now));
        }
        self.sleeps
    }

    /// Is it in standby, or on the way down?
    pub fn is_down(&self, now: Instant) -> bool {
        self.busy_until() <= now
            && matches!(self.rung(now).0.state, State::SpinDown | State::Standby)
    }

    /// Is it in standby, or on the way down, and since when?
    pub fn spindle(&self, now: Instant) -> Spindle {
        let asleep = self.is_down(now);
        let (ladder, from) = match self.asleep_from {
            Some(from) if from <= now => (&self.on_request, from),
            _ => (&self.by_time, self.busy_until()),
        };
        let down = ladder.iter().find(|rung| rung.state == State::SpinDown);
        let since = match down.filter(|_| asleep) {
            Some(rung) => from + rung.after,
            None => self.woken,
        };
        Spindle { asleep, since }
    }

    /// How often it had to be woken from standby.
    pub fn spin_ups(&self) -> u64 {
        self.spin_ups
    }

    /// Time and watts of every state it has been in, up to the last `settle`.
    pub fn spent(&self) -> Vec<Spent> {
        ALL.iter()
            .map(|&state| Spent {
                state,
                watts: self.watts[state as usize],
                time: Nanos(self.spent[state as usize]),
            })
            .filter(|spent| spent.time.0 > 0)
            .collect()
    }

    /// Energy up to the last `settle`, in joules.
    pub fn joules(&self) -> f64 {
        let pairs = self.spent.iter().zip(self.watts);
        pairs.map(|(&time, watts)| time as f64 / 1e9 * watts).sum()
    }
}

const ALL: [State; STATES] = [
    State::SpinDown,
    State::SpinUp,
    State::SeekRead,
    State::SeekWrite,
    State::Write,
    State::Read,
    State::Idle,
    State::IdleB,
    State::IdleC,
    State::Standby,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> PowerSpec {
        PowerSpec {
            idle_watts: 4.0,
            read_watts: 7.0,
            write_watts: 8.0,
            seek_watts: Some(9.0),
            standby_watts: Some(1.0),
            standby_after_s: 10.0,
            spin_down_s: 2.0,
            spin_down_watts: 3.0,
            spin_up_s: 5.0,
            spin_up_watts: 20.0,
            ..PowerSpec::default()
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    #[test]
    fn a_disk_at_rest_goes_down_by_its_timer_and_comes_up_for_a_request() {
        let mut meter = PowerMeter::new(&disk(), at(0));
        meter.busy(State::SeekRead, at(1));
        meter.busy(State::Read, at(3));
        assert!(!meter.is_down(at(12)));
        assert!(meter.is_down(at(13)));
        let spindle = |asleep, since| Spindle { asleep, since };
        assert_eq!(meter.spindle(at(12)), spindle(false, at(0)));
        assert_eq!(meter.spindle(at(50)), spindle(true, at(13)));
        assert_eq!(meter.wake(at(100)), at(105));
        assert_eq!(meter.spindle(at(100)), spindle(false, at(100)));
        meter.settle(at(106));
        // seek 1 s, read 2 s, idle 10 s, spin down 2 s, standby 85 s, spin up 5 s, idle 1 s
        assert_eq!(meter.joules(), 9.0 + 14.0 + 40.0 + 6.0 + 85.0 + 100.0 + 4.0);
        let all: u64 = meter.spent().iter().map(|spent| spent.time.0).sum();
        assert_eq!(all, at(106).0);
        assert_eq!(meter.spin_ups(), 1);
    }

    #[test]
    fn a_request_that_comes_while_it_spins_down_waits_for_the_bottom_first() {
        let mut meter = PowerMeter::new(&disk(), at(0));
        meter.sleep(at(1));
        assert!(meter.is_down(at(1)));
        let slept = Spindle {
            asleep: true,
            since: at(1),
        };
        assert_eq!(meter.spindle(at(2)), slept);
        assert_eq!(meter.wake(at(2)), at(8)); // down until 3, up until 8
        meter.settle(at(8));
        assert_eq!(meter.joules(), 4.0 + 2.0 * 3.0 + 5.0 * 20.0);
    }

    #[test]
    fn telling_time_late_changes_nothing() {
        let energy_at = |steps: &[u64]| {
            let mut meter = PowerMeter::new(&disk(), at(0));
            meter.busy(State::Write, at(4));
            for &step in steps {
                meter.settle(at(step));
            }
            meter.settle(at(40));
            meter.joules()
        };
        assert_eq!(energy_at(&[]), energy_at(&[1, 2, 3, 5, 9, 14, 15, 16, 33]));
    }
}
