//! `tanada volume moves NAME`: what moved, when, why, and how it ended.

use std::time::{Duration, UNIX_EPOCH};

use report::terminal::table::{size, span, table};

use super::client::{Client, path};
use super::{options, show, volume_list};
use crate::api::tier::{Move, Moves};

/// Runs it.
pub fn run(arguments: &options::Moves) -> anyhow::Result<()> {
    let client = Client::new(arguments.ask.admin.clone())?;
    let mut moves = all(&client, arguments)?;
    let newest = moves.moves.len().saturating_sub(arguments.limit);
    moves.moves.drain(..newest);
    show::answer(arguments.ask.json, &moves, || page(&moves, newest))
}

/// The whole log as far as it is asked for, page by page.
fn all(client: &Client, arguments: &options::Moves) -> anyhow::Result<Moves> {
    let mut all = Moves::default();
    let mut after = None;
    let name = volume_list::hybrid(client, &arguments.name)?;
    loop {
        let query = query(&[
            ("limit", Some("1000".to_owned())),
            ("after", after.map(|after: u64| after.to_string())),
            ("region", arguments.region.map(|region| region.to_string())),
            (
                "last_seconds",
                arguments.last.map(|last| last.secs_f64().to_string()),
            ),
        ]);
        let mut page: Moves = client.get(&path(&name, &format!("/moves{query}"))?)?;
        page.moves.splice(0..0, all.moves);
        all = page;
        match all.next.take() {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
}

/// `?key=value&...` of what is given.
pub fn query(keys: &[(&str, Option<String>)]) -> String {
    let given = keys.iter().filter_map(|(key, value)| {
        let value = value.as_ref()?;
        Some(format!("{key}={value}"))
    });
    let given: Vec<String> = given.collect();
    match given.is_empty() {
        true => String::new(),
        false => format!("?{}", given.join("&")),
    }
}

/// A moment of the calendar: `2026-11-20 17:33:34` (UTC).
pub fn moment(unix_seconds: f64) -> String {
    let at = UNIX_EPOCH + Duration::from_secs_f64(unix_seconds.clamp(0.0, 250e9).floor());
    let text = humantime::format_rfc3339_seconds(at).to_string();
    text.trim_end_matches('Z').replace('T', " ")
}

fn page(moves: &Moves, left_out: usize) -> String {
    if moves.moves.is_empty() {
        return format!(
            "No region of {} has moved; `tanada volume heat {0}` shows how hot they are.\n",
            moves.volume
        );
    }
    let rows = moves.moves.iter().map(|one| row(one, moves.region_bytes));
    let rows: Vec<Vec<String>> = rows.collect();
    let heads = [
        "MOVE",
        "WHEN (UTC)",
        "INTERVAL",
        "REGION",
        "WAY",
        "END",
        "COPIED",
        "TOOK",
        "WHY",
    ];
    let mut text = table(&heads, &rows);
    if left_out > 0 {
        text.push_str(&format!(
            "{left_out} older ones are not shown; --limit shows more\n"
        ));
    }
    text
}

/// `length`: of the volume's regions now.
fn row(one: &Move, length: u64) -> Vec<String> {
    let of = match one.region_bytes == length {
        true => String::new(),
        false => format!(" of {}", size(one.region_bytes)),
    };
    vec![
        one.number.to_string(),
        moment(one.at_unix_seconds),
        one.interval.to_string(),
        format!("{}{of}", one.region),
        if one.up { "up" } else { "down" }.to_owned(),
        one.end.clone(),
        size(one.copied_bytes),
        one.took_seconds
            .map_or("-".to_owned(), |seconds| span((seconds * 1e9) as u64)),
        one.why.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_one_line_that_says_why() {
        let one = Move {
            number: 7,
            at_unix_seconds: 1_700_000_000.25,
            interval: 12,
            region: 65,
            region_bytes: 1 << 30,
            up: true,
            why: "its group was hot 3 intervals in a row".to_owned(),
            end: "done".to_owned(),
            took_seconds: Some(2.5),
            copied_bytes: 16 << 20,
        };
        let late = Move {
            number: 8,
            up: false,
            end: "under-way".to_owned(),
            took_seconds: None,
            ..one.clone()
        };
        let moves = Moves {
            volume: "vol0".into(),
            region_bytes: 1 << 30,
            moves: vec![one, late.clone()],
            ..Moves::default()
        };
        let text = page(&moves, 5);
        let lines: Vec<&str> = text.lines().collect();
        let expected = "   7  2023-11-14 22:13:20        12      65  up    done       16.0 MiB  2.5 s  \
                        its group was hot 3 intervals in a row";
        assert_eq!(lines[1], expected);
        assert!(
            lines[2].contains("down  under-way") && lines[2].contains(" -  its"),
            "{text}"
        );
        assert!(lines[3].starts_with("5 older ones"), "{text}");
        let other = Moves {
            region_bytes: 16 << 20,
            moves: vec![late],
            ..Moves::default()
        };
        let text = page(&other, 0);
        assert!(text.contains("65 of 1.0 GiB  down"), "{text}");
        assert!(page(&Moves::default(), 0).starts_with("No region"));
    }

    #[test]
    fn a_query_names_what_is_given() {
        assert_eq!(query(&[("a", None)]), "");
        assert_eq!(
            query(&[
                ("a", Some("1".into())),
                ("b", None),
                ("c", Some("2.5".into()))
            ]),
            "?a=1&c=2.5"
        );
    }
}
