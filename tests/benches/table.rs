//! What is printed: figures, what they are held against, and the table of both. It measures nothing.

use std::fmt;

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Calls per second.
    PerSecond,
    /// 2^20 bytes.
    Mebibytes,
    /// 10^6 bytes per second.
    MegabytesPerSecond,
}

/// The values of several runs of one thing.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    unit: Unit,
    /// In ascending order, never empty.
    values: Vec<f64>,
}

impl Figure {
    /// The figure of these runs, of which there is one at least.
    pub(crate) fn of(unit: Unit, mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "a figure of no run");
        values.sort_by(f64::total_cmp);
        Self { unit, values }
    }

    /// The middle one of the runs.
    pub(crate) fn median(&self) -> f64 {
        median_of_sorted(&self.values)
    }
}

/// The middle one of some values, of which there is one at least.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    median_of_sorted(&values)
}

fn median_of_sorted(values: &[f64]) -> f64 {
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, digits) = match self.unit {
            Unit::Milliseconds => ("ms", 2),
            Unit::Seconds => ("s", 2),
            Unit::PerSecond => ("/s", 0),
            Unit::Mebibytes => ("MiB", 1),
            Unit::MegabytesPerSecond => ("MB/s", 0),
        };
        write!(f, "{:.digits$} {name}", self.median())?;
        if let [first, .., last] = self.values[..] {
            write!(f, " ({first:.digits$}–{last:.digits$})")?;
        }
        Ok(())
    }
}

/// What is to be reached, by the medians.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// Ours may be at most so many times the peer's.
    RatioAtMost(f64),
    /// Ours must be at least so many times the peer's.
    RatioAtLeast(f64),
    /// Ours may be at most this.
    AtMost(f64),
    /// Ours must be at least this.
    AtLeast(f64),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RatioAtMost(limit) => write!(f, "≤ {limit} ×"),
            Self::RatioAtLeast(limit) => write!(f, "≥ {limit} ×"),
            Self::AtMost(limit) => write!(f, "≤ {limit}"),
            Self::AtLeast(limit) => write!(f, "≥ {limit}"),
        }
    }
}

/// A line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    what: String,
    peer: Option<(&'static str, Figure)>,
    ours: Figure,
    target: Option<Target>,
}

impl Row {
    /// A line without peer and target.
    pub(crate) fn new(what: impl Into<String>, ours: &Figure) -> Self {
        Self { what: what.into(), peer: None, ours: ours.clone(), target: None }
    }

    /// Sets what ours is measured beside.
    pub(crate) fn beside(mut self, name: &'static str, figure: Figure) -> Self {
        self.peer = Some((name, figure));
        self
    }

    /// Sets what is to be reached.
    pub(crate) fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    fn ratio(&self) -> Option<f64> {
        self.peer.as_ref().map(|(_, figure)| self.ours.median() / figure.median())
    }

    fn is_met(&self) -> Option<bool> {
        let ours = self.ours.median();
        Some(match self.target? {
            Target::RatioAtMost(limit) => self.ratio()? <= limit,
            Target::RatioAtLeast(limit) => self.ratio()? >= limit,
            Target::AtMost(limit) => ours <= limit,
            Target::AtLeast(limit) => ours >= limit,
        })
    }

    fn cells(&self) -> [String; 6] {
        [
            self.what.clone(),
            self.peer.as_ref().map(|(name, figure)| format!("{name}: {figure}")).unwrap_or_default(),
            self.ours.to_string(),
            self.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            self.target.map(|target| target.to_string()).unwrap_or_default(),
            self.is_met().map(|met| if met { "yes" } else { "no" }.to_owned()).unwrap_or_default(),
        ]
    }
}

/// Prints the rows as a table of Markdown.
pub(crate) fn print(rows: &[Row]) {
    let head = ["what", "peer", "ours", "ratio", "target", "met"].map(str::to_owned);
    let lines: Vec<[String; 6]> = std::iter::once(head).chain(rows.iter().map(Row::cells)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    for (number, line) in lines.iter().enumerate() {
        let cells = line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        println!("| {} |", cells.collect::<Vec<_>>().join(" | "));
        if number == 0 {
            let rules = widths.iter().map(|&width| "-".repeat(width));
            println!("| {} |", rules.collect::<Vec<_>>().join(" | "));
        }
    }
}
