//! Whether an answer is the right one. A wrong one ends the run: a proxy can be fast in many wrong ways.

use crate::failure::Failure;
use crate::frames::Fields;

/// What an answer must say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    /// Id of the oldest request that is not answered.
    pub(crate) correlation_id: i32,
    /// The partitions of that request, each to be answered once, in any order.
    pub(crate) partitions: &'a [i32],
    /// Of a fetch: bytes of records of each partition.
    pub(crate) records: usize,
}

impl Expected<'_> {
    /// Looks at an answer to Produce 7.
    pub(crate) fn check_produced(self, frame: &[u8]) -> Result<(), Failure> {
        let mut fields = Fields::of(frame);
        self.check(&mut fields, 0, |fields| {
            // Base offset, append time, log start.
            fields.bytes(8 + 8 + 8).map(|_| 0)
        })?;
        match (fields.i32(), fields.is_empty()) {
            (Some(_throttle_time), true) => Ok(()),
            _ => Err(self.wrong("its end is not where it should be")),
        }
    }

    /// Looks at an answer to Fetch 11.
    pub(crate) fn check_fetched(self, frame: &[u8]) -> Result<(), Failure> {
        let mut fields = Fields::of(frame);
        self.check(&mut fields, 4 + 2 + 4, |fields| {
            // High watermark, last stable offset, log start.
            fields.bytes(8 + 8 + 8)?;
            let aborted = usize::try_from(fields.i32()?).unwrap_or(0);
            fields.bytes(aborted.checked_mul(16)?)?;
            let _preferred_replica = fields.i32()?;
            fields.long_bytes().map(<[u8]>::len)
        })?;
        if fields.is_empty() { Ok(()) } else { Err(self.wrong("its end is not where it should be")) }
    }

    /// Reads everything up to the end of the topics. `body` reads a partition behind its error code, and tells how many
    /// bytes of records it has.
    fn check(
        self,
        fields: &mut Fields<'_>,
        before_topics: usize,
        body: impl Fn(&mut Fields<'_>) -> Option<usize>,
    ) -> Result<(), Failure> {
        let short = || self.wrong("it ends too early");
        let correlation_id = fields.i32().ok_or_else(short)?;
        if correlation_id != self.correlation_id {
            return Err(self.wrong(&format!("it answers request {correlation_id}")));
        }
        let head = fields.bytes(before_topics).ok_or_else(short)?;
        if let Some(error) = head.get(4..6).filter(|error| **error != [0, 0]) {
            return Err(self.wrong(&format!("error {error:?} of the whole request")));
        }
        let mut seen = 0_u64;
        for _ in 0..fields.i32().ok_or_else(short)? {
            fields.string().ok_or_else(short)?;
            for _ in 0..fields.i32().ok_or_else(short)? {
                let partition = fields.i32().ok_or_else(short)?;
                let error = fields.i16().ok_or_else(short)?;
                let records = body(fields).ok_or_else(short)?;
                if error != 0 {
                    return Err(self.wrong(&format!("error {error} of partition {partition}")));
                }
                if records != self.records {
                    return Err(self.wrong(&format!("{records} bytes of partition {partition}, not {}", self.records)));
                }
                let bit = 1_u64.checked_shl(partition as u32).unwrap_or(0);
                if !self.partitions.contains(&partition) || seen & bit != 0 {
                    return Err(self.wrong(&format!("partition {partition} was not asked for, or answered twice")));
                }
                seen |= bit;
            }
        }
        if seen.count_ones() as usize == self.partitions.len() {
            return Ok(());
        }
        Err(self.wrong(&format!("{} of {} partitions answered", seen.count_ones(), self.partitions.len())))
    }

    fn wrong(self, what: &str) -> Failure {
        Failure::new(format!("a wrong answer to request {}: {what}", self.correlation_id))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafscale_proxy_core::kafka::{
        ErrorCode, FetchResponse, FetchableTopicResponse, PartitionData, PartitionProduceResponse, ProduceResponse,
        TopicProduceResponse, response_frame,
    };

    use super::*;

    const EXPECTED: Expected<'_> = Expected { correlation_id: 7, partitions: &[2, 5], records: 0 };

    fn produced(correlation_id: i32, partitions: &[(i32, i16)]) -> Bytes {
        let answer = |(index, error): &(i32, i16)| PartitionProduceResponse {
            index: *index,
            error_code: ErrorCode(*error),
            ..PartitionProduceResponse::default()
        };
        let partition_responses = partitions.iter().map(answer).collect();
        let topic = TopicProduceResponse { name: "t".into(), partition_responses };
        let response = ProduceResponse { responses: vec![topic], ..ProduceResponse::default() };
        response_frame(correlation_id, 7, &response).slice(4..)
    }

    fn fetched(error_code: i16, partitions: &[(i32, &'static [u8])]) -> Bytes {
        let answer = |(index, records): &(i32, &'static [u8])| PartitionData {
            partition_index: *index,
            records: Some(Bytes::from_static(records)),
            ..PartitionData::default()
        };
        let topic = FetchableTopicResponse {
            topic: "t".into(),
            partitions: partitions.iter().map(answer).collect(),
            ..FetchableTopicResponse::default()
        };
        let response =
            FetchResponse { error_code: ErrorCode(error_code), responses: vec![topic], ..FetchResponse::default() };
        response_frame(7, 11, &response).slice(4..)
    }

    #[test]
    fn answers_to_produce() {
        let cases: [(&str, Bytes, bool); 7] = [
            ("as asked", produced(7, &[(2, 0), (5, 0)]), true),
            ("in another order", produced(7, &[(5, 0), (2, 0)]), true),
            ("of another request", produced(8, &[(2, 0), (5, 0)]), false),
            ("with an error", produced(7, &[(2, 0), (5, 6)]), false),
            ("one partition missing", produced(7, &[(2, 0)]), false),
            ("one partition twice", produced(7, &[(2, 0), (2, 0)]), false),
            ("one partition too many", produced(7, &[(2, 0), (5, 0), (1, 0)]), false),
        ];
        for (case, frame, right) in cases {
            assert_eq!(EXPECTED.check_produced(&frame).is_ok(), right, "{case}");
        }
        let frame = produced(7, &[(2, 0), (5, 0)]);
        for length in 0..frame.len() {
            assert!(EXPECTED.check_produced(&frame[..length]).is_err(), "cut to {length} bytes");
        }
    }

    #[test]
    fn answers_to_fetch() {
        let expected = Expected { records: 3, ..EXPECTED };
        let cases: [(&str, Bytes, bool); 4] = [
            ("as asked", fetched(0, &[(2, b"abc"), (5, b"def")]), true),
            ("an error of all", fetched(1, &[(2, b"abc"), (5, b"def")]), false),
            ("too few records", fetched(0, &[(2, b"abc"), (5, b"de")]), false),
            ("one partition missing", fetched(0, &[(5, b"abc")]), false),
        ];
        for (case, frame, right) in cases {
            assert_eq!(expected.check_fetched(&frame).is_ok(), right, "{case}");
        }
        let frame = fetched(0, &[(2, b"abc"), (5, b"def")]);
        for length in 0..frame.len() {
            assert!(expected.check_fetched(&frame[..length]).is_err(), "cut to {length} bytes");
        }
    }
}
