//! What must hold of the records in the log and of those that a group has read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::peers::{Delivered, Record};

/// Index of the record with this key.
fn index_of(record: &Record) -> Option<usize> {
    record.key.strip_prefix("key-")?.parse().ok()
}

/// The first of several findings, and how many there are: one line for the table's reader.
fn summary(findings: &[String]) -> Result<(), String> {
    match findings {
        [] => Ok(()),
        [only] => Err(only.clone()),
        [first, rest @ ..] => Err(format!("{first} (and {} more)", rest.len())),
    }
}

/// Every record of `sent` was acknowledged once, in the order of its partition as far as offsets were told.
pub(super) fn delivered(delivered: &[Delivered], sent: &Range<usize>) -> Result<(), String> {
    let mut findings = Vec::new();
    let mut missing: BTreeSet<usize> = sent.clone().collect();
    let mut by_offset: BTreeMap<i32, BTreeMap<i64, usize>> = BTreeMap::new();
    for record in delivered {
        if !missing.remove(&record.index) {
            findings.push(format!("record {} was acknowledged twice, or never sent", record.index));
        }
        if record.offset >= 0 {
            let former = by_offset.entry(record.partition).or_default().insert(record.offset, record.index);
            if let Some(former) = former {
                findings.push(format!("records {former} and {} have one offset", record.index));
            }
        }
    }
    findings.extend(
        missing.first().map(|first| format!("{} of {} not acknowledged, from {first} on", missing.len(), sent.len())),
    );
    for (partition, records) in by_offset {
        let indices: Vec<usize> = records.into_values().collect();
        if let Some(pair) = indices.windows(2).find(|pair| pair[0] > pair[1]) {
            findings.push(format!("in partition {partition} record {} was written before {}", pair[0], pair[1]));
        }
    }
    summary(&findings)
}

/// The log holds every record of `sent` once and nothing else, in the order of each partition, without holes up to `ends`.
pub(super) fn log(records: &[Record], ends: &[i64], sent: &[Range<usize>]) -> Result<(), String> {
    let mut findings = Vec::new();
    let mut missing: BTreeSet<usize> = sent.iter().cloned().flatten().collect();
    let mut last: BTreeMap<i32, usize> = BTreeMap::new();
    let mut next: BTreeMap<i32, i64> = BTreeMap::new();
    for record in records {
        let next = next.entry(record.partition).or_default();
        if record.offset != *next {
            findings.push(format!("offset {} follows {} in partition {}", record.offset, *next - 1, record.partition));
        }
        *next = record.offset + 1;
        let Some(index) = index_of(record).filter(|index| record.value == format!("value-{index}")) else {
            findings.push(format!("nobody sent {}: {}", record.key, record.value));
            continue;
        };
        if !missing.remove(&index) {
            findings.push(format!("record {index} is there twice, or was never sent"));
        }
        if let Some(former) = last.insert(record.partition, index).filter(|former| *former > index) {
            findings.push(format!("record {former} stands before {index} in partition {}", record.partition));
        }
    }
    for (partition, end) in (0..).zip(ends) {
        let read = next.get(&partition).copied().unwrap_or_default();
        if read != *end {
            findings.push(format!("partition {partition} ends at {end}, and was read up to {read}"));
        }
    }
    findings.extend(missing.first().map(|first| format!("{} records lost, the first is {first}", missing.len())));
    summary(&findings)
}

/// The members of a group have together read every record of `sent` that they were to read, each as it was sent, and no
/// member went back in a partition but to read again what had been read. How many records were read more than once.
pub(super) fn read(members: &[&[Record]], sent: &[Range<usize>]) -> Result<usize, String> {
    let mut findings = Vec::new();
    let mut missing: BTreeSet<usize> = sent.iter().cloned().flatten().collect();
    let mut places: BTreeMap<(i32, i64), usize> = BTreeMap::new();
    let mut again = 0;
    for record in members.iter().copied().flatten() {
        let Some(index) = index_of(record).filter(|index| record.value == format!("value-{index}")) else {
            findings.push(format!("nobody sent {}: {}", record.key, record.value));
            continue;
        };
        if let Some(former) = places.insert((record.partition, record.offset), index) {
            again += 1;
            if former != index {
                findings.push(format!("records {former} and {index} were read at one place"));
            }
        } else if !missing.remove(&index) {
            findings.push(format!("record {index} was read at two places, or was never sent"));
        }
    }
    for (number, records) in members.iter().enumerate() {
        let mut seen: BTreeSet<(i32, i64)> = BTreeSet::new();
        let mut last: BTreeMap<i32, i64> = BTreeMap::new();
        for record in *records {
            let new = seen.insert((record.partition, record.offset));
            let former = last.insert(record.partition, record.offset);
            let elsewhere = members.iter().enumerate().any(|(other, records)| {
                other != number && records.iter().any(|r| (r.partition, r.offset) == (record.partition, record.offset))
            });
            if new && !elsewhere && former.is_some_and(|former| former > record.offset) {
                findings.push(format!("offset {} was read late in partition {}", record.offset, record.partition));
            }
        }
    }
    findings.extend(missing.first().map(|first| format!("{} records not read, the first is {first}", missing.len())));
    summary(&findings).map(|()| again)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(partition: i32, offset: i64, index: usize) -> Record {
        Record { partition, offset, key: format!("key-{index}"), value: format!("value-{index}") }
    }

    fn one(run: Range<usize>) -> Vec<Range<usize>> {
        vec![run]
    }

    fn acknowledged(index: usize, partition: i32, offset: i64) -> Delivered {
        Delivered { index, partition, offset }
    }

    #[test]
    fn acknowledgements() {
        let [zero, two] = [acknowledged(0, 0, 5), acknowledged(2, 0, 6)];
        let one = acknowledged(1, 1, -1);
        assert_eq!(delivered(&[two, one, zero], &(0..3)), Ok(()), "as they come");
        for wrong in [
            vec![zero, one],
            vec![zero, one, two, one],
            vec![acknowledged(0, 0, 7), one, two],
            vec![acknowledged(0, 0, 6), one, two],
        ] {
            assert!(delivered(&wrong, &(0..3)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn logs() {
        let whole = [record(0, 0, 0), record(1, 0, 1), record(0, 1, 2), record(0, 2, 10)];
        assert_eq!(log(&whole, &[3, 1], &[0..3, 10..11]), Ok(()));
        assert_eq!(log(&whole, &[4, 1], &[0..3, 10..11]), Err("partition 0 ends at 4, and was read up to 3".into()));
        assert_eq!(log(&whole, &[3, 1], &[0..4, 10..11]), Err("1 records lost, the first is 3".into()));
        assert!(log(&whole, &[3, 1], &one(0..3)).is_err(), "a record that nobody sent");
        let twice = [record(0, 0, 0), record(0, 1, 1), record(0, 2, 1)];
        assert_eq!(log(&twice, &[3], &one(0..2)), Err("record 1 is there twice, or was never sent".into()));
        let turned = [record(0, 0, 1), record(0, 1, 0)];
        assert_eq!(log(&turned, &[2], &one(0..2)), Err("record 1 stands before 0 in partition 0".into()));
        let hole = [record(0, 0, 0), record(0, 2, 1)];
        assert_eq!(log(&hole, &[3], &one(0..2)), Err("offset 2 follows 0 in partition 0".into()));
        let other = Record { value: "value-7".into(), ..record(0, 0, 0) };
        assert!(log(&[other], &[1], &one(0..1)).is_err());
    }

    #[test]
    fn readings() {
        let (a, b) = ([record(0, 0, 0), record(0, 1, 2)], [record(1, 0, 1)]);
        assert_eq!(read(&[&a, &b], &one(0..3)), Ok(0));
        assert_eq!(read(&[&a], &one(0..3)), Err("1 records not read, the first is 1".into()));
        let again = [record(0, 0, 0), record(0, 1, 2), record(0, 0, 0), record(0, 1, 2)];
        assert_eq!(read(&[&again, &b], &one(0..3)), Ok(2), "a member went back to what was not committed");
        let late = [record(0, 1, 2), record(0, 0, 0)];
        assert_eq!(read(&[&late, &b], &one(0..3)), Err("offset 0 was read late in partition 0".into()));
        let elsewhere = [record(2, 0, 1)];
        assert!(read(&[&a, &b, &elsewhere], &one(0..3)).is_err(), "one record at two places");
    }
}
