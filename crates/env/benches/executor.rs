//! How fast is the executor? Events of each kind a second, on one core; several runs each.
//!
//! ```text
//! cargo bench -p env --bench executor -- [--json]
//! ```
//!
//! Virtual time: sleeps, channel wake-ups, yields, spawned tasks, whole simulated round trips.
//! Real time: messages from another thread, empty operations through the driver, direct reads of a file.

#[path = "../../../benches/figures.rs"]
mod figures;

use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::rc::Rc;

use base::{Buf, Nanos, View};
use env::fs::{File, Options};
use env::net::{Address, Listener, Stream};
use env::{Choice, RealConfig, Runtime};
use figures::Results;
use rustix::time::{ClockId, clock_gettime};

const RUNS: usize = 7;

/// Which seconds count.
#[derive(Clone, Copy)]
enum Clock {
    /// Those this thread computed: other load on the machine does not matter.
    Cpu,
    /// Those all threads of this process computed, in the kernel too.
    AllCpu,
    /// Those that passed.
    Wall,
}

impl Clock {
    fn seconds(self) -> f64 {
        let id = match self {
            Clock::Cpu => ClockId::ThreadCPUTime,
            Clock::AllCpu => ClockId::ProcessCPUTime,
            Clock::Wall => ClockId::Monotonic,
        };
        let time = clock_gettime(id);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }
}

/// Runs `job`, which answers how many events it made, several times.
fn report(figures: &mut Results, clock: Clock, name: &str, job: impl Fn() -> u64) {
    let mut rates: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = clock.seconds();
            let events = black_box(job());
            events as f64 / (clock.seconds() - start) / 1e6
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let unit = match clock {
        Clock::Cpu | Clock::AllCpu => "M per CPU second",
        Clock::Wall => "M per second",
    };
    figures.say(&format!(
        "{name:<42} {:>8.3} {:>8.3} {:>8.3}  {unit} (min median max of {RUNS})",
        rates[0],
        rates[RUNS / 2],
        rates[RUNS - 1]
    ));
    // The driver stands before the case; in virtual time there is none.
    let (method, case) = name.split_once(": ").unwrap_or(("executor", name));
    figures.add((case, method, "rate", unit), &rates, "real");
}

fn sleeps(tasks: u64, each: u64) -> u64 {
    Runtime::simulated(1).block_on(async move {
        let all = (0..tasks).map(|task| {
            env::spawn(async move {
                for turn in 0..each {
                    env::sleep(Nanos(1 + (task * 7 + turn * 13) % 1000)).await;
                }
            })
        });
        for task in all.collect::<Vec<_>>() {
            task.await;
        }
    });
    tasks * each
}

fn ping_pong(rounds: u64) -> u64 {
    Runtime::simulated(1).block_on(async move {
        let (there, mut here) = env::sync::channel();
        let (back, mut answers) = env::sync::channel();
        env::spawn(async move {
            while let Ok(n) = here.receive().await {
                let _ = back.send(n + 1);
            }
        });
        for n in 0..rounds {
            let _ = there.send(n);
            black_box(answers.receive().await.ok());
        }
    });
    2 * rounds
}

fn yields(tasks: u64, each: u64) -> u64 {
    Runtime::simulated(1).block_on(async move {
        let all = (0..tasks).map(|_| {
            env::spawn(async move {
                for _ in 0..each {
                    env::yield_now().await;
                }
            })
        });
        for task in all.collect::<Vec<_>>() {
            task.await;
        }
    });
    tasks * each
}

fn spawns(count: u64) -> u64 {
    Runtime::simulated(1).block_on(async move {
        for n in 0..count {
            black_box(env::spawn(async move { n }).await);
        }
    });
    count
}

fn timeouts(count: u64) -> u64 {
    Runtime::simulated(1).block_on(async move {
        for _ in 0..count {
            let answer = env::timeout(Nanos::secs(30), env::sleep(Nanos(100))).await;
            assert!(answer.is_ok());
        }
    });
    count
}

fn round_trips(count: u64) -> u64 {
    Runtime::simulated(1).block_on(async move {
        let listener = Listener::bind(&"127.0.0.1:7".parse().expect("an address")).expect("free");
        let server = env::spawn(async move {
            let stream = listener.accept().await.expect("a client");
            loop {
                let (len, mut buf) = stream.read(Buf::for_read(64)).await.expect("a live stream");
                if len == 0 {
                    return;
                }
                buf.truncate(len);
                stream
                    .write_all(vec![buf.freeze()])
                    .await
                    .expect("a live stream");
            }
        });
        let address = "127.0.0.1:7".parse().expect("an address");
        let stream = Stream::connect(&address).await.expect("a server");
        let message = View::copy_of(&[7; 64]);
        for _ in 0..count {
            stream
                .write_all(vec![message.clone()])
                .await
                .expect("a live stream");
            black_box(
                stream
                    .read_exact(Buf::for_read(64))
                    .await
                    .expect("a live stream"),
            );
        }
        drop(stream);
        server.await;
    });
    count
}

fn real(thread_pool: Choice) -> Runtime {
    let config = RealConfig {
        thread_pool,
        ..RealConfig::default()
    };
    Runtime::real(config).expect("the system gives a runtime")
}

/// One thread posts as fast as the other takes, a bounded number ahead.
fn letters(count: u64) -> u64 {
    let (poster, mut mailbox) = env::mailbox();
    let (ahead, taken) = std::sync::mpsc::sync_channel(1024);
    let thread = std::thread::Builder::new()
        .spawn(move || {
            for letter in 0..count {
                ahead.send(()).expect("the other thread is there");
                poster.post(letter).expect("the other thread is there");
            }
        })
        .expect("the system gives a thread");
    real(Choice::Auto).block_on(async move {
        while let Ok(letter) = mailbox.receive().await {
            black_box(letter);
            let _ = taken.recv();
        }
    });
    thread.join().expect("it has ended well");
    count
}

/// Two executors send one message back and forth.
fn letters_back_and_forth(rounds: u64) -> u64 {
    let (there, mut here) = env::mailbox();
    let (back, mut answers) = env::mailbox();
    let thread = std::thread::Builder::new()
        .spawn(move || {
            real(Choice::Auto).block_on(async move {
                while let Ok(letter) = here.receive().await {
                    let _ = back.post(letter);
                }
            });
        })
        .expect("the system gives a thread");
    real(Choice::Auto).block_on(async move {
        for round in 0..rounds {
            let _ = there.post(round);
            black_box(answers.receive().await.ok());
        }
    });
    thread.join().expect("it has ended well");
    rounds
}

fn nops(thread_pool: Choice, tasks: u64, each: u64) -> u64 {
    real(thread_pool).block_on(async move {
        let all = (0..tasks).map(|_| {
            env::spawn(async move {
                for _ in 0..each {
                    env::fs::nop().await.expect("nothing can fail");
                }
            })
        });
        for task in all.collect::<Vec<_>>() {
            task.await;
        }
    });
    tasks * each
}

/// Echoes over a Unix socket, both ends on one thread.
fn echoes(thread_pool: Choice, count: u64) -> u64 {
    let folder = tempfile::tempdir().expect("a place for a socket");
    let address = Address::Unix(folder.path().join("socket"));
    real(thread_pool).block_on(async move {
        let listener = Listener::bind(&address).expect("the place is new");
        env::spawn(async move {
            let stream = listener.accept().await.expect("a client");
            while let Ok(buf) = stream.read_exact(Buf::for_read(4096)).await {
                let sent = stream.write_all(vec![buf.freeze()]).await;
                sent.expect("a live stream");
            }
        });
        let stream = Stream::connect(&address).await.expect("a server");
        let message = View::copy_of(&[7; 4096]);
        for _ in 0..count {
            stream
                .write_all(vec![message.clone()])
                .await
                .expect("a live stream");
            black_box(
                stream
                    .read_exact(Buf::for_read(4096))
                    .await
                    .expect("a live stream"),
            );
        }
    });
    count
}

/// Reads of 4 KiB at random places of a file on the disk under the target directory.
fn reads(thread_pool: Choice, file: &Path, tasks: u64, each: u64) -> u64 {
    let file = file.to_owned();
    real(thread_pool).block_on(async move {
        let file = Rc::new(File::open(&file, &Options::default()).expect("made before"));
        let pages = file.size().0 / 4096;
        let all = (0..tasks).map(|_| {
            let (file, mut chance) = (Rc::clone(&file), env::rng("places"));
            env::spawn(async move {
                for _ in 0..each {
                    let at = chance.below(pages) * 4096;
                    let read = file.read_at(Buf::for_read(4096), at).await;
                    black_box(read.expect("the disk is well"));
                }
            })
        });
        for task in all.collect::<Vec<_>>() {
            task.await;
        }
    });
    tasks * each
}

/// A file of random bytes, 128 MiB.
fn data_file() -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("a place for a file of 128 MiB");
    let mut chance = env::Rng::from_seed(7);
    let mut bytes = vec![0; 1 << 20];
    for _ in 0..128 {
        chance.fill(&mut bytes);
        file.write_all(&bytes).expect("room for 128 MiB");
    }
    file.as_file().sync_all().expect("the disk is well");
    file
}

fn main() {
    let mut figures = Results::new("executor");
    figures.say("virtual time, one core:");
    report(
        &mut figures,
        Clock::Cpu,
        "timer events, 1,000 tasks",
        || sleeps(1_000, 2_000),
    );
    report(&mut figures, Clock::Cpu, "timer events, 32 tasks", || {
        sleeps(32, 60_000)
    });
    report(
        &mut figures,
        Clock::Cpu,
        "timer events, 100,000 tasks",
        || sleeps(100_000, 10),
    );
    report(
        &mut figures,
        Clock::Cpu,
        "timeouts that do not run out",
        || timeouts(1_000_000),
    );
    report(
        &mut figures,
        Clock::Cpu,
        "channel wake-ups, back and forth",
        || ping_pong(1_000_000),
    );
    report(&mut figures, Clock::Cpu, "yields, 100 tasks", || {
        yields(100, 20_000)
    });
    report(
        &mut figures,
        Clock::Cpu,
        "tasks spawned and awaited",
        || spawns(1_000_000),
    );
    report(
        &mut figures,
        Clock::Cpu,
        "simulated stream round trips of 64 B",
        || round_trips(100_000),
    );
    figures.say("real time, this machine:");
    report(
        &mut figures,
        Clock::Wall,
        "letters from another thread",
        || letters(500_000),
    );
    report(
        &mut figures,
        Clock::Wall,
        "letters back and forth, 2 threads",
        || letters_back_and_forth(20_000),
    );
    let file = data_file();
    for driver in [Choice::Auto, Choice::Always] {
        let name = real(driver).driver_name();
        let each = if name == "io_uring" { 20_000 } else { 1_000 };
        report(
            &mut figures,
            Clock::Wall,
            &format!("{name}: empty operations, 1 at once"),
            || nops(driver, 1, each),
        );
        report(
            &mut figures,
            Clock::Wall,
            &format!("{name}: empty operations, 32 at once"),
            || nops(driver, 32, each),
        );
        report(
            &mut figures,
            Clock::Wall,
            &format!("{name}: 4 KiB echoes, one thread"),
            || echoes(driver, 20_000),
        );
        for (clock, tasks) in [(Clock::Wall, 1), (Clock::Wall, 32), (Clock::AllCpu, 32)] {
            let title = format!("{name}: 4 KiB direct reads, {tasks} at once");
            report(&mut figures, clock, &title, || {
                reads(driver, file.path(), tasks, 8_000 / tasks)
            });
        }
    }
    figures.finish();
}
