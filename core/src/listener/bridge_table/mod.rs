//! Every API and version that reaches brokers: each field of a drawn request and of a drawn answer is carried, or stands
//! as its row says, or the request is refused. The independent codec reads both ends.

mod fields;
mod rows;
mod samples;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use bytes::Bytes;
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::Decodable;

use super::rig::{Does, Rig};
use crate::config::ClusterConfig;
use crate::kafka::tests::{Sampled, encoded};
use crate::kafka::{self as ours, ApiKey, Message, advertised, advertised_versions};
use crate::random::Random;
use fields::{Field, fields, values};
use rows::{End, ROWS, Row, Stands};
use samples::Asked;

/// Requests drawn per API and version.
const DRAWS: u64 = 40;
/// Bytes that a message is drawn from.
const BYTES: usize = 300;

/// What went through the proxy, as the independent codec reads it.
struct Passage {
    api: ApiKey,
    version: i16,
    asked: Vec<Field>,
    forwarded: Vec<Field>,
    answered: Vec<Field>,
    got: Vec<Field>,
}

/// How a message is read: by the independent codec, or by ours where that one has forgotten the client's version.
fn reader<Ours, Theirs>(version: i16) -> impl Fn(&Bytes, i16) -> Vec<Field>
where
    Ours: Message + Debug,
    Theirs: Decodable + kafka_protocol::protocol::Message + Debug,
{
    let knows = (Theirs::VERSIONS.min..=Theirs::VERSIONS.max).contains(&version);
    move |body, version| {
        if !knows {
            return fields(&Ours::decode(body, version).expect("ours decodes ours"));
        }
        let mut rest = body.clone();
        let message = Theirs::decode(&mut rest, version).expect("theirs decodes ours");
        assert!(rest.is_empty(), "{message:?}");
        fields(&message)
    }
}

/// The row with the longest path that is this one or leads to it.
fn row_of(api: ApiKey, end: End, version: i16, path: &str) -> Option<usize> {
    let leads = |row: &Row| path.strip_prefix(row.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let applies = |row: &Row| row.api == api && row.end == end && (row.from..=row.to).contains(&version) && leads(row);
    let found = ROWS.iter().enumerate().filter(|(_, row)| applies(row));
    found.max_by_key(|(_, row)| row.path.len()).map(|(number, _)| number)
}

impl Passage {
    /// The code that the table refuses the request with, if it does.
    fn refusal(&self, used: &mut BTreeSet<usize>) -> Option<i16> {
        let mut refusal = None;
        for (path, value) in &self.asked {
            if let Some(number) = row_of(self.api, End::Request, self.version, path)
                && let Stands::Refused { unless, code } = ROWS[number].stands
                && !unless.contains(&value.as_str())
            {
                used.insert(number);
                refusal = Some(code);
            }
        }
        refusal
    }

    fn check(&self, end: End, used: &mut BTreeSet<usize>) {
        let (from, to) = match end {
            End::Request => (&self.asked, &self.forwarded),
            End::Answer => (&self.answered, &self.got),
        };
        let by_row = |fields: &[Field]| {
            let mut by_row: BTreeMap<Option<usize>, Vec<Field>> = BTreeMap::new();
            for field in fields {
                by_row.entry(row_of(self.api, end, self.version, &field.0)).or_default().push(field.clone());
            }
            by_row
        };
        let (from, to) = (by_row(from), by_row(to));
        assert_eq!(from.get(&None), to.get(&None), "{:?} {} {end:?}", self.api, self.version);
        for (number, row) in ROWS.iter().enumerate() {
            let place = Some(number);
            if from.get(&place) != to.get(&place) {
                used.insert(number);
                let exact = to.get(&place).into_iter().flatten().filter(|(path, _)| path == row.path);
                exact.for_each(|field| self.check_row(row, field));
            }
        }
    }

    fn check_row(&self, row: &Row, (path, value): &Field) {
        let at = format!("{:?} {} {:?} {path}", self.api, self.version, row.end);
        match row.stands {
            Stands::As(expected) => assert_eq!(value, expected, "{at}"),
            Stands::AsAsked(field) => assert_eq!([value.as_str()], values(&self.asked, field)[..], "{at}"),
            Stands::AsAnswered(field) => assert_eq!([value.as_str()], values(&self.answered, field)[..], "{at}"),
            Stands::Own => {}
            Stands::Refused { unless, .. } => assert!(unless.contains(&value.as_str()), "{at}: {value}"),
        }
    }
}

/// One draw: through the machine to a broker and back.
fn pass<R, TheirRequest, TheirAnswer>(version: i16, random: &mut Random, used: &mut BTreeSet<usize>)
where
    R: Asked + Sampled + Debug,
    R::Response: Sampled + Debug,
    TheirRequest: Decodable + kafka_protocol::protocol::Message + Debug,
    TheirAnswer: Decodable + kafka_protocol::protocol::Message + Debug,
{
    let request_fields = reader::<R, TheirRequest>(version);
    let answer_fields = reader::<R::Response, TheirAnswer>(version);
    let mut drawn = || -> Vec<u8> { (0..BYTES).map(|_| random.below(256) as u8).collect() };
    let mut request = R::sampled(&drawn(), version);
    request.fit();
    let answer_drawn = drawn();
    let mut forwarded = None;
    let mut answered = Vec::new();
    let mut rig = Rig::new(1, &["longer than drawn"]);
    let ended = rig.learn().run(version, &request, |sent| {
        forwarded.get_or_insert_with(|| request_fields(&sent.body, sent.version));
        let answer = sent.request::<R>().tie(R::Response::sampled(&answer_drawn, sent.version));
        answered = answer_fields(&encoded(&answer, sent.version), sent.version);
        Does::answer(sent, &answer)
    });
    let passage = Passage {
        api: R::KEY,
        version,
        asked: request_fields(&encoded(&request, version), version),
        answered,
        got: answer_fields(&ended.body::<R::Response>(), version),
        forwarded: forwarded.clone().unwrap_or_default(),
    };
    match passage.refusal(used) {
        Some(code) => {
            assert_eq!(forwarded, None, "{:?} {version}", R::KEY);
            let codes: Vec<_> = passage.got.iter().filter(|(path, _)| path.ends_with("error_code")).collect();
            assert!(!codes.is_empty(), "{:?} {version}: {:?}", R::KEY, passage.got);
            assert!(codes.iter().all(|(_, found)| *found == code.to_string()), "{:?} {version}: {codes:?}", R::KEY);
        }
        None => {
            assert!(forwarded.is_some(), "{:?} {version}: {:?}", R::KEY, passage.got);
            passage.check(End::Request, used);
            passage.check(End::Answer, used);
        }
    }
}

#[test]
fn every_field_is_carried_or_stands_as_its_row_says() {
    let cluster = ClusterConfig::default();
    // What the proxy answers by itself, and Produce, whose batches go on as they came.
    let mut walked = vec![ApiKey::ApiVersions, ApiKey::Metadata, ApiKey::FindCoordinator, ApiKey::Produce];
    let mut used = BTreeSet::new();
    let mut random = Random::new([6; 32]);
    macro_rules! walk {
        ($($request:ident $response:ident,)*) => {$(
            walked.push(ours::$request::KEY);
            for version in advertised_versions(&cluster, ours::$request::KEY).unwrap().iter() {
                for _ in 0..DRAWS {
                    pass::<ours::$request, theirs::$request, theirs::$response>(version, &mut random, &mut used);
                }
            }
        )*};
    }
    walk! {
        FetchRequest FetchResponse,
        ListOffsetsRequest ListOffsetsResponse,
        OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse,
        JoinGroupRequest JoinGroupResponse,
        SyncGroupRequest SyncGroupResponse,
        HeartbeatRequest HeartbeatResponse,
        LeaveGroupRequest LeaveGroupResponse,
        OffsetCommitRequest OffsetCommitResponse,
        OffsetFetchRequest OffsetFetchResponse,
        DescribeGroupsRequest DescribeGroupsResponse,
        ListGroupsRequest ListGroupsResponse,
        DeleteGroupsRequest DeleteGroupsResponse,
        DescribeConfigsRequest DescribeConfigsResponse,
        AlterConfigsRequest AlterConfigsResponse,
        CreatePartitionsRequest CreatePartitionsResponse,
        CreateTopicsRequest CreateTopicsResponse,
        DeleteTopicsRequest DeleteTopicsResponse,
    }
    for (api, _) in advertised(&cluster) {
        assert!(walked.contains(&api), "{api:?}");
    }
    for (number, row) in ROWS.iter().enumerate() {
        assert!(used.contains(&number), "no draw needs {row:?}");
    }
}
