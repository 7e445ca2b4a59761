//! Topics: Metadata, creation, deletion, widening, and their settings.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::job::{Answer, Job, Writing};
use super::log::SharedLog;
use super::snapshot::{SNAPSHOT_KEY, SnapshotTopic, TopicRefusal};
use super::{BrokerModel, keys};
use crate::etcd::Keys;
use crate::kafka::{
    AlterConfigsRequest, AlterConfigsResource, AlterConfigsResourceResponse, AlterConfigsResponse,
    CreatableTopicResult, CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
    CreatePartitionsTopicResult, CreateTopicsRequest, CreateTopicsResponse, DeletableTopicResult, DeleteTopicsRequest,
    DeleteTopicsResponse, DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
    DescribeConfigsResponse, DescribeConfigsResult, ErrorCode, MetadataRequest, MetadataRequestTopic, MetadataResponse,
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic, Str,
};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// Sources of a setting (DescribeConfigs).
const SOURCE_TOPIC: i8 = 1;
const SOURCE_DEFAULT: i8 = 5;

/// Types of a setting (DescribeConfigs).
const TYPE_STRING: i8 = 2;
const TYPE_INT: i8 = 3;
const TYPE_LONG: i8 = 5;

/// Segments are cut at 4 MiB unless the topic says otherwise.
const SEGMENT_BYTES: i64 = 4 << 20;

/// Settings of a topic, as they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TopicConfig {
    retention_ms: i64,
    retention_bytes: i64,
    segment_bytes: i64,
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self { retention_ms: -1, retention_bytes: -1, segment_bytes: 0 }
    }
}

impl TopicConfig {
    /// Sets one setting from text.
    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), ErrorCode> {
        let number: i64 = value.and_then(|value| value.trim().parse().ok()).ok_or(ErrorCode::INVALID_CONFIG)?;
        match name {
            "retention.ms" if number >= -1 => self.retention_ms = number,
            "retention.bytes" if number >= -1 => self.retention_bytes = number,
            "segment.bytes" if number > 0 => self.segment_bytes = number,
            _ => return Err(ErrorCode::INVALID_CONFIG),
        }
        Ok(())
    }
}

fn refusal(refusal: TopicRefusal, invalid: ErrorCode) -> (ErrorCode, Option<Str>) {
    match refusal {
        TopicRefusal::Exists => (ErrorCode::TOPIC_ALREADY_EXISTS, Some(Str::from_static("topic already exists"))),
        TopicRefusal::Unknown => (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, Some(Str::from_static("unknown topic"))),
        TopicRefusal::Invalid => (invalid, Some(Str::from_static("invalid topic configuration"))),
    }
}

/// What became of each item of a request: no error, or a code with its text.
type ItemResult = (ErrorCode, Option<Str>);

/// The same when etcd did not take the change.
fn unless_written(result: &ItemResult) -> ItemResult {
    if result.0.is_none() { (ErrorCode::UNKNOWN_SERVER_ERROR, None) } else { result.clone() }
}

impl BrokerModel {
    pub(super) fn answer_metadata(&self, request: &MetadataRequest) -> MetadataResponse {
        let topics = match request.topics.as_deref() {
            None | Some([]) => self.snapshot.topics.iter().map(described).collect(),
            Some(asked) => {
                // One id among the topics is enough for those without an id to be left out.
                let by_id = asked.iter().any(|topic| topic.topic_id != [0; 16]);
                let wanted = asked.iter().filter(|topic| !by_id || topic.topic_id != [0; 16]);
                wanted.map(|topic| self.described_topic(topic)).collect()
            }
        };
        MetadataResponse {
            brokers: self
                .snapshot
                .brokers
                .iter()
                .map(|broker| MetadataResponseBroker {
                    node_id: broker.node_id,
                    host: broker.host.as_str().into(),
                    port: broker.port,
                    rack: broker.rack.as_deref().map(Str::from),
                })
                .collect(),
            cluster_id: self.snapshot.cluster_id.as_deref().map(Str::from),
            controller_id: self.snapshot.controller_id,
            topics,
            ..MetadataResponse::default()
        }
    }

    fn described_topic(&self, asked: &MetadataRequestTopic) -> MetadataResponseTopic {
        let by_id = asked.topic_id != [0; 16];
        let found = match asked.name.as_deref() {
            _ if by_id => self.snapshot.topic_by_id(&asked.topic_id),
            Some(name) => self.snapshot.topic(name),
            None => None,
        };
        found.map(described).unwrap_or_else(|| MetadataResponseTopic {
            error_code: if by_id { ErrorCode::UNKNOWN_TOPIC_ID } else { ErrorCode::UNKNOWN_TOPIC_OR_PARTITION },
            name: asked.name.clone(),
            topic_id: asked.topic_id,
            topic_authorized_operations: 0,
            ..MetadataResponseTopic::default()
        })
    }

    pub(super) fn answer_create_topics(&mut self, job: &Job, request: &CreateTopicsRequest) -> Answer {
        let head = job.head;
        let results: Vec<ItemResult> = request
            .topics
            .iter()
            .map(|topic| {
                if !self.available {
                    return (ErrorCode::REQUEST_TIMED_OUT, Some(Str::from_static("etcd unavailable")));
                }
                let created = if request.validate_only {
                    self.snapshot.check_create(&topic.name, topic.num_partitions, topic.replication_factor)
                } else {
                    self.snapshot.create(&topic.name, topic.num_partitions, topic.replication_factor)
                };
                created.map_or_else(|no| refusal(no, ErrorCode::INVALID_TOPIC_EXCEPTION), |()| ItemResult::default())
            })
            .collect();
        let frame = |results: Vec<ItemResult>| {
            let topics = request.topics.iter().zip(results);
            let topics = topics.map(|(topic, (error_code, error_message))| CreatableTopicResult {
                name: topic.name.clone(),
                error_code,
                error_message,
                ..CreatableTopicResult::default()
            });
            head.frame(&CreateTopicsResponse { topics: topics.collect(), ..CreateTopicsResponse::default() })
        };
        let changed = !request.validate_only && results.iter().any(|(code, _)| code.is_none());
        self.after_snapshot(changed, frame(results.clone()), frame(results.iter().map(unless_written).collect()))
    }

    pub(super) fn answer_create_partitions(&mut self, job: &Job, request: &CreatePartitionsRequest) -> Answer {
        let head = job.head;
        let mut seen = BTreeSet::new();
        let results: Vec<ItemResult> = request
            .topics
            .iter()
            .map(|topic| self.widened(topic, request.validate_only, seen.insert(topic.name.as_str())))
            .collect();
        let frame = |results: Vec<ItemResult>| {
            let topics = request.topics.iter().zip(results);
            let results = topics.map(|(topic, (error_code, error_message))| CreatePartitionsTopicResult {
                name: topic.name.clone(),
                error_code,
                error_message,
            });
            head.frame(&CreatePartitionsResponse { results: results.collect(), ..CreatePartitionsResponse::default() })
        };
        let changed = !request.validate_only && results.iter().any(|(code, _)| code.is_none());
        self.after_snapshot(changed, frame(results.clone()), frame(results.iter().map(unless_written).collect()))
    }

    fn widened(&mut self, topic: &CreatePartitionsTopic, validate_only: bool, first: bool) -> ItemResult {
        let refused = |code, text: &'static str| (code, Some(Str::from_static(text)));
        if !self.available {
            return refused(ErrorCode::REQUEST_TIMED_OUT, "etcd unavailable");
        }
        if topic.name.trim().is_empty() {
            return refused(ErrorCode::INVALID_TOPIC_EXCEPTION, "invalid topic name");
        }
        if !first {
            return refused(ErrorCode::INVALID_REQUEST, "duplicate topic in request");
        }
        if topic.count <= 0 {
            return refused(ErrorCode::INVALID_PARTITIONS, "invalid partition count");
        }
        if topic.assignments.as_ref().is_some_and(|assignments| !assignments.is_empty()) {
            return refused(ErrorCode::INVALID_REQUEST, "replica assignment not supported");
        }
        let widened = if validate_only {
            self.snapshot.check_widen(&topic.name, topic.count)
        } else {
            self.snapshot.widen(&topic.name, topic.count)
        };
        widened.map_or_else(|no| refusal(no, ErrorCode::INVALID_PARTITIONS), |()| ItemResult::default())
    }

    /// Also removes what etcd has about the topic, committed offsets of all groups included.
    pub(super) fn answer_delete_topics(
        &mut self,
        job: &Job,
        request: &DeleteTopicsRequest,
        log: &mut SharedLog,
    ) -> Answer {
        let head = job.head;
        let mut writing = Writing::default();
        let mut results = Vec::with_capacity(request.topic_names.len());
        for name in &request.topic_names {
            results.push(if !self.available {
                (ErrorCode::REQUEST_TIMED_OUT, Some(Str::from_static("etcd unavailable")))
            } else if job.read_failed {
                (ErrorCode::UNKNOWN_SERVER_ERROR, None)
            } else {
                match self.snapshot.delete(name) {
                    Err(no) => refusal(no, ErrorCode::INVALID_TOPIC_EXCEPTION),
                    Ok(()) => {
                        log.delete_topic(name);
                        writing.writes.delete(keys::topic(name));
                        for key in job.read.keys().filter(|key| keys::is_offset_of(key, name)) {
                            writing.writes.delete(Keys::One(key.clone()));
                        }
                        ItemResult::default()
                    }
                }
            });
        }
        if !writing.writes.is_empty() {
            writing.writes.put(SNAPSHOT_KEY.into(), self.snapshot.to_json());
        }
        let frame = |results: Vec<ItemResult>| {
            let names = request.topic_names.iter().zip(results);
            let responses = names.map(|(name, (error_code, error_message))| DeletableTopicResult {
                name: Some(name.clone()),
                error_code,
                error_message,
                ..DeletableTopicResult::default()
            });
            head.frame(&DeleteTopicsResponse { responses: responses.collect(), ..DeleteTopicsResponse::default() })
        };
        writing.failed = Some(frame(results.iter().map(unless_written).collect()));
        writing.written = Some(frame(results));
        Answer::AfterWrites(writing)
    }

    pub(super) fn answer_describe_configs(
        &self,
        job: &Job,
        request: &DescribeConfigsRequest,
    ) -> DescribeConfigsResponse {
        let results = request.resources.iter().map(|resource| {
            let result = DescribeConfigsResult {
                resource_type: resource.resource_type,
                resource_name: resource.resource_name.clone(),
                ..DescribeConfigsResult::default()
            };
            match resource.resource_type {
                TOPIC => match self.topic_config(job, &resource.resource_name) {
                    Some(config) => DescribeConfigsResult { configs: topic_entries(resource, config), ..result },
                    None => DescribeConfigsResult { error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, ..result },
                },
                // Whatever broker is asked for, the one that answers describes itself.
                BROKER => DescribeConfigsResult { configs: self.broker_entries(resource), ..result },
                _ => DescribeConfigsResult { error_code: ErrorCode::INVALID_REQUEST, ..result },
            }
        });
        DescribeConfigsResponse { results: results.collect(), ..DescribeConfigsResponse::default() }
    }

    pub(super) fn answer_alter_configs(&self, job: &Job, request: &AlterConfigsRequest) -> Answer {
        let head = job.head;
        let mut writing = Writing::default();
        let results: Vec<ItemResult> = request
            .resources
            .iter()
            .map(|resource| match self.altered(job, resource) {
                Err(code) => (code, None),
                Ok(config) => {
                    if !request.validate_only {
                        let value = serde_json::to_vec(&config).expect("settings have nothing that JSON cannot say");
                        writing.writes.put(keys::topic_config(&resource.resource_name), value);
                    }
                    ItemResult::default()
                }
            })
            .collect();
        let frame = |results: Vec<ItemResult>| {
            let resources = request.resources.iter().zip(results);
            let responses = resources.map(|(resource, (error_code, error_message))| AlterConfigsResourceResponse {
                error_code,
                error_message,
                resource_type: resource.resource_type,
                resource_name: resource.resource_name.clone(),
            });
            head.frame(&AlterConfigsResponse { responses: responses.collect(), ..AlterConfigsResponse::default() })
        };
        writing.failed = Some(frame(results.iter().map(unless_written).collect()));
        writing.written = Some(frame(results));
        Answer::AfterWrites(writing)
    }

    fn altered(&self, job: &Job, resource: &AlterConfigsResource) -> Result<TopicConfig, ErrorCode> {
        if !self.available {
            return Err(ErrorCode::REQUEST_TIMED_OUT);
        }
        if resource.resource_type != TOPIC || resource.resource_name.is_empty() {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        let mut config =
            self.topic_config(job, &resource.resource_name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        for entry in &resource.configs {
            config.set(&entry.name, entry.value.as_deref())?;
        }
        Ok(config)
    }

    fn topic_config(&self, job: &Job, topic: &str) -> Option<TopicConfig> {
        if job.read_failed {
            return None;
        }
        match job.read.get(&keys::topic_config(topic)) {
            Some(kv) => serde_json::from_slice(&kv.value).ok(),
            None => self.snapshot.topic(topic).map(|_| TopicConfig::default()),
        }
    }

    fn broker_entries(&self, resource: &DescribeConfigsResource) -> Vec<DescribeConfigsResourceResult> {
        let address = format!("{}:{}", self.settings.host, self.settings.port);
        [("broker.id", self.settings.id.to_string(), TYPE_INT), ("advertised.listeners", address, TYPE_STRING)]
            .into_iter()
            .filter(|(name, ..)| is_wanted(resource, name))
            .map(|(name, value, config_type)| DescribeConfigsResourceResult {
                read_only: true,
                ..entry(name, value, SOURCE_DEFAULT, config_type)
            })
            .collect()
    }

    /// Waits for the snapshot to be stored, if it has changed. Nothing is compared: of two brokers that create topics at
    /// the same moment one may undo the other.
    fn after_snapshot(&self, changed: bool, written: bytes::Bytes, failed: bytes::Bytes) -> Answer {
        let mut writing = Writing { written: Some(written), failed: Some(failed), ..Writing::default() };
        if changed {
            writing.writes.put(SNAPSHOT_KEY.into(), self.snapshot.to_json());
        }
        Answer::AfterWrites(writing)
    }
}

fn described(topic: &SnapshotTopic) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: ErrorCode(topic.error_code),
        name: topic.topic.as_deref().map(Str::from),
        topic_id: topic.topic_id,
        is_internal: topic.is_internal,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| MetadataResponsePartition {
                error_code: ErrorCode(partition.error_code),
                partition_index: partition.partition,
                leader_id: partition.leader,
                leader_epoch: partition.leader_epoch,
                replica_nodes: partition.replicas.clone(),
                isr_nodes: partition.isr.clone(),
                offline_replicas: partition.offline_replicas.clone(),
            })
            .collect(),
        topic_authorized_operations: topic.authorized_operations,
    }
}

fn topic_entries(resource: &DescribeConfigsResource, config: TopicConfig) -> Vec<DescribeConfigsResourceResult> {
    let TopicConfig { retention_ms, retention_bytes, segment_bytes } = config;
    let retention = |value: i64| if value == 0 { -1 } else { value };
    [
        ("retention.ms", retention(retention_ms), retention(retention_ms) == -1, TYPE_LONG),
        ("retention.bytes", retention(retention_bytes), retention(retention_bytes) == -1, TYPE_LONG),
        ("segment.bytes", if segment_bytes > 0 { segment_bytes } else { SEGMENT_BYTES }, segment_bytes <= 0, TYPE_INT),
    ]
    .into_iter()
    .filter(|(name, ..)| is_wanted(resource, name))
    .map(|(name, value, is_default, config_type)| {
        let source = if is_default { SOURCE_DEFAULT } else { SOURCE_TOPIC };
        entry(name, value.to_string(), source, config_type)
    })
    .collect()
}

fn is_wanted(resource: &DescribeConfigsResource, name: &str) -> bool {
    resource.configuration_keys.as_ref().is_none_or(|keys| keys.iter().any(|key| key.as_str() == name))
}

fn entry(name: &str, value: String, config_source: i8, config_type: i8) -> DescribeConfigsResourceResult {
    DescribeConfigsResourceResult {
        name: name.into(),
        value: Some(value.into()),
        is_default: config_source == SOURCE_DEFAULT,
        config_source,
        config_type,
        ..DescribeConfigsResourceResult::default()
    }
}
