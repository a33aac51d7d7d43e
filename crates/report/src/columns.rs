//! Parquet: points, roots and waits as tables, for questions over many results.
//!
//! Every row carries the host, the kernel and the start of its run, so that files of a thousand hosts can be read as one
//! table. Every column may be null: null is what was not measured.

use crate::FormatError;
use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use result::{Budget, BudgetPart, Point, RunResult};
use std::sync::Arc;

/// The values of a column.
enum Values {
    Text(Vec<Option<String>>),
    Real(Vec<Option<f64>>),
    Whole(Vec<Option<i64>>),
    Truth(Vec<Option<bool>>),
}

struct Table {
    columns: Vec<(&'static str, Values)>,
}

impl Table {
    fn new() -> Self {
        Self { columns: Vec::new() }
    }

    fn column(&mut self, name: &'static str, empty: fn() -> Values) -> &mut Values {
        let at = match self.columns.iter().position(|(n, _)| *n == name) {
            Some(at) => at,
            None => {
                self.columns.push((name, empty()));
                self.columns.len() - 1
            }
        };
        &mut self.columns[at].1
    }

    fn text(&mut self, name: &'static str, value: Option<&str>) {
        if let Values::Text(v) = self.column(name, || Values::Text(Vec::new())) {
            v.push(value.map(str::to_owned));
        }
    }

    fn real(&mut self, name: &'static str, value: Option<f64>) {
        if let Values::Real(v) = self.column(name, || Values::Real(Vec::new())) {
            v.push(value);
        }
    }

    fn whole(&mut self, name: &'static str, value: Option<i64>) {
        if let Values::Whole(v) = self.column(name, || Values::Whole(Vec::new())) {
            v.push(value);
        }
    }

    fn truth(&mut self, name: &'static str, value: Option<bool>) {
        if let Values::Truth(v) = self.column(name, || Values::Truth(Vec::new())) {
            v.push(value);
        }
    }

    /// The columns that every table begins with.
    fn point(&mut self, result: &RunResult, point: &Point) {
        self.text("host", Some(&result.machine.host));
        self.text("kernel", Some(&result.machine.kernel));
        self.text("started", Some(&result.started));
        self.whole("seed", Some(result.seed as i64));
        self.real("cpus", Some(result.machine.capacity_cpus()));
        self.text("workload", Some(&point.workload));
        self.text("workload_version", result.workload(&point.workload).map(|w| w.version.as_str()));
        self.text("target", Some(&point.target));
        self.text("target_kind", result.target(&point.target).map(|t| t.kind.as_str()));
        self.text("mode", Some(point.mode.name()));
        self.whole("tasks", Some(i64::from(point.tasks)));
        self.truth("valid", Some(point.valid));
        self.real("ops_per_s", point.rate());
    }

    fn write(self, name: &str) -> Result<Vec<u8>, FormatError> {
        let wrong = |e: parquet::errors::ParquetError| FormatError::Drawing { why: e.to_string() };
        let mut schema = format!("message {name} {{\n");
        for (column, values) in &self.columns {
            let kind = match values {
                Values::Text(_) => format!("BINARY {column} (UTF8)"),
                Values::Real(_) => format!("DOUBLE {column}"),
                Values::Whole(_) => format!("INT64 {column}"),
                Values::Truth(_) => format!("BOOLEAN {column}"),
            };
            schema.push_str(&format!("  OPTIONAL {kind};\n"));
        }
        schema.push('}');
        let schema = Arc::new(parse_message_type(&schema).map_err(wrong)?);
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by("perfloss".to_owned())
            .build();
        let mut bytes = Vec::new();
        let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties)).map_err(wrong)?;
        let mut group = file.next_row_group().map_err(wrong)?;
        for (_, values) in self.columns {
            let Some(mut writer) = group.next_column().map_err(wrong)? else {
                break;
            };
            match values {
                Values::Text(v) => {
                    let (levels, values) = split(v, |s| ByteArray::from(s.into_bytes()));
                    writer.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)
                }
                Values::Real(v) => {
                    let (levels, values) = split(v, |x| x);
                    writer.typed::<DoubleType>().write_batch(&values, Some(&levels), None)
                }
                Values::Whole(v) => {
                    let (levels, values) = split(v, |x| x);
                    writer.typed::<Int64Type>().write_batch(&values, Some(&levels), None)
                }
                Values::Truth(v) => {
                    let (levels, values) = split(v, |x| x);
                    writer.typed::<BoolType>().write_batch(&values, Some(&levels), None)
                }
            }
            .map_err(wrong)?;
            writer.close().map_err(wrong)?;
        }
        group.close().map_err(wrong)?;
        file.close().map_err(wrong)?;
        Ok(bytes)
    }
}

/// Which values are there (1) or null (0), and those that are.
fn split<T, U>(values: Vec<Option<T>>, f: impl Fn(T) -> U) -> (Vec<i16>, Vec<U>) {
    let levels = values.iter().map(|v| i16::from(v.is_some())).collect();
    (levels, values.into_iter().flatten().map(f).collect())
}

/// A file of a table, by its name.
#[derive(Debug)]
pub struct ParquetFile {
    /// `points.parquet`, `roots.parquet` or `waits.parquet`.
    pub name: &'static str,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// The tables of a result. A table without rows is no file.
///
/// # Errors
/// When a value cannot be written.
pub fn tables(result: &RunResult) -> Result<Vec<ParquetFile>, FormatError> {
    let mut files = Vec::new();
    for (name, file, table) in [
        ("points", "points.parquet", points(result)),
        ("roots", "roots.parquet", roots(result)),
        ("waits", "waits.parquet", waits(result)),
    ] {
        if !table.columns.is_empty() {
            files.push(ParquetFile { name: file, bytes: table.write(name)? });
        }
    }
    Ok(files)
}

fn points(result: &RunResult) -> Table {
    let mut t = Table::new();
    for p in &result.points {
        t.point(result, p);
        let e = p.ops_per_s.as_ref().filter(|_| p.valid);
        t.real("ops_per_s_mad", e.map(|e| e.mad));
        t.real("ops_per_s_low", e.map(|e| e.low));
        t.real("ops_per_s_high", e.map(|e| e.high));
        t.whole("rounds", e.map(|e| e.rounds.len() as i64));
        t.text("invalid_because", p.invalid_because.as_deref());
        let tasks = p.per_task_ops_per_s.as_ref().filter(|_| p.valid);
        t.real("per_task_min", tasks.map(|t| t.min));
        t.real("per_task_median", tasks.map(|t| t.median));
        t.real("per_task_max", tasks.map(|t| t.max));
        let b = p.budget_us_per_op.as_ref().filter(|_| p.valid);
        let part = |f: &dyn Fn(&Budget) -> Option<f64>| b.and_then(f);
        t.real("total_us_per_op", part(&|b| b.total));
        for (column, which) in [
            ("user_us_per_op", BudgetPart::User),
            ("system_us_per_op", BudgetPart::System),
            ("spin_us_per_op", BudgetPart::Spin),
            ("irq_us_per_op", BudgetPart::Irq),
            ("system_elsewhere_us_per_op", BudgetPart::SystemElsewhere),
            ("other_us_per_op", BudgetPart::Other),
            ("steal_us_per_op", BudgetPart::Steal),
            ("idle_us_per_op", BudgetPart::Idle),
            ("unused_us_per_op", BudgetPart::Unused),
            ("unaccounted_us_per_op", BudgetPart::Unaccounted),
        ] {
            t.real(column, part(&|b| b.part(which)));
        }
        let c = p.capture.as_ref();
        t.whole("events", c.map(|c| c.events as i64));
        t.whole("lost_events", c.map(|c| c.lost_events as i64));
        t.real("capture_throughput_ratio", c.and_then(|c| c.throughput_ratio));
    }
    t
}

fn roots(result: &RunResult) -> Table {
    let mut t = Table::new();
    for p in &result.points {
        for (rank, r) in p.roots.iter().enumerate() {
            t.point(result, p);
            t.whole("rank", Some(rank as i64 + 1));
            t.text("kind", Some(r.lock.kind.words()));
            t.truth("is_lock", Some(r.lock.kind.is_lock()));
            t.text("class", Some(&r.lock.class));
            t.text("object", r.lock.object.as_deref());
            t.real("idle_us_per_op", r.idle_us_per_op);
            // CPUs that stand idle for it, on average: what can be added up over workloads and hosts.
            let idle_cpus = match (r.idle_us_per_op, p.rate(), &p.recorded) {
                (Some(us), Some(rate), _) => Some(us * rate / 1e6),
                (_, _, Some(seen)) if seen.wall_s > 0.0 => r.idle_cpu_s.map(|s| s / seen.wall_s),
                _ => None,
            };
            t.real("idle_cpus", idle_cpus);
            t.real("share_of_idle", r.share_of_idle);
            t.real("wait_us_per_op", r.wait_us_per_op);
            t.real("wait_s", r.wait_s);
            t.real("spin_us_per_op", r.spin_us_per_op);
            t.truth("latent", Some(r.latent));
            t.truth("disturbed", Some(r.disturbed));
            let s = r.split.as_ref();
            t.real("holder_running", s.map(|s| s.holder_running));
            t.real("holder_blocked", s.map(|s| s.holder_blocked));
            t.real("holder_runnable", s.map(|s| s.holder_runnable));
            t.real("hand_off", s.map(|s| s.hand_off));
            t.real("hand_off_cpu_idle", s.map(|s| s.hand_off_cpu_idle));
            t.real("hand_off_cpu_busy", s.map(|s| s.hand_off_cpu_busy));
            t.real("unknown", s.map(|s| s.unknown));
            t.text("first_holder", r.holders.first().map(|h| h.comm.as_str()));
            t.text("first_path", r.paths.first().map(|p| p.stack.join(";")).as_deref());
        }
    }
    t
}

fn waits(result: &RunResult) -> Table {
    let mut t = Table::new();
    for p in &result.points {
        for r in &p.roots {
            let own =
                (r.lock.kind, r.lock.class.as_str(), r.lock.object.as_deref(), r.wait_us_per_op, r.wait_s);
            let through = r
                .waits_through
                .iter()
                .map(|w| (w.kind, w.class.as_str(), w.object.as_deref(), w.wait_us_per_op, w.wait_s));
            for (i, (kind, class, object, us, s)) in std::iter::once(own).chain(through).enumerate() {
                t.point(result, p);
                t.text("kind", Some(kind.words()));
                t.text("class", Some(class));
                t.text("object", object);
                t.truth("is_root", Some(i == 0));
                t.text("root_class", Some(&r.lock.class));
                t.text("root_object", r.lock.object.as_deref());
                t.real("wait_us_per_op", us);
                t.real("wait_s", s);
            }
        }
    }
    t
}
