//! What is being measured and how long it will take, on standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use harness::plan::{Event, Plan};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use result::Point;

/// What a round takes beside warm-up and window, until there is experience: mkfs, mount, start and end.
const AROUND: Duration = Duration::from_millis(300);

/// Progress of a run: a line that is renewed on a terminal, a single line with the estimate elsewhere.
pub struct Progress {
    bar: Option<ProgressBar>,
    begun: Instant,
    guess: Duration,
    what: &'static str,
}

impl Progress {
    /// Shows the estimate, unless silent. `what` stands before it.
    pub fn new(shown: bool, plan: &Plan, what: &'static str) -> Progress {
        let rounds = plan.points.len() as u64 * u64::from(plan.rounds + plan.captures);
        // Warm-ups end early when the rate is steady; half the limit is a fair guess.
        let of_a_point =
            |p: &harness::RoundSpec| Duration::from_nanos(p.window_ns + p.warm_up_limit_ns / 2) + AROUND;
        let guess: Duration =
            plan.points.iter().map(of_a_point).sum::<Duration>() * (plan.rounds + plan.captures);
        let terminal = std::io::stderr().is_terminal();
        if shown && !terminal {
            let points = counted(plan.points.len() as u64, "point");
            eprintln!("{what}{points}, {}: about {}", counted(rounds, "round"), words(guess));
        }
        let bar = (shown && terminal).then(|| {
            let bar = ProgressBar::with_draw_target(Some(rounds), ProgressDrawTarget::stderr_with_hz(4));
            if let Ok(style) =
                ProgressStyle::with_template(" {bar:24} {pos}/{len} rounds · {prefix} left · {msg}")
            {
                bar.set_style(style);
            }
            bar.set_prefix(words(guess));
            bar
        });
        Progress { bar, begun: Instant::now(), guess, what }
    }

    /// Follows the run.
    pub fn tell(&mut self, event: &Event<'_>, points: &[Point]) {
        let Some(bar) = &self.bar else { return };
        if let Event::Begins { point, done, of, .. } = *event {
            let p = &points[point];
            bar.set_position(u64::from(done));
            let passed = self.begun.elapsed();
            let left = if done < 2 {
                self.guess.saturating_sub(passed)
            } else {
                passed.mul_f64(f64::from(of - done) / f64::from(done))
            };
            bar.set_prefix(words(left));
            let what =
                format!("{}{} on {}, {}", self.what, p.workload, p.target, counted(p.tasks.into(), "task"));
            bar.set_message(what.chars().filter(|c| !c.is_control()).take(60).collect::<String>());
        }
    }

    /// Takes the line away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn counted(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{} s", seconds.max(1)),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}
