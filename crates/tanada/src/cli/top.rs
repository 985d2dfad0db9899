//! `tanada top`: a running daemon live.
//!
//! ```text
//! every interval: GET /v1/status -> Frame between the last two -> screen
//! keys: q, Esc or Ctrl-C end it; space holds the picture
//! ```

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::Context;
use base::Map;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Row, Sparkline, Table};
use report::terminal::Usage;
use report::terminal::table::{megabytes_per_second, table};

use super::client::{Client, ClientError};
use super::frame::{Frame, Rows, VolumeRow};
use super::options::Top;
use super::show;
use crate::api::status::Status;

/// As many as a wide terminal has columns.
const HISTORY_MAX: usize = 400;

/// Runs `tanada top`.
pub fn run(arguments: &Top) -> anyhow::Result<()> {
    let interval = arguments.interval.duration();
    if interval < Duration::from_millis(50) {
        return Err(Usage("--interval is at least 50ms".to_owned()).into());
    }
    let client = Client::new(arguments.ask.admin.clone())?;
    let first: Status = client.get("/v1/status")?;
    if arguments.once || arguments.ask.json {
        client.wait(interval);
        let second: Status = client.get("/v1/status")?;
        if arguments.ask.json {
            return show::json(&Frame::between(&first, &second));
        }
        return show::text(&as_text(&Frame::between(&first, &second)));
    }
    if !io::stdout().is_terminal() {
        let what = "top needs a terminal; --once prints one frame as text, --json as JSON";
        return Err(Usage(what.to_owned()).into());
    }
    let mut screen = Screen {
        frame: Frame::between(&first, &first),
        history: Map::default(),
        target: client.target().to_string(),
        trouble: None,
        held: false,
    };
    let mut terminal = ratatui::try_init().context("cannot take over the terminal")?;
    let ended = watch(&mut terminal, &client, first, interval, &mut screen);
    ratatui::restore();
    ended
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    client: &Client,
    mut last: Status,
    interval: Duration,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        // Waiting for a key is the clock.
        let mut waited = false;
        while !waited {
            match event::poll(interval)? {
                false => waited = true,
                true => match event::read()? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
                        KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                            return Ok(());
                        }
                        KeyCode::Char(' ') => {
                            screen.held = !screen.held;
                            terminal.draw(|frame| screen.draw(frame))?;
                        }
                        _ => {}
                    },
                    Event::Resize(..) => {
                        terminal.draw(|frame| screen.draw(frame))?;
                    }
                    _ => {}
                },
            }
        }
        match client.get::<Status>("/v1/status") {
            Ok(now) => {
                screen.trouble = None;
                if !screen.held {
                    screen.show(Frame::between(&last, &now));
                }
                last = now;
            }
            // It may come back: a restart is worth watching.
            Err(error @ (ClientError::NoDaemon { .. } | ClientError::TooSlow { .. })) => {
                screen.trouble = Some(error.to_string());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// One frame for scripts.
fn as_text(frame: &Frame) -> String {
    let mut text = format!("{}\n", frame.title);
    for rows in frame.tables() {
        if !rows.cells.is_empty() {
            text.push('\n');
            text.push_str(&table(&rows.head, &rows.cells));
        }
    }
    text
}

struct Screen {
    frame: Frame,
    /// Bytes per second of each volume, the newest last.
    history: Map<String, VecDeque<u64>>,
    target: String,
    trouble: Option<String>,
    held: bool,
}

impl Screen {
    fn show(&mut self, frame: Frame) {
        for volume in &frame.volumes {
            let history = self.history.entry(volume.name.clone()).or_default();
            history.push_back(flow(volume));
            if history.len() > HISTORY_MAX {
                history.pop_front();
            }
        }
        self.frame = frame;
    }

    fn draw(&self, to: &mut ratatui::Frame<'_>) {
        let rows = |rows: &Rows| match rows.cells.len() {
            0 => 0,
            n => n as u16 + 2,
        };
        let [volumes, sessions, devices, exports] = self.frame.tables();
        let chart = if volumes.cells.is_empty() { 0 } else { 6 };
        let areas = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(rows(&volumes)),
            Constraint::Length(chart),
            Constraint::Length(rows(&sessions)),
            Constraint::Length(rows(&devices)),
            Constraint::Length(rows(&exports)),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .split(to.area());
        to.render_widget(
            Line::from(vec![
                Span::from(self.frame.title.as_str()).bold(),
                Span::from(format!("  {}", self.target)).dim(),
            ]),
            areas[0],
        );
        draw_table(to, areas[1], &volumes);
        self.draw_charts(to, areas[2]);
        draw_table(to, areas[3], &sessions);
        draw_table(to, areas[4], &devices);
        draw_table(to, areas[5], &exports);
        let foot = match (&self.trouble, self.held) {
            (Some(trouble), _) => Line::from(trouble.as_str()).style(Style::new().fg(Color::Red)),
            (None, true) => Line::from("held; space goes on, q ends").yellow(),
            (None, false) => Line::from("q ends, space holds").dim(),
        };
        to.render_widget(foot, areas[7]);
    }

    /// The recent flow of every volume, side by side.
    fn draw_charts(&self, to: &mut ratatui::Frame<'_>, area: Rect) {
        let count = self.frame.volumes.len() as u32;
        let areas = Layout::horizontal(vec![Constraint::Ratio(1, count.max(1)); count as usize])
            .spacing(1)
            .split(area);
        let nothing = VecDeque::new();
        for (volume, area) in self.frame.volumes.iter().zip(areas.iter()) {
            let name = &volume.name;
            let history = self.history.get(name).unwrap_or(&nothing);
            let width = usize::from(area.width.saturating_sub(2));
            let shown: Vec<u64> = history
                .iter()
                .skip(history.len().saturating_sub(width))
                .copied()
                .collect();
            let peak = shown.iter().copied().max().unwrap_or(0);
            let title = format!(
                " {name}: {} MB/s, peak {} ",
                megabytes_per_second(flow(volume) as f64),
                megabytes_per_second(peak as f64)
            );
            let chart = Sparkline::default()
                .block(
                    Block::bordered()
                        .title(title)
                        .border_style(Style::new().dim()),
                )
                .max(peak.max(1))
                .style(Style::new().fg(Color::Cyan))
                .data(&shown);
            to.render_widget(chart, *area);
        }
    }
}

/// Bytes per second through a volume.
fn flow(volume: &VolumeRow) -> u64 {
    (volume.rates.read_bytes_per_second + volume.rates.write_bytes_per_second) as u64
}

fn draw_table(to: &mut ratatui::Frame<'_>, area: Rect, rows: &Rows) {
    if rows.cells.is_empty() {
        return;
    }
    // The text table knows how wide columns are and which side they stand on.
    let lines: Vec<String> = table(&rows.head, &rows.cells)
        .lines()
        .map(str::to_owned)
        .collect();
    let width = [Constraint::Fill(1)];
    let mut lines = lines.into_iter();
    let head = lines.next().unwrap_or_default();
    let body: Vec<Row<'_>> = lines.map(|line| Row::new([line])).collect();
    let head = Row::new([head]).style(Style::new().bold().fg(Color::Green));
    to.render_widget(Table::new(body, width).header(head), area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::rates::Rates;
    use crate::cli::frame::{DeviceRow, TierRow};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn a_frame_is_drawn_and_trouble_is_shown() {
        let frame = |volumes, devices| Frame {
            title: "Tanada".to_owned(),
            volumes,
            sessions: Vec::new(),
            devices,
            exports: Vec::new(),
        };
        let rates = Rates {
            reads_per_second: 12.0,
            read_bytes_per_second: 2e6,
            latency_ns_p50: Some(85_000),
            ..Rates::default()
        };
        let volume = VolumeRow {
            name: "vol0".to_owned(),
            health: "healthy".to_owned(),
            rates: rates.clone(),
            hit_share: Some(0.25),
            dirty_bytes: 4096,
            tier: Some(TierRow {
                regions_up: 3,
                regions: 293,
                held_bytes: 3 << 30,
                moves_under_way: 1,
                moved_bytes_per_second: 4.5e6,
                flow_bytes_per_second: None,
            }),
        };
        let device = DeviceRow {
            name: "hdd0".to_owned(),
            kind: "hdd-7200-sata".to_owned(),
            rates,
            watts: Some(1.0),
            standby: true,
        };
        let mut screen = Screen {
            frame: frame(vec![], vec![]),
            history: Map::default(),
            target: "unix:x".to_owned(),
            trouble: Some("it is gone".to_owned()),
            held: false,
        };
        screen.show(frame(vec![volume], vec![device]));
        let mut terminal = Terminal::new(TestBackend::new(140, 20)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let shown = format!("{}", terminal.backend());
        for expected in [
            "VOLUME  HEALTH   READ/S  MB/S",
            "25.0 %",
            "MOVED MB/S",
            "3/293  3.0 GiB      1         4.5",
            "vol0: 2.0 MB/s, peak 2.0",
            "hdd-7200-sata",
            "1.00 W asleep",
            "it is gone",
        ] {
            assert!(shown.contains(expected), "{expected} is not in\n{shown}");
        }
        assert!(!shown.contains("EXPORT"), "{shown}");
    }
}
