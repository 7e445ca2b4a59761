//! Metadata, answered from the snapshot: the proxy is the only broker (kafka-listener contract section 3).

use crate::cluster::Cluster;
use crate::cluster::snapshot::{Snapshot, Topic};
use crate::config::ListenerConfig;
use crate::kafka::{
    ErrorCode, MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker,
    MetadataResponsePartition, MetadataResponseTopic, Str,
};
use crate::listener::request::Undecodable;

/// The proxy's own id, in every answer that names a broker.
pub(super) const NODE_ID: i32 = 0;

const NO_ID: [u8; 16] = [0; 16];

/// Answers a request; nothing is asked of brokers, and no topic is created.
pub(super) fn answer(
    request: &MetadataRequest,
    version: i16,
    cluster: &Cluster,
    config: &ListenerConfig,
) -> Result<MetadataResponse, Undecodable> {
    let nothing = Snapshot::default();
    let snapshot = cluster.snapshot().unwrap_or(&nothing);
    if request.topics.as_ref().is_some_and(|asked| repeats(snapshot, asked)) {
        tracing::warn!("Metadata names the same topics over and over");
        return Err(Undecodable);
    }
    let topics = match &request.topics {
        None => snapshot.topics().iter().map(known).collect(),
        Some(asked) if asked.is_empty() && version == 0 => snapshot.topics().iter().map(known).collect(),
        Some(asked) => asked.iter().map(|topic| named(snapshot, topic)).collect(),
    };
    Ok(MetadataResponse {
        throttle_time_ms: 0,
        brokers: vec![MetadataResponseBroker {
            node_id: NODE_ID,
            host: Str::from(config.advertised_host.as_str()),
            port: i32::from(config.advertised_port),
            rack: None,
        }],
        cluster_id: snapshot.cluster_id().map(Str::from),
        controller_id: NODE_ID,
        topics,
        ..MetadataResponse::default()
    })
}

/// Topics, and partitions, that a request may ask for although it must name topics twice for that.
const REPEATED: usize = 10_000;

/// Whether the answer would hold more topics or partitions than there are, by far: some bytes of a name or of an id would
/// cost megabytes.
fn repeats(snapshot: &Snapshot, asked: &[MetadataRequestTopic]) -> bool {
    let (mut topics, mut partitions) = (0, 0);
    for topic in asked.iter().filter_map(|asked| find(snapshot, asked)) {
        topics += 1;
        partitions += topic.partitions.len();
    }
    topics > snapshot.topics().len().max(REPEATED) || partitions > snapshot.partition_count().max(REPEATED)
}

fn find<'a>(snapshot: &'a Snapshot, asked: &MetadataRequestTopic) -> Option<&'a Topic> {
    if asked.topic_id != NO_ID {
        snapshot.topic_by_id(&asked.topic_id)
    } else {
        asked.name.as_ref().and_then(|name| snapshot.topic(name))
    }
}

/// Each entry is resolved by its own kind: by id when it has one, else by name.
fn named(snapshot: &Snapshot, asked: &MetadataRequestTopic) -> MetadataResponseTopic {
    let by_id = asked.topic_id != NO_ID;
    match find(snapshot, asked) {
        Some(topic) => known(topic),
        None if by_id => MetadataResponseTopic {
            error_code: ErrorCode::UNKNOWN_TOPIC_ID,
            topic_id: asked.topic_id,
            ..MetadataResponseTopic::default()
        },
        None => MetadataResponseTopic {
            error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            name: asked.name.clone(),
            ..MetadataResponseTopic::default()
        },
    }
}

fn known(topic: &Topic) -> MetadataResponseTopic {
    let error_code = ErrorCode(topic.error_code);
    // The partitions of a topic with an error would name brokers that the client cannot reach.
    let partitions = if error_code.is_none() { topic.partitions.as_slice() } else { &[] };
    MetadataResponseTopic {
        error_code,
        name: Some(Str::from(&*topic.name)),
        topic_id: topic.id,
        is_internal: topic.is_internal,
        partitions: partitions
            .iter()
            .map(|partition| MetadataResponsePartition {
                error_code: ErrorCode(partition.error_code),
                partition_index: partition.index,
                leader_id: NODE_ID,
                leader_epoch: partition.leader_epoch,
                replica_nodes: vec![NODE_ID],
                isr_nodes: vec![NODE_ID],
                offline_replicas: Vec::new(),
            })
            .collect(),
        ..MetadataResponseTopic::default()
    }
}
