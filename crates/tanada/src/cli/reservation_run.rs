//! `tanada reservation run ... -- COMMAND`: a command with a reservation that lasts as long as it does.
//!
//! ```text
//! signals heard -> reserve -> start the command -> { a signal: pass it on } -> it ended -> release -> its exit status
//!                                               -> { half of the time over: renew (`reservation_renewal`) }
//! ```
//!
//! The promise is only for some minutes and is renewed: if this program dies by SIGKILL, it ends by itself.
//!
//! Always true:
//! 1. A reservation that was made is released once the command has ended, also if it could not be started.
//! 2. The exit status is the command's: 128 and its number after a signal, 126 and 127 if it cannot be started.
//! 3. A renewal that fails ends nothing, is said once and tried again; what is over by then is reserved anew.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::mpsc::{self, Receiver, Sender};

use anyhow::{Context, anyhow};
use base::Nanos;
use clap::Args;
use config::read_span;
use report::terminal::{Refused, said};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::signal::unix::{SignalKind, signal};

use super::client::{ADMIN_HELP, Client, Target};
use super::reservation_capability::{self as capability, Missing};
use super::reservation_renewal::Renewal;
use super::reservation_service::{Made, Service, Which};
use super::reservation_wanted::{Wanted, made_name};
use super::reservation_words as words;
use crate::api::reservation::WholeReservation;

/// What is passed on to the command. SIGTSTP and its like stop both by themselves.
const PASSED: [Signal; 7] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
];
/// How a shell tells that a command was not found, or could not be started.
const NOT_FOUND: u8 = 127;
const NOT_STARTED: u8 = 126;
/// What a shell adds to the number of a signal.
const SIGNALLED: i32 = 128;

#[derive(Debug, Args)]
#[command(after_help = "\
The command finds TANADA_RESERVATION (the name) and, of stores, TANADA_CAPABILITY in its environment. Its exit status is \
handed on: 128 and the number of a signal that ended it, 126 or 127 if it could not be started.

Without --volume, --store or --export it is of what TANADA_TARGET says (volume:vm1, store:s1,s2 or export:h), else of the \
only volume there is; with --scope, or without a volume, of the only store.

Examples: tanada reservation run --read 200MB/s --volume vm1 -- ./simulate --steps 1000
          TANADA_TARGET=store:s0,s1 tanada reservation run --read 200MB/s --scope job7/ -- ./simulate")]
pub struct Run {
    /// Its name [default: made of user, machine and time]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    wanted: Wanted,
    /// It is reserved for so long at a time, and renewed at half time.
    #[arg(long = "for", default_value = "10m", value_name = "SPAN", value_parser = read_span)]
    span: Nanos,
    #[arg(
        long,
        env = "TANADA_ADMIN",
        value_name = "ADDR",
        default_value_t = Target::default(),
        hide_default_value = true,
        help = ADMIN_HELP
    )]
    admin: Target,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What the one who waits for the command hears of.
enum Event {
    Signal(Signal),
    Ended(std::io::Result<ExitStatus>),
}

/// Reserves, runs the command and releases.
pub fn run(run: Run) -> anyhow::Result<ExitCode> {
    let (sender, events) = mpsc::channel();
    // From here on a signal ends nothing that is not released.
    hear(sender.clone())?;
    let service = Service::new(Client::new(run.admin.clone())?);
    let name = run.name.clone().unwrap_or_else(made_name);
    let of = run.wanted.said_or_only(|| service.there())?;
    let asked = run.wanted.ask(of, name, run.span, false)?;
    let mut made = match service.create(&asked)? {
        Made::New(made) => made,
        Made::Existing(made) => {
            return Err(Refused(format!(
                "there is a reservation {} already; take another --name, or end it with `tanada reservation delete {}`",
                made.name,
                made.name
            ))
            .into());
        }
        Made::Refused(refusal) => return Err(words::refused(&refusal).into()),
    };
    eprintln!("reserved {}", words::sentence(&made));
    if let Some(line) = words::links_not_booked(&made.lacks.links_not_booked) {
        eprintln!("{line}");
    }
    if let Err(Missing(why)) = capability::complete(&service, &mut made) {
        release(&service, &made.name, &made.id);
        return Err(anyhow!(
            "cannot have the capability of {}: {why}; the command was not started",
            made.name
        ));
    }
    let (stop, stopped) = mpsc::channel();
    let renewing = Renewal::new(service, asked, &made, run.span).keep(stopped);
    let code = carry_out(&run.command, &made, &events, sender);
    drop(stop);
    let renewal = renewing
        .join()
        .map_err(|_| anyhow!("the renewing thread panicked"))?;
    release(&renewal.service, &made.name, &renewal.id);
    Ok(ExitCode::from(code))
}

/// Starts the command and stays with it to its end; its exit status.
fn carry_out(
    words: &[OsString],
    made: &WholeReservation,
    events: &Receiver<Event>,
    sender: Sender<Event>,
) -> u8 {
    // What came while the daemon was asked.
    if let Some(Event::Signal(signal)) = events.try_iter().find(ends) {
        return status_of_signal(signal.as_raw());
    }
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command.env("TANADA_RESERVATION", &made.name);
    match &made.capability {
        Some(capability) => command.env("TANADA_CAPABILITY", capability),
        None => command.env_remove("TANADA_CAPABILITY"),
    };
    let started = command.spawn().and_then(|child| {
        // Before any thread waits for it: its number is its own.
        let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        Ok((child, handle))
    });
    let (child, handle) = match started {
        Ok(started) => started,
        Err(error) => {
            let shown = words[0].to_string_lossy();
            eprintln!("tanada: cannot start {shown}: {error}");
            return match error.kind() {
                std::io::ErrorKind::NotFound => NOT_FOUND,
                _ => NOT_STARTED,
            };
        }
    };
    await_end(child, sender);
    attend(&handle, events)
}

/// Would it end a program that does nothing about it?
fn ends(event: &Event) -> bool {
    let ending = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];
    matches!(event, Event::Signal(signal) if ending.contains(signal))
}

/// Passes signals on until the command has ended.
fn attend(child: &OwnedFd, events: &Receiver<Event>) -> u8 {
    loop {
        match events.recv() {
            Ok(Event::Signal(signal)) if is_from_terminal(signal) => {}
            Ok(Event::Signal(signal)) => {
                // It may have ended at this moment.
                let _ = pidfd_send_signal(child, signal);
            }
            Ok(Event::Ended(Ok(status))) => {
                return match status.signal() {
                    Some(signal) => status_of_signal(signal),
                    None => status.code().map_or(1, |code| code as u8),
                };
            }
            Ok(Event::Ended(Err(error))) => {
                eprintln!("tanada: cannot wait for the command: {error}");
                return 1;
            }
            Err(_) => unreachable!("the thread that waits sends before it ends"),
        }
    }
}

fn status_of_signal(signal: i32) -> u8 {
    u8::try_from(SIGNALLED + signal).unwrap_or(u8::MAX)
}

/// A terminal sends Ctrl-C and Ctrl-\ to the command as well: it shall not see them twice.
fn is_from_terminal(signal: Signal) -> bool {
    if signal != Signal::INT && signal != Signal::QUIT {
        return false;
    }
    let foreground = fs::File::open("/dev/tty").map(rustix::termios::tcgetpgrp);
    matches!(foreground, Ok(Ok(group)) if group == rustix::process::getpgrp())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a command is waited for outside of any runtime"
)]
fn await_end(mut child: Child, sender: Sender<Event>) {
    std::thread::spawn(move || {
        // Without a listener nothing depends on it any more.
        let _ = sender.send(Event::Ended(child.wait()));
    });
}

/// Hears signals from now on, except those that were ignored before (`nohup`).
///
/// # Errors
/// The system refuses a handler.
#[expect(
    clippy::disallowed_methods,
    reason = "signals are heard beside a daemon that is asked"
)]
fn hear(sender: Sender<Event>) -> anyhow::Result<()> {
    let ignored = ignored();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot hear signals")?;
    let heard = runtime.block_on(async {
        let open = |passed: &Signal| Some((*passed, signal(kind(*passed)).ok()?));
        let all = PASSED.iter().filter(|it| !ignored.contains(it));
        all.map(open).collect::<Option<Vec<_>>>()
    });
    let heard = heard.ok_or_else(|| anyhow!("the system lets no signals be heard"))?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            let local = tokio::task::LocalSet::new();
            for (passed, mut stream) in heard {
                let sender = sender.clone();
                let hearing = async move {
                    while stream.recv().await.is_some()
                        && sender.send(Event::Signal(passed)).is_ok()
                    {}
                };
                tasks.spawn_local_on(hearing, &local);
            }
            local
                .run_until(async { while tasks.join_next().await.is_some() {} })
                .await;
        });
    });
    Ok(())
}

fn kind(signal: Signal) -> SignalKind {
    SignalKind::from_raw(signal.as_raw())
}

/// What this process was started to ignore.
fn ignored() -> Vec<Signal> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let is_ignored = |signal: &Signal| mask.unwrap_or(0) >> (signal.as_raw() - 1) & 1 == 1;
    PASSED.into_iter().filter(is_ignored).collect()
}

/// Ends it. The command is over: what fails here is said, and does not change its exit status.
fn release(service: &Service, name: &str, id: &str) {
    let which = Which { id, account: None };
    if let Err(error) = service.delete(which) {
        let why = said::words(&error);
        eprintln!(
            "tanada: cannot release {name}: {why}; it ends by itself, or with `tanada reservation delete {name}`"
        );
    }
}
