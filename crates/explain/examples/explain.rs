//! Explains a trace file: `explain FILE [--text | --pack OUT] [--all] [--time]`. For debugging perfloss, and for its bench.
//!
//! `--text` prints the trace in its text form instead; `--pack` takes a trace in text form and writes it as a trace file; `--all` takes
//! every task as the workload; `--time` prints how long it took, from decoding to verdict.

use std::fs::{self, File};
use std::io::BufReader;
use std::time::Instant;

use explain::{Scope, Select, explain, summary};
use trace::{Reader, Trace, Writer, text};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| args.iter().any(|a| a == name);
    let path = args.iter().find(|a| !a.starts_with("--")).ok_or("which trace file?")?;
    if let Some(at) = args.iter().position(|a| a == "--pack") {
        let out = args.get(at + 1).ok_or("--pack needs a file")?;
        let mut builder = text::parse(&fs::read_to_string(path)?)?.into_builder();
        Writer::new(File::create(out)?)?.finish(&mut builder)?;
        return Ok(());
    }
    let scope =
        Scope { select: if flag("--all") { Select::All } else { Select::Marked }, ..Scope::default() };
    if flag("--text") {
        print!("{}", text::print(&Trace::read(&mut Reader::new(BufReader::new(File::open(path)?))?)?));
        return Ok(());
    }
    if flag("--time") {
        // the disk is no part of it
        let file = fs::read(path)?;
        let size = file.len();
        let started = Instant::now();
        let explanation = explain(&mut Reader::new(file.as_slice())?, &scope)?;
        let took = started.elapsed();
        let events = explanation.facts.events;
        println!(
            "{events} events, {:.1} bytes each, in {:.3} s: {:.2} M events/s",
            size as f64 / events.max(1) as f64,
            took.as_secs_f64(),
            events as f64 / took.as_secs_f64() / 1e6
        );
        return Ok(());
    }
    let explanation = explain(&mut Reader::new(BufReader::new(File::open(path)?))?, &scope)?;
    print!("{}", summary(&explanation));
    Ok(())
}
