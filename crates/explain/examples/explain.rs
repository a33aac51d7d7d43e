//! Explains a trace file: `explain FILE [--text | --pack OUT] [--all] [--time]`. For debugging perfloss, and for its bench.
//!
//! `--text` prints the trace in its text form instead; `--pack` takes a trace in text form and writes it as a trace file; `--all` takes
//! every task as the workload; `--time` prints how long it took, from decoding to verdict.

use std::fs::File;
use std::io::{Cursor, Read};
use std::time::Instant;

use explain::{Scope, Select, explain, summary};
use trace::{Reader, Trace, Writer, text};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| args.iter().any(|a| a == name);
    let path = args.iter().find(|a| !a.starts_with("--")).ok_or("which trace file?")?;
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    let size = bytes.len();
    if let Some(at) = args.iter().position(|a| a == "--pack") {
        let out = args.get(at + 1).ok_or("--pack needs a file")?;
        let mut builder = text::parse(&String::from_utf8(bytes)?)?.into_builder();
        Writer::new(File::create(out)?)?.finish(&mut builder)?;
        return Ok(());
    }
    let scope =
        Scope { select: if flag("--all") { Select::All } else { Select::Marked }, ..Scope::default() };
    if flag("--text") {
        print!("{}", text::print(&Trace::read(&mut Reader::new(Cursor::new(bytes))?)?));
        return Ok(());
    }
    let started = Instant::now();
    let explanation = explain(&mut Reader::new(Cursor::new(bytes))?, &scope)?;
    let took = started.elapsed();
    if flag("--time") {
        let events = explanation.facts.events;
        println!(
            "{events} events, {:.1} bytes each, in {:.3} s: {:.2} M events/s",
            size as f64 / events.max(1) as f64,
            took.as_secs_f64(),
            events as f64 / took.as_secs_f64() / 1e6
        );
        return Ok(());
    }
    print!("{}", summary(&explanation));
    Ok(())
}
