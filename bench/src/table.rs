//! Markdown tables.

use std::fmt;

/// A table; its cells are text.
#[derive(Debug)]
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    pub(crate) fn new(header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row; cells that are missing at its end are empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().collect();
        row.resize(self.header.len(), String::new());
        self.rows.push(row);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = || std::iter::once(&self.header).chain(&self.rows);
        let width = |column: usize| lines().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        for (number, line) in lines().enumerate() {
            for (cell, width) in line.iter().zip(&widths) {
                write!(f, "| {cell:width$} ")?;
            }
            writeln!(f, "|")?;
            if number == 0 {
                for width in &widths {
                    write!(f, "|{:-<1$}", "", width + 2)?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

/// A figure with thousands separators and as many decimals as it needs for three digits; a dash where there is none.
pub(crate) fn figure(value: Option<f64>) -> String {
    let Some(value) = value else { return "–".into() };
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
    match digits.split_once('.') {
        None => format!("{sign}{}", grouped(digits)),
        Some((whole, fraction)) => format!("{sign}{}.{fraction}", grouped(whole)),
    }
}

/// A number of things.
pub(crate) fn count(number: usize) -> String {
    grouped(&number.to_string())
}

fn grouped(digits: &str) -> String {
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Several figures in one cell.
pub(crate) fn figures(values: impl IntoIterator<Item = Option<f64>>) -> String {
    values.into_iter().map(figure).collect::<Vec<_>>().join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["load", "µs"]);
        table.row(["produce".into(), "1".into()]);
        table.row(["x".into()]);
        let expected = "| load    | µs |\n|---------|----|\n| produce | 1  |\n| x       |    |\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn three_digits_or_all_that_stand_before_the_point() {
        let cases = [
            (0.0, "0.00"),
            (0.456, "0.46"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1234.0, "1,234"),
            (123_456.0, "123,456"),
            (1_234_567.0, "1,234,567"),
            (-1234.0, "-1,234"),
        ];
        for (value, text) in cases {
            assert_eq!(figure(Some(value)), text);
        }
        assert_eq!(figure(None), "–");
        assert_eq!([7, 1234, 100_000].map(count), ["7", "1,234", "100,000"]);
        assert_eq!(figures([Some(1.0), None]), "1.00 / –");
    }
}
