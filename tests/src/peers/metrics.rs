//! A page of metrics, as far as tests look at it.

use std::collections::BTreeMap;

/// Samples of a page by series: name and labels as the page writes them.
#[derive(Clone, Debug)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Reads Prometheus text.
    ///
    /// # Panics
    /// When a line is none of it.
    pub fn read(page: &str) -> Self {
        let samples = page.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
            (series.to_owned(), value.parse().unwrap_or_else(|error| panic!("{error}: {line}")))
        });
        Self(samples.collect())
    }

    /// The sum of all series of this name whose labels contain all of `labels`, each as `name="value"`.
    ///
    /// # Panics
    /// When there is no such series.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let is_wanted = |series: &&String| {
            let (its_name, its_labels) = series.split_once('{').unwrap_or((series.as_str(), ""));
            its_name == name && labels.iter().all(|label| its_labels.contains(label))
        };
        let mut values = self.0.iter().filter(|(series, _)| is_wanted(series)).map(|(_, value)| *value).peekable();
        assert!(values.peek().is_some(), "no {name} with {labels:?}");
        values.sum()
    }
}
