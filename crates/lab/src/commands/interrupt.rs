//! Ctrl-C while something must be put back first: the first one asks, the second one ends at once.

use anyhow::Context;
use experiments::app::process::Stop;
use tokio::signal::unix::{SignalKind, signal};

/// From now on Ctrl-C and SIGTERM set what is returned; once more ends the program on the spot.
pub fn listen() -> anyhow::Result<Stop> {
    let stop = Stop::default();
    let stopping = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot listen for signals")?;
    let (ready, is_ready) = std::sync::mpsc::channel();
    let listening = move || {
        runtime.block_on(async {
            let both = signal(SignalKind::interrupt()).and_then(|int| {
                let term = signal(SignalKind::terminate())?;
                Ok((int, term))
            });
            let (mut int, mut term) = match both {
                Ok(both) => {
                    let _ = ready.send(Ok(()));
                    both
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            let mut asked = false;
            loop {
                tokio::select! {
                    _ = int.recv() => {}
                    _ = term.recv() => {}
                }
                if asked {
                    std::process::exit(1);
                }
                asked = true;
                eprintln!("stopping and clearing away; once more to end at once");
                stopping.set();
            }
        });
    };
    // Signals are heard by a thread of their own: the others wait for databases and disks.
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(listening)
        .context("cannot listen for signals")?;
    is_ready
        .recv()
        .context("cannot listen for signals")?
        .context("cannot listen for signals")?;
    Ok(stop)
}
