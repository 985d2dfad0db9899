//! Reserving at three stores whose calendars are nearly full.

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::Report;
use super::nodes::{Disks, Nodes};

/// Reservations in each calendar before it is measured.
const BEFORE: u64 = 9_000;
/// Reservations that are measured.
const MEASURED: usize = 500;

/// Asks for one reservation over a connection that stays; how it was answered.
fn ask(socket: &mut UnixStream, name: &str, from: &str) -> Result<u16, Box<dyn Error>> {
    let body = format!(
        "{{\"name\": \"{name}\", \"target\": {{\"stores\": [\"s1\", \"s2\", \"s3\"], \"scope\": \"a/\"}}, \
         \"read\": \"10MB/s\", \"from\": \"{from}\", \"for\": \"60s\"}}"
    );
    write!(
        socket,
        "POST /v2/reservations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut got = Vec::new();
    let mut buf = [0; 16 << 10];
    loop {
        let read = socket.read(&mut buf)?;
        got.extend_from_slice(&buf[..read]);
        let text = String::from_utf8_lossy(&got);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            if read == 0 {
                return Err("the daemon hung up".into());
            }
            continue;
        };
        let length = head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.ok_or("no length")? {
            let status = head.split(' ').nth(1).ok_or("no status")?;
            return Ok(status.parse()?);
        }
        if read == 0 {
            return Err("the daemon hung up".into());
        }
    }
}

pub fn book(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = Nodes::start(Disks::Files)?;
    let mut socket = UnixStream::connect(nodes.dir(1).join("admin.sock"))?;
    let mut took = Vec::new();
    for nth in 0..BEFORE + MEASURED as u64 {
        let from = format!("+{}s", 3600 + 60 * nth);
        let begun = Instant::now();
        let status = ask(&mut socket, &format!("job{nth}"), &from)?;
        if status != 201 {
            return Err(format!("reservation {nth} was answered with status {status}").into());
        }
        if nth >= BEFORE {
            took.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    took.sort_by(f64::total_cmp);
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize];
    let (median, late) = (at(0.5), at(0.99));
    report.row(
        ("book", "p99 of a reservation of three parts", "ms"),
        &[late],
        "<= 250",
        late <= 250.0,
    );
    report.say(&format!(
        "         median {median:.1} ms, beside {BEFORE} in each calendar"
    ));
    Ok(())
}
