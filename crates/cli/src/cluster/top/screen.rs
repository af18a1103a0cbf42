//! `weir top` on a terminal: shows disks and the reading processes of jobs until `q` is pressed.

use super::{Row, TITLES, held_up, slowest, sums};
use crate::cluster::explain::{self, Job, Jobs};
use crate::failure::{Done, Failure};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Cell, LineGauge, Paragraph, Row as TableRow, Table};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use weir_client::Client;
use weir_wire::targets::TargetView;

const WIDTHS: [Constraint; 10] = [
    Constraint::Length(6),
    Constraint::Length(24),
    Constraint::Length(12),
    Constraint::Length(8),
    Constraint::Length(8),
    Constraint::Length(6),
    Constraint::Length(8),
    Constraint::Length(4),
    Constraint::Length(8),
    Constraint::Fill(1),
];
const HELP: &str =
    "q quit   t target   r read   w write   s slowness   up/down scroll   space stop";

/// How often keys are checked while servers are being asked.
const KEYS: Duration = Duration::from_millis(50);

/// The order of the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Target,
    Read,
    Written,
    Slowness,
}

/// The user's settings for the screen.
#[derive(Clone, Copy, Debug)]
struct Wish {
    order: Order,
    /// The number of disks scrolled out at the top.
    above: usize,
    /// Whether the display is frozen.
    stopped: bool,
}

/// One sample of the cluster.
struct Look {
    views: Vec<TargetView>,
    jobs: Jobs,
    silent: usize,
    at: Instant,
}

impl Look {
    fn take(client: &Client) -> Done<Self> {
        let views = client.targets()?;
        let (jobs, silent) = explain::look(client, &views);
        Ok(Self { views, jobs, silent: silent.len(), at: Instant::now() })
    }
}

/// Shows the screen until the user ends it.
///
/// # Errors
/// Those of the metadata server. The terminal is restored first.
pub fn run(client: Client, interval: Duration) -> Done {
    let (mut before, mut now) = (None, Look::take(&client)?);
    let looks = Looks::start(client);
    let mut terminal = ratatui::try_init().map_err(of_terminal)?;
    let mut wish = Wish { order: Order::Target, above: 0, stopped: false };
    let (mut changed, mut asked) = (true, false);
    let done = loop {
        if std::mem::take(&mut changed) {
            let screen = Screen::of(before.as_ref(), &now, wish);
            if let Err(error) = terminal.draw(|frame| screen.draw(frame)) {
                break Err(of_terminal(error));
            }
        }
        match next_event() {
            Err(error) => break Err(of_terminal(error)),
            Ok(Some(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                match wish.after(key, now.views.len()) {
                    Some(next) => (wish, changed) = (next, true),
                    None => break Ok(()),
                }
            }
            // An event is, for example, a new size of the terminal.
            Ok(event) => changed = event.is_some(),
        }
        if !asked && !wish.stopped && now.at.elapsed() >= interval {
            asked = looks.ask();
        }
        match looks.answer() {
            Some(Ok(next)) => {
                before = Some(std::mem::replace(&mut now, next));
                (changed, asked) = (true, false);
            }
            Some(Err(failure)) => break Err(failure),
            None => {}
        }
    };
    ratatui::restore();
    done
}

fn next_event() -> std::io::Result<Option<Event>> {
    if event::poll(KEYS)? { event::read().map(Some) } else { Ok(None) }
}

/// A thread that takes samples. Servers may answer slowly, and keys must not wait for them.
struct Looks {
    asked: SyncSender<()>,
    answers: Receiver<Done<Look>>,
}

impl Looks {
    /// Starts the thread, which ends when this value is dropped or the program ends.
    fn start(client: Client) -> Self {
        let (asked, orders) = sync_channel(1);
        let (tells, answers) = sync_channel(1);
        std::thread::spawn(move || {
            while orders.recv().is_ok() {
                if tells.send(Look::take(&client)).is_err() {
                    return;
                }
            }
        });
        Self { asked, answers }
    }

    /// Asks for a sample. Returns whether the thread took the request.
    fn ask(&self) -> bool {
        self.asked.try_send(()).is_ok()
    }

    /// The sample since the last call, if there is one.
    fn answer(&self) -> Option<Done<Look>> {
        self.answers.try_recv().ok()
    }
}

fn of_terminal(error: std::io::Error) -> Failure {
    Failure::new(format!("the terminal: {error}"))
}

impl Wish {
    /// The settings after a key; `None` to end.
    fn after(mut self, key: KeyEvent, disks: usize) -> Option<Self> {
        let held = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return None,
            KeyCode::Char('c') if held => return None,
            KeyCode::Char('t') => self.order = Order::Target,
            KeyCode::Char('r') => self.order = Order::Read,
            KeyCode::Char('w') => self.order = Order::Written,
            KeyCode::Char('s') => self.order = Order::Slowness,
            KeyCode::Char(' ') => self.stopped = !self.stopped,
            KeyCode::Up => self.above = self.above.saturating_sub(1),
            KeyCode::Down => self.above = (self.above + 1).min(disks.saturating_sub(1)),
            _ => {}
        }
        Some(self)
    }
}

/// What the screen shows.
struct Screen<'a> {
    rows: Vec<Row<'a>>,
    jobs: Vec<Job<'a>>,
    silent: usize,
    wish: Wish,
}

impl<'a> Screen<'a> {
    fn of(before: Option<&Look>, now: &'a Look, wish: Wish) -> Self {
        let before = before.unwrap_or(now);
        let seconds = now.at.duration_since(before.at).as_secs_f64().max(0.001);
        let mut rows: Vec<Row<'a>> =
            now.views.iter().map(|view| Row::of(view, &before.views, seconds)).collect();
        rows.sort_by_key(|row| match wish.order {
            Order::Target => 0,
            Order::Read => u64::MAX - row.read_per_s,
            Order::Written => u64::MAX - row.written_per_s,
            Order::Slowness => u64::MAX - u64::from(row.view.work.us_per_mib),
        });
        let jobs = explain::jobs(&now.jobs, &before.jobs, &now.views, seconds);
        let jobs = jobs.into_iter().filter(Job::reads).collect();
        Self { rows, jobs, silent: now.silent, wish }
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let jobs = self.jobs.iter().map(|job| 1 + job.bars().count()).sum::<usize>() as u16;
        let half = frame.area().height / 2;
        let jobs = if jobs == 0 { 0 } else { (jobs + 1).min(half) };
        let parts = [Constraint::Length(2), Constraint::Min(3), Constraint::Length(jobs)];
        let [head, disks, below, foot] =
            Layout::vertical(parts.into_iter().chain([Constraint::Length(1)])).areas(frame.area());
        self.draw_head(frame, head);
        self.draw_disks(frame, disks);
        self.draw_jobs(frame, below);
        let dim = Style::new().add_modifier(Modifier::DIM);
        frame.render_widget(Paragraph::new(HELP).style(dim), foot);
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect) {
        let views: Vec<&TargetView> = self.rows.iter().map(|row| row.view).collect();
        let stopped = if self.wish.stopped { ", stopped" } else { "" };
        let silent = match self.silent {
            0 => String::new(),
            n => format!("; {n} targets' servers do not answer"),
        };
        let (held, style) = match held_up(&views) {
            Some(held) => (held, Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)),
            None => ("no disk holds the others up".to_owned(), Style::new().fg(Color::Green)),
        };
        let disks = self.rows.len();
        let sums = format!("{disks} disks: {}{silent}{stopped}", sums(&self.rows));
        let lines = Text::from(vec![Line::from(sums), Line::styled(held, style)]);
        frame.render_widget(Paragraph::new(lines), area);
    }

    fn draw_disks(&self, frame: &mut Frame<'_>, area: Rect) {
        let views: Vec<&TargetView> = self.rows.iter().map(|row| row.view).collect();
        let slowest = slowest(&views).map(|(view, _)| view.target);
        let row = |row: &Row<'_>| {
            let is_slow = row.view.slow || Some(row.view.target) == slowest;
            let style = match (is_slow, row.view.state.is_online()) {
                (_, false) => Style::new().fg(Color::Yellow),
                (true, true) => Style::new().fg(Color::Red),
                (false, true) => Style::new(),
            };
            let cells = TITLES.iter().zip(row.cells()).map(|(title, text)| cell(title, text));
            TableRow::new(cells).style(style)
        };
        let titles = TITLES.map(|title| cell(title, title.trim_start_matches('>').to_owned()));
        let bold = Style::new().add_modifier(Modifier::BOLD);
        // There may be fewer disks than before.
        let above = self.wish.above.min(self.rows.len().saturating_sub(1));
        let rows = self.rows.iter().skip(above).map(row);
        let table = Table::new(rows, WIDTHS).header(TableRow::new(titles).style(bold));
        frame.render_widget(table, area);
    }

    fn draw_jobs(&self, frame: &mut Frame<'_>, area: Rect) {
        let block = Block::new().borders(Borders::TOP).title(" jobs that read ");
        let mut left = block.inner(area);
        if area.height > 0 {
            frame.render_widget(block, area);
        }
        let mut next = || {
            let [line, rest] =
                Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(left);
            left = rest;
            (line.height > 0).then_some(line)
        };
        for job in &self.jobs {
            let Some(line) = next() else { return };
            frame.render_widget(Paragraph::new(job.title()), line);
            for (done, text) in job.bars() {
                let Some(line) = next() else { return };
                let filled = Style::new().fg(Color::Cyan);
                let gauge = LineGauge::default().ratio(done.clamp(0.0, 1.0)).label(text);
                frame.render_widget(gauge.filled_style(filled), line);
            }
        }
    }
}

/// A cell in the style of its column.
fn cell(title: &str, text: String) -> Cell<'static> {
    let alignment = if title.starts_with('>') { Alignment::Right } else { Alignment::Left };
    Cell::from(Text::from(text).alignment(alignment))
}

#[cfg(test)]
mod tests {
    use super::super::tests::view;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn look(views: Vec<TargetView>, at: Instant) -> Look {
        Look { views, jobs: Jobs::new(), silent: 0, at }
    }

    fn drawn(wish: Wish) -> String {
        let began = Instant::now();
        let before = look(vec![view(1, 0, 0), view(2, 0, 0), view(3, 0, 0)], began);
        let then = [view(1, 8 << 20, 30_000), view(2, 2 << 20, 120_000), view(3, 4 << 20, 31_000)];
        let now = look(then.to_vec(), began + Duration::from_secs(2));
        let mut terminal = Terminal::new(TestBackend::new(100, 12)).unwrap();
        let screen = Screen::of(Some(&before), &now, wish);
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    fn key(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    const FIRST: Wish = Wish { order: Order::Target, above: 0, stopped: false };

    #[test]
    fn disks_are_there_and_the_one_that_holds_the_others_up_is_named() {
        let text = drawn(FIRST);
        assert!(text.contains("3 disks: 7.0M/s read"), "{text}");
        assert!(text.contains("target 2 (data-2 on node) holds the others up"), "{text}");
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what} in {text}"));
        assert!(at("data-1 (node)") < at("data-2 (node)"));
        assert!(text.contains("q quit"), "{text}");
    }

    #[test]
    fn keys_order_scroll_stop_and_end() {
        let slowest = FIRST.after(key(KeyCode::Char('s')), 3).unwrap();
        let text = drawn(slowest);
        let at = |what: &str| text.find(what).unwrap();
        assert!(at("data-2 (node)") < at("data-1 (node)"), "{text}");
        let below = slowest.after(key(KeyCode::Down), 3).unwrap();
        assert!(!drawn(below).contains("data-2 (node) "), "it is above");
        let mut last = below;
        (0..9).for_each(|_| last = last.after(key(KeyCode::Down), 3).unwrap());
        assert_eq!((last.above, last.after(key(KeyCode::Up), 3).unwrap().above), (2, 1));
        assert!(FIRST.after(key(KeyCode::Char(' ')), 3).unwrap().stopped);
        assert!(FIRST.after(key(KeyCode::Char('q')), 3).is_none());
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(FIRST.after(ctrl_c, 3).is_none());
    }
}
